//! The memory bound, tested with an owner relocating records between chunks.

use std::collections::{BTreeMap, VecDeque};

use counterfoil_gc::{ChunkUse, Collector, Decision, SMALL_CHUNK_BYTES};
use counterfoil_log_core::{Epoch, Rank, Ssn};
use proptest::prelude::*;

const CHUNK_BYTES: usize = 64 << 10;

/// A model chunk, with its retained records as (SSN, bytes).
#[derive(Clone, Debug)]
struct Chunk {
    records: Vec<(u64, usize)>,
    last: u64,
    held: usize,
}

impl Chunk {
    fn used(&self) -> usize {
        self.records.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Memory owner: carries out decisions, or defers them.
#[derive(Default)]
struct Owner {
    collector: Collector,
    chunks: BTreeMap<u64, Chunk>,
    next_ssn: BTreeMap<Rank, u64>,
    next_chunk: u64,
    settled_bytes: usize,
    copied_bytes: usize,
    /// True for each next relocation to be deferred.
    defers: VecDeque<bool>,
}

/// Returns the size of a fresh chunk: a power of two from 4 KiB to the chunk size, then in steps of an eighth.
fn size_class(used: usize) -> usize {
    if used <= CHUNK_BYTES {
        used.next_power_of_two().max(SMALL_CHUNK_BYTES)
    } else {
        used.next_multiple_of(CHUNK_BYTES / 8)
    }
}

impl Owner {
    fn describe(&self, id: u64) -> ChunkUse {
        let chunk = &self.chunks[&id];
        ChunkUse {
            chunk: id,
            first: Ssn(chunk.records.first().map_or(chunk.last, |&(ssn, _)| ssn)),
            last: Ssn(chunk.last),
            held_bytes: chunk.held,
            used_bytes: chunk.used(),
            newest_epoch: Epoch(0),
        }
    }

    fn add(&mut self, chunk: Chunk) -> u64 {
        self.next_chunk += 1;
        self.chunks.insert(self.next_chunk, chunk);
        self.next_chunk
    }

    /// Settles a chunk of `held` bytes, `percent` per cent used by retained records.
    fn settle(&mut self, lane: Rank, held: usize, percent: usize, records: u64) {
        let first = *self.next_ssn.entry(lane).or_insert(1);
        self.next_ssn.insert(lane, first + records);
        let each = held * percent / 100 / records as usize;
        let last = first + records - 1;
        let records: Vec<(u64, usize)> =
            if each == 0 { Vec::new() } else { (first..=last).map(|ssn| (ssn, each)).collect() };
        self.settled_bytes += each * records.len();
        let id = self.add(Chunk { records, last, held });
        let decision = self.collector.settle(lane, self.describe(id));
        self.carry_out(lane, decision);
    }

    fn carry_out(&mut self, lane: Rank, mut decision: Decision) {
        loop {
            match decision {
                Decision::Keep { .. } => return,
                Decision::Free { chunk } => {
                    let freed = self.chunks.remove(&chunk).unwrap();
                    let floor = self.collector.floor(lane);
                    assert!(freed.records.iter().all(|&(ssn, _)| Ssn(ssn) <= floor), "freed {freed:?} above {floor}");
                    return;
                }
                Decision::Relocate { .. } if self.defers.pop_front() == Some(true) => return,
                Decision::Relocate { chunk, next } => {
                    let old: Vec<u64> = [Some(chunk), next].into_iter().flatten().collect();
                    let gone: Vec<Chunk> = old.iter().map(|id| self.chunks.remove(id).unwrap()).collect();
                    let records: Vec<(u64, usize)> = gone.iter().flat_map(|chunk| chunk.records.clone()).collect();
                    assert!(records.is_sorted(), "out of order: {records:?}");
                    let used = records.iter().map(|(_, bytes)| bytes).sum();
                    let last = gone.last().unwrap().last;
                    let held = size_class(used);
                    assert!(gone.iter().any(|chunk| chunk.held >= held), "{gone:?} became {held}");
                    self.copied_bytes += used;
                    let fresh = self.add(Chunk { records, last, held });
                    decision = self.collector.relocated(lane, &old, self.describe(fresh));
                }
            }
        }
    }

    fn raise_floor(&mut self, lane: Rank, percent: u64) {
        let sent = self.next_ssn.get(&lane).map_or(0, |next| next - 1);
        let floor = self.collector.floor(lane).0;
        self.collector.raise_floor(lane, Ssn(floor + (sent - floor) * percent / 100));
    }

    fn collect(&mut self) {
        while let Some((lane, decision)) = self.collector.advance().next() {
            self.carry_out(lane, decision);
        }
        while let Some(partly) = self.collector.poll_partly_covered() {
            let chunk = self.chunks.get_mut(&partly.chunk).unwrap();
            chunk.records.retain(|&(ssn, _)| Ssn(ssn) > partly.floor);
            let used = chunk.used();
            let decision = self.collector.set_used(partly.lane, partly.chunk, used).unwrap();
            self.carry_out(partly.lane, decision);
        }
    }

    fn forget_after(&mut self, lane: Rank, percent: u64) {
        let sent = self.next_ssn.get(&lane).map_or(0, |next| next - 1);
        let floor = self.collector.floor(lane).0;
        let ssn = floor + (sent - floor) * percent / 100;
        let forgotten: Vec<u64> =
            self.collector.chunks(lane).filter(|chunk| chunk.last > Ssn(ssn)).map(|chunk| chunk.chunk).collect();
        for id in forgotten {
            self.chunks.remove(&id);
        }
        self.collector.forget_after(lane, Ssn(ssn));
    }

    fn check_sums(&self) {
        assert_eq!(self.collector.held_bytes(), self.chunks.values().map(|chunk| chunk.held).sum::<usize>());
        let lanes = self.next_ssn.keys().map(|&lane| self.collector.lane_bytes(lane));
        let sums = lanes.fold((0, 0), |(held, used), lane| (held + lane.0, used + lane.1));
        assert_eq!(sums, (self.collector.held_bytes(), self.collector.used_bytes()));
    }

    fn check_bound(&self) {
        for &lane in self.next_ssn.keys() {
            let (held, used) = self.collector.lane_bytes(lane);
            assert!(held <= 2 * used + SMALL_CHUNK_BYTES, "{lane}: {held} held for {used} used");
        }
    }
}

#[derive(Clone, Debug)]
enum Event {
    Settle { lane: u32, held: usize, percent: usize, records: u64 },
    RaiseFloor { lane: u32, percent: u64 },
    Collect,
    ForgetAfter { lane: u32, percent: u64 },
    Defer(Vec<bool>),
}

fn events(defers: bool) -> impl Strategy<Value = Vec<Event>> {
    let lanes = 0u32..3;
    let held = prop_oneof![
        4 => (0u32..5).prop_map(|power| SMALL_CHUNK_BYTES << power),
        1 => (9usize..20).prop_map(|eighths| eighths * CHUNK_BYTES / 8),
    ];
    // Almost empty, just below and above half, and full.
    let percent = prop_oneof![Just(0usize), 1usize..4, 45usize..56, 0usize..=100];
    let event = prop_oneof![
        12 => (lanes.clone(), held, percent, 1u64..30)
            .prop_map(|(lane, held, percent, records)| Event::Settle { lane, held, percent, records }),
        3 => (lanes.clone(), 0u64..=100).prop_map(|(lane, percent)| Event::RaiseFloor { lane, percent }),
        3 => Just(Event::Collect),
        1 => (lanes, 50u64..=100).prop_map(|(lane, percent)| Event::ForgetAfter { lane, percent }),
        2 => proptest::collection::vec(any::<bool>(), 1..4).prop_map(Event::Defer),
    ];
    let wanted = event.prop_map(move |event| match event {
        Event::Defer(_) if !defers => Event::Collect,
        other => other,
    });
    proptest::collection::vec(wanted, 1..120)
}

fn run(events: Vec<Event>, after_each: impl Fn(&Owner)) -> Owner {
    let mut owner = Owner::default();
    for event in events {
        match event {
            Event::Settle { lane, held, percent, records } => owner.settle(Rank(lane), held, percent, records),
            Event::RaiseFloor { lane, percent } => {
                owner.raise_floor(Rank(lane), percent);
                owner.collect();
            }
            Event::Collect => owner.collect(),
            Event::ForgetAfter { lane, percent } => owner.forget_after(Rank(lane), percent),
            Event::Defer(which) => owner.defers = which.into(),
        }
        owner.check_sums();
        after_each(&owner);
    }
    owner
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn every_lane_holds_at_most_twice_what_it_uses_and_one_small_chunk(events in events(false)) {
        run(events, Owner::check_bound);
    }

    #[test]
    fn collecting_makes_up_for_deferred_relocations(events in events(true)) {
        let mut owner = run(events, |_| ());
        owner.defers.clear();
        owner.raise_floor(Rank(0), 0);
        owner.collect();
        owner.check_sums();
        owner.check_bound();
        prop_assert_eq!(owner.collector.advance().count(), 0, "nothing is left to do");
    }

    #[test]
    fn relocation_copies_what_it_moves_three_times_and_4_kib_a_chunk_at_most(
        chunks in proptest::collection::vec((0u32..5, prop_oneof![Just(1usize), 45usize..56, 0usize..=100]), 1..200)
    ) {
        let mut owner = Owner::default();
        let most_bytes = chunks.len() * SMALL_CHUNK_BYTES;
        for (power, percent) in chunks {
            owner.settle(Rank(0), SMALL_CHUNK_BYTES << power, percent, 4);
        }
        let most_bytes = most_bytes + 3 * owner.settled_bytes;
        prop_assert!(owner.copied_bytes <= most_bytes, "{} bytes copied, at most {most_bytes}", owner.copied_bytes);
    }
}

#[test]
fn a_thousand_sparse_chunks_are_merged_into_a_few_dense_ones() {
    let mut owner = Owner::default();
    for _ in 0..1000 {
        owner.settle(Rank(0), CHUNK_BYTES, 1, 4);
    }
    owner.check_bound();
    let used = owner.collector.used_bytes();
    assert!(owner.collector.held_bytes() <= 2 * used + SMALL_CHUNK_BYTES);
    assert!(owner.copied_bytes <= 3 * used, "{} bytes copied for {used}", owner.copied_bytes);
}

/// Returns a chunk without gaps, for tests without an owner.
const FULL: ChunkUse =
    ChunkUse { chunk: 1, first: Ssn(1), last: Ssn(64), held_bytes: 65536, used_bytes: 65536, newest_epoch: Epoch(1) };

#[test]
fn a_half_used_chunk_is_kept() {
    let mut collector = Collector::new();
    let half = ChunkUse { used_bytes: 32768, ..FULL };
    assert_eq!(collector.settle(Rank(1), half), Decision::Keep { chunk: 1 });
    let sparse = ChunkUse { used_bytes: 32767, ..half };
    assert_eq!(collector.settle(Rank(2), sparse), Decision::Relocate { chunk: 1, next: None });
}

#[test]
fn the_oldest_chunk_is_relocated_once_the_floor_leaves_less_than_half_of_it() {
    let mut collector = Collector::new();
    let lane = Rank(1);
    assert_eq!(collector.settle(lane, FULL), Decision::Keep { chunk: 1 });
    collector.raise_floor(lane, Ssn(40));
    assert_eq!(collector.advance().count(), 0);
    let partly = collector.poll_partly_covered().unwrap();
    assert_eq!((partly.lane, partly.chunk, partly.floor), (lane, 1, Ssn(40)));
    assert_eq!(collector.poll_partly_covered(), None, "said once");
    assert_eq!(collector.set_used(lane, 1, 24 * 1024), Some(Decision::Relocate { chunk: 1, next: None }));

    let fresh = ChunkUse { chunk: 2, first: Ssn(41), held_bytes: 32768, used_bytes: 24 * 1024, ..FULL };
    assert_eq!(collector.relocated(lane, &[1], fresh), Decision::Keep { chunk: 2 });
    collector.raise_floor(lane, Ssn(64));
    assert_eq!(collector.advance().collect::<Vec<_>>(), [(lane, Decision::Free { chunk: 2 })]);
}

#[test]
fn collecting_terminates_without_memory_to_relocate() {
    let mut collector = Collector::new();
    for lane in 0..3 {
        let sparse = ChunkUse { used_bytes: 8192, ..FULL };
        assert_eq!(collector.settle(Rank(lane), sparse), Decision::Relocate { chunk: 1, next: None });
    }
    let repeated = |collector: &mut Collector| {
        let mut count = 0;
        while collector.advance().next().is_some() {
            count += 1;
        }
        count
    };
    assert_eq!(repeated(&mut collector), 3);
    assert_eq!(repeated(&mut collector), 0, "nothing has changed");
    collector.raise_floor(Rank(0), Ssn(64));
    assert_eq!(repeated(&mut collector), 1 + 2, "a chunk was freed, so the others are tried again");
}

#[test]
fn a_chunk_forgotten_during_its_relocation_is_kept() {
    let mut collector = Collector::new();
    let lane = Rank(1);
    let sparse = ChunkUse { used_bytes: 8192, ..FULL };
    assert_eq!(collector.settle(lane, sparse), Decision::Relocate { chunk: 1, next: None });
    collector.forget_after(lane, Ssn(30));
    let fresh = ChunkUse { chunk: 2, held_bytes: 8192, ..sparse };
    assert_eq!(collector.relocated(lane, &[1], fresh), Decision::Keep { chunk: 2 });
    assert_eq!(collector.held_bytes(), 0, "its records are unacknowledged now");
    assert_eq!(collector.settle(lane, fresh), Decision::Keep { chunk: 2 });
}
