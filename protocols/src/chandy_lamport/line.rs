//! Lines: matched, finished, committed; and the return to one.

use counterfoil_log_core::{Epoch, Rank};

use super::channel::Channel;
use super::identification::{Identification, Matched};
use super::message::{Order, Report};
use super::{Canary, ChandyLamport, note};
use crate::api::{Effect, EntryKind};
use crate::encoding;

/// Line that isn't committed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Interval that it begins.
    pub(super) epoch: Epoch,
    /// Number of calls with an outcome that depends on timing, and of copies, before it.
    pub(super) choices: u64,
    pub(super) copies: u64,
    /// This rank's checkpoint is on stable storage.
    pub(super) is_durable: bool,
    pub(super) is_sealed: bool,
}

impl<I: Identification> ChandyLamport<I> {
    /// Matches as many intervals as possible, with all peers, and notes what crosses their lines.
    pub(super) fn match_intervals(&mut self) {
        let epoch = self.epoch;
        for peer in self.peers() {
            while let Some((line, Matched { crossing, dropped })) = self.channels[peer.index()].match_next(epoch) {
                if let Some(crossing) = crossing {
                    self.keep_note(line, 1 + u64::from(peer.0), encoding::encode_versioned(I::VERSION, &crossing));
                }
                dropped.into_iter().for_each(|number| self.discard(EntryKind::Message, number..number + 1));
            }
        }
        self.finish_lines();
    }

    /// Seals the local log of each line of which this rank has everything: its checkpoint, the requests of all, and the messages in transit.
    pub(super) fn finish_lines(&mut self) {
        for place in 0..self.lines.len() {
            let Line { epoch, is_durable, is_sealed, .. } = self.lines[place];
            let has_finished = |peer: Rank| self.channels[peer.index()].has_finished(epoch);
            if is_durable && !is_sealed && epoch > self.bisected && self.peers().all(has_finished) {
                self.lines[place].is_sealed = true;
                self.effects.push_back(Effect::SealLog { epoch });
            }
        }
    }

    /// Replaces the committed line: all ranks have finished a newer one.
    pub(super) fn commit(&mut self, line: Epoch) {
        if line <= self.committed {
            return;
        }
        self.committed = line;
        // The oldest checkpoint that is left doesn't say it in a job that still has its start, which is no checkpoint.
        self.keep_note(line, 0, Vec::new());
        self.effects.push_back(Effect::KeepCheckpoints { first: line, last: self.epoch });
        self.discard(EntryKind::Note, 0..note(line));
        self.channels.iter_mut().for_each(|channel| channel.commit(line));
        if let Some(Line { choices, copies, .. }) = self.lines.iter().find(|open| open.epoch == line).copied() {
            self.discard(EntryKind::Message, 0..copies);
            // With these, the local log forgets everything before the newest checkpoint.
            if line == self.epoch {
                self.effects.push_back(Effect::DiscardChoices { before: choices });
            }
        }
        self.lines.retain(|open| open.epoch > line);
    }

    /// Obeys the coordinator.
    pub(super) fn handle_order(&mut self, order: Order) {
        match order {
            Order::Stop { attempt } if attempt > self.attempt || (attempt == self.attempt && !self.running) => {
                if attempt > self.attempt && self.config.canary != Some(Canary::UndoneRequests) {
                    self.channels.iter_mut().for_each(Channel::end_attempt);
                }
                (self.attempt, self.running) = (attempt, false);
                let (incarnation, committed) = (self.number().0, self.committed.0);
                self.report(Report::Stopped { attempt, incarnation, committed });
            }
            Order::RollBack { attempt, line } if attempt == self.attempt && !self.running => {
                self.roll_back(Epoch(line))
            }
            Order::Run { attempt } if attempt == self.attempt && !self.running => {
                (self.running, self.is_fresh) = (true, false);
                self.effects.push_back(Effect::Resume);
            }
            Order::Commit { attempt, line } if attempt == self.attempt && self.running => self.commit(Epoch(line)),
            _ => {}
        }
    }

    /// Goes back to a line, unless the rank has just been restored there. Entries and checkpoints of the undone timeline are dropped first: a
    /// process that dies in between must not find them.
    fn roll_back(&mut self, line: Epoch) {
        let stays = self.is_fresh && (line, line) == (self.epoch, self.committed);
        self.committed = self.committed.max(line);
        self.keep_note(line, 0, Vec::new());
        self.discard(EntryKind::Note, 0..note(line));
        self.discard(EntryKind::Note, note(line) + (1 << 32)..u64::MAX);
        self.effects.push_back(Effect::KeepCheckpoints { first: line, last: line });
        if stays {
            let (attempt, incarnation) = (self.attempt, self.number().0);
            self.report(Report::Ready { attempt, incarnation });
        } else {
            self.rolls_back = true;
            self.effects.push_back(Effect::RollBack { epoch: line });
        }
    }

    /// Reports that this rank's part of a line is on stable storage, unless the line is undone.
    pub(super) fn report_finished(&mut self, line: Epoch) {
        if !self.running {
            return;
        }
        self.report(Report::Finished { attempt: self.attempt, line: line.0 });
        if self.config.canary == Some(Canary::CommittedAlone) {
            self.commit(line);
        }
    }
}
