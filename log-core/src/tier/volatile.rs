//! The volatile tier.

use std::io;
use std::ptr::NonNull;

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};
use rustix::io::Errno;

use super::{Tier, TierError, advise_large_pages, non_null};
use crate::geometry::Geometry;

/// Anonymous memory: fast to set up, lost with the process.
///
/// Ordinary chunks beyond the first 2 MiB, and larger blocks, lie in large pages, if the system has them: they are
/// committed in a third of the time, and a write to disk from there is one segment instead of one for each page.
#[derive(Debug)]
pub struct Volatile {
    map: MmapRaw,
}

impl Volatile {
    /// Reserves address space for `geometry`.
    ///
    /// # Errors
    /// [`TierError::Map`] if address space is limited.
    pub fn reserve(geometry: &Geometry) -> Result<Volatile, TierError> {
        let len = geometry.len();
        let map = MmapOptions::new()
            .len(len)
            .no_reserve_swap()
            .map_anon()
            .map_err(|source| TierError::Map { len, source })?;
        let map = MmapRaw::from(map);
        advise_large_pages(&map, geometry);
        Ok(Volatile { map })
    }
}

// SAFETY: MmapRaw keeps one mapping with fixed address and length, readable and writable, until it is dropped; it is
// private and anonymous, so zero at first and not shared. MADV_DONTNEED makes private anonymous pages zero
// (madvise(2)).
unsafe impl Tier for Volatile {
    fn base(&self) -> NonNull<u8> {
        non_null(&self.map)
    }

    fn len(&self) -> usize {
        self.map.len()
    }

    fn commit(&self, at: usize, len: usize) -> io::Result<()> {
        // A page fault costs microseconds, more than the rest of an append.
        match self.map.advise_range(Advice::PopulateWrite, at, len) {
            // Linux before 5.14 has no such advice: the pages fault in on first use, slower but correct.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(()),
            populated => populated,
        }
    }

    fn discard(&self, at: usize, len: usize) -> io::Result<()> {
        // SAFETY: the pool discards only blocks not used by a lane or cursor, so no code relies on the bytes.
        unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, at, len) }
    }

    fn survives_process(&self) -> bool {
        false
    }
}
