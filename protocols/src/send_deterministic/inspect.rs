//! Rank state for oracles and reports.

use counterfoil_log_core::Rank;

use super::SendDeterministic;
use crate::api::{Inspect, TableSizes};

impl Inspect for SendDeterministic {
    /// SPE has at most one row for each epoch in which this rank sent a message it may send again or the peer may ask
    /// for.
    ///
    /// RPP has at most two for each phase with a received message that the peer may send again or this rank may ask
    /// for, and one for all earlier messages. The number of phases in an epoch follows from the program: each logged
    /// message may begin one. `Logs` and `NonAck` have no rows of their own; their payloads are in the log.
    fn table_sizes(&self, peer: Rank) -> Option<TableSizes> {
        let channel = self.channels.get(&peer)?;
        Some(TableSizes {
            spe: channel.sent.table(|epoch| self.restart_epoch(epoch, self.durable)).len() as u64,
            unacknowledged: channel.sent.unknown(),
            rpp: channel.receipts.rows() as u64,
            receive_epochs: channel.link.recv.receive_epochs().runs().len() as u64,
        })
    }

    /// Receipts reported to the rank after it has sent its table are pending until the recovery line.
    fn reported_round(&self) -> Option<u64> {
        self.round.reported_round()
    }
}
