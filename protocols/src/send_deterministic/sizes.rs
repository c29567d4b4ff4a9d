//! Sizes of a rank's tables.

use counterfoil_log_core::Rank;

use super::SendDeterministic;

/// Sizes of the tables about the messages to and from one peer.
///
/// SPE has at most one row for each epoch of this rank in which a message was sent that it may send again, or that the
/// peer may ask for. RPP has at most two for each phase in which a message was received that the peer may send again,
/// or that this rank may ask for, and one for all earlier messages. The number of phases in an epoch follows from the
/// program: each logged message may begin one. `Logs` and `NonAck` have no rows of their own; their payloads are in the
/// log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSizes {
    /// Peer of the tables.
    pub peer: Rank,
    /// Rows of SPE (Guermouche 2011, Figure 3, line 5).
    pub spe: usize,
    /// Messages in NonAck (line 3).
    pub unacknowledged: u64,
    /// Rows of RPP (line 6).
    pub rpp: usize,
    /// Runs of messages received in one epoch, in the window for acknowledgements.
    pub receive_epochs: usize,
}

impl SendDeterministic {
    /// Returns the sizes of the tables, by peer. For simulators and reports.
    pub fn table_sizes(&self) -> impl Iterator<Item = TableSizes> {
        self.channels.values().map(|channel| TableSizes {
            peer: channel.peer(),
            spe: channel.sent.table(|epoch| self.restart_epoch(epoch, self.durable)).len(),
            unacknowledged: channel.sent.unknown(),
            rpp: channel.receipts.rows(),
            receive_epochs: channel.link.recv.receive_epochs().runs().len(),
        })
    }
}
