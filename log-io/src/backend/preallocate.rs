//! File space allocation and deallocation.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::{Buffer, PAGE_BYTES};

/// Number of zeros written at a time if a file system can't preallocate.
const ZEROS_BYTES: usize = 256 * 1024;

/// Sets the length of a new file and allocates its space.
pub(crate) fn preallocate(fd: &OwnedFd, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    match fallocate(fd, FallocateFlags::empty(), 0, bytes) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => write_zeros(fd, bytes),
        result => result,
    }
}

fn write_zeros(fd: &OwnedFd, bytes: u64) -> io::Result<()> {
    let mut zeros = Buffer::new(ZEROS_BYTES);
    zeros.set_len(ZEROS_BYTES);
    let end = bytes.next_multiple_of(PAGE_BYTES as u64);
    let mut at = 0;
    while at < end {
        let len = zeros.len().min((end - at) as usize);
        crate::backend::transfer::write_in_full(fd, at, &zeros.as_slice()[..len])?;
        at += len as u64;
    }
    Ok(rustix::fs::ftruncate(fd, bytes)?)
}

pub(crate) fn fallocate(fd: impl AsFd, mode: FallocateFlags, at: u64, len: u64) -> io::Result<()> {
    loop {
        match rustix::fs::fallocate(fd.as_fd(), mode, at, len) {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Err(io::ErrorKind::Unsupported.into()),
            result => return Ok(result?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_written_if_preallocation_is_unsupported() {
        let dir = tempfile::tempdir().unwrap();
        let fd: OwnedFd = std::fs::File::create_new(dir.path().join("file")).unwrap().into();
        write_zeros(&fd, ZEROS_BYTES as u64 + 4100).unwrap();
        let bytes = std::fs::read(dir.path().join("file")).unwrap();
        assert_eq!(bytes.len(), ZEROS_BYTES + 4100);
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
}
