//! Reading a list of extents in order, with read-ahead.

mod plan;
#[cfg_attr(not(feature = "io-uring"), path = "read_ahead/no_ring.rs")]
mod ring;
mod threads;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use plan::Plan;
use ring::Ring;
use threads::Threads;

use crate::{BackendKind, Buffer, ReadAt};

/// A file range.
#[derive(Clone, Debug)]
pub struct Extent {
    /// The file.
    pub file: Arc<dyn ReadAt>,
    /// Offset in bytes.
    pub at: u64,
    /// Length in bytes.
    pub len: usize,
}

/// Read-ahead limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAheadOptions {
    /// Reads in flight; without a ring, the number of threads.
    ///
    /// At least 1.
    pub in_flight: usize,
    /// Maximum size of a read for several adjacent extents, in bytes.
    ///
    /// A larger extent is read alone, as a whole.
    pub read_bytes: usize,
}

impl Default for ReadAheadOptions {
    /// Returns 2 reads of 512 KiB.
    fn default() -> ReadAheadOptions {
        ReadAheadOptions { in_flight: 2, read_bytes: 512 * 1024 }
    }
}

/// Reads extents in order, and the following ones ahead: with an io_uring if all files have a descriptor for one
/// ([`ReadAt::for_ring`]) and the kernel permits it, otherwise with threads.
///
/// A ring has two buffers more than reads in flight; threads have two each. A buffer is as large as the longest read
/// or, if all buffers together would exceed 8 MiB, as the longest read using it so far. Extents should be whole pages
/// at page offsets: then nothing is copied, and a ring can read them.
#[derive(Debug)]
pub struct ReadAhead {
    engine: Engine,
    /// Number of the current read, or of the next one.
    read: usize,
    current: Option<CompletedRead>,
    /// Number of extents delivered.
    delivered: usize,
    plan: Arc<Plan>,
}

/// The read engine.
///
/// Its reads are taken in order, each once.
#[derive(Debug)]
enum Engine {
    Ring(Box<Ring>),
    Threads(Threads),
}

#[derive(Debug)]
struct CompletedRead {
    buffer: Buffer,
    result: io::Result<()>,
}

impl Engine {
    fn take(&mut self, read: usize) -> CompletedRead {
        match self {
            Engine::Ring(ring) => ring.take(),
            Engine::Threads(threads) => threads.take(read),
        }
    }

    fn recycle(&mut self, read: usize, buffer: Buffer) {
        match self {
            Engine::Ring(ring) => ring.recycle(buffer),
            Engine::Threads(threads) => threads.recycle(read, buffer),
        }
    }
}

impl ReadAhead {
    /// Starts to read.
    ///
    /// # Errors
    /// There is no ring, and no thread can be started.
    pub fn new(extents: Vec<Extent>, options: ReadAheadOptions) -> io::Result<ReadAhead> {
        let plan = Arc::new(Plan::new(extents, options.read_bytes));
        let in_flight = options.in_flight.clamp(1, plan.reads.len().max(1));
        let engine = match Ring::begin(&plan, in_flight) {
            Some(ring) => Engine::Ring(Box::new(ring)),
            None => Engine::Threads(Threads::begin(&plan, in_flight)?),
        };
        Ok(ReadAhead { engine, read: 0, current: None, delivered: 0, plan })
    }

    /// Returns [`BackendKind::IoUring`] for reads by a ring, [`BackendKind::Pwrite`] for reads by threads.
    pub fn kind(&self) -> BackendKind {
        match self.engine {
            Engine::Ring(_) => BackendKind::IoUring,
            Engine::Threads(_) => BackendKind::Pwrite,
        }
    }

    /// Returns the next extent: its index in the list, and its bytes or the error.
    ///
    /// Extents after a failed read are still delivered; the failed read may have covered several.
    #[expect(clippy::should_implement_trait, reason = "the result borrows from `self`")]
    pub fn next(&mut self) -> Option<(usize, io::Result<&[u8]>)> {
        let (index, result) = self.advance()?;
        Some((index, result.and_then(|place| self.current_bytes(place))))
    }

    /// Returns the next extent as [`next`](Self::next) does, with its bytes in `into`: without a copy if it was read
    /// alone.
    pub fn next_into(&mut self, into: &mut Buffer) -> Option<(usize, io::Result<()>)> {
        let (index, result) = self.advance()?;
        let taken = result.and_then(|place| {
            if self.plan.reads[self.read].len() == 1
                && let Some(CompletedRead { buffer, .. }) = &mut self.current
            {
                // The other buffer is reused for a read, if it is large enough.
                std::mem::swap(buffer, into);
                return Ok(());
            }
            let bytes = self.current_bytes(place)?;
            if into.capacity() < bytes.len() {
                *into = Buffer::new(bytes.len());
            }
            into.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
            into.set_len(bytes.len());
            Ok(())
        });
        Some((index, taken))
    }

    fn current_bytes(&self, place: Range<usize>) -> io::Result<&[u8]> {
        let bytes = self.current.as_ref().and_then(|finished| finished.buffer.as_slice().get(place));
        bytes.ok_or_else(|| io::Error::other("a read is shorter than what it was planned for"))
    }

    /// Advances to the next extent, and to its read.
    ///
    /// Returns the extent's index and its range in the current buffer.
    fn advance(&mut self) -> Option<(usize, io::Result<Range<usize>>)> {
        let index = self.delivered;
        if index >= self.plan.reads.get(self.read)?.end {
            if let Some(CompletedRead { buffer, .. }) = self.current.take() {
                self.engine.recycle(self.read, buffer);
            }
            self.read += 1;
        }
        let together = self.plan.reads.get(self.read)?.clone();
        let engine = &mut self.engine;
        let current = self.current.get_or_insert_with(|| engine.take(self.read));
        self.delivered += 1;
        let extents = &self.plan.extents;
        Some(match &current.result {
            Ok(()) => {
                let from = (extents[index].at - extents[together.start].at) as usize;
                (index, Ok(from..from + extents[index].len))
            }
            Err(error) => (index, Err(io::Error::new(error.kind(), error.to_string()))),
        })
    }
}
