//! Depth of recovery lines: deep enough, and no deeper than necessary, judged by the events.
//!
//! *Deep enough* needs no rule: every message a rank lacks where the line leaves it must be in its sender's log, unless
//! the sender sends it by executing from where the line leaves the sender.
//!
//! *No deeper than necessary* is the largest line satisfying two conditions. The restored ranks roll back at least to
//! where they were. The sender of an unlogged message rolls back to its last durable checkpoint before the send
//! (according to its sent table), if its receiver rolls back to the epoch of the receipt, or before. It is found by
//! trying every message again until nothing moves.
//!
//! A message is logged if its last receipt was: in a later epoch than its header's, or marked. Where a sender couldn't
//! know (the receipt was never reported, or its receiver has died or rolled back since and hasn't reported it anew),
//! the rule's assumption holds: such a message may have been received, without being logged, as late as in the sender's
//! own epoch, or in whatever epoch it was ever received in.

use counterfoil_log_core::{Epoch, Ssn};

use super::heard::Heard;
use super::timeline::{Operation, Timeline};
use crate::violation::ViolationKind;

/// Receipts of one message.
#[derive(Clone, Copy, Debug)]
struct Receipt {
    /// Epoch of the last receipt, and the highest epoch of any.
    last: Epoch,
    latest: Epoch,
    logged: bool,
}

/// Receipts in all executions.
#[derive(Debug)]
pub(super) struct Receipts {
    ranks: usize,
    /// By channel (sender, receiver) and SSN.
    ever: Vec<Vec<Option<Receipt>>>,
    /// By rank: epoch restored in a recovery not yet finished for it.
    restored: Vec<Option<Epoch>>,
    /// By rank: `true` if its current process has sent its table.
    reported: Vec<bool>,
    /// By rank: epoch of its newest durable checkpoint when it sent its table.
    durable_at_report: Vec<Epoch>,
    /// Line under construction.
    line: Vec<Option<Epoch>>,
    /// Number of messages received in another epoch than before.
    other_epochs: u64,
    orphans: u64,
}

impl Receipts {
    pub(super) fn new(ranks: u32) -> Receipts {
        let ranks = ranks as usize;
        Receipts {
            ranks,
            ever: vec![Vec::new(); ranks * ranks],
            restored: vec![None; ranks],
            reported: vec![false; ranks],
            durable_at_report: vec![Epoch::FIRST; ranks],
            line: Vec::new(),
            other_epochs: 0,
            orphans: 0,
        }
    }

    fn channel(&self, from: u32, to: u32) -> usize {
        from as usize * self.ranks + to as usize
    }

    pub(super) fn other_epochs(&self) -> u64 {
        self.other_epochs
    }

    pub(super) fn orphans(&self) -> u64 {
        self.orphans
    }

    pub(super) fn receive(&mut self, from: u32, to: u32, ssn: Ssn, epoch: Epoch, logged: bool) {
        let channel = self.channel(from, to);
        let receipts = &mut self.ever[channel];
        let place = ssn.0.saturating_sub(1) as usize;
        if receipts.len() <= place {
            receipts.resize(place + 1, None);
        }
        let before = receipts[place];
        self.other_epochs += u64::from(before.is_some_and(|before| before.last != epoch));
        let latest = before.map_or(epoch, |before| before.latest.max(epoch));
        receipts[place] = Some(Receipt { last: epoch, latest, logged });
    }

    /// `first`: it is the start of the first process.
    pub(super) fn restore(&mut self, rank: u32, epoch: Epoch, first: bool) {
        self.restored[rank as usize] = Some(epoch).filter(|_| !first);
    }

    pub(super) fn recovered(&mut self, rank: u32) {
        self.restored[rank as usize] = None;
    }

    /// Handles the death of a node's process.
    pub(super) fn die(&mut self, node: u32) {
        self.reported.iter_mut().skip(node as usize).take(1).for_each(|reported| *reported = false);
    }

    pub(super) fn is_current(&self) -> bool {
        self.reported.iter().all(|&reported| reported)
    }

    /// `durable`: epoch of the rank's newest durable checkpoint.
    pub(super) fn report_table(&mut self, rank: u32, durable: Epoch) {
        self.reported[rank as usize] = true;
        self.durable_at_report[rank as usize] = durable;
    }

    /// Adds the next rank's place in the line, and checks it after the last.
    pub(super) fn note_line(
        &mut self,
        epoch: Option<Epoch>,
        timelines: &[Timeline],
        heard: &Heard,
    ) -> Result<(), ViolationKind> {
        self.line.push(epoch);
        if self.line.len() < self.ranks {
            return Ok(());
        }
        let line = std::mem::take(&mut self.line);
        let enough = self.largest(timelines, heard);
        for (rank, (&epoch, enough)) in (0..).zip(line.iter().zip(enough)) {
            if epoch.is_some_and(|epoch| enough.is_none_or(|enough| epoch < enough)) {
                let (epoch, enough) = (epoch.map_or(0, |epoch| epoch.0), enough.map(|enough| enough.0));
                return Err(ViolationKind::LineTooLow { rank, epoch, enough });
            }
        }
        self.orphans += orphans(&line, timelines);
        Ok(())
    }

    /// Returns the largest allowed line.
    fn largest(&self, timelines: &[Timeline], heard: &Heard) -> Vec<Option<Epoch>> {
        let mut line = self.restored.clone();
        loop {
            let mut moved = false;
            for (from, timeline) in (0..).zip(timelines) {
                for (operation, restart) in timeline.by_restart(self.durable_at_report[from as usize]) {
                    let Operation::Sent { to, ssn, epoch: sent_in, .. } = operation else { continue };
                    let known = ssn <= heard.reported(from, to);
                    let received = self.unlogged_receive_epoch((from, to, ssn), sent_in, known);
                    let goes_back = line[to as usize].is_some_and(|back| received.is_some_and(|epoch| epoch >= back));
                    let place = &mut line[from as usize];
                    if goes_back && place.is_none_or(|before| before > restart) {
                        *place = Some(restart);
                        moved = true;
                    }
                }
            }
            if !moved {
                return line;
            }
        }
    }

    /// Returns the last epoch in which a message was, or may have been, received without being logged.
    ///
    /// `known`: its sender knows of the receipt.
    fn unlogged_receive_epoch(&self, (from, to, ssn): (u32, u32, Ssn), sent_in: Epoch, known: bool) -> Option<Epoch> {
        let channel = self.channel(from, to);
        let receipt = self.ever[channel].get(ssn.0.saturating_sub(1) as usize).copied().flatten();
        match receipt {
            Some(receipt) if known => (!receipt.logged).then_some(receipt.last),
            Some(receipt) => Some(receipt.latest.max(sent_in)),
            None => Some(sent_in),
        }
    }
}

/// Counts the messages received where a line leaves their receivers, but not sent where it leaves their senders.
fn orphans(line: &[Option<Epoch>], timelines: &[Timeline]) -> u64 {
    let mut orphans = 0;
    for (to, receiver) in timelines.iter().enumerate() {
        for from in (0..timelines.len()).filter(|&from| from != to) {
            let received = receiver.accepted_at(line[to], from as u32);
            let sent = timelines[from].sent_at(line[from], to as u32);
            orphans += received.0.saturating_sub(sent.0);
        }
    }
    orphans
}
