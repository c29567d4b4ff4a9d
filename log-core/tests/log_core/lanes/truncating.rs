//! Lanes truncated, rewound and repeated, or restored from a checkpoint.

use counterfoil_log_core::{CursorError, Disposition, LaneWriter, RepeatError, Ssn, TruncateError};

use super::{fill, lane, payload, records, ssns};

#[test]
fn a_truncated_lane_reuses_the_numbers_that_were_cut_off() {
    for cut in [0, 137, 1, 50, 999, 1000].into_iter().take(if cfg!(miri) { 2 } else { usize::MAX }) {
        let mut lane = lane();
        fill(&mut lane, 1000);
        lane.truncate(Ssn(cut)).unwrap();
        assert_eq!(lane.next_ssn(), Ssn(cut + 1));
        assert_eq!(ssns(&lane, Ssn::FIRST).unwrap(), (1..=cut).collect::<Vec<_>>());
        fill(&mut lane, 1200);
        assert_eq!(ssns(&lane, Ssn::FIRST).unwrap(), (1..=1200).collect::<Vec<_>>());
    }
}

#[test]
fn truncation_is_refused_with_an_open_cursor_and_beyond_the_end() {
    let mut lane = lane();
    fill(&mut lane, 1000);
    assert!(matches!(lane.truncate(Ssn(1001)), Err(TruncateError::NeverSent { .. })));
    let cursor = lane.reader().open(Ssn(1)).unwrap();
    assert!(matches!(lane.truncate(Ssn(5)), Err(TruncateError::CursorOpen { .. })));
    drop(cursor);
    lane.acknowledge(Ssn(900), Disposition::Release).unwrap();
    lane.truncate(Ssn(950)).unwrap();
    assert_eq!(ssns(&lane, Ssn(901)).unwrap(), (901..=950).collect::<Vec<_>>());
    // Below the oldest record: the lane is empty then, and goes on with the next number.
    lane.truncate(Ssn(5)).unwrap();
    fill(&mut lane, 20);
    assert_eq!(ssns(&lane, Ssn(6)).unwrap(), (6..=20).collect::<Vec<_>>());
}

#[test]
fn a_rewound_lane_compares_repeated_messages() {
    let mut lane = lane();
    fill(&mut lane, 1000);
    lane.acknowledge(Ssn(100), Disposition::Release).unwrap();
    lane.rewind(Ssn(20));
    assert_eq!(lane.rewound_to(), Some(Ssn(21)));
    for ssn in 21..=499 {
        // Records released and freed can't be compared and are skipped.
        assert_eq!(lane.repeat(&payload(ssn)).unwrap(), Ssn(ssn));
    }
    let mut other = payload(500);
    other[3] ^= 1;
    let RepeatError::Diverged(diverged) = lane.repeat(&other).unwrap_err() else { panic!("not rewound") };
    assert_eq!((diverged.ssn, diverged.at), (Ssn(500), 3));
    assert_eq!(diverged.bytes, Some((other[3] ^ 1, other[3])));
    let RepeatError::Diverged(longer) = lane.repeat(&[payload(500), vec![7]].concat()).unwrap_err() else { panic!() };
    let len = payload(500).len();
    assert_eq!((longer.at, longer.bytes), (len, None));
    assert!(longer.to_string().contains(&format!("it has {} bytes and had {len}", len + 1)), "{longer}");
    assert_eq!(lane.repeat_as_recorded().unwrap(), Ssn(500));
    for ssn in 501..=999 {
        lane.repeat(&payload(ssn)).unwrap();
    }
    assert_eq!(lane.repeat_as_recorded().unwrap(), Ssn(1000));
    assert_eq!(lane.rewound_to(), None);
    assert!(matches!(lane.repeat_as_recorded(), Err(RepeatError::NotRewound { .. })));
    assert!(matches!(lane.repeat(b""), Err(RepeatError::NotRewound { .. })));
    fill(&mut lane, 1100);
    assert_eq!(ssns(&lane, Ssn(200)).unwrap(), (200..=1100).collect::<Vec<_>>());
}

#[test]
fn a_checkpoints_records_are_imported_under_their_numbers() {
    let mut lane = lane();
    for ssn in (40..400).step_by(3) {
        let bytes = payload(ssn);
        let mut claim = lane.import(Ssn(ssn), 3, bytes.len()).unwrap();
        claim.prefix_mut().copy_from_slice(b"pre");
        claim.payload_mut().copy_from_slice(&bytes);
        claim.commit();
    }
    assert!(lane.import(Ssn(100), 0, 0).is_err());
    lane.set_next(Ssn(500)).unwrap();
    assert!(lane.set_next(Ssn(499)).is_err());
    fill(&mut lane, 600);
    let expected: Vec<u64> = (40..400).step_by(3).chain(500..=600).collect();
    assert_eq!(ssns(&lane, Ssn(40)).unwrap(), expected);
    assert!(matches!(lane.reader().open(Ssn(39)), Err(CursorError::Gone { kept_from: Ssn(40), .. })));
}

#[test]
fn a_lane_is_resumed_before_its_first_use_and_within_the_limits() {
    let mut used = lane();
    fill(&mut used, 1);
    assert!(used.resume(Ssn(5), Ssn(3), &[]).is_err());
    let mut raised = lane();
    raised.resume(Ssn(5), Ssn(3), &[]).unwrap();
    assert!(raised.resume(Ssn(6), Ssn(3), &[]).is_err(), "no record is in memory, but numbers are used");
    for (next, acked) in [(Ssn::ZERO, Ssn::ZERO), (Ssn::MAX, Ssn::ZERO), (Ssn(5), Ssn(5)), (Ssn(5), Ssn(6))] {
        assert!(lane().resume(next, acked, &[]).is_err(), "{next} and {acked}");
    }
    assert!(lane().resume(Ssn(Ssn::MAX.0 - 1), Ssn(4), &[]).is_ok());
}

#[test]
fn a_repeated_message_is_compared_wherever_its_record_is() {
    for ssn in (1..=40).step_by(if cfg!(miri) { 13 } else { 1 }) {
        let mut lane = lane();
        fill(&mut lane, 20);
        // A pad between the records.
        drop(lane.claim(3, 50).unwrap());
        fill(&mut lane, 40);
        lane.rewind(Ssn(ssn - 1));
        assert_eq!(lane.rewound_to(), Some(Ssn(ssn)));
        assert!(lane.repeat(b"something else that was never sent").is_err(), "message {ssn}");
        assert_eq!(lane.repeat(&payload(ssn)), Ok(Ssn(ssn)));
    }
    let mut lane = lane();
    fill(&mut lane, 40);
    lane.rewind(Ssn(40));
    assert_eq!(lane.rewound_to(), None, "nothing is to be repeated");
}

#[test]
fn numbers_may_stay_and_a_record_that_is_imported_takes_one_chunk() {
    for bytes in (3800..4096).step_by(if cfg!(miri) { 50 } else { 1 }) {
        let mut lane = lane();
        lane.import(Ssn(5), 3, bytes).unwrap().commit();
        assert_eq!(lane.unsettled().count(), 0, "{bytes} bytes");
        let fits = 112 + (16 + 3 + bytes).next_multiple_of(16) + 16 <= 4096;
        assert_eq!(lane.held_bytes() == 4096, fits, "{bytes} bytes take {}", lane.held_bytes());
    }
    let mut lane = lane();
    fill(&mut lane, 3);
    let held = lane.held_bytes();
    lane.set_next(Ssn(4)).unwrap();
    lane.import(Ssn(4), 3, 8).unwrap().commit();
    assert_eq!((lane.held_bytes(), lane.next_ssn()), (held, Ssn(5)), "no number is skipped");
    assert!(lane.set_next(Ssn(4)).is_err() && lane.import(Ssn(4), 0, 0).is_err());
    assert!(lane.set_next(Ssn::MAX).is_err() && lane.import(Ssn::MAX, 0, 0).is_err());
}

#[test]
fn a_lane_that_is_cut_begins_no_chunk() {
    let full = |lane: &LaneWriter| lane.unsettled().map(|(last, _)| last).collect::<Vec<_>>();
    for last in (1..120).step_by(if cfg!(miri) { 40 } else { 1 }) {
        let mut lane = lane();
        fill(&mut lane, 120);
        let mut expected = full(&lane);
        // A chunk ending with the cut stays full: the next one is empty.
        expected.retain(|sealed| *sealed <= Ssn(last));
        lane.truncate(Ssn(last)).unwrap();
        assert_eq!((full(&lane), lane.next_ssn()), (expected, Ssn(last + 1)), "cut at {last}");
        fill(&mut lane, 120);
        assert_eq!(ssns(&lane, Ssn(1)).unwrap(), (1..=120).collect::<Vec<_>>());
    }
}

#[test]
fn bytes_of_a_chunk_that_is_written_again_count_once() {
    let mut lane = lane();
    fill(&mut lane, 120);
    let (sealed, _) = lane.unsettled().last().unwrap();
    lane.truncate(sealed.prev()).unwrap();
    assert_eq!(lane.appended_bytes(), records(Ssn(1), sealed.prev()) as u64);
}
