//! Lanes that are truncated, rewound and repeated, or restored from a checkpoint.

use counterfoil_log_core::{CursorError, Disposition, RepeatError, Ssn, TruncateError};

use super::{fill, lane, payload, ssns};

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
        // Records that were released and freed can't be compared and are skipped.
        assert_eq!(lane.repeat(&payload(ssn)).unwrap(), Ssn(ssn));
    }
    let mut other = payload(500);
    other[3] ^= 1;
    let RepeatError::Diverged(diverged) = lane.repeat(&other).unwrap_err() else { panic!("not rewound") };
    assert_eq!((diverged.ssn, diverged.at), (Ssn(500), 3));
    for ssn in 500..=1000 {
        lane.repeat(&payload(ssn)).unwrap();
    }
    assert_eq!(lane.rewound_to(), None);
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
