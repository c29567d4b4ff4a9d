//! Real threads: one writer, and cursors opened, read and closed meanwhile.
//!
//! The loom models prove properties over a few steps; these tests run many steps on the machine's own memory. A seed,
//! printed with every failure and set by `COUNTERFOIL_SEED`, draws the histories, but not the thread interleaving.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use counterfoil_log_core::{
    AllocError, AppendError, ChunkId, Cursor, CursorError, Disposition, Epoch, LaneReader, LaneWriter, Phase, Pool,
    PoolOptions, Rank, Record, Relocated, SettledChunk, Ssn,
};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

const CURSORS: usize = 3;
/// Records in a group acknowledged with the same disposition.
const GROUP: u64 = 8;
const PREFIX: usize = 16;
/// Refusals in a row, with a pause after each, before the test fails.
const REFUSALS_MAX: u32 = 300_000;

/// SplitMix64.
#[derive(Clone)]
struct Draw(SplitMix64);

impl Draw {
    fn new(seed: u64) -> Draw {
        Draw(SplitMix64::seed_from_u64(seed))
    }

    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}

fn seed() -> u64 {
    match std::env::var("COUNTERFOIL_SEED") {
        Ok(seed) => seed.parse().expect("COUNTERFOIL_SEED is a number"),
        Err(_) => {
            u64::from(std::process::id()) << 32 | u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos())
        }
    }
}

/// A history, and limits raised by its writer and checked by its readers.
struct History {
    seed: u64,
    /// True if acknowledged records may be retained; otherwise all are released.
    retains: bool,
    /// Every released record is at or below this (written before it is released).
    acknowledged: AtomicU64,
    /// Every freed retained record is at or below this (written before it is freed).
    covered: AtomicU64,
    finished: AtomicBool,
}

impl History {
    fn draw(&self, ssn: u64, what: u64) -> Draw {
        Draw::new(self.seed ^ ssn.wrapping_mul(0xD6E8_FEB8_6659_FD93) ^ what << 56)
    }

    fn len(&self, ssn: u64) -> usize {
        let mut draw = self.draw(ssn, 1);
        match draw.below(40) {
            0 => draw.below(20_000) as usize,
            1..5 => draw.below(3_000) as usize,
            _ => draw.below(200) as usize,
        }
    }

    /// Fills a payload; each word depends on its record and its index.
    fn fill(&self, ssn: u64, payload: &mut [u8]) {
        for (index, word) in payload.chunks_mut(8).enumerate() {
            let bytes = (self.seed ^ ssn << 20 ^ index as u64).to_le_bytes();
            word.copy_from_slice(&bytes[..word.len()]);
        }
    }

    fn is_retained(&self, ssn: u64) -> bool {
        self.retains && !self.draw(ssn / GROUP, 2).one_in(3)
    }

    fn disposition(&self, ssn: u64) -> Disposition {
        match self.is_retained(ssn) {
            true => Disposition::Retain { epoch: Epoch(1 + (ssn / 1000) as u32), phase: Phase(0) },
            false => Disposition::Release,
        }
    }

    /// Returns `true` if the log may have freed `ssn` by now.
    fn may_be_gone(&self, ssn: u64) -> bool {
        let limit = if self.is_retained(ssn) { &self.covered } else { &self.acknowledged };
        ssn <= limit.load(Ordering::SeqCst)
    }

    fn check(&self, record: Record<'_>) {
        let ssn = record.ssn().0;
        assert_eq!(record.prefix(), [ssn.to_le_bytes(), self.seed.to_le_bytes()].concat(), "{ssn}, seed {}", self.seed);
        let mut expected = vec![0; self.len(ssn)];
        self.fill(ssn, &mut expected);
        assert!(record.payload() == expected, "record {ssn} is not what was sent, seed {}", self.seed);
    }
}

/// A history's writer.
struct Writer<'a> {
    history: &'a History,
    lane: LaneWriter,
    draw: Draw,
    settled: Vec<SettledChunk>,
    /// Refusals since the last append because the budget was used up.
    refusals: u32,
}

impl Writer<'_> {
    fn run(mut self, records: u64) {
        while self.lane.next_ssn().0 <= records {
            match self.draw.below(20) {
                0 => self.acknowledge(),
                1 => self.collect(),
                2 => self.drop_a_claim(),
                _ => self.append(),
            }
        }
    }

    fn append(&mut self) {
        let ssn = self.lane.next_ssn().0;
        let payload = self.history.len(ssn);
        if let Err(error) = self.lane.reserve(PREFIX, payload) {
            return self.make_room(error);
        }
        let mut claim = self.lane.claim(PREFIX, payload).unwrap();
        claim.prefix_mut()[..8].copy_from_slice(&ssn.to_le_bytes());
        claim.prefix_mut()[8..].copy_from_slice(&self.history.seed.to_le_bytes());
        self.history.fill(ssn, claim.payload_mut());
        claim.commit();
        self.refusals = 0;
    }

    fn drop_a_claim(&mut self) {
        let len = self.draw.below(500) as usize;
        if self.lane.has_room(PREFIX, len) {
            self.lane.claim(PREFIX, len).unwrap().payload_mut().fill(0xEE);
        }
    }

    /// Frees everything when the budget is used up, and waits for cursors still reading.
    fn make_room(&mut self, error: AppendError) {
        assert!(matches!(error, AppendError::Alloc(AllocError::Full(_))), "{error}, seed {}", self.history.seed);
        self.acknowledge_upto(self.lane.next_ssn().0 - 1);
        self.cover(self.lane.acked().0);
        self.lane.return_spares();
        self.refusals += 1;
        assert!(self.refusals < REFUSALS_MAX, "the budget stays used up, seed {}", self.history.seed);
        thread::sleep(Duration::from_micros(100));
    }

    fn acknowledge(&mut self) {
        let (acked, next) = (self.lane.acked().0, self.lane.next_ssn().0);
        let count = self.draw.below(next - acked);
        self.acknowledge_upto(acked + count);
    }

    /// Acknowledges group by group, with each group's disposition.
    fn acknowledge_upto(&mut self, upto: u64) {
        self.history.acknowledged.fetch_max(upto, Ordering::SeqCst);
        while self.lane.acked().0 < upto {
            let first = self.lane.acked().0 + 1;
            let last = (first / GROUP * GROUP + GROUP - 1).min(upto);
            self.lane.acknowledge(Ssn(last), self.history.disposition(first)).unwrap();
        }
        while let Some(settled) = self.lane.poll_settled() {
            self.settled.push(settled);
        }
    }

    /// Relocates some settled chunks, or frees all up to a random one as if a checkpoint covered them.
    fn collect(&mut self) {
        if self.settled.is_empty() {
            return;
        }
        if self.draw.one_in(3) {
            let index = self.draw.below(self.settled.len() as u64) as usize;
            let upto = self.settled[index].last.0;
            return self.cover(upto);
        }
        let first = self.draw.below(self.settled.len() as u64) as usize;
        let last = (first + self.draw.below(4) as usize).min(self.settled.len() - 1);
        self.relocate(first, last);
    }

    fn relocate(&mut self, first: usize, last: usize) {
        let (from, to) = (self.settled[first].chunk, self.settled[last].chunk);
        let floor = Ssn(self.history.covered.load(Ordering::SeqCst));
        match self.lane.relocate(from, to, floor) {
            Ok(Relocated::Into(chunk)) => drop(self.settled.splice(first..=last, [chunk])),
            Ok(Relocated::Emptied) => drop(self.settled.drain(first..=last)),
            Ok(Relocated::Unknown) => panic!("chunks {from:?} to {to:?} are settled, seed {}", self.history.seed),
            Err(_) => {}
        }
    }

    fn cover(&mut self, upto: u64) {
        self.history.covered.fetch_max(upto, Ordering::SeqCst);
        let (gone, left): (Vec<_>, Vec<_>) = self.settled.drain(..).partition(|settled| settled.last.0 <= upto);
        let free = |chunk: ChunkId| assert!(self.lane.free(chunk), "{chunk:?} is settled, seed {}", self.history.seed);
        gone.into_iter().map(|settled| settled.chunk).for_each(free);
        self.settled = left;
    }
}

/// Opens cursors at random SSNs, and checks every record they return.
fn read_until_finished(history: &History, reader: &LaneReader, mut draw: Draw) {
    let mut newest = 1;
    while !history.finished.load(Ordering::SeqCst) {
        let from = 1 + draw.below(newest + 50);
        let mut cursor = match reader.open(Ssn(from)) {
            Ok(cursor) => cursor,
            Err(CursorError::Gone { kept_from, .. }) => {
                assert!(kept_from.0 > from && history.may_be_gone(from), "{from} is gone, seed {}", history.seed);
                newest = newest.max(kept_from.0);
                continue;
            }
            Err(error) => panic!("{error}, seed {}", history.seed),
        };
        let patience = if draw.one_in(8) { u64::MAX } else { draw.below(400) };
        newest = newest.max(follow(history, &mut cursor, from, patience));
    }
}

/// Reads up to `patience` records; returns the SSN after the last.
fn follow(history: &History, cursor: &mut Cursor, from: u64, patience: u64) -> u64 {
    let mut next = from;
    for _ in 0..patience {
        let Some(record) = cursor.peek() else {
            if history.finished.load(Ordering::SeqCst) || patience != u64::MAX {
                break;
            }
            // Opened before the first chunk, it may find its first records freed; it would keep all later ones.
            if let Err(error) = cursor.attach() {
                assert!(matches!(error, CursorError::Gone { .. }), "{error}, seed {}", history.seed);
                assert!(history.may_be_gone(next), "{next} is gone, seed {}", history.seed);
                break;
            }
            thread::yield_now();
            continue;
        };
        history.check(record);
        let ssn = record.ssn().0;
        assert!(ssn >= next, "{ssn} after {next}, seed {}", history.seed);
        for missing in next..ssn {
            assert!(history.may_be_gone(missing), "{missing} was lost before {ssn}, seed {}", history.seed);
            assert!(history.retains, "{missing} was released under a cursor, seed {}", history.seed);
        }
        next = ssn + 1;
        cursor.advance();
    }
    next
}

fn run(retains: bool, records: u64) {
    let seed = seed();
    let options =
        PoolOptions { memory_bytes_max: 512 << 10, chunk_bytes: 8 << 10, prefault_bytes: 0, cursors_max: CURSORS };
    let history = Arc::new(History {
        seed,
        retains,
        acknowledged: AtomicU64::new(0),
        covered: AtomicU64::new(0),
        finished: AtomicBool::new(false),
    });
    let lane = LaneWriter::new(Pool::volatile(options).unwrap(), Rank(1));
    let reader = lane.reader();
    thread::scope(|scope| {
        let readers: Vec<_> = (0..CURSORS as u64)
            .map(|index| {
                let (history, reader) = (history.clone(), reader.clone());
                scope.spawn(move || read_until_finished(&history, &reader, Draw::new(seed ^ index)))
            })
            .collect();
        let writer = Writer { history: &history, lane, draw: Draw::new(!seed), settled: Vec::new(), refusals: 0 };
        // A failing reader must not leave the writer waiting for its pin, nor a failed writer the readers.
        let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| writer.run(records)));
        history.finished.store(true, Ordering::SeqCst);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        written.unwrap();
    });
}

#[test]
fn cursors_see_every_record_from_their_start_while_the_writer_releases() {
    run(false, if cfg!(miri) { 400 } else { 400_000 });
}

#[test]
fn cursors_see_every_kept_record_while_the_writer_collects() {
    run(true, if cfg!(miri) { 400 } else { 250_000 });
}

#[test]
fn memory_that_a_closed_cursor_pinned_is_reclaimed_when_needed() {
    let options = PoolOptions { memory_bytes_max: 64 << 10, chunk_bytes: 4096, prefault_bytes: 0, cursors_max: 1 };
    let mut lane = LaneWriter::new(Pool::volatile(options).unwrap(), Rank(1));
    let reader = lane.reader();
    lane.claim(0, 1000).unwrap().commit();
    let cursor = reader.open(Ssn::FIRST).unwrap();
    while let Ok(claim) = lane.claim(0, 1000) {
        claim.commit();
    }
    let sent = lane.next_ssn().prev();
    lane.acknowledge(sent, Disposition::Release).unwrap();
    assert!(lane.claim(0, 1000).is_err(), "the cursor is on the first record");
    drop(cursor);
    lane.return_spares();
    lane.claim(0, 1000).unwrap().commit();
    assert_eq!(reader.open(sent.next()).unwrap().peek().unwrap().ssn(), sent.next());
}
