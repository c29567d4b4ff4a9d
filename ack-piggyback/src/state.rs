//! Window state in a checkpoint: plain numbers, for any serialiser.
//!
//! Restoring validates the state: one that no window could have written is a [`StateError`], not a later panic.

use counterfoil_log_core::Epoch;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// State of a [`SendWindow`](crate::SendWindow) in a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendWindowState {
    /// Last assigned SSN; 0 if none was.
    pub sent: u64,
    /// Highest acknowledged SSN; at most `sent`.
    pub acked: u64,
    /// Payload bytes of the messages after `acked`.
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

/// A run of SSNs that were received in one epoch; it ends before the next run's `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochRunState {
    /// The first SSN of the run.
    pub first: u64,
    /// The receiver's epoch.
    pub epoch: u32,
}

/// State of a [`RecvWindow`](crate::RecvWindow) in a checkpoint.
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
    /// The last SSN that this incarnation of the source is known to have sent.
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
    /// An epoch that isn't from [`Epoch::FIRST`] to [`Epoch::MAX`].
    #[error("epoch {epoch} isn't from 1 to {}", Epoch::MAX.0)]
    EpochOutOfRange {
        /// The epoch.
        epoch: u32,
    },
    /// Ranges of exceptions overlap, touch or are out of order.
    #[error("the exceptions {first} to {last} aren't apart from what precedes them")]
    Exceptions {
        /// The first SSN of the range.
        first: u64,
        /// The last SSN of the range.
        last: u64,
    },
    /// There are more ranges of exceptions than the policy allows.
    #[error("{count} ranges of exceptions where {max} are allowed")]
    TooManyExceptions {
        /// Number of ranges.
        count: usize,
        /// Maximum number of ranges.
        max: usize,
    },
    /// The runs of receive epochs aren't sorted, or contradict the received SSNs.
    #[error("the epoch run that begins at SSN {first} is out of place")]
    EpochRuns {
        /// The first SSN of the run.
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

/// An epoch can't begin, because epochs only increase. A rank that rolls back restores its windows instead.
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
