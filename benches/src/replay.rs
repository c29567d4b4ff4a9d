//! Reading a lane back, compared with a copy of the same bytes.

use std::cell::{RefCell, RefMut};
use std::hint::black_box;

use counterfoil::{Error, Keep, Log, Rank, Ssn, Tier};
use serde::Serialize;

use crate::append::open;
use crate::measure::{Rounds, RunOptions, timed};
use crate::scratch::Scratch;

/// Measured payloads, in bytes.
pub const SIZES: [usize; 5] = [64, 256, 1024, 4096, 65536];
/// Payload bytes replayed: one amount fits into the cache, the other doesn't.
pub const LOG_BYTES: [usize; 2] = [512 << 10, 32 << 20];
/// Header bytes before each message, in the log and in the floor's buffer.
const HEADER_BYTES: usize = 16;
const PEER: Rank = Rank(1);
/// Memory layouts over which the rounds are spread.
const PLACES: usize = 8;
/// Distance between the layouts: another offset in the page, and in the cache line.
const STEP_BYTES: usize = 656;

/// A line in the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Payload in bytes.
    pub size: usize,
    /// Bytes replayed in a turn.
    pub log_bytes: usize,
    /// `volatile` or `process-crash-safe`.
    pub tier: &'static str,
    /// Replay speed, into a buffer.
    pub mb_per_s: f64,
    /// Speed of copying messages with the same size and spacing, one by one, from one buffer to another.
    pub floor_mb_per_s: f64,
    /// Median of the rounds' speed ratios.
    pub ratio: f64,
    /// Lower quartile of the ratios.
    pub ratio_p25: f64,
    /// Upper quartile of the ratios.
    pub ratio_p75: f64,
    /// Number of rounds.
    pub rounds: usize,
}

/// Measures every size and tier.
///
/// # Errors
/// If a log can't be created.
pub fn run(options: &RunOptions) -> Result<Vec<Row>, Error> {
    let scratch = Scratch::new()?;
    let mut rows = Vec::new();
    for tier in [Tier::Volatile, Tier::ProcessCrashSafe] {
        for log_bytes in LOG_BYTES {
            for size in SIZES {
                rows.push(one(options, &scratch, tier, size, log_bytes)?);
            }
        }
    }
    Ok(rows)
}

/// Measures one row.
///
/// The wire buffer's address changes the time for a copy in the cache by a third (loads wait for earlier stores to the
/// same offset in another page, and copies cross cache lines or not). So both loops copy to the same buffer, and the
/// rounds are spread over several memory layouts.
fn one(options: &RunOptions, scratch: &Scratch, tier: Tier, size: usize, log_bytes: usize) -> Result<Row, Error> {
    let records = (log_bytes / size).max(1);
    let mut log = open(scratch, tier, Keep::All)?;
    for number in 0..records {
        let mut claim = log.try_claim(PEER, 0, size)?;
        claim.payload_mut().fill(number as u8);
        claim.commit();
    }
    let source = vec![3; records * (HEADER_BYTES + size)];
    let mut rounds = Rounds::default();
    for (place, in_each) in options.over_places(PLACES) {
        let buffer = RefCell::new(vec![0; STEP_BYTES * place + size]);
        let wire = || RefMut::map(buffer.borrow_mut(), |buffer| &mut buffer[STEP_BYTES * place..]);
        // An operation is a whole pass, so that both read the same bytes in the same order.
        rounds.measure(
            &in_each,
            |passes| timed(|| (0..passes).for_each(|_| copy(&source, &mut wire()))),
            |passes| timed(|| (0..passes).for_each(|_| replay(&mut log, &mut wire()))),
        );
    }
    let figure = rounds.figure();
    let speed = |ns: f64| (records * size) as f64 / ns * 1e3;
    Ok(Row {
        size,
        log_bytes,
        tier: tier.word(),
        mb_per_s: speed(figure.ns),
        floor_mb_per_s: speed(figure.floor_ns),
        ratio: 1.0 / figure.ratio,
        ratio_p25: 1.0 / figure.ratio_p75,
        ratio_p75: 1.0 / figure.ratio_p25,
        rounds: figure.rounds,
    })
}

/// Runs the floor's loop: copies every message to the wire, from a buffer laid out as the floor's ring in the append
/// benchmark.
pub fn copy(source: &[u8], wire: &mut [u8]) {
    for record in source.chunks_exact(HEADER_BYTES + wire.len()) {
        wire.copy_from_slice(black_box(&record[HEADER_BYTES..]));
        black_box(&mut *wire);
    }
}

/// Runs the measured loop: a cursor over the whole lane, copying every payload to the wire.
pub fn replay(log: &mut Log, wire: &mut [u8]) {
    // All records are kept and one cursor is open at a time; a refusal would show as an implausible speed.
    let Ok(mut cursor) = log.cursor(PEER, Ssn::FIRST) else { return };
    while let Ok(Some(record)) = cursor.read() {
        wire.copy_from_slice(black_box(record.payload()));
        black_box(&mut *wire);
    }
}
