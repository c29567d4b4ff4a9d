//! One larger model, run by shuttle under thousands of random schedules: two lanes sharing a pool are written,
//! released, retained, relocated and freed, while cursors are opened, read and closed on both.
//!
//! Loom proves properties over a few steps, memory orders included; this model searches for failures needing many
//! steps. It runs the shipped code, over the same memory as the loom models, and treats every access as sequentially
//! consistent. One seed draws everything, so that a failure can be reproduced:
//!
//! ```sh
//! RUSTFLAGS="--cfg counterfoil_loom --cfg counterfoil_shuttle" \
//!     cargo test --profile models --package counterfoil-log-core --lib --target-dir target/models shuttle
//! ```

// The model's own counters are std's atomics, so that no schedule depends on them.
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};

use crate::lane::{Cursor, CursorError, LaneReader, LaneWriter};
use crate::loom_models::{HALF, QUARTER, RETAIN, WHOLE, append, peek, pool};
use crate::nouns::{Rank, Ssn};
use crate::{AllocError, AppendError, Disposition, Relocated, SettledChunk};

const SEED: u64 = 0x00C0_FFEE_0F01;
const SCHEDULES: usize = 4000;
/// Number of thread priority changes in a schedule of the second kind.
const PCT_DEPTH: usize = 6;

/// Chunks for both lanes together.
///
/// A lane needs one to write and one to relocate into; the lanes compete for the rest.
const BLOCKS: usize = 9;
/// Readers of each lane.
///
/// The writer opens a cursor, too.
const CURSORS: usize = 2;
const STEPS: usize = 50;

/// Limits raised by a lane's writer before it acts, and checked by its readers.
#[derive(Default)]
struct Limits {
    /// The last committed record.
    committed: AtomicU64,
    /// No record above is released.
    acknowledged: AtomicU64,
    /// No retained record above is freed.
    covered: AtomicU64,
    /// True after the writer's last step.
    finished: AtomicBool,
}

/// Returns `true` for half of all records, two in a row.
fn is_retained(ssn: u64) -> bool {
    ssn & 2 != 0
}

struct Writer {
    lane: LaneWriter,
    limits: Arc<Limits>,
    /// Settled, unfreed chunks.
    settled: Vec<SettledChunk>,
}

impl Writer {
    /// Returns the lane at the end, because to a cursor a lane without its writer looks empty.
    fn run(mut self) -> LaneWriter {
        for _ in 0..STEPS {
            match thread_rng().gen_range(0..10) {
                0..4 => self.commit(),
                4 => self.drop_claim(),
                5 | 6 => self.acknowledge(),
                7 | 8 => self.relocate(),
                _ => self.free_covered(),
            }
        }
        if self.lane.kept_from() > Ssn::FIRST {
            let gone = self.lane.reader().open(self.lane.kept_from().prev());
            assert!(matches!(gone, Err(CursorError::Gone { .. })), "a cursor below what is kept");
        }
        self.limits.finished.store(true, Ordering::SeqCst);
        self.lane
    }

    fn commit(&mut self) {
        let body = [QUARTER, HALF, WHOLE][thread_rng().gen_range(0..3)];
        if self.has_room(body) {
            append(&mut self.lane, body);
            self.limits.committed.store(self.lane.next_ssn().prev().0, Ordering::SeqCst);
        }
    }

    fn drop_claim(&mut self) {
        if self.has_room(QUARTER) {
            drop(self.lane.claim(0, QUARTER));
        }
    }

    /// Returns `false` if there is no room, after freeing everything possible, for the other lane, too.
    fn has_room(&mut self, body: usize) -> bool {
        match self.lane.reserve(0, body) {
            Ok(()) => return true,
            Err(AppendError::Alloc(AllocError::Full(_))) => {}
            Err(other) => panic!("{other}"),
        }
        self.acknowledge();
        self.free_covered();
        self.lane.return_spares();
        false
    }

    fn acknowledge(&mut self) {
        let (acked, sent) = (self.lane.acked().0, self.lane.next_ssn().prev().0);
        let upto = thread_rng().gen_range(acked..=sent);
        self.limits.acknowledged.store(upto, Ordering::SeqCst);
        for ssn in acked + 1..=upto {
            let disposition = if is_retained(ssn) { RETAIN } else { Disposition::Release };
            self.lane.acknowledge(Ssn(ssn), disposition).expect("it was sent");
        }
        self.settled.extend(std::iter::from_fn(|| self.lane.poll_settled()));
    }

    fn relocate(&mut self) {
        if self.settled.len() < 2 {
            return;
        }
        let first = thread_rng().gen_range(0..self.settled.len() - 1);
        let covered = Ssn(self.limits.covered.load(Ordering::SeqCst));
        match self.lane.relocate(self.settled[first].chunk, self.settled[first + 1].chunk, covered) {
            Ok(Relocated::Into(fresh)) => _ = self.settled.splice(first..first + 2, [fresh]),
            Ok(Relocated::Emptied) => _ = self.settled.drain(first..first + 2),
            Ok(Relocated::Unknown) => panic!("{:?} are settled", self.settled),
            // The records don't fit one chunk, or no chunk is free.
            Err(_) => {}
        }
    }

    /// Raises the receiver's checkpoint floor, and frees the chunks no longer needed, also in the middle.
    fn free_covered(&mut self) {
        let (covered, acked) = (self.limits.covered.load(Ordering::SeqCst), self.lane.acked().0);
        let covered = thread_rng().gen_range(covered..=acked.max(covered));
        self.limits.covered.store(covered, Ordering::SeqCst);
        self.settled.retain(|chunk| {
            let needed = chunk.last.0 > covered && chunk.used_bytes > 0;
            assert!(needed || self.lane.free(chunk.chunk), "{chunk:?} is settled");
            needed
        });
    }
}

/// Opens cursors at random SSNs, and reads each for a random number of steps, until the writer is done.
fn read_until_finished(reader: &LaneReader, limits: &Limits) {
    let mut reading: Option<(Cursor, u64)> = None;
    loop {
        let finished = limits.finished.load(Ordering::SeqCst);
        let committed = limits.committed.load(Ordering::SeqCst);
        if reading.is_none() {
            let from = thread_rng().gen_range(1..=committed + 1);
            match reader.open(Ssn(from)) {
                Ok(cursor) => reading = Some((cursor, from)),
                Err(CursorError::Gone { kept_from, .. }) => assert!(kept_from > Ssn(from), "{from}, not {kept_from}"),
                Err(other) => panic!("{other}"),
            }
        }
        let mut is_gone = false;
        if let Some((cursor, next)) = &mut reading {
            while thread_rng().gen_range(0..10) > 0 {
                let Some((ssn, _)) = peek(cursor) else {
                    // A cursor opened on an empty lane doesn't pass over records freed since.
                    let missing = match cursor.attach() {
                        Err(CursorError::Gone { kept_from, .. }) => {
                            is_gone = true;
                            *next..kept_from.0
                        }
                        Err(other) => panic!("{other}"),
                        Ok(_) => *next..committed + 1,
                    };
                    assert_gone(limits, missing);
                    break;
                };
                assert!(ssn >= *next, "{ssn} after {next}");
                assert_gone(limits, *next..ssn);
                *next = ssn + 1;
                cursor.advance();
            }
        }
        if finished {
            return;
        }
        reading.take_if(|_| is_gone || thread_rng().gen_range(0..4) == 0);
        thread::yield_now();
    }
}

/// Asserts that each of these records was released, or is covered by its receiver's checkpoint.
fn assert_gone(limits: &Limits, mut ssns: Range<u64>) {
    let (acknowledged, covered) = (limits.acknowledged.load(Ordering::SeqCst), limits.covered.load(Ordering::SeqCst));
    let lost = ssns.find(|&ssn| ssn > if is_retained(ssn) { covered } else { acknowledged });
    assert_eq!(lost, None, "{acknowledged} were acknowledged, {covered} covered");
}

fn two_lanes_and_their_readers() {
    let pool = pool(BLOCKS, CURSORS + 1);
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for peer in 1..=2 {
        let lane = LaneWriter::new(pool.clone(), Rank(peer));
        let limits = Arc::new(Limits::default());
        for _ in 0..CURSORS {
            let (reader, limits) = (lane.reader(), limits.clone());
            readers.push(thread::spawn(move || read_until_finished(&reader, &limits)));
        }
        writers.push(thread::spawn(move || Writer { lane, limits, settled: Vec::new() }.run()));
    }
    let lanes: Vec<_> = writers.into_iter().map(|writer| writer.join().expect("it ends")).collect();
    readers.into_iter().for_each(|reader| reader.join().expect("it ends"));
    drop(lanes);
    assert_eq!(pool.used_bytes(), 0, "dropped lanes give everything back");
}

fn check(scheduler: impl Scheduler + 'static) {
    let mut config = Config::new();
    config.stack_size = 256 << 10;
    // Silences the warning about shuttle treating all orderings as SeqCst.
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(two_lanes_and_their_readers);
}

#[test]
fn random_schedules_lose_nothing() {
    check(RandomScheduler::new_from_seed(SEED, SCHEDULES));
}

#[test]
fn schedules_with_few_preemptions_lose_nothing() {
    check(PctScheduler::new_from_seed(SEED, PCT_DEPTH, SCHEDULES));
}
