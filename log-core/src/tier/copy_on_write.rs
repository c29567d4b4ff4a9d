//! A shared-memory file, left as it is.

use std::fs::File;
use std::io;
use std::path::Path;
use std::ptr::NonNull;

use memmap2::{MmapOptions, MmapRaw};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::param::page_size;

use super::{DeadFile, Tier, TierError, len_of, non_null};
use crate::private_file::read_private_file;

/// A dead process's pool file, mapped with copies of stored pages: several processes can use it at once, each with its
/// own stores, even on a read-only file system.
///
/// No process can recover the file meanwhile.
#[derive(Debug)]
pub(crate) struct CopyOnWrite {
    map: MmapRaw,
    file: File,
}

impl DeadFile for CopyOnWrite {
    fn open(path: &Path) -> Result<CopyOnWrite, TierError> {
        let file = read_private_file(path)?;
        let len = len_of(&file, path)?;
        // SAFETY: the file is private to this user and locked, so no well-behaved process writes or shortens it while
        // it is mapped.
        let map = unsafe { MmapOptions::new().len(len).no_reserve_swap().map_copy(&file) };
        let map = MmapRaw::from(map.map_err(|source| TierError::Map { len, source })?);
        Ok(CopyOnWrite { map, file })
    }

    fn file(&self) -> &File {
        &self.file
    }
}

// SAFETY: MmapRaw keeps one private mapping with fixed address and length, readable and writable, until it is dropped.
// The file is locked: no well-behaved process writes or shortens it meanwhile, so every page in the mapping has bytes.
unsafe impl Tier for CopyOnWrite {
    fn base(&self) -> NonNull<u8> {
        non_null(&self.map)
    }

    fn len(&self) -> usize {
        self.map.len()
    }

    /// Does nothing: page copies are anonymous memory, and stores there get no SIGBUS.
    ///
    /// Copies in advance would take as much memory as the whole file.
    fn commit(&self, _: usize, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, at: usize, len: usize) -> io::Result<()> {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.map.len()), "the range is in the mapping");
        // MADV_DONTNEED would bring back the file's bytes (madvise(2)). Storing zeros copies every page. SAFETY: the
        // range is in this mapping, which is private, writable and unmapped as a whole; new pages replace whole pages
        // in it. The pool discards only blocks not used by a lane or cursor, so no code relies on their bytes or writes
        // them meanwhile.
        unsafe {
            let start = self.map.as_mut_ptr().add(at);
            if (at | len).is_multiple_of(page_size()) {
                let access = ProtFlags::READ | ProtFlags::WRITE;
                let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
                rustix::mm::mmap_anonymous(start.cast(), len, access, flags)?;
            } else {
                start.write_bytes(0, len);
            }
        }
        Ok(())
    }

    fn survives_process(&self) -> bool {
        false
    }
}
