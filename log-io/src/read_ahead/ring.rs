//! Reads made by one io_uring, submitted by whoever takes them.
//!
//! A read in flight owns its buffer, and the plan keeps its file open. A read of which anything but all of its bytes comes
//! back is made again by `read_at` when it is its turn: that waits, goes on where a read was cut short, and says what is
//! wrong as it says it everywhere. What can't be waited for is leaked, never freed under the kernel.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{IoUring, opcode, types};

use super::Finished;
use super::plan::Plan;
use crate::demote::demote;
use crate::ring::enter;
use crate::{Buffer, PAGE_BYTES};

/// Buffers beside those of the reads in flight: what was read last is looked at in one, and another has come back.
const SPARE: usize = 2;

/// A ring, and the reads that it makes.
pub(super) struct Ring {
    ring: IoUring,
    plan: Arc<Plan>,
    /// Reads that were begun and not taken, in their order.
    begun: VecDeque<Begun>,
    /// Number of the first of these: the one that is taken next.
    first: usize,
    free: Vec<Buffer>,
    /// The most reads that are in flight.
    depth: usize,
    in_flight: usize,
    /// Entering failed: nothing is submitted any more.
    is_broken: bool,
}

#[derive(Debug)]
struct Begun {
    buffer: Buffer,
    state: State,
}

/// Whose turn it is to do something about a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The kernel's, which has the buffer.
    InFlight,
    /// Nobody's: all its bytes are there.
    Whole,
    /// Whoever takes it has to read it.
    Unread,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("begun", &self.begun)
            .field("first", &self.first)
            .field("depth", &self.depth)
            .field("is_broken", &self.is_broken)
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// Begins to read with at most `depth` reads in flight. `None`: there is nothing to be read, a file can't be read by a ring,
    /// or the kernel refuses one.
    pub(super) fn begin(plan: &Arc<Plan>, depth: usize) -> Option<Ring> {
        if plan.reads.is_empty() || plan.extents.iter().any(|extent| extent.file.for_ring().is_none()) {
            return None;
        }
        let ring = IoUring::new(u32::try_from(depth).ok()?).ok()?;
        let mut ring = Ring {
            ring,
            plan: Arc::clone(plan),
            begun: VecDeque::new(),
            first: 0,
            free: plan.buffers(depth + SPARE),
            depth,
            in_flight: 0,
            is_broken: false,
        };
        ring.begin_reads();
        if enter(&mut ring.ring, 0).is_err() {
            ring.give_up();
        }
        Some(ring)
    }

    /// Queues reads, as far as there are buffers for them.
    fn begin_reads(&mut self) {
        while self.in_flight < self.depth
            && let Some((file, at, len)) = self.plan.read(self.first + self.begun.len())
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
                let number = (self.first + self.begun.len()) as u64;
                let entry = opcode::Read::new(types::Fd(fd.as_raw_fd()), place, bytes).offset(at).build();
                // SAFETY: `bytes` bytes from `place` on are the buffer's. It goes to `begun` as in flight, where nobody
                // touches it, and leaves that state only when this entry's completion has been seen (`reap`), or else by
                // being leaked (`give_up`, also from `drop`). The plan keeps the file open as long as there is a ring.
                if unsafe { self.ring.submission().push(&entry.user_data(number)) }.is_ok() {
                    state = State::InFlight;
                    self.in_flight += 1;
                }
            }
            self.begun.push_back(Begun { buffer, state });
        }
    }

    /// Takes the completions that are there.
    fn reap(&mut self) {
        while let Some(entry) = { self.ring.completion().next() } {
            let number = entry.user_data() as usize;
            let Some(begun) = number.checked_sub(self.first).and_then(|index| self.begun.get_mut(index)) else {
                continue;
            };
            if begun.state != State::InFlight {
                continue;
            }
            let is_whole = self.plan.read(number).is_some_and(|(_, _, len)| usize::try_from(entry.result()) == Ok(len));
            begun.state = if is_whole { State::Whole } else { State::Unread };
            self.in_flight -= 1;
        }
    }

    /// The ring can't be waited for any more: the kernel may still write to the buffers, so they are leaked.
    fn give_up(&mut self) {
        self.is_broken = true;
        self.in_flight = 0;
        for begun in self.begun.iter_mut().filter(|begun| begun.state == State::InFlight) {
            std::mem::forget(std::mem::replace(&mut begun.buffer, Buffer::new(0)));
            begun.state = State::Unread;
        }
    }

    fn is_first_in_flight(&self) -> bool {
        self.begun.front().is_some_and(|begun| begun.state == State::InFlight)
    }

    /// Waits for the next read, having begun those that come behind it.
    pub(super) fn take(&mut self) -> Finished {
        loop {
            self.reap();
            self.begin_reads();
            let waits = self.is_first_in_flight();
            let has_queued = !self.ring.submission().is_empty();
            if !self.is_broken && (waits || has_queued) && enter(&mut self.ring, usize::from(waits)).is_err() {
                self.give_up();
            }
            if !waits {
                break;
            }
        }
        let unread = || Begun { buffer: Buffer::new(0), state: State::Unread };
        let Begun { mut buffer, state } = self.begun.pop_front().unwrap_or_else(unread);
        let Some((file, at, len)) = self.plan.read(self.first) else {
            return Finished { buffer, result: Err(io::Error::other("there is no read to be taken")) };
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
        Finished { buffer, result }
    }

    /// Gives the buffer of a read that was taken back, to be read into again.
    pub(super) fn give_back(&mut self, buffer: Buffer) {
        // One that was given in exchange and would have to be replaced is not worth it as long as there are others.
        let is_small = self.plan.read(self.first).is_some_and(|(_, _, len)| buffer.capacity() < len);
        if !is_small || self.free.len() + self.begun.len() < self.depth {
            demote(buffer.as_slice());
            self.free.push(buffer);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while !self.is_broken && self.in_flight > 0 {
            if enter(&mut self.ring, 1).is_err() {
                self.give_up();
            }
            self.reap();
        }
    }
}
