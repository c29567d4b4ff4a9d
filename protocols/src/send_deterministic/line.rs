//! The recovery line, as a pure function of the ranks' tables of sent messages.

use counterfoil_log_core::{Epoch, Ssn};
use serde::{Deserialize, Serialize};

/// Table sent by a rank to the recovery process (Guermouche 2011, Figure 3, lines 52 and 56).
///
/// Consists of plain numbers, so it travels as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankTable {
    /// Number of replacements and rollbacks of the rank.
    pub incarnation: u32,
    /// Epoch of its newest durable checkpoint, from which it would restart.
    pub epoch: u32,
    /// Epoch to which it was restored in an unfinished recovery: it rolls back there again.
    pub restored: Option<u32>,
    /// `true` if it has executed anything since it was restored.
    pub executed: bool,
    /// Channels with sent messages.
    pub channels: Vec<SentTo>,
    /// Known peers: any may have sent it messages it doesn't remember itself.
    pub peers: Vec<u32>,
}

/// Messages sent to one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentTo {
    /// Message receiver.
    pub peer: u32,
    /// Number of the last message.
    pub sent: u64,
    /// Epochs, ascending, with sent messages a recovery may ask for.
    pub epochs: Vec<SentInEpoch>,
}

/// Messages sent in one epoch on one channel: an SPE entry, with a message number for the paper's date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentInEpoch {
    /// The sender's epoch.
    pub epoch: u32,
    /// First message in this epoch.
    pub first: u64,
    /// Last receiver epoch in which one of these messages was, or may have been, received without being logged; `None`
    /// if all are logged.
    pub received: Option<u32>,
    /// Value for `received` after a rollback to a checkpoint older than some receipts. `None` if it would be the same.
    pub stale: Option<StaleReceipt>,
}

/// Receive epoch as known to older checkpoints of a rank, which know fewer receipts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleReceipt {
    /// Latest epoch with a checkpoint that knows no better.
    pub upto: u32,
    /// Last receiver epoch in which, as far as these checkpoints know, a message may have been received without being
    /// logged.
    pub received: u32,
}

impl StaleReceipt {
    /// Returns a bound covering both.
    pub(super) fn merge(one: Option<StaleReceipt>, other: Option<StaleReceipt>) -> Option<StaleReceipt> {
        let (Some(a), Some(b)) = (one, other) else { return one.or(other) };
        Some(StaleReceipt { upto: a.upto.max(b.upto), received: a.received.max(b.received) })
    }
}

impl SentInEpoch {
    /// Returns the entry as known to a checkpoint beginning `epoch`.
    fn as_of(self, epoch: u32) -> SentInEpoch {
        match self.stale {
            Some(stale) if epoch <= stale.upto => {
                SentInEpoch { received: self.received.max(Some(stale.received)), ..self }
            }
            _ => self,
        }
    }
}

impl RankTable {
    /// Returns `true` if this table is possible for a rank in a job of `ranks` ranks.
    pub(super) fn is_sound(&self, ranks: u32) -> bool {
        let epochs = Epoch::FIRST.0..=Epoch::MAX.0;
        self.incarnation < u32::MAX
            && epochs.contains(&self.epoch)
            && self.restored.is_none_or(|epoch| epochs.contains(&epoch))
            && self.peers.iter().all(|&peer| peer < ranks)
            && self.channels.is_sorted_by(|a, b| a.peer < b.peer)
            && self.channels.iter().all(|channel| channel.peer < ranks && channel.is_sound())
    }
}

impl SentTo {
    fn is_sound(&self) -> bool {
        self.sent <= Ssn::MAX.0
            && self.epochs.is_sorted_by(|a, b| a.epoch < b.epoch && a.first < b.first)
            && self.epochs.first().is_none_or(|entry| entry.epoch >= Epoch::FIRST.0 && entry.first >= 1)
            && self.epochs.last().is_none_or(|entry| entry.epoch <= Epoch::MAX.0 && entry.first <= self.sent)
    }

    /// Returns the last message sent before `epoch`; all if the sender stays where it is.
    #[must_use]
    pub fn sent_before(&self, epoch: Option<u32>) -> u64 {
        let Some(epoch) = epoch else { return self.sent };
        let at = self.epochs.partition_point(|entry| entry.epoch < epoch);
        self.epochs.get(at).map_or(self.sent, |entry| entry.first - 1)
    }
}

/// Dependency of a sender on a receiver: if the receiver rolls back to `received` or before, `sender` rolls back to
/// `sent`.
#[derive(Clone, Copy, Debug)]
struct Dependency {
    received: u32,
    sender: u32,
    sent: u32,
}

/// Returns each rank's restart epoch when the ranks with `Some` in `failed` restart from there; `None` for a rank that
/// stays.
///
/// It is the largest solution of: a failed rank rolls back at least to its epoch there; the sender of a message
/// received without being logged in a rolled-back epoch rolls back to the epoch in which it sent it (Guermouche 2011,
/// Figure 4, lines 10 to 16). Found with a worklist instead of scans: every dependency is visited once, so for D of
/// them and N ranks the cost is O(N + D log D) time and 12 D + 24 N bytes. Entries naming a nonexistent rank are
/// ignored.
#[must_use]
pub fn recovery_line(tables: &[RankTable], failed: &[Option<u32>]) -> Vec<Option<u32>> {
    line_with(tables, failed, |_, entry| entry)
}

/// Computes [`recovery_line`] with each sender's entries mapped by `known`.
fn line_with(
    tables: &[RankTable],
    failed: &[Option<u32>],
    known: impl Fn(u32, SentInEpoch) -> SentInEpoch,
) -> Vec<Option<u32>> {
    let (dependencies, begins) = by_receiver(tables, known);
    let mut line: Vec<Option<u32>> = failed.iter().copied().chain(std::iter::repeat(None)).take(tables.len()).collect();
    let mut next = begins.clone();
    let mut changed: Vec<usize> = (0..line.len()).filter(|&rank| line[rank].is_some()).collect();
    while let Some(rank) = changed.pop() {
        let Some(epoch) = line[rank] else { continue };
        while next[rank] < begins[rank + 1] {
            let Dependency { received, sender, sent } = dependencies[next[rank]];
            if received < epoch {
                break;
            }
            next[rank] += 1;
            let sender = sender as usize;
            if line[sender].is_none_or(|before| before > sent) {
                line[sender] = Some(sent);
                changed.push(sender);
            }
        }
    }
    line
}

/// Returns all dependencies grouped by receiver, the latest receive epoch first, and the index where each receiver's
/// group begins.
fn by_receiver(tables: &[RankTable], known: impl Fn(u32, SentInEpoch) -> SentInEpoch) -> (Vec<Dependency>, Vec<usize>) {
    let known = &known;
    let all = || {
        (0..).zip(tables).flat_map(|(sender, table)| {
            let channels = table.channels.iter().filter(|channel| (channel.peer as usize) < tables.len());
            channels.flat_map(move |channel| {
                let entries = channel.epochs.iter().map(move |entry| known(sender, *entry));
                let entries = entries.filter_map(|entry| Some((entry.received?, entry.epoch)));
                entries.map(move |(received, sent)| (channel.peer as usize, Dependency { received, sender, sent }))
            })
        })
    };
    let mut begins = vec![0; tables.len() + 1];
    for (receiver, _) in all() {
        begins[receiver + 1] += 1;
    }
    for receiver in 0..tables.len() {
        begins[receiver + 1] += begins[receiver];
    }
    let mut dependencies = vec![Dependency { received: 0, sender: 0, sent: 0 }; begins[tables.len()]];
    let mut fill = begins.clone();
    for (receiver, dependency) in all() {
        dependencies[fill[receiver]] = dependency;
        fill[receiver] += 1;
    }
    for receiver in 0..tables.len() {
        dependencies[begins[receiver]..begins[receiver + 1]].sort_by_key(|entry| std::cmp::Reverse(entry.received));
    }
    (dependencies, begins)
}

/// Returns for each rank the first epoch any later recovery can need: the recovery line if *all* ranks failed now, and
/// each knew only the receipts in its restart checkpoint.
///
/// No later line is below it: fewer failures and more knowledge give a line nowhere lower, and a message sent after a
/// table was made takes its sender back to no epoch before the table's. So the tables need not come from one instant,
/// as long as no recovery was between them. Cost: that of [`recovery_line`] for each time the line falls below an epoch
/// whose receipts a rank has then forgotten; rarely more than twice.
#[must_use]
pub fn floor_by_line(tables: &[RankTable]) -> Vec<u32> {
    let mut floors: Vec<u32> = tables.iter().map(restart_epoch).collect();
    loop {
        let all: Vec<Option<u32>> = floors.iter().copied().map(Some).collect();
        let line = line_with(tables, &all, |sender, entry| entry.as_of(floors[sender as usize]));
        let lower: Vec<u32> = line.iter().zip(&floors).map(|(epoch, &floor)| epoch.unwrap_or(floor)).collect();
        if lower == floors {
            return floors;
        }
        floors = lower;
    }
}

/// Returns one floor for all ranks: the smallest epoch in the job (section III.A.4), lowered where a message was
/// received in a later epoch than its send epoch and yet isn't logged, which happens to messages sent again after a
/// rollback.
///
/// `u32::MAX` for a job without ranks. Never above any floor from [`floor_by_line`].
#[must_use]
pub fn floor_by_smallest_epoch(tables: &[RankTable]) -> u32 {
    let entries = || {
        let entries = tables.iter().flat_map(|table| &table.channels).flat_map(|channel| &channel.epochs);
        entries.map(|entry| entry.as_of(0))
    };
    let mut floor = tables.iter().map(restart_epoch).min().unwrap_or(u32::MAX);
    loop {
        let back = entries().filter(|entry| entry.received.is_some_and(|received| received >= floor));
        let lower = back.map(|entry| entry.epoch).min().unwrap_or(floor);
        if lower >= floor {
            return floor;
        }
        floor = lower;
    }
}

fn restart_epoch(table: &RankTable) -> u32 {
    table.restored.map_or(table.epoch, |restored| restored.min(table.epoch))
}

#[cfg(test)]
mod tests;
