//! A pool in a shared-memory file: its header, and what a replacement finds there.
//!
//! ```text
//! offset 0  magic "CFOILSHM"      40  memory_bytes_max
//!        8  version, rank         48  chunk_bytes
//!       16  user id, process id   56  length of the file
//!       24  label                 64  check over the words above
//!       32  0
//! ```
//!
//! The file holds the lanes' chunks and nothing else that a recovery trusts: which blocks are in use, in which lane and
//! where, is read from the chunks themselves, and how far each was written from its commit words. Free lists and chains
//! are built anew.

use std::path::{Path, PathBuf};

use crate::arena::Arena;
use crate::chunk::{BlockRef, ChunkHeader, ChunkState, read_state, write_state};
use crate::geometry::HEADER_BYTES;
use crate::lane::LaneWriter;
use crate::nouns::Rank;
use crate::pool::{AllocError, OptionsError, Pool, PoolOptions};
use crate::private_file::open_private_file;
use crate::recovered_lane::{RecoveredLane, order_lanes};
use crate::sync::{Arc, Ordering};
use crate::tier::{ProcessCrashSafe, Tier, TierError, Volatile};

const MAGIC: u64 = u64::from_le_bytes(*b"CFOILSHM");
/// Version of the layout of shared-memory logs. Another version is refused.
pub const SHARED_LOG_VERSION: u32 = 1;
const HEADER_WORDS: usize = 8;

/// Why a pool can't be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// An option is out of its limits.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The memory can't be had.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// The first chunks can't be made ready.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// The file is not what a recovery expects.
    #[error("shared-memory log {}: {reason}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        #[source]
        reason: DamageError,
    },
}

/// What is wrong with a shared-memory log. Nothing in the file was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DamageError {
    /// It doesn't begin as one.
    #[error("not a shared-memory log (no magic at offset 0)")]
    NotALog,
    /// Another version wrote it.
    #[error("version {found}, but this program reads version {SHARED_LOG_VERSION}: use the program that wrote it")]
    Version {
        /// Its version.
        found: u32,
    },
    /// It was made with other limits, or for another rank.
    #[error("it was made with {what} = {found}, but {expected} was asked for")]
    Mismatch {
        /// What differs.
        what: &'static str,
        /// In the file.
        found: u64,
        /// Asked for.
        expected: u64,
    },
    /// It is shorter or longer than its header says.
    #[error("{found} bytes long, expected {expected}: it was cut short")]
    Length {
        /// Bytes of the file.
        found: u64,
        /// Bytes expected.
        expected: u64,
    },
    /// Bytes that no writer wrote.
    #[error("damaged at offset {at}: {what}")]
    Damaged {
        /// Offset in the file.
        at: usize,
        /// What was found there.
        what: &'static str,
    },
}

/// Whose log a shared-memory file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The rank.
    pub rank: Rank,
    /// Which of the rank's logs: any number that the caller likes.
    pub label: u64,
}

impl Pool {
    /// A pool in anonymous memory.
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

    /// A pool in a new shared-memory file.
    ///
    /// The file gets its name when it is complete: a process that dies here leaves `<path>.new`, which the next attempt
    /// removes, and never a file that a recovery would have to guess about.
    ///
    /// # Errors
    /// [`PoolError`], also when `path` exists; no file is left then.
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

    /// Opens the shared-memory log of a dead process, and finds its lanes as they were when it died: [`examine`] and
    /// [`take`] in one.
    ///
    /// # Errors
    /// Those of both.
    ///
    /// [`examine`]: Pool::examine
    /// [`take`]: DeadLog::take
    pub fn recover(path: &Path, owner: Owner, options: PoolOptions) -> Result<(Arc<Pool>, Vec<LaneWriter>), PoolError> {
        Pool::examine(path, owner, options)?.take()
    }

    /// Locks the shared-memory log of a dead process and checks every word of it that a recovery relies on, without
    /// changing any.
    ///
    /// # Errors
    /// [`PoolError`]: a living owner, another user's file, other options, another version, a file cut short, damage.
    pub fn examine(path: &Path, owner: Owner, options: PoolOptions) -> Result<DeadLog, PoolError> {
        let geometry = options.geometry()?;
        let tier = ProcessCrashSafe::open(path)?;
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

/// The shared-memory log of a dead process: locked, sound, and as it was when its process died.
///
/// Dropping it leaves the file as it is, for another attempt.
#[derive(Debug)]
pub struct DeadLog {
    pool: Arc<Pool>,
    unused: Vec<BlockRef>,
    lanes: Vec<RecoveredLane>,
}

impl DeadLog {
    /// The destinations of the lanes that hold anything.
    pub fn peers(&self) -> impl Iterator<Item = Rank> + '_ {
        self.lanes.iter().map(|lane| lane.peer)
    }

    /// Takes the log over: from here on this process owns it and may write.
    ///
    /// All that was committed is there. Every record counts as unacknowledged, because what was acknowledged is known to
    /// those who acknowledged it, and they will say so again. Memory that no record uses is given back.
    ///
    /// # Errors
    /// [`PoolError::Alloc`] where the system has no memory; another attempt finds the same records.
    pub fn take(self) -> Result<(Arc<Pool>, Vec<LaneWriter>), PoolError> {
        let DeadLog { pool, unused, lanes } = self;
        for block in unused.iter().chain(lanes.iter().flat_map(|lane| &lane.superseded)) {
            write_state(&pool.arena, block.at(), ChunkState::Free);
            let bytes = pool.block_bytes(*block);
            pool.arena.discard(block.at(), bytes).map_err(|source| AllocError::NoMemory { bytes, source })?;
        }
        let kept: Vec<BlockRef> = lanes.iter().flat_map(|lane| lane.chunks.iter().map(|chunk| chunk.block)).collect();
        pool.adopt(&kept);
        for &block in &kept {
            // Memory for every page of a chunk that will be written again: a sparse file could fault for want of space.
            let bytes = pool.block_bytes(block);
            pool.arena.commit(block.at(), bytes).map_err(|source| AllocError::NoMemory { bytes, source })?;
        }
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
        Some(at) => Err(DamageError::Damaged { at, what: "the header page has bytes that nobody writes" }),
        None => Ok(()),
    }
}

/// The blocks of a file, by what they hold.
struct Found {
    active: Vec<(BlockRef, ChunkHeader)>,
    /// Free, staged, or never written: their memory can go.
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
                            what: "a block's state is none that is written",
                        });
                    }
                }
            }
        }
    }
    Ok(found)
}
