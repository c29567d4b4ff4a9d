//! Acknowledged records: retained, settled and relocated.

use counterfoil_log_core::{Disposition, Epoch, Phase, Relocated, Ssn};

use super::{append, fill, lane, payload, records, retain, settled, ssns};

#[test]
fn an_acknowledgement_of_a_record_never_sent_is_refused() {
    let mut lane = lane();
    fill(&mut lane, 10);
    let error = lane.acknowledge(Ssn(11), Disposition::Release).unwrap_err();
    assert_eq!((error.acked, error.sent), (Ssn(11), Ssn(10)));
    assert_eq!(lane.acked(), Ssn::ZERO);
    lane.acknowledge(Ssn(10), Disposition::Release).unwrap();
    lane.acknowledge(Ssn(3), Disposition::Release).unwrap();
    assert_eq!(lane.acked(), Ssn(10), "an old acknowledgement changes nothing");
}

#[test]
fn retained_records_are_settled_chunk_by_chunk() {
    let mut lane = lane();
    fill(&mut lane, 1000);
    let retain = |epoch| Disposition::Retain { epoch: Epoch(epoch), phase: Phase(7) };
    lane.acknowledge(Ssn(300), retain(1)).unwrap();
    lane.acknowledge(Ssn(400), Disposition::Release).unwrap();
    lane.acknowledge(Ssn(900), retain(2)).unwrap();
    let settled = settled(&mut lane);
    assert!(settled.len() > 5);
    assert!(settled.windows(2).all(|pair| pair[0].last.next() == pair[1].first));
    assert!(settled.last().unwrap().last <= Ssn(900));
    assert_eq!(settled[0].newest_epoch, Epoch(1));
    assert_eq!(settled.last().unwrap().newest_epoch, Epoch(2));
    let all = records(Ssn(1), Ssn(300)) + records(Ssn(401), settled.last().unwrap().last);
    let headers = settled.iter().filter(|chunk| chunk.used_bytes > 0).count() * 112;
    assert_eq!(settled.iter().map(|chunk| chunk.used_bytes).sum::<usize>(), all + headers);
    assert_eq!(lane.runs().count(), 3);
}

#[test]
fn pads_are_not_used_bytes_of_a_chunk() {
    let mut lane = lane();
    for ssn in 1..=300 {
        drop(lane.claim(3, 500).unwrap());
        append(&mut lane, &payload(ssn));
    }
    // A truncation inside a chunk keeps the pads before the cut and drops those after it.
    lane.truncate(Ssn(250)).unwrap();
    fill(&mut lane, 400);
    retain(&mut lane, 400);
    let settled = settled(&mut lane);
    assert!(settled.last().unwrap().last > Ssn(300));
    for chunk in settled {
        assert_eq!(chunk.used_bytes, 112 + records(chunk.first, chunk.last), "{chunk:?}");
        assert_eq!(lane.used_bytes_above(chunk.chunk, Ssn::ZERO), Some(chunk.used_bytes));
    }
}

#[test]
fn relocation_keeps_the_retained_records_and_no_others() {
    let mut lane = lane();
    fill(&mut lane, 2000);
    for upto in (10..=1990).step_by(10) {
        lane.acknowledge(Ssn(upto - 1), Disposition::Release).unwrap();
        retain(&mut lane, upto);
    }
    let before = lane.held_bytes();
    let settled = settled(&mut lane);
    let mut chunks = settled.iter();
    while let (Some(a), Some(b)) = (chunks.next(), chunks.next()) {
        let moved = lane.relocate(a.chunk, b.chunk, Ssn(100)).unwrap();
        assert_eq!(matches!(moved, Relocated::Into(_)), b.last > Ssn(110), "{moved:?}");
    }
    assert!(lane.held_bytes() < before);
    let last = settled.last().unwrap().last.0;
    let kept = ssns(&lane, Ssn(110)).unwrap();
    let expected: Vec<u64> = (110..=last).filter(|ssn| ssn % 10 == 0).collect();
    let whole: Vec<u64> = kept.iter().copied().filter(|ssn| ssn % 10 == 0 && *ssn <= last).collect();
    assert_eq!(whole, expected);
    assert!(ssns(&lane, Ssn(1)).is_err());
}

#[test]
fn a_rollback_of_the_receiver_makes_records_unacknowledged() {
    let mut lane = lane();
    fill(&mut lane, 1000);
    let retain = Disposition::Retain { epoch: Epoch(1), phase: Phase(1) };
    lane.acknowledge(Ssn(1000 - 1), retain).unwrap();
    let first = settled(&mut lane);
    lane.unacknowledge(Ssn(400));
    assert_eq!(lane.acked(), Ssn(400));
    assert!(lane.poll_settled().is_none());
    lane.acknowledge(Ssn(999), retain).unwrap();
    let again = settled(&mut lane);
    assert_eq!(again.last(), first.last());
    assert!(again.len() < first.len());
}

/// An unforgotten run would decide about records acknowledged again with another disposition.
#[test]
fn a_rollback_of_the_receiver_forgets_the_dispositions_of_later_records() {
    let mut lane = lane();
    fill(&mut lane, 100);
    let retain = |epoch| Disposition::Retain { epoch: Epoch(epoch), phase: Phase(1) };
    lane.acknowledge(Ssn(30), retain(1)).unwrap();
    lane.acknowledge(Ssn(50), Disposition::Release).unwrap();
    lane.unacknowledge(Ssn(20));
    lane.acknowledge(Ssn(50), retain(2)).unwrap();
    let runs: Vec<_> = lane.runs().map(|run| (run.first.0, run.last.0, run.disposition)).collect();
    assert_eq!(runs, [(1, 20, retain(1)), (21, 50, retain(2))]);
}

#[test]
fn used_bytes_above_a_floor_are_those_of_later_records() {
    let mut lane = lane();
    fill(&mut lane, 300);
    retain(&mut lane, 300);
    let chunk = lane.poll_settled().unwrap();
    for floor in [chunk.first, Ssn(chunk.last.0 - 2), chunk.last.prev()] {
        let above = 112 + records(floor.next(), chunk.last);
        assert_eq!(lane.used_bytes_above(chunk.chunk, floor), Some(above), "above {floor}");
    }
}

#[test]
fn records_acknowledged_alike_are_one_run() {
    let mut lane = lane();
    fill(&mut lane, 100);
    for upto in 1..=100 {
        let epoch = Epoch(1 + u32::from(upto > 50));
        lane.acknowledge(Ssn(upto), Disposition::Retain { epoch, phase: Phase(1) }).unwrap();
    }
    let runs: Vec<_> = lane.runs().map(|run| (run.first.0, run.last.0)).collect();
    assert_eq!(runs, [(1, 50), (51, 100)]);
}

#[test]
fn dispositions_are_restored_and_forgotten_with_their_records() {
    let retain = |epoch| Disposition::Retain { epoch: Epoch(epoch), phase: Phase(1) };
    let mut before = lane();
    fill(&mut before, 30);
    for (upto, disposition) in [(10, retain(1)), (20, Disposition::Release), (30, retain(2))] {
        before.acknowledge(Ssn(upto), disposition).unwrap();
    }
    let runs: Vec<_> = before.runs().collect();
    assert_eq!(runs.len(), 3);
    let mut after = lane();
    after.resume(Ssn(31), Ssn(30), &runs).unwrap();
    assert_eq!(after.runs().collect::<Vec<_>>(), runs);
    // 20 is in the second run, so this run stays.
    after.forget_runs_upto(Ssn(19));
    assert_eq!(after.runs().collect::<Vec<_>>(), runs[1..]);
    after.forget_runs_upto(Ssn(20));
    assert_eq!(after.runs().collect::<Vec<_>>(), runs[2..]);
    // Released records alone have no table.
    let mut released = lane();
    released.resume(Ssn(31), Ssn(20), &runs[1..2]).unwrap();
    assert_eq!(released.runs().count(), 0);
}

#[test]
fn freed_chunks_take_their_dispositions_along_unless_they_are_on_disk() {
    for is_on_disk in [false, true] {
        let mut lane = lane();
        for epoch in 1..=400 {
            fill(&mut lane, u64::from(epoch));
            let disposition = Disposition::Retain { epoch: Epoch(epoch), phase: Phase(1) };
            lane.acknowledge(Ssn(u64::from(epoch)), disposition).unwrap();
        }
        let settled = settled(&mut lane);
        assert!(settled.len() > 4);
        for settled in &settled[..3] {
            assert!(if is_on_disk { lane.evict(settled.chunk) } else { lane.free(settled.chunk) });
        }
        let first = if is_on_disk { Ssn(1) } else { lane.kept_from() };
        assert_eq!(lane.runs().next().map(|run| run.first), Some(first), "on disk: {is_on_disk}");
    }
}

#[test]
fn chunks_after_one_that_was_freed_in_the_middle_are_settled_once() {
    let mut lane = lane();
    fill(&mut lane, 400);
    retain(&mut lane, 1);
    retain(&mut lane, 200);
    let early = settled(&mut lane);
    assert!(early.len() > 2);
    assert!(lane.free(early[1].chunk) && !lane.free(early[1].chunk));
    retain(&mut lane, 400);
    let late = settled(&mut lane);
    let lasts: Vec<_> = early.iter().chain(&late).map(|settled| settled.last).collect();
    assert!(lasts.is_sorted_by(|a, b| a < b), "{lasts:?}");
    let kept = ssns(&lane, Ssn(1)).unwrap();
    let expected = (1..=400).filter(|ssn| *ssn <= early[0].last.0 || *ssn > early[1].last.0);
    assert_eq!(kept, expected.collect::<Vec<_>>());
    // All but the current chunk were reported.
    assert_eq!(lane.unsettled().count(), 0);
}

#[test]
fn a_chunk_is_settled_with_the_acknowledgement_of_its_last_record() {
    let mut lane = lane();
    fill(&mut lane, 400);
    let full: Vec<_> = lane.unsettled().map(|(last, _)| last).collect();
    for last in full {
        let retain = |epoch| Disposition::Retain { epoch: Epoch(epoch), phase: Phase(1) };
        lane.acknowledge(last.prev(), retain(1)).unwrap();
        assert!(lane.poll_settled().is_none());
        lane.acknowledge(last, retain(1)).unwrap();
        assert_eq!(lane.poll_settled().map(|settled| settled.last), Some(last));
        assert!(lane.poll_settled().is_none());
    }
}

#[test]
fn the_record_at_the_floor_of_a_relocation_is_not_kept() {
    let mut lane = lane();
    fill(&mut lane, 200);
    retain(&mut lane, 200);
    let settled = settled(&mut lane);
    let floor = settled[0].last.prev();
    lane.relocate(settled[0].chunk, settled[0].chunk, floor).unwrap();
    assert_eq!(ssns(&lane, lane.kept_from()).unwrap(), (floor.0 + 1..=200).collect::<Vec<_>>());
}
