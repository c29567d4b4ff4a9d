//! Events of a run, as seen by the simulator: the only source for the oracles, and for a run's fingerprint.

use counterfoil_log_core::{Epoch, Incarnation, Ssn};

use counterfoil_protocols::api::TableSizes;

use super::application::Payload;
use crate::random::mix;

/// Event in a run.
///
/// [`Epoch::FIRST`] stands for the start of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A process of this rank starts, from this checkpoint.
    Started {
        rank: u32,
        epoch: Epoch,
    },
    /// A living rank rolls back to this checkpoint.
    RolledBack {
        rank: u32,
        epoch: Epoch,
    },
    Killed {
        node: u32,
    },
    Sent {
        rank: u32,
        to: u32,
        ssn: Ssn,
        payload: Payload,
        /// `true` if it goes out with the logged mark.
        marked: bool,
    },
    /// The protocol delivers a message.
    Accepted {
        rank: u32,
        from: u32,
        ssn: Ssn,
        /// Sender's epoch in its header.
        sent_in: Epoch,
        /// `true` if its header has the logged mark.
        marked: bool,
    },
    /// The application takes it.
    Taken {
        rank: u32,
        from: u32,
        tag: i32,
        ssn: Ssn,
        payload: Payload,
    },
    /// The application takes a collective call's result.
    Completed {
        rank: u32,
        number: u64,
        result: Payload,
    },
    /// A checkpoint saves the current state.
    Checkpointed {
        rank: u32,
        epoch: Epoch,
    },
    /// The checkpoint can be restored from now on.
    Durable {
        rank: u32,
        epoch: Epoch,
    },
    /// Only these checkpoints can be restored from now on.
    CheckpointsKept {
        rank: u32,
        first: Epoch,
        last: Epoch,
    },
    /// All records up to this one can be freed.
    Freed {
        rank: u32,
        peer: u32,
        upto: Ssn,
    },
    /// A rank accepts the Hello of a peer, which has received its messages up to this one.
    HelloHeard {
        rank: u32,
        peer: u32,
        incarnation: Incarnation,
        upto: Ssn,
    },
    /// A frame with an acknowledgement arrives from a peer.
    AckHeard {
        rank: u32,
        peer: u32,
        incarnation: Incarnation,
        upto: Ssn,
    },
    /// Receipts take effect on the sender's log.
    Acknowledged {
        rank: u32,
        peer: u32,
        upto: Ssn,
    },
    /// The receipts beyond this one have no effect any more.
    Unacknowledged {
        rank: u32,
        peer: u32,
        to: Ssn,
    },
    /// A rank about to send its table has transmitted the messages up to this one on the current connection, or need
    /// not.
    Transmitted {
        rank: u32,
        peer: u32,
        upto: Ssn,
    },
    /// A rank has sent its table.
    TableReported {
        rank: u32,
    },
    /// For this rank, the recovery is finished.
    Recovered {
        rank: u32,
    },
    /// Part of a recovery line, one for each rank, in order.
    Line {
        rank: u32,
        epoch: Option<Epoch>,
    },
    /// Number of records in a lane at the end.
    Retained {
        rank: u32,
        peer: u32,
        records: u64,
    },
    /// Sizes of the tables about a peer at the end.
    Tables {
        rank: u32,
        peer: u32,
        sizes: TableSizes,
    },
}

impl Event {
    /// Returns plain numbers distinguishing it from every other event.
    fn words(self) -> [u64; 5] {
        let pair = |a: u32, b: u32| u64::from(a) << 32 | u64::from(b);
        match self {
            Event::Started { rank, epoch } => [1, pair(rank, epoch.0), 0, 0, 0],
            Event::RolledBack { rank, epoch } => [2, pair(rank, epoch.0), 0, 0, 0],
            Event::Killed { node } => [3, pair(node, 0), 0, 0, 0],
            Event::Sent { rank, to, ssn, payload, marked } => {
                [4 | u64::from(marked) << 8, pair(rank, to), ssn.0, payload.content, payload.history]
            }
            Event::Accepted { rank, from, ssn, sent_in, marked } => {
                [5, pair(rank, from), ssn.0, sent_in.0.into(), marked.into()]
            }
            Event::Taken { rank, from, tag, ssn, payload } => {
                [6 | u64::from(tag.unsigned_abs()) << 8, pair(rank, from), ssn.0, payload.content, payload.history]
            }
            Event::Completed { rank, number, result } => [21, pair(rank, 0), number, result.content, result.history],
            Event::Checkpointed { rank, epoch } => [7, pair(rank, epoch.0), 0, 0, 0],
            Event::Durable { rank, epoch } => [8, pair(rank, epoch.0), 0, 0, 0],
            Event::CheckpointsKept { rank, first, last } => [9, pair(rank, first.0), last.0.into(), 0, 0],
            Event::Freed { rank, peer, upto } => [10, pair(rank, peer), upto.0, 0, 0],
            Event::Acknowledged { rank, peer, upto } => [12, pair(rank, peer), upto.0, 0, 0],
            Event::Unacknowledged { rank, peer, to } => [13, pair(rank, peer), to.0, 0, 0],
            Event::HelloHeard { rank, peer, incarnation, upto } => {
                [18, pair(rank, peer), upto.0, incarnation.0.into(), 0]
            }
            Event::AckHeard { rank, peer, incarnation, upto } => {
                [19, pair(rank, peer), upto.0, incarnation.0.into(), 0]
            }
            Event::Transmitted { rank, peer, upto } => [20, pair(rank, peer), upto.0, 0, 0],
            Event::TableReported { rank } => [14, pair(rank, 0), 0, 0, 0],
            Event::Recovered { rank } => [16, pair(rank, 0), 0, 0, 0],
            Event::Line { rank, epoch } => [15, pair(rank, epoch.map_or(0, |epoch| epoch.0)), 0, 0, 0],
            Event::Tables { rank, peer, sizes } => [17, pair(rank, peer), sizes.spe, sizes.unacknowledged, sizes.rpp],
            Event::Retained { rank, peer, records } => [11, pair(rank, peer), records, 0, 0],
        }
    }
}

/// Fingerprint over all events, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    /// Adds an event with the number `at`.
    pub(crate) fn note(&mut self, at: u64, event: Event) {
        let words = event.words();
        self.0 = words.into_iter().fold(self.0 ^ mix(at), |sum, word| mix(sum.rotate_left(11) ^ word));
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}
