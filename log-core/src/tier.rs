//! A log's two memory tiers and their common trait.
//!
//! * [`Volatile`]: anonymous memory, lost with the process.
//! * [`ProcessCrashSafe`]: a private shared-memory file. The replacement finds every record committed before a `kill
//!   -9`, because a retired store reaches memory even if its process dies. The file holds offsets and generations,
//!   never pointers.
//!
//! The module `copy_on_write` maps such a file without changing it.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::geometry::Geometry;
use crate::private_file::{PrivateFileError, create_private_file, open_private_file};

mod copy_on_write;
#[cfg(miri)]
mod heap;
#[cfg(not(miri))]
mod volatile;

pub(crate) use copy_on_write::CopyOnWrite;
#[cfg(miri)]
pub use heap::Volatile;
#[cfg(not(miri))]
pub use volatile::Volatile;

/// Address space for a whole [`Geometry`]; only committed parts use memory.
///
/// # Safety
/// For the life of the value, `base()` must not change and must be valid for reads and writes of `len()` bytes by any
/// thread; the bytes must be initialised (zero until written), and nothing else may write them. `discard` may only turn
/// the bytes in its range into zeros.
pub unsafe trait Tier: Send + Sync + fmt::Debug {
    /// Returns the start of the memory, aligned to a page.
    fn base(&self) -> NonNull<u8>;
    /// Returns the address space in bytes.
    fn len(&self) -> usize;
    /// Returns `true` if there is no address space; it never is so for a geometry's.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Commits memory for `[at, at + len)`, so that no later store faults or gets a SIGBUS.
    ///
    /// # Errors
    /// The system's error if there is no memory or, for a file, no space.
    fn commit(&self, at: usize, len: usize) -> io::Result<()>;
    /// Returns the memory of `[at, at + len)` to the system; the range reads as zeros afterwards.
    ///
    /// # Errors
    /// The system's error; the range is unchanged then.
    fn discard(&self, at: usize, len: usize) -> io::Result<()>;
    /// Returns `true` if committed records outlive a killed process.
    fn survives_process(&self) -> bool;
}

/// Error when setting up a tier's memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// The system refused the address space.
    #[error("can't reserve {len} bytes of address space ({source}): lower the memory budget or raise `ulimit -v`")]
    Map {
        /// Bytes requested.
        len: usize,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file is not private, belongs to another user, is in use, or can't be opened.
    #[error("shared-memory log: {0}")]
    File(#[from] PrivateFileError),
    /// The file can't get its length or its name, or is empty.
    #[error("shared-memory log {}: {source}", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// A private shared-memory file, locked while its process lives.
#[derive(Debug)]
pub struct ProcessCrashSafe {
    map: MmapRaw,
    file: File,
    path: PathBuf,
}

impl ProcessCrashSafe {
    /// Creates the file, which must not exist.
    ///
    /// # Errors
    /// [`TierError`] if the file can't be created, sized or mapped; it is removed again then.
    pub fn create(path: &Path, geometry: &Geometry) -> Result<ProcessCrashSafe, TierError> {
        Self::create_sized(path, geometry.len()).inspect(|tier| advise_large_pages(&tier.map, geometry))
    }

    /// Creates a file of `len` bytes, as [`create`](Self::create) does.
    pub(crate) fn create_sized(path: &Path, len: usize) -> Result<ProcessCrashSafe, TierError> {
        let file = create_private_file(path)?;
        let made = rustix::fs::ftruncate(&file, len as u64)
            .map_err(|errno| TierError::Size { path: path.to_owned(), source: errno.into() })
            .and_then(|()| Self::map(file, path));
        if made.is_err() {
            // The first error is the one to report.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    /// Opens and locks a dead process's file, without reading it.
    ///
    /// # Errors
    /// [`TierError`] if a living process holds the file, if another user owns it or may open it, or if it is a link.
    pub fn open(path: &Path) -> Result<ProcessCrashSafe, TierError> {
        Self::map(open_private_file(path)?, path)
    }

    fn map(file: File, path: &Path) -> Result<ProcessCrashSafe, TierError> {
        let len = len_of(&file, path)?;
        let map = MmapOptions::new().len(len).map_raw(&file).map_err(|source| TierError::Map { len, source })?;
        Ok(ProcessCrashSafe { map, file, path: path.to_owned() })
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A dead process's pool file, with memory read by a recovery.
pub(crate) trait DeadFile: Tier + Sized + 'static {
    /// Opens and locks the file, without reading it.
    fn open(path: &Path) -> Result<Self, TierError>;

    /// Returns the file.
    fn file(&self) -> &File;

    /// Returns the file's ranges with memory, as (start, end), to be read by a recovery.
    fn allocated(&self) -> io::Result<Vec<(usize, usize)>> {
        let mut ranges = Vec::new();
        let mut at = 0u64;
        loop {
            // ENXIO: no data at or after this offset (lseek(2)).
            let start = match rustix::fs::seek(self.file(), rustix::fs::SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => return Ok(ranges),
                Err(errno) => return Err(errno.into()),
            };
            at = rustix::fs::seek(self.file(), rustix::fs::SeekFrom::Hole(start))?;
            ranges.push((start as usize, at as usize));
        }
    }
}

impl DeadFile for ProcessCrashSafe {
    fn open(path: &Path) -> Result<ProcessCrashSafe, TierError> {
        ProcessCrashSafe::open(path)
    }

    fn file(&self) -> &File {
        &self.file
    }
}

/// Returns the length of a file, for mapping it.
fn len_of(file: &File, path: &Path) -> Result<usize, TierError> {
    let size = |source| TierError::Size { path: path.to_owned(), source };
    let len =
        usize::try_from(file.metadata().map_err(size)?.len()).map_err(|_| size(io::ErrorKind::FileTooLarge.into()))?;
    if len == 0 {
        // mmap would refuse an empty file with EINVAL, hiding the cause.
        return Err(size(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is empty")));
    }
    Ok(len)
}

// SAFETY: MmapRaw keeps one shared mapping with fixed address and length until it is dropped. The file is ours alone:
// mode 0600, exclusively created or locked, so no well-behaved process writes it; it is never shortened, and `commit`
// allocates every page's memory before use, so no access gets a SIGBUS. Punched holes read as zeros (fallocate(2)).
unsafe impl Tier for ProcessCrashSafe {
    fn base(&self) -> NonNull<u8> {
        non_null(&self.map)
    }

    fn len(&self) -> usize {
        self.map.len()
    }

    fn commit(&self, at: usize, len: usize) -> io::Result<()> {
        match self.map.advise_range(Advice::PopulateWrite, at, len) {
            // Linux before 5.14 has no such advice.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                Ok(rustix::fs::fallocate(&self.file, FallocateFlags::empty(), at as u64, len as u64)?)
            }
            // A store to the range would get a SIGBUS: the file system is full.
            Err(error) if error.raw_os_error() == Some(Errno::FAULT.raw_os_error()) => Err(Errno::NOSPC.into()),
            populated => populated,
        }
    }

    fn discard(&self, at: usize, len: usize) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, flags, at as u64, len as u64)?)
    }

    fn survives_process(&self) -> bool {
        true
    }
}

fn non_null(map: &MmapRaw) -> NonNull<u8> {
    NonNull::new(map.as_mut_ptr()).unwrap_or(NonNull::dangling())
}

/// Asks for large pages where a geometry profits from them.
///
/// If the system refuses, pages are small.
#[cfg(not(miri))]
fn advise_large_pages(map: &MmapRaw, geometry: &Geometry) {
    for (at, len) in geometry.large_pages() {
        let _ = map.advise_range(Advice::HugePage, at, len);
    }
}

/// Does nothing: Miri has no `madvise`.
#[cfg(miri)]
fn advise_large_pages(_: &MmapRaw, _: &Geometry) {}

#[cfg(not(miri))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::PoolOptions;
    use crate::private_file::create_private_dir;

    fn geometry() -> Geometry {
        let options = PoolOptions { memory_bytes_max: 8 << 20, chunk_bytes: 65536, prefault_bytes: 0, cursors_max: 1 };
        options.geometry().unwrap()
    }

    #[test]
    fn a_file_has_memory_where_it_was_committed_and_not_discarded() {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let private = directory.path().join("job");
        create_private_dir(&private).unwrap();
        let tier = ProcessCrashSafe::create(&private.join("log"), &geometry()).unwrap();
        assert!(!tier.is_empty() && tier.survives_process());
        assert_eq!(tier.allocated().unwrap(), []);
        tier.commit(65536, 4 * 65536).unwrap();
        assert_eq!(tier.allocated().unwrap(), [(65536, 5 * 65536)]);
        tier.discard(2 * 65536, 65536).unwrap();
        assert_eq!(tier.allocated().unwrap(), [(65536, 2 * 65536), (3 * 65536, 5 * 65536)]);
        assert_eq!(tier.file.metadata().unwrap().len(), geometry().len() as u64);
    }

    #[derive(Debug)]
    struct Nothing;

    // SAFETY: there are no bytes.
    unsafe impl Tier for Nothing {
        fn base(&self) -> NonNull<u8> {
            NonNull::dangling()
        }
        fn len(&self) -> usize {
            0
        }
        fn commit(&self, _: usize, _: usize) -> io::Result<()> {
            Err(io::ErrorKind::OutOfMemory.into())
        }
        fn discard(&self, _: usize, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn survives_process(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_tier_without_address_space_is_empty() {
        assert!(Nothing.is_empty() && !Volatile::reserve(&geometry()).unwrap().is_empty());
    }

    /// Returns the line `VmFlags` of the mapping with this address (proc_pid_smaps(5)).
    fn flags_of(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in maps.lines() {
            let bound = |text: &str| usize::from_str_radix(text, 16).ok();
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            match range.and_then(|(from, to)| Some(bound(from)?..bound(to)?)) {
                Some(range) => inside = range.contains(&address),
                None if inside && line.starts_with("VmFlags:") => return line.to_owned(),
                None => {}
            }
        }
        panic!("no mapping has {address:#x}");
    }

    #[test]
    fn large_pages_are_asked_for_where_they_pay() {
        if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            // This kernel has no large pages to ask for.
            return;
        }
        let geometry = geometry();
        let tier = Volatile::reserve(&geometry).unwrap();
        let (at, len) = geometry.large_pages().next().unwrap();
        for (offset, is_large) in [(0, false), (at, true), (at + len - 1, true)] {
            let flags = flags_of(tier.base().addr().get() + offset);
            assert_eq!(flags.split(' ').any(|flag| flag == "hg"), is_large, "offset {offset}: {flags}");
        }
    }
}
