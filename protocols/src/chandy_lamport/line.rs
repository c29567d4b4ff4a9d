//! Lines: matched, finished, committed; and the return to one.

use counterfoil_log_core::{Epoch, Rank};

use super::channel::Channel;
use super::identification::{Identification, Matched};
use super::{ChandyLamport, note};
use crate::agreement::{Command, Duty};
use crate::api::{Effect, EntryKind};
use crate::encoding;

/// Uncommitted line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Its new interval.
    pub(super) epoch: Epoch,
    /// Non-deterministic calls, and copies, before it.
    pub(super) choices: u64,
    pub(super) copies: u64,
    /// This rank's checkpoint is on stable storage.
    pub(super) is_durable: bool,
    pub(super) is_sealed: bool,
    /// This rank's part in the line is on stable storage.
    pub(super) is_finished: bool,
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

    /// Seals the local log for each line that is complete here: its checkpoint, the requests of all, and the messages
    /// in transit.
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
        if line <= self.member.committed {
            return;
        }
        self.member.committed = line;
        // The oldest remaining checkpoint doesn't imply the committed line while the job can return to its start, which
        // is no checkpoint.
        self.keep_note(line, 0, Vec::new());
        self.effects.push_back(Effect::KeepCheckpoints { first: line, last: self.epoch });
        self.discard(EntryKind::Note, 0..note(line));
        self.channels.iter_mut().for_each(|channel| channel.commit(line));
        if let Some(Line { choices, copies, .. }) = self.lines.iter().find(|open| open.epoch == line).copied() {
            self.discard(EntryKind::Message, 0..copies);
            self.effects.push_back(Effect::DiscardChoices { before: choices, epoch: line });
        }
        self.lines.retain(|open| open.epoch > line);
    }

    /// Obeys the coordinator.
    pub(super) fn handle_order(&mut self, command: Command) {
        match self.member.obey(command) {
            Duty::Report => self.report(),
            Duty::Stop => {
                self.channels.iter_mut().for_each(Channel::end_attempt);
                self.report();
            }
            Duty::GoBack(line) => self.go_back(line),
            Duty::Run => self.effects.push_back(Effect::Resume),
            Duty::Commit(line) => self.commit(line),
            // Ranks begin the lines.
            Duty::Nothing | Duty::TakeCheckpoint(_) | Duty::StopLogging(_) => {}
        }
    }

    /// Goes back to a line, unless the rank has just been restored there.
    ///
    /// Entries and checkpoints of the undone timeline are dropped first: a process dying in between must not find them.
    fn go_back(&mut self, line: Epoch) {
        let is_there = self.member.is_fresh && (line, line) == (self.epoch, self.member.committed);
        self.member.committed = self.member.committed.max(line);
        self.keep_note(line, 0, Vec::new());
        self.discard(EntryKind::Note, 0..note(line));
        self.discard(EntryKind::Note, note(line) + (1 << 32)..u64::MAX);
        self.effects.push_back(Effect::KeepCheckpoints { first: line, last: line });
        self.member.go_to(is_there);
        if is_there {
            self.report_prepared();
        } else {
            self.effects.push_back(Effect::RollBack { epoch: line });
        }
    }

    /// Reports the rank as being at the line, if it is.
    pub(super) fn report_prepared(&mut self) {
        if self.member.prepare() {
            self.report();
        }
    }

    /// Reports this rank's part in a line as being on stable storage.
    pub(super) fn finish(&mut self, place: usize) {
        self.lines[place].is_finished = true;
        self.report();
    }
}
