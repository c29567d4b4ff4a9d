//! Messages: requests between ranks, and reports to the coordinator.

use counterfoil_log_core::Epoch;
use serde::{Deserialize, Serialize};

pub(super) use crate::encoding::{decode, encode};

/// Control header tag for a checkpoint request.
pub(super) const REQUEST: i32 = 16;

/// Checkpoint request (section 4.3.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request<R> {
    /// Interval begun by the sender's checkpoint: the number of the line.
    line: u32,
    /// Newest line known to the sender as committed.
    committed: u32,
    /// Statement about messages sent to the receiver before the line.
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

/// Lines after the committed one finished by a rank: its part is on stable storage.
pub(super) type Finished = Vec<u32>;
