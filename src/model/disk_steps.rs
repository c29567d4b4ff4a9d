//! The steps of checkpoints and of the local log, each with what it does to the model.

use std::sync::Arc;

use counterfoil_log_core::{Entry, Epoch};
use counterfoil_log_io::StoreError;

use super::{Chance, Checkpoint, Mismatch, Outcome, World, below};
use crate::{CheckpointError, Contents, Log};

/// Kind of the local log's seals.
const SEAL: u8 = u8::MAX;

impl World {
    pub(super) fn checkpoint(&mut self, log: &mut Log, chance: Chance<'_>) -> Result<Outcome, Mismatch> {
        let epoch = Epoch(self.newest_epoch + 1 + below(chance, 2) as u32);
        let application_bytes = if chance().is_multiple_of(8) { 9000 } else { 100 };
        let contents = Contents {
            application: vec![epoch.0 as u8; below(chance, application_bytes)],
            tables: (0..below(chance, 3)).map(|table| (format!("table {table}"), vec![table as u8; 40])).collect(),
        };
        self.note(format!("checkpoint of {epoch}"));
        let before = self.truth.clone();
        let mut lanes = self.lanes.clone();
        for lane in &mut lanes {
            if let Some(next) = lane.rewound.take() {
                lane.last = next.prev();
                lane.acked = lane.acked.min(lane.last);
                lane.sent.retain(|sent| sent.ssn <= lane.last);
            }
        }
        let local = self.local.clone();
        self.truth.kept.push(Arc::new(Checkpoint { epoch, contents: contents.clone(), lanes, local }));
        let most = self.options.store.as_ref().map_or(1, |store| store.checkpoints_kept);
        let superfluous = self.truth.kept.len().saturating_sub(most);
        self.truth.kept.drain(..superfluous);
        self.truth.tail.clear();
        self.truth.synced = 0;
        let result = if chance() & 1 == 0 {
            log.checkpoint(epoch, contents)
        } else {
            log.begin_checkpoint(epoch, contents).and_then(|pending| pending.wait()).map(drop)
        };
        let outcome = match result {
            Ok(()) => {
                self.newest_epoch = epoch.0;
                self.local_handed = log.local().last();
                self.refuses_an_old_epoch(log, Epoch(epoch.0 - below(chance, 2) as u32), chance)?;
                Outcome::Done
            }
            Err(CheckpointError::Cursor(_)) => Outcome::Refused,
            Err(CheckpointError::Store(error)) => self.store_outcome(&error)?,
            Err(error) => return Err(Mismatch(error.to_string())),
        };
        if outcome == Outcome::Refused {
            self.truth = before;
        }
        Ok(outcome)
    }

    fn refuses_an_old_epoch(&mut self, log: &mut Log, epoch: Epoch, chance: Chance<'_>) -> Result<(), Mismatch> {
        if !chance().is_multiple_of(8) {
            return Ok(());
        }
        self.note(format!("checkpoint of {epoch} again"));
        match log.checkpoint(epoch, Contents::default()) {
            Err(CheckpointError::Store(error))
                if matches!(*error, StoreError::Epoch { .. } | StoreError::Failed { .. }) =>
            {
                Ok(())
            }
            Err(CheckpointError::Cursor(_)) => Ok(()),
            other => Err(Mismatch(format!("a checkpoint of an old epoch: {other:?}"))),
        }
    }

    pub(super) fn note_locally(&mut self, log: &mut Log, chance: Chance<'_>) -> Result<Outcome, Mismatch> {
        self.note("entries of the local log");
        for _ in 0..1 + below(chance, 4) {
            let len = if chance().is_multiple_of(12) { below(chance, 10_000) } else { below(chance, 100) };
            let entry = Entry { kind: (chance() % 3) as u8, key: chance(), bytes: vec![chance() as u8; len] };
            if log.local().append(entry.kind, entry.key, &entry.bytes).is_err() {
                return Ok(Outcome::Refused);
            }
            let ssn = log.local().last();
            self.local.push((ssn, entry));
        }
        if chance().is_multiple_of(3) {
            let epoch = Epoch(self.newest_epoch);
            if log.local().seal(epoch).is_err() {
                return Ok(Outcome::Refused);
            }
            let ssn = log.local().last();
            self.local.push((ssn, Entry { kind: SEAL, key: u64::from(epoch.0), bytes: Vec::new() }));
        }
        Ok(Outcome::Done)
    }

    pub(super) fn sync_local(&mut self, log: &mut Log) -> Result<Outcome, Mismatch> {
        self.note("sync the local log");
        let new = self.local.iter().filter(|(ssn, _)| *ssn > self.local_handed);
        self.truth.tail.extend(new.cloned());
        self.local_handed = log.local().last();
        match log.sync_local() {
            Ok(()) => {
                self.truth.synced = self.truth.tail.len();
                Ok(Outcome::Done)
            }
            Err(CheckpointError::Store(error)) => self.store_outcome(&error),
            Err(error) => Err(Mismatch(error.to_string())),
        }
    }

    pub(super) fn forget_locally(&mut self, log: &mut Log) -> Result<Outcome, Mismatch> {
        // Entries that were handed over and refused are handed over again.
        if self.truth.synced < self.truth.tail.len() {
            return Ok(Outcome::Done);
        }
        let seal = self.local.iter().rposition(|(_, entry)| entry.kind == SEAL);
        let Some(seal) = seal else { return Ok(Outcome::Done) };
        let epoch = Epoch(self.local[seal].1.key as u32);
        self.note(format!("forget what {epoch} sealed"));
        self.local.drain(..=seal);
        if log.local().discard_sealed(epoch) {
            return Ok(Outcome::Done);
        }
        Err(Mismatch(format!("no seal of {epoch}")))
    }

    pub(super) fn discard(&mut self, log: &mut Log, chance: Chance<'_>) -> Result<Outcome, Mismatch> {
        let epoch = Epoch(self.newest_epoch.saturating_sub(below(chance, 4) as u32));
        self.note(format!("discard checkpoints beyond {epoch}"));
        self.truth.kept.retain(|checkpoint| checkpoint.epoch <= epoch);
        self.truth.tail.clear();
        self.truth.synced = 0;
        self.newest_epoch = self.truth.kept.last().map_or(1, |checkpoint| checkpoint.epoch.0);
        match log.discard_checkpoints_beyond(epoch) {
            Ok(()) => Ok(Outcome::Done),
            Err(CheckpointError::Store(error)) => self.store_outcome(&error),
            Err(error) => Err(Mismatch(error.to_string())),
        }
    }
}
