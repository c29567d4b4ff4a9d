//! Report of held memory.

use counterfoil_log_core::{Epoch, Rank, Ssn};

/// Memory that a lane holds, and the event that would free it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Receiver of the lane.
    pub lane: Rank,
    /// Bytes held.
    pub bytes: usize,
    /// Oldest SSN held.
    pub since: Ssn,
    /// Event that would free the bytes.
    pub blocked_by: Blocker,
}

/// Event that held bytes wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blocker {
    /// An acknowledgement of the receiver.
    Unacknowledged,
    /// A durable checkpoint of the receiver, reachable by a recovery, that covers them.
    Checkpoint {
        /// Epoch in which the oldest of them was received: a checkpoint that ends it, or a later one, is needed.
        /// `None` where epochs aren't used.
        after: Option<Epoch>,
    },
}
