//! State for oracles and reports.

use counterfoil_log_core::Rank;

/// Rank state beyond the interface: oracles, tests and reports read it, and no driver needs it.
pub trait Inspect {
    /// Returns the table sizes for a peer; `None` if the rule has none, or none about this peer.
    fn table_sizes(&self, peer: Rank) -> Option<TableSizes> {
        let _ = peer;
        None
    }

    /// Returns the progress in a checkpoint of the whole job, as a phase from 1 to 4; 0 for rules without, and while
    /// none is under way.
    fn phase_of_line(&self) -> u32 {
        0
    }

    /// Returns the number of the last recovery line for which the rank has sent its table.
    fn reported_round(&self) -> Option<u64> {
        None
    }
}

/// Table sizes at a rank for the messages to and from one peer (Guermouche 2011, Figure 3, lines 3 to 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableSizes {
    /// SPE rows: epochs in which this rank sent to the peer.
    pub spe: u64,
    /// Messages in NonAck: not known to be received, and not known to be logged.
    pub unacknowledged: u64,
    /// RPP rows: receipts of the peer's messages.
    pub rpp: u64,
    /// Runs of the peer's messages received in one epoch, as far as known to the acknowledgements.
    pub receive_epochs: u64,
}

/// Nothing to be read.
pub(super) struct Nothing;

impl Inspect for Nothing {}
