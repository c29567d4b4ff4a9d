//! Disk write speed.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, fdatasync, openat};
use rustix::io::{Errno, pwrite};

/// Bytes per write.
const PIECE: usize = 1 << 20;
/// Upper limit for the bytes written.
const BYTES_MAX: u64 = 128 << 20;
/// Upper limit for the duration.
const LIMIT: Duration = Duration::from_millis(500);
/// Alignment of direct writes, in memory and in the file.
const ALIGNMENT: usize = 4096;

/// Measured write speed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pub(super) bytes: u64,
    pub(super) bytes_per_s: f64,
    /// True if the writes bypassed the page cache.
    pub(super) is_direct: bool,
}

/// Measures with an unnamed file in `dir`, for half a second.
pub(super) fn rate(dir: &Path) -> io::Result<Rate> {
    let (file, is_direct) = match open(dir, OFlags::DIRECT) {
        // File systems without direct I/O refuse the flag (tmpfs did).
        Err(Errno::INVAL) => (open(dir, OFlags::empty())?, false),
        opened => (opened?, true),
    };
    let buffer = vec![0xc5; PIECE + ALIGNMENT];
    let start = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    let piece = &buffer[start..start + PIECE];
    let began = Instant::now();
    let mut bytes = 0;
    while bytes < BYTES_MAX && began.elapsed() < LIMIT {
        bytes += pwrite(&file, piece, bytes)? as u64;
    }
    fdatasync(&file)?;
    Ok(Rate { bytes, bytes_per_s: bytes as f64 / began.elapsed().as_secs_f64(), is_direct })
}

/// Opens a file removed on close.
fn open(dir: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(CWD, dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | flags, Mode::RUSR | Mode::WUSR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_taken_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let rate = rate(dir.path()).unwrap();
        assert!(rate.bytes >= PIECE as u64 && rate.bytes_per_s > 0.0, "{rate:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(super::rate(&dir.path().join("none")).is_err());
    }
}
