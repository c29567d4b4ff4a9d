//! The oracles: checks of a run's events, independent of protocol and log.
//!
//! - [`ViolationKind::Send`], checked at the send: each send has the same number and bytes as without failures
//! - [`ViolationKind::Diverged`], checked at the send: a replacement repeats its predecessor's sends, where the rule
//!   says so
//! - [`ViolationKind::OtherOrder`], checked at the receive: a replacement receives in its predecessor's order, where
//!   the rule says so
//! - [`ViolationKind::Duplicate`], checked at the receive: one execution receives nothing twice
//! - [`ViolationKind::Take`], checked when taken: a stream's messages are taken in order, undamaged
//! - [`ViolationKind::Result`], checked when it completes, and at the end: a collective call has the same result as
//!   without failures, and at every rank
//! - [`ViolationKind::FreedTooMuch`], checked when freed: only messages in every restorable checkpoint of the receiver
//!   are freed
//! - [`ViolationKind::NoCheckpoint`], checked at the restart: only durable, kept checkpoints are restored
//! - [`ViolationKind::Incomplete`], checked at the end: every message was sent, received and taken once
//! - [`ViolationKind::Undone`], checked at the end: a taken message was sent, with these bytes, by an execution not
//!   undone
//! - [`ViolationKind::Cycle`], checked at the end: happened-before has no cycle
//! - [`ViolationKind::TooEarly`], [`ViolationKind::Cycle`], checked at each operation: no rank acts on anything
//!   dependent on an orphan, where orphans are to be sent again
//! - [`ViolationKind::LineTooLow`], checked when it is computed: a recovery line rolls back no more than necessary
//! - [`ViolationKind::LineTooHigh`], checked when it is computed: no message is missing where it leaves the ranks
//! - [`ViolationKind::ClustersMeet`], checked at a checkpoint: a rank begins an epoch only below those begun by the
//!   next cluster
//! - [`ViolationKind::Retained`], checked at the end: the lanes hold no more than necessary for the receivers'
//!   checkpoints
//! - [`ViolationKind::Grown`], checked at the end: no table holds more than live messages
//! - [`ViolationKind::Unheard`], checked at the end: a sender knows the first message to be logged from each of its
//!   epochs, or has marked it
//! - [`ViolationKind::Unapplied`], checked at the end: a receipt heard by the sender takes effect on its log
//!
//! The simulator's core checks for endless runs and ranks waiting forever.

mod causal;
mod heard;
mod line;
mod reference;
mod repetition;
#[cfg(test)]
mod tests;
mod timeline;

use std::collections::BTreeMap;

use counterfoil_log_core::{Epoch, Ssn};
use counterfoil_protocols::api::{Kept, Properties, TableSizes};

use super::program::Program;
use super::trace::Event;
use super::violation::ViolationKind;
use causal::Causality;
use heard::Heard;
use line::Receipts;
pub(crate) use reference::Reference;
use repetition::Predecessor;
use timeline::{Operation, Timeline};

/// State of the oracles, over all ranks.
#[derive(Debug)]
pub(crate) struct Oracle {
    reference: Reference,
    timelines: Vec<Timeline>,
    receipts: Receipts,
    heard: Heard,
    properties: Properties,
    /// By rank.
    predecessors: Vec<Predecessor>,
    /// Number of clusters of neighbouring ranks, of equal size as far as possible; 0 without.
    clusters: u32,
    /// Present where only logged messages are kept, and others are to be sent again.
    causality: Option<Causality>,
}

impl Oracle {
    /// `clusters`: number of clusters kept apart by the rule; 0 without.
    pub(crate) fn new(program: &Program, properties: Properties, clusters: u32) -> Oracle {
        let ranks = program.ranks();
        Oracle {
            reference: Reference::new(program),
            timelines: (0..ranks).map(|_| Timeline::default()).collect(),
            receipts: Receipts::new(ranks),
            heard: Heard::new(ranks as usize),
            properties,
            predecessors: (0..ranks).map(|_| Predecessor::default()).collect(),
            clusters,
            causality: (properties.keeps == Kept::Logged).then(|| Causality::new(ranks)),
        }
    }

    /// Returns the number of messages received in another epoch than before, and the number of orphans made by recovery
    /// lines.
    pub(crate) fn counted(&self) -> (u64, u64) {
        (self.receipts.other_epochs(), self.receipts.orphans())
    }

    /// Returns `true` if a line computed now uses tables from all ranks' current processes.
    pub(crate) fn is_current(&self) -> bool {
        self.receipts.is_current()
    }

    /// Returns a channel's state where a line leaves it: its receiver's last received and its sender's last sent
    /// message.
    pub(crate) fn channel_at(&self, from: u32, to: u32, line: &[Option<Epoch>]) -> (Ssn, Ssn) {
        let at = |rank: u32| line.get(rank as usize).copied().flatten();
        let (sender, receiver) = (&self.timelines[from as usize], &self.timelines[to as usize]);
        (receiver.accepted_at(at(to), from), sender.sent_at(at(from), to))
    }

    /// Returns `true` if a rank has been idle since this checkpoint.
    pub(crate) fn stands_at(&self, rank: u32, epoch: Epoch) -> bool {
        self.timelines[rank as usize].stands_at(epoch)
    }

    /// Checks an event.
    pub(crate) fn note(&mut self, event: Event) -> Result<(), ViolationKind> {
        match event {
            Event::Killed { node } => self.receipts.die(node),
            Event::HelloHeard { rank, peer, incarnation, upto } => {
                self.heard.handle_hello(rank, peer, incarnation, upto);
            }
            Event::AckHeard { rank, peer, incarnation, upto } => self.heard.handle_ack(rank, peer, incarnation, upto),
            Event::Acknowledged { rank, peer, upto } => self.heard.note_applied(rank, peer, upto),
            Event::Unacknowledged { rank, peer, to } => self.heard.note_undone(rank, peer, to),
            Event::Transmitted { rank, peer, upto } => self.heard.report(rank, peer, upto),
            Event::TableReported { rank } => {
                let durable = self.timelines[rank as usize].newest_durable().unwrap_or(Epoch::FIRST);
                self.receipts.report_table(rank, durable);
                self.causality.iter_mut().for_each(|causality| causality.watch(rank));
            }
            Event::Recovered { rank } => self.receipts.recovered(rank),
            Event::Line { rank, epoch } => {
                self.receipts.note_line(epoch, &self.timelines, &self.heard)?;
                self.causality.iter_mut().for_each(|causality| causality.watch(rank));
            }
            Event::Started { rank, epoch } | Event::RolledBack { rank, epoch } => {
                let timeline = &mut self.timelines[rank as usize];
                let undone = timeline.restore(rank, epoch)?;
                self.predecessors[rank as usize].die(self.properties.repeats, undone);
                self.receipts.restore(rank, epoch, timeline.restores() == 0);
                self.heard.restore(rank);
                let replaced = matches!(event, Event::Started { .. });
                self.causality.iter_mut().for_each(|causality| causality.restore(replaced, &self.timelines));
            }
            Event::Sent { rank, to, ssn, payload, marked } => {
                let timeline = &mut self.timelines[rank as usize];
                let right = ssn.0 == timeline.sent(to) + 1;
                if !right || self.reference.content(rank, to, ssn) != Some(payload.content) {
                    return Err(ViolationKind::Send { rank, to, number: ssn.0 });
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
                    return Err(ViolationKind::Duplicate { rank, from, number: ssn.0 });
                }
                self.predecessors[rank as usize].check_accepted((rank, from, ssn))?;
                self.receipts.receive(from, rank, ssn, epoch, logged);
                self.check_causality(rank)?;
            }
            Event::Taken { rank, from, tag, ssn, payload } => {
                let timeline = &mut self.timelines[rank as usize];
                let next = self.reference.next_taken(rank, from, tag, timeline.taken_of(from, tag));
                if next != Some(ssn) || self.reference.content(from, rank, ssn) != Some(payload.content) {
                    return Err(ViolationKind::Take { rank, from, tag, number: ssn.0 });
                }
                timeline.push(Operation::Taken { from, tag, ssn, payload });
                self.check_causality(rank)?;
            }
            Event::Completed { rank, number, result } => {
                let timeline = &mut self.timelines[rank as usize];
                if number != timeline.completed() || self.reference.result(rank, number) != Some(result.content) {
                    return Err(ViolationKind::Result { rank, number });
                }
                timeline.push(Operation::Completed { number, result });
            }
            Event::Checkpointed { rank, epoch } => {
                self.timelines[rank as usize].checkpoint(epoch);
                self.check_clusters(rank, epoch)?;
            }
            Event::Durable { rank, epoch } => {
                if !self.timelines[rank as usize].durable(epoch) {
                    return Err(ViolationKind::NoCheckpoint { rank, epoch: epoch.0 });
                }
            }
            Event::CheckpointsKept { rank, first, last } => self.timelines[rank as usize].keep(first, last),
            Event::Freed { rank, peer, upto } => {
                let covered = self.timelines[peer as usize].covered(rank);
                if upto > covered {
                    return Err(ViolationKind::FreedTooMuch { rank, peer, upto: upto.0, covered: covered.0 });
                }
            }
            // A message covered ahead of a re-execution is freed by the event on its channel after its send, because
            // the log has to have it first. So the last repeated record may stay; and if a checkpoint is taken before
            // the event, it stays in whatever is restored from the checkpoint, until more is covered: one record for
            // each restart.
            Event::Retained { rank, peer, records } => {
                let timeline = &self.timelines[rank as usize];
                let sent = timeline.sent(peer);
                let level = match self.properties.keeps {
                    Kept::All => sent,
                    Kept::Nothing => 0,
                    Kept::Logged => {
                        let covered = self.timelines[peer as usize].covered(rank);
                        let sendings = timeline.sendings(peer);
                        self.timelines[peer as usize].must_keep(rank, covered, self.heard.upto(rank, peer), &sendings)
                    }
                    Kept::UntilCovered => {
                        let covered = self.timelines[peer as usize].covered(rank);
                        (sent.saturating_sub(covered.0) + timeline.restores()).min(sent)
                    }
                };
                if records > level {
                    return Err(ViolationKind::Retained { rank, peer, records, level });
                }
            }
            Event::Tables { rank, peer, sizes } => self.check_tables(rank, peer, sizes)?,
        }
        Ok(())
    }

    /// Checks that a rank begins an epoch only below the next cluster's durable epochs (Guermouche 2011, section
    /// V.E.3), if ranks are divided into clusters.
    fn check_clusters(&self, rank: u32, epoch: Epoch) -> Result<(), ViolationKind> {
        let ranks = self.timelines.len() as u64;
        let cluster_of = |rank: u32| u64::from(rank) * u64::from(self.clusters) / ranks;
        let above = (0..).zip(&self.timelines).filter(|&(other, _)| cluster_of(other) == cluster_of(rank) + 1);
        let meets = |(other, timeline): (u32, &Timeline)| {
            let its = timeline.newest_durable()?;
            (epoch >= its).then_some(ViolationKind::ClustersMeet { rank, epoch: epoch.0, other, its: its.0 })
        };
        above.filter_map(meets).next().map_or(Ok(()), Err)
    }

    fn check_causality(&mut self, rank: u32) -> Result<(), ViolationKind> {
        self.causality.as_mut().map_or(Ok(()), |causality| causality.act(rank, &self.timelines))
    }

    /// Checks that tables describe only live messages.
    ///
    /// A message is live if its receiver may ask for it, because its oldest restorable checkpoint lacks it, or its
    /// sender may send it again, because its oldest restorable checkpoint precedes it.
    ///
    /// SPE has a row for each sender epoch with such a message. RPP has, for one peer, one row for earlier messages,
    /// and no more than one for each such message: how many of them share a row depends on their phases, unbounded by
    /// the number of epochs. The receive window has at most one run more, for messages forgotten there and not in RPP.
    /// NonAck has live messages only.
    fn check_tables(&self, rank: u32, peer: u32, sizes: TableSizes) -> Result<(), ViolationKind> {
        let live = |from: u32, to: u32| {
            let (sender, receiver) = (&self.timelines[from as usize], &self.timelines[to as usize]);
            let stable = receiver.covered(from).min(sender.stable(to));
            (stable, sender.sent_in(to).split_off((stable.0 as usize).min(sender.sent(to) as usize)))
        };
        let (_, mut epochs) = live(rank, peer);
        let messages = epochs.len() as u64;
        epochs.dedup();
        let (stable, _) = live(peer, rank);
        let received = self.timelines[rank as usize].accepted(peer);
        let tables = [
            ("SPE", sizes.spe, epochs.len() as u64),
            ("NonAck", sizes.unacknowledged, messages),
            ("RPP", sizes.rpp, 1 + received.saturating_sub(stable.0)),
            ("receive epochs", sizes.receive_epochs, 2 + received.saturating_sub(stable.0)),
        ];
        match tables.into_iter().find(|(_, rows, live)| rows > live) {
            Some((table, rows, live)) => Err(ViolationKind::Grown { rank, peer, table, rows, live }),
            None => Ok(()),
        }
    }

    /// Checks a run at its end.
    pub(crate) fn finish(&self) -> Result<(), ViolationKind> {
        self.check_complete()?;
        self.check_known()?;
        self.check_applied()?;
        self.check_sent()?;
        self.check_results()?;
        self.check_order()
    }

    fn check_complete(&self) -> Result<(), ViolationKind> {
        for (from, to, expected) in self.reference.channels() {
            let (sender, receiver) = (&self.timelines[from as usize], &self.timelines[to as usize]);
            let (sent, received, taken) = (sender.sent(to), receiver.accepted(from), receiver.taken(from));
            if [sent, received, taken] != [expected; 3] {
                return Err(ViolationKind::Incomplete { from, to, expected, sent, received, taken });
            }
        }
        Ok(())
    }

    /// Checks, where only logged messages are kept, the senders' knowledge of first messages to be logged.
    ///
    /// A sender learns, without asking, of the first such message from each of its epochs (Guermouche 2011, section
    /// V.A), unless it has marked it: otherwise it assumes it would roll back for that message at the receiver's
    /// failure.
    fn check_known(&self) -> Result<(), ViolationKind> {
        if self.properties.keeps != Kept::Logged {
            return Ok(());
        }
        for (peer, receiver) in (0..).zip(&self.timelines) {
            for rank in (0..self.timelines.len() as u32).filter(|&rank| rank != peer) {
                // Covered messages aren't acknowledged any more.
                let known = self.heard.upto(rank, peer).max(receiver.covered(rank));
                let first = receiver.first_of_past(rank, &self.timelines[rank as usize].sendings(peer));
                if let Some(ssn) = first.into_values().find(|&ssn| ssn > known) {
                    return Err(ViolationKind::Unheard { rank, peer, number: ssn.0 });
                }
            }
        }
        Ok(())
    }

    /// Checks, where only logged messages are kept, that every receipt heard by a sender has had an effect on its log.
    fn check_applied(&self) -> Result<(), ViolationKind> {
        if self.properties.keeps != Kept::Logged {
            return Ok(());
        }
        let ranks = 0..self.timelines.len() as u32;
        for (rank, peer) in ranks.clone().flat_map(|rank| ranks.clone().map(move |peer| (rank, peer))) {
            // Covered messages are freed without their receipts.
            let applied = self.heard.applied(rank, peer).max(self.timelines[peer as usize].covered(rank));
            let heard = self.heard.upto(rank, peer);
            if applied < heard {
                return Err(ViolationKind::Unapplied { rank, peer, heard: heard.0, applied: applied.0 });
            }
        }
        Ok(())
    }

    /// Checks that every taken message, with all its bytes, was sent in its sender's current timeline.
    fn check_sent(&self) -> Result<(), ViolationKind> {
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
                return Err(ViolationKind::Undone { rank, from, number: ssn.0 });
            }
        }
        Ok(())
    }

    /// Checks that all ranks with a result of a collective call have the same one, with all its bytes.
    fn check_results(&self) -> Result<(), ViolationKind> {
        let mut results = BTreeMap::new();
        for (rank, operation) in self.operations() {
            if let Operation::Completed { number, result } = operation
                && result.content != 0
                && *results.entry(number).or_insert(result) != result
            {
                return Err(ViolationKind::Result { rank, number });
            }
        }
        Ok(())
    }

    fn operations(&self) -> impl Iterator<Item = (u32, Operation)> {
        let each = self.timelines.iter().zip(0..);
        each.flat_map(|(timeline, rank)| timeline.operations.iter().map(move |&operation| (rank, operation)))
    }

    /// Checks that all operations have an order in which no message is taken before its send.
    fn check_order(&self) -> Result<(), ViolationKind> {
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
                        // A message received by a replacement may depend on one it has yet to send again; one taken may
                        // not.
                        Operation::Accepted { .. } | Operation::Taken { .. } | Operation::Completed { .. } => {}
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
        stuck.map_or(Ok(()), |rank| Err(ViolationKind::Cycle { rank: rank as u32, operation: at[rank] as u64 }))
    }
}
