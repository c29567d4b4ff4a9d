//! Comparing what a recovery finds with what it must find.

use counterfoil_log_core::{CursorError, Rank, Record, Ssn};
use counterfoil_log_io::{SimulatedDisk, StoreError};

use super::{Chance, Explored, Lane, Mismatch, RANKS, Sent, Truth, World, below};
use crate::{Log, OpenError, Recovered, ReplayError};

/// Faults that may be waiting.
const FAULTS_MAX: usize = 12;

/// What a recovery found, and what is true then.
#[derive(Debug)]
pub(super) struct Found {
    truth: Truth,
    lanes: [Lane; RANKS as usize],
}

impl World {
    /// Recovers the log that a power cut left on a copy of the disk, and compares it with what may be true. With `again`, the
    /// power is cut while it is recovered, too.
    pub(super) fn check(
        &self,
        left: &SimulatedDisk,
        truths: &[Truth],
        again: bool,
        chance: Chance<'_>,
        explored: &mut Explored,
    ) -> Result<Found, Mismatch> {
        explored.crashes += 1;
        let disk = left.copy();
        disk.remember();
        let (mut log, recovered) = self.recover(&disk)?;
        let history = disk.take_history();
        let matches = truths.iter().map(|truth| self.matches(truth, &mut log, &recovered, explored));
        let matches: Vec<Result<Found, String>> = matches.collect();
        if matches.iter().all(Result::is_err) {
            let why: Vec<String> = matches.into_iter().filter_map(Result::err).collect();
            return Err(Mismatch(format!("a recovery finds neither state: {}", why.join("; "))));
        }
        let found = matches.into_iter().flatten().next_back().ok_or_else(|| Mismatch(String::new()))?;
        explored.checkpoints += u64::from(!found.truth.kept.is_empty());
        explored.tail_entries += found.truth.tail.len() as u64;
        if again {
            // Recovered again from any place of its recovery it is the same.
            let same = Truth { synced: found.truth.tail.len(), ..found.truth.clone() };
            for disk in history {
                explored.crashes_in_recovery += 1;
                let left = disk.crash(chance);
                self.check(&left, std::slice::from_ref(&same), below(chance, 64) == 0, chance, explored)?;
            }
        }
        Ok(found)
    }

    fn recover(&self, disk: &SimulatedDisk) -> Result<(Log, Recovered), Mismatch> {
        let recover = || Log::recover_on(self.options.clone(), Box::new(disk.clone()));
        let mut recovered = recover();
        for _ in 0..FAULTS_MAX {
            // Faults that were meant for steps. The next process finds one less.
            let Err(OpenError::Store(StoreError::Failed { .. } | StoreError::Io { .. })) = recovered else { break };
            recovered = recover();
        }
        recovered.map_err(|error| Mismatch(format!("a recovery fails: {error}")))
    }

    /// Goes on with what is on the disk now, which was found to be this.
    pub(super) fn go_on(&mut self, found: Found) -> Result<(), Mismatch> {
        self.cursors.clear();
        self.log = None;
        self.log = Some(self.recover(&self.disk)?.0);
        let Found { truth, lanes } = found;
        self.lanes = lanes;
        self.local = truth.kept.last().map_or(Vec::new(), |checkpoint| checkpoint.local.clone());
        self.local.extend(truth.tail.iter().cloned());
        self.local_handed = self.local.last().map_or(Ssn::ZERO, |(ssn, _)| *ssn);
        self.newest_epoch = truth.kept.last().map_or(1, |checkpoint| checkpoint.epoch.0);
        self.truth = Truth { synced: truth.tail.len(), ..truth };
        Ok(())
    }

    /// The process ends without a power cut, and another one recovers what it had.
    pub(super) fn end_and_recover(&mut self, explored: &mut Explored) -> Result<(), Mismatch> {
        self.count(explored);
        self.cursors.clear();
        self.log = None;
        let copy = self.disk.copy();
        let (mut log, recovered) = self.recover(&copy)?;
        let found = self.matches(&self.truth, &mut log, &recovered, explored);
        self.go_on(found.map_err(|why| Mismatch(format!("a recovery after the process: {why}")))?)
    }

    /// Whether what was recovered is what this truth allows, and what is true then.
    fn matches(
        &self,
        truth: &Truth,
        log: &mut Log,
        recovered: &Recovered,
        explored: &mut Explored,
    ) -> Result<Found, String> {
        let epochs = (recovered.checkpoint.as_ref().map(|found| found.epoch), truth.kept.last().map(|must| must.epoch));
        let (restored, newest) = match (&recovered.checkpoint, truth.kept.last()) {
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
        if tail.len() < truth.synced || !truth.tail.starts_with(tail) || recovered.local_entries != local.len() {
            return Err(format!("tail of {}, of {}, {} synced", tail.len(), truth.tail.len(), truth.synced));
        }
        let mut lanes: [Lane; RANKS as usize] = Default::default();
        for (peer, found) in (0..RANKS).map(Rank).zip(&mut lanes) {
            if let Some(newest) = newest {
                found.clone_from(&newest.lanes[peer.index()]);
            }
            // What may be gone stays so.
            found.dispensable = self.lanes[peer.index()].dispensable.max(found.dispensable);
            let acked = log.acked(peer);
            if acked < found.acked || acked > found.acked.max(found.dispensable.min(found.last)) {
                return Err(format!("{peer} acknowledged {acked}, not {}", found.acked));
            }
            found.acked = acked;
            let says = recovered.checkpoint.iter().flat_map(|restored| &restored.lanes).find(|lane| lane.0 == peer);
            let is_said =
                says.is_none_or(|(_, kept_from, last)| (*kept_from, *last) == (log.kept_from(peer), found.last));
            if !is_said || log.rewound_to(peer).is_some() {
                return Err(format!("the lane to {peer} is said to be {says:?}"));
            }
            explored.messages += check_lane(log, peer, found, None)?;
        }
        let (kept, tail, synced) = (truth.kept.clone(), tail.to_vec(), truth.synced);
        Ok(Found { truth: Truth { kept, tail, synced }, lanes })
    }
}

/// Whether a lane has the messages that it must have and no others; how many it has. It is read from `from` on, or from where
/// it begins.
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
        // What is covered and not yet collected need not be whole.
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

impl Sent {
    /// Whether a record is this message.
    pub(super) fn is(&self, record: &Record<'_>) -> bool {
        let framing = (record.ssn(), record.prefix().len(), record.wire().len());
        framing == (self.ssn, self.prefix, self.len) && record.wire() == self.wire()
    }
}
