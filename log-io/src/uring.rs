//! Writes by io_uring: several in flight, from registered buffers.
//!
//! A write in flight owns its buffer and keeps its file open. It is over when its completion has been seen, and done when
//! the completions add up to its full length; the ring's own failures change nothing about that. What can't be waited for
//! at the end is leaked, never freed under the kernel.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;

use crate::files::{OpenFile, Writer};
use crate::gathered::{Gathered, Places, heads_max};
use crate::ring::{REFUSALS, enter};
use crate::transfer::{PAUSE, Progress, Step};
use crate::{BackendKind, Buffer, PAGE_BYTES};

/// Marks the completion of a sync; the other bits count them, so that one that nobody waits for any more is told apart.
const SYNC: u64 = 1 << 63;

/// A ring, its buffers, and what is in flight. Any thread may use it, one at a time.
pub(crate) struct Uring {
    ring: IoUring,
    /// Writes in flight; the index is what their completions are known by.
    transfers: Vec<Option<Transfer>>,
    in_flight: usize,
    free: Vec<Buffer>,
    buffer_bytes: usize,
    /// Pages for the fronts of chunks; how many there are, and how many of these are in flight.
    heads: Vec<Buffer>,
    heads_max: usize,
    heads_in_flight: usize,
    /// The address of each registered buffer, by its slot; only to be compared.
    registered: Vec<usize>,
    /// The first failure of a write since the last flush.
    failed: Option<io::Error>,
    /// Number of the last sync, and the answer to it.
    sync: u64,
    synced: Option<Result<usize, Errno>>,
}

struct Transfer {
    file: Arc<OpenFile>,
    at: u64,
    what: Gathered,
    /// Where what is left of it lies, where that isn't only a buffer.
    places: Places,
    progress: Progress,
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring")
            .field("in_flight", &self.in_flight)
            .field("writes_max", &self.transfers.len())
            .field("buffer_bytes", &self.buffer_bytes)
            .field("registered", &self.registered.len())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Uring {
    /// A ring with room for `buffers` writes in flight, each of up to `buffer_bytes`. As many of the buffers are
    /// registered as the limit of locked memory allows: half as many, again and again, and then none.
    ///
    /// # Errors
    /// The kernel has no io_uring, or refuses it.
    pub(crate) fn new(buffers: usize, buffer_bytes: usize) -> io::Result<Uring> {
        let heads_max = heads_max(buffer_bytes);
        let writes = buffers + heads_max;
        // One more for a sync beside all the writes. The completion queue has twice that.
        let ring = IoUring::new(writes as u32 + 1)?;
        let mut free = Buffer::several(buffers, buffer_bytes);
        let mut count = buffers;
        while count > 0 {
            let pages = |buffer: &mut Buffer| {
                let bytes = buffer.bytes_mut();
                libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
            };
            let places: Vec<libc::iovec> = free[..count].iter_mut().map(pages).collect();
            // SAFETY: the places are memory that we own. The kernel pins its pages, so that they stay what they are, and
            // ours alone, until the ring is gone, even where a buffer is dropped before it; it writes nothing to them.
            match unsafe { ring.submitter().register_buffers(&places) } {
                Ok(()) => break,
                Err(_) => count /= 2,
            }
        }
        let registered: Vec<usize> =
            free[..count].iter_mut().map(|buffer| buffer.bytes_mut().as_ptr().addr()).collect();
        let numbered = free.drain(..).enumerate().map(|(slot, buffer)| match slot < count {
            true => buffer.with_slot(slot as u16),
            false => buffer,
        });
        // Taken from the end: the registered ones first.
        let mut free: Vec<Buffer> = numbered.collect();
        free.reverse();
        Ok(Uring {
            ring,
            transfers: (0..writes).map(|_| None).collect(),
            in_flight: 0,
            free,
            buffer_bytes,
            heads: Buffer::several(heads_max, PAGE_BYTES),
            heads_max,
            heads_in_flight: 0,
            registered,
            failed: None,
            sync: 0,
            synced: None,
        })
    }

    /// How many of the buffers are registered.
    pub(crate) fn registered(&self) -> usize {
        self.registered.len()
    }

    /// Queues what is left of a write.
    fn push_write(&mut self, index: usize) -> io::Result<()> {
        let Some(Transfer { file, at, what, places, progress }) = &mut self.transfers[index] else { return Ok(()) };
        let fd = types::Fd(file.as_fd().as_raw_fd());
        let (done, at) = (progress.done(), *at + progress.done() as u64);
        let entry = match what.alone() {
            Some(buffer) => {
                let rest = &buffer.as_slice()[done..];
                let (place, len) = (rest.as_ptr(), rest.len() as u32);
                // A buffer from elsewhere may have a number of its own: only at its registered place is it the registered one.
                let start = buffer.as_slice().as_ptr().addr();
                match buffer.slot().filter(|slot| self.registered.get(usize::from(*slot)) == Some(&start)) {
                    Some(slot) => opcode::WriteFixed::new(fd, place, len, slot).offset(at).build(),
                    None => opcode::Write::new(fd, place, len).offset(at).build(),
                }
            }
            None => {
                *places = what.places(done);
                opcode::Writev::new(fd, places.as_ptr(), places.count()).offset(at).build()
            }
        };
        self.push(&entry.user_data(index as u64))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the bytes and the descriptor of a write, and the list of places where it has one, belong to its transfer,
        // which is only let go when the completion of this entry has been seen (`complete`), or is leaked (`drop`); the
        // list is made anew only then, too. What the log's writer changes in the header of a chunk meanwhile is written as
        // it was or as it is: no reader trusts it. A sync has a descriptor only, which
        // the kernel holds a reference to from the submission on, before which `sync` doesn't let go of the file; where
        // it fails to submit the entry, the number means another file or none when it is submitted later: a sync too many.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.map_err(|_| io::Error::other("io_uring: the submission queue is full"))
    }

    /// Takes the completions that are there.
    fn reap(&mut self) {
        while let Some(entry) = { self.ring.completion().next() } {
            let answer = match entry.result() {
                written @ 0.. => Ok(written as usize),
                errno => Err(Errno::from_raw_os_error(-errno)),
            };
            if entry.user_data() & SYNC == 0 {
                self.complete(entry.user_data() as usize, answer);
            } else if entry.user_data() == SYNC | self.sync {
                self.synced = Some(answer);
            }
        }
    }

    /// A write's request is over: is the write?
    fn complete(&mut self, index: usize, answer: Result<usize, Errno>) {
        let Some(Some(transfer)) = self.transfers.get_mut(index) else { return };
        let error = match transfer.progress.advance(answer) {
            Step::Done => None,
            Step::Failed(error) => Some(error),
            Step::Again { progressed } => {
                if !progressed {
                    std::thread::sleep(PAUSE);
                }
                match self.push_write(index) {
                    Ok(()) => return,
                    Err(error) => Some(error),
                }
            }
        };
        // Neither the kernel nor the queue has anything of it any more.
        let Some(Transfer { file, at, what, .. }) = self.transfers[index].take() else { return };
        self.in_flight -= 1;
        if let Some(error) = error {
            self.failed.get_or_insert_with(|| file.write_error(at, what.len(), &error));
        }
        let is_head = what.alone().is_none();
        self.heads_in_flight -= usize::from(is_head);
        let mut buffer = what.into_buffer();
        buffer.set_len(0);
        if is_head && self.heads.len() < self.heads_max && buffer.capacity() == PAGE_BYTES {
            self.heads.push(buffer);
        } else if self.free.len() < self.transfers.len() - self.heads_max && buffer.capacity() == self.buffer_bytes {
            self.free.push(buffer);
        }
    }

    /// Waits for at least one completion.
    fn wait(&mut self) -> io::Result<()> {
        let entered = enter(&mut self.ring, 1);
        self.reap();
        entered
    }

    /// Waits until nothing is in flight that `concerns` says yes to.
    fn wait_while(&mut self, concerns: impl Fn(&Transfer) -> bool) -> io::Result<()> {
        while self.transfers.iter().flatten().any(&concerns) {
            self.wait()?;
        }
        Ok(())
    }
}

impl Writer for Uring {
    fn kind(&self) -> BackendKind {
        BackendKind::IoUring
    }

    fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    fn buffer(&mut self) -> io::Result<Buffer> {
        loop {
            self.reap();
            if let Some(buffer) = self.free.pop() {
                return Ok(buffer);
            }
            if self.in_flight == 0 {
                // The caller has them all, or has dropped some.
                return Ok(Buffer::new(self.buffer_bytes));
            }
            self.wait()?;
        }
    }

    fn head(&mut self) -> io::Result<Buffer> {
        loop {
            self.reap();
            match self.heads.pop() {
                Some(head) => return Ok(head),
                // As in `buffer`.
                None if self.heads_in_flight == 0 => return Ok(Buffer::new(PAGE_BYTES)),
                None => self.wait()?,
            }
        }
    }

    fn begin(&mut self, file: &Arc<OpenFile>, at: u64, what: Gathered) -> io::Result<()> {
        let index = loop {
            match self.transfers.iter().position(Option::is_none) {
                Some(index) => break index,
                None => self.wait()?,
            }
        };
        let progress = Progress::new(what.len());
        let is_head = what.alone().is_none();
        let places = Places::default();
        self.transfers[index] = Some(Transfer { file: Arc::clone(file), at, what, places, progress });
        if let Err(error) = self.push_write(index) {
            // It was never the kernel's.
            self.transfers[index] = None;
            return Err(error);
        }
        self.in_flight += 1;
        self.heads_in_flight += usize::from(is_head);
        enter(&mut self.ring, 0)
    }

    fn settle(&mut self, file: &Arc<OpenFile>) -> io::Result<()> {
        self.wait_while(|transfer| Arc::ptr_eq(&transfer.file, file))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wait_while(|_| true)?;
        self.failed.take().map_or(Ok(()), Err)
    }

    fn sync(&mut self, file: &Arc<OpenFile>) -> io::Result<()> {
        let mut refusals = 0;
        loop {
            self.sync = (self.sync + 1) & !SYNC;
            self.synced = None;
            let fd = types::Fd(file.as_fd().as_raw_fd());
            let entry = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build();
            self.push(&entry.user_data(SYNC | self.sync))?;
            let answer = loop {
                self.wait()?;
                if let Some(answer) = self.synced.take() {
                    break answer;
                }
            };
            match answer {
                Ok(_) => return Ok(()),
                // It wasn't begun. Any other failure is final: a second sync may succeed though the bytes are lost.
                Err(Errno::INTR | Errno::AGAIN) if refusals < REFUSALS => {
                    refusals += 1;
                    std::thread::sleep(PAUSE);
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.wait_while(|_| true).is_err() {
            // The kernel may read them still.
            self.transfers.drain(..).for_each(std::mem::forget);
        }
    }
}
