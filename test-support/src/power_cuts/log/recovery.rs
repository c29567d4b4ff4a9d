//! Comparing the results of a recovery with the required state.

use std::path::PathBuf;

use counterfoil::{Builder, Log, OpenError, Options, Recovered, ReplayError, Tier};
use counterfoil_log_core::{CursorError, Rank, Record, Ssn};
use counterfoil_log_io::StoreError;

use super::{Expected, Lane, LogModel, RANKS, Sent, SharedMemory};
use crate::SimulatedDisk;
use crate::power_cuts::{Explored, Mismatch, Subject};

/// Faults of interrupted steps that may still be pending.
const FAULTS_MAX: usize = 12;

/// A recovered log's state, according to the model.
#[derive(Debug)]
pub(super) struct Recovery {
    expected: Expected,
    lanes: [Lane; RANKS as usize],
}

impl Recovery {
    /// Returns the state required from a second recovery.
    pub(super) fn settled(&self) -> Expected {
        Expected { synced: self.expected.tail.len(), ..self.expected.clone() }
    }

    /// Returns the lanes, with nothing in memory.
    pub(super) fn lanes(&self) -> [Lane; RANKS as usize] {
        self.lanes.clone().map(|lane| Lane { lost_from_memory: lane.last, ..lane })
    }
}

impl LogModel {
    /// Recovers a copy of the disk left by a power cut, and compares the log with the allowed states.
    ///
    /// Also returns the disk before each operation in the recovery.
    pub(super) fn recover_any(
        &self,
        left: &SimulatedDisk,
        allowed: &[Expected],
        explored: &mut Explored,
    ) -> Result<(Recovery, Vec<SimulatedDisk>), Mismatch> {
        let disk = left.copy();
        disk.record_history();
        let (mut log, recovered) = self.open_without_memory(&disk)?;
        let history = disk.take_history();
        let matches = allowed.iter().map(|expected| self.matches(expected, &mut log, &recovered, explored));
        let matches: Vec<Result<Recovery, String>> = matches.collect();
        if matches.iter().all(Result::is_err) {
            let why: Vec<String> = matches.into_iter().filter_map(Result::err).collect();
            return Err(Mismatch(format!("a recovery finds neither state: {}", why.join("; "))));
        }
        let found = matches.into_iter().flatten().next_back().ok_or_else(|| Mismatch(String::new()))?;
        explored.checkpoints += u64::from(!found.expected.kept.is_empty());
        explored.tail_entries += found.expected.tail.len() as u64;
        Ok((found, history))
    }

    /// Recovers a log on `disk` after a power cut, which empties shared memory.
    fn open_without_memory(&self, disk: &SimulatedDisk) -> Result<(Log, Recovered), Mismatch> {
        self.open(disk, self.memory.as_ref().map(SharedMemory::empty_dir))
    }

    fn open(&self, disk: &SimulatedDisk, dir: Option<PathBuf>) -> Result<(Log, Recovered), Mismatch> {
        let options = Options { dir, ..self.options.clone() };
        let recover = || Builder::new(options.clone(), Box::new(disk.clone())).seed(self.seed).recover();
        let mut recovered = recover();
        for _ in 0..FAULTS_MAX {
            // A pending fault made the recovery fail. The next attempt finds one fewer.
            let Err(OpenError::Store(StoreError::Failed { .. } | StoreError::Io { .. })) = recovered else { break };
            recovered = recover();
        }
        recovered.map_err(|error| Mismatch(format!("a recovery fails: {error}")))
    }

    /// Ends this process and starts another on the disk, with state `found`.
    pub(super) fn continue_from(&mut self, found: Recovery, explored: &mut Explored) -> Result<(), Mismatch> {
        self.cursors.clear();
        self.log = None;
        let (mut log, recovered) = self.open(&self.disk, self.memory.as_ref().map(SharedMemory::dir))?;
        self.lanes = match self.options.tier {
            Tier::ProcessCrashSafe => self.lanes_in_memory(found.lanes(), &log, &recovered, explored)?,
            _ => found.lanes(),
        };
        let expected = found.expected;
        let mut on_disk = expected.kept.last().map_or(Vec::new(), |checkpoint| checkpoint.local.clone());
        on_disk.extend(expected.tail.iter().cloned());
        self.last_handed = on_disk.last().map_or(Ssn::ZERO, |(ssn, _)| *ssn);
        self.local = match &mut self.memory {
            None => on_disk,
            Some(memory) => memory.check(&self.local, &on_disk, log.local(), explored)?,
        };
        self.log = Some(log);
        self.newest_epoch = expected.kept.last().map_or(1, |checkpoint| checkpoint.epoch.0);
        self.expected = Expected { synced: expected.tail.len(), ..expected };
        Ok(())
    }

    /// Returns the lanes of a log that took over shared memory: lanes from the ended process, and where it has none
    /// from the newest checkpoint, `on_disk`.
    fn lanes_in_memory(
        &self,
        on_disk: [Lane; RANKS as usize],
        log: &Log,
        recovered: &Recovered,
        explored: &mut Explored,
    ) -> Result<[Lane; RANKS as usize], Mismatch> {
        let mut lanes = on_disk;
        for ((peer, found), left) in (0..).map(Rank).zip(&mut lanes).zip(&self.lanes) {
            // A lane without a message isn't reported.
            let is_emptied = left.last == Ssn::ZERO && log.next_ssn(peer) == Ssn::FIRST;
            if is_emptied || recovered.lanes.iter().any(|lane| lane.peer == peer) {
                // Memory doesn't have SSNs skipped after the last message.
                let (sent, end) = (left.sent.last().map_or(Ssn::ZERO, |sent| sent.ssn), log.next_ssn(peer).prev());
                let last = if (sent..=left.last).contains(&end) { end } else { left.last };
                // Nor acknowledgements: anything freed, or lost with memory before, counts as acknowledged.
                let acked = log.acked(peer);
                let missing = left.lost_from_memory.max(left.dispensable);
                if left.sent.iter().any(|sent| sent.ssn <= acked && sent.ssn > missing) || acked > last {
                    return Err(Mismatch(format!("{peer} acknowledged {acked}, and needs an earlier message")));
                }
                *found = Lane { last, acked, rewound: None, ..left.clone() };
                explored.lanes_in_memory += 1;
            } else if left.sent.iter().any(|sent| sent.ssn > left.lost_from_memory.max(left.dispensable)) {
                return Err(Mismatch(format!("the lane to {peer} isn't in memory")));
            }
        }
        Ok(lanes)
    }

    /// Returns the last message at the newest checkpoint, if messages are in shared memory: a rank going back further
    /// discards this checkpoint first.
    ///
    /// Otherwise a recovery would find its messages below those sent again with the same SSNs.
    pub(super) fn memory_end(&self, peer: Rank) -> Ssn {
        let newest = self.expected.kept.last().filter(|_| self.options.tier == Tier::ProcessCrashSafe);
        newest.map_or(Ssn::ZERO, |newest| newest.lanes[peer.index()].last)
    }

    /// Cuts lanes in shared memory to their end at the newest checkpoint: later messages were discarded, with their
    /// blocks.
    pub(super) fn roll_back_memory(&mut self) -> Result<(), Mismatch> {
        let ends: [Ssn; RANKS as usize] = std::array::from_fn(|peer| self.memory_end(Rank(peer as u32)));
        let Some(log) = self.log.as_mut().filter(|_| self.options.tier == Tier::ProcessCrashSafe) else {
            return Ok(());
        };
        for ((peer, lane), end) in (0..).map(Rank).zip(&mut self.lanes).zip(ends) {
            let last = end.min(lane.last);
            log.truncate(peer, last).map_err(|error| Mismatch(error.to_string()))?;
            lane.last = last;
            lane.acked = lane.acked.min(last);
            lane.lost_from_memory = lane.lost_from_memory.min(last);
            lane.sent.retain(|sent| sent.ssn <= last);
        }
        Ok(())
    }

    /// Compares the lanes of a log that took over shared memory with the model.
    pub(super) fn check_memory(&mut self, explored: &mut Explored) -> Result<(), Mismatch> {
        let Some(log) = self.log.as_mut().filter(|_| self.options.tier == Tier::ProcessCrashSafe) else {
            return Ok(());
        };
        for (peer, lane) in (0..).map(Rank).zip(&self.lanes) {
            explored.messages += check_lane(log, peer, lane, None).map_err(Mismatch)?;
        }
        Ok(())
    }

    /// Ends the process without a power cut; another one recovers its log.
    pub(super) fn end_and_recover(&mut self, explored: &mut Explored) -> Result<(), Mismatch> {
        self.count(explored);
        self.cursors.clear();
        self.log = None;
        let copy = self.disk.copy();
        let (mut log, recovered) = self.open_without_memory(&copy)?;
        let found = self.matches(&self.expected, &mut log, &recovered, explored);
        drop(log);
        self.continue_from(found.map_err(|why| Mismatch(format!("a recovery after the process: {why}")))?, explored)
    }

    /// Compares a recovered log with an expected state.
    ///
    /// Returns this state, with the tail found.
    fn matches(
        &self,
        expected: &Expected,
        log: &mut Log,
        recovered: &Recovered,
        explored: &mut Explored,
    ) -> Result<Recovery, String> {
        let epochs =
            (recovered.checkpoint.as_ref().map(|found| found.epoch), expected.kept.last().map(|must| must.epoch));
        let (restored, newest) = match (&recovered.checkpoint, expected.kept.last()) {
            (None, None) => (None, None),
            (Some(restored), Some(newest)) if restored.epoch == newest.epoch => (Some(restored), Some(newest)),
            _ => return Err(format!("the newest checkpoint is {:?}, not {:?}", epochs.0, epochs.1)),
        };
        if restored.map(|restored| &restored.contents) != newest.map(|newest| &newest.contents) {
            return Err("the checkpoint has other contents".to_owned());
        }
        let known = newest.map_or(&[][..], |newest| &newest.local);
        let local = log.local().entries_after(Ssn::ZERO);
        let Some(tail) = local.strip_prefix(known) else { return Err("the local log is another one".to_owned()) };
        if tail.len() < expected.synced || !expected.tail.starts_with(tail) || recovered.local_entries != local.len() {
            return Err(format!("tail of {}, of {}, {} synced", tail.len(), expected.tail.len(), expected.synced));
        }
        let mut lanes: [Lane; RANKS as usize] = Default::default();
        for (peer, found) in (0..RANKS).map(Rank).zip(&mut lanes) {
            if let Some(newest) = newest {
                found.clone_from(&newest.lanes[peer.index()]);
            }
            // A message that may have been collected stays dispensable.
            found.dispensable = self.lanes[peer.index()].dispensable.max(found.dispensable);
            let acked = log.acked(peer);
            if acked < found.acked || acked > found.acked.max(found.dispensable.min(found.last)) {
                return Err(format!("{peer} acknowledged {acked}, not {}", found.acked));
            }
            found.acked = acked;
            let reported =
                recovered.checkpoint.iter().flat_map(|restored| &restored.lanes).find(|lane| lane.peer == peer);
            let is_right = reported.is_none_or(|lane| (lane.kept_from, lane.last) == (log.kept_from(peer), found.last));
            if !is_right || log.rewound_to(peer).is_some() {
                return Err(format!("the lane to {peer} is reported as {reported:?}"));
            }
            explored.messages += check_lane(log, peer, found, None)?;
        }
        let (kept, tail, synced) = (expected.kept.clone(), tail.to_vec(), expected.synced);
        Ok(Recovery { expected: Expected { kept, tail, synced }, lanes })
    }
}

/// Checks that a lane has the required messages and no others, from `from` on or from its first.
///
/// Returns the number of messages.
pub(super) fn check_lane(log: &mut Log, peer: Rank, lane: &Lane, from: Option<Ssn>) -> Result<u64, String> {
    let (next, kept_from) = (log.next_ssn(peer), log.kept_from(peer));
    if next != lane.last.next() {
        return Err(format!("the lane to {peer} goes on with {next} after {}", lane.last));
    }
    let lost = lane.sent.iter().find(|sent| sent.ssn > lane.dispensable && sent.ssn < kept_from);
    if let Some(Sent { ssn, .. }) = lost {
        return Err(format!(
            "{ssn} to {peer} is lost: it begins at {kept_from}, of {} needed",
            lane.dispensable.next()
        ));
    }
    if let Some(before) = kept_from.0.checked_sub(1).filter(|before| *before > 0) {
        match log.cursor(peer, Ssn(before)) {
            Err(ReplayError::Cursor(CursorError::Gone { .. } | CursorError::TooMany { .. })) => {}
            other => return Err(format!("{before} to {peer} is gone, and a cursor there is {other:?}")),
        }
    }
    let from = from.unwrap_or(kept_from).max(kept_from);
    let mut cursor = match log.cursor(peer, from) {
        Err(ReplayError::Cursor(CursorError::TooMany { .. })) => return Ok(0),
        cursor => cursor.map_err(|error| format!("no cursor at {from} to {peer}: {error}"))?,
    };
    let mut messages = 0;
    let mut sent = lane.sent.iter().filter(|sent| sent.ssn >= from);
    loop {
        let record = cursor.read().map_err(|error| format!("to {peer}: {error}"))?;
        let ssn = record.as_ref().map_or(next, Record::ssn);
        // Covered messages not collected yet may have gaps.
        let next = sent.find(|sent| sent.ssn > lane.dispensable || sent.ssn >= ssn);
        match (next, record) {
            (None, None) => return Ok(messages),
            (Some(sent), Some(record)) if sent.is(&record) => messages += 1,
            (Some(Sent { ssn, .. }), None) => return Err(format!("the lane to {peer} ends before {ssn}")),
            (Some(Sent { ssn, .. }), Some(found)) => {
                return Err(format!("{ssn} to {peer} is shown as {}", found.ssn()));
            }
            (None, Some(record)) => return Err(format!("{} to {peer} was never sent", record.ssn())),
        }
    }
}
