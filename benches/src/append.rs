//! Claim, write, commit and release, compared with a naked copy.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Duration;

use counterfoil::{Ack, Epoch, Error, Keep, Log, Options, Phase, Rank, Ssn, Tier};
use serde::Serialize;

use crate::floor::Ring;
use crate::measure::{Figure, Rounds, RunOptions, interleave, timed};
use crate::scratch::Scratch;

/// Measured payloads, in bytes.
pub const SIZES: [usize; 4] = [64, 256, 1024, 4096];
/// Size of the floor's ring in bytes.
const RING_BYTES: usize = 1 << 20;
/// Memory layouts over which the rounds with one writer are spread.
const PLACES: usize = 8;
/// Messages between two acknowledgements.
const ACK_EVERY: u64 = 32;
/// Bytes of payload between two receiver checkpoints, for `Keep::Checkpoint`.
const CHECKPOINT_EVERY_BYTES: u64 = 256 << 10;
const PEER: Rank = Rank(1);

/// A line in the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Payload in bytes.
    pub size: usize,
    /// Number of threads, each with its own log.
    pub writers: usize,
    /// `volatile` or `process-crash-safe`.
    pub tier: &'static str,
    /// The retention: `acked` if released by acknowledgements, `checkpoint` if retained and collected by checkpoints.
    pub keep: &'static str,
    /// For two writers: the speed of each as a share of one writer's, both relative to floors with as many threads.
    ///
    /// Less than 1 if they slow each other down more than two naked loops do.
    pub scaling: Option<f64>,
    /// The measurement.
    #[serde(flatten)]
    pub figure: Figure,
}

/// Measures every size, tier and writer count.
///
/// # Errors
/// If a log can't be created.
pub fn run(options: &RunOptions) -> Result<Vec<Row>, Error> {
    let scratch = Scratch::new()?;
    let mut rows = Vec::new();
    for tier in [Tier::Volatile, Tier::ProcessCrashSafe] {
        for size in SIZES {
            for keep in [Keep::Acked, Keep::Checkpoint] {
                rows.push(one_writer(options, &scratch, tier, keep, size)?);
            }
        }
        for size in SIZES {
            let mut two = two_writers(options, &scratch, tier, size)?;
            let alone = rows.iter().find(|row| (row.size, row.tier, row.keep) == (two.size, two.tier, two.keep));
            two.scaling = alone.map(|one| one.figure.ratio / two.figure.ratio);
            rows.push(two);
        }
    }
    Ok(rows)
}

/// Measures one thread.
///
/// The addresses of the log's few hot lines change the time of a small append by a fifth (loads wait for earlier stores
/// to the same offset in another page), so the rounds are spread over several memory layouts.
fn one_writer(options: &RunOptions, scratch: &Scratch, tier: Tier, keep: Keep, size: usize) -> Result<Row, Error> {
    let payload = vec![7; size];
    let mut rounds = Rounds::default();
    for (place, in_each) in options.over_places(PLACES) {
        let _elsewhere = black_box(vec![0_u8; 640 * place]);
        let mut log = Box::new(open(scratch, tier, keep)?);
        let mut ring = Ring::new(RING_BYTES);
        let mut number = 0;
        rounds.measure(
            &in_each,
            |ops| timed(|| floor(&mut ring, &mut number, ops, &payload)),
            |ops| timed(|| append(&mut log, ops, &payload)),
        );
    }
    Ok(Row { size, writers: 1, tier: tier.word(), keep: keep.word(), scaling: None, figure: rounds.figure() })
}

/// Measures two threads with a log each; the floor is two threads with a ring each.
///
/// The time is that of the slower thread.
fn two_writers(options: &RunOptions, scratch: &Scratch, tier: Tier, size: usize) -> Result<Row, Error> {
    let mut logs = [open(scratch, tier, Keep::Acked)?, open(scratch, tier, Keep::Acked)?];
    let payload = vec![7; size];
    let mut rings = [(Ring::new(RING_BYTES), 0), (Ring::new(RING_BYTES), 0)];
    let figure = interleave(
        options,
        |ops| both(&mut rings, |(ring, number)| floor(ring, number, ops, &payload)),
        |ops| both(&mut logs, |log| append(log, ops, &payload)),
    );
    Ok(Row { size, writers: 2, tier: tier.word(), keep: Keep::Acked.word(), scaling: None, figure })
}

fn both<T: Send>(each: &mut [T; 2], work: impl Fn(&mut T) + Sync) -> Duration {
    let start = Barrier::new(2);
    let run = |it: &mut T| {
        start.wait();
        timed(|| work(it))
    };
    let [a, b] = each;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(b));
        let mine = run(a);
        // A panic in the other thread makes the time infinite.
        mine.max(other.join().unwrap_or(Duration::MAX))
    })
}

/// Runs the measured loop: `ops` messages in a steady state with acknowledgements.
pub fn append(log: &mut Log, ops: u64, payload: &[u8]) {
    let payload = black_box(payload);
    for _ in 0..ops {
        // The budget is never reached here; a refusal would show as an implausible time.
        let Ok(mut claim) = log.try_claim(PEER, 0, payload.len()) else { return };
        claim.payload_mut().copy_from_slice(payload);
        let ssn = claim.commit();
        if ssn.0 % ACK_EVERY == 0 {
            acknowledge(log, ssn, payload.len() as u64);
        }
    }
}

fn acknowledge(log: &mut Log, ssn: Ssn, size: u64) {
    let _ = black_box(log.acknowledge(PEER, Ack { ssn, epoch: Epoch::FIRST }, Phase::default()));
    // Both are powers of two, so a checkpoint coincides with an acknowledgement.
    if log.options().keep == Keep::Checkpoint && (ssn.0 * size).is_multiple_of(CHECKPOINT_EVERY_BYTES) {
        let _ = log.receiver_covered(PEER, Epoch::FIRST, ssn);
        log.collect();
    }
}

/// Runs the floor's loop.
pub fn floor(ring: &mut Ring, number: &mut u64, ops: u64, payload: &[u8]) {
    let payload = black_box(payload);
    for _ in 0..ops {
        *number += 1;
        ring.append(*number, payload);
    }
    black_box(ring);
}

/// Creates a log with one peer, and unlinks its shared-memory files, so that none is left however the measurement ends.
///
/// # Errors
/// If the log can't be created.
pub fn open(scratch: &Scratch, tier: Tier, keep: Keep) -> Result<Log, Error> {
    let mut options = Options::new(Rank(0), 2);
    (options.tier, options.keep) = (tier, keep);
    if tier == Tier::Volatile {
        return Ok(Log::create(options)?);
    }
    let dir = scratch.fresh_dir()?;
    options.dir = Some(dir.clone());
    let log = Log::create(options)?;
    scratch.remove(&dir);
    Ok(log)
}
