//! Window state in a checkpoint: plain numbers, for any serialiser.
//!
//! Restoring validates the state: one impossible for a window is a [`StateError`], not a later panic.

use counterfoil_log_core::Epoch;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Checkpointed state of a [`SendWindow`](crate::SendWindow).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendWindowState {
    /// Last assigned SSN; 0 if none was.
    pub sent: u64,
    /// Highest acknowledged SSN; at most `sent`.
    pub acked: u64,
    /// Payload bytes after `acked`.
    pub unacked_bytes: u64,
    /// The rank's own epoch.
    pub epoch: u32,
}

/// State of a [`ReceivedSet`](crate::ReceivedSet) in a checkpoint, or in a message to a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedSetState {
    /// The last SSN before the first gap.
    pub upto: u64,
    /// Ranges (first, last) received beyond the first gap: sorted, and apart from each other and from `upto`.
    pub exceptions: Vec<(u64, u64)>,
}

/// A run of SSNs received in one epoch; it ends before the next run's `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochRunState {
    /// The run's first SSN.
    pub first: u64,
    /// The receiver's epoch.
    pub epoch: u32,
}

/// Checkpointed state of a [`RecvWindow`](crate::RecvWindow).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecvWindowState {
    /// The received SSNs.
    pub received: ReceivedSetState,
    /// Their receive epochs, sorted by `first`.
    pub epochs: Vec<EpochRunState>,
    /// The rank's own epoch.
    pub epoch: u32,
    /// The source's incarnation.
    pub incarnation: u32,
    /// The last SSN known to be sent by this incarnation of the source.
    pub source_sent: u64,
}

/// A state is invalid: no window can have written it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StateError {
    /// More is acknowledged than was sent.
    #[error("SSN {acked} is acknowledged, but nothing after SSN {last} exists")]
    AckedBeyondLast {
        /// Highest acknowledged SSN.
        acked: u64,
        /// Last assigned SSN.
        last: u64,
    },
    /// An SSN beyond [`Ssn::MAX`](counterfoil_log_core::Ssn::MAX).
    #[error("SSN {ssn} is beyond the limit")]
    SsnBeyondLimit {
        /// The SSN.
        ssn: u64,
    },
    /// An epoch outside [`Epoch::FIRST`] to [`Epoch::MAX`].
    #[error("epoch {epoch} isn't from 1 to {}", Epoch::MAX.0)]
    EpochOutOfRange {
        /// The epoch.
        epoch: u32,
    },
    /// Exception ranges overlap, touch or are out of order.
    #[error("the exceptions {first} to {last} aren't apart from what precedes them")]
    Exceptions {
        /// First SSN.
        first: u64,
        /// Last SSN.
        last: u64,
    },
    /// There are more exception ranges than the policy allows.
    #[error("{count} ranges of exceptions where {max} are allowed")]
    TooManyExceptions {
        /// Range count.
        count: usize,
        /// Maximum range count.
        max: usize,
    },
    /// The receive epoch runs aren't sorted, or contradict the received SSNs.
    #[error("the epoch run that begins at SSN {first} is out of place")]
    EpochRuns {
        /// First SSN of the run.
        first: u64,
    },
}

impl StateError {
    pub(crate) fn check_epoch(epoch: u32) -> Result<Epoch, StateError> {
        if (Epoch::FIRST.0..=Epoch::MAX.0).contains(&epoch) {
            Ok(Epoch(epoch))
        } else {
            Err(StateError::EpochOutOfRange { epoch })
        }
    }
}

/// An epoch can't begin, because epochs only increase.
///
/// A rollback restores the windows instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{requested} can't begin in {current}")]
pub struct EpochError {
    /// The window's epoch.
    pub current: Epoch,
    /// The refused epoch.
    pub requested: Epoch,
}

/// Returns `requested` if a window in epoch `current` may begin it.
pub(crate) fn check_begin(current: Epoch, requested: Epoch) -> Result<Epoch, EpochError> {
    if requested < current || requested > Epoch::MAX { Err(EpochError { current, requested }) } else { Ok(requested) }
}
