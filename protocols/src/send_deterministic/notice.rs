//! Notices: the messages between ranks and the recovery process, and between ranks.

use counterfoil_log_core::{Epoch, Incarnation, Rank, Ssn};
use serde::{Deserialize, Serialize};

use super::line::RankTable;
use super::phases::PhaseOrder;
use crate::api::Hello;
pub(super) use crate::encoding::{decode, encode};

/// Control header tag for a [`Covered`].
pub(super) const COVERED: i32 = 1;

/// Message from a rank to the recovery process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Report {
    /// A replacement asks for a new round (Figure 3, line 51).
    Rollback { incarnation: u32 },
    /// Input for the recovery line (Figure 3, lines 52 and 56), the rank's phase, and its phase order.
    Table { round: u64, table: RankTable, phase: u32, phases: PhaseOrder },
    /// Input for a collection.
    Collection { number: u64, table: RankTable },
    /// The rank has obeyed the line; `phases`: its phases with orphans (Figure 3, line 68).
    Orphans { round: u64, phases: Vec<u32> },
    /// The rank has received all orphans from a phase again (Figure 3, line 32). `resent_phase`: highest phase in which
    /// an orphan was sent to it again, in the round so far.
    NoOrphanPhase { round: u64, phase: u32, resent_phase: u32 },
}

/// Message from the recovery process to a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Command {
    /// Begins a round: block, and send the table (Figure 3, line 54).
    Block { round: u64 },
    /// Recovery line (Figure 3, line 58), as far as it concerns this rank.
    Line(Line),
    /// No orphan is left in phases before `open` (Figure 3, line 70). A running rank assigns phases from `next_phase`
    /// on.
    Ready { round: u64, open: u32, next_phase: u32 },
    /// No orphan is left: ends the recovery, with the phase order from now on.
    Finished { round: u64, next_phase: u32, phases: PhaseOrder },
    /// Asks for the table for a collection.
    Collect { number: u64, round: u64 },
    /// No recovery will roll the rank back before `epoch`. `ceiling`: smallest epoch in the next cluster; `u32::MAX`
    /// without one.
    Floor { round: u64, epoch: u32, ceiling: u32 },
}

/// Recovery line for one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) round: u64,
    /// Incarnation of this rank for which the line was computed. A successor waits for the next round.
    pub(super) for_incarnation: u32,
    /// Epoch to roll back to and incarnation to have afterwards; `None`: stay.
    pub(super) restore: Option<(u32, u32)>,
    /// Ranks with messages sent to this one.
    pub(super) senders: Vec<Sender>,
    /// Ranks with a nonzero incarnation in this recovery, ascending, with it: messages from earlier ones don't count
    /// any more, also from ranks unknown here.
    pub(super) living: Vec<(u32, u32)>,
    /// Order among all phases assigned before this round.
    pub(super) phases: PhaseOrder,
}

/// Place in the recovery line for a rank that has sent to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sender {
    pub(super) rank: u32,
    /// Last message it doesn't send by executing: sent before its rollback checkpoint, or before it blocked.
    pub(super) base: u64,
}

/// Messages received alike: from the end of the previous run up to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReceivedRun {
    pub(super) last: u64,
    pub(super) epoch: u32,
    /// `true` if they raised the receiver's phase above their own.
    pub(super) logged: bool,
}

/// Promise of a rank not to roll back before `epoch`: no recovery asks the receiver for its messages up to `upto`, and
/// none makes the promising rank send its own up to `stable` again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Covered {
    pub(super) epoch: u32,
    pub(super) upto: u64,
    pub(super) stable: u64,
}

impl ReceivedRun {
    /// Returns `true` if these can be all receipt runs in a Hello; a Hello without any tells nothing.
    pub(super) fn are_sound(runs: &[ReceivedRun], hello: &Hello) -> bool {
        runs.is_sorted_by(|a, b| a.last < b.last && a.epoch <= b.epoch)
            && runs.first().is_none_or(|first| first.last > 0 && first.epoch >= Epoch::FIRST.0)
            && runs.last().is_none_or(|last| last.last == hello.received.upto().0 && last.epoch <= hello.epoch.0)
    }
}

impl Line {
    /// Returns the incarnation of a rank in this recovery.
    pub(super) fn incarnation_of(&self, rank: Rank) -> Incarnation {
        incarnation_in(&self.living, rank)
    }
}

/// Returns the incarnation of a rank from a [list](Line::living).
pub(super) fn incarnation_in(living: &[(u32, u32)], rank: Rank) -> Incarnation {
    let place = living.binary_search_by_key(&rank.0, |&(rank, _)| rank);
    Incarnation(place.map_or(0, |place| living[place].1))
}

impl Covered {
    /// Returns `true` if every number is in its range.
    pub(super) fn is_sound(&self) -> bool {
        (Epoch::FIRST.0..=Epoch::MAX.0).contains(&self.epoch) && self.upto <= Ssn::MAX.0 && self.stable <= Ssn::MAX.0
    }
}

impl Command {
    /// Returns `true` if every number is in its range, and the phase orders are orders.
    pub(super) fn is_sound(&self) -> bool {
        match self {
            Command::Line(Line { restore, senders, living, phases, .. }) => {
                let epochs = Epoch::FIRST.0..=Epoch::MAX.0;
                phases.is_sound()
                    && restore.is_none_or(|(epoch, _)| epochs.contains(&epoch))
                    && senders.iter().all(|sender| sender.base <= Ssn::MAX.0)
                    && living.is_sorted_by(|(a, _), (b, _)| a < b)
            }
            Command::Finished { phases, .. } => phases.is_sound(),
            Command::Floor { epoch, .. } => *epoch <= Epoch::MAX.0,
            Command::Block { .. } | Command::Ready { .. } | Command::Collect { .. } => true,
        }
    }
}

impl Report {
    /// Returns `true` if the table and its phase order are possible for a rank.
    fn is_sound(&self, ranks: u32) -> bool {
        match self {
            Report::Table { table, phases, .. } => table.is_sound(ranks) && phases.is_sound(),
            Report::Collection { table, .. } => table.is_sound(ranks),
            Report::Rollback { .. } | Report::Orphans { .. } | Report::NoOrphanPhase { .. } => true,
        }
    }

    /// Decodes a report in a job of `ranks` ranks; `None` if it can't be one.
    pub(super) fn decode(bytes: &[u8], ranks: u32) -> Option<Report> {
        decode(bytes).filter(|report: &Report| report.is_sound(ranks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use counterfoil_ack_piggyback::ReceivedSet;

    /// Returns the Hello from a rank in epoch 2 with `upto` received messages.
    fn hello(upto: u64) -> Hello {
        let mut received = ReceivedSet::new();
        for ssn in 1..=upto {
            received.insert(Ssn(ssn), 0).unwrap();
        }
        Hello {
            rank: Rank(0),
            incarnation: Incarnation(0),
            epoch: Epoch(2),
            received,
            covered: (Epoch::FIRST, Ssn::ZERO),
            sent: Ssn::ZERO,
            acked: Ssn::ZERO,
            opaque: Vec::new(),
        }
    }

    #[test]
    fn receipts_are_in_order_and_agree_with_their_hello() {
        let are_sound = |runs: &[(u64, u32)], upto: u64| {
            let runs: Vec<_> = runs.iter().map(|&(last, epoch)| ReceivedRun { last, epoch, logged: false }).collect();
            ReceivedRun::are_sound(&runs, &hello(upto))
        };
        assert!(are_sound(&[], 4) && are_sound(&[(4, 1)], 4) && are_sound(&[(1, 1), (3, 1), (4, 2)], 4));
        assert!(!are_sound(&[(4, 1), (4, 2)], 4), "no message in the second run");
        assert!(!are_sound(&[(5, 1), (4, 1)], 4), "the messages fall");
        assert!(!are_sound(&[(3, 2), (4, 1)], 4), "the epochs fall");
        assert!(!are_sound(&[(0, 1)], 0), "no message in the first run");
        assert!(!are_sound(&[(4, 0)], 4), "before the first epoch");
        assert!(!are_sound(&[(3, 1)], 4) && !are_sound(&[(4, 3)], 4), "the Hello says otherwise");
    }

    #[test]
    fn a_promise_has_its_numbers_in_range() {
        let good = Covered { epoch: Epoch::MAX.0, upto: Ssn::MAX.0, stable: Ssn::MAX.0 };
        assert!(good.is_sound());
        let beyond = Ssn::MAX.0 + 1;
        for bad in [Covered { epoch: 0, ..good }, Covered { upto: beyond, ..good }, Covered { stable: beyond, ..good }]
        {
            assert!(!bad.is_sound(), "{bad:?}");
        }
    }

    #[test]
    fn a_command_has_its_numbers_in_range_and_orders_that_are_orders() {
        let no_order: PhaseOrder = decode(&encode(&(0u64, Vec::<(u32, u32)>::new()))).unwrap();
        let sender = |base| Sender { rank: 1, base };
        let line = Line {
            restore: Some((2, 1)),
            senders: vec![sender(Ssn::MAX.0)],
            living: vec![(1, 2), (3, 1)],
            ..Line::default()
        };
        let finished = |phases| Command::Finished { round: 1, next_phase: 1, phases };
        let floor = |epoch| Command::Floor { round: 1, epoch, ceiling: u32::MAX };
        let good = [Command::Line(line.clone()), finished(PhaseOrder::default()), floor(Epoch::MAX.0)];
        let bad = [
            Command::Line(Line { restore: Some((0, 1)), ..line.clone() }),
            Command::Line(Line { senders: vec![sender(Ssn::MAX.0 + 1)], ..line.clone() }),
            Command::Line(Line { living: vec![(1, 2), (1, 3)], ..line.clone() }),
            Command::Line(Line { living: vec![(3, 1), (1, 2)], ..line.clone() }),
            Command::Line(Line { phases: no_order.clone(), ..line }),
            finished(no_order),
            floor(Epoch::MAX.0 + 1),
        ];
        for command in &good {
            assert!(command.is_sound(), "{command:?}");
        }
        for command in &bad {
            assert!(!command.is_sound(), "{command:?}");
        }
    }
}
