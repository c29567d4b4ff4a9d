//! The store's thread, writing spilled records and checkpoints.
//!
//! The log's thread opens cursors on the records to be written and sends them to the store's thread; the cursors' pins
//! protect the memory until it is written. Checksums, compression and system calls happen on the store's thread. The
//! log's thread waits only in calls promising durability, and for room. In a simulation there is no thread: jobs run
//! inline.

mod pace;
mod reply;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Duration;

use counterfoil_log_core::{Cursor, Epoch, Rank, Run, Ssn};
use counterfoil_log_io::{Block, DiskUsage, LocalImage, Store, StoreError, StoreReader};

use crate::disk_index::DiskIndex;
use pace::PacedJobs;
pub(crate) use reply::Reply;
use reply::{ReplySender, WakeAtEnd, WriteWaker};
use worker::Worker;

/// Read side of the store, shared with cursors.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) index: DiskIndex,
    pub(crate) reader: StoreReader,
    /// I/O backend description, for reports.
    pub(crate) backend: String,
    usage: Mutex<DiskUsage>,
    /// Processor time of the store's thread, in microseconds.
    cpu_us: AtomicU64,
}

impl Disk {
    pub(crate) fn usage(&self) -> DiskUsage {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the processor time of the store's thread; zero without one.
    pub(crate) fn cpu(&self) -> Duration {
        Duration::from_micros(self.cpu_us.load(Ordering::Relaxed))
    }
}

/// Records of a lane to be written: all kept ones above `after` and up to `upto`.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) lane: Rank,
    /// Last SSN submitted before.
    pub(crate) after: Ssn,
    /// Cursor on the first record to be written.
    pub(crate) cursor: Cursor,
    pub(crate) upto: Ssn,
}

/// Lane state at the beginning of a checkpoint.
#[derive(Debug)]
pub(crate) struct LaneState {
    pub(crate) peer: Rank,
    pub(crate) next: Ssn,
    pub(crate) acked: Ssn,
    pub(crate) runs: Vec<Run>,
}

/// Checkpoint contents, except blocks already on disk.
#[derive(Debug)]
pub(crate) struct CheckpointJob {
    pub(crate) epoch: Epoch,
    pub(crate) writes: Vec<Write>,
    pub(crate) lanes: Vec<LaneState>,
    pub(crate) local: Vec<LocalImage>,
    pub(crate) tables: Vec<(String, Vec<u8>)>,
    pub(crate) application: Vec<u8>,
}

#[derive(Debug)]
enum Job {
    Write(Write),
    Checkpoint(Box<CheckpointJob>, ReplySender),
    Local(Vec<LocalImage>, ReplySender),
    DiscardBeyond(Epoch, ReplySender),
    DiscardBefore(Epoch, ReplySender),
    Free(Vec<Block>),
    /// Reply when all earlier jobs are done.
    Drain(ReplySender),
    /// A call waits for the earlier writes: do them without a rest.
    Hurry,
}

impl Job {
    /// Returns `true` if a call waits for this job or an earlier one.
    fn is_awaited(&self) -> bool {
        !matches!(self, Job::Write(_) | Job::Free(_))
    }
}

/// Result of a [`Write`].
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) lane: Rank,
    pub(crate) upto: Ssn,
    pub(crate) result: Result<(), Arc<StoreError>>,
}

/// Connection to the store's thread.
#[derive(Debug)]
pub(crate) struct Spiller {
    pub(crate) disk: Arc<Disk>,
    port: Port,
    /// Submitted writes without a result so far.
    in_flight: usize,
    /// The thread rests now and then.
    is_paced: bool,
    /// Set by a request to hurry, until the next write ends.
    has_hurried: bool,
    /// The thread has panicked: nothing is written any more.
    is_gone: bool,
}

#[derive(Debug)]
enum Port {
    Thread { jobs: Option<Sender<Job>>, written: Receiver<Written>, waker: WriteWaker, thread: Option<JoinHandle<()>> },
    Inline { worker: Box<Worker>, written: VecDeque<Written> },
}

impl Spiller {
    /// Starts a spiller for a store.
    ///
    /// Its thread takes at most `cpu_percent` of a core while no call waits for it; `None` runs the jobs inline.
    /// `backend` describes the I/O backend.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(crate) fn new(
        store: Store,
        index: DiskIndex,
        backend: String,
        cpu_percent: Option<u8>,
    ) -> std::io::Result<Spiller> {
        let (usage, cpu_us) = (Mutex::new(store.usage()), AtomicU64::new(0));
        let disk = Arc::new(Disk { index, reader: store.reader(), backend, usage, cpu_us });
        let mut worker = Box::new(Worker::new(store, disk.clone()));
        let spiller =
            |port, is_paced| Spiller { disk, port, in_flight: 0, is_paced, has_hurried: false, is_gone: false };
        let Some(cpu_percent) = cpu_percent else {
            return Ok(spiller(Port::Inline { worker, written: VecDeque::new() }, false));
        };
        let (jobs, queue) = channel();
        let (report, written) = channel();
        let waker = WriteWaker::default();
        let at_end = WakeAtEnd(waker.clone());
        let serve = move || {
            // Dropped after the result sender.
            let (at_end, report) = (at_end, report);
            worker.serve(&mut PacedJobs::new(&queue, cpu_percent), &report, &at_end.0);
        };
        let thread = std::thread::Builder::new().name("counterfoil-spill".to_owned()).spawn(serve)?;
        let port = Port::Thread { jobs: Some(jobs), written, waker, thread: Some(thread) };
        Ok(spiller(port, cpu_percent < 100))
    }

    /// Returns `true` if the store has its own directory; `false` if it is on a backend given by the caller.
    pub(crate) fn has_directory(&self) -> bool {
        matches!(self.port, Port::Thread { .. })
    }

    /// Returns the number of submitted writes without a result so far.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns `true` if the store's thread has panicked.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Submits records to be written.
    ///
    /// [`poll`](Self::poll) returns the result.
    pub(crate) fn enqueue_write(&mut self, write: Write) {
        self.in_flight += 1;
        self.enqueue(Job::Write(write));
    }

    /// Submits a checkpoint; [`poll`](Self::poll) also returns its writes' results.
    pub(crate) fn checkpoint(&mut self, job: CheckpointJob) -> Reply {
        self.in_flight += job.writes.len();
        let (sender, reply) = reply::channel();
        self.enqueue(Job::Checkpoint(Box::new(job), sender));
        reply
    }

    /// Makes local log entries durable.
    pub(crate) fn local(&mut self, entries: Vec<LocalImage>) -> Reply {
        let (sender, reply) = reply::channel();
        self.enqueue(Job::Local(entries, sender));
        reply
    }

    /// Durably discards the checkpoints beyond `epoch`.
    pub(crate) fn discard_beyond(&mut self, epoch: Epoch) -> Reply {
        let (sender, reply) = reply::channel();
        self.enqueue(Job::DiscardBeyond(epoch, sender));
        reply
    }

    /// Durably discards the checkpoints before `epoch`, but never the newest.
    pub(crate) fn discard_before(&mut self, epoch: Epoch) -> Reply {
        let (sender, reply) = reply::channel();
        self.enqueue(Job::DiscardBefore(epoch, sender));
        reply
    }

    /// Frees blocks removed from the index.
    pub(crate) fn free(&mut self, blocks: Vec<Block>) {
        if !blocks.is_empty() {
            self.enqueue(Job::Free(blocks));
        }
    }

    /// Waits until all submitted jobs are done.
    pub(crate) fn drain(&mut self) {
        let (sender, reply) = reply::channel();
        self.enqueue(Job::Drain(sender));
        // Errors are in the results of the jobs causing them.
        let _ = reply.wait();
    }

    /// Returns the next result, if there is one.
    pub(crate) fn poll(&mut self) -> Option<Written> {
        let written = match &mut self.port {
            Port::Inline { written, .. } => written.pop_front(),
            Port::Thread { written, .. } => match written.try_recv() {
                Ok(written) => Some(written),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => {
                    (self.in_flight, self.is_gone) = (0, true);
                    None
                }
            },
        };
        self.in_flight -= usize::from(written.is_some());
        self.has_hurried &= written.is_none();
        written
    }

    /// Has the thread do the writes in flight without a rest, since a call waits for one.
    pub(crate) fn hurry(&mut self) {
        if self.is_paced && self.in_flight > 0 && !self.has_hurried {
            self.has_hurried = true;
            self.enqueue(Job::Hurry);
        }
    }

    /// Has `waker` woken after the next write result, or when there will be none.
    pub(crate) fn wake_after_write(&self, waker: &Waker) {
        match &self.port {
            Port::Thread { waker: of_thread, .. } => of_thread.set(waker),
            // Nothing is in flight.
            Port::Inline { .. } => waker.wake_by_ref(),
        }
    }

    /// Waits for the next result; `None` if no write is in flight.
    pub(crate) fn wait(&mut self) -> Option<Written> {
        if self.in_flight == 0 {
            return None;
        }
        self.hurry();
        self.has_hurried = false;
        match &mut self.port {
            Port::Inline { .. } => self.poll(),
            Port::Thread { written, .. } => {
                let report = written.recv().ok();
                self.is_gone = report.is_none();
                self.in_flight = if report.is_some() { self.in_flight - 1 } else { 0 };
                report
            }
        }
    }

    /// Hands a job to the store's thread, or runs it.
    fn enqueue(&mut self, job: Job) {
        match &mut self.port {
            Port::Inline { worker, written } => {
                let report = &mut |report| written.push_back(report);
                worker.run(job, report);
                worker.report(report);
            }
            Port::Thread { jobs, .. } => {
                // If the thread is gone, dropping the job sends its waiter an error.
                self.is_gone |= jobs.as_ref().is_none_or(|jobs| jobs.send(job).is_err());
            }
        }
    }
}

impl Drop for Spiller {
    fn drop(&mut self) {
        if let Port::Thread { jobs, thread, .. } = &mut self.port {
            // Without a sender the thread ends after the submitted jobs.
            drop(jobs.take());
            if let Some(thread) = thread.take() {
                // Its panic has been printed already.
                let _ = thread.join();
            }
        }
    }
}
