//! Sent messages of one channel and their receipts: NonAck, Logs and SPE in one table.

use counterfoil_ack_piggyback::Ack;
use counterfoil_log_core::{Epoch, Phase, Ssn};
use serde::{Deserialize, Serialize};

use super::line::{SentInEpoch, StaleReceipt};

/// Messages of one channel as runs of SSNs sent, marked and received alike.
///
/// Guermouche 2011 keeps three structures (Figure 3, lines 3 to 5): messages without an acknowledgement, logged
/// messages, and SPE, the receive epochs of unlogged ones. All three concern the same message numbers, so they are one
/// table here; the log has the payloads. Memory: 48 bytes a run; covered runs are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sent {
    /// In SSN order, without gaps.
    runs: Vec<Run>,
    /// Last message no longer needed by the receiver.
    collected: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    first: u64,
    last: u64,
    /// Send epoch and send phase.
    epoch: u32,
    phase: u32,
    /// These are replayed and never re-executed, whatever happens to the receiver (Logs).
    logged: bool,
    receipt: Receipt,
    /// Receive epoch as known to older checkpoints of this rank, which know fewer receipts.
    stale: Option<StaleReceipt>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Receipt {
    /// Never acknowledged.
    Unknown,
    /// Received in this epoch.
    In(u32),
    /// Received in this epoch by a receiver execution possibly rolled back since.
    MaybeUndone(u32),
}

impl Run {
    /// Returns the receiver epoch in which the run may have been received without being logged; `None` if it is logged.
    ///
    /// Without an acknowledgement this is the latest possible epoch: the sender's own, because in a later one the run
    /// would have been logged.
    fn unlogged_receive_epoch(&self) -> Option<u32> {
        if self.logged {
            return None;
        }
        Some(match self.receipt {
            Receipt::In(epoch) => epoch,
            Receipt::MaybeUndone(epoch) => epoch.max(self.epoch),
            Receipt::Unknown => self.epoch,
        })
    }

    /// Notes in epoch `now` that [`Run::unlogged_receive_epoch`] has become smaller than `before`.
    fn note_stale(&mut self, before: Option<u32>, now: Epoch) {
        // A checkpoint that begins their epoch doesn't contain these messages: they are sent again.
        if self.unlogged_receive_epoch() < before && now.0 > self.epoch {
            let less = before.map(|received| StaleReceipt { upto: now.0, received });
            self.stale = StaleReceipt::merge(self.stale, less);
        }
    }
}

/// Newly acknowledged part of a lane: [`crate::api::Effect::Acknowledged`] without the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AcknowledgedRun {
    pub(super) ack: Ack,
    pub(super) phase: Phase,
    pub(super) logged: bool,
}

impl Sent {
    /// Records a message with its assigned SSN.
    ///
    /// `marked`: it goes out as already logged (section V.A).
    pub(super) fn record(&mut self, ssn: Ssn, epoch: Epoch, phase: Phase, marked: bool) {
        let run = Run {
            first: ssn.0,
            last: ssn.0,
            epoch: epoch.0,
            phase: phase.0,
            logged: marked,
            receipt: Receipt::Unknown,
            stale: None,
        };
        match self.runs.last_mut() {
            Some(last) if Run { first: ssn.0, last: ssn.0, ..*last } == run => last.last = ssn.0,
            _ => self.runs.push(run),
        }
    }

    /// Records that the messages from `first` to `last` were received in `epoch`.
    ///
    /// `logged`: the receiver's verdict; `None` if both sides must conclude the same from the epochs (Figure 3, lines
    /// 21 and 36). `now`: epoch in which this rank learns of it.
    pub(super) fn acknowledge(
        &mut self,
        (first, last): (Ssn, Ssn),
        epoch: Epoch,
        logged: Option<bool>,
        now: Epoch,
    ) -> Vec<AcknowledgedRun> {
        let first = first.max(Ssn(self.collected + 1));
        if first > last {
            return Vec::new();
        }
        self.split_at(first.0);
        self.split_at(last.0 + 1);
        let mut acknowledged: Vec<AcknowledgedRun> = Vec::new();
        for run in self.runs.iter_mut().filter(|run| run.first >= first.0 && run.last <= last.0) {
            let before = run.unlogged_receive_epoch();
            run.logged = logged.unwrap_or(run.logged || run.epoch < epoch.0);
            run.receipt = Receipt::In(epoch.0);
            run.note_stale(before, now);
            let now =
                AcknowledgedRun { ack: Ack { ssn: Ssn(run.last), epoch }, phase: Phase(run.phase), logged: run.logged };
            match acknowledged.last_mut() {
                Some(before) if before.phase == now.phase && before.logged == now.logged => *before = now,
                _ => acknowledged.push(now),
            }
        }
        self.merge_runs();
        acknowledged
    }

    /// Marks all receipts as possibly undone, because the receiver may have been rolled back, until it reports them
    /// again.
    pub(super) fn invalidate_receipts(&mut self) {
        for run in &mut self.runs {
            if let Receipt::In(epoch) = run.receipt {
                run.receipt = Receipt::MaybeUndone(epoch);
            }
        }
    }

    /// Returns `true` if the message is to be replayed as a logged one.
    pub(super) fn is_logged(&self, ssn: Ssn) -> bool {
        self.run_of(ssn).is_some_and(|run| run.logged)
    }

    /// Returns the last message after `after`, without a gap, with a released record: acknowledged, and never replayed.
    pub(super) fn released_after(&self, after: Ssn) -> Ssn {
        let from = self.runs.partition_point(|run| run.last <= after.0);
        let is_released = |run: &&Run| !run.logged && run.receipt != Receipt::Unknown;
        self.runs[from..].iter().take_while(is_released).last().map_or(after, |run| Ssn(run.last))
    }

    /// Returns `true` if the receipt of some message decides whether this rank rolls back with the receiver.
    pub(super) fn has_unlogged(&self) -> bool {
        self.runs.iter().any(|run| !run.logged)
    }

    fn run_of(&self, ssn: Ssn) -> Option<&Run> {
        let after = self.runs.partition_point(|run| run.first <= ssn.0);
        self.runs[..after].last().filter(|run| ssn.0 <= run.last)
    }

    /// Returns this channel's part in the table for the recovery line.
    ///
    /// `restart`: epoch of the checkpoint from which this rank would send the messages of an epoch again.
    pub(super) fn table(&self, restart: impl Fn(u32) -> u32) -> Vec<SentInEpoch> {
        let mut table: Vec<SentInEpoch> = Vec::new();
        for run in &self.runs {
            let (epoch, received) = (restart(run.epoch), run.unlogged_receive_epoch());
            let stale = run.stale;
            match table.last_mut() {
                Some(last) if last.epoch == epoch => {
                    last.received = last.received.max(received);
                    last.stale = StaleReceipt::merge(last.stale, stale);
                }
                _ => table.push(SentInEpoch { epoch, first: run.first, received, stale }),
            }
        }
        table
    }

    /// Collects the messages up to `upto`, no longer needed by the receiver; this rank won't roll back before `floor`.
    ///
    /// Runs from later epochs stay: after a rollback there, their first messages say what this rank has sent. Older
    /// checkpoints with less knowledge of receipts do no harm: the receiver has the messages wherever it is restored,
    /// so its Hello, for which the table waits, reports them.
    pub(super) fn collect(&mut self, upto: Ssn, floor: Epoch) {
        self.collected = self.collected.max(upto.0);
        self.split_at(upto.0 + 1);
        self.runs.retain(|run| run.last > upto.0 || run.epoch >= floor.0);
        for run in self.runs.iter_mut().filter(|run| run.last <= upto.0) {
            (run.logged, run.receipt) = (true, Receipt::Unknown);
        }
        self.merge_runs();
    }

    /// Returns the first message in `epoch` or a later one; `None` if there is none.
    pub(super) fn first_since(&self, epoch: Epoch) -> Option<Ssn> {
        let at = self.runs.partition_point(|run| run.epoch < epoch.0);
        self.runs.get(at).map(|run| Ssn(run.first))
    }

    /// Returns the number of messages neither known to be received nor known to be logged.
    pub(super) fn unknown(&self) -> u64 {
        let unknown = self.runs.iter().filter(|run| !run.logged && run.receipt == Receipt::Unknown);
        unknown.map(|run| run.last + 1 - run.first).sum()
    }

    /// Begins a run at `first`, if it is inside one.
    fn split_at(&mut self, first: u64) {
        let after = self.runs.partition_point(|run| run.first < first);
        if after > 0 && self.runs[after - 1].last >= first {
            let tail = Run { first, ..self.runs[after - 1] };
            self.runs[after - 1].last = first - 1;
            self.runs.insert(after, tail);
        }
    }

    fn merge_runs(&mut self) {
        self.runs.dedup_by(|next, run| {
            let alike = Run { first: next.first, last: next.last, ..*run } == *next;
            if alike {
                run.last = next.last;
            }
            alike
        });
    }

    /// Returns `true` if the runs are possible for a channel with `sent` messages sent up to `epoch`.
    pub(super) fn is_sound(&self, epoch: u32, sent: Ssn) -> bool {
        self.runs.iter().all(|run| run.first >= 1 && run.first <= run.last && run.epoch <= epoch)
            && self.runs.iter().all(|run| run.stale.is_none_or(|stale| stale.upto <= epoch))
            && self.runs.is_sorted_by(|a, b| a.last + 1 == b.first && a.epoch <= b.epoch && a.phase <= b.phase)
            && self.runs.last().is_none_or(|last| last.last == sent.0)
    }
}

const _: () = assert!(size_of::<Run>() == 48);

#[cfg(test)]
mod tests;
