//! Process state in memory outliving the process: the state to save on a peer's failure is there already
//! (Checkpoint-on-Failure in shared memory, Bland et al. 2013, section 5).
//!
//! The memory is a private shared-memory file, and the state is a number of words and arrays in it. An array is changed
//! in place between [`begin_change`](StateMemory::begin_change) and [`publish`](StateMemory::publish); a process killed
//! in between leaves no state. New arrays are filled first and published then, and need no such mark. Space possibly
//! used by the published state is not given to new arrays.
//!
//! | at | bytes | content |
//! |---|---|---|
//! | 0 | 8 | `CFSTATE1` |
//! | 8 | 8 | mark: odd while the state is being changed |
//! | 16 | 8 | where the directory is; 0 before the first one |
//! | 4096 | | directory and arrays, each from a multiple of 64 on |
//!
//! A directory has the number of words (8 bytes), the number of arrays (8), the words, and each array's offset (8) and
//! length in bytes (8). Numbers are little-endian.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::{self, Read};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::private_file::{PrivateFileError, read_private_file};
use crate::tier::{ProcessCrashSafe, Tier, TierError};

const MAGIC: u64 = u64::from_le_bytes(*b"CFSTATE1");
const MARK: usize = 8;
const DIRECTORY: usize = 16;
/// First byte in the space for arrays.
const SPACE: usize = 4096;
/// Array alignment: a cache line.
const UNIT: usize = 64;
/// Memory committed at a time.
const COMMIT_BYTES: usize = 2 << 20;

/// Error for a state's memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateMemoryError {
    /// The file can't be created or opened.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// The file can't be read.
    #[error("the state in memory: {0}")]
    File(#[from] PrivateFileError),
    /// The state has reached its limit.
    #[error("the state in memory needs {wanted} more bytes, and its limit is {limit} bytes: raise the limit")]
    Full {
        /// Array length.
        wanted: usize,
        /// Limit for all arrays, in bytes.
        limit: usize,
    },
    /// The system has no memory.
    #[error("{}: no memory for {wanted} more bytes of the state ({source}): make room in that file system", path.display())]
    NoMemory {
        /// The file.
        path: PathBuf,
        /// Bytes requested.
        wanted: usize,
        /// The system's error.
        source: io::Error,
    },
    /// A system call failed.
    #[error("cannot read the state in {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// An array can't be published.
    #[error("an array of the state is in another memory, or was named twice")]
    OtherArray,
    /// There is no completely published state.
    #[error("there is no state in {}: {what}", path.display())]
    NoState {
        /// The file.
        path: PathBuf,
        /// Reason.
        what: &'static str,
    },
}

/// Memory for this process's state.
#[derive(Clone, Debug)]
pub struct StateMemory {
    shared: Arc<Shared>,
}

/// State left by a process ([`StateMemory::open`]).
#[derive(Debug)]
pub struct FoundState<T> {
    /// The state's memory.
    pub memory: StateMemory,
    /// Its words.
    pub words: Vec<u64>,
    /// Its arrays, in publication order.
    pub arrays: Vec<SharedArray<T>>,
}

#[derive(Debug)]
struct Shared {
    tier: ProcessCrashSafe,
    space: Mutex<Space>,
    /// Held while the mark or the directory is changed.
    changing: Mutex<()>,
}

/// Space for arrays.
#[derive(Debug)]
struct Space {
    /// Free ranges: length by start.
    free: BTreeMap<usize, usize>,
    /// End of committed memory.
    committed: usize,
    /// Ranges of dropped arrays, possibly named by the published directory.
    dropped: Vec<(usize, usize)>,
    /// The published directory.
    directory: Option<(usize, usize)>,
}

impl Space {
    fn new(end: usize) -> Space {
        let free = BTreeMap::from([(SPACE, end - SPACE)]);
        Space { free, committed: SPACE, dropped: Vec::new(), directory: None }
    }

    /// Takes a free range beginning at `at`, or the first one.
    fn take(&mut self, at: Option<usize>, len: usize) -> Option<usize> {
        let fits = |(start, free): (&usize, &usize)| {
            let from = at.unwrap_or(*start);
            (*start <= from && start + free >= from.checked_add(len)?).then_some((*start, *free, from))
        };
        let (start, free, from) = match at {
            Some(at) => self.free.range(..=at).next_back().and_then(fits)?,
            None => self.free.iter().find_map(fits)?,
        };
        self.free.remove(&start);
        if from > start {
            self.free.insert(start, from - start);
        }
        if start + free > from + len {
            self.free.insert(from + len, start + free - from - len);
        }
        Some(from)
    }

    fn give_back(&mut self, (mut start, mut len): (usize, usize)) {
        if let Some((before, free)) = self.free.range(..start).next_back().map(|(before, free)| (*before, *free))
            && before + free == start
        {
            self.free.remove(&before);
            (start, len) = (before, free + len);
        }
        if let Some(free) = self.free.remove(&(start + len)) {
            len += free;
        }
        self.free.insert(start, len);
    }
}

/// Checks that arrays of `T` values are aligned and have a length.
const fn assert_fits<T>() {
    assert!(align_of::<T>() <= UNIT && size_of::<T>() > 0);
}

/// Returns the space taken by an array of so many bytes.
fn space_of(bytes: usize) -> Option<usize> {
    bytes.max(1).checked_next_multiple_of(UNIT)
}

impl Shared {
    fn new(tier: ProcessCrashSafe, len: usize) -> Shared {
        Shared { tier, space: Mutex::new(Space::new(len)), changing: Mutex::new(()) }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= SPACE);
        // SAFETY: the first page is mapped, readable and writable, for the life of `self`, and committed by `create` or
        // there in a file checked by `open`. `at` is in it and aligned, as the base is to a page. All accesses to it
        // are atomic.
        unsafe { AtomicU64::from_ptr(self.tier.base().as_ptr().add(at).cast()) }
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        // Each change to it is complete before anything can panic.
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes committed space.
    fn allocate(&self, bytes: usize) -> Result<usize, StateMemoryError> {
        let limit = self.tier.len() - SPACE;
        let full = || StateMemoryError::Full { wanted: bytes, limit };
        let len = space_of(bytes).ok_or_else(full)?;
        let mut space = self.space();
        let at = space.take(None, len).ok_or_else(full)?;
        let end = at + len;
        if end > space.committed {
            let to = end.next_multiple_of(COMMIT_BYTES).min(self.tier.len());
            if let Err(source) = self.tier.commit(space.committed, to - space.committed) {
                space.give_back((at, len));
                return Err(StateMemoryError::NoMemory { path: self.tier.path().to_owned(), wanted: bytes, source });
            }
            space.committed = to;
        }
        Ok(at)
    }

    fn array<T>(self: &Arc<Self>, at: usize, bytes: usize) -> SharedArray<T> {
        // SAFETY: `at` is in the mapping.
        let start = unsafe { self.tier.base().add(at) }.cast();
        SharedArray { start, len: bytes / size_of::<T>(), at, owner: self.clone() }
    }

    /// Copies `values` into free space.
    ///
    /// Returns where they are.
    fn write<T: IntoBytes + Immutable>(&self, values: &[T]) -> Result<usize, StateMemoryError> {
        let at = self.allocate(size_of_val(values))?;
        // SAFETY: the range is in the mapping. It was free, so nothing else refers to it, and `values` is not in it. It
        // has their length in bytes.
        unsafe { self.tier.base().add(at).copy_from_nonoverlapping(NonNull::from(values).cast(), size_of_val(values)) };
        Ok(at)
    }
}

impl StateMemory {
    /// Creates the file, which must not exist, for arrays of at most `bytes` together.
    ///
    /// Memory is committed as it is needed.
    ///
    /// # Errors
    /// [`StateMemoryError::Tier`].
    pub fn create(path: &Path, bytes: usize) -> Result<StateMemory, StateMemoryError> {
        let full = StateMemoryError::Full { wanted: bytes, limit: isize::MAX as usize };
        let Some(len) = bytes.checked_next_multiple_of(SPACE).and_then(|bytes| bytes.checked_add(2 * SPACE)) else {
            return Err(full);
        };
        let tier = ProcessCrashSafe::create_sized(path, len)?;
        let no_memory = |source| StateMemoryError::NoMemory { path: path.to_owned(), wanted: SPACE, source };
        tier.commit(0, SPACE).map_err(no_memory)?;
        let memory = StateMemory { shared: Arc::new(Shared::new(tier, len)) };
        memory.shared.word(0).store(MAGIC.to_le(), Ordering::Relaxed);
        Ok(memory)
    }

    /// Opens an ended process's file, with its last published state.
    ///
    /// # Errors
    /// [`StateMemoryError::NoState`] if it had none, or was changing it; [`StateMemoryError::Tier`].
    pub fn open<T: FromBytes + IntoBytes + Immutable>(path: &Path) -> Result<FoundState<T>, StateMemoryError> {
        const { assert_fits::<T>() };
        let tier = ProcessCrashSafe::open(path)?;
        let none = |what| StateMemoryError::NoState { path: path.to_owned(), what };
        let len = tier.len();
        if len < 2 * SPACE {
            return Err(none("the file is too short"));
        }
        let shared = Arc::new(Shared::new(tier, len));
        let [magic, mark, directory] =
            [0, MARK, DIRECTORY].map(|at| u64::from_le(shared.word(at).load(Ordering::Acquire)));
        if let Some(what) = why_no_state(magic, mark, directory) {
            return Err(none(what));
        }
        let damaged = || none("its directory is damaged");
        let mut space = Space::new(len);
        // Everything is read into words before an array can change it.
        let words_at = |at: usize, count: usize| -> Option<Vec<u64>> {
            let bytes = count.checked_mul(8)?;
            if at < SPACE || !at.is_multiple_of(8) || at.checked_add(bytes)? > len {
                return None;
            }
            let read = |index: usize| {
                // SAFETY: the range was checked to be in the mapping and aligned, and no array exists yet. Memory never
                // committed is read as zeros or gets a SIGBUS where the file system is full; a directory is in
                // committed memory.
                u64::from_le(unsafe { shared.tier.base().add(at + 8 * index).cast::<u64>().read() })
            };
            Some((0..count).map(read).collect())
        };
        let at = usize::try_from(directory).ok().filter(|at| at.is_multiple_of(UNIT)).ok_or_else(damaged)?;
        let counts = words_at(at, 2).ok_or_else(damaged)?;
        let [words, arrays] = [counts[0], counts[1]].map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        let count =
            arrays.checked_mul(2).and_then(|entries| entries.checked_add(words)).and_then(|all| all.checked_add(2));
        let all = count.and_then(|count| words_at(at, count)).ok_or_else(damaged)?;
        let mut take = |at: usize, bytes: usize| {
            let len = space_of(bytes)?;
            space.committed = space.committed.max(at.checked_add(len)?);
            space.take(Some(at), len)
        };
        take(at, 8 * all.len()).ok_or_else(damaged)?;
        let mut ranges = Vec::with_capacity(arrays);
        for entry in all[2 + words..].chunks_exact(2) {
            let [at, bytes] = [entry[0], entry[1]].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
            // Taken once: no two arrays overlap.
            if !at.is_multiple_of(UNIT) || !bytes.is_multiple_of(size_of::<T>()) || take(at, bytes).is_none() {
                return Err(damaged());
            }
            ranges.push((at, bytes));
        }
        // What comes after may have been committed, or not.
        space.committed = space.committed.next_multiple_of(SPACE).min(len);
        space.directory = space_of(8 * all.len()).map(|len| (at, len));
        *shared.space() = space;
        let arrays = ranges.into_iter().map(|(at, bytes)| shared.array(at, bytes)).collect();
        Ok(FoundState { memory: StateMemory { shared }, words: all[2..2 + words].to_vec(), arrays })
    }

    /// Returns a new array with a copy of `values`.
    ///
    /// It belongs to the state once it is published.
    ///
    /// # Errors
    /// [`StateMemoryError::Full`], [`StateMemoryError::NoMemory`].
    pub fn copy_of<T: FromBytes + IntoBytes + Immutable>(
        &self,
        values: &[T],
    ) -> Result<SharedArray<T>, StateMemoryError> {
        const { assert_fits::<T>() };
        Ok(self.shared.array(self.shared.write(values)?, size_of_val(values)))
    }

    /// Marks the state as being changed, until it is [published](StateMemory::publish).
    pub fn begin_change(&self) {
        let _changing = self.shared.begin_changing();
        let mark = self.shared.word(MARK);
        mark.store((u64::from_le(mark.load(Ordering::Relaxed)) | 1).to_le(), Ordering::Relaxed);
        // The changes come after it.
        fence(Ordering::SeqCst);
    }

    /// Returns `true` if an array is in this memory.
    pub fn has<T>(&self, array: &SharedArray<T>) -> bool {
        Arc::ptr_eq(&self.shared, &array.owner)
    }

    /// Makes these words and arrays the state, as they are now.
    ///
    /// # Errors
    /// [`StateMemoryError::Full`], [`StateMemoryError::NoMemory`]: for the words. [`StateMemoryError::OtherArray`]. The
    /// previous state stays published, and a begun change has not ended.
    pub fn publish<'a, T: 'a>(
        &self,
        words: &[u64],
        arrays: impl ExactSizeIterator<Item = &'a SharedArray<T>>,
    ) -> Result<(), StateMemoryError> {
        let _changing = self.shared.begin_changing();
        let mut directory = Vec::with_capacity(2 + words.len() + 2 * arrays.len());
        let mut places = HashSet::with_capacity(arrays.len());
        directory.extend([words.len() as u64, arrays.len() as u64]);
        directory.extend_from_slice(words);
        for array in arrays {
            if !self.has(array) || !places.insert(array.at) {
                return Err(StateMemoryError::OtherArray);
            }
            directory.extend([array.at as u64, (array.len * size_of::<T>()) as u64]);
        }
        directory.iter_mut().for_each(|word| *word = word.to_le());
        let at = self.shared.write(&directory)?;
        // The directory, and all changes, come before it.
        fence(Ordering::SeqCst);
        self.shared.word(DIRECTORY).store((at as u64).to_le(), Ordering::Release);
        let mark = self.shared.word(MARK);
        let even = (u64::from_le(mark.load(Ordering::Relaxed)) | 1).wrapping_add(1);
        mark.store(even.to_le(), Ordering::Release);
        let mut space = self.shared.space();
        let published = space_of(size_of_val(&directory[..])).map(|len| (at, len));
        let before = std::mem::replace(&mut space.directory, published);
        let unused: Vec<_> = std::mem::take(&mut space.dropped).into_iter().chain(before).collect();
        unused.into_iter().for_each(|range| space.give_back(range));
        Ok(())
    }
}

/// Returns `true` if the file at `path` has a complete state from an ended process.
///
/// # Errors
/// [`StateMemoryError::File`], [`StateMemoryError::Io`].
pub fn has_state(path: &Path) -> Result<bool, StateMemoryError> {
    if !path.exists() {
        return Ok(false);
    }
    let mut file = read_private_file(path)?;
    let mut head = [0; 24];
    match file.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        read => read.map_err(|source| StateMemoryError::Io { path: path.to_owned(), source })?,
    }
    let [magic, mark, directory] =
        [0, MARK, DIRECTORY].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte])));
    Ok(why_no_state(magic, mark, directory).is_none())
}

fn why_no_state(magic: u64, mark: u64, directory: u64) -> Option<&'static str> {
    match () {
        () if magic != MAGIC => Some("it begins with something else"),
        () if directory == 0 => Some("the process had none yet"),
        () if mark % 2 == 1 => Some("the process was changing it when it ended"),
        () => None,
    }
}

/// Array of values in a [`StateMemory`].
pub struct SharedArray<T> {
    start: NonNull<T>,
    len: usize,
    /// Offset in the file.
    at: usize,
    owner: Arc<Shared>,
}

// SAFETY: it owns its range in the mapping, as a `Box<[T]>` owns its allocation; its shared parts are atomic or under a
// mutex.
unsafe impl<T: Send> Send for SharedArray<T> {}
// SAFETY: as above; `&SharedArray` gives `&[T]` only.
unsafe impl<T: Sync> Sync for SharedArray<T> {}

impl<T> Deref for SharedArray<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the range is this array's alone, and mapped as long as `owner` lives. It is aligned, and its bytes
        // are initialised: a copy of `T` values, or bytes from a file, any of which are a `T: FromBytes`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for SharedArray<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for SharedArray<T> {
    fn drop(&mut self) {
        if let Some(len) = space_of(self.len * size_of::<T>()) {
            self.owner.space().dropped.push((self.at, len));
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for SharedArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(not(miri))]
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Folder {
            Folder(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap())
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("state")
        }

        /// Opens the state in the next process.
        fn found(&self) -> Result<(Vec<u64>, Vec<Vec<u32>>), StateMemoryError> {
            let has_state = has_state(&self.path()).unwrap();
            let opened = StateMemory::open::<u32>(&self.path());
            assert_eq!(has_state, opened.is_ok());
            opened.map(|found| (found.words, found.arrays.iter().map(|array| array.to_vec()).collect()))
        }
    }

    #[test]
    fn what_was_published_is_found() {
        let folder = Folder::new();
        assert!(!has_state(&folder.path()).unwrap(), "no file");
        let memory = StateMemory::create(&folder.path(), 1 << 20).unwrap();
        let arrays = [memory.copy_of(&[1_u32, 2, 3]).unwrap(), memory.copy_of(&[]).unwrap()];
        memory.publish(&[7, 8], arrays.iter()).unwrap();
        let unpublished = memory.copy_of(&[9_u32]).unwrap();
        assert!(matches!(has_state(&folder.path()), Err(StateMemoryError::File(PrivateFileError::OwnerAlive { .. }))));
        drop((memory, arrays, unpublished));
        assert_eq!(folder.found().unwrap(), (vec![7, 8], vec![vec![1, 2, 3], vec![]]));
        assert!(matches!(StateMemory::create(&folder.path(), 1), Err(StateMemoryError::Tier(_))), "never overwritten");
    }

    #[test]
    fn a_state_that_was_being_changed_is_not_found() {
        let folder = Folder::new();
        let memory = StateMemory::create(&folder.path(), 1 << 20).unwrap();
        drop(memory.clone());
        let mut array = memory.copy_of(&[1_u32, 2]).unwrap();
        memory.begin_change();
        drop(memory);
        // The array keeps the memory.
        array[0] = 5;
        drop(array);
        assert!(matches!(folder.found(), Err(StateMemoryError::NoState { .. })), "none was published");

        std::fs::remove_file(folder.path()).unwrap();
        let memory = StateMemory::create(&folder.path(), 1 << 20).unwrap();
        let mut array = memory.copy_of(&[1_u32, 2]).unwrap();
        for round in 0..3 {
            memory.publish(&[round], [&array].into_iter()).unwrap();
            memory.begin_change();
            array[0] += 1;
        }
        drop((memory, array));
        assert!(matches!(folder.found(), Err(StateMemoryError::NoState { .. })));
    }

    #[test]
    fn the_next_process_goes_on_with_the_arrays() {
        let folder = Folder::new();
        let memory = StateMemory::create(&folder.path(), 1 << 20).unwrap();
        let arrays = [memory.copy_of(&[1_u32, 2]).unwrap(), memory.copy_of(&[3_u32]).unwrap()];
        memory.publish(&[1], arrays.iter()).unwrap();
        drop((memory, arrays));
        for round in 0..100 {
            let FoundState { memory, words, mut arrays } = StateMemory::open::<u32>(&folder.path()).unwrap();
            assert_eq!((words, &arrays[0][..], &arrays[1][..]), (vec![1], &[1 + round, 2][..], &[3 + round][..]));
            memory.begin_change();
            arrays[0][0] += 1;
            arrays[1] = memory.copy_of(&[4 + round]).unwrap();
            memory.publish(&[1], arrays.iter()).unwrap();
        }
        assert!(std::fs::metadata(folder.path()).unwrap().len() <= (1 << 20) + 2 * SPACE as u64);
    }

    #[test]
    fn a_state_beyond_the_limit_is_refused_and_the_one_before_stays() {
        let folder = Folder::new();
        let memory = StateMemory::create(&folder.path(), 4096).unwrap();
        let array = memory.copy_of(&[1_u32; 512]).unwrap();
        memory.publish(&[], [&array].into_iter()).unwrap();
        let refused = memory.copy_of(&[2_u32; 4096]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the state in memory needs 16384 more bytes, and its limit is 8192 bytes: raise the limit"
        );
        assert!(matches!(memory.publish(&[0; 2048], [&array].into_iter()), Err(StateMemoryError::Full { .. })));
        drop((memory, array));
        assert_eq!(folder.found().unwrap(), (vec![], vec![vec![1; 512]]));
        assert!(matches!(
            StateMemory::create(&folder.path().with_extension("other"), usize::MAX),
            Err(StateMemoryError::Full { .. })
        ));
    }

    #[test]
    fn only_own_arrays_are_published_and_once() {
        let (folder, other) = (Folder::new(), Folder::new());
        let memory = StateMemory::create(&folder.path(), 1 << 20).unwrap();
        let another = StateMemory::create(&other.path(), 1 << 20).unwrap();
        let (own, foreign) = (memory.copy_of(&[1_u32]).unwrap(), another.copy_of(&[2_u32]).unwrap());
        assert!(memory.has(&own) && !memory.has(&foreign));
        memory.publish(&[1], [&own].into_iter()).unwrap();
        for arrays in [[&own, &foreign], [&own, &own]] {
            assert!(matches!(memory.publish(&[2], arrays.into_iter()), Err(StateMemoryError::OtherArray)));
        }
        drop((memory, own));
        assert_eq!(folder.found().unwrap(), (vec![1], vec![vec![1]]));
    }

    #[test]
    fn a_damaged_directory_is_refused() {
        let folder = Folder::new();
        let memory = StateMemory::create(&folder.path(), 1 << 20).unwrap();
        let arrays = [memory.copy_of(&[1_u32; 16]).unwrap(), memory.copy_of(&[2_u32; 16]).unwrap()];
        memory.publish(&[5], arrays.iter()).unwrap();
        drop((memory, arrays));
        let good = std::fs::read(folder.path()).unwrap();
        let directory = u64::from_le_bytes(good[DIRECTORY..][..8].try_into().unwrap()) as usize;
        let entries = directory + 24;
        let damage = |at: usize, word: u64| {
            let mut bytes = good.clone();
            bytes[at..][..8].copy_from_slice(&word.to_le_bytes());
            std::fs::write(folder.path(), bytes).unwrap();
            assert!(matches!(StateMemory::open::<u32>(&folder.path()), Err(StateMemoryError::NoState { .. })), "{at}");
        };
        damage(0, 1);
        damage(MARK, 3);
        for word in [0, 1, 8, directory as u64 + 8, u64::MAX, good.len() as u64, good.len() as u64 - 8] {
            damage(DIRECTORY, word);
        }
        // Word and array counts.
        for count in [u64::MAX, u64::MAX / 2, 1 << 40, 1 << 17] {
            damage(directory, count);
            damage(directory + 8, count);
        }
        // Two arrays in one place; on the directory; outside; half a value long.
        let at = |entry: usize| u64::from_le_bytes(good[entries + 16 * entry..][..8].try_into().unwrap());
        for place in [at(1), directory as u64, 0, u64::MAX, at(0) + 4, good.len() as u64] {
            damage(entries, place);
        }
        for bytes in [63, 65, 128, u64::MAX, u64::MAX - 63] {
            damage(entries + 8, bytes);
        }
        std::fs::write(folder.path(), &good[..100]).unwrap();
        assert!(matches!(StateMemory::open::<u32>(&folder.path()), Err(StateMemoryError::NoState { .. })));
        std::fs::write(folder.path(), &good[..20]).unwrap();
        assert!(!has_state(&folder.path()).unwrap());
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// Replaces an array by a new one with this length.
        Replace(usize, usize),
        /// Changes an array in place.
        Change(usize),
        Publish,
        /// The process ends, and the next one opens the memory.
        End,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..6_usize, 0..300_usize).prop_map(|(array, len)| Step::Replace(array, len)),
            2 => (0..6_usize).prop_map(Step::Change),
            3 => Just(Step::Publish),
            1 => Just(Step::End),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn the_published_state_is_what_is_found_whatever_is_allocated(steps in prop::collection::vec(step(), 1..80)) {
            let folder = Folder::new();
            let mut memory = StateMemory::create(&folder.path(), 1 << 16).unwrap();
            let mut arrays: Vec<SharedArray<u32>> = (0..6).map(|_| memory.copy_of(&[]).unwrap()).collect();
            memory.publish(&[0], arrays.iter()).unwrap();
            let contents = |arrays: &[SharedArray<u32>]| arrays.iter().map(|array| array.to_vec()).collect::<Vec<_>>();
            let (mut published, mut is_changing, mut number) = (contents(&arrays), false, 0);
            for step in steps {
                number += 1;
                match step {
                    Step::Replace(array, len) => arrays[array] = memory.copy_of(&vec![number; len]).unwrap(),
                    Step::Change(array) => {
                        memory.begin_change();
                        arrays[array].iter_mut().for_each(|value| *value ^= number);
                        is_changing = true;
                    }
                    Step::Publish => {
                        memory.publish(&[u64::from(number)], arrays.iter()).unwrap();
                        (published, is_changing) = (contents(&arrays), false);
                    }
                    Step::End => {
                        arrays.clear();
                        drop(memory);
                        prop_assert_eq!(has_state(&folder.path()).unwrap(), !is_changing);
                        if is_changing {
                            return Ok(());
                        }
                        FoundState { memory, arrays, .. } = StateMemory::open(&folder.path()).unwrap();
                        prop_assert_eq!(&contents(&arrays), &published);
                    }
                }
            }
        }
    }
}
