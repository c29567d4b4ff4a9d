//! The store's own thread: it writes what leaves memory, and checkpoints.
//!
//! The log's thread opens cursors on what is to be written and sends them over; the cursors' pins keep the memory until it
//! is written. Checksums, compression and system calls are this thread's; the log's thread waits for it only where a
//! caller asks for something that is durable when it returns. Under simulation there is no thread: jobs are done at once.

mod reply;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use counterfoil_log_core::{Cursor, Epoch, Rank, Run, Ssn};
use counterfoil_log_io::{Block, DiskUsage, LocalImage, Store, StoreError, StoreReader};

use crate::disk_index::DiskIndex;
pub(crate) use reply::Reply;
use reply::{Debt, reply};
use worker::Worker;

/// What cursors need of the store.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) index: DiskIndex,
    pub(crate) reader: StoreReader,
    /// How the files are reached, for people.
    pub(crate) backend: String,
    usage: Mutex<DiskUsage>,
}

impl Disk {
    pub(crate) fn usage(&self) -> DiskUsage {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Records of a lane to be written: all that are kept above `after` and up to `upto`.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) lane: Rank,
    /// Everything up to here was sent before.
    pub(crate) after: Ssn,
    /// Stands on the first of them.
    pub(crate) cursor: Cursor,
    pub(crate) upto: Ssn,
}

/// A lane as it is when a checkpoint begins.
#[derive(Debug)]
pub(crate) struct LaneState {
    pub(crate) peer: Rank,
    pub(crate) next: Ssn,
    pub(crate) acked: Ssn,
    pub(crate) runs: Vec<Run>,
}

/// What a checkpoint is made of, beside what is on disk already.
#[derive(Debug)]
pub(crate) struct CheckpointJob {
    pub(crate) epoch: Epoch,
    pub(crate) writes: Vec<Write>,
    pub(crate) lanes: Vec<LaneState>,
    pub(crate) local: Vec<LocalImage>,
    pub(crate) tables: Vec<(String, Vec<u8>)>,
    pub(crate) application: Vec<u8>,
}

enum Job {
    Write(Write),
    Checkpoint(Box<CheckpointJob>, Debt),
    Local(Vec<LocalImage>, Debt),
    Discard(Epoch, Debt),
    Free(Vec<Block>),
    /// Everything sent before is done when this is answered.
    Drain(Debt),
}

/// What became of a [`Write`].
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) lane: Rank,
    pub(crate) upto: Ssn,
    pub(crate) result: Result<(), Arc<StoreError>>,
}

/// The way to the store.
#[derive(Debug)]
pub(crate) struct Spiller {
    pub(crate) disk: Arc<Disk>,
    port: Port,
    /// Writes that were sent and not reported.
    in_flight: usize,
    /// The thread has ended, by a panic: nothing is written any more.
    is_gone: bool,
}

#[derive(Debug)]
enum Port {
    Thread { jobs: Option<Sender<Job>>, written: Receiver<Written>, thread: Option<JoinHandle<()>> },
    Inline { worker: Box<Worker>, written: VecDeque<Written> },
}

impl Spiller {
    /// Over a store that is reached as `backend` says, on a thread of its own, or on the caller's.
    ///
    /// # Errors
    /// The system has no thread.
    pub(crate) fn new(store: Store, index: DiskIndex, backend: String, own_thread: bool) -> std::io::Result<Spiller> {
        let disk = Arc::new(Disk { index, reader: store.reader(), backend, usage: Mutex::new(store.usage()) });
        let mut worker = Box::new(Worker::new(store, disk.clone()));
        if !own_thread {
            let port = Port::Inline { worker, written: VecDeque::new() };
            return Ok(Spiller { disk, port, in_flight: 0, is_gone: false });
        }
        let (jobs, to_do) = channel();
        let (report, written) = channel();
        let thread = std::thread::Builder::new()
            .name("counterfoil-spill".to_owned())
            .spawn(move || worker.serve(&to_do, &report))?;
        let port = Port::Thread { jobs: Some(jobs), written, thread: Some(thread) };
        Ok(Spiller { disk, port, in_flight: 0, is_gone: false })
    }

    /// Writes that were sent and not yet reported.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether the store's thread has ended: it panicked.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Sends records to be written. [`poll`](Self::poll) reports it.
    pub(crate) fn write(&mut self, write: Write) {
        self.in_flight += 1;
        self.send(Job::Write(write));
    }

    /// Sends a checkpoint; its writes are reported, too.
    pub(crate) fn checkpoint(&mut self, job: CheckpointJob) -> Reply {
        self.in_flight += job.writes.len();
        let (debt, reply) = reply();
        self.send(Job::Checkpoint(Box::new(job), debt));
        reply
    }

    /// Makes entries of the local log durable.
    pub(crate) fn local(&mut self, entries: Vec<LocalImage>) -> Reply {
        let (debt, reply) = reply();
        self.send(Job::Local(entries, debt));
        reply
    }

    /// Durably forgets the checkpoints beyond `epoch`.
    pub(crate) fn discard_beyond(&mut self, epoch: Epoch) -> Reply {
        let (debt, reply) = reply();
        self.send(Job::Discard(epoch, debt));
        reply
    }

    /// Blocks that the index doesn't have any more.
    pub(crate) fn free(&mut self, blocks: Vec<Block>) {
        if !blocks.is_empty() {
            self.send(Job::Free(blocks));
        }
    }

    /// Waits until everything that was sent is done.
    pub(crate) fn drain(&mut self) {
        let (debt, reply) = reply();
        self.send(Job::Drain(debt));
        // An error was reported with what caused it.
        let _ = reply.wait();
    }

    /// The next report, if there is one.
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
        written
    }

    /// Waits for the next report; `None` where none is to come.
    pub(crate) fn wait(&mut self) -> Option<Written> {
        if self.in_flight == 0 {
            return None;
        }
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

    fn send(&mut self, job: Job) {
        match &mut self.port {
            Port::Inline { worker, written } => {
                let report = &mut |report| written.push_back(report);
                worker.run(job, report);
                worker.report(report);
            }
            Port::Thread { jobs, .. } => {
                // Where the thread is gone, who waits for the job's answer is told so when the job is dropped.
                self.is_gone |= jobs.as_ref().is_none_or(|jobs| jobs.send(job).is_err());
            }
        }
    }
}

impl Drop for Spiller {
    fn drop(&mut self) {
        if let Port::Thread { jobs, thread, .. } = &mut self.port {
            // Without a sender the thread ends when it has done what was sent.
            drop(jobs.take());
            if let Some(thread) = thread.take() {
                // Its panic was printed where it happened.
                let _ = thread.join();
            }
        }
    }
}
