//! Where a log's bytes live: two memory tiers behind one trait.
//!
//! * [`Volatile`]: anonymous memory, gone with the process.
//! * [`ProcessCrashSafe`]: a private shared-memory file. Whatever was committed before a `kill -9` is there for the
//!   replacement, because a store that has retired reaches memory whether or not its process lives on. The file
//!   holds offsets and generations, never pointers.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};
use rustix::fs::FallocateFlags;

use crate::geometry::Geometry;
use crate::private_file::{PrivateFileError, create_private_file, open_private_file};

/// A stretch of memory with room for a whole [`Geometry`], of which only committed ranges use real memory.
///
/// # Safety
/// For the life of the value, `base()` must not change and must be valid for reads and writes of `len()` bytes by
/// any thread; the bytes must be initialised (zero until written), and nobody else may write them.
/// `discard` may only turn the bytes of its range into zeros.
pub unsafe trait Tier: Send + Sync + fmt::Debug {
    /// Start of the memory, aligned to a page.
    fn base(&self) -> NonNull<u8>;
    /// Bytes of address space.
    fn len(&self) -> usize;
    /// Never.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Gives `[at, at + len)` real memory now, so that no later store faults or is killed by SIGBUS.
    ///
    /// # Errors
    /// What the system says when there is no memory or, for a file, no space.
    fn commit(&self, at: usize, len: usize) -> io::Result<()>;
    /// Gives the memory of `[at, at + len)` back; it reads as zeros afterwards.
    ///
    /// # Errors
    /// What the system says; the range is unchanged then.
    fn discard(&self, at: usize, len: usize) -> io::Result<()>;
    /// Whether what is committed outlives a process that is killed.
    fn survives_process(&self) -> bool;
}

/// Why a tier's memory can't be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// No address space.
    #[error("can't reserve {len} bytes of address space ({source}): lower the memory budget or raise `ulimit -v`")]
    Map {
        /// Bytes asked for.
        len: usize,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is not private, not ours, in use, or can't be opened.
    #[error("shared-memory log: {0}")]
    File(#[from] PrivateFileError),
    /// The file can't be given its length.
    #[error("shared-memory log {}: {source}", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Anonymous memory: fast to set up, gone with the process. Ordinary chunks beyond the first 2 MiB lie in large pages, where
/// the system has them: what is written to a disk from there is then one piece, and not a piece for each page.
#[derive(Debug)]
pub struct Volatile {
    map: MmapRaw,
}

impl Volatile {
    /// Reserves room for `geometry`.
    ///
    /// # Errors
    /// [`TierError::Map`] where address space is limited.
    pub fn reserve(geometry: &Geometry) -> Result<Volatile, TierError> {
        let len = geometry.len();
        let map = MmapOptions::new()
            .len(len)
            .no_reserve_swap()
            .map_anon()
            .map_err(|source| TierError::Map { len, source })?;
        let map = MmapRaw::from(map);
        if let Some((at, len)) = geometry.large_pages() {
            // Where it is refused, pages are small.
            let _ = map.advise_range(Advice::HugePage, at, len);
        }
        Ok(Volatile { map })
    }
}

// SAFETY: MmapRaw keeps one mapping of fixed address and length, readable and writable, until it is dropped; it is
// private and anonymous, so zero at first and nobody else's. MADV_DONTNEED makes private anonymous pages zero (madvise(2)).
unsafe impl Tier for Volatile {
    fn base(&self) -> NonNull<u8> {
        non_null(&self.map)
    }

    fn len(&self) -> usize {
        self.map.len()
    }

    fn commit(&self, at: usize, len: usize) -> io::Result<()> {
        populate(&self.map, at, len)
    }

    fn discard(&self, at: usize, len: usize) -> io::Result<()> {
        // SAFETY: the pool discards only blocks that no lane and no cursor uses, so nobody relies on the bytes.
        unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, at, len) }
    }

    fn survives_process(&self) -> bool {
        false
    }
}

/// A private shared-memory file, locked for as long as its process lives.
#[derive(Debug)]
pub struct ProcessCrashSafe {
    map: MmapRaw,
    file: File,
    path: PathBuf,
}

impl ProcessCrashSafe {
    /// Creates the file; it must not exist.
    ///
    /// # Errors
    /// Says why the file can't be created, sized or mapped; it is removed again then.
    pub fn create(path: &Path, geometry: &Geometry) -> Result<ProcessCrashSafe, TierError> {
        let file = create_private_file(path)?;
        let made = rustix::fs::ftruncate(&file, geometry.len() as u64)
            .map_err(|errno| TierError::Size { path: path.to_owned(), source: errno.into() })
            .and_then(|()| Self::map(file, path));
        if made.is_err() {
            // The first error is the one to report.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    /// Opens and locks the file of a dead process. Its contents are not looked at.
    ///
    /// # Errors
    /// Refuses a file that a living process holds, that another user owns, that others may open, or that is a link.
    pub fn open(path: &Path) -> Result<ProcessCrashSafe, TierError> {
        Self::map(open_private_file(path)?, path)
    }

    fn map(file: File, path: &Path) -> Result<ProcessCrashSafe, TierError> {
        let size = |source| TierError::Size { path: path.to_owned(), source };
        let len = usize::try_from(file.metadata().map_err(size)?.len())
            .map_err(|_| size(io::ErrorKind::FileTooLarge.into()))?;
        if len == 0 {
            // An empty mapping is an error of its own to mmap; say what it means here.
            return Err(size(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is empty")));
        }
        let map = MmapOptions::new().len(len).map_raw(&file).map_err(|source| TierError::Map { len, source })?;
        Ok(ProcessCrashSafe { map, file, path: path.to_owned() })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The ranges of the file that have memory, as (start, end): what a recovery has to look at.
    pub(crate) fn allocated(&self) -> io::Result<Vec<(usize, usize)>> {
        let mut ranges = Vec::new();
        let mut at = 0u64;
        loop {
            // ENXIO: no data at or after this offset (lseek(2)).
            let start = match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(rustix::io::Errno::NXIO) => return Ok(ranges),
                Err(errno) => return Err(errno.into()),
            };
            at = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Hole(start))?;
            ranges.push((start as usize, at as usize));
        }
    }
}

// SAFETY: MmapRaw keeps one shared mapping of fixed address and length until it is dropped. The file is ours alone:
// mode 0600, exclusively created or locked, so no well-behaved process writes it; it is never shortened, and `commit`
// gives every page that is used its memory first, so no access is answered by SIGBUS. Punched holes read as zeros
// (fallocate(2)).
unsafe impl Tier for ProcessCrashSafe {
    fn base(&self) -> NonNull<u8> {
        non_null(&self.map)
    }

    fn len(&self) -> usize {
        self.map.len()
    }

    fn commit(&self, at: usize, len: usize) -> io::Result<()> {
        rustix::fs::fallocate(&self.file, FallocateFlags::empty(), at as u64, len as u64)?;
        populate(&self.map, at, len)
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

/// Touches the pages now: a fault costs microseconds, more than everything else in an append together.
fn populate(map: &MmapRaw, at: usize, len: usize) -> io::Result<()> {
    match map.advise_range(Advice::PopulateWrite, at, len) {
        // Before Linux 5.14 there is no such advice: the pages fault in on first use, which is slower but right.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => Ok(()),
        other => other,
    }
}
