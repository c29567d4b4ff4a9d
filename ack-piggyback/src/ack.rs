//! Acknowledgements, and what a sender learns from one.

use counterfoil_log_core::{Epoch, Ssn};
use thiserror::Error;

/// A cumulative acknowledgement of one channel: everything up to and including `ssn` was received.
///
/// `epoch` is the receiver's epoch in which `ssn` itself was received, not the epoch that the receiver is in
/// when it sends the ack (Guermouche 2011, Figure 3, line 27, where the two coincide because every message is
/// acknowledged at once). Every SSN that this ack covers and the previous ones didn't has the same receive epoch:
/// [`RecvWindow`](crate::RecvWindow) cuts its acks so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ack {
    /// All up to this one was received. Never [`Ssn::ZERO`].
    pub ssn: Ssn,
    /// The receiver's epoch when it received `ssn`.
    pub epoch: Epoch,
}

/// What an [`Ack`] changed at the sender: see [`SendWindow::handle_ack`](crate::SendWindow::handle_ack).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the records that were acknowledged are to be released or retained"]
pub enum Acked {
    /// The SSNs from `first` to `last` are acknowledged now and weren't before.
    Run {
        /// The first SSN that is newly acknowledged.
        first: Ssn,
        /// The last one.
        last: Ssn,
        /// The epoch in which the receiver received all of them.
        epoch: Epoch,
    },
    /// All of it was known already.
    Stale,
}

/// Why an [`Ack`] was refused. The window is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AckError {
    /// The peer acknowledges what was never sent. It answers another incarnation of this rank, or is confused:
    /// ignore the ack; if it comes on the current connection, drop the peer.
    #[error("{acked} is acknowledged, but only {sent} and below were sent")]
    BeyondSent {
        /// What the ack says.
        acked: Ssn,
        /// The last SSN that this window gave out.
        sent: Ssn,
    },
}
