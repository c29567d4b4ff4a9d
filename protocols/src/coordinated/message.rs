//! Control messages, and what is written in the same form: one byte of version, then postcard.

use std::collections::BTreeMap;

use counterfoil_log_core::Epoch;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::encoding;

/// Version that is written, and the only one that is read.
const VERSION: u8 = 1;

/// Tag of the control header of [`Counts`].
pub(super) const COUNTS: i32 = 16;

pub(super) fn encode(value: &impl Serialize) -> Vec<u8> {
    encoding::encode_versioned(VERSION, value)
}

/// Decodes a value; `None` for other bytes, another version, or trailing data.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    encoding::decode_versioned(VERSION, bytes)
}

/// Order of the initiator to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// Report the status.
    Who,
    /// Stop, for a rollback of the job, and report the status.
    Collect,
    /// Roll back to this line, and report when that is done.
    Line,
    /// Execute from there.
    Go,
    /// *pleaseCheckpoint*: take the checkpoint that begins this epoch.
    PleaseCheckpoint,
    /// *stopLogging*: all ranks have taken it.
    StopLogging,
    /// The line of this epoch is committed.
    Commit,
}

/// Message of the initiator to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Command {
    pub(super) order: Order,
    /// Execution of the job that it is about.
    pub(super) attempt: u32,
    pub(super) epoch: u32,
}

/// Execution of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Execution {
    Stopped,
    /// It is at the line, and knows from all others what they have there.
    Prepared,
    Running,
}

/// Place of a rank in the creation of a line (section 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Progress {
    /// Behind the recovery line.
    #[default]
    Behind,
    /// Beyond it, and logging.
    Logging,
    /// *readyToStopLogging*.
    Ready,
    /// Beyond the stop-log line.
    Stopping,
    /// *stoppedLogging*: its log is on stable storage.
    Stopped,
}

/// Message of a rank to the initiator: its whole state, so that a lost one does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Status {
    /// The job has to roll back: this process is new, or has lost a peer.
    pub(super) failed: bool,
    pub(super) attempt: u32,
    /// Newest line that the rank knows to be committed.
    pub(super) committed: u32,
    pub(super) epoch: u32,
    pub(super) execution: Execution,
    pub(super) progress: Progress,
}

impl Status {
    /// Returns `true` if a further epoch and attempt can follow.
    pub(super) fn is_in_range(&self) -> bool {
        self.committed.max(self.epoch) <= Epoch::MAX.0 && self.attempt < u32::MAX
    }
}

/// *mySendCount*: what a rank has done for a peer before its checkpoint (section 3.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) attempt: u32,
    /// Epoch that the checkpoint began.
    pub(super) epoch: u32,
    /// Number of messages to the peer in the epoch before.
    pub(super) messages: u64,
    /// By communicator: number of collective calls made. Figure 3 doesn't have it.
    pub(super) calls: BTreeMap<u32, u64>,
}

/// Protocol's part of a Hello.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Greeting {
    /// The rank has done nothing since it was restored.
    pub(super) restored: bool,
    /// Calls to this rank, by communicator and number, that the peer has to suppress (section 5.2).
    pub(super) suppressed: Vec<(u32, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_further_epoch_and_attempt_can_follow_a_status() {
        let status = |attempt, committed, epoch| {
            let (execution, progress) = (Execution::Running, Progress::Behind);
            Status { failed: false, attempt, committed, epoch, execution, progress }.is_in_range()
        };
        let most = Epoch::MAX.0;
        assert!(status(u32::MAX - 1, most, most));
        assert!(!status(u32::MAX, 1, 1) && !status(1, most + 1, 1) && !status(1, 1, most + 1));
    }
}
