//! A vectored write: a header buffer and in-place chunks.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use counterfoil_log_core::ChunkImage;
use rustix::io::Errno;

use crate::Buffer;
use crate::backend::transfer::{PAUSE, Progress, Step};

/// Returns the maximum number of chunk writes in flight in a backend with buffers of `buffer_bytes`, in addition to
/// buffer writes: 8 MiB in writes of this size, but at most 32 writes.
///
/// A chunk write needs only one buffer page. It reads uncached memory and so takes longer than a buffer's write; more
/// writes must be in flight to keep the disk busy.
pub fn chunk_writes_max(buffer_bytes: usize) -> usize {
    (CHUNK_BYTES_IN_FLIGHT / buffer_bytes).clamp(1, CHUNK_WRITES_MAX)
}

/// Bytes in flight in chunk writes, each as large as a buffer.
const CHUNK_BYTES_IN_FLIGHT: usize = 8 << 20;
const CHUNK_WRITES_MAX: usize = 32;

/// A buffer and chunks, owned by the write until it is complete.
#[derive(Debug)]
pub(crate) struct VectoredWrite {
    header: Buffer,
    chunks: Vec<ChunkImage>,
}

/// The memory ranges in a write not yet written.
#[derive(Debug, Default)]
pub(crate) struct IoVecs(Vec<libc::iovec>);

// SAFETY: addresses and lengths. Only the kernel reads through them, and only while their source exists, a
// `VectoredWrite`, which is `Send`: see the callers passing them to the kernel.
unsafe impl Send for IoVecs {}

impl From<Buffer> for VectoredWrite {
    fn from(header: Buffer) -> VectoredWrite {
        VectoredWrite { header, chunks: Vec::new() }
    }
}

impl VectoredWrite {
    pub(crate) fn new(header: Buffer, chunks: Vec<ChunkImage>) -> VectoredWrite {
        VectoredWrite { header, chunks }
    }

    /// Returns the length of header and chunks, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.header.len() + self.chunks.iter().map(ChunkImage::len).sum::<usize>()
    }

    /// Returns the buffer of a write without chunks.
    pub(crate) fn single(&self) -> Option<&Buffer> {
        self.chunks.is_empty().then_some(&self.header)
    }

    /// Returns the buffer, and unpins the chunks' memory.
    pub(crate) fn into_buffer(self) -> Buffer {
        self.header
    }

    /// Returns the memory ranges after the first `done` bytes.
    ///
    /// They stay valid for reads while `self` exists: the buffer owns its bytes, and [`ChunkImage`] gives the same
    /// guarantee for its address.
    pub(crate) fn iovecs(&self, mut done: usize) -> IoVecs {
        let header = (self.header.as_slice().as_ptr(), self.header.len());
        let mut iovecs = Vec::with_capacity(1 + self.chunks.len());
        for (start, len) in
            std::iter::once(header).chain(self.chunks.iter().map(|chunk| (chunk.address(), chunk.len())))
        {
            let skipped = done.min(len);
            done -= skipped;
            if skipped < len {
                // Computes an address only; the kernel reads there.
                let iov_base = start.wrapping_add(skipped).cast_mut().cast();
                iovecs.push(libc::iovec { iov_base, iov_len: len - skipped });
            }
        }
        IoVecs(iovecs)
    }

    /// Writes everything at offset `at`, in as many calls as needed.
    pub(crate) fn write_in_full(&self, file: impl AsFd, at: u64) -> io::Result<()> {
        match self.single() {
            Some(buffer) => crate::backend::transfer::write_in_full(file, at, buffer.as_slice()),
            None => write_adjacent(&[self], file, at),
        }
    }
}

/// Writes all of these at offset `at`, in order, in as many calls as needed.
///
/// The writes have at most [`IOVECS_MAX`] ranges in total.
pub(crate) fn write_adjacent(writes: &[&VectoredWrite], file: impl AsFd, at: u64) -> io::Result<()> {
    let mut progress = Progress::new(writes.iter().map(|write| write.len()).sum());
    loop {
        let done = progress.done();
        match progress.advance(pwritev(&file, writes, done, at + done as u64)) {
            Step::Done => return Ok(()),
            Step::Retry { progressed: true } => {}
            Step::Retry { progressed: false } => std::thread::sleep(PAUSE),
            Step::Failed(error) => return Err(error),
        }
    }
}

impl IoVecs {
    pub(crate) fn as_ptr(&self) -> *const libc::iovec {
        self.0.as_ptr()
    }

    /// Returns the number of ranges, at most [`IOVECS_MAX`].
    pub(crate) fn count(&self) -> u32 {
        self.0.len() as u32
    }
}

/// Writes the bytes after the first `done`, or some of them.
///
/// Returns the number of bytes written.
fn pwritev(file: &impl AsFd, writes: &[&VectoredWrite], mut done: usize, at: u64) -> Result<usize, Errno> {
    let mut iovecs = IoVecs::default();
    for write in writes {
        iovecs.0.append(&mut write.iovecs(done).0);
        done = done.saturating_sub(write.len());
    }
    let (fd, count) = (file.as_fd().as_raw_fd(), iovecs.count().cast_signed());
    // SAFETY: `count` ranges in memory that stays readable until the call returns: the `VectoredWrite` are borrowed.
    // The system call reads the bytes and keeps none of the addresses. The log's writer may change a chunk's header at
    // the same time; then the old or the new bytes are written, and no reader trusts them.
    let written = unsafe { libc::pwritev(fd, iovecs.as_ptr(), count, at.cast_signed()) };
    usize::try_from(written).map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// Maximum ranges in a system call, `IOV_MAX` on Linux.
pub(crate) const IOVECS_MAX: usize = 1024;

const _: () = assert!(crate::format::CHUNKS_MAX < IOVECS_MAX);

#[cfg(test)]
pub(crate) mod tests {
    use counterfoil_log_core::{LaneWriter, Pool, PoolOptions, Rank, Ssn};

    use super::*;
    use crate::PAGE_BYTES;

    #[test]
    fn chunk_writes_in_flight_have_eight_mib_together_and_are_few() {
        for (buffer_bytes, writes) in [(4096, 32), (256 << 10, 32), (512 << 10, 16), (8 << 20, 1), (16 << 20, 1)] {
            assert_eq!(chunk_writes_max(buffer_bytes), writes, "{buffer_bytes}");
        }
    }

    /// Returns sealed 16 KiB chunks.
    pub(crate) fn chunks(count: usize) -> Vec<ChunkImage> {
        let options =
            PoolOptions { memory_bytes_max: 1 << 20, chunk_bytes: 16 << 10, prefault_bytes: 0, cursors_max: 1 };
        let mut lane = LaneWriter::new(Pool::volatile(options).expect("a pool"), Rank(1));
        for _ in 0..16 * (count + 1) {
            lane.claim(0, 1000).expect("room").commit();
        }
        let mut cursor = lane.cursor(Ssn::FIRST).expect("a cursor");
        let mut chunks = Vec::new();
        while chunks.len() < count {
            match cursor.read_chunk(Ssn::MAX, 1 << 20) {
                Some(chunk) => chunks.push(chunk),
                None => drop(cursor.read().expect("another record")),
            }
        }
        chunks
    }

    #[test]
    fn a_short_write_continues_at_any_page() {
        let mut header = Buffer::new(PAGE_BYTES);
        header.set_len(1);
        let start = header.as_slice().as_ptr();
        let write = VectoredWrite::new(header, chunks(3));
        let all: Vec<usize> = write.iovecs(0).0.iter().map(|iovec| iovec.iov_base.addr()).collect();
        assert_eq!((all.len(), all[0]), (4, start.addr()));
        for done in (0..=write.len()).step_by(PAGE_BYTES) {
            let iovecs = write.iovecs(done);
            let left: usize = iovecs.0.iter().map(|iovec| iovec.iov_len).sum();
            assert_eq!(left, write.len() - done);
            assert_eq!(iovecs.count() as usize, iovecs.0.len());
            // All but the first start at their original position.
            let starts = iovecs.0.iter().skip(1).map(|iovec| iovec.iov_base.addr());
            assert!(starts.eq(all[all.len() - iovecs.0.len().saturating_sub(1)..].iter().copied()));
        }
    }
}
