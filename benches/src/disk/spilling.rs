//! Append latency while the store's thread writes to disk.
//!
//! A writer on one core appends far more than its memory budget, at a steady rate sustainable by the disk; the store's
//! thread on the other core spills. The control appends the same messages at the same rate with as much memory and no
//! store, while the other core copies as many bytes.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use counterfoil::{Ack, Epoch, Keep, Log, Options, Phase, Rank, Ssn, StoreOptions, Tier};
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

use super::{DEPTH, DiskError, DiskOptions, Floor, no_memory};
use crate::measure::quantile;
use crate::scratch::Scratch;

/// Measured payloads, in bytes.
pub const SIZES: [usize; 2] = [1 << 10, 4 << 10];
/// Messages timed together.
pub const BATCH: u64 = 64;
/// Append rate, as a share of the disk's rate.
const RATE_PART: f64 = 0.4;
/// Maximum rate, in bytes per second, for two cores to append and copy at the same time.
const RATE_MAX: f64 = 600e6;
/// Bytes in a turn, in multiples of `turn_bytes`: the 99.9th percentile needs thousands of batches.
const TURNS: u64 = 4;
/// Block size in bytes.
const BLOCK: usize = 256 << 10;
/// Memory budget of either log, in bytes.
const MEMORY_BYTES: u64 = 64 << 20;
/// Bytes retained by the control: as many as the spilling log has in memory.
const RETAINED_BYTES: u64 = MEMORY_BYTES / 4 * 3;
/// Bytes by which the receiver's checkpoints lag behind the messages sent: these are on disk.
const COVER_LAG_BYTES: u64 = 256 << 20;
/// Bytes between two receiver checkpoints.
const COVER_EVERY_BYTES: u64 = 4 << 20;
/// Limit of the histogram, in nanoseconds.
const NS_MAX: u64 = 10_000_000_000;
const PREFIX_BYTES: usize = 64;
const PEER: Rank = Rank(1);

/// A line in the table.
///
/// Times are for a batch, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Payload in bytes.
    pub size: usize,
    /// Messages in a batch.
    pub batch: u64,
    /// Append rate, in 10^6 payload bytes per second.
    pub mb_per_s: f64,
    /// True if writer and store had a core each; false if the machine has one core or its cores are unknown.
    pub pinned: bool,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Median for the control.
    pub control_p50_ns: u64,
    /// 99th percentile for the control.
    pub control_p99_ns: u64,
    /// 99.9th percentile for the control.
    pub control_p999_ns: u64,
    /// `p999_ns / control_p999_ns`, over all rounds.
    pub ratio: f64,
    /// Lower quartile of the rounds' own ratios.
    pub ratio_p25: f64,
    /// Upper quartile of the rounds' own ratios.
    pub ratio_p75: f64,
    /// Number of rounds.
    pub rounds: usize,
    /// Number of batches, for the log and for the control.
    pub batches: u64,
}

/// Measures every payload.
///
/// # Errors
/// [`DiskError`].
pub fn run(options: &DiskOptions) -> Result<Vec<Row>, DiskError> {
    let scratch = Scratch::new_in(&options.dir)?;
    SIZES.iter().map(|&size| one(options, &scratch, size)).collect()
}

fn one(options: &DiskOptions, scratch: &Scratch, size: usize) -> Result<Row, DiskError> {
    let dir = scratch.fresh_dir()?;
    let mut floor = Floor::new(BLOCK, DEPTH)?;
    let disk = (0..3).map(|_| Ok(floor.write(&dir.join("naked"), options.turn_bytes)?.speed(options.turn_bytes)));
    let disk: Vec<f64> = disk.collect::<Result<_, DiskError>>()?;
    let rate = (quantile(disk.iter().copied(), 0.5) * RATE_PART).min(RATE_MAX);

    let cores = Cores::of_this_thread();
    // The store's thread inherits the second core.
    cores.use_second();
    let mut spilling = Writer::new(Log::create(log_options(Some(StoreOptions::new(&dir))))?, size, rate);
    cores.use_first();
    let mut control = Writer::new(Log::create(log_options(None))?, size, rate);
    let batches = TURNS * options.turn_bytes / spilling.batch_bytes();
    // Fill both logs to their steady state.
    let filling = 2 * MEMORY_BYTES / spilling.batch_bytes();
    let mut warm_up = histogram()?;
    spilling.turn(filling, &mut warm_up)?;
    control.turn(filling, &mut warm_up)?;

    let (mut all, mut all_control) = (histogram()?, histogram()?);
    let mut ratios = Vec::new();
    for round in 0..options.rounds.max(1) {
        let (mut with, mut without) = (histogram()?, histogram()?);
        for next in 0..2 {
            if (round + next) % 2 == 0 {
                spilling.turn(batches, &mut with)?;
            } else {
                with_copies(&cores, rate, || control.turn(batches, &mut without))?;
            }
        }
        ratios.push(with.value_at_quantile(0.999) as f64 / without.value_at_quantile(0.999) as f64);
        all.add(with).map_err(no_memory)?;
        all_control.add(without).map_err(no_memory)?;
    }
    cores.use_both();
    drop(spilling);
    scratch.remove(&dir);
    let at = |histogram: &Histogram<u64>, quantile| histogram.value_at_quantile(quantile);
    Ok(Row {
        size,
        batch: BATCH,
        mb_per_s: rate / 1e6,
        pinned: cores.are_two(),
        p50_ns: at(&all, 0.5),
        p99_ns: at(&all, 0.99),
        p999_ns: at(&all, 0.999),
        control_p50_ns: at(&all_control, 0.5),
        control_p99_ns: at(&all_control, 0.99),
        control_p999_ns: at(&all_control, 0.999),
        ratio: at(&all, 0.999) as f64 / at(&all_control, 0.999) as f64,
        ratio_p25: quantile(ratios.iter().copied(), 0.25),
        ratio_p75: quantile(ratios.iter().copied(), 0.75),
        rounds: ratios.len(),
        batches: all.len(),
    })
}

fn log_options(store: Option<StoreOptions>) -> Options {
    let mut options = Options::new(Rank(0), 2);
    options.keep = Keep::Checkpoint;
    (options.memory_bytes_max, options.prefault_bytes) = (MEMORY_BYTES as usize, MEMORY_BYTES as usize);
    options.tier = if store.is_some() { Tier::NodeLocal } else { Tier::Volatile };
    options.store = store.map(|store| StoreOptions { block_bytes: BLOCK, ..store });
    options
}

fn histogram() -> Result<Histogram<u64>, DiskError> {
    Histogram::new_with_bounds(1, NS_MAX, 3).map_err(no_memory)
}

/// Appends batches at a steady rate.
struct Writer {
    log: Log,
    payload: Vec<u8>,
    /// Time between the starts of two batches.
    pause: Duration,
    covered: Ssn,
}

impl Writer {
    fn new(log: Log, size: usize, rate: f64) -> Writer {
        let pause = Duration::from_secs_f64((BATCH * size as u64) as f64 / rate);
        Writer { log, payload: vec![7; size], pause, covered: Ssn::ZERO }
    }

    fn batch_bytes(&self) -> u64 {
        BATCH * self.payload.len() as u64
    }

    /// Runs a turn with `batches` batches, and records the time of each.
    fn turn(&mut self, batches: u64, times: &mut Histogram<u64>) -> Result<(), DiskError> {
        let lag = if self.log.options().store.is_some() { COVER_LAG_BYTES } else { RETAINED_BYTES };
        let records = |bytes: u64| bytes / (PREFIX_BYTES + self.payload.len()) as u64;
        let (lag, every) = (records(lag), records(COVER_EVERY_BYTES));
        let mut due = Instant::now();
        for _ in 0..batches {
            while Instant::now() < due {
                std::hint::spin_loop();
            }
            let start = Instant::now();
            let last = self.batch()?;
            times.saturating_record(start.elapsed().as_nanos() as u64);
            let upto = Ssn(last.0.saturating_sub(lag));
            if upto.0 >= self.covered.0 + every {
                self.log.receiver_covered(PEER, Epoch::FIRST, upto).map_err(no_memory)?;
                self.log.collect();
                self.covered = upto;
            }
            // A delay shifts all later batches: the rate isn't increased to catch up.
            due = (due + self.pause).max(start);
        }
        Ok(())
    }

    /// Appends and acknowledges one batch; this is timed.
    fn batch(&mut self) -> Result<Ssn, DiskError> {
        let mut last = Ssn::ZERO;
        for _ in 0..BATCH {
            let mut claim = self.log.claim(PEER, PREFIX_BYTES, self.payload.len()).map_err(no_memory)?;
            let (prefix, payload) = claim.parts_mut();
            prefix.fill(1);
            payload.copy_from_slice(black_box(&self.payload));
            last = claim.commit();
        }
        self.log.acknowledge(PEER, Ack { ssn: last, epoch: Epoch::FIRST }, Phase::default()).map_err(no_memory)?;
        Ok(last)
    }
}

/// Runs `work` while another thread, on the second core, copies memory at this rate.
fn with_copies<T>(cores: &Cores, rate: f64, work: impl FnOnce() -> T) -> T {
    let (stop, copied) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cores.use_second();
            let source = vec![5_u8; MEMORY_BYTES as usize];
            let mut to = vec![0_u8; BLOCK];
            let pause = Duration::from_secs_f64(BLOCK as f64 / rate);
            let mut due = Instant::now();
            for from in source.chunks_exact(BLOCK).cycle() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                to.copy_from_slice(from);
                black_box(&mut to);
                copied.fetch_add(BLOCK as u64, Ordering::Relaxed);
                due += pause;
                // Sleeps when idle, as the store's thread does.
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        });
        // Wait until the thread has allocated its memory.
        while copied.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let result = work();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

/// The first two cores available to this thread.
struct Cores {
    all: Option<CpuSet>,
    two: Option<(CpuSet, CpuSet)>,
}

impl Cores {
    fn of_this_thread() -> Cores {
        let all = sched_getaffinity(None).ok();
        let only = |core| {
            let mut set = CpuSet::new();
            set.set(core);
            set
        };
        let two = all.as_ref().and_then(|all| {
            let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| all.is_set(core));
            Some((only(cores.next()?), only(cores.next()?)))
        });
        Cores { all, two }
    }

    fn are_two(&self) -> bool {
        self.two.is_some()
    }

    fn use_first(&self) {
        self.pin(self.two.as_ref().map(|two| &two.0));
    }

    fn use_second(&self) {
        self.pin(self.two.as_ref().map(|two| &two.1));
    }

    fn use_both(&self) {
        self.pin(self.all.as_ref());
    }

    fn pin(&self, to: Option<&CpuSet>) {
        if let Some(set) = to {
            // The core may be offline by now; then the thread runs on any core.
            let _ = sched_setaffinity(None, set);
        }
    }
}
