//! Messages: the request of a rank to another, and what a rank reports to the coordinator.

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

/// Lines after the committed one that a rank has finished: its part of them is on stable storage.
pub(super) type Finished = Vec<u32>;
