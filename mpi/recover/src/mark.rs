//! Count of a rank's calls, which survives its process.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use counterfoil_settings::recover::CallMark;
use memmap2::{MmapOptions, MmapRaw};

/// A rank's mapped file.
pub(crate) struct Mark(MmapRaw);

impl Mark {
    /// Opens the file, making it if there is none.
    pub(crate) fn open(directory: &Path, rank: u32) -> io::Result<Mark> {
        let path = directory.join(CallMark::file(rank));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        // Allocates its bytes on the disk, so no store gets a SIGBUS.
        if file.metadata()?.len() < CallMark::BYTES as u64 {
            std::os::unix::fs::FileExt::write_all_at(&file, &[0; CallMark::BYTES], 0)?;
        }
        Ok(Mark(MmapOptions::new().len(CallMark::BYTES).map_raw(&file)?))
    }

    /// Records the number of calls begun by this process.
    pub(crate) fn note(&self, calls: u64) {
        // SAFETY: a mapping has a page's alignment and the number's length, and lives as long as `self`. A rank's
        // processes follow each other, and nothing else writes the file.
        let mark = unsafe { AtomicU64::from_ptr(self.0.as_mut_ptr().cast()) };
        if u64::from_le(mark.load(Ordering::Relaxed)) < calls {
            mark.store(calls.to_le(), Ordering::Relaxed);
        }
    }
}
