//! Reading a list of places in order, some of them ahead.

mod plan;
mod ring;
mod threads;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use plan::Plan;
use ring::Ring;
use threads::Threads;

use crate::{BackendKind, Buffer, ReadAt};

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
    /// Reads in flight; where they aren't made by a ring, as many threads. At least 1.
    pub in_flight: usize,
    /// Bytes of a read: neighbouring extents are read together as far as they fit. An extent that is larger alone is read
    /// whole.
    pub read_bytes: usize,
}

impl Default for ReadAheadOptions {
    /// 2 reads of 512 KiB.
    fn default() -> ReadAheadOptions {
        ReadAheadOptions { in_flight: 2, read_bytes: 512 * 1024 }
    }
}

/// Extents, in their order, while those that come next are being read: by an io_uring where all the files have a descriptor
/// for one ([`ReadAt::for_ring`]) and the kernel makes one, otherwise by threads of its own.
///
/// It holds a buffer for each read in flight and two more, with threads two for each read in flight; each is as large as the
/// longest read, or where that is more than 8 MiB together, as the longest that was made with it. Extents and files best
/// begin at pages, and be whole pages: then nothing is copied, and a ring can read them.
#[derive(Debug)]
pub struct ReadAhead {
    way: Way,
    /// Number of the read whose buffer is in hand, or of the next one to be asked for.
    read: usize,
    in_hand: Option<Finished>,
    /// Extents that were delivered.
    delivered: usize,
    plan: Arc<Plan>,
}

/// Who makes the reads. They are taken in order, each once.
#[derive(Debug)]
enum Way {
    Ring(Box<Ring>),
    Threads(Threads),
}

#[derive(Debug)]
struct Finished {
    buffer: Buffer,
    result: io::Result<()>,
}

impl Way {
    fn take(&mut self, read: usize) -> Finished {
        match self {
            Way::Ring(ring) => ring.take(),
            Way::Threads(threads) => threads.take(read),
        }
    }

    fn give_back(&mut self, read: usize, buffer: Buffer) {
        match self {
            Way::Ring(ring) => ring.give_back(buffer),
            Way::Threads(threads) => threads.give_back(read, buffer),
        }
    }
}

impl ReadAhead {
    /// Begins to read.
    ///
    /// # Errors
    /// There is no ring, and no thread can be started.
    pub fn new(extents: Vec<Extent>, options: ReadAheadOptions) -> io::Result<ReadAhead> {
        let plan = Arc::new(Plan::new(extents, options.read_bytes));
        let in_flight = options.in_flight.clamp(1, plan.reads.len().max(1));
        let way = match Ring::begin(&plan, in_flight) {
            Some(ring) => Way::Ring(Box::new(ring)),
            None => Way::Threads(Threads::begin(&plan, in_flight)?),
        };
        Ok(ReadAhead { way, read: 0, in_hand: None, delivered: 0, plan })
    }

    /// How the files are read: [`BackendKind::IoUring`], or [`BackendKind::Pwrite`] for threads that wait for each read.
    pub fn kind(&self) -> BackendKind {
        match self.way {
            Way::Ring(_) => BackendKind::IoUring,
            Way::Threads(_) => BackendKind::Pwrite,
        }
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
            if let Some(Finished { buffer, .. }) = self.in_hand.take() {
                self.way.give_back(self.read, buffer);
            }
            self.read += 1;
        }
        let together = self.plan.reads.get(self.read)?.clone();
        let way = &mut self.way;
        let in_hand = self.in_hand.get_or_insert_with(|| way.take(self.read));
        self.delivered += 1;
        let extents = &self.plan.extents;
        Some(match &in_hand.result {
            Ok(()) => {
                let from = (extents[index].at - extents[together.start].at) as usize;
                (index, Ok(from..from + extents[index].len))
            }
            Err(error) => (index, Err(io::Error::new(error.kind(), error.to_string()))),
        })
    }
}
