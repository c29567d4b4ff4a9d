//! Collection cost in visited lanes and chunks.

use counterfoil_gc::{ChunkUse, Collector, Decision};
use counterfoil_log_core::{Epoch, Rank, Ssn};

/// Returns a collector with `lanes` lanes of `chunks` full chunks with `records` records each.
///
/// Epoch E + 1 begins after E's chunks; lane L begins at epoch 1 + L % 10.
fn filled(lanes: u32, chunks: u64, records: u64) -> Collector {
    let mut collector = Collector::new();
    for lane in 0..lanes {
        for chunk in 0..chunks {
            let entry = ChunkUse {
                chunk,
                first: Ssn(1 + chunk * records),
                last: Ssn((chunk + 1) * records),
                held_bytes: 65536,
                used_bytes: 65536,
                newest_epoch: Epoch(1 + lane % 10 + chunk as u32),
            };
            assert_eq!(collector.settle(Rank(lane), entry), Decision::Keep { chunk });
        }
    }
    collector
}

fn visited(collector: &mut Collector, work: impl FnOnce(&mut Collector)) -> u64 {
    let before = collector.visited();
    work(collector);
    collector.visited() - before
}

#[test]
fn the_cost_of_advancing_is_independent_of_the_number_of_lanes() {
    let cost = |lanes| {
        let mut collector = filled(lanes, 100, 10);
        collector.raise_floor(Rank(7), Ssn(300));
        visited(&mut collector, |collector| assert_eq!(collector.advance().count(), 30))
    };
    assert_eq!(cost(8), cost(1000));
    assert!(cost(1000) <= 30 + 2);
}

#[test]
fn the_cost_of_advancing_is_independent_of_the_number_of_records() {
    let cost = |records| {
        let mut collector = filled(4, 500, records);
        visited(&mut collector, |collector| {
            collector.raise_floor(Rank(2), Ssn(400 * records));
            assert_eq!(collector.advance().count(), 400);
        })
    };
    assert_eq!(cost(1), cost(1000));
}

#[test]
fn without_work_nothing_is_visited() {
    let mut collector = filled(1000, 10, 10);
    assert_eq!(visited(&mut collector, |collector| assert_eq!(collector.advance().count(), 0)), 0);
    collector.raise_floor(Rank(3), Ssn(5));
    assert_eq!(visited(&mut collector, |collector| assert_eq!(collector.advance().count(), 0)), 0);
}

#[test]
fn a_new_smallest_epoch_visits_only_lanes_with_older_records() {
    let mut collector = filled(1000, 10, 10);
    // A hundred lanes begin at epoch 1, a hundred at epoch 2...
    let raised = visited(&mut collector, |collector| collector.raise_all_epoch_floors(Epoch(3)));
    assert_eq!(raised, 200);
    assert_eq!(collector.advance().count(), 200 + 100, "two chunks in lanes of epoch 1, one in those of epoch 2");
    assert_eq!(visited(&mut collector, |collector| collector.raise_all_epoch_floors(Epoch(3))), 0);
}
