//! Reads through one io_uring, submitted by the thread that takes them.
//!
//! A read in flight owns its buffer, and the plan keeps its file open. A failed or short read is repeated with
//! `read_at` when it is taken: this blocks, continues a short read, and returns the same errors as everywhere. A buffer
//! is leaked if its read can't be awaited, never freed while the kernel may use it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{IoUring, opcode, types};

use super::CompletedRead;
use super::plan::Plan;
use crate::backend::ring::enter;
use crate::read::demote::demote;
use crate::{Buffer, PAGE_BYTES};

/// Buffers in addition to those in flight: one is with the caller, and one is complete.
const SPARE: usize = 2;

/// A ring and its reads.
pub(super) struct Ring {
    ring: IoUring,
    plan: Arc<Plan>,
    /// Reads started and not taken, in order.
    started: VecDeque<StartedRead>,
    /// Number of the first one, taken next.
    first: usize,
    free: Vec<Buffer>,
    /// Maximum reads in flight.
    depth: usize,
    in_flight: usize,
    /// Entering the kernel failed: nothing more is submitted.
    is_broken: bool,
}

#[derive(Debug)]
struct StartedRead {
    buffer: Buffer,
    state: State,
}

/// State of a started read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The kernel owns the buffer.
    InFlight,
    /// All bytes are read.
    Complete,
    /// To be read by the caller taking it.
    Unread,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("started", &self.started)
            .field("first", &self.first)
            .field("depth", &self.depth)
            .field("is_broken", &self.is_broken)
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// Starts to read with at most `depth` reads in flight.
    ///
    /// `None` if there is nothing to read, a file can't be read by a ring, or the kernel refuses one.
    pub(super) fn begin(plan: &Arc<Plan>, depth: usize) -> Option<Ring> {
        if plan.reads.is_empty() || plan.extents.iter().any(|extent| extent.file.for_ring().is_none()) {
            return None;
        }
        let ring = IoUring::new(u32::try_from(depth).ok()?).ok()?;
        let mut ring = Ring {
            ring,
            plan: Arc::clone(plan),
            started: VecDeque::new(),
            first: 0,
            free: plan.buffers(depth + SPARE),
            depth,
            in_flight: 0,
            is_broken: false,
        };
        ring.queue_reads();
        if enter(&mut ring.ring, 0).is_err() {
            ring.abandon();
        }
        Some(ring)
    }

    /// Queues reads as long as there are buffers.
    fn queue_reads(&mut self) {
        while self.in_flight < self.depth
            && let Some((file, at, len)) = self.plan.read(self.first + self.started.len())
            && let Some(mut buffer) = self.free.pop()
        {
            if buffer.capacity() < len {
                buffer = Buffer::new(len);
            }
            let pages = at.is_multiple_of(PAGE_BYTES as u64) && len.is_multiple_of(PAGE_BYTES) && len > 0;
            let mut state = State::Unread;
            if pages
                && !self.is_broken
                && let Some(fd) = file.for_ring()
                && let Ok(bytes) = u32::try_from(len)
            {
                let place = buffer.bytes_mut()[..len].as_mut_ptr();
                let number = (self.first + self.started.len()) as u64;
                let entry = opcode::Read::new(types::Fd(fd.as_raw_fd()), place, bytes).offset(at).build();
                // SAFETY: `bytes` bytes from `place` on belong to the buffer. It goes to `started` as in flight, where
                // nothing touches it, and leaves this state only after this entry's completion was seen (`reap`) or by
                // being leaked (`abandon`, also from `drop`). The plan keeps the file open while the ring exists.
                if unsafe { self.ring.submission().push(&entry.user_data(number)) }.is_ok() {
                    state = State::InFlight;
                    self.in_flight += 1;
                }
            }
            self.started.push_back(StartedRead { buffer, state });
        }
    }

    /// Takes the available completions.
    fn reap(&mut self) {
        while let Some(entry) = { self.ring.completion().next() } {
            let number = entry.user_data() as usize;
            let Some(started) = number.checked_sub(self.first).and_then(|index| self.started.get_mut(index)) else {
                continue;
            };
            if started.state != State::InFlight {
                continue;
            }
            let is_whole = self.plan.read(number).is_some_and(|(_, _, len)| usize::try_from(entry.result()) == Ok(len));
            started.state = if is_whole { State::Complete } else { State::Unread };
            self.in_flight -= 1;
        }
    }

    /// Abandons the ring after it failed.
    ///
    /// Leaks the buffers in flight, because the kernel may still write to them.
    fn abandon(&mut self) {
        self.is_broken = true;
        self.in_flight = 0;
        for started in self.started.iter_mut().filter(|started| started.state == State::InFlight) {
            std::mem::forget(std::mem::replace(&mut started.buffer, Buffer::new(0)));
            started.state = State::Unread;
        }
    }

    fn is_first_in_flight(&self) -> bool {
        self.started.front().is_some_and(|started| started.state == State::InFlight)
    }

    /// Queues further reads, and waits for the next one.
    pub(super) fn take(&mut self) -> CompletedRead {
        loop {
            self.reap();
            self.queue_reads();
            let waits = self.is_first_in_flight();
            let has_queued = !self.ring.submission().is_empty();
            if !self.is_broken && (waits || has_queued) && enter(&mut self.ring, usize::from(waits)).is_err() {
                self.abandon();
            }
            if !waits {
                break;
            }
        }
        let unread = || StartedRead { buffer: Buffer::new(0), state: State::Unread };
        let StartedRead { mut buffer, state } = self.started.pop_front().unwrap_or_else(unread);
        let Some((file, at, len)) = self.plan.read(self.first) else {
            return CompletedRead { buffer, result: Err(io::Error::other("there is no read to be taken")) };
        };
        self.first += 1;
        let mut result = Ok(());
        if state == State::Unread {
            if buffer.capacity() < len {
                buffer = Buffer::new(len);
            }
            result = file.read_at(at, &mut buffer.bytes_mut()[..len]);
        }
        buffer.set_len(len);
        CompletedRead { buffer, result }
    }

    /// Reuses the buffer from a taken read.
    pub(super) fn recycle(&mut self, buffer: Buffer) {
        demote(buffer.as_slice());
        self.free.push(buffer);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while !self.is_broken && self.in_flight > 0 {
            if enter(&mut self.ring, 1).is_err() {
                self.abandon();
            }
            self.reap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::file_reader::FileReader;
    use crate::read::read_ahead::Extent;

    /// Plans one-page reads from a file with `pages` pages, page n filled with the byte n.
    fn plan(pages: usize) -> Arc<Plan> {
        let file = tempfile::tempfile().expect("a file");
        let bytes: Vec<u8> = (0..pages).flat_map(|page| [page as u8; PAGE_BYTES]).collect();
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).expect("a written file");
        let file: Arc<dyn crate::ReadAt> = Arc::new(FileReader::new(file.into(), true).expect("a reader"));
        let extent = |page| Extent { file: Arc::clone(&file), at: (page * PAGE_BYTES) as u64, len: PAGE_BYTES };
        Arc::new(Plan::new((0..pages).map(extent).collect(), PAGE_BYTES))
    }

    #[test]
    fn as_many_reads_are_in_flight_as_permitted_and_two_buffers_are_left() {
        for depth in [1, 3, 4] {
            let mut ring = Ring::begin(&plan(20), depth).expect("io_uring");
            assert_eq!((ring.in_flight, ring.started.len(), ring.free.len()), (depth, depth, 2));
            let text = format!("{ring:?}");
            assert!(text.contains(&format!("depth: {depth}")) && text.contains("is_broken: false"), "{text}");
            for page in 0..20 {
                let CompletedRead { buffer, result } = ring.take();
                result.expect("a read");
                assert_eq!(buffer.as_slice(), [page; PAGE_BYTES]);
                assert!(ring.in_flight <= depth && ring.started.len() <= depth + 1);
                ring.recycle(buffer);
            }
            assert_eq!((ring.in_flight, ring.free.len()), (0, depth + 2), "buffers are used again");
            assert!(ring.take().result.is_err());
        }
        assert!(Ring::begin(&plan(0), 1).is_none());
    }

    #[test]
    fn reads_after_the_ring_failed_are_done_by_the_caller() {
        let mut ring = Ring::begin(&plan(9), 3).expect("io_uring");
        for page in 0..9 {
            if page == 2 {
                // The completed reads before are kept.
                while ring.in_flight > 0 {
                    enter(&mut ring.ring, 1).expect("completions");
                    ring.reap();
                }
                ring.abandon();
            }
            let CompletedRead { buffer, result } = ring.take();
            result.expect("a read");
            assert_eq!(buffer.as_slice(), [page; PAGE_BYTES]);
            assert!(page < 2 || ring.in_flight == 0);
            ring.recycle(buffer);
        }
    }
}
