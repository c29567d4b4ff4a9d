//! States saved by ranks when another one is lost, one file each.
//!
//! They outlive the processes, but not the machine: nothing is synced.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `CFSAVED1` |
//! | 4 | rank |
//! | 4 | generation that loads it |
//! | 8 | number of regions |
//! | 8 for each | length of the region |
//! | | the regions |
//! | 8 | XXH3-64 of all before |
//!
//! Numbers are little-endian.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

pub use counterfoil_log_core::{FoundState, SharedArray, StateMemory, StateMemoryError};
use counterfoil_log_core::{PrivateFileError, create_private_file, has_state};
use xxhash_rust::xxh3::Xxh3Default;
use zerocopy::{FromBytes, Immutable, IntoBytes};

const MAGIC: &[u8; 8] = b"CFSAVED1";
/// Bytes read or written at a time: the checksum finds them in the cache.
const CHUNK_BYTES: usize = 256 << 10;
/// Longest time from a process's end until it releases its files.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(1);
/// Maximum number of regions.
pub const REGIONS_MAX: usize = 1 << 20;

/// Failure to write or read a saved state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedError {
    /// A system call failed.
    #[error("cannot {action} the state in {}: {source}", path.display())]
    Io {
        /// Failed action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Operating system error.
        source: io::Error,
    },
    /// The file can't be made.
    #[error("cannot save the state: {0}")]
    Create(#[from] PrivateFileError),
    /// The state has too many regions.
    #[error("a state of {count} regions, and the limit is {REGIONS_MAX}")]
    TooManyRegions {
        /// Number of regions.
        count: usize,
    },
    /// The file isn't the rank's saved state.
    #[error("the state in {} is damaged: {what}; start the job again, and look for failing memory or disk", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Error in the file.
        what: &'static str,
    },
    /// The program reads another state than the one it saved.
    #[error("the program reads a region of {wanted} bytes from {}, where it has saved {saved:?}", path.display())]
    OtherRegion {
        /// The file.
        path: PathBuf,
        /// Length of the region read by the program.
        wanted: usize,
        /// Length of the saved region; `None` if there is no further one.
        saved: Option<u64>,
    },
}

/// Returns the name of a rank's state for a generation.
fn name(rank: u32, generation: u32) -> String {
    format!("saved-{generation}-{rank}")
}

/// Writes a rank's state for `generation`.
///
/// Returns the number of bytes.
///
/// # Errors
/// [`SavedError`]; then there is no such file.
pub(crate) fn write(directory: &Path, rank: u32, generation: u32, regions: &[&[u8]]) -> Result<u64, SavedError> {
    if regions.len() > REGIONS_MAX {
        return Err(SavedError::TooManyRegions { count: regions.len() });
    }
    let path = directory.join(name(rank, generation));
    let mut file = create_private_file(&path)?;
    write_regions(&mut file, rank, generation, regions).map_err(|source| {
        // A partial file can't be used.
        let _ = fs::remove_file(&path);
        SavedError::Io { action: "save", path, source }
    })
}

fn write_regions(file: &mut File, rank: u32, generation: u32, regions: &[&[u8]]) -> io::Result<u64> {
    let mut head = MAGIC.to_vec();
    head.extend([rank, generation].iter().flat_map(|number| number.to_le_bytes()));
    head.extend((regions.len() as u64).to_le_bytes());
    head.extend(regions.iter().flat_map(|region| (region.len() as u64).to_le_bytes()));
    let mut sum = Xxh3Default::new();
    let mut written = 0;
    for bytes in std::iter::once(&head[..]).chain(regions.iter().copied()) {
        for chunk in bytes.chunks(CHUNK_BYTES) {
            sum.update(chunk);
            file.write_all(chunk)?;
        }
        written += bytes.len() as u64;
    }
    file.write_all(&sum.digest().to_le_bytes())?;
    Ok(written + 8)
}

/// Removes a directory's saved states from generations not wanted by `keeps`.
///
/// # Errors
/// Operating system errors, with the path.
pub(crate) fn remove(directory: &Path, keeps: impl Fn(u32) -> bool) -> Result<(), SavedError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| SavedError::Io { action: "remove", path, source }
    };
    for entry in fs::read_dir(directory).map_err(failed(directory))? {
        let entry = entry.map_err(failed(directory))?;
        let generation = entry.file_name().to_str().and_then(|name| {
            let (generation, rank) = name.strip_prefix("saved-")?.split_once('-')?;
            rank.parse::<u32>().ok()?;
            generation.parse::<u32>().ok()
        });
        if generation.is_some_and(|generation| !keeps(generation)) {
            fs::remove_file(entry.path()).map_err(failed(&entry.path()))?;
        }
    }
    Ok(())
}

/// Returns the file with a rank's state in memory, in the job's directory.
fn memory_path(directory: &Path, rank: u32) -> PathBuf {
    directory.join(format!("state-{rank}"))
}

/// Returns `true` if a rank whose process has ended has left a whole state in memory.
///
/// # Errors
/// See [`has_state`].
pub(crate) fn has_state_in_memory(directory: &Path, rank: u32) -> Result<bool, StateMemoryError> {
    let begun = Instant::now();
    loop {
        match has_state(&memory_path(directory, rank)) {
            // The last file may be closed a little after the process has ended.
            Err(StateMemoryError::File(PrivateFileError::OwnerAlive { .. })) if begun.elapsed() < CLOSE_WAIT_MAX => {
                thread::sleep(Duration::from_millis(1));
            }
            found => return found,
        }
    }
}

/// Place of a rank's state in memory outliving its process.
#[derive(Clone, Debug)]
pub struct StatePlace {
    path: PathBuf,
    has_state: bool,
}

impl StatePlace {
    pub(crate) fn new(directory: &Path, rank: u32, has_state: bool) -> StatePlace {
        StatePlace { path: memory_path(directory, rank), has_state }
    }

    /// Returns `true` if the rank continues with the existing state.
    pub fn has_state(&self) -> bool {
        self.has_state
    }

    /// Opens the memory with the existing state, with array elements of type `T`.
    ///
    /// # Errors
    /// See [`StateMemory::open`].
    pub fn open<T: FromBytes + IntoBytes + Immutable>(&self) -> Result<FoundState<T>, StateMemoryError> {
        StateMemory::open(&self.path)
    }

    /// Makes memory for a state with at most `bytes`, allocated on use.
    ///
    /// An existing state is removed.
    ///
    /// # Errors
    /// See [`StateMemory::create`].
    pub fn create(&self, bytes: usize) -> Result<StateMemory, StateMemoryError> {
        // `create` reports a file that can't be removed.
        let _ = fs::remove_file(&self.path);
        StateMemory::create(&self.path, bytes)
    }
}

/// State saved by a rank when the job failed.
///
/// Its regions are read in order; with the last one, the checksum is verified.
#[derive(Debug)]
pub struct SavedState {
    path: PathBuf,
    file: File,
    /// Lengths of the unread regions, the last one first.
    lens: Vec<u64>,
    sum: Box<Sum>,
}

struct Sum(Xxh3Default);

impl std::fmt::Debug for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sum")
    }
}

impl SavedState {
    /// Opens a rank's state in the first of these directories that has it; `None` if none has.
    pub(crate) fn open(directories: &[PathBuf], rank: u32, generation: u32) -> Result<Option<SavedState>, SavedError> {
        for path in directories.iter().map(|directory| directory.join(name(rank, generation))) {
            match File::open(&path) {
                Ok(file) => return SavedState::begin(path, file, rank, generation).map(Some),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(SavedError::Io { action: "load", path, source }),
            }
        }
        Ok(None)
    }

    fn begin(path: PathBuf, file: File, rank: u32, generation: u32) -> Result<SavedState, SavedError> {
        let mut state = SavedState { path, file, lens: Vec::new(), sum: Box::new(Sum(Xxh3Default::new())) };
        let mut head = [0; 24];
        state.fill(&mut head)?;
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let regions = u64::from(number(16)) | u64::from(number(20)) << 32;
        if head[..8] != *MAGIC || [number(8), number(12)] != [rank, generation] || regions > REGIONS_MAX as u64 {
            return Err(state.damaged("it begins with something else"));
        }
        let mut lens = vec![0; 8 * regions as usize];
        state.fill(&mut lens)?;
        state.lens = lens.as_chunks::<8>().0.iter().rev().map(|len| u64::from_le_bytes(*len)).collect();
        let whole =
            state.lens.iter().try_fold(head.len() as u64 + lens.len() as u64 + 8, |sum, len| sum.checked_add(*len));
        let failed = |source| SavedError::Io { action: "load", path: state.path.clone(), source };
        if whole != Some(state.file.metadata().map_err(failed)?.len()) {
            return Err(state.damaged("it has another length"));
        }
        state.verify_end()?;
        Ok(state)
    }

    fn damaged(&self, what: &'static str) -> SavedError {
        SavedError::Damaged { path: self.path.clone(), what }
    }

    /// Reads into `bytes`.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), SavedError> {
        for chunk in bytes.chunks_mut(CHUNK_BYTES) {
            self.file.read_exact(chunk).map_err(|source| match source.kind() {
                io::ErrorKind::UnexpectedEof => self.damaged("it is too short"),
                _ => SavedError::Io { action: "load", path: self.path.clone(), source },
            })?;
            self.sum.0.update(chunk);
        }
        Ok(())
    }

    fn verify_end(&mut self) -> Result<(), SavedError> {
        if !self.lens.is_empty() {
            return Ok(());
        }
        let mut saved = [0; 8];
        let sum = self.sum.0.digest();
        self.fill(&mut saved)?;
        if u64::from_le_bytes(saved) != sum {
            return Err(self.damaged("its checksum differs"));
        }
        Ok(())
    }

    /// Returns the next region's length in bytes; `None` after the last.
    pub fn next_len(&self) -> Option<u64> {
        self.lens.last().copied()
    }

    /// Reads the next region, with exactly the length of `region`.
    ///
    /// # Errors
    /// [`SavedError::OtherRegion`] for another length; [`SavedError::Damaged`]; [`SavedError::Io`].
    pub fn read_into(&mut self, region: &mut [u8]) -> Result<(), SavedError> {
        let saved = self.next_len();
        if saved != Some(region.len() as u64) {
            return Err(SavedError::OtherRegion { path: self.path.clone(), wanted: region.len(), saved });
        }
        self.lens.pop();
        self.fill(region)?;
        self.verify_end()
    }

    /// Reads the next region.
    ///
    /// # Errors
    /// See [`read_into`](SavedState::read_into).
    pub fn read(&mut self) -> Result<Vec<u8>, SavedError> {
        // At most the length of the file, which was checked.
        let mut region = vec![0; self.next_len().unwrap_or_default() as usize];
        self.read_into(&mut region)?;
        Ok(region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(directory: &Path) -> Result<Vec<Vec<u8>>, SavedError> {
        let mut state = SavedState::open(&[directory.to_owned()], 3, 2)?.unwrap();
        let mut regions = Vec::new();
        while state.next_len().is_some() {
            regions.push(state.read()?);
        }
        Ok(regions)
    }

    #[test]
    fn a_state_is_read_back_region_by_region() {
        let folder = tempfile::tempdir().unwrap();
        let large: Vec<u8> = (0..3 * CHUNK_BYTES + 5).map(|at| at as u8).collect();
        let regions: [&[u8]; 4] = [b"header", &large, b"", b"end"];
        let bytes = write(folder.path(), 3, 2, &regions).unwrap();
        assert_eq!(bytes, fs::metadata(folder.path().join("saved-2-3")).unwrap().len());
        assert_eq!(load(folder.path()).unwrap(), regions.map(<[u8]>::to_vec));
        assert!(matches!(write(folder.path(), 3, 2, &regions), Err(SavedError::Create(_))), "none is overwritten");
        for (rank, generation) in [(3, 1), (2, 2)] {
            assert!(SavedState::open(&[folder.path().to_owned()], rank, generation).unwrap().is_none());
        }
        write(folder.path(), 3, 7, &[]).unwrap();
        assert!(SavedState::open(&[folder.path().to_owned()], 3, 7).unwrap().unwrap().next_len().is_none());
    }

    #[test]
    fn each_byte_that_differs_or_is_missing_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("saved-2-3");
        write(folder.path(), 3, 2, &[b"one", b"", b"two"]).unwrap();
        let saved = fs::read(&path).unwrap();
        for at in 0..saved.len() {
            let mut flipped = saved.clone();
            flipped[at] ^= 0x10;
            fs::write(&path, &flipped).unwrap();
            assert!(matches!(load(folder.path()), Err(SavedError::Damaged { .. })), "{at}");
            fs::write(&path, &saved[..at]).unwrap();
            assert!(matches!(load(folder.path()), Err(SavedError::Damaged { .. })), "{at}");
        }
        fs::write(&path, [&saved[..], b"x"].concat()).unwrap();
        assert!(matches!(load(folder.path()), Err(SavedError::Damaged { .. })));
    }

    #[test]
    fn another_region_than_the_saved_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 3, 2, &[b"one"]).unwrap();
        let mut state = SavedState::open(&[folder.path().to_owned()], 3, 2).unwrap().unwrap();
        let refused = state.read_into(&mut [0; 4]).unwrap_err();
        assert!(matches!(refused, SavedError::OtherRegion { wanted: 4, saved: Some(3), .. }), "{refused}");
        assert_eq!(state.read().unwrap(), b"one");
        assert!(matches!(state.read(), Err(SavedError::OtherRegion { saved: None, .. })));
    }

    #[test]
    fn only_saved_states_of_other_generations_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        for (rank, generation) in [(0, 1), (1, 1), (0, 2)] {
            write(folder.path(), rank, generation, &[]).unwrap();
        }
        for other in ["saved-x-1", "saved-1", "rank-0", "lock"] {
            fs::write(folder.path().join(other), "").unwrap();
        }
        remove(folder.path(), |generation| generation == 2).unwrap();
        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["lock", "rank-0", "saved-1", "saved-2-0", "saved-x-1"]);
    }
}
