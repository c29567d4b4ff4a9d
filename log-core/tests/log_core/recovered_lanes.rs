//! Lanes in a dead process's file: legitimate gaps, and damage.

use std::os::unix::fs::FileExt;
use std::path::Path;

use counterfoil_log_core::{DamageError, Disposition, Epoch, LaneWriter, Phase, Pool, PoolError, Rank, Relocated, Ssn};

use crate::process_crash_safe::{OWNER, die, fill, leave_lane, options, payload, scratch, ssns, word};

/// Sets a word in a file.
fn set_word(path: &Path, at: usize, value: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&value.to_le_bytes(), at as u64).unwrap();
}

/// Returns the offsets of a file's active 4 KiB chunks, in their order in the only lane.
fn active_chunks(file: &[u8]) -> Vec<usize> {
    let is_active = |at: &usize| word(file, *at) >> 32 == 0xCF01_0022;
    let mut chunks: Vec<usize> = (4096..file.len()).step_by(4096).filter(is_active).collect();
    chunks.sort_by_key(|at| word(file, at + 24));
    chunks
}

/// Recovers a file with these bytes and these words changed.
fn recovers_with(path: &Path, whole: &[u8], changes: &[(usize, u64)]) -> Result<Vec<u64>, DamageError> {
    std::fs::write(path, whole).unwrap();
    for &(offset, value) in changes {
        set_word(path, offset, value);
    }
    recovers(path)
}

fn recovers(path: &Path) -> Result<Vec<u64>, DamageError> {
    match Pool::recover(path, OWNER, options()) {
        Ok((_pool, lanes)) => Ok(ssns(&lanes[0], lanes[0].kept_from().0)),
        Err(PoolError::Refused { reason, .. }) => Err(reason),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn records_that_are_missing_within_a_lane_are_an_error() {
    let at = scratch();
    let whole = leave_lane(&at);
    let chunks = active_chunks(&whole);
    assert!(chunks.len() > 6, "{chunks:?}");
    let with = |changes: &[(usize, u64)]| recovers_with(&at.path, &whole, changes);
    assert_eq!(with(&[]), Ok((1..=400).collect()));
    for &chunk in &chunks[1..chunks.len() - 2] {
        // The chunk is lost as a whole.
        let lost = with(&[(chunk, 0)]);
        assert!(matches!(lost, Err(DamageError::Damaged { .. })), "{lost:?}");
        // It ends after its first record, and nothing marks it sealed.
        let second = chunk + 112 + (16 + (word(&whole, chunk + 112) & 0xFFFF) as usize).next_multiple_of(16);
        let cut = with(&[(second, 0), (chunk + 40, 0)]);
        assert!(matches!(cut, Err(DamageError::Damaged { .. })), "{cut:?}");
    }
}

#[test]
fn forged_numbers_in_a_chunks_header_are_an_error() {
    let at = scratch();
    let whole = leave_lane(&at);
    let chunks = active_chunks(&whole);
    let class = 0;
    for &chunk in [chunks[0], chunks[3], chunks[chunks.len() - 1]].iter() {
        for (offset, value) in
            [24, 32, 48].into_iter().flat_map(|at| [0, 1 << 63, u64::MAX, Ssn::MAX.0].map(|value| (at, value)))
        {
            let mut words = [16, 24, 32, 48].map(|at| word(&whole, chunk + at));
            words[[16, 24, 32, 48].iter().position(|at| *at == offset).unwrap()] = value;
            let check = words.iter().fold(0xC0F0 + class, |sum: u64, word| {
                (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31)
            });
            let forged = recovers_with(&at.path, &whole, &[(chunk + offset, value), (chunk + 56, check)]);
            assert!(matches!(forged, Err(DamageError::Damaged { .. })), "{value:#x} at {offset}: {forged:?}");
        }
    }
}

/// Chunks freed in the middle, relocated or imported records, skipped SSNs, and a truncated end.
#[test]
fn lanes_with_legitimate_gaps_are_recovered() {
    let at = scratch();
    let mut lane = LaneWriter::new(Pool::create(&at.path, OWNER, options()).unwrap(), Rank(0));
    fill(&mut lane, 400);
    lane.acknowledge(Ssn(1), Disposition::Retain { epoch: Epoch(1), phase: Phase(1) }).unwrap();
    lane.acknowledge(Ssn(390), Disposition::Retain { epoch: Epoch(1), phase: Phase(1) }).unwrap();
    let settled: Vec<_> = std::iter::from_fn(|| lane.poll_settled()).collect();
    assert!(lane.free(settled[1].chunk) && lane.free(settled[2].chunk));
    // Not all records in the first chunk are kept.
    let relocated = lane.relocate(settled[3].chunk, settled[4].chunk, settled[3].first).unwrap();
    assert!(matches!(relocated, Relocated::Into(_)), "{relocated:?}");
    fill(&mut lane, 420);
    let body = payload(500);
    lane.set_next(Ssn(450)).unwrap();
    let mut claim = lane.import(Ssn(500), 8, body.len()).unwrap();
    claim.prefix_mut().fill(1);
    claim.payload_mut().copy_from_slice(&body);
    claim.commit();
    // A sparse chunk with its last SSNs skipped, and a chunk after it.
    lane.set_next(Ssn(600)).unwrap();
    assert!(lane.leave_current(0) || lane.reserve(0, 4000).is_ok());
    fill(&mut lane, 1200);
    // The chunk with this record was sealed.
    lane.truncate(Ssn(610)).unwrap();
    let before = ssns(&lane, 1);
    assert!(before.len() < 430 && before.ends_with(&[500, 600, 601, 602, 603, 604, 605, 606, 607, 608, 609, 610]));
    die(vec![lane]);
    assert_eq!(recovers(&at.path), Ok(before.clone()));
    assert_eq!(recovers(&at.path), Ok(before));
}
