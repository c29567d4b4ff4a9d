//! The io_uring backend: several writes in flight, from registered buffers.
//!
//! A write in flight owns its buffer and keeps its file open. A request ends with its completion; the write is done
//! when the completions add up to its full length. Failures of the ring itself don't change this. A write that can't be
//! awaited at the end is leaked, never freed while the kernel may use its memory.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;

use crate::backend::buffer_pool::BufferPool;
use crate::backend::files::{OpenFile, Writer};
use crate::backend::ring::{Refusals, enter};
use crate::backend::transfer::{PAUSE, Progress, Step};
use crate::backend::vectored_write::{IoVecs, VectoredWrite, chunk_writes_max};
use crate::{BackendKind, Buffer, PAGE_BYTES};

/// Marks a sync completion; the other bits are the sync's number, to ignore an abandoned one.
const SYNC: u64 = 1 << 63;

/// A ring with its buffers and the writes in flight.
///
/// Any thread may use it, one at a time.
pub(crate) struct Uring {
    ring: IoUring,
    /// Writes in flight, by the index carried in their completions.
    transfers: Vec<Option<Transfer>>,
    buffers: BufferPool,
    /// Header pages for chunk writes.
    header_buffers: BufferPool,
    /// Addresses of registered buffers, by slot; only for comparison.
    registered: Vec<usize>,
    /// The first write failure since the last flush.
    failed: Option<io::Error>,
    /// Number of the last sync, and its result.
    sync: u64,
    synced: Option<Result<usize, Errno>>,
}

struct Transfer {
    file: Arc<OpenFile>,
    at: u64,
    data: VectoredWrite,
    /// The ranges left to write, for a write with chunks.
    iovecs: IoVecs,
    progress: Progress,
}

impl Transfer {
    fn has_chunks(&self) -> bool {
        self.data.single().is_none()
    }
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring")
            .field("in_flight", &self.transfers.iter().flatten().count())
            .field("writes_max", &self.transfers.len())
            .field("buffer_bytes", &self.buffers.buffer_bytes())
            .field("registered", &self.registered.len())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Uring {
    /// Creates a ring for `buffers` writes in flight, each up to `buffer_bytes`.
    ///
    /// Tries to register all buffers; if the locked memory limit forbids it, half as many, and so on down to none.
    ///
    /// # Errors
    /// The kernel has no io_uring, or refuses it.
    pub(crate) fn new(buffers: usize, buffer_bytes: usize) -> io::Result<Uring> {
        let header_buffers_max = chunk_writes_max(buffer_bytes);
        let writes = buffers + header_buffers_max;
        // One more entry for a sync. The completion queue has twice as many.
        let ring = IoUring::new(writes as u32 + 1)?;
        let mut free = Buffer::several(buffers, buffer_bytes);
        let mut count = buffers;
        while count > 0 {
            let pages = |buffer: &mut Buffer| {
                let bytes = buffer.bytes_mut();
                libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
            };
            let places: Vec<libc::iovec> = free[..count].iter_mut().map(pages).collect();
            // SAFETY: the ranges are memory owned by us. The kernel pins its pages, so no other process gets them until
            // the ring is gone, even if a buffer is dropped before; it writes nothing to them.
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
        // Buffers are taken from the end: the registered ones first.
        let mut free: Vec<Buffer> = numbered.collect();
        free.reverse();
        Ok(Uring {
            ring,
            transfers: (0..writes).map(|_| None).collect(),
            buffers: BufferPool::of(free, buffer_bytes),
            header_buffers: BufferPool::filled(header_buffers_max, PAGE_BYTES),
            registered,
            failed: None,
            sync: 0,
            synced: None,
        })
    }

    /// Returns the number of registered buffers.
    pub(crate) fn registered(&self) -> usize {
        self.registered.len()
    }

    /// Queues the rest of a write.
    fn push_write(&mut self, index: usize) -> io::Result<()> {
        let Some(Transfer { file, at, data, iovecs, progress }) = &mut self.transfers[index] else { return Ok(()) };
        let fd = types::Fd(file.as_fd().as_raw_fd());
        let (done, at) = (progress.done(), *at + progress.done() as u64);
        let entry = match data.single() {
            Some(buffer) => {
                let rest = &buffer.as_slice()[done..];
                let (place, len) = (rest.as_ptr(), rest.len() as u32);
                // A buffer from elsewhere may have a slot number, too: only the registered address is the registered
                // buffer.
                let start = buffer.as_slice().as_ptr().addr();
                match buffer.slot().filter(|slot| self.registered.get(usize::from(*slot)) == Some(&start)) {
                    Some(slot) => opcode::WriteFixed::new(fd, place, len, slot).offset(at).build(),
                    None => opcode::Write::new(fd, place, len).offset(at).build(),
                }
            }
            None => {
                *iovecs = data.iovecs(done);
                opcode::Writev::new(fd, iovecs.as_ptr(), iovecs.count()).offset(at).build()
            }
        };
        self.push(&entry.user_data(index as u64))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: a write's bytes and descriptor, and its range list if any, belong to its transfer, which is dropped
        // only after this entry's completion was seen (`complete`), or is leaked (`drop`); the list, too, is replaced
        // only after this completion. The log's writer may change a chunk's header at the same time: then the old or
        // the new bytes are written, and no reader trusts them. A sync has a descriptor only. The kernel holds a
        // reference to its file from submission on, and `sync` borrows the file until then; if the submission fails and
        // the entry is submitted later, its descriptor may be another file's or none: an additional sync, which is
        // harmless.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.map_err(|_| io::Error::other("io_uring: the submission queue is full"))
    }

    /// Takes the available completions.
    fn reap(&mut self) {
        while let Some(entry) = { self.ring.completion().next() } {
            let answer = match entry.result() {
                written @ 0.. => Ok(written as usize),
                errno => Err(Errno::from_raw_os_error(-errno)),
            };
            if entry.user_data() & SYNC == 0 {
                self.complete(entry.user_data() as usize, answer);
            } else if entry.user_data() == SYNC + self.sync {
                self.synced = Some(answer);
            }
        }
    }

    /// Processes the result of a write request: queues the rest of a short write, or ends the write.
    fn complete(&mut self, index: usize, answer: Result<usize, Errno>) {
        let Some(Some(transfer)) = self.transfers.get_mut(index) else { return };
        let error = match transfer.progress.advance(answer) {
            Step::Done => None,
            Step::Failed(error) => Some(error),
            Step::Retry { progressed } => {
                if !progressed {
                    std::thread::sleep(PAUSE);
                }
                match self.push_write(index) {
                    Ok(()) => return,
                    Err(error) => Some(error),
                }
            }
        };
        // Neither the kernel nor the queue refers to it any more.
        let Some(Transfer { file, at, data, .. }) = self.transfers[index].take() else { return };
        if let Some(error) = error {
            self.failed.get_or_insert_with(|| file.write_error(at, data.len(), &error));
        }
        // A foreign buffer not kept by the pool is dropped.
        let _ = match data.single() {
            Some(_) => self.buffers.put(data.into_buffer()),
            None => self.header_buffers.put(data.into_buffer()),
        };
    }

    /// Waits for at least one completion.
    fn wait(&mut self) -> io::Result<()> {
        let entered = enter(&mut self.ring, 1);
        self.reap();
        entered
    }

    /// Returns `true` if `concerns` returns `true` for a write in flight.
    fn has_in_flight(&self, concerns: impl Fn(&Transfer) -> bool) -> bool {
        self.transfers.iter().flatten().any(concerns)
    }

    /// Waits until `concerns` returns `false` for all writes in flight.
    fn wait_while(&mut self, concerns: impl Fn(&Transfer) -> bool) -> io::Result<()> {
        while self.has_in_flight(&concerns) {
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
        self.buffers.buffer_bytes()
    }

    fn buffer(&mut self) -> io::Result<Buffer> {
        loop {
            self.reap();
            match self.buffers.take() {
                Some(buffer) => return Ok(buffer),
                // The caller has all buffers, or has dropped some.
                None if !self.has_in_flight(|_| true) => return Ok(self.buffers.allocate()),
                None => self.wait()?,
            }
        }
    }

    fn header_buffer(&mut self) -> io::Result<Buffer> {
        loop {
            self.reap();
            match self.header_buffers.take() {
                Some(header) => return Ok(header),
                // As in `buffer`.
                None if !self.has_in_flight(Transfer::has_chunks) => return Ok(self.header_buffers.allocate()),
                None => self.wait()?,
            }
        }
    }

    fn begin(&mut self, file: &Arc<OpenFile>, at: u64, data: VectoredWrite) -> io::Result<()> {
        let index = loop {
            match self.transfers.iter().position(Option::is_none) {
                Some(index) => break index,
                None => self.wait()?,
            }
        };
        let progress = Progress::new(data.len());
        let iovecs = IoVecs::default();
        self.transfers[index] = Some(Transfer { file: Arc::clone(file), at, data, iovecs, progress });
        if let Err(error) = self.push_write(index) {
            // The kernel never saw it.
            self.transfers[index] = None;
            return Err(error);
        }
        enter(&mut self.ring, 0)
    }

    fn wait_for_file(&mut self, file: &Arc<OpenFile>) -> io::Result<()> {
        self.wait_while(|transfer| Arc::ptr_eq(&transfer.file, file))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wait_while(|_| true)?;
        self.failed.take().map_or(Ok(()), Err)
    }

    fn sync(&mut self, file: &Arc<OpenFile>) -> io::Result<()> {
        let mut refusals = Refusals::default();
        loop {
            self.sync += 1;
            self.synced = None;
            let fd = types::Fd(file.as_fd().as_raw_fd());
            let entry = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build();
            self.push(&entry.user_data(SYNC + self.sync))?;
            let answer = loop {
                self.wait()?;
                if let Some(answer) = self.synced.take() {
                    break answer;
                }
            };
            match answer {
                Ok(_) => return Ok(()),
                // The sync didn't start. Any other failure is final: a second sync may succeed although bytes are lost.
                Err(Errno::INTR | Errno::AGAIN) if refusals.may_try_again() => std::thread::sleep(PAUSE),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.wait_while(|_| true).is_err() {
            // The kernel may still read them.
            self.transfers.drain(..).for_each(std::mem::forget);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_ring_says_how_large_it_is() {
        let ring = Uring::new(2, PAGE_BYTES).expect("io_uring");
        let text = format!("{ring:?}");
        assert!(text.contains("in_flight: 0") && text.contains("buffer_bytes: 4096"), "{text}");
    }

    #[test]
    fn each_sync_has_a_number_of_its_own() {
        let file = Arc::new(OpenFile::new("segment", tempfile::tempfile().expect("a file").into()));
        let mut ring = Uring::new(2, PAGE_BYTES).expect("io_uring");
        for number in 1..4 {
            ring.sync(&file).expect("a sync");
            assert_eq!(ring.sync, number);
        }
    }

    #[test]
    fn there_are_more_header_buffers_if_none_is_in_flight() {
        // One chunk write in flight.
        let mut ring = Uring::new(1, 8 << 20).expect("io_uring");
        let capacities = [(); 2].map(|()| ring.header_buffer().expect("a buffer").capacity());
        assert_eq!(capacities, [PAGE_BYTES; 2]);
    }

    #[test]
    fn buffers_of_completed_writes_are_used_again() {
        let file = Arc::new(OpenFile::new("segment", tempfile::tempfile().expect("a file").into()));
        // One chunk write in flight.
        let mut ring = Uring::new(2, 8 << 20).expect("io_uring");
        let (mut addresses, mut header_addresses) = (BTreeSet::new(), BTreeSet::new());
        let mut chunks = crate::backend::vectored_write::tests::chunks(50);
        for number in 0..100 {
            let has_chunks = number % 2 == 0;
            let mut buffer = if has_chunks { ring.header_buffer() } else { ring.buffer() }.expect("a buffer");
            let of_kind = if has_chunks { &mut header_addresses } else { &mut addresses };
            of_kind.insert(buffer.bytes_mut().as_ptr().addr());
            buffer.set_len(PAGE_BYTES);
            let chunks = chunks.split_off(chunks.len() - usize::from(has_chunks));
            ring.begin(&file, number << 20, VectoredWrite::new(buffer, chunks)).expect("a write");
        }
        ring.flush().expect("writes");
        assert!(addresses.len() <= 2, "{} buffers", addresses.len());
        assert_eq!(header_addresses.len(), 1);
    }
}
