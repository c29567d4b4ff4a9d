//! The durable tier against the disk's own rate.
//!
//! The floor is a naked ring ([`NakedRing`]): as many blocks of the same size in flight, the same bytes, past the page
//! cache, and nothing else. Floor, store, and the store without checksums take turns.

pub mod recover;
pub mod replay;
pub mod spill;
pub mod spilling;

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use counterfoil::{OpenError, ReplayError};
use counterfoil_log_io::naked::{NakedRing, Way, open_direct};
use counterfoil_log_io::{BackendChoice, BackendOptions, Directory, DirectoryError, StorageBackend, StoreError};
use rustix::fs::FallocateFlags;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::measure::quantile;
use crate::scratch::Scratch;

/// Blocks that are read at a time, in the floor; the store's buffers are two more. How many are written at a time,
/// [`writes_in_flight`](counterfoil_log_io::naked::writes_in_flight) says, for both.
pub const DEPTH: usize = 8;
/// Bytes of the blocks that are measured.
pub const BLOCKS: [usize; 3] = [64 << 10, 256 << 10, 1 << 20];
/// Ways to the disk that are measured.
pub const BACKENDS: [BackendChoice; 2] = [BackendChoice::IoUring, BackendChoice::Pwrite];

/// How long to measure, and where.
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// Rounds, each with one turn of everything. At least 15 for a median to quote.
    pub rounds: usize,
    /// Bytes of one turn; a multiple of 1 MiB.
    pub turn_bytes: u64,
    /// A directory on the disk to be measured.
    pub dir: PathBuf,
}

impl Default for DiskOptions {
    /// 15 rounds of 64 MiB, in `/var/tmp`, or in the temporary directory where there is none.
    fn default() -> DiskOptions {
        let var_tmp = PathBuf::from("/var/tmp");
        let dir = if var_tmp.is_dir() { var_tmp } else { std::env::temp_dir() };
        DiskOptions { rounds: 15, turn_bytes: 64 << 20, dir }
    }
}

/// One line of a table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `io_uring` or `pwrite`.
    pub backend: &'static str,
    /// Bytes of a block.
    pub block: usize,
    /// Payload in bytes.
    pub size: usize,
    /// Speed of the store, in 10^6 bytes on the disk a second.
    pub mb_per_s: f64,
    /// Speed of the floor.
    pub floor_mb_per_s: f64,
    /// Median of the rounds' ratios of the two speeds.
    pub ratio: f64,
    /// A quarter of the ratios lie below this.
    pub ratio_p25: f64,
    /// A quarter of the ratios lie above this.
    pub ratio_p75: f64,
    /// Processor time of the process by wall time while the store works: the share of one core.
    pub cpu_share: f64,
    /// The same without checksums.
    pub cpu_share_without_checksums: f64,
    /// The same of the floor.
    pub floor_cpu_share: f64,
    /// Rounds.
    pub rounds: usize,
}

/// Why something can't be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The directory of the store can't be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// No directory, or no log in it.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Records can't be read back.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The records to be written can't be put into memory.
    #[error("the records to be written can't be put into memory: {0}")]
    Memory(String),
    /// The floor failed. Without `O_DIRECT` there is nothing to compare with: the page cache would answer.
    #[error(
        "the naked ring can't {action} {}: {source}; the benchmark needs io_uring and a file system with O_DIRECT: \
         choose a directory on one with --dir", path.display()
    )]
    Floor {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// For the many errors of putting records into memory.
pub(crate) fn no_memory(error: impl Display) -> DiskError {
    DiskError::Memory(error.to_string())
}

/// How long something took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    wall: Duration,
    cpu: Duration,
}

impl Turn {
    /// Times `work`.
    ///
    /// # Errors
    /// Its own.
    pub fn of<E>(work: impl FnOnce() -> Result<(), E>) -> Result<Turn, E> {
        let (start, before) = (Instant::now(), cpu_time());
        work()?;
        Ok(Turn { wall: start.elapsed(), cpu: cpu_time().saturating_sub(before) })
    }

    /// How long it took.
    pub fn wall(self) -> Duration {
        self.wall
    }

    /// Bytes a second, where so many were moved.
    pub fn speed(self, bytes: u64) -> f64 {
        bytes as f64 / self.wall.as_secs_f64()
    }

    /// Processor time by wall time.
    pub fn cpu_share(self) -> f64 {
        self.cpu.as_secs_f64() / self.wall.as_secs_f64()
    }
}

/// Processor time of all threads of this process, also of those that the kernel runs for it.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Measures every one of these backends, every block and every payload.
fn each(
    options: &DiskOptions,
    backends: &[BackendChoice],
    one: impl Fn(&DiskOptions, &Scratch, (BackendChoice, usize, usize)) -> Result<Row, DiskError>,
) -> Result<Vec<Row>, DiskError> {
    let scratch = Scratch::new_in(&options.dir)?;
    let mut rows = Vec::new();
    for &backend in backends {
        for block in BLOCKS {
            for size in spill::SIZES {
                rows.push(one(options, &scratch, (backend, block, size))?);
            }
        }
    }
    Ok(rows)
}

/// Bytes that moved in each of the three kinds of turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes {
    pub(crate) floor: u64,
    pub(crate) store: u64,
}

/// Turns of the floor, of the store, and of the store without checksums.
type Work<'a> = dyn FnMut() -> Result<Turn, DiskError> + 'a;

/// Lets the three take turns, in an order that changes from round to round, and makes a row of it.
pub(crate) fn interleave(
    options: &DiskOptions,
    (backend, block, size): (BackendChoice, usize, usize),
    bytes: Bytes,
    works: [&mut Work<'_>; 3],
) -> Result<Row, DiskError> {
    let mut turns: Vec<[Turn; 3]> = Vec::new();
    // The first round warms everything up.
    for round in 0..=options.rounds.max(1) {
        let mut these = [Turn::default(); 3];
        for next in 0..3 {
            let which = (round + next) % 3;
            these[which] = works[which]()?;
        }
        turns.push(these);
    }
    let turns = &turns[1..];
    let speed = |bytes: u64, turn: Turn| turn.speed(bytes) / 1e6;
    let all = |f: &dyn Fn(&[Turn; 3]) -> f64, q| quantile(turns.iter().map(f), q);
    let ratio = |[floor, store, _]: &[Turn; 3]| speed(bytes.store, *store) / speed(bytes.floor, *floor);
    Ok(Row {
        backend: name(backend),
        block,
        size,
        mb_per_s: all(&|turns| speed(bytes.store, turns[1]), 0.5),
        floor_mb_per_s: all(&|turns| speed(bytes.floor, turns[0]), 0.5),
        ratio: all(&ratio, 0.5),
        ratio_p25: all(&ratio, 0.25),
        ratio_p75: all(&ratio, 0.75),
        cpu_share: all(&|turns| turns[1].cpu_share(), 0.5),
        cpu_share_without_checksums: all(&|turns| turns[2].cpu_share(), 0.5),
        floor_cpu_share: all(&|turns| turns[0].cpu_share(), 0.5),
        rounds: turns.len(),
    })
}

fn name(backend: BackendChoice) -> &'static str {
    match backend {
        BackendChoice::Pwrite => "pwrite",
        BackendChoice::IoUring | BackendChoice::Auto => "io_uring",
    }
}

/// A directory of its own in `scratch`, and in it that of a store of rank 0, to be written in this way.
pub(crate) fn directory(
    scratch: &Scratch,
    choice: BackendChoice,
    block: usize,
) -> Result<(PathBuf, Box<dyn StorageBackend>), DiskError> {
    let dir = scratch.fresh_dir()?;
    let backend = reopen(&dir, choice, block)?;
    Ok((dir, backend))
}

/// The same directory again.
pub(crate) fn reopen(dir: &Path, choice: BackendChoice, block: usize) -> Result<Box<dyn StorageBackend>, DiskError> {
    let mut options = BackendOptions::from(choice);
    // One of them is being filled, and one has come back.
    (options.buffers, options.buffer_bytes) = (DEPTH + 2, block);
    Ok(Directory::create(&dir.join("rank-0"), options)?.0)
}

/// The naked ring on files of one directory.
#[derive(Debug)]
pub struct Floor {
    ring: NakedRing,
    block: usize,
}

impl Floor {
    /// With blocks of this size, `depth` of them in flight.
    ///
    /// # Errors
    /// [`DiskError::Floor`].
    pub fn new(block: usize, depth: usize) -> Result<Floor, DiskError> {
        let ring = NakedRing::new(depth, block);
        Ok(Floor { ring: ring.map_err(failed("be set up beside", Path::new("/proc/self")))?, block })
    }

    /// Writes a new file that has its place on the disk, and syncs it. Making it and removing it are not timed.
    ///
    /// # Errors
    /// [`DiskError::Floor`].
    pub fn write(&mut self, path: &Path, bytes: u64) -> Result<Turn, DiskError> {
        let file = open_direct(path, Way::Write).map_err(failed("open", path))?;
        let mut written = || {
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
            Turn::of(|| {
                self.ring.run(Way::Write, &file, bytes)?;
                file.sync_data()
            })
        };
        let turn = written().map_err(failed("write", path));
        std::fs::remove_file(path).map_err(failed("remove", path))?;
        turn
    }

    /// Reads these files from start to end.
    ///
    /// # Errors
    /// [`DiskError::Floor`].
    pub fn read(&mut self, files: &[(PathBuf, u64)]) -> Result<Turn, DiskError> {
        Turn::of(|| {
            for (path, bytes) in files {
                let file = open_direct(path, Way::Read).map_err(failed("open", path))?;
                self.ring.run(Way::Read, &file, *bytes).map_err(failed("read", path))?;
            }
            Ok(())
        })
    }

    /// What [`read`](Self::read) reads of `files`: whole blocks.
    pub fn bytes_of(&self, files: &[(PathBuf, u64)]) -> u64 {
        files.iter().map(|(_, bytes)| bytes / self.block as u64 * self.block as u64).sum()
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
    let path = path.to_owned();
    move |source| DiskError::Floor { action, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loop_runs_and_is_measured() {
        let options = DiskOptions { rounds: 2, turn_bytes: 2 << 20, dir: std::env::temp_dir() };
        let scratch = Scratch::new_in(&options.dir).expect("a scratch directory");
        let block = 64 << 10;
        let measured = [
            spill::one(&options, &scratch, (BackendChoice::Pwrite, block, 1024)),
            recover::one(&options, &scratch, (BackendChoice::Pwrite, block, 1024)),
            replay::one(&options, &scratch, (BackendChoice::Auto, block, 1024)),
        ];
        for row in measured {
            match row {
                Ok(row) => {
                    assert_eq!(row.rounds, 2);
                    assert!(
                        row.mb_per_s > 0.0 && row.floor_mb_per_s > 0.0 && row.ratio_p25 <= row.ratio_p75,
                        "{row:?}"
                    );
                }
                // A kernel without io_uring, a file system without O_DIRECT.
                Err(DiskError::Floor { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}
