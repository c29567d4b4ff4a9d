//! Worker of the store's thread.

use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError};

use counterfoil_log_core::{Rank, Ssn};
use counterfoil_log_io::{Block, CheckpointImage, LOCAL, LaneImage, LaneSource, LocalImage, Store, StoreError};

use crate::disk_index::Cuts;

use super::pace::{PacedJobs, thread_cpu};
use super::reply::WriteWaker;
use super::{CheckpointJob, Disk, Job, LaneState, Write, Written};

/// Maximum number of jobs in a batch; its writes are flushed together.
const BATCH_JOBS_MAX: usize = 8;

/// Owner of the store: writes records and checkpoints.
#[derive(Debug)]
pub(super) struct Worker {
    store: Store,
    disk: Arc<Disk>,
    /// Writes in the current batch, appended but not flushed.
    pending: Vec<(Written, Vec<Block>)>,
    /// Floors last recorded in the store.
    recorded_floors: Vec<(Rank, Ssn)>,
    /// Last local log entry appended since the last checkpoint, even if the call failed later.
    local_appended: Ssn,
    /// Error of the last write, if it was refused.
    refused: Option<Arc<StoreError>>,
    /// Newest write error, also after writes of other lanes succeeded.
    newest_refusal: Option<Arc<StoreError>>,
    /// No-room error of a write in the current batch.
    no_room: Option<Arc<StoreError>>,
    /// Jobs run on a thread of the store.
    has_thread: bool,
}

impl Worker {
    pub(super) fn new(store: Store, disk: Arc<Disk>) -> Worker {
        Worker {
            store,
            disk,
            pending: Vec::new(),
            recorded_floors: Vec::new(),
            local_appended: Ssn::ZERO,
            refused: None,
            newest_refusal: None,
            no_room: None,
            has_thread: false,
        }
    }

    /// Runs jobs until there is no sender, sends the results, and wakes the task waiting for one.
    pub(super) fn serve(&mut self, jobs: &mut PacedJobs<'_>, reports: &Sender<Written>, waker: &WriteWaker) {
        let report = &mut |written| {
            // If the log is gone, results are dropped.
            drop(reports.send(written));
            waker.wake();
        };
        self.has_thread = true;
        while let Some(job) = jobs.begin_batch() {
            self.run(job, report);
            // Batch the queued jobs, so that several writes are in flight; report their results afterwards.
            for _ in 1..BATCH_JOBS_MAX {
                match jobs.poll() {
                    Some(job) => self.run(job, report),
                    None => break,
                }
            }
            self.report(report);
            jobs.end_batch();
        }
    }

    /// Notes the processor time of the store's thread (the caller).
    fn note_cpu(&self) {
        self.disk.cpu_us.store(thread_cpu().as_micros() as u64, Ordering::Relaxed);
    }

    pub(super) fn run(&mut self, job: Job, report: &mut dyn FnMut(Written)) {
        match job {
            // After a write without room the rest of the batch isn't tried: each attempt on a full disk is costly.
            Job::Write(write) => match self.no_room.clone() {
                Some(error) => self.refuse(&write, error),
                None => self.write_lane(write),
            },
            Job::Checkpoint(job, reply) => {
                let result = self.checkpoint(*job);
                // Report before replying, so that the waiter finds the results.
                self.report(report);
                reply.complete(result);
            }
            Job::Local(entries, reply) => reply.complete(self.local(entries).map_err(Arc::new)),
            Job::DiscardBeyond(epoch, reply) => {
                (self.local_appended, self.recorded_floors) = (Ssn::ZERO, Vec::new());
                reply.complete(self.store.discard_beyond(epoch).map(drop).map_err(Arc::new));
            }
            Job::DiscardBefore(epoch, reply) => {
                self.no_room = None;
                reply.complete(self.store.discard_before(epoch).map_err(Arc::new));
            }
            Job::Free(blocks) => {
                self.no_room = None;
                self.store.free(&blocks);
            }
            Job::Drain(reply) => {
                self.report(report);
                reply.complete(Ok(()));
            }
            Job::Hurry => {}
        }
    }

    fn refuse(&mut self, write: &Write, error: Arc<StoreError>) {
        self.pending.push((Written { lane: write.lane, upto: write.upto, result: Err(error) }, Vec::new()));
    }

    /// Appends a lane's records to the store, unless earlier ones of the lane are missing there.
    fn write_lane(&mut self, Write { lane, after, cursor, upto }: Write) {
        let mut blocks = Vec::new();
        let same_lane = self.pending.iter().rev().find(|(written, _)| written.lane == lane);
        let follows = match same_lane {
            Some((before, _)) => before.result.is_ok() && before.upto == after,
            None => self.disk.index.persisted(lane) == after,
        };
        let result = match &self.newest_refusal {
            // An earlier write of this lane was refused: this one must not be persisted without it.
            Some(why) if !follows => Err(why.clone()),
            None if !follows => Err(Arc::new(StoreError::WriterEnded)),
            _ => {
                self.reclaim_if_full();
                self.store.append(lane, &mut LaneSource::new(cursor, upto), &mut blocks).map_err(Arc::new)
            }
        };
        if let Err(error) = &result {
            self.set_refused(error.clone());
            let is_full = matches!(**error, StoreError::DiskFull { .. } | StoreError::Budget { .. });
            self.no_room = is_full.then(|| error.clone());
            self.store.free(&std::mem::take(&mut blocks));
        }
        self.pending.push((Written { lane, upto, result }, blocks));
    }

    fn set_refused(&mut self, error: Arc<StoreError>) {
        (self.refused, self.newest_refusal) = (Some(error.clone()), Some(error));
    }

    /// Near the disk budget, or on a full disk, frees collected blocks still referenced by the last durable checkpoint.
    fn reclaim_if_full(&mut self) {
        let usage = self.store.usage();
        let was_full = matches!(self.refused.as_deref(), Some(StoreError::DiskFull { .. }));
        if was_full || usage.disk_bytes + 2 * self.store.options().segment_bytes > usage.max_bytes {
            let floors = self.disk.index.floors();
            // If the floors can't be recorded, nothing is freed, and the next write returns the error.
            if floors != self.recorded_floors && self.store.raise_floors(&floors).is_ok() {
                self.recorded_floors = floors;
            }
        }
    }

    /// Flushes the appended writes and adds their blocks to the index.
    fn flush(&mut self) {
        if self.pending.iter().all(|(written, _)| written.result.is_err()) {
            return;
        }
        let flushed = self.store.flush().map_err(Arc::new);
        for (written, blocks) in &mut self.pending {
            match &flushed {
                Ok(()) if written.result.is_ok() => {
                    self.refused = None;
                    let freed = self.disk.index.push(written.lane, &std::mem::take(blocks), written.upto);
                    self.store.free(&freed);
                }
                Ok(()) => {}
                Err(error) => written.result = Err(error.clone()),
            }
        }
        if let Err(error) = flushed {
            self.set_refused(error);
        }
    }

    pub(super) fn report(&mut self, to: &mut dyn FnMut(Written)) {
        self.flush();
        self.no_room = None;
        self.note_usage();
        self.pending.drain(..).for_each(|(written, _)| to(written));
    }

    fn checkpoint(&mut self, job: CheckpointJob) -> Result<(), Arc<StoreError>> {
        let first = self.pending.len();
        job.writes.into_iter().for_each(|write| self.write_lane(write));
        self.flush();
        if let Some(error) = self.pending[first..].iter().find_map(|(written, _)| written.result.clone().err()) {
            return Err(error);
        }
        let mut cuts = Cuts::default();
        let lanes = job.lanes.into_iter().map(|LaneState { peer, next, acked, runs }| {
            let (extents, covered) = self.disk.index.snapshot(peer);
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
        // A call failing midway may have appended some already.
        entries.retain(|entry| entry.ssn > self.local_appended);
        // A checkpoint contains the entries themselves; until then a recovery finds these blocks by scanning.
        let mut blocks = Vec::new();
        let appended = self.store.append(LOCAL, &mut LocalImage::source(&entries), &mut blocks);
        self.local_appended = blocks.last().map_or(self.local_appended, |block| block.last);
        appended?;
        self.store.sync()
    }

    fn note_usage(&self) {
        if self.has_thread {
            self.note_cpu();
        }
        *self.disk.usage.lock().unwrap_or_else(PoisonError::into_inner) = self.store.usage();
    }
}
