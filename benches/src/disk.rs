//! The durable tier, compared with the disk's own rate.
//!
//! The floor is a naked ring ([`NakedRing`]): as many blocks in flight with the same size, the same bytes, direct I/O,
//! and nothing else. In a round, the store and the store without checksums take turns between two turns of the floor,
//! the second of which is the control: a disk whose rate changes makes them differ.

pub mod recover;
pub mod replay;
pub mod spill;
pub mod spilling;

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use counterfoil::{OpenError, ReplayError};
use counterfoil_log_io::{BackendChoice, BackendOptions, Directory, DirectoryError, StorageBackend, StoreError};
use counterfoil_naked_ring::{Direction, NakedRing, open_direct};
use rustix::fs::FallocateFlags;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::measure::quantile;
use crate::scratch::Scratch;

/// Blocks in flight when the floor reads; the store has two buffers more.
///
/// The number of blocks written at a time is [`chunk_writes_max`](counterfoil_log_io::chunk_writes_max) for both.
pub const DEPTH: usize = 8;
/// Measured block sizes, in bytes.
pub const BLOCKS: [usize; 3] = [64 << 10, 256 << 10, 1 << 20];
/// Measured backends.
pub const BACKENDS: [BackendChoice; 2] = [BackendChoice::IoUring, BackendChoice::Pwrite];

/// Measurement length and directory.
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// Number of rounds, each with one turn of everything and two of the floor.
    ///
    /// At least 15 for a meaningful median; up to four times as many while the control differs from the floor.
    pub rounds: usize,
    /// Bytes in one turn, a multiple of 1 MiB.
    pub turn_bytes: u64,
    /// A directory on the measured disk.
    pub dir: PathBuf,
}

impl Default for DiskOptions {
    /// Returns 15 rounds of 64 MiB, in `/var/tmp`, or in the temporary directory if there is none.
    fn default() -> DiskOptions {
        let var_tmp = PathBuf::from("/var/tmp");
        let dir = if var_tmp.is_dir() { var_tmp } else { std::env::temp_dir() };
        DiskOptions { rounds: 15, turn_bytes: 64 << 20, dir }
    }
}

/// A line in a table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `io_uring` or `pwrite`.
    pub backend: &'static str,
    /// Block size in bytes.
    pub block: usize,
    /// Payload in bytes.
    pub size: usize,
    /// Store speed, in 10^6 bytes on disk per second.
    pub mb_per_s: f64,
    /// Floor speed.
    pub floor_mb_per_s: f64,
    /// Median of the rounds' speed ratios, to the mean of the floor before and after.
    pub ratio: f64,
    /// Lower quartile of the ratios.
    pub ratio_p25: f64,
    /// Upper quartile of the ratios.
    pub ratio_p75: f64,
    /// Processor time divided by wall time in the store's turns, as a share of one core.
    pub cpu_share: f64,
    /// Share of one core without checksums.
    pub cpu_share_without_checksums: f64,
    /// Share of one core for the floor.
    pub floor_cpu_share: f64,
    /// Median ratio of the control's speed to the floor's.
    pub control: f64,
    /// Lower quartile of the control's ratios.
    pub control_p25: f64,
    /// Upper quartile of the control's ratios.
    pub control_p75: f64,
    /// False if the disk's rate varies too much for a statement: see [`is_steady`].
    pub is_steady: bool,
    /// Number of rounds.
    pub rounds: usize,
}

/// A disk benchmark error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// A store error.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store's directory can't be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The directory or the log can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Records can't be read back.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The records to be written can't be put into memory.
    #[error("the records to be written can't be put into memory: {0}")]
    Memory(String),
    /// The floor failed.
    ///
    /// Without `O_DIRECT` the floor would measure the page cache instead of the disk.
    #[error(
        "the naked ring can't {action} {}: {source}; the benchmark needs io_uring and a file system with O_DIRECT: \
         choose a directory on one with --dir", path.display()
    )]
    Floor {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

/// Converts an error putting records into memory.
pub(crate) fn no_memory(error: impl Display) -> DiskError {
    DiskError::Memory(error.to_string())
}

/// Wall and processor time for a turn.
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

    /// Returns the wall time.
    pub fn wall(self) -> Duration {
        self.wall
    }

    /// Returns the speed in bytes per second for a turn that moved `bytes`.
    pub fn speed(self, bytes: u64) -> f64 {
        bytes as f64 / self.wall.as_secs_f64()
    }

    /// Returns processor time divided by wall time.
    pub fn cpu_share(self) -> f64 {
        self.cpu.as_secs_f64() / self.wall.as_secs_f64()
    }
}

/// Returns the processor time of all threads in this process, including kernel threads working for it.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Measures each combination of backend, block and payload.
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

/// Bytes moved in a turn, for the floor and for the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes {
    pub(crate) floor: u64,
    pub(crate) store: u64,
}

/// A turn of the floor, of the store, or of the store without checksums.
type Work<'a> = dyn FnMut() -> Result<Turn, DiskError> + 'a;

/// Turns of a round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Before the store's turns, and after them.
    floors: [Turn; 2],
    checked: Turn,
    unchecked: Turn,
}

impl Round {
    /// Returns the control's speed by the floor's.
    fn control(&self) -> f64 {
        self.floors[0].wall.as_secs_f64() / self.floors[1].wall.as_secs_f64()
    }

    /// Returns the floor's mean speed.
    fn floor_speed(&self, bytes: u64) -> f64 {
        self.floors.map(|floor| floor.speed(bytes)).iter().sum::<f64>() / 2.0
    }
}

/// Number of rounds for an unsteady disk, as a multiple of those asked for.
const UNSTEADY_ROUNDS: usize = 4;
/// Largest difference of the control from the floor, and largest error of its median.
const STEADY: f64 = 0.05;

/// Returns `true` if the control's median is within 0.05 of the floor, and certain within 0.05: its quartile range by
/// the root of the number of rounds.
pub fn is_steady(controls: &[f64]) -> bool {
    let at = |q| quantile(controls.iter().copied(), q);
    let error = (at(0.75) - at(0.25)) / (controls.len() as f64).sqrt();
    (at(0.5) - 1.0).abs() <= STEADY && error <= STEADY
}

/// Measures the two stores between two turns of the floor, in an order changing from round to round.
///
/// Returns the row.
pub(crate) fn interleave(
    options: &DiskOptions,
    (backend, block, size): (BackendChoice, usize, usize),
    bytes: Bytes,
    floor: &mut Work<'_>,
    [checked, unchecked]: [&mut Work<'_>; 2],
) -> Result<Row, DiskError> {
    let mut one = |number: usize| -> Result<Round, DiskError> {
        let mut round = Round::default();
        round.floors[0] = floor()?;
        if number.is_multiple_of(2) {
            (round.checked, round.unchecked) = (checked()?, unchecked()?);
        } else {
            (round.unchecked, round.checked) = (unchecked()?, checked()?);
        }
        round.floors[1] = floor()?;
        Ok(round)
    };
    // A warm-up.
    one(0)?;
    let least = options.rounds.max(1);
    let (mut rounds, mut controls) = (Vec::new(), Vec::new());
    while rounds.len() < least || (rounds.len() < UNSTEADY_ROUNDS * least && !is_steady(&controls)) {
        let round = one(rounds.len())?;
        rounds.push(round);
        controls.push(round.control());
    }
    let all = |f: &dyn Fn(&Round) -> f64, q| quantile(rounds.iter().map(f), q);
    let ratio = |round: &Round| round.checked.speed(bytes.store) / round.floor_speed(bytes.floor);
    Ok(Row {
        backend: name(backend),
        block,
        size,
        mb_per_s: all(&|round| round.checked.speed(bytes.store) / 1e6, 0.5),
        floor_mb_per_s: all(&|round| round.floor_speed(bytes.floor) / 1e6, 0.5),
        ratio: all(&ratio, 0.5),
        ratio_p25: all(&ratio, 0.25),
        ratio_p75: all(&ratio, 0.75),
        cpu_share: all(&|round| round.checked.cpu_share(), 0.5),
        cpu_share_without_checksums: all(&|round| round.unchecked.cpu_share(), 0.5),
        floor_cpu_share: all(&|round| round.floors[0].cpu_share(), 0.5),
        control: all(&Round::control, 0.5),
        control_p25: all(&Round::control, 0.25),
        control_p75: all(&Round::control, 0.75),
        is_steady: is_steady(&controls),
        rounds: rounds.len(),
    })
}

fn name(backend: BackendChoice) -> &'static str {
    match backend {
        BackendChoice::Pwrite => "pwrite",
        BackendChoice::IoUring | BackendChoice::Auto => "io_uring",
    }
}

/// Creates a directory in `scratch`, with a store directory for rank 0 in it, and opens the latter with this backend.
pub(crate) fn directory(
    scratch: &Scratch,
    choice: BackendChoice,
    block: usize,
) -> Result<(PathBuf, Box<dyn StorageBackend>), DiskError> {
    let dir = scratch.fresh_dir()?;
    let backend = reopen(&dir, choice, block)?;
    Ok((dir, backend))
}

/// Opens the store directory in `dir` with this backend.
pub(crate) fn reopen(dir: &Path, choice: BackendChoice, block: usize) -> Result<Box<dyn StorageBackend>, DiskError> {
    let mut options = BackendOptions::from(choice);
    // In addition, one buffer is being filled, and one is complete.
    (options.buffers, options.buffer_bytes) = (DEPTH + 2, block);
    Ok(Directory::create(&dir.join("rank-0"), options)?.0)
}

/// The floor: a naked ring for writing and reading files.
#[derive(Debug)]
pub struct Floor {
    ring: NakedRing,
    block: usize,
}

impl Floor {
    /// Creates a floor with `depth` blocks in flight, each with `block` bytes.
    ///
    /// # Errors
    /// [`DiskError::Floor`].
    pub fn new(block: usize, depth: usize) -> Result<Floor, DiskError> {
        let ring = NakedRing::new(depth, block);
        Ok(Floor { ring: ring.map_err(failed("be set up for", Path::new("/proc/self")))?, block })
    }

    /// Writes a new preallocated file, and syncs it.
    ///
    /// Creating and removing it is not timed.
    ///
    /// # Errors
    /// [`DiskError::Floor`].
    pub fn write(&mut self, path: &Path, bytes: u64) -> Result<Turn, DiskError> {
        let file = open_direct(path, Direction::Write).map_err(failed("open", path))?;
        let mut written = || {
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
            Turn::of(|| {
                self.ring.run(Direction::Write, &file, bytes)?;
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
                let file = open_direct(path, Direction::Read).map_err(failed("open", path))?;
                self.ring.run(Direction::Read, &file, *bytes).map_err(failed("read", path))?;
            }
            Ok(())
        })
    }

    /// Returns the bytes to be read by [`read`](Self::read) from `files`, whole blocks.
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
    fn a_disk_is_steady_if_the_control_is_near_the_floor_and_certain() {
        assert!(is_steady(&[1.04; 15]) && !is_steady(&[1.06; 15]));
        let spread = |width: f64, rounds: usize| -> Vec<f64> {
            (0..rounds).map(|round| 1.0 + width * (round as f64 / (rounds - 1) as f64 - 0.5)).collect()
        };
        // Half the width is the quartile range.
        assert!(is_steady(&spread(0.3, 15)) && !is_steady(&spread(0.6, 15)) && is_steady(&spread(0.6, 60)));
    }

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
                    assert!((2..=8).contains(&row.rounds) && (row.is_steady || row.rounds == 8), "{row:?}");
                    assert!(
                        row.mb_per_s > 0.0 && row.floor_mb_per_s > 0.0 && row.ratio_p25 <= row.ratio_p75,
                        "{row:?}"
                    );
                }
                // The kernel has no io_uring, or the file system no O_DIRECT.
                Err(DiskError::Floor { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}
