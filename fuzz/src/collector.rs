//! Fuzz body for the collector, with chunk lists as model.

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::Unstructured;
use counterfoil_gc::{ChunkUse, Collector, Decision, SMALL_CHUNK_BYTES};
use counterfoil_log_core::{Epoch, Rank, Ssn};

/// Naive model of a lane.
#[derive(Default)]
struct Lane {
    chunks: Vec<ChunkUse>,
    /// Upper bounds of receive epochs: (epoch, last SSN), without forgotten ones.
    notes: Vec<(u32, u64)>,
    floor: u64,
    epoch_floor: u32,
    sent: u64,
}

impl Lane {
    fn note(&mut self, epoch: u32, last: u64) {
        let (newest, noted) = self.notes.last().copied().unwrap_or_default();
        if last > noted {
            self.notes.push((epoch.max(newest), last));
        }
    }

    /// Returns the floor: the one set, or the end of the leading notes from older epochs only.
    fn floor(&self) -> u64 {
        let older = self.notes.iter().take_while(|&&(epoch, _)| epoch < self.epoch_floor).last();
        self.floor.max(older.map_or(0, |&(_, last)| last))
    }

    fn forget_after(&mut self, ssn: u64) {
        self.floor = self.floor();
        self.chunks.retain(|chunk| chunk.last.0 <= ssn);
        let beyond = self.notes.iter().position(|&(_, last)| last >= ssn);
        if let Some(beyond) = beyond {
            self.notes.truncate(beyond + 1);
            self.notes[beyond].1 = ssn;
        }
        self.notes.retain(|&(_, last)| last > self.floor);
        self.sent = ssn;
    }
}

#[derive(Default)]
struct Model {
    lanes: BTreeMap<Rank, Lane>,
    next_chunk: u64,
}

/// Tests the collector; carries out every decision at once.
pub fn collector(data: &[u8]) {
    let mut collector = Collector::new();
    let mut model = Model::default();
    let mut input = Unstructured::new(data);
    while let Ok(&[step, number]) = input.bytes(2) {
        let rank = Rank(u32::from(step / 8) % 3);
        let lane = model.lanes.entry(rank).or_default();
        match step % 8 {
            0..=3 => {
                let Ok(&[percent]) = input.bytes(1) else { return };
                settle(&mut collector, &mut model, rank, number, percent % 101);
            }
            4 => {
                let floor = (lane.floor() + u64::from(number % 32)).min(lane.sent);
                collector.raise_floor(rank, Ssn(floor));
                lane.floor = lane.floor().max(floor);
                lane.notes.retain(|&(_, last)| last > floor);
            }
            5 => {
                let epoch = u32::from(number % 8);
                if number < 128 {
                    collector.raise_epoch_floor(rank, Epoch(epoch));
                    lane.epoch_floor = lane.epoch_floor.max(epoch);
                } else {
                    collector.raise_all_epoch_floors(Epoch(epoch));
                    for rank in 0..3 {
                        let lane = model.lanes.entry(Rank(rank)).or_default();
                        lane.epoch_floor = lane.epoch_floor.max(epoch);
                    }
                }
            }
            6 => {
                let ssn = (lane.floor() + u64::from(number)).min(lane.sent);
                collector.forget_after(rank, Ssn(ssn));
                lane.forget_after(ssn);
            }
            _ => collect(&mut collector, &mut model),
        }
        compare(&collector, &model);
    }
}

fn settle(collector: &mut Collector, model: &mut Model, rank: Rank, number: u8, percent: u8) {
    let held_bytes = SMALL_CHUNK_BYTES << (number % 5);
    let used_bytes = held_bytes * usize::from(percent) / 100;
    let epoch = u32::from(number / 5 % 8);
    model.next_chunk += 1;
    let lane = model.lanes.entry(rank).or_default();
    let entry = ChunkUse {
        chunk: model.next_chunk,
        first: Ssn(lane.sent + 1),
        last: Ssn(lane.sent + 1 + u64::from(number / 16)),
        held_bytes,
        used_bytes,
        newest_epoch: Epoch(epoch),
    };
    lane.sent = entry.last.0;
    if epoch > 0 {
        lane.note(epoch, entry.last.0);
    }
    let decision = collector.settle(rank, entry);
    let needed = used_bytes > 0 && entry.last.0 > lane.floor();
    assert_eq!(!needed, decision == Decision::Free { chunk: entry.chunk });
    if needed {
        lane.chunks.push(entry);
        carry_out(collector, model, rank, decision);
    }
}

fn carry_out(collector: &mut Collector, model: &mut Model, rank: Rank, mut decision: Decision) {
    while let Decision::Relocate { chunk, next } = decision {
        let lane = model.lanes.entry(rank).or_default();
        let at = lane.chunks.iter().position(|entry| entry.chunk == chunk).expect("a known chunk");
        let count = 1 + usize::from(next.is_some());
        let old: Vec<ChunkUse> = lane.chunks.drain(at..at + count).collect();
        assert!(next.is_none_or(|next| old[1].chunk == next), "not the next chunk");
        let used_bytes: usize = old.iter().map(|entry| entry.used_bytes).sum();
        model.next_chunk += 1;
        let fresh = ChunkUse {
            chunk: model.next_chunk,
            last: old[count - 1].last,
            held_bytes: used_bytes.next_power_of_two().max(SMALL_CHUNK_BYTES),
            used_bytes,
            ..old[0]
        };
        assert!(old.iter().any(|entry| entry.held_bytes >= fresh.held_bytes), "{old:?} became {fresh:?}");
        lane.chunks.insert(at, fresh);
        let old: Vec<u64> = old.iter().map(|entry| entry.chunk).collect();
        decision = collector.relocated(rank, &old, fresh);
    }
}

/// Checks that exactly the chunks below the floors are freed, then halves the use of partly covered ones.
fn collect(collector: &mut Collector, model: &mut Model) {
    let mut expected = BTreeSet::new();
    for (&rank, lane) in &mut model.lanes {
        let floor = lane.floor();
        let covered = lane.chunks.iter().take_while(|chunk| chunk.last.0 <= floor).count();
        expected.extend(lane.chunks.drain(..covered).map(|chunk| (rank, chunk.chunk)));
    }
    while let Some((rank, decision)) = collector.advance().next() {
        match decision {
            Decision::Free { chunk } => assert!(expected.remove(&(rank, chunk)), "{rank}: {chunk} was freed"),
            other => panic!("everything is carried out at once, but {other:?} remains"),
        }
    }
    assert_eq!(expected, BTreeSet::new(), "chunks that were not freed");

    while let Some(partly) = collector.poll_partly_covered() {
        let lane = model.lanes.entry(partly.lane).or_default();
        assert_eq!(partly.floor, Ssn(lane.floor()));
        let head = lane.chunks.first_mut().expect("a lane without chunks isn't covered in part");
        assert_eq!(head.chunk, partly.chunk);
        assert!(head.first <= partly.floor && partly.floor < head.last);
        head.used_bytes = head.used_bytes.div_ceil(2);
        let decision = collector.set_used(partly.lane, partly.chunk, head.used_bytes).expect("a known chunk");
        carry_out(collector, model, partly.lane, decision);
    }
}

fn compare(collector: &Collector, model: &Model) {
    let mut held_in_all = 0;
    for (&rank, lane) in &model.lanes {
        assert!(collector.chunks(rank).eq(&lane.chunks), "{rank}: {:?}", lane.chunks);
        assert_eq!(collector.floor(rank), Ssn(lane.floor()));
        let held: usize = lane.chunks.iter().map(|chunk| chunk.held_bytes).sum();
        let used: usize = lane.chunks.iter().map(|chunk| chunk.used_bytes).sum();
        assert_eq!(collector.lane_bytes(rank), (held, used));
        assert!(held <= 2 * used + SMALL_CHUNK_BYTES, "{rank}: {held} held for {used} used");
        held_in_all += held;
    }
    assert_eq!(collector.held_bytes(), held_in_all);
    assert_eq!(collector.report().iter().map(|holder| holder.bytes).sum::<usize>(), held_in_all);
}
