//! Acknowledgements, and their effect at the sender.

use counterfoil_log_core::{Epoch, Ssn};
use thiserror::Error;

/// A cumulative acknowledgement for one channel: the receiver has every message up to and including `ssn`.
///
/// `epoch` is the receiver's epoch in which it received `ssn` itself, not its epoch when it sends the ack (Guermouche
/// 2011, Figure 3, line 27, where the two coincide because every message is acknowledged at once). All SSNs newly
/// covered by this ack share one receive epoch: [`RecvWindow`](crate::RecvWindow) splits its acks accordingly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ack {
    /// The last SSN covered. Never [`Ssn::ZERO`].
    pub ssn: Ssn,
    /// The receiver's epoch when it received `ssn`.
    pub epoch: Epoch,
}

/// The result of handling an ack ([`SendWindow::handle_ack`](crate::SendWindow::handle_ack)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "release or retain the acknowledged records"]
pub enum Acked {
    /// The ack newly covers the SSNs from `first` to `last`.
    Run {
        /// The first newly acknowledged SSN.
        first: Ssn,
        /// The last newly acknowledged SSN.
        last: Ssn,
        /// The epoch in which the receiver received them all.
        epoch: Epoch,
    },
    /// The ack covers nothing new.
    Stale,
}

/// An [`Ack`] was refused.
///
/// The window is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AckError {
    /// The peer acknowledges an SSN never sent: it answers another incarnation of this rank, or is faulty. Ignore the
    /// ack; if it came on the current connection, drop the peer.
    #[error("{acked} is acknowledged, but only {sent} and below were sent")]
    BeyondSent {
        /// The acknowledged SSN.
        acked: Ssn,
        /// The last SSN assigned by this window.
        sent: Ssn,
    },
}
