//! Reads made by threads, each of which waits for its own.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use super::Finished;
use super::plan::Plan;
use crate::Buffer;

/// Threads that read in turn.
#[derive(Debug)]
pub(super) struct Threads {
    lanes: Vec<ReadLane>,
}

/// One thread, which makes every n-th read.
#[derive(Debug)]
struct ReadLane {
    done: Option<Receiver<Finished>>,
    used: Sender<Buffer>,
    thread: Option<JoinHandle<()>>,
}

impl Threads {
    /// Begins to read with this many threads, each with two buffers.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn begin(plan: &Arc<Plan>, count: usize) -> io::Result<Threads> {
        let mut buffers = plan.buffers(2 * count).into_iter();
        let mut threads = Threads { lanes: Vec::new() };
        for first in 0..count {
            // One read waits to be taken while the next one is made.
            let (finished, done) = sync_channel(1);
            let (used, free) = channel();
            for _ in 0..2 {
                // The other end is still here.
                let _ = used.send(buffers.next().unwrap_or_else(|| Buffer::new(0)));
            }
            let plan = Arc::clone(plan);
            let reading = move || read_every(count, first, &plan, &free, &finished);
            let thread = std::thread::Builder::new().name("counterfoil-read".to_owned()).spawn(reading)?;
            threads.lanes.push(ReadLane { done: Some(done), used, thread: Some(thread) });
        }
        Ok(threads)
    }

    /// Waits for this read. They are taken in order, each once.
    pub(super) fn take(&mut self, read: usize) -> Finished {
        let lane = &self.lanes[read % self.lanes.len()];
        let stopped = || Finished { buffer: Buffer::new(0), result: Err(io::Error::other("a reading thread stopped")) };
        lane.done.as_ref().and_then(|done| done.recv().ok()).unwrap_or_else(stopped)
    }

    /// Gives the buffer of a read that was taken back, to be read into again.
    pub(super) fn give_back(&mut self, read: usize, buffer: Buffer) {
        let lane = &self.lanes[read % self.lanes.len()];
        // A thread that has made its last read takes no more.
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
                // It has nothing to say: what it read is gone.
                let _ = thread.join();
            }
        }
    }
}

/// Makes the reads `first`, `first + step`, ... until there are no more, or nobody wants them.
fn read_every(step: usize, first: usize, plan: &Plan, free: &Receiver<Buffer>, finished: &SyncSender<Finished>) {
    for number in (first..plan.reads.len()).step_by(step) {
        let Ok(mut buffer) = free.recv() else { return };
        let Some((file, at, len)) = plan.read(number) else { return };
        if buffer.capacity() < len {
            buffer = Buffer::new(len);
        }
        let result = file.read_at(at, &mut buffer.bytes_mut()[..len]);
        buffer.set_len(len);
        if finished.send(Finished { buffer, result }).is_err() {
            return;
        }
    }
}
