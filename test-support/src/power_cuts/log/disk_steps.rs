//! Checkpoint and local log steps, each with its effect on the model.

use std::sync::Arc;

use counterfoil::{CheckpointError, Contents, Log};
use counterfoil_log_core::{Entry, Epoch};
use counterfoil_log_io::StoreError;

use super::{Checkpoint, LogModel};
use crate::power_cuts::{Mismatch, Outcome};
use crate::random::{Random, below};

/// Entry kind for the local log's seals.
const SEAL: u8 = u8::MAX;

impl LogModel {
    pub(super) fn checkpoint(&mut self, log: &mut Log, random: Random<'_>) -> Result<Outcome, Mismatch> {
        let epoch = Epoch(self.newest_epoch + 1 + below(random, 2) as u32);
        let application_bytes = if random().is_multiple_of(8) { 9000 } else { 100 };
        let contents = Contents {
            application: vec![epoch.0 as u8; below(random, application_bytes)],
            tables: (0..below(random, 3)).map(|table| (format!("table {table}"), vec![table as u8; 40])).collect(),
        };
        self.note(format!("checkpoint of {epoch}"));
        let before = self.expected.clone();
        let mut lanes = self.lanes.clone();
        for lane in &mut lanes {
            if let Some(next) = lane.rewound.take() {
                lane.last = next.prev();
                lane.acked = lane.acked.min(lane.last);
                lane.sent.retain(|sent| sent.ssn <= lane.last);
            }
        }
        let local = self.local.clone();
        self.expected.kept.push(Arc::new(Checkpoint { epoch, contents: contents.clone(), lanes, local }));
        let most = self.options.store.as_ref().map_or(1, |store| store.checkpoints_kept);
        let superfluous = self.expected.kept.len().saturating_sub(most);
        self.expected.kept.drain(..superfluous);
        self.expected.tail.clear();
        self.expected.synced = 0;
        let result = if random() & 1 == 0 {
            log.checkpoint(epoch, contents)
        } else {
            log.begin_checkpoint(epoch, contents).and_then(|pending| pending.wait()).map(drop)
        };
        let outcome = match result {
            Ok(()) => {
                self.newest_epoch = epoch.0;
                self.last_handed = log.local().last();
                self.refuses_an_old_epoch(log, Epoch(epoch.0 - below(random, 2) as u32), random)?;
                Outcome::Done
            }
            Err(CheckpointError::Cursor(_)) => Outcome::Refused,
            Err(CheckpointError::Store(error)) => self.store_outcome(&error)?,
            Err(error) => return Err(Mismatch(error.to_string())),
        };
        if outcome == Outcome::Refused {
            self.expected = before;
        }
        Ok(outcome)
    }

    fn refuses_an_old_epoch(&mut self, log: &mut Log, epoch: Epoch, random: Random<'_>) -> Result<(), Mismatch> {
        if !random().is_multiple_of(8) {
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

    pub(super) fn append_local(&mut self, log: &mut Log, random: Random<'_>) -> Result<Outcome, Mismatch> {
        self.note("entries of the local log");
        for _ in 0..1 + below(random, 4) {
            let len = if random().is_multiple_of(12) { below(random, 10_000) } else { below(random, 100) };
            let entry = Entry { kind: (random() % 3) as u8, key: random(), bytes: vec![random() as u8; len] };
            if log.local().append(entry.kind, entry.key, &entry.bytes).is_err() {
                self.note_local();
                return Ok(Outcome::Refused);
            }
            let ssn = log.local().last();
            self.local.push((ssn, entry));
        }
        if random().is_multiple_of(3) {
            let epoch = Epoch(self.newest_epoch);
            if log.local().seal(epoch).is_err() {
                self.note_local();
                return Ok(Outcome::Refused);
            }
            let ssn = log.local().last();
            self.local.push((ssn, Entry { kind: SEAL, key: u64::from(epoch.0), bytes: Vec::new() }));
        }
        self.note_local();
        Ok(Outcome::Done)
    }

    fn note_local(&mut self) {
        if let Some(memory) = &mut self.memory {
            memory.note(&self.local);
        }
    }

    pub(super) fn sync_local(&mut self, log: &mut Log) -> Result<Outcome, Mismatch> {
        self.note("sync the local log");
        let new = self.local.iter().filter(|(ssn, _)| *ssn > self.last_handed);
        self.expected.tail.extend(new.cloned());
        self.last_handed = log.local().last();
        match log.sync_local() {
            Ok(()) => {
                self.expected.synced = self.expected.tail.len();
                Ok(Outcome::Done)
            }
            Err(CheckpointError::Store(error)) => self.store_outcome(&error),
            Err(error) => Err(Mismatch(error.to_string())),
        }
    }

    pub(super) fn discard_sealed(&mut self, log: &mut Log) -> Result<Outcome, Mismatch> {
        // Entries refused by the store are handed to it again.
        if self.expected.synced < self.expected.tail.len() {
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

    pub(super) fn discard(&mut self, log: &mut Log, random: Random<'_>) -> Result<Outcome, Mismatch> {
        let epoch = Epoch(self.newest_epoch.saturating_sub(below(random, 4) as u32));
        self.note(format!("discard checkpoints beyond {epoch}"));
        self.expected.kept.retain(|checkpoint| checkpoint.epoch <= epoch);
        self.expected.tail.clear();
        self.expected.synced = 0;
        self.newest_epoch = self.expected.kept.last().map_or(1, |checkpoint| checkpoint.epoch.0);
        match log.discard_checkpoints_beyond(epoch) {
            Ok(()) => Ok(Outcome::Done),
            Err(CheckpointError::Store(error)) => self.store_outcome(&error),
            Err(error) => Err(Mismatch(error.to_string())),
        }
    }
}
