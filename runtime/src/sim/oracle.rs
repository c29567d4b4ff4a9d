//! The oracles: they hear what really happened, ask neither the protocol nor the log, and say what is wrong with it.
//!
//! | what must hold | when it is checked | found as |
//! |---|---|---|
//! | each send has the number and the bytes that it has without failures | at the send | [`Wrong::Send`] |
//! | a replacement sends what its predecessor had sent, where the rule says so | at the send | [`Wrong::Diverged`] |
//! | a replacement receives in its predecessor's order, where the rule says so | at the receive | [`Wrong::OtherOrder`] |
//! | nothing is received twice by one execution | at the receive | [`Wrong::Duplicate`] |
//! | the messages of a stream are taken in order, undamaged | when taken | [`Wrong::Take`] |
//! | only what every restorable checkpoint of the receiver has is freed | when freed | [`Wrong::FreedTooMuch`] |
//! | only durable, kept checkpoints are restored | at the restart | [`Wrong::NoCheckpoint`] |
//! | everything was sent, received and taken once | at the end | [`Wrong::Incomplete`] |
//! | what was taken was sent, with these bytes, by an execution that is not undone | at the end | [`Wrong::Undone`] |
//! | happened-before has no cycle | at the end | [`Wrong::Cycle`] |
//! | nobody goes on with what depends on an orphan, where orphans are to be sent again | at each operation | [`Wrong::TooEarly`], [`Wrong::Cycle`] |
//! | a recovery line takes back no more than it must | when it is drawn | [`Wrong::LineTooLow`] |
//! | where it leaves the ranks, nothing is missing | when it is drawn | [`Wrong::LineTooHigh`] |
//! | the lanes hold no more than the receivers' checkpoints make necessary | at the end | [`Wrong::Retained`] |
//! | no table holds more than what is live | at the end | [`Wrong::Grown`] |
//! | a sender has heard of the first message of each of its epochs that is to be logged, or has marked it | at the end | [`Wrong::Unheard`] |
//!
//! That a run ends, and that nobody waits for ever, is for the simulator's core to see.

mod causal;
mod line;
mod reference;
mod repetition;
#[cfg(test)]
mod tests;
mod timeline;

use std::collections::BTreeMap;

use counterfoil::{Epoch, Ssn};

use super::program::Program;
use super::protocol::{Repetition, Retention, TableSizes};
use super::trace::Event;
use super::violation::Wrong;
use causal::Causality;
use line::Receipts;
pub(super) use reference::Reference;
use repetition::Predecessor;
use timeline::{Operation, Timeline};

/// Everything that counts, of all ranks.
#[derive(Debug)]
pub(super) struct Oracle {
    reference: Reference,
    timelines: Vec<Timeline>,
    receipts: Receipts,
    retention: Retention,
    /// By rank.
    predecessors: Vec<Predecessor>,
    repetition: Repetition,
    /// Where only logged messages are kept, and others have to be sent again.
    causality: Option<Causality>,
}

impl Oracle {
    pub(super) fn new(program: &Program, retention: Retention, repetition: Repetition) -> Oracle {
        let ranks = program.ranks();
        Oracle {
            reference: Reference::new(program),
            timelines: (0..ranks).map(|_| Timeline::default()).collect(),
            receipts: Receipts::new(ranks),
            retention,
            predecessors: (0..ranks).map(|_| Predecessor::default()).collect(),
            repetition,
            causality: (retention == Retention::Logged).then(|| Causality::new(ranks)),
        }
    }

    /// How many messages were received in another epoch than before, and how many recovery lines have made orphans.
    pub(super) fn counted(&self) -> (u64, u64) {
        (self.receipts.other_epochs(), self.receipts.orphans())
    }

    /// Whether a line that is drawn now is drawn from what all processes have told that are the last of their ranks.
    pub(super) fn is_current(&self) -> bool {
        self.receipts.is_current()
    }

    /// Where a line leaves a channel: the last message that its receiver has there, and the last that its sender has sent.
    pub(super) fn channel_at(&self, from: u32, to: u32, line: &[Option<Epoch>]) -> (Ssn, Ssn) {
        let at = |rank: u32| line.get(rank as usize).copied().flatten();
        let (sender, receiver) = (&self.timelines[from as usize], &self.timelines[to as usize]);
        (receiver.accepted_at(at(to), from), sender.sent_at(at(from), to))
    }

    /// Whether a rank stands exactly at this checkpoint.
    pub(super) fn stands_at(&self, rank: u32, epoch: Epoch) -> bool {
        self.timelines[rank as usize].stands_at(epoch)
    }

    /// Hears what happened.
    pub(super) fn note(&mut self, event: Event) -> Result<(), Wrong> {
        match event {
            Event::Killed { node } => self.receipts.die(node),
            Event::Acknowledged { rank, peer, upto } => self.receipts.acknowledge(rank, peer, upto),
            Event::Unacknowledged { rank, peer, to } => self.receipts.forget(rank, peer, to),
            Event::Testified { rank } => {
                self.receipts.testify(rank);
                self.causality.iter_mut().for_each(|causality| causality.heed(rank));
            }
            Event::Recovered { rank } => self.receipts.recovered(rank),
            Event::Line { rank, epoch } => {
                self.receipts.note_line(epoch, &self.timelines)?;
                self.causality.iter_mut().for_each(|causality| causality.heed(rank));
            }
            Event::Started { rank, epoch } | Event::RolledBack { rank, epoch } => {
                let timeline = &mut self.timelines[rank as usize];
                let undone = timeline.restore(rank, epoch)?;
                self.predecessors[rank as usize].die(self.repetition, undone);
                self.receipts.restore(rank, epoch, timeline.restores() == 0);
                let replaced = matches!(event, Event::Started { .. });
                self.causality.iter_mut().for_each(|causality| causality.restore(replaced, &self.timelines));
            }
            Event::Sent { rank, to, ssn, payload, marked } => {
                let timeline = &mut self.timelines[rank as usize];
                let right = ssn.0 == timeline.sent(to) + 1;
                if !right || self.reference.content(rank, to, ssn) != Some(payload.content) {
                    return Err(Wrong::Send { rank, to, number: ssn.0 });
                }
                timeline.push(Operation::Sent { to, ssn, payload, marked, epoch: timeline.epoch() });
                self.predecessors[rank as usize].check_sent((rank, to, ssn), payload)?;
                self.check_causality(rank)?;
            }
            Event::Accepted { rank, from, ssn, sent_in, marked } => {
                let timeline = &mut self.timelines[rank as usize];
                let epoch = timeline.epoch();
                let logged = marked || sent_in < epoch;
                if !timeline.push(Operation::Accepted { from, ssn, marked, logged, epoch }) {
                    return Err(Wrong::Duplicate { rank, from, number: ssn.0 });
                }
                self.predecessors[rank as usize].check_accepted((rank, from, ssn))?;
                self.receipts.receive(from, rank, ssn, epoch, logged);
                self.check_causality(rank)?;
            }
            Event::Taken { rank, from, tag, ssn, payload } => {
                let timeline = &mut self.timelines[rank as usize];
                let next = self.reference.next_taken(rank, from, tag, timeline.taken_of(from, tag));
                if next != Some(ssn) || self.reference.content(from, rank, ssn) != Some(payload.content) {
                    return Err(Wrong::Take { rank, from, tag, number: ssn.0 });
                }
                timeline.push(Operation::Taken { from, tag, ssn, payload });
                self.check_causality(rank)?;
            }
            Event::Checkpointed { rank, epoch } => self.timelines[rank as usize].checkpoint(epoch),
            Event::Durable { rank, epoch } => {
                if !self.timelines[rank as usize].durable(epoch) {
                    return Err(Wrong::NoCheckpoint { rank, epoch: epoch.0 });
                }
            }
            Event::CheckpointsKept { rank, first, last } => self.timelines[rank as usize].keep(first, last),
            Event::Freed { rank, peer, upto } => {
                let covered = self.timelines[peer as usize].covered(rank);
                if upto > covered {
                    return Err(Wrong::FreedTooMuch { rank, peer, upto: upto.0, covered: covered.0 });
                }
            }
            Event::Retained { rank, peer, records } => {
                let timeline = &self.timelines[rank as usize];
                let sent = timeline.sent(peer);
                let level = match self.retention {
                    Retention::AllSent => sent,
                    Retention::Logged => {
                        let covered = self.timelines[peer as usize].covered(rank);
                        self.timelines[peer as usize].to_keep(rank, covered, self.receipts.known(rank, peer))
                    }
                    Retention::UntilCovered { slack } => {
                        let covered = self.timelines[peer as usize].covered(rank);
                        let slack = slack * timeline.restores();
                        (sent.saturating_sub(covered.0) + slack).min(sent)
                    }
                };
                if records > level {
                    return Err(Wrong::Retained { rank, peer, records, level });
                }
            }
            Event::Tables { rank, peer, sizes } => self.check_tables(rank, peer, sizes)?,
        }
        Ok(())
    }

    fn check_causality(&mut self, rank: u32) -> Result<(), Wrong> {
        self.causality.as_mut().map_or(Ok(()), |causality| causality.act(rank, &self.timelines))
    }

    /// Tables speak of what is live: messages that their receiver may ask for, because its oldest restorable checkpoint doesn't
    /// have them, or that their sender may send again, because its oldest restorable checkpoint comes before them.
    ///
    /// SPE has a row for each epoch of the sender with such a message. RPP has, for one peer, one row for what was before, and
    /// no more than one for each such message: how many of them share a row depends on their phases, which no number of
    /// epochs bounds. NonAck has live messages only.
    fn check_tables(&self, rank: u32, peer: u32, sizes: TableSizes) -> Result<(), Wrong> {
        let live = |from: u32, to: u32| {
            let (sender, receiver) = (&self.timelines[from as usize], &self.timelines[to as usize]);
            let settled = receiver.covered(from).min(sender.settled(to));
            (settled, sender.sent_in(to).split_off((settled.0 as usize).min(sender.sent(to) as usize)))
        };
        let (_, mut epochs) = live(rank, peer);
        let messages = epochs.len() as u64;
        epochs.dedup();
        let (settled, _) = live(peer, rank);
        let received = self.timelines[rank as usize].accepted(peer);
        let tables = [
            ("SPE", sizes.spe, epochs.len() as u64),
            ("NonAck", sizes.unacknowledged, messages),
            ("RPP", sizes.rpp, 1 + received.saturating_sub(settled.0)),
        ];
        match tables.into_iter().find(|(_, rows, live)| rows > live) {
            Some((table, rows, live)) => Err(Wrong::Grown { rank, peer, table, rows, live }),
            None => Ok(()),
        }
    }

    /// All has come to rest.
    pub(super) fn finish(&self) -> Result<(), Wrong> {
        self.check_complete()?;
        self.check_known()?;
        self.check_sent()?;
        self.check_order()
    }

    fn check_complete(&self) -> Result<(), Wrong> {
        for (from, to, expected) in self.reference.channels() {
            let (sender, receiver) = (&self.timelines[from as usize], &self.timelines[to as usize]);
            let (sent, received, taken) = (sender.sent(to), receiver.accepted(from), receiver.taken(from));
            if [sent, received, taken] != [expected; 3] {
                return Err(Wrong::Incomplete { from, to, expected, sent, received, taken });
            }
        }
        Ok(())
    }

    /// Where only logged messages are kept, a sender hears of the first of each of its epochs that is to be logged, without
    /// asking (Guermouche 2011, section V.A), unless it has marked them: else it counts them as if their receiver's failure would take it back.
    fn check_known(&self) -> Result<(), Wrong> {
        if self.retention != Retention::Logged {
            return Ok(());
        }
        for (peer, receiver) in (0..).zip(&self.timelines) {
            for rank in (0..self.timelines.len() as u32).filter(|&rank| rank != peer) {
                // What is covered isn't acknowledged any more.
                let known = self.receipts.known(rank, peer).max(receiver.covered(rank));
                let first = receiver.first_of_past(rank, &self.timelines[rank as usize].sendings(peer));
                if let Some(ssn) = first.into_values().find(|&ssn| ssn > known) {
                    return Err(Wrong::Unheard { rank, peer, number: ssn.0 });
                }
            }
        }
        Ok(())
    }

    /// Every message that was taken is, with all its bytes, one that its sender's present past has sent.
    fn check_sent(&self) -> Result<(), Wrong> {
        let mut sent = BTreeMap::new();
        for (from, operation) in self.operations() {
            if let Operation::Sent { to, ssn, payload, .. } = operation {
                sent.insert((from, to, ssn), payload);
            }
        }
        for (rank, operation) in self.operations() {
            if let Operation::Taken { from, ssn, payload, .. } = operation
                && sent.get(&(from, rank, ssn)) != Some(&payload)
            {
                return Err(Wrong::Undone { rank, from, number: ssn.0 });
            }
        }
        Ok(())
    }

    fn operations(&self) -> impl Iterator<Item = (u32, Operation)> {
        let each = self.timelines.iter().zip(0..);
        each.flat_map(|(timeline, rank)| timeline.operations.iter().map(move |&operation| (rank, operation)))
    }

    /// All that counts can be put into one order in which nothing is taken before it was sent.
    fn check_order(&self) -> Result<(), Wrong> {
        let ranks = self.timelines.len();
        let mut at = vec![0_usize; ranks];
        let mut sent = vec![Ssn::ZERO; ranks * ranks];
        loop {
            let mut moved = false;
            for rank in 0..ranks {
                while let Some(&operation) = self.timelines[rank].operations.get(at[rank]) {
                    match operation {
                        Operation::Sent { to, ssn, .. } => sent[rank * ranks + to as usize] = ssn,
                        Operation::Taken { from, ssn, .. } if sent[from as usize * ranks + rank] < ssn => break,
                        // What a replacement receives may follow from what it has yet to send again; only what it
                        // takes may not.
                        Operation::Accepted { .. } | Operation::Taken { .. } => {}
                    }
                    at[rank] += 1;
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        let stuck = (0..ranks).find(|&rank| at[rank] < self.timelines[rank].operations.len());
        stuck.map_or(Ok(()), |rank| Err(Wrong::Cycle { rank: rank as u32, operation: at[rank] as u64 }))
    }
}
