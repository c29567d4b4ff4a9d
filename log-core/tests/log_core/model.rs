//! Random histories of a lane, in both tiers, compared with a list of numbers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use counterfoil_log_core::{
    ChunkId, Cursor, CursorError, Disposition, Epoch, LaneWriter, Owner, Phase, Pool, PoolOptions, Rank, Relocated,
    SettledChunk, Ssn, create_private_dir,
};
use proptest::prelude::*;

use super::lanes::COUNTING;

const OWNER: Owner = Owner { rank: Rank(0), label: 1 };

#[derive(Clone, Debug)]
enum Op {
    Append(usize),
    Drop(usize),
    Release(u8),
    Retain(u8, u32),
    RollBackReceiver(u8),
    Settle(bool),
    FreeOldest,
    Relocate(u8, u8),
    Truncate(u8),
    OpenCursor(u8),
    Read(u8),
    CloseCursor,
    Die,
}

fn op() -> impl Strategy<Value = Op> {
    let size = prop_oneof![6 => 0usize..300, 2 => 300usize..3000, 1 => 4000usize..12_000];
    prop_oneof![
        12 => size.prop_map(Op::Append),
        1 => (0usize..500).prop_map(Op::Drop),
        3 => any::<u8>().prop_map(Op::Release),
        3 => (any::<u8>(), 1u32..4).prop_map(|(upto, epoch)| Op::Retain(upto, epoch)),
        1 => any::<u8>().prop_map(Op::RollBackReceiver),
        3 => any::<bool>().prop_map(Op::Settle),
        1 => Just(Op::FreeOldest),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(at, count)| Op::Relocate(at, count)),
        1 => any::<u8>().prop_map(Op::Truncate),
        2 => any::<u8>().prop_map(Op::OpenCursor),
        4 => any::<u8>().prop_map(Op::Read),
        1 => Just(Op::CloseCursor),
        1 => Just(Op::Die),
    ]
}

fn body(ssn: u64, len: usize) -> Vec<u8> {
    let first = (ssn * 131) as u8;
    COUNTING[first.into()..][..len].to_vec()
}

/// A lane, and its expected records.
struct History {
    path: Option<PathBuf>,
    pool: Arc<Pool>,
    lane: LaneWriter,
    /// Every record ever committed and not truncated.
    sent: BTreeMap<u64, usize>,
    /// Records required to be readable: unacknowledged or retained, and not freed by an operation.
    needed: BTreeMap<u64, usize>,
    acked: u64,
    settled: Vec<SettledChunk>,
    cursor: Option<Cursor>,
}

fn options() -> PoolOptions {
    PoolOptions { memory_bytes_max: 8 << 20, chunk_bytes: 8192, prefault_bytes: 0, cursors_max: 2 }
}

impl History {
    fn new(path: Option<PathBuf>) -> History {
        let pool = match &path {
            Some(path) => Pool::create(path, OWNER, options()).unwrap(),
            None => Pool::volatile(options()).unwrap(),
        };
        let lane = LaneWriter::new(pool.clone(), Rank(1));
        History {
            path,
            pool,
            lane,
            sent: BTreeMap::new(),
            needed: BTreeMap::new(),
            acked: 0,
            settled: Vec::new(),
            cursor: None,
        }
    }

    fn apply(&mut self, op: Op) {
        let last = self.lane.next_ssn().0 - 1;
        let between = |byte: u8| self.acked + (last - self.acked) * u64::from(byte) / 255;
        match op {
            Op::Append(len) => {
                let mut claim = self.lane.claim(4.min(len), len - 4.min(len)).unwrap();
                let ssn = claim.ssn().0;
                claim.body_mut().copy_from_slice(&body(ssn, len));
                claim.commit();
                self.sent.insert(ssn, len);
                self.needed.insert(ssn, len);
            }
            Op::Drop(len) => drop(self.lane.claim(0, len).unwrap()),
            Op::Release(byte) => {
                let upto = between(byte);
                self.lane.acknowledge(Ssn(upto), Disposition::Release).unwrap();
                self.needed.retain(|ssn, _| *ssn <= self.acked || *ssn > upto);
                self.acked = self.acked.max(upto);
            }
            Op::Retain(byte, epoch) => {
                let upto = between(byte);
                let retain = Disposition::Retain { epoch: Epoch(epoch), phase: Phase(0) };
                self.lane.acknowledge(Ssn(upto), retain).unwrap();
                self.acked = self.acked.max(upto);
            }
            Op::RollBackReceiver(byte) => {
                let upto = self.acked * u64::from(byte) / 255;
                self.lane.unacknowledge(Ssn(upto));
                self.acked = self.acked.min(upto);
                self.settled.retain(|chunk| chunk.last.0 <= upto);
            }
            Op::Settle(all) => {
                while let Some(settled) = self.lane.poll_settled() {
                    if settled.used_bytes == 0 {
                        assert!(self.lane.free(settled.chunk));
                    } else {
                        self.settled.push(settled);
                    }
                    if !all {
                        break;
                    }
                }
            }
            Op::FreeOldest if !self.settled.is_empty() => {
                // As if a checkpoint covered the chunk.
                let chunk = self.settled.remove(0);
                assert!(self.lane.free(chunk.chunk));
                self.needed.retain(|ssn, _| !(chunk.first.0..=chunk.last.0).contains(ssn));
            }
            Op::Relocate(at, count) if !self.settled.is_empty() => {
                let first = usize::from(at) % self.settled.len();
                let adjacent =
                    self.settled[first..].windows(2).take_while(|pair| pair[0].chunk.0 + 1 == pair[1].chunk.0).count();
                let last = first + usize::from(count) % (adjacent + 1);
                let (a, b) = (self.settled[first].chunk, self.settled[last].chunk);
                let fresh = match self.lane.relocate(a, b, Ssn::ZERO).unwrap() {
                    Relocated::Into(fresh) => Some(fresh),
                    Relocated::Emptied => None,
                    Relocated::Unknown => panic!("{a:?} to {b:?} are settled"),
                };
                self.settled.splice(first..=last, fresh);
            }
            Op::Truncate(byte) if self.cursor.is_none() => {
                let cut = between(byte);
                if let Ok(settled) = self.lane.truncate(Ssn(cut)) {
                    self.sent.retain(|ssn, _| *ssn <= cut);
                    self.needed.retain(|ssn, _| *ssn <= cut);
                    self.acked = self.acked.min(cut);
                    self.settled.retain(|chunk| chunk.last <= settled);
                }
            }
            Op::OpenCursor(byte) => {
                let from = 1 + last * u64::from(byte) / 255;
                self.cursor = None;
                match self.lane.reader().open(Ssn(from)) {
                    Ok(cursor) => self.cursor = Some(cursor),
                    Err(CursorError::Gone { kept_from, .. }) => {
                        assert!(kept_from.0 > from && self.needed.range(..kept_from.0).next().is_none());
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            Op::Read(count) => {
                let Some(cursor) = &mut self.cursor else { return };
                for _ in 0..count {
                    let position = cursor.position().0;
                    let Some(record) = cursor.peek() else { break };
                    let ssn = record.ssn().0;
                    assert_eq!(record.wire(), body(ssn, self.sent[&ssn]), "SSN {ssn}");
                    assert!(
                        ssn >= position && self.needed.range(position..ssn).next().is_none(),
                        "a needed record was skipped"
                    );
                    cursor.advance();
                }
            }
            Op::CloseCursor => self.cursor = None,
            Op::Die => {
                let Some(path) = self.path.clone() else { return };
                self.cursor = None;
                let next = self.lane.next_ssn();
                // As after SIGKILL: the structures are gone, the file stays.
                self.lane = LaneWriter::new(Pool::volatile(options()).unwrap(), Rank(1));
                self.pool = Pool::volatile(options()).unwrap();
                let (pool, mut lanes) = Pool::recover(&path, OWNER, options()).unwrap();
                self.pool = pool;
                if let Some(lane) = lanes.pop() {
                    self.lane = lane;
                } else {
                    self.lane = LaneWriter::new(self.pool.clone(), Rank(1));
                }
                assert_eq!(self.lane.next_ssn(), next);
                self.acked = 0;
                self.settled.clear();
                // No record is acknowledged any more, so all remaining ones are needed.
            }
            Op::FreeOldest | Op::Relocate(..) | Op::Truncate(_) => {}
        }
    }

    /// Checks that every needed record can be read, and that each record was sent.
    fn check(&self) {
        let first = self.needed.keys().next().copied().unwrap_or(self.lane.next_ssn().0);
        let mut cursor = self.lane.reader().open(Ssn(first)).unwrap();
        let mut seen = Vec::new();
        while let Some(record) = cursor.peek() {
            let ssn = record.ssn().0;
            assert_eq!(record.wire(), body(ssn, self.sent[&ssn]), "SSN {ssn}");
            seen.push(ssn);
            cursor.advance();
        }
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(
            self.needed.keys().all(|ssn| seen.binary_search(ssn).is_ok()),
            "needed {:?}\nseen {seen:?}",
            self.needed.keys()
        );
    }
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" }).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 1000 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_volatile_lane_keeps_every_needed_record(ops in proptest::collection::vec(op(), 1..120)) {
        let mut history = History::new(None);
        for op in ops {
            history.apply(op);
            history.check();
        }
        drop(history.cursor.take());
        let pool = history.pool.clone();
        drop(history);
        prop_assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn a_process_crash_safe_lane_keeps_every_needed_record(ops in proptest::collection::vec(op(), 1..120)) {
        let dir = scratch();
        let job = dir.path().join("job");
        create_private_dir(&job).unwrap();
        let mut history = History::new(Some(job.join("log")));
        for op in ops {
            history.apply(op);
            history.check();
        }
    }
}

/// An unknown chunk id is no error.
#[test]
fn freeing_a_chunk_that_is_not_there_does_nothing() {
    let mut lane = LaneWriter::new(Pool::volatile(options()).unwrap(), Rank(1));
    assert!(!lane.free(ChunkId(1)));
    lane.claim(0, 8).unwrap().commit();
    assert!(!lane.free(ChunkId(1)), "the current chunk stays");
    assert_eq!(lane.relocate(ChunkId(1), ChunkId(1), Ssn::ZERO).unwrap(), Relocated::Unknown);
}
