//! What a checkpoint keeps of the windows: plain numbers, for any serialiser.
//!
//! Everything restored is checked: a state that no window could have written is a [`StateError`], never a panic
//! later.

use counterfoil_log_core::Epoch;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A [`SendWindow`](crate::SendWindow) at a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendWindowState {
    /// The last SSN that was given out; 0 if none was.
    pub sent: u64,
    /// All up to this SSN was acknowledged; at most `sent`.
    pub acked: u64,
    /// Payload bytes of the messages after `acked`.
    pub unacked_bytes: u64,
    /// The rank's own epoch.
    pub epoch: u32,
}

/// A [`ReceivedSet`](crate::ReceivedSet) at a checkpoint, or on its way to a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedSetState {
    /// All up to this SSN was received.
    pub upto: u64,
    /// Ranges (first, last) received beyond the first gap: sorted, and apart from each other and from `upto`.
    pub exceptions: Vec<(u64, u64)>,
}

/// From `first` to the next run's first, everything was received in `epoch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochRunState {
    /// The first SSN of the run.
    pub first: u64,
    /// The receiver's epoch.
    pub epoch: u32,
}

/// A [`RecvWindow`](crate::RecvWindow) at a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecvWindowState {
    /// What was received.
    pub received: ReceivedSetState,
    /// In which epoch: sorted by `first`.
    pub epochs: Vec<EpochRunState>,
    /// The rank's own epoch.
    pub epoch: u32,
    /// The source's incarnation.
    pub incarnation: u32,
    /// The last SSN that this incarnation of the source is known to have sent.
    pub offered: u64,
}

/// Why a state was refused: no window can have written it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StateError {
    /// More is acknowledged than there is.
    #[error("SSN {acked} is acknowledged, but nothing after SSN {last} exists")]
    AckedBeyondLast {
        /// What is said to be acknowledged.
        acked: u64,
        /// What there is.
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
        /// Its last.
        last: u64,
    },
    /// More ranges of exceptions than the policy allows.
    #[error("{count} ranges of exceptions where {max} are allowed")]
    TooManyExceptions {
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// The runs of receive epochs aren't sorted, or don't fit what was received.
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

/// Why a window refuses to begin an epoch: epochs only go up. A rank that rolls back restores its windows
/// instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{asked} can't begin in {current}")]
pub struct EpochError {
    /// The epoch that the window is in.
    pub current: Epoch,
    /// The epoch that was to begin.
    pub asked: Epoch,
}

/// The epoch that the window is in after `asked` begins.
pub(crate) fn begun(current: Epoch, asked: Epoch) -> Result<Epoch, EpochError> {
    if asked < current || asked > Epoch::MAX { Err(EpochError { current, asked }) } else { Ok(asked) }
}
