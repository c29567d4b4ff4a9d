//! A pool in a shared-memory file: its header, and its recovery by a replacement.
//!
//! ```text
//! offset 0  magic "CFOILSHM"      40  memory_bytes_max
//!        8  version, rank         48  chunk_bytes
//!       16  user id, process id   56  length of the file
//!       24  label                 64  check over the words above
//!       32  0
//! ```
//!
//! A recovery trusts nothing in the file but this header and the chunks: a chunk's header names its lane and its
//! position there, and the commit words show how far it was written. Free lists and chains are built anew; the old
//! links only show whether a chunk within a lane is lost.

use std::path::{Path, PathBuf};

use crate::arena::Arena;
use crate::chunk::{BlockRef, ChunkHeader, ChunkState, read_state, write_state};
use crate::damage::{DamageError, SHARED_LOG_VERSION};
use crate::lane::LaneWriter;
use crate::nouns::Rank;
use crate::options::{HEADER_BYTES, OptionsError, PoolOptions};
use crate::pool::{AllocError, Pool};
use crate::private_file::open_private_file;
use crate::recovered_lane::{RecoveredLane, order_lanes, relink};
use crate::sync::{Arc, Ordering};
use crate::tier::{CopyOnWrite, DeadFile, ProcessCrashSafe, Tier, TierError, Volatile};

const MAGIC: u64 = u64::from_le_bytes(*b"CFOILSHM");
const HEADER_WORDS: usize = 8;

/// Error when setting up a pool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// An option is out of its limits.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The tier's memory is not available.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// The first chunks can't be committed.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// The file is damaged, or belongs to another log.
    #[error("shared-memory log {}: {reason}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The damage, and where it is.
        #[source]
        reason: DamageError,
    },
}

/// Identity of a shared-memory log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The rank.
    pub rank: Rank,
    /// Caller's number to tell a rank's logs apart.
    pub label: u64,
}

impl Pool {
    /// Makes a pool in anonymous memory.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn volatile(options: PoolOptions) -> Result<Arc<Pool>, PoolError> {
        let geometry = options.geometry()?;
        let tier = Volatile::reserve(&geometry)?;
        let pool = Pool::over(Arena::new(Box::new(tier)), geometry, options);
        pool.prefault()?;
        Ok(pool)
    }

    /// Makes a pool in a new shared-memory file.
    ///
    /// The file gets its name when it is complete: a process dying here leaves `<path>.new`, removed by the next
    /// attempt, and never an incomplete file at `path`.
    ///
    /// # Errors
    /// [`PoolError`], also if `path` exists; no file is left then.
    pub fn create(path: &Path, owner: Owner, options: PoolOptions) -> Result<Arc<Pool>, PoolError> {
        let geometry = options.geometry()?;
        let unfinished = unfinished_name(path);
        if open_private_file(&unfinished).is_ok() {
            // Its owner is dead: the lock was free.
            let _ = std::fs::remove_file(&unfinished);
        }
        let tier = ProcessCrashSafe::create(&unfinished, &geometry)?;
        let made = (|| {
            tier.commit(0, HEADER_BYTES).map_err(|source| AllocError::NoMemory { bytes: HEADER_BYTES, source })?;
            let pool = Pool::over(Arena::new(Box::new(tier)), geometry, options);
            let words = header_words(owner, &pool);
            for (index, word) in words.into_iter().enumerate() {
                pool.arena.word(index * 8).store(word, Ordering::Release);
            }
            pool.arena.word(HEADER_WORDS * 8).store(header_check(words), Ordering::Release);
            pool.prefault()?;
            let cwd = rustix::fs::CWD;
            rustix::fs::renameat_with(cwd, &unfinished, cwd, path, rustix::fs::RenameFlags::NOREPLACE)
                .map_err(|errno| TierError::Size { path: path.to_owned(), source: errno.into() })?;
            Ok(pool)
        })();
        if made.is_err() {
            // The first error is the one to report.
            let _ = std::fs::remove_file(&unfinished);
        }
        made
    }

    /// Takes over a dead process's shared-memory log with its lanes: [`examine`] and [`take`] in one.
    ///
    /// # Errors
    /// Errors of both.
    ///
    /// [`examine`]: Pool::examine
    /// [`take`]: DeadLog::take
    pub fn recover(path: &Path, owner: Owner, options: PoolOptions) -> Result<(Arc<Pool>, Vec<LaneWriter>), PoolError> {
        Pool::examine(path, owner, options)?.take()
    }

    /// Locks a dead process's shared-memory log and checks every word needed by a recovery, without a change.
    ///
    /// # Errors
    /// [`PoolError`]: a living owner, another user's file, other options, another version, a file cut short, damage.
    pub fn examine(path: &Path, owner: Owner, options: PoolOptions) -> Result<DeadLog, PoolError> {
        Pool::examine_on::<ProcessCrashSafe>(path, owner, options)
    }

    /// Examines a log like [`examine`](Self::examine), but the file stays as it is, even when the log is taken: a store
    /// copies its page.
    ///
    /// # Errors
    /// See [`examine`](Self::examine).
    pub fn examine_copy(path: &Path, owner: Owner, options: PoolOptions) -> Result<DeadLog, PoolError> {
        Pool::examine_on::<CopyOnWrite>(path, owner, options)
    }

    fn examine_on<T: DeadFile>(path: &Path, owner: Owner, options: PoolOptions) -> Result<DeadLog, PoolError> {
        let geometry = options.geometry()?;
        let tier = T::open(path)?;
        let refused = |reason| PoolError::Refused { path: path.to_owned(), reason };
        let len = tier.len();
        if len < HEADER_BYTES {
            return Err(refused(DamageError::Length { found: len as u64, expected: geometry.len() as u64 }));
        }
        let allocated = tier.allocated().map_err(|source| TierError::Size { path: path.to_owned(), source })?;
        let pool = Pool::over(Arena::new(Box::new(tier)), geometry, options);
        check_header(&pool, owner, len).map_err(refused)?;
        let found = find_chunks(&pool, &allocated).map_err(refused)?;
        let lanes = order_lanes(&pool, found.active).map_err(refused)?;
        Ok(DeadLog { pool, unused: found.unused, lanes })
    }
}

/// A dead process's shared-memory log: locked, checked and unchanged.
///
/// Dropping it leaves the file as it is, for another attempt.
#[derive(Debug)]
pub struct DeadLog {
    pool: Arc<Pool>,
    unused: Vec<BlockRef>,
    lanes: Vec<RecoveredLane>,
}

impl DeadLog {
    /// Iterates over the destinations of lanes with chunks.
    pub fn peers(&self) -> impl Iterator<Item = Rank> + '_ {
        self.lanes.iter().map(|lane| lane.peer)
    }

    /// Takes the log over for writing: returns the pool, and its lanes' writers.
    ///
    /// The lanes have every committed record. All of them count as unacknowledged: the receivers know what they have
    /// received, and acknowledge it again. Unused memory is returned to the system.
    ///
    /// # Errors
    /// [`PoolError::Alloc`] if the system has no memory; another attempt finds the same records.
    pub fn take(self) -> Result<(Arc<Pool>, Vec<LaneWriter>), PoolError> {
        let DeadLog { pool, unused, lanes } = self;
        let discard = |block: &BlockRef| {
            write_state(&pool.arena, block.at(), ChunkState::Free);
            let bytes = pool.block_bytes(*block);
            pool.arena.discard(block.at(), bytes).map_err(|source| AllocError::NoMemory { bytes, source })
        };
        unused.iter().try_for_each(discard)?;
        let kept: Vec<BlockRef> = lanes.iter().flat_map(|lane| lane.chunks.iter().map(|chunk| chunk.block)).collect();
        pool.adopt(&kept);
        for &block in &kept {
            // Every page in a chunk to be written again needs memory now: a store to a hole in the file could get a
            // SIGBUS.
            let bytes = pool.block_bytes(block);
            pool.arena.commit(block.at(), bytes).map_err(|source| AllocError::NoMemory { bytes, source })?;
        }
        lanes.iter().for_each(|lane| relink(&pool, lane));
        // Only now: until then a link may lead to them.
        lanes.iter().flat_map(|lane| &lane.superseded).try_for_each(discard)?;
        let writers = lanes.into_iter().map(|lane| LaneWriter::recovered(pool.clone(), lane)).collect();
        Ok((pool, writers))
    }
}

fn unfinished_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

fn header_words(owner: Owner, pool: &Pool) -> [u64; HEADER_WORDS] {
    let user = u64::from(rustix::process::geteuid().as_raw());
    [
        MAGIC,
        u64::from(SHARED_LOG_VERSION) << 32 | u64::from(owner.rank.0),
        user << 32 | u64::from(std::process::id()),
        owner.label,
        0,
        pool.options.memory_bytes_max as u64,
        pool.options.chunk_bytes as u64,
        pool.geometry.len() as u64,
    ]
}

fn header_check(words: [u64; HEADER_WORDS]) -> u64 {
    words.iter().fold(0, |sum: u64, word| (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29))
}

fn check_header(pool: &Pool, owner: Owner, len: usize) -> Result<(), DamageError> {
    let words: [u64; HEADER_WORDS] = std::array::from_fn(|index| pool.arena.word(index * 8).load(Ordering::Acquire));
    if words[0] != MAGIC {
        return Err(DamageError::NotALog);
    }
    let version = (words[1] >> 32) as u32;
    if version != SHARED_LOG_VERSION {
        return Err(DamageError::Version { found: version });
    }
    if header_check(words) != pool.arena.word(HEADER_WORDS * 8).load(Ordering::Acquire) {
        return Err(DamageError::Damaged { at: 0, what: "the header's check doesn't match" });
    }
    let same = |what, found, expected| match found == expected {
        true => Ok(()),
        false => Err(DamageError::Mismatch { what, found, expected }),
    };
    let asked = header_words(owner, pool);
    same("rank", words[1], asked[1])?;
    same("label", words[3], asked[3])?;
    same("memory_bytes_max", words[5], asked[5])?;
    same("chunk_bytes", words[6], asked[6])?;
    if len as u64 != words[7] || words[7] != asked[7] {
        return Err(DamageError::Length { found: len as u64, expected: words[7] });
    }
    let slack = (HEADER_WORDS + 1) * 8;
    match (slack..HEADER_BYTES).step_by(8).find(|&at| pool.arena.word(at).load(Ordering::Relaxed) != 0) {
        Some(at) => Err(DamageError::Damaged { at, what: "the header page has bytes that no writer writes" }),
        None => Ok(()),
    }
}

/// Blocks in a file, by state.
struct Found {
    active: Vec<(BlockRef, ChunkHeader)>,
    /// Free, staged or never written blocks: their memory is returned to the system.
    unused: Vec<BlockRef>,
}

fn find_chunks(pool: &Pool, allocated: &[(usize, usize)]) -> Result<Found, DamageError> {
    let mut found = Found { active: Vec::new(), unused: Vec::new() };
    for (class, info) in pool.geometry.classes.iter().enumerate() {
        let end = info.region + info.blocks * info.bytes;
        for &(from, to) in allocated.iter().filter(|(from, to)| *from < end && *to > info.region) {
            let first = (from.max(info.region) - info.region) / info.bytes;
            let last = (to.min(end) - info.region).div_ceil(info.bytes);
            for index in first..last {
                let block = BlockRef::new(info.region + index * info.bytes, class);
                // Two ranges can meet in one block.
                if found.unused.last() == Some(&block) || found.active.last().is_some_and(|(last, _)| *last == block) {
                    continue;
                }
                match read_state(&pool.arena, block.at()).0 {
                    ChunkState::Active => {
                        let header = ChunkHeader::read(&pool.arena, block).ok_or(DamageError::Damaged {
                            at: block.at(),
                            what: "a chunk's header doesn't match its check",
                        })?;
                        found.active.push((block, header));
                    }
                    ChunkState::Free | ChunkState::Staged | ChunkState::Untouched => found.unused.push(block),
                    ChunkState::Damaged => {
                        return Err(DamageError::Damaged {
                            at: block.at(),
                            what: "a block's state is one that no writer writes",
                        });
                    }
                }
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file's holes consist of pages, so two allocated ranges may meet inside a block.
    #[test]
    fn a_block_in_two_allocated_ranges_is_found_once() {
        let options =
            PoolOptions { memory_bytes_max: 64 << 10, chunk_bytes: 16 << 10, prefault_bytes: 0, cursors_max: 1 };
        let pool = Pool::volatile(options).unwrap();
        let mut lane = LaneWriter::new(pool.clone(), Rank(1));
        for _ in 0..3 {
            lane.claim(0, 9000).unwrap().commit();
        }
        // The chunks stay in the lane.
        std::mem::forget(lane);
        let len = pool.geometry.len();
        let found = |ranges: &[(usize, usize)]| {
            let Found { active, unused } = find_chunks(&pool, ranges).unwrap();
            (active, unused)
        };
        let (active, unused) = found(&[(0, len)]);
        assert_eq!(active.len(), 3);
        for block in active.iter().map(|(block, _)| block).chain(&unused) {
            let inside = block.at() + pool.block_bytes(*block) / 2;
            assert_eq!(found(&[(0, inside), (inside, len)]), (active.clone(), unused.clone()), "{block:?}");
        }
    }
}
