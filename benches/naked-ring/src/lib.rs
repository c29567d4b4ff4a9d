//! The disk benchmarks' floor: the rate of the disk without a store.
//!
//! A separate crate, because submitting to an io_uring is `unsafe` and the benchmarks forbid `unsafe`.
#![warn(missing_docs)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use counterfoil_log_io::{Buffer, PAGE_BYTES};
use io_uring::{IoUring, opcode, types};

/// Transfer direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the disk.
    Write,
    /// From the disk.
    Read,
}

/// Opens a file for direct I/O; creates it for writing.
///
/// # Errors
/// Errors of `open`; `InvalidInput` if the file system has no `O_DIRECT`.
pub fn open_direct(path: &Path, direction: Direction) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(direction == Direction::Write)
        .create(direction == Direction::Write)
        .mode(0o600)
        .custom_flags(libc::O_DIRECT | libc::O_CLOEXEC)
        .open(path)
}

/// An io_uring for transferring whole files in blocks, with one block in flight for each buffer.
pub struct NakedRing {
    ring: IoUring,
    /// One for each block in flight; none is in flight between two calls.
    ///
    /// Empty after a ring failure.
    buffers: Vec<Buffer>,
}

impl std::fmt::Debug for NakedRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NakedRing").field("buffers", &self.buffers).finish_non_exhaustive()
    }
}

impl NakedRing {
    /// Creates a ring with `depth` blocks of `block_bytes` in flight; `block_bytes` is a multiple of 4,096.
    ///
    /// # Errors
    /// The kernel has no io_uring or refuses it; `InvalidInput` for other block sizes.
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

    /// Transfers the first `bytes` of `file` in order, rounded down to whole blocks.
    ///
    /// Syncs nothing.
    ///
    /// # Errors
    /// The first error reported by the system; `UnexpectedEof` for a partly transferred block.
    pub fn run(&mut self, direction: Direction, file: &File, bytes: u64) -> io::Result<()> {
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
                let entry = match direction {
                    Direction::Write => opcode::Write::new(fd, place.as_ptr(), place.len() as u32).offset(at).build(),
                    Direction::Read => opcode::Read::new(fd, place.as_mut_ptr(), place.len() as u32).offset(at).build(),
                };
                // SAFETY: the buffer belongs to `self`, and is neither touched nor handed to another request before
                // this one's completion has put its slot back among the idle; `run` doesn't return before (see
                // `abandon`). There are as many entries as buffers, so the queue is never full.
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

    /// Leaks the buffers: waiting for the ring failed, and the kernel may still use them.
    fn abandon(&mut self, error: io::Error) -> io::Error {
        std::mem::take(&mut self.buffers).into_iter().for_each(std::mem::forget);
        error
    }
}
