//! What the disk does without a store: the floor that benchmarks compare with.
//!
//! Nothing here is used by a store. It stands in this crate because a ring needs `unsafe`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use io_uring::{IoUring, opcode, types};

use crate::{Buffer, PAGE_BYTES};

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the disk.
    Write,
    /// From the disk.
    Read,
}

/// How many blocks of this size a store has in flight when it writes chunks from where they lie.
pub fn writes_in_flight(block_bytes: usize) -> usize {
    crate::gathered::heads_max(block_bytes)
}

/// Opens a file past the page cache.
///
/// # Errors
/// What the system says; `InvalidInput` where the file system has no `O_DIRECT`.
pub fn open_direct(path: &Path, way: Way) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(way == Way::Write)
        .create(way == Way::Write)
        .mode(0o600)
        .custom_flags(libc::O_DIRECT | libc::O_CLOEXEC)
        .open(path)
}

/// An io_uring that moves whole files in blocks, as many of them in flight as it has buffers.
pub struct NakedRing {
    ring: IoUring,
    /// None of them is in flight between two calls. Empty where the ring failed: it isn't used again then.
    buffers: Vec<Buffer>,
}

impl std::fmt::Debug for NakedRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NakedRing").field("buffers", &self.buffers).finish_non_exhaustive()
    }
}

impl NakedRing {
    /// With `depth` blocks of `block_bytes` in flight, a multiple of 4,096.
    ///
    /// # Errors
    /// The kernel has no io_uring, or refuses it; `InvalidInput` for other blocks.
    pub fn new(depth: usize, block_bytes: usize) -> io::Result<NakedRing> {
        if depth == 0 || block_bytes == 0 || !block_bytes.is_multiple_of(PAGE_BYTES) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "blocks are whole pages, at least one in flight"));
        }
        let mut buffers = Buffer::several(depth, block_bytes);
        for buffer in &mut buffers {
            buffer.bytes_mut().fill(0xa5);
            buffer.set_len(block_bytes);
        }
        let ring = IoUring::new(u32::try_from(depth).map_err(io::Error::other)?)?;
        Ok(NakedRing { ring, buffers })
    }

    /// Moves the first `bytes` of `file`, block by block from its start on; what is left of less than a block is left out.
    /// Nothing is synced.
    ///
    /// # Errors
    /// The first that the system reports; `UnexpectedEof` for a block that was moved in part.
    pub fn run(&mut self, way: Way, file: &File, bytes: u64) -> io::Result<()> {
        let block = self.buffers.first().ok_or_else(|| io::Error::other("the ring failed before"))?.capacity() as u64;
        let blocks = bytes / block;
        let mut next = 0;
        let mut in_flight = 0;
        let mut idle: Vec<usize> = (0..self.buffers.len()).collect();
        let mut failed = None;
        while in_flight > 0 || (next < blocks && failed.is_none()) {
            while next < blocks
                && failed.is_none()
                && let Some(slot) = idle.pop()
            {
                let at = next * block;
                let (fd, place) = (types::Fd(file.as_raw_fd()), self.buffers[slot].bytes_mut());
                let entry = match way {
                    Way::Write => opcode::Write::new(fd, place.as_ptr(), place.len() as u32).offset(at).build(),
                    Way::Read => opcode::Read::new(fd, place.as_mut_ptr(), place.len() as u32).offset(at).build(),
                };
                // SAFETY: the buffer belongs to `self`, and is neither touched nor handed to another request before this
                // one's completion has put its slot back among the idle; `run` doesn't return before (see `abandon`).
                // There are as many entries as buffers, so the queue is never full.
                if unsafe { self.ring.submission().push(&entry.user_data(slot as u64)) }.is_err() {
                    failed = Some(io::Error::other("the submission queue is full"));
                    break;
                }
                (next, in_flight) = (next + 1, in_flight + 1);
            }
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(self.abandon(error)),
                _ => {}
            }
            for entry in self.ring.completion() {
                in_flight -= 1;
                idle.push(entry.user_data() as usize);
                if entry.result() < 0 {
                    failed.get_or_insert(io::Error::from_raw_os_error(-entry.result()));
                } else if entry.result() as u64 != block {
                    failed.get_or_insert(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// The ring can't be waited for any more: the kernel may use the buffers still, so they are leaked.
    fn abandon(&mut self, error: io::Error) -> io::Error {
        std::mem::take(&mut self.buffers).into_iter().for_each(std::mem::forget);
        error
    }
}
