//! Release of records: acknowledgements, and the collection of covered chunks.

use std::hint::black_box;
use std::time::{Duration, Instant};

use counterfoil::{Ack, Epoch, Error, Keep, Log, Options, Phase, Rank, Ssn};
use serde::Serialize;

use crate::measure::{Figure, RunOptions, interleave};

const PEER: Rank = Rank(1);
/// Chunks that a turn of the collection frees.
const CHUNKS: u64 = 128;
/// Bytes of a chunk.
const CHUNK_BYTES: usize = 64 << 10;

/// Bytes that evict everything else from the last-level cache of one core complex.
const CACHE_BYTES: usize = 48 << 20;

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `acknowledge`: nanoseconds per record, with one acknowledgement for every `records_per_op`. `advance`:
    /// nanoseconds per chunk of `records_per_op` records; its floor is a chunk of one record.
    pub op: &'static str,
    /// Records that one acknowledgement covers, or that one chunk holds.
    pub records_per_op: u64,
    /// The measurement.
    #[serde(flatten)]
    pub figure: Figure,
}

/// Measures acknowledgements of 1, 32 and 1,024 records, and the collection of chunks of 1 and of 1,000 records.
///
/// # Errors
/// If a log can't be created.
pub fn run(options: &RunOptions) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for covers in [1, 32, 1024] {
        let figure = interleave(options, naked_store, |records| acknowledge(records, covers));
        rows.push(Row { op: "acknowledge", records_per_op: covers, figure });
    }
    for records in [1, 1000] {
        let figure = collection(options, || advance(1), || advance(records))?;
        rows.push(Row { op: "advance", records_per_op: records, figure });
    }
    Ok(rows)
}

/// Times the floor of acknowledging `records` records: a store for each.
pub fn naked_store(records: u64) -> Duration {
    let mut tail = 0;
    let start = Instant::now();
    for number in 0..records {
        *black_box(&mut tail) = number;
    }
    start.elapsed()
}

/// Times the acknowledgement of `records` records of 64 bytes, `covers` (which divides 4,096) at a time; appending them
/// is not timed.
///
/// Returns zero if a log can't be created or refuses a record.
pub fn acknowledge(records: u64, covers: u64) -> Duration {
    const BATCH: u64 = 4096;
    let mut options = Options::new(Rank(0), 2);
    options.keep = Keep::Acked;
    // Created once for all batches; a refusal would show as a time of zero.
    let Ok(mut log) = Log::create(options) else { return Duration::ZERO };
    let mut time = Duration::ZERO;
    let mut sent = 0;
    while sent < records {
        for _ in 0..BATCH {
            let Ok(claim) = log.try_claim(PEER, 0, 64) else { return Duration::ZERO };
            claim.commit();
        }
        let start = Instant::now();
        for ssn in (sent + covers..=sent + BATCH).step_by(covers as usize) {
            let _ = log.acknowledge(PEER, Ack { ssn: Ssn(ssn), epoch: Epoch::FIRST }, Phase::default());
        }
        time += start.elapsed();
        sent += BATCH;
    }
    time.mul_f64(records as f64 / sent as f64)
}

/// Returns the payloads with which `records` records fill a chunk to the last byte: that of all but the last, and of
/// the last.
///
/// A chunk has a header of 112 bytes, and space for a commit word at its end; a record has a header of 16 bytes.
fn payloads(records: u64) -> (usize, usize) {
    let (small, room) = (48, CHUNK_BYTES - 112 - 16);
    (small, room - (records as usize - 1) * (small + 16) - 16)
}

/// Times the collection of one chunk of 64 KiB with `records_per_chunk` records (1 to 1,000), covered by a checkpoint
/// of the receiver: the mean of 128 that are collected at once. Filling them is not timed.
///
/// # Errors
/// If a log can't be created.
pub fn advance(records_per_chunk: u64) -> Result<Duration, Error> {
    let (small, last) = payloads(records_per_chunk);
    let mut options = Options::new(Rank(0), 2);
    options.keep = Keep::Checkpoint;
    options.chunk_bytes = CHUNK_BYTES;
    let mut log = Log::create(options)?;
    // The first chunks of a lane are smaller. A few records that fill a whole chunk skip them, and end at the start of
    // a chunk: from there on every chunk holds exactly `records_per_chunk` records.
    let (_, whole) = payloads(1);
    while log.try_claim(PEER, 0, whole)?.commit() < Ssn(4) {}
    let first = log.next_ssn(PEER).prev().0;
    for number in 1..=(CHUNKS + 1) * records_per_chunk {
        let payload = if number % records_per_chunk == 0 { last } else { small };
        // Written, so that work and floor fill the cache with the same bytes.
        let mut claim = log.try_claim(PEER, 0, payload)?;
        claim.payload_mut().fill(1);
        claim.commit();
    }
    let last = log.next_ssn(PEER).prev();
    log.acknowledge(PEER, Ack { ssn: last, epoch: Epoch::FIRST }, Phase::default())?;
    // Usually a collected chunk was filled long ago: evict the headers from the cache, for work and floor.
    black_box(vec![1_u8; CACHE_BYTES]);
    let start = Instant::now();
    log.receiver_covered(PEER, Epoch(2), Ssn(first + CHUNKS * records_per_chunk))?;
    let collected = black_box(log.collect());
    Ok(start.elapsed() / collected.chunks.max(1) as u32)
}

fn collection(
    options: &RunOptions,
    floor: impl Fn() -> Result<Duration, Error>,
    work: impl Fn() -> Result<Duration, Error>,
) -> Result<Figure, Error> {
    // The first turns return errors; later ones are ignored.
    floor()?;
    work()?;
    let one_turn = RunOptions { turn: Duration::ZERO, ..*options };
    let repeat =
        |ops: u64, turn: &dyn Fn() -> Result<Duration, Error>| (0..ops.min(3)).filter_map(|_| turn().ok()).min();
    // A turn is the fastest of three collections, because an interruption may disturb one of a few microseconds.
    Ok(interleave(
        &one_turn,
        |ops| repeat(ops, &floor).unwrap_or_default() * ops as u32,
        |ops| repeat(ops, &work).unwrap_or_default() * ops as u32,
    ))
}
