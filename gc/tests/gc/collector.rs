//! Collector decisions, one statement at a time.

use counterfoil_gc::{Blocker, ChunkUse, Collector, Decision, Holder, PartlyCovered};
use counterfoil_log_core::{Epoch, Rank, Ssn};

const LANE: Rank = Rank(5);

/// Returns a full chunk of ten records.
fn chunk(number: u64, epoch: u32) -> ChunkUse {
    ChunkUse {
        chunk: number,
        first: Ssn(number * 10 + 1),
        last: Ssn(number * 10 + 10),
        held_bytes: 4096,
        used_bytes: 4000,
        newest_epoch: Epoch(epoch),
    }
}

fn freed(collector: &mut Collector) -> Vec<u64> {
    collector
        .advance()
        .map(|(_, decision)| match decision {
            Decision::Free { chunk } => chunk,
            other => panic!("{other:?}"),
        })
        .collect()
}

fn with_chunks(epochs: &[u32]) -> Collector {
    let mut collector = Collector::new();
    for (number, &epoch) in (0..).zip(epochs) {
        assert_eq!(collector.settle(LANE, chunk(number, epoch)), Decision::Keep { chunk: number });
    }
    collector
}

#[test]
fn a_chunk_whose_records_are_all_released_is_freed_at_once() {
    let mut collector = Collector::new();
    let released = ChunkUse { used_bytes: 0, ..chunk(0, 1) };
    assert_eq!(collector.settle(LANE, released), Decision::Free { chunk: 0 });
    assert_eq!(collector.held_bytes(), 0);
}

#[test]
fn a_chunk_below_the_floor_is_freed_at_once() {
    let mut collector = Collector::new();
    collector.raise_floor(LANE, Ssn(10));
    assert_eq!(collector.settle(LANE, chunk(0, 1)), Decision::Free { chunk: 0 });
    assert_eq!(collector.settle(LANE, chunk(1, 1)), Decision::Keep { chunk: 1 });
}

#[test]
fn a_floor_frees_the_chunks_that_it_covers_as_a_whole() {
    let mut collector = with_chunks(&[1, 1, 1, 1]);
    collector.raise_floor(LANE, Ssn(29));
    assert_eq!(freed(&mut collector), [0, 1]);
    collector.raise_floor(LANE, Ssn(20));
    assert_eq!(collector.floor(LANE), Ssn(29), "it only rises");
    collector.raise_floor(LANE, Ssn(30));
    assert_eq!(freed(&mut collector), [2]);
    assert_eq!((collector.held_bytes(), collector.used_bytes()), (4096, 4000));
}

#[test]
fn the_smallest_epoch_of_the_job_frees_records_received_before_it() {
    let mut collector = with_chunks(&[1, 2, 2, 3]);
    collector.raise_all_epoch_floors(Epoch(2));
    assert_eq!(freed(&mut collector), [0]);
    collector.raise_epoch_floor(Rank(9), Epoch(4));
    assert_eq!(freed(&mut collector), [], "another lane's receiver");
    collector.raise_epoch_floor(LANE, Epoch(3));
    assert_eq!(freed(&mut collector), [1, 2]);
}

#[test]
fn an_epoch_floor_also_applies_to_later_acknowledgements() {
    let mut collector = Collector::new();
    collector.raise_all_epoch_floors(Epoch(3));
    assert_eq!(collector.settle(LANE, chunk(0, 2)), Decision::Free { chunk: 0 });
    assert_eq!(collector.settle(LANE, chunk(1, 3)), Decision::Keep { chunk: 1 });
}

#[test]
fn epochs_noted_by_ssn_free_more_precisely_than_whole_chunks() {
    let mut collector = Collector::new();
    collector.note_epoch(LANE, Epoch(1), Ssn(14));
    collector.note_epoch(LANE, Epoch(2), Ssn(20));
    assert_eq!(collector.settle(LANE, chunk(0, 1)), Decision::Keep { chunk: 0 });
    assert_eq!(collector.settle(LANE, chunk(1, 2)), Decision::Keep { chunk: 1 });
    collector.raise_all_epoch_floors(Epoch(2));
    assert_eq!(freed(&mut collector), [0]);
    let partly = collector.poll_partly_covered().unwrap();
    assert_eq!((partly.chunk, partly.floor), (1, Ssn(14)));
}

#[test]
fn chunks_are_settled_again_after_a_rollback_of_the_receiver() {
    let mut collector = with_chunks(&[1, 1, 1]);
    collector.forget_after(LANE, Ssn(15));
    assert_eq!(collector.chunks(LANE).map(|chunk| chunk.chunk).collect::<Vec<_>>(), [0]);
    assert_eq!(collector.settle(LANE, chunk(1, 4)), Decision::Keep { chunk: 1 });
    collector.raise_all_epoch_floors(Epoch(2));
    assert_eq!(freed(&mut collector), [0], "chunk 1 was received in epoch 4 this time");
}

#[test]
fn records_received_again_in_an_earlier_epoch_are_freed_by_that_epoch() {
    let mut collector = with_chunks(&[1, 5]);
    collector.raise_all_epoch_floors(Epoch(2));
    assert_eq!(freed(&mut collector), [0]);
    collector.forget_after(LANE, Ssn(10));
    assert_eq!(collector.settle(LANE, chunk(1, 3)), Decision::Keep { chunk: 1 });
    collector.raise_all_epoch_floors(Epoch(4));
    assert_eq!(freed(&mut collector), [1]);
}

#[test]
fn a_chunk_that_is_settled_twice_counts_once() {
    let mut collector = with_chunks(&[1, 1]);
    assert_eq!(collector.settle(LANE, chunk(1, 1)), Decision::Keep { chunk: 1 });
    assert_eq!(collector.held_bytes(), 2 * 4096);
}

#[test]
fn the_report_names_the_largest_holder_and_its_blocker() {
    let mut collector = with_chunks(&[2, 3]);
    let plain = ChunkUse { newest_epoch: Epoch(0), ..chunk(0, 0) };
    assert_eq!(collector.settle(Rank(6), plain), Decision::Keep { chunk: 0 });
    collector.set_unacknowledged(Rank(7), Ssn(100), 1 << 20);
    collector.set_unacknowledged(Rank(8), Ssn(1), 10);
    collector.set_unacknowledged(Rank(8), Ssn(1), 0);
    collector.raise_floor(LANE, Ssn(3));
    let holder = |lane, bytes, since, blocked_by| Holder { lane: Rank(lane), bytes, since: Ssn(since), blocked_by };
    assert_eq!(
        collector.report(),
        [
            holder(7, 1 << 20, 100, Blocker::Unacknowledged),
            holder(5, 8192, 4, Blocker::Checkpoint { after: Some(Epoch(2)) }),
            holder(6, 4096, 1, Blocker::Checkpoint { after: None }),
        ]
    );
}

#[test]
fn a_chunk_that_is_emptied_is_freed() {
    let mut collector = with_chunks(&[1]);
    assert_eq!(collector.set_used(LANE, 0, 0), Some(Decision::Free { chunk: 0 }));
    assert_eq!(collector.held_bytes(), 0);
}

#[test]
fn a_relocated_chunk_without_used_records_or_below_the_floor_is_freed() {
    let mut collector = with_chunks(&[1, 1]);
    let released = ChunkUse { used_bytes: 0, ..chunk(0, 1) };
    assert_eq!(collector.relocated(LANE, &[0], released), Decision::Free { chunk: 0 });
    // The floor has risen during the relocation.
    collector.raise_floor(LANE, Ssn(20));
    assert_eq!(collector.relocated(LANE, &[1], chunk(1, 1)), Decision::Free { chunk: 1 });
    assert_eq!(collector.held_bytes(), 0);
}

#[test]
fn the_chunks_after_a_record_are_those_that_end_after_it() {
    let collector = with_chunks(&[1, 1, 1]);
    let after = |ssn| collector.chunks_after(LANE, Ssn(ssn)).map(|chunk| chunk.chunk).collect::<Vec<_>>();
    assert_eq!(
        [0, 9, 10, 11, 29, 30].map(after),
        [vec![0, 1, 2], vec![0, 1, 2], vec![1, 2], vec![1, 2], vec![2], vec![]]
    );
    assert_eq!(collector.chunks_after(Rank(6), Ssn(0)).count(), 0);
}

#[test]
fn a_lane_whose_oldest_chunk_is_covered_in_part_is_polled_once() {
    let mut collector = with_chunks(&[1, 1]);
    assert_eq!(collector.poll_partly_covered(), None);
    // Before the oldest chunk, within it, and at its end.
    for (floor, expected) in [(0, None), (5, Some((0, 5))), (10, None), (15, None)] {
        collector.raise_floor(LANE, Ssn(floor));
        let visited = collector.visited();
        let polled = collector.poll_partly_covered();
        assert_eq!(polled.map(|PartlyCovered { chunk, floor, .. }| (chunk, floor.0)), expected, "{floor}");
        assert_eq!(collector.visited(), visited + u64::from(expected.is_some()), "{floor}");
        assert_eq!(collector.poll_partly_covered(), None);
    }
    // The second chunk is the oldest one now.
    assert_eq!(freed(&mut collector), [0]);
    assert_eq!(collector.poll_partly_covered().map(|partly| partly.chunk), Some(1));
}

#[test]
fn the_bytes_in_use_follow_what_is_covered() {
    let mut collector = with_chunks(&[1, 1]);
    assert_eq!((collector.lane_bytes(LANE), collector.used_bytes()), ((8192, 8000), 8000));
    assert_eq!(collector.set_used(LANE, 0, 3000), Some(Decision::Keep { chunk: 0 }));
    assert_eq!((collector.lane_bytes(LANE), collector.used_bytes()), ((8192, 7000), 7000));
}

#[test]
fn unknown_lanes_and_chunks_are_ignored() {
    let mut collector = Collector::new();
    assert_eq!(collector.set_used(LANE, 1, 10), None);
    collector.forget_after(LANE, Ssn(5));
    assert_eq!(collector.relocated(LANE, &[1], chunk(2, 1)), Decision::Keep { chunk: 2 });
    assert_eq!((collector.held_bytes(), collector.lane_bytes(LANE), collector.report()), (0, (0, 0), vec![]));
}
