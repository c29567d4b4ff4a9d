//! What the store's thread does.

use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, PoisonError};

use counterfoil_log_core::{Rank, Ssn};
use counterfoil_log_io::{Block, CheckpointImage, LOCAL, LaneImage, LaneSource, LocalImage, Store, StoreError};

use crate::disk_index::Cuts;

use super::{CheckpointJob, Disk, Job, LaneState, Write, Written};

/// Jobs that are put together before their writes are waited for.
const JOBS_IN_FLIGHT: usize = 8;

/// What runs on the thread.
#[derive(Debug)]
pub(super) struct Worker {
    store: Store,
    disk: Arc<Disk>,
    /// Appended, and not yet known to be written.
    pending: Vec<(Written, Vec<Block>)>,
    /// The floors that were last noted.
    noted: Vec<(Rank, Ssn)>,
    /// Entries of the local log up to here were appended since the last checkpoint, although the call may have failed.
    local_appended: Ssn,
    /// Why the last write was refused.
    refused: Option<Arc<StoreError>>,
    /// There was no room for one of the writes that are put together now.
    no_room: Option<Arc<StoreError>>,
}

impl Worker {
    pub(super) fn new(store: Store, disk: Arc<Disk>) -> Worker {
        Worker {
            store,
            disk,
            pending: Vec::new(),
            noted: Vec::new(),
            local_appended: Ssn::ZERO,
            refused: None,
            no_room: None,
        }
    }

    pub(super) fn serve(&mut self, jobs: &Receiver<Job>, reports: &Sender<Written>) {
        // The log may be gone: then nobody asks.
        let report = &mut |written| drop(reports.send(written));
        while let Ok(job) = jobs.recv() {
            self.run(job, report);
            // Several writes are under way at a time; what waits for them is told when no more come.
            for _ in 1..JOBS_IN_FLIGHT {
                match jobs.try_recv() {
                    Ok(job) => self.run(job, report),
                    Err(_) => break,
                }
            }
            self.report(report);
        }
    }

    pub(super) fn run(&mut self, job: Job, report: &mut dyn FnMut(Written)) {
        match job {
            // Where one finds no room, those that are put together with it aren't tried: each look at a full disk costs.
            Job::Write(write) => match self.no_room.clone() {
                Some(error) => self.refuse(&write, error),
                None => self.write(write),
            },
            Job::Checkpoint(job, debt) => {
                let result = self.checkpoint(*job);
                // Who waits for the answer finds the reports.
                self.report(report);
                debt.pay(result);
            }
            Job::Local(entries, debt) => debt.pay(self.local(entries).map_err(Arc::new)),
            Job::Discard(epoch, debt) => {
                (self.local_appended, self.noted) = (Ssn::ZERO, Vec::new());
                debt.pay(self.store.discard_beyond(epoch).map(drop).map_err(Arc::new));
            }
            Job::Free(blocks) => {
                self.no_room = None;
                self.store.free(&blocks);
            }
            Job::Drain(debt) => {
                self.report(report);
                debt.pay(Ok(()));
            }
        }
    }

    fn refuse(&mut self, write: &Write, error: Arc<StoreError>) {
        self.pending.push((Written { lane: write.lane, upto: write.upto, result: Err(error) }, Vec::new()));
    }

    fn write(&mut self, Write { lane, after, cursor, upto }: Write) {
        let mut blocks = Vec::new();
        let same_lane = self.pending.iter().rev().find(|(written, _)| written.lane == lane);
        let follows = match same_lane {
            Some((before, _)) => before.result.is_ok() && before.upto == after,
            None => self.disk.index.persisted(lane) == after,
        };
        let result = match &self.refused {
            // What went before it was refused: this one mustn't be there without it.
            Some(why) if !follows => Err(why.clone()),
            _ if !follows => Err(Arc::new(StoreError::Gone)),
            _ => {
                self.make_room();
                self.store.append(lane, &mut LaneSource::new(cursor, upto), &mut blocks).map_err(Arc::new)
            }
        };
        if let Err(error) = &result {
            self.refused = Some(error.clone());
            let is_full = matches!(**error, StoreError::DiskFull { .. } | StoreError::Budget { .. });
            self.no_room = is_full.then(|| error.clone());
            self.store.free(&std::mem::take(&mut blocks));
        }
        self.pending.push((Written { lane, upto, result }, blocks));
    }

    /// Near the disk budget, or on a disk that was full, frees what collection made superfluous although the last durable
    /// checkpoint still has it.
    fn make_room(&mut self) {
        let usage = self.store.usage();
        let was_full = matches!(self.refused.as_deref(), Some(StoreError::DiskFull { .. }));
        if was_full || usage.disk_bytes + 2 * self.store.options().segment_bytes > usage.max_bytes {
            let floors = self.disk.index.floors();
            // Where it can't be noted nothing is freed, and the write that follows says why.
            if floors != self.noted && self.store.raise_floors(&floors).is_ok() {
                self.noted = floors;
            }
        }
    }

    /// Waits for what was appended; it is in the index then.
    fn settle(&mut self) {
        if self.pending.iter().all(|(written, _)| written.result.is_err()) {
            return;
        }
        let flushed = self.store.flush().map_err(Arc::new);
        for (written, blocks) in &mut self.pending {
            match &flushed {
                Ok(()) if written.result.is_ok() => {
                    self.refused = None;
                    let superfluous = self.disk.index.push(written.lane, &std::mem::take(blocks), written.upto);
                    self.store.free(&superfluous);
                }
                Ok(()) => {}
                Err(error) => {
                    self.refused = Some(error.clone());
                    written.result = Err(error.clone());
                }
            }
        }
    }

    pub(super) fn report(&mut self, to: &mut dyn FnMut(Written)) {
        self.settle();
        self.no_room = None;
        self.note_usage();
        self.pending.drain(..).for_each(|(written, _)| to(written));
    }

    fn checkpoint(&mut self, job: CheckpointJob) -> Result<(), Arc<StoreError>> {
        let from = self.pending.len();
        job.writes.into_iter().for_each(|write| self.write(write));
        self.settle();
        if let Some(error) = self.pending[from..].iter().find_map(|(written, _)| written.result.clone().err()) {
            return Err(error);
        }
        let mut cuts = Cuts::default();
        let lanes = job.lanes.into_iter().map(|LaneState { peer, next, acked, runs }| {
            let (extents, covered) = self.disk.index.whole(peer);
            cuts.note(&extents);
            let blocks = extents.iter().map(|extent| extent.block).collect();
            LaneImage { peer, next, acked, covered, runs, blocks }
        });
        let lanes: Vec<LaneImage> = lanes.collect();
        let mut tables = job.tables;
        if !cuts.is_empty() {
            tables.push((Cuts::TABLE.to_owned(), cuts.to_bytes()));
        }
        let image = CheckpointImage { epoch: job.epoch, lanes, local: job.local, tables, application: job.application };
        self.store.checkpoint(&image).map_err(Arc::new)?;
        self.local_appended = Ssn::ZERO;
        Ok(())
    }

    fn local(&mut self, mut entries: Vec<LocalImage>) -> Result<(), StoreError> {
        // Some of them may be there from a call that was refused in the middle.
        entries.retain(|entry| entry.ssn > self.local_appended);
        // The index of a checkpoint has the entries themselves; until then the blocks are found by where they are.
        let mut blocks = Vec::new();
        let appended = self.store.append(LOCAL, &mut LocalImage::source(&entries), &mut blocks);
        self.local_appended = blocks.last().map_or(self.local_appended, |block| block.last);
        appended?;
        self.store.sync()
    }

    fn note_usage(&self) {
        *self.disk.usage.lock().unwrap_or_else(PoisonError::into_inner) = self.store.usage();
    }
}
