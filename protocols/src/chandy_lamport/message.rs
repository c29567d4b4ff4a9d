//! Messages: the request of a rank to another, and those between ranks and the coordinator.

use counterfoil_log_core::Epoch;
use serde::{Deserialize, Serialize};

pub(super) use crate::encoding::{decode, encode};

/// Tag of a checkpoint request in a control header.
pub(super) const REQUEST: i32 = 16;

/// Checkpoint request (section 4.3.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request<R> {
    /// Interval that the sender's checkpoint began: the number of the line.
    line: u32,
    /// Newest line that the sender knows to be committed.
    committed: u32,
    /// What it says of the messages that it sent to the receiver before the line.
    pub(super) before: R,
}

impl<R> Request<R> {
    pub(super) fn new(line: Epoch, committed: Epoch, before: R) -> Request<R> {
        Request { line: line.0, committed: committed.0, before }
    }

    pub(super) fn line(&self) -> Epoch {
        Epoch(self.line)
    }

    pub(super) fn committed(&self) -> Epoch {
        Epoch(self.committed)
    }
}

/// Message of a rank to the coordinator. Those of an earlier attempt, or of a process that was replaced, are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Report {
    /// It was restored, as a replacement or by a rollback.
    Restored { incarnation: u32 },
    /// It has stopped; newest line that it knows to be committed.
    Stopped { attempt: u32, incarnation: u32, committed: u32 },
    /// It is at the line of the attempt.
    Ready { attempt: u32, incarnation: u32 },
    /// Its part of a line is on stable storage.
    Finished { attempt: u32, line: u32 },
}

/// Message of the coordinator to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// Stop, and say which line is committed.
    Stop { attempt: u32 },
    /// Roll back to a line.
    RollBack { attempt: u32, line: u32 },
    /// All ranks are at the line: run.
    Run { attempt: u32 },
    /// All ranks have finished a line.
    Commit { attempt: u32, line: u32 },
}
