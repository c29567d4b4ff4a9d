//! Record release: acknowledgements, and collecting covered chunks.

use std::hint::black_box;
use std::time::{Duration, Instant};

use counterfoil::{Ack, Epoch, Error, Keep, Log, Options, Phase, Rank, Ssn};
use serde::Serialize;

use crate::measure::{Figure, RunOptions, interleave};

const PEER: Rank = Rank(1);
/// Chunks freed in one turn of the collection.
const CHUNKS: u64 = 128;
/// Chunk size in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Bytes enough to evict everything else from the last-level cache of one core complex.
const CACHE_BYTES: usize = 48 << 20;

/// A line in the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The measured operation.
    ///
    /// `acknowledge`: nanoseconds per record, with one acknowledgement for every `records_per_op`. `advance`:
    /// nanoseconds per chunk with `records_per_op` records; its floor is a one-record chunk.
    pub op: &'static str,
    /// Records covered by one acknowledgement, or held by one chunk.
    pub records_per_op: u64,
    /// The measurement.
    #[serde(flatten)]
    pub figure: Figure,
}

/// Measures acknowledgements of 1, 32 and 1,024 records, and collecting chunks with 1 and 1,000 records.
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

/// Times the floor for acknowledging `records` records: a store for each.
pub fn naked_store(records: u64) -> Duration {
    let mut tail = 0;
    let start = Instant::now();
    for number in 0..records {
        *black_box(&mut tail) = number;
    }
    start.elapsed()
}

/// Times acknowledging `records` 64-byte records, `covers` (which divides 4,096) at a time; appending them is not
/// timed.
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

/// Returns the payload sizes with which `records` records fill a chunk to the last byte: for all but the last, and for
/// the last.
///
/// A chunk has a 112-byte header, and space for a commit word at its end; a record has a 16-byte header.
fn payloads(records: u64) -> (usize, usize) {
    let (small, room) = (48, CHUNK_BYTES - 112 - 16);
    (small, room - (records as usize - 1) * (small + 16) - 16)
}

/// Times collecting one 64 KiB chunk with `records_per_chunk` records (1 to 1,000), covered by a receiver checkpoint:
/// the mean over 128 collected at once.
///
/// Filling them is not timed.
///
/// # Errors
/// If a log can't be created.
pub fn advance(records_per_chunk: u64) -> Result<Duration, Error> {
    let (small, last) = payloads(records_per_chunk);
    let mut options = Options::new(Rank(0), 2);
    options.keep = Keep::Checkpoint;
    options.chunk_bytes = CHUNK_BYTES;
    let mut log = Log::create(options)?;
    // The first chunks in a lane are smaller. A few records, each filling a whole chunk, skip them and end at the start
    // of a chunk: from there on every chunk holds exactly `records_per_chunk` records.
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
    // A turn is the fastest of three collections: a collection lasts a few microseconds, and an interruption may
    // disturb it.
    Ok(interleave(
        &one_turn,
        |ops| repeat(ops, &floor).unwrap_or_default() * ops as u32,
        |ops| repeat(ops, &work).unwrap_or_default() * ops as u32,
    ))
}
