//! Held memory report.

use counterfoil_log_core::{Epoch, Rank, Ssn};

/// Memory held by a lane, and the event to free it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The lane's receiver.
    pub lane: Rank,
    /// Bytes held.
    pub bytes: usize,
    /// Oldest SSN held.
    pub since: Ssn,
    /// Event awaited before the bytes are freed.
    pub blocked_by: Blocker,
}

/// Event awaited by held bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blocker {
    /// An acknowledgement from the receiver.
    Unacknowledged,
    /// A durable checkpoint at the receiver, reachable by a recovery and covering them.
    Checkpoint {
        /// Receive epoch of the oldest one: the checkpoint ending it, or a later one, is needed. `None` where epochs
        /// aren't used.
        after: Option<Epoch>,
    },
}
