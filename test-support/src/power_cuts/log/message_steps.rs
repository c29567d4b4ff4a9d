//! Message steps, each with its effect on the model.

use counterfoil::{Ack, AppendError, Builder, Keep, Log, OpenError, Options, ReplayError, Tier};
use counterfoil_log_core::{CursorError, Epoch, Phase, Rank, Ssn, TruncateError};
use counterfoil_log_io::StoreError;

use super::recovery::check_lane;
use super::{HeldCursor, Lane, LogModel, RANKS, Sent, SharedMemory};
use crate::power_cuts::{Explored, Mismatch, Outcome};
use crate::random::{Random, below};

impl LogModel {
    pub(super) fn step(&mut self, random: Random<'_>, explored: &mut Explored) -> Result<Outcome, Mismatch> {
        let Some(mut log) = self.log.take() else { return self.create() };
        let kind = random() % 32;
        if kind == 31 {
            self.log = Some(log);
            self.note("the process ends");
            self.end_and_recover(explored)?;
            return self.check_memory(explored).map(|()| Outcome::Done);
        }
        let outcome = match kind {
            0..=8 => self.append(&mut log, random),
            9..=12 => self.acknowledge(&mut log, random),
            13..=15 => self.cover(&mut log, random),
            16 => self.roll_receiver_back(&mut log, random),
            17 => self.truncate(&mut log, random),
            18 => self.rewind(&mut log, random),
            19 => self.skip_ssns(&mut log, random),
            20 | 21 => self.open_cursor(&mut log, random),
            22 | 23 => self.read_cursors(random, explored),
            24 => self.close_cursors(&mut log, random),
            25 | 26 => self.checkpoint(&mut log, random),
            27 => self.append_local(&mut log, random),
            28 => self.sync_local(&mut log),
            29 => self.discard_sealed(&mut log),
            _ => {
                let outcome = self.discard(&mut log, random)?;
                // Discarding checkpoints is followed by a recovery.
                self.log = Some(log);
                if outcome == Outcome::Done {
                    self.end_and_recover(explored)?;
                    self.roll_back_memory()?;
                    self.check_memory(explored)?;
                }
                return Ok(outcome);
            }
        };
        if log.stats().stopped_logging {
            for (peer, lane) in (0..).map(Rank).zip(&mut self.lanes) {
                lane.dispensable = lane.dispensable.max(log.acked(peer));
            }
        }
        let checked = if random().is_multiple_of(4) { self.check_all(&mut log, random, explored) } else { Ok(()) };
        self.log = Some(log);
        checked?;
        outcome
    }

    pub(super) fn note(&mut self, what: impl Into<String>) {
        self.steps.push(what.into());
    }

    fn create(&mut self) -> Result<Outcome, Mismatch> {
        self.note("create");
        let options = Options { dir: self.memory.as_ref().map(SharedMemory::dir), ..self.options.clone() };
        match Builder::new(options, Box::new(self.disk.clone())).seed(self.seed).create() {
            Ok(log) => {
                self.log = Some(log);
                Ok(Outcome::Done)
            }
            Err(OpenError::Store(error)) => self.store_outcome(&error),
            Err(error) => Err(Mismatch(format!("can't be created: {error}"))),
        }
    }

    /// Classifies a store error.
    pub(super) fn store_outcome(&self, error: &StoreError) -> Result<Outcome, Mismatch> {
        match error {
            StoreError::Failed { .. } => Ok(Outcome::Failed),
            StoreError::DiskFull { .. } | StoreError::Budget { .. } | StoreError::Io { .. } => Ok(Outcome::Refused),
            error => Err(Mismatch(format!("a step fails: {error}"))),
        }
    }

    /// Reads the whole log, and compares it with the model.
    fn check_all(&mut self, log: &mut Log, random: Random<'_>, explored: &mut Explored) -> Result<(), Mismatch> {
        for (peer, lane) in (0..).map(Rank).zip(&self.lanes) {
            let from = Ssn(1 + random() % lane.last.next().0);
            explored.messages += check_lane(log, peer, lane, Some(from)).map_err(Mismatch)?;
            if log.acked(peer) != lane.acked || log.rewound_to(peer) != lane.rewound {
                return Err(Mismatch(format!("{peer} is at {} of {}", log.acked(peer), lane.acked)));
            }
        }
        let entries = log.local().entries_after(Ssn::ZERO);
        if entries == self.local { Ok(()) } else { Err(Mismatch("the local log is another one".to_owned())) }
    }

    fn lane(&mut self, random: Random<'_>) -> (Rank, &mut Lane) {
        // Five in eight messages go to rank 0.
        let peer = below(random, 2 * RANKS as usize).saturating_sub(RANKS as usize);
        (Rank(peer as u32), &mut self.lanes[peer])
    }

    fn append(&mut self, log: &mut Log, random: Random<'_>) -> Result<Outcome, Mismatch> {
        let (peer, lane) = self.lane(random);
        if lane.rewound.is_some() {
            return self.repeat(log, peer, random);
        }
        if random() & 1 == 0 {
            self.acknowledge_upto(log, peer, self.lanes[peer.index()].last)?;
        }
        let (count, most) = (1 + below(random, 24), [300, 300, 1500][below(random, 3)]);
        self.note(format!("append {count} to {peer}, most up to {most} bytes"));
        for _ in 0..count {
            let len = match random() % 32 {
                0 => below(random, 24_000),
                1..=3 => below(random, 5000),
                _ => below(random, most),
            };
            self.salt += 1;
            let lane = &mut self.lanes[peer.index()];
            let sent = Sent { ssn: lane.last.next(), prefix: below(random, 64).min(len), len, salt: self.salt };
            let mut claim = match log.claim(peer, sent.prefix, len - sent.prefix) {
                Ok(claim) => claim,
                Err(refused) => match *refused {
                    AppendError::Full(_) => return Ok(Outcome::Refused),
                    AppendError::DiskRefused(refused) => return self.store_outcome(&refused.source),
                    error => return Err(Mismatch(format!("a claim fails: {error}"))),
                },
            };
            claim.body_mut().copy_from_slice(&sent.wire());
            if random().is_multiple_of(32) {
                // A dropped claim becomes a pad.
                continue;
            }
            if claim.commit() != sent.ssn {
                return Err(Mismatch(format!("a message to {peer} has another SSN than {}", sent.ssn)));
            }
            lane.last = sent.ssn;
            lane.sent.push(sent);
        }
        Ok(if log.disk_error().is_some_and(is_sticky) { Outcome::Failed } else { Outcome::Done })
    }

    fn acknowledge(&mut self, log: &mut Log, random: Random<'_>) -> Result<Outcome, Mismatch> {
        let (peer, lane) = self.lane(random);
        let upto = if random().is_multiple_of(4) { Ssn(random() % lane.last.next().0) } else { lane.last };
        self.acknowledge_upto(log, peer, upto)
    }

    fn acknowledge_upto(&mut self, log: &mut Log, peer: Rank, upto: Ssn) -> Result<Outcome, Mismatch> {
        let lane = &mut self.lanes[peer.index()];
        lane.acked = lane.acked.max(upto);
        if self.options.keep == Keep::Acked {
            lane.dispensable = lane.dispensable.max(upto);
        }
        self.note(format!("{peer} acknowledges {upto}"));
        let ack = Ack { ssn: upto, epoch: Epoch(1 + upto.0 as u32 / 16) };
        match log.acknowledge(peer, ack, Phase(0)) {
            Ok(()) => Ok(Outcome::Done),
            Err(_) if upto == Ssn::ZERO => Ok(Outcome::Done),
            Err(error) => Err(Mismatch(error.to_string())),
        }
    }

    fn cover(&mut self, log: &mut Log, random: Random<'_>) -> Result<Outcome, Mismatch> {
        let keep = self.options.keep;
        let (peer, lane) = self.lane(random);
        let upto = match random() % 3 {
            0 => lane.acked,
            _ => Ssn(random() % lane.acked.next().0),
        };
        if keep == Keep::Checkpoint {
            lane.dispensable = lane.dispensable.max(upto);
        }
        let epoch = Epoch(2 + upto.0 as u32 / 16);
        self.note(format!("{peer} covers {upto}"));
        log.receiver_covered(peer, epoch, upto).map_err(|error| Mismatch(error.to_string()))?;
        if random() & 1 == 0 {
            log.collect();
        }
        if random().is_multiple_of(4) {
            return self.cover_all(log);
        }
        Ok(Outcome::Done)
    }

    /// Covers every message by durable checkpoints on all receivers: nothing is retained then, whatever the disk
    /// reports.
    fn cover_all(&mut self, log: &mut Log) -> Result<Outcome, Mismatch> {
        if self.options.keep == Keep::All || !self.cursors.is_empty() {
            return Ok(Outcome::Done);
        }
        self.note("everything is covered");
        for (peer, lane) in (0..).map(Rank).zip(&mut self.lanes) {
            lane.acked = lane.last;
            lane.dispensable = lane.dispensable.max(lane.last);
            log.receiver_covered(peer, Epoch(1000), lane.last).map_err(|error| Mismatch(error.to_string()))?;
        }
        log.collect();
        let holders = log.stats().holders;
        if holders.is_empty() {
            return Ok(Outcome::Done);
        }
        Err(Mismatch(format!("nothing is needed, and yet {holders:?}")))
    }

    fn roll_receiver_back(&mut self, log: &mut Log, random: Random<'_>) -> Result<Outcome, Mismatch> {
        let (peer, lane) = self.lane(random);
        let least = lane.dispensable.min(lane.acked);
        let upto = Ssn(least.0 + random() % (lane.acked.0 - least.0 + 1));
        lane.acked = upto;
        self.note(format!("{peer} rolls back to {upto}"));
        log.receiver_rolled_back(peer, upto);
        Ok(Outcome::Done)
    }

    fn truncate(&mut self, log: &mut Log, random: Random<'_>) -> Result<Outcome, Mismatch> {
        let (peer, lane) = self.lane(random);
        let (before, is_used) = (lane.last, lane.last > Ssn::ZERO);
        let last = Ssn(before.0.saturating_sub(random() % 30)).max(self.memory_end(peer)).min(before);
        self.note(format!("truncate {peer} from {before} to {last}"));
        let is_open = self.cursors.iter().any(|held| held.peer == peer);
        let has_end = match log.truncate(peer, last) {
            Ok(()) if is_open && is_used => return Err(Mismatch(format!("{peer} was cut under a cursor"))),
            Ok(()) => true,
            Err(TruncateError::CursorOpen { .. }) if is_open => return Ok(Outcome::Done),
            Err(TruncateError::Alloc(_)) => false,
            Err(error) => return Err(Mismatch(error.to_string())),
        };
        let lane = &mut self.lanes[peer.index()];
        // Without memory for a gap before its end, a lane ends with its last message.
        let (end, kept) = (log.next_ssn(peer).prev(), lane.sent.iter().rfind(|sent| sent.ssn <= last));
        if end > last || (has_end && end < last) || kept.is_some_and(|sent| sent.ssn > end) {
            return Err(Mismatch(format!("{peer} was truncated to {end}, not {last}")));
        }
        (lane.last, lane.acked, lane.rewound) = (end, lane.acked.min(end), None);
        lane.lost_from_memory = lane.lost_from_memory.min(end);
        lane.sent.retain(|sent| sent.ssn <= last);
        Ok(Outcome::Done)
    }

    fn rewind(&mut self, log: &mut Log, random: Random<'_>) -> Result<Outcome, Mismatch> {
        let (peer, _) = self.lane(random);
        let least = self.memory_end(peer);
        let lane = &mut self.lanes[peer.index()];
        // Messages are repeated as they were sent, so a lane is rewound no further than to its last gap.
        let whole = lane.sent.iter().rev().zip((0..=lane.last.0).rev()).take_while(|(sent, ssn)| sent.ssn.0 == *ssn);
        let back = (below(random, whole.count().min(20) + 1) as u64).min(lane.last.0.saturating_sub(least.0));
        let last = Ssn(lane.last.0 - back);
        lane.rewound = (back > 0).then_some(last.next());
        self.note(format!("rewind {peer} to {last}"));
        log.rewind(peer, last);
        Ok(Outcome::Done)
    }

    fn repeat(&mut self, log: &mut Log, peer: Rank, random: Random<'_>) -> Result<Outcome, Mismatch> {
        for _ in 0..1 + below(random, 20) {
            let lane = &mut self.lanes[peer.index()];
            let Some(next) = lane.rewound else { break };
            let sent = lane.sent.iter().find(|sent| sent.ssn == next).copied();
            let Some(sent) = sent else { return Err(Mismatch(format!("nothing to repeat as {next}"))) };
            lane.rewound = Some(next.next()).filter(|next| *next <= lane.last);
            self.note(format!("repeat {next} to {peer}"));
            let repeated = log.repeat(peer, &sent.wire()[sent.prefix..]);
            if repeated != Ok(next) {
                return Err(Mismatch(format!("{next} to {peer} repeated as {repeated:?}")));
            }
        }
        Ok(Outcome::Done)
    }

    /// Skips SSNs, as after a checkpoint covering them.
    fn skip_ssns(&mut self, log: &mut Log, random: Random<'_>) -> Result<Outcome, Mismatch> {
        let (peer, lane) = self.lane(random);
        if lane.rewound.is_some() || !random().is_multiple_of(4) {
            return Ok(Outcome::Done);
        }
        let next = Ssn(lane.last.0 + 2 + random() % 3);
        self.note(format!("the next to {peer} is {next}"));
        if log.set_next_ssn(peer, next).is_err() {
            return Ok(Outcome::Refused);
        }
        self.lanes[peer.index()].last = next.prev();
        Ok(Outcome::Done)
    }

    fn open_cursor(&mut self, log: &mut Log, random: Random<'_>) -> Result<Outcome, Mismatch> {
        let (peer, lane) = self.lane(random);
        let from = Ssn(log.kept_from(peer).0 + random() % 40).min(lane.last.next());
        self.note(format!("a cursor at {from} to {peer}"));
        match log.cursor(peer, from) {
            Ok(cursor) => self.cursors.push(HeldCursor { peer, cursor, at: from, opened_at: from }),
            Err(ReplayError::Cursor(CursorError::TooMany { .. })) => {}
            Err(ReplayError::Cursor(CursorError::Gone { .. })) if from < log.kept_from(peer) => {}
            Err(error) => return Err(Mismatch(format!("no cursor at {from} to {peer}: {error}"))),
        }
        Ok(Outcome::Done)
    }

    fn read_cursors(&mut self, random: Random<'_>, explored: &mut Explored) -> Result<Outcome, Mismatch> {
        let drops_released = self.options.keep == Keep::Acked || self.options.stops_logging;
        // A process taking over memory finds gaps where an earlier one freed messages; a cursor on disk, where covered
        // ones were freed in memory.
        let has_gaps = self.options.tier != Tier::Volatile;
        for HeldCursor { peer, cursor, at, opened_at } in &mut self.cursors {
            let dispensable = self.lanes[peer.index()].dispensable;
            let sent = &self.lanes[peer.index()].sent;
            let mut ahead = sent[sent.partition_point(|sent| sent.ssn < *at)..].iter();
            for _ in 0..below(random, 40) {
                let Some(sent) = ahead.next() else { break };
                let shown = match cursor.read() {
                    // The message was released; or the cursor was opened in a gap, or at a message covered before it
                    // was sent.
                    Err(ReplayError::Cursor(CursorError::Gone { .. }))
                        if (drops_released && sent.ssn <= dispensable)
                            || (at == opened_at && (sent.ssn > *at || sent.ssn <= dispensable)) =>
                    {
                        *at = Ssn::MAX;
                        break;
                    }
                    // A cursor changing from disk to memory needs a cursor of the lane.
                    Err(ReplayError::Cursor(CursorError::TooMany { .. })) => break,
                    shown => shown.map_err(|error| Mismatch(format!("a held cursor: {error}")))?,
                };
                let expected = match &shown {
                    Some(record) if has_gaps && sent.ssn <= dispensable && sent.ssn < record.ssn() => {
                        ahead.find(|sent| sent.ssn > dispensable || sent.ssn >= record.ssn()).unwrap_or(sent)
                    }
                    _ => sent,
                };
                if !shown.is_some_and(|record| expected.is(&record)) {
                    return Err(Mismatch(format!("a held cursor doesn't show {} to {peer}", expected.ssn)));
                }
                *at = expected.ssn.next();
                explored.held_messages += 1;
            }
        }
        Ok(Outcome::Done)
    }

    fn close_cursors(&mut self, log: &mut Log, random: Random<'_>) -> Result<Outcome, Mismatch> {
        self.note("cursors are closed");
        self.cursors.retain(|_| random().is_multiple_of(3));
        log.collect();
        Ok(Outcome::Done)
    }
}

/// Returns `true` if the store writes nothing more after this error.
fn is_sticky(error: &StoreError) -> bool {
    matches!(error, StoreError::Failed { .. })
}
