//! The volatile tier under Miri, which supports neither `madvise` nor the real one's `mmap` flags.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ptr::NonNull;

use super::{Tier, TierError};
use crate::geometry::Geometry;
use crate::options::BLOCK_BYTES_MIN;

/// Zeroed memory from the global allocator, in place of anonymous memory.
#[derive(Debug)]
pub struct Volatile {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the value owns its memory, and touches it only in `discard` and when it is dropped.
unsafe impl Send for Volatile {}
// SAFETY: as above.
unsafe impl Sync for Volatile {}

impl Volatile {
    /// Allocates room for `geometry`.
    ///
    /// # Errors
    /// [`TierError::Map`] if the allocator has no memory.
    pub fn reserve(geometry: &Geometry) -> Result<Volatile, TierError> {
        let len = geometry.len();
        let refused = || TierError::Map { len, source: io::ErrorKind::OutOfMemory.into() };
        let layout = Layout::from_size_align(len, BLOCK_BYTES_MIN).map_err(|_| refused())?;
        // SAFETY: a geometry is never empty: it has a header.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
        Ok(Volatile { base, layout })
    }
}

// SAFETY: one zeroed allocation, aligned to a page, with fixed address and length until the value is dropped; no other
// code has its address.
unsafe impl Tier for Volatile {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.layout.size()
    }

    fn commit(&self, _at: usize, _len: usize) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, at: usize, len: usize) -> io::Result<()> {
        assert!(at + len <= self.layout.size());
        // SAFETY: inside the allocation. The pool discards only blocks not used by a lane or cursor.
        unsafe { self.base.add(at).write_bytes(0, len) };
        Ok(())
    }

    fn survives_process(&self) -> bool {
        false
    }
}

impl Drop for Volatile {
    fn drop(&mut self) {
        // SAFETY: allocated in `reserve` with this layout, and freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}
