//! Reading a list of places in order, some of them ahead.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use crate::{Buffer, PAGE_BYTES, ReadAt};

/// Bytes of the buffers that are allocated before it is known how many of them are needed.
const BUFFERS_BYTES_MAX: usize = 8 << 20;

/// A place in a file.
#[derive(Clone, Debug)]
pub struct Extent {
    /// The file.
    pub file: Arc<dyn ReadAt>,
    /// Where it begins, in bytes.
    pub at: u64,
    /// How long it is, in bytes.
    pub len: usize,
}

/// How much is read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAheadOptions {
    /// Reads in flight: as many threads. At least 1.
    pub threads: usize,
    /// Bytes of a read: neighbouring extents are read together as far as they fit. An extent that is larger alone is read
    /// whole.
    pub read_bytes: usize,
}

impl Default for ReadAheadOptions {
    /// 2 threads, 512 KiB.
    fn default() -> ReadAheadOptions {
        ReadAheadOptions { threads: 2, read_bytes: 512 * 1024 }
    }
}

/// Extents, in their order, while those that come next are being read by threads of its own.
///
/// It holds two buffers for each thread, each of them as large as the longest read; where that is more than 8 MiB together,
/// as the longest that was made with it. Extents
/// and files best begin at pages, and be whole pages: then nothing is copied.
#[derive(Debug)]
pub struct ReadAhead {
    lanes: Vec<ReadLane>,
    /// Number of the read whose buffer is in hand, or of the next one to be asked for.
    read: usize,
    in_hand: Option<Finished>,
    /// Extents that were delivered.
    delivered: usize,
    plan: Arc<Plan>,
}

#[derive(Debug)]
struct Plan {
    extents: Vec<Extent>,
    /// Extents that are read together: neighbours in one file.
    reads: Vec<Range<usize>>,
}

/// One thread, which makes every n-th read.
#[derive(Debug)]
struct ReadLane {
    done: Option<Receiver<Finished>>,
    used: Sender<Buffer>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Finished {
    buffer: Buffer,
    result: io::Result<()>,
}

impl ReadAhead {
    /// Begins to read.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new(extents: Vec<Extent>, options: ReadAheadOptions) -> io::Result<ReadAhead> {
        let reads = join_neighbours(&extents, options.read_bytes);
        let threads = options.threads.clamp(1, reads.len().max(1));
        let longest = reads.iter().map(|read| span(&extents[read.clone()])).max().unwrap_or(0);
        // All of them side by side, unless that is much for reads of which most may be shorter.
        let mut buffers = match longest.saturating_mul(2 * threads) {
            ..=BUFFERS_BYTES_MAX => Buffer::several(2 * threads, longest).into_iter(),
            _ => Vec::new().into_iter(),
        };
        let plan = Arc::new(Plan { extents, reads });
        let mut ahead = ReadAhead { lanes: Vec::new(), read: 0, in_hand: None, delivered: 0, plan: Arc::clone(&plan) };
        for first in 0..threads {
            // One read waits to be taken while the next one is made.
            let (finished, done) = sync_channel(1);
            let (used, free) = channel();
            for _ in 0..2 {
                // The other end is still here.
                let _ = used.send(buffers.next().unwrap_or_else(|| Buffer::new(0)));
            }
            let plan = Arc::clone(&plan);
            let reading = move || read_every(threads, first, &plan, &free, &finished);
            let thread = std::thread::Builder::new().name("counterfoil-read".to_owned()).spawn(reading)?;
            ahead.lanes.push(ReadLane { done: Some(done), used, thread: Some(thread) });
        }
        Ok(ahead)
    }

    /// The next extent: its place in the list that was given, and its bytes or why they can't be read. An extent that
    /// fails, and those that were to be read together with it, doesn't stop the ones behind.
    #[expect(clippy::should_implement_trait, reason = "what it returns borrows from it")]
    pub fn next(&mut self) -> Option<(usize, io::Result<&[u8]>)> {
        let (index, result) = self.turn_to_next()?;
        Some((index, result.and_then(|place| self.in_hand(place))))
    }

    /// As [`next`](Self::next), with the bytes in `into`: without a copy where the extent was read alone.
    pub fn next_into(&mut self, into: &mut Buffer) -> Option<(usize, io::Result<()>)> {
        let (index, result) = self.turn_to_next()?;
        let taken = result.and_then(|place| {
            if self.plan.reads[self.read].len() == 1
                && let Some(Finished { buffer, .. }) = &mut self.in_hand
            {
                // The other one is read into next, where it is large enough.
                std::mem::swap(buffer, into);
                return Ok(());
            }
            let bytes = self.in_hand(place)?;
            if into.capacity() < bytes.len() {
                *into = Buffer::new(bytes.len());
            }
            into.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
            into.set_len(bytes.len());
            Ok(())
        });
        Some((index, taken))
    }

    fn in_hand(&self, place: Range<usize>) -> io::Result<&[u8]> {
        let bytes = self.in_hand.as_ref().and_then(|finished| finished.buffer.as_slice().get(place));
        bytes.ok_or_else(|| io::Error::other("a read is shorter than what it was planned for"))
    }

    /// Goes to the next extent, and to the read that it is in: says where in the buffer in hand it is.
    fn turn_to_next(&mut self) -> Option<(usize, io::Result<Range<usize>>)> {
        let index = self.delivered;
        if index >= self.plan.reads.get(self.read)?.end {
            let lane = self.read % self.lanes.len();
            if let Some(Finished { buffer, .. }) = self.in_hand.take() {
                // A thread that has made its last read takes no more.
                let _ = self.lanes[lane].used.send(buffer);
            }
            self.read += 1;
        }
        let together = self.plan.reads.get(self.read)?.clone();
        if self.in_hand.is_none() {
            let lane = &self.lanes[self.read % self.lanes.len()];
            let stopped =
                || Finished { buffer: Buffer::new(0), result: Err(io::Error::other("a reading thread stopped")) };
            self.in_hand = Some(lane.done.as_ref().and_then(|done| done.recv().ok()).unwrap_or_else(stopped));
        }
        self.delivered += 1;
        let extents = &self.plan.extents;
        Some(match &self.in_hand.as_ref()?.result {
            Ok(()) => {
                let from = (extents[index].at - extents[together.start].at) as usize;
                (index, Ok(from..from + extents[index].len))
            }
            Err(error) => (index, Err(io::Error::new(error.kind(), error.to_string()))),
        })
    }
}

impl Drop for ReadAhead {
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
    for together in plan.reads.iter().skip(first).step_by(step) {
        let Ok(mut buffer) = free.recv() else { return };
        let extents = &plan.extents[together.clone()];
        let Some(front) = extents.first() else { return };
        let len = span(extents);
        if buffer.capacity() < len {
            buffer = Buffer::new(len);
        }
        let result = front.file.read_at(front.at, &mut buffer.bytes_mut()[..len]);
        buffer.set_len(len);
        if finished.send(Finished { buffer, result }).is_err() {
            return;
        }
    }
}

/// Bytes from the first of these neighbours to the end of the last.
fn span(extents: &[Extent]) -> usize {
    let (Some(front), Some(back)) = (extents.first(), extents.last()) else { return 0 };
    (back.at - front.at) as usize + back.len
}

fn join_neighbours(extents: &[Extent], read_bytes: usize) -> Vec<Range<usize>> {
    let mut reads: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for (index, extent) in extents.iter().enumerate() {
        let joins = index > 0 && {
            let before = &extents[index - 1];
            Arc::ptr_eq(&before.file, &extent.file)
                && before.at.checked_add(before.len as u64) == Some(extent.at)
                && extent.len <= read_bytes.saturating_sub(bytes)
                && before.len.is_multiple_of(PAGE_BYTES)
        };
        match reads.last_mut() {
            Some(read) if joins => {
                read.end = index + 1;
                bytes += extent.len;
            }
            _ => {
                reads.push(index..index + 1);
                bytes = extent.len;
            }
        }
    }
    reads
}
