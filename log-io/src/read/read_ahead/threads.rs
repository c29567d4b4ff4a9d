//! Reads by threads.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use super::CompletedRead;
use super::plan::Plan;
use crate::Buffer;

/// A pool of threads reading in turn.
#[derive(Debug)]
pub(super) struct Threads {
    lanes: Vec<ReadLane>,
}

/// One of n threads, doing every n-th read.
#[derive(Debug)]
struct ReadLane {
    done: Option<Receiver<CompletedRead>>,
    used: Sender<Buffer>,
    thread: Option<JoinHandle<()>>,
}

impl Threads {
    /// Starts to read with `count` threads, each with two buffers.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn begin(plan: &Arc<Plan>, count: usize) -> io::Result<Threads> {
        let mut buffers = plan.buffers(2 * count).into_iter();
        let mut threads = Threads { lanes: Vec::new() };
        for first in 0..count {
            // One finished read is queued while the thread does the next.
            let (finished, done) = sync_channel(1);
            let (used, free) = channel();
            for _ in 0..2 {
                // Can't fail: the receiver exists.
                let _ = used.send(buffers.next().unwrap_or_else(|| Buffer::new(0)));
            }
            let plan = Arc::clone(plan);
            let reading = move || read_every(count, first, &plan, &free, &finished);
            let thread = std::thread::Builder::new().name("counterfoil-read".to_owned()).spawn(reading)?;
            threads.lanes.push(ReadLane { done: Some(done), used, thread: Some(thread) });
        }
        Ok(threads)
    }

    /// Waits for this read.
    ///
    /// The caller takes reads in order, each once.
    pub(super) fn take(&mut self, read: usize) -> CompletedRead {
        let lane = &self.lanes[read % self.lanes.len()];
        let stopped =
            || CompletedRead { buffer: Buffer::new(0), result: Err(io::Error::other("a reading thread stopped")) };
        lane.done.as_ref().and_then(|done| done.recv().ok()).unwrap_or_else(stopped)
    }

    /// Reuses the buffer from a taken read.
    pub(super) fn recycle(&mut self, read: usize, buffer: Buffer) {
        let lane = &self.lanes[read % self.lanes.len()];
        // A thread done with its last read takes no more.
        let _ = lane.used.send(buffer);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        for lane in &mut self.lanes {
            lane.done = None;
        }
        for ReadLane { used, thread, .. } in self.lanes.drain(..) {
            drop(used);
            if let Some(thread) = thread {
                // A panic in the thread was reported as the error of its read.
                let _ = thread.join();
            }
        }
    }
}

/// Does the reads `first`, `first + step`, ... until the last one, or until the receiver is dropped.
fn read_every(step: usize, first: usize, plan: &Plan, free: &Receiver<Buffer>, finished: &SyncSender<CompletedRead>) {
    for number in (first..plan.reads.len()).step_by(step) {
        let Ok(mut buffer) = free.recv() else { return };
        let Some((file, at, len)) = plan.read(number) else { return };
        if buffer.capacity() < len {
            buffer = Buffer::new(len);
        }
        let result = file.read_at(at, &mut buffer.bytes_mut()[..len]);
        buffer.set_len(len);
        if finished.send(CompletedRead { buffer, result }).is_err() {
            return;
        }
    }
}
