//! Who holds memory back.

use counterfoil_log_core::{Epoch, Rank, Ssn};

/// Bytes that a lane holds, and what would free them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The receiver whose lane it is.
    pub lane: Rank,
    /// Bytes held.
    pub bytes: usize,
    /// The oldest SSN among them.
    pub since: Ssn,
    /// What they wait for.
    pub blocked_by: Blocker,
}

/// What bytes wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blocker {
    /// The receiver hasn't acknowledged them.
    Unacknowledged,
    /// The receiver has no durable checkpoint, reachable by a recovery, that covers them.
    Checkpoint {
        /// The oldest of them was received in this epoch: a checkpoint that ends it, or a later one, is needed.
        /// `None` where epochs aren't used.
        after: Option<Epoch>,
    },
}
