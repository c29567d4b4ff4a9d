//! Appending while the disk is being written: does the log's thread feel it?
//!
//! A writer on one core appends at a steady rate that the disk can follow, far beyond its memory budget; the store's thread
//! on the other core spills. The control appends the same messages at the same rate through as much memory, without a
//! store, while the other core copies as many bytes.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use counterfoil::ack::Ack;
use counterfoil::{Epoch, Keep, Log, Options, Phase, Rank, Ssn, StoreOptions, Tier};
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

use super::{DEPTH, DiskError, DiskOptions, Floor, no_memory};
use crate::measure::quantile;
use crate::scratch::Scratch;

/// Payloads that are measured, in bytes.
pub const SIZES: [usize; 2] = [1 << 10, 4 << 10];
/// Messages that are timed together.
pub const BATCH: u64 = 64;
/// The rate of appends is this part of the disk's.
const RATE_PART: f64 = 0.4;
/// The most bytes a second: what two cores can append and copy at the same time.
const RATE_MAX: f64 = 600e6;
/// How many times the bytes of an ordinary turn a turn has: one batch in a thousand needs thousands.
const TURNS: u64 = 4;
/// Bytes of a block.
const BLOCK: usize = 256 << 10;
/// Bytes of memory of either log.
const MEMORY_BYTES: u64 = 64 << 20;
/// Bytes that the control retains: what the log that spills has in memory.
const RETAINED_BYTES: u64 = MEMORY_BYTES / 4 * 3;
/// Bytes on disk behind which the receiver's checkpoints cover what was sent.
const COVERED_BEHIND_BYTES: u64 = 256 << 20;
/// Bytes between two of the receiver's checkpoints.
const COVER_EVERY_BYTES: u64 = 4 << 20;
/// The longest time that is told apart from longer ones.
const NS_MAX: u64 = 10_000_000_000;
const PREFIX_BYTES: usize = 64;
const PEER: Rank = Rank(1);

/// One line of the table. Times are of a batch, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Payload in bytes.
    pub size: usize,
    /// Messages in a batch.
    pub batch: u64,
    /// Bytes of payload that are appended in a second, in 10^6.
    pub mb_per_s: f64,
    /// Whether writer and store had a core each; otherwise the machine has one, or doesn't say.
    pub pinned: bool,
    /// Half of the batches took no longer.
    pub p50_ns: u64,
    /// 99 in 100 batches took no longer.
    pub p99_ns: u64,
    /// 999 in 1,000 batches took no longer.
    pub p999_ns: u64,
    /// The same without spilling.
    pub control_p50_ns: u64,
    /// The same without spilling.
    pub control_p99_ns: u64,
    /// The same without spilling.
    pub control_p999_ns: u64,
    /// `p999_ns` by `control_p999_ns`, over all rounds.
    pub ratio: f64,
    /// A quarter of the rounds' own ratios lie below this.
    pub ratio_p25: f64,
    /// A quarter of the rounds' own ratios lie above this.
    pub ratio_p75: f64,
    /// Rounds.
    pub rounds: usize,
    /// Batches of either kind.
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
    // The store's thread is born on the other core.
    cores.use_second();
    let mut spilling = Writer::new(Log::create(log_options(Some(StoreOptions::new(&dir))))?, size, rate);
    cores.use_first();
    let mut control = Writer::new(Log::create(log_options(None))?, size, rate);
    let batches = TURNS * options.turn_bytes / spilling.batch_bytes();
    // As full as they will be from then on.
    let filling = 2 * MEMORY_BYTES / spilling.batch_bytes();
    let mut unseen = histogram()?;
    spilling.turn(filling, &mut unseen)?;
    control.turn(filling, &mut unseen)?;

    let (mut all, mut all_control) = (histogram()?, histogram()?);
    let mut ratios = Vec::new();
    for round in 0..options.rounds.max(1) {
        let (mut with, mut without) = (histogram()?, histogram()?);
        for next in 0..2 {
            if (round + next) % 2 == 0 {
                spilling.turn(batches, &mut with)?;
            } else {
                beside_copies(&cores, rate, || control.turn(batches, &mut without))?;
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
    /// Between the starts of two batches.
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

    /// A turn: so many batches, each timed.
    fn turn(&mut self, batches: u64, times: &mut Histogram<u64>) -> Result<(), DiskError> {
        let behind = if self.log.options().store.is_some() { COVERED_BEHIND_BYTES } else { RETAINED_BYTES };
        let records = |bytes: u64| bytes / (PREFIX_BYTES + self.payload.len()) as u64;
        let (behind, every) = (records(behind), records(COVER_EVERY_BYTES));
        let mut due = Instant::now();
        for _ in 0..batches {
            while Instant::now() < due {
                std::hint::spin_loop();
            }
            let start = Instant::now();
            let last = self.batch()?;
            times.saturating_record(start.elapsed().as_nanos() as u64);
            let upto = Ssn(last.0.saturating_sub(behind));
            if upto.0 >= self.covered.0 + every {
                self.log.receiver_covered(PEER, Epoch::FIRST, upto).map_err(no_memory)?;
                self.log.collect();
                self.covered = upto;
            }
            // What is late stays late: batches that were waited for are not made up for.
            due = (due + self.pause).max(start);
        }
        Ok(())
    }

    /// What is timed.
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

/// Does `work` while another thread, on the second core, copies memory at this rate.
fn beside_copies<T>(cores: &Cores, rate: f64, work: impl FnOnce() -> T) -> T {
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
                // As the store's thread does, it sleeps where there is nothing to do.
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        });
        // Until it has its memory.
        while copied.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let result = work();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

/// The first two cores that this thread may use.
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
            // A core that went away meanwhile: the thread runs where it may.
            let _ = sched_setaffinity(None, set);
        }
    }
}
