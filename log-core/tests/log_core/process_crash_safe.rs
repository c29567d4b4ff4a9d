//! The process-crash-safe tier: recovery after a kill, and refused files.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use counterfoil_log_core::{
    DamageError, Disposition, Epoch, LaneWriter, LocalLog, Owner, Phase, Pool, PoolError, PoolOptions,
    PrivateFileError, Rank, Relocated, Ssn, TierError, create_private_dir,
};

pub(crate) const OWNER: Owner = Owner { rank: Rank(3), label: 7 };

pub(crate) fn options() -> PoolOptions {
    PoolOptions { memory_bytes_max: 256 << 10, chunk_bytes: 4096, prefault_bytes: 8192, cursors_max: 2 }
}

pub(crate) struct Scratch {
    _dir: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

pub(crate) fn scratch() -> Scratch {
    let dir = tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" }).unwrap();
    let private = dir.path().join("job");
    create_private_dir(&private).unwrap();
    Scratch { path: private.join("log.3"), _dir: dir }
}

pub(crate) fn payload(ssn: u64) -> Vec<u8> {
    (0..ssn % 61).map(|i| (ssn * 7 + i) as u8).collect()
}

pub(crate) fn fill(lane: &mut LaneWriter, upto: u64) {
    while lane.next_ssn().0 <= upto {
        let bytes = payload(lane.next_ssn().0);
        let mut claim = lane.claim(8, bytes.len()).unwrap();
        claim.prefix_mut().fill(1);
        claim.payload_mut().copy_from_slice(&bytes);
        claim.commit();
    }
}

pub(crate) fn ssns(lane: &LaneWriter, from: u64) -> Vec<u64> {
    let mut cursor = lane.reader().open(Ssn(from)).unwrap();
    let mut seen = Vec::new();
    while let Some(record) = cursor.peek() {
        assert_eq!(record.payload(), payload(record.ssn().0));
        seen.push(record.ssn().0);
        cursor.advance();
    }
    seen
}

/// Acts as SIGKILL: the process's structures are gone, and the file stays as it is.
pub(crate) fn die(lanes: Vec<LaneWriter>) {
    drop(lanes);
}

/// Leaves a dead process's file with a lane of 400 records, and returns its bytes.
pub(crate) fn leave_lane(at: &Scratch) -> Vec<u8> {
    let mut lane = LaneWriter::new(Pool::create(&at.path, OWNER, options()).unwrap(), Rank(0));
    fill(&mut lane, 400);
    die(vec![lane]);
    std::fs::read(&at.path).unwrap()
}

pub(crate) fn word(file: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(file[at..at + 8].try_into().unwrap())
}

#[test]
fn a_replacement_finds_every_committed_record() {
    let at = scratch();
    let pool = Pool::create(&at.path, OWNER, options()).unwrap();
    let mut lanes: Vec<_> = [0, 1, 5].map(|peer| LaneWriter::new(pool.clone(), Rank(peer))).into();
    fill(&mut lanes[0], 10);
    fill(&mut lanes[1], 800);
    drop(lanes[1].claim(3, 3).unwrap());
    lanes[1].acknowledge(Ssn(300), Disposition::Release).unwrap();
    // Claimed and written, but never committed.
    std::mem::forget(lanes[0].claim(0, 100).unwrap());
    drop(pool);
    die(lanes);

    let (pool, mut lanes) = Pool::recover(&at.path, OWNER, options()).unwrap();
    assert_eq!(lanes.iter().map(|lane| lane.peer().0).collect::<Vec<_>>(), [0, 1], "lane 5 was never used");
    assert_eq!(ssns(&lanes[0], 1), (1..=10).collect::<Vec<_>>());
    assert_eq!(ssns(&lanes[1], 301), (301..=800).collect::<Vec<_>>());
    assert_eq!(lanes[1].acked(), Ssn::ZERO);

    // The recovered log goes on, and is recovered again.
    fill(&mut lanes[0], 700);
    fill(&mut lanes[1], 2000);
    lanes[1].acknowledge(Ssn(1900), Disposition::Release).unwrap();
    assert!(pool.used_bytes() <= 256 << 10);
    drop(pool);
    die(lanes);
    let (_pool, lanes) = Pool::recover(&at.path, OWNER, options()).unwrap();
    assert_eq!(ssns(&lanes[0], 1), (1..=700).collect::<Vec<_>>());
    assert_eq!(ssns(&lanes[1], 1901), (1901..=2000).collect::<Vec<_>>());
}

/// A full chunk's end word is written before the header fields for its end: the owner may die between the two.
#[test]
fn a_chunk_whose_header_lacks_its_end_is_recovered() {
    let at = scratch();
    let whole = leave_lane(&at);
    let is_sealed = |at: &usize| word(&whole, *at) >> 48 == 0xCF01 && word(&whole, at + 40) != 0;
    let sealed: Vec<usize> = (4096..whole.len()).step_by(4096).filter(is_sealed).collect();
    assert!(sealed.len() > 3, "{sealed:?}");
    for chunk in sealed {
        let file = std::fs::OpenOptions::new().write(true).open(&at.path).unwrap();
        file.write_all_at(&whole, 0).unwrap();
        for field in [40, 72, 80] {
            file.write_all_at(&[0; 8], (chunk + field) as u64).unwrap();
        }
        drop(file);
        let (_pool, lanes) = Pool::recover(&at.path, OWNER, options()).unwrap();
        assert_eq!(ssns(&lanes[0], 1), (1..=400).collect::<Vec<_>>(), "the chunk at {chunk}");
    }
}

#[test]
fn unused_memory_is_reclaimed_by_each_of_many_recoveries() {
    let at = scratch();
    let pool = Pool::create(&at.path, OWNER, options()).unwrap();
    let mut lanes = vec![LaneWriter::new(pool.clone(), Rank(0))];
    drop(pool);
    let mut upto = 0;
    for life in 0..30 {
        upto += 500 + life;
        fill(&mut lanes[0], upto);
        lanes[0].acknowledge(Ssn(upto - 20), Disposition::Release).unwrap();
        die(lanes);
        let (pool, recovered) = Pool::recover(&at.path, OWNER, options()).unwrap();
        lanes = recovered;
        assert_eq!(lanes.len(), 1);
        assert!(pool.used_bytes() <= 6 * 4096, "life {life}: {}", pool.used_bytes());
        assert_eq!(ssns(&lanes[0], upto - 19).len(), 20);
    }
}

#[test]
fn relocated_records_are_recovered_once() {
    let at = scratch();
    let pool = Pool::create(&at.path, OWNER, options()).unwrap();
    let mut lane = LaneWriter::new(pool, Rank(0));
    fill(&mut lane, 1000);
    for upto in (10..=990).step_by(10) {
        lane.acknowledge(Ssn(upto - 1), Disposition::Release).unwrap();
        lane.acknowledge(Ssn(upto), Disposition::Retain { epoch: Epoch(1), phase: Phase(1) }).unwrap();
    }
    let settled: Vec<_> = std::iter::from_fn(|| lane.poll_settled()).collect();
    let (first, last) = (settled[2].chunk, settled[6].chunk);
    assert!(matches!(lane.relocate(first, last, Ssn::ZERO).unwrap(), Relocated::Into(_)));
    let before = ssns(&lane, 1);
    die(vec![lane]);
    let (_pool, lanes) = Pool::recover(&at.path, OWNER, options()).unwrap();
    assert_eq!(ssns(&lanes[0], 1), before);
}

#[test]
fn pads_are_not_used_bytes_of_a_recovered_chunk() {
    let at = scratch();
    let mut lane = LaneWriter::new(Pool::create(&at.path, OWNER, options()).unwrap(), Rank(0));
    for ssn in 1..=100 {
        drop(lane.claim(8, 500).unwrap());
        fill(&mut lane, ssn);
    }
    die(vec![lane]);
    let (_pool, mut lanes) = Pool::recover(&at.path, OWNER, options()).unwrap();
    let lane = &mut lanes[0];
    fill(lane, 300);
    lane.acknowledge(Ssn(300), Disposition::Retain { epoch: Epoch(1), phase: Phase(1) }).unwrap();
    let settled: Vec<_> = std::iter::from_fn(|| lane.poll_settled()).collect();
    assert!(settled.last().unwrap().last > Ssn(150), "includes the chunk that was open");
    for chunk in settled {
        assert_eq!(lane.used_bytes_above(chunk.chunk, Ssn::ZERO), Some(chunk.used_bytes), "{chunk:?}");
    }
}

#[test]
fn the_local_log_is_recovered_and_consumed_by_matching() {
    let at = scratch();
    let mut log = LocalLog::new(Pool::create(&at.path, OWNER, options()).unwrap());
    for key in 0..500 {
        log.append(1, key, &key.to_le_bytes()).unwrap();
        log.append(2, key % 3, b"late").unwrap();
    }
    log.seal(Epoch(2)).unwrap();
    log.append(1, 500, b"after").unwrap();
    assert!(log.append(255, 0, b"").is_err());
    drop(log);

    let (pool, lanes) = Pool::recover(&at.path, OWNER, options()).unwrap();
    let mut log = LocalLog::recovered(pool, lanes).unwrap();
    assert_eq!((log.len(), log.pending(1), log.pending(2)), (1002, 501, 500));
    assert_eq!(log.consume(1, 400).unwrap().bytes, 400_u64.to_le_bytes(), "out of order");
    assert_eq!(log.consume(1, 400), None, "once");
    assert_eq!(log.get(1, 400).unwrap().key, 400, "but it can be read again");
    assert_eq!(log.next_key(1), Some(0));
    for key in 0..400 {
        assert_eq!(log.consume(1, key).unwrap().bytes, key.to_le_bytes());
    }
    log.skip_below(1, 450);
    assert_eq!(log.next_key(1), Some(450));
    let held = log.held_bytes();
    assert!(log.discard_sealed(Epoch(2)));
    assert!(!log.discard_sealed(Epoch(2)));
    assert!(log.held_bytes() < held);
    assert_eq!((log.len(), log.consume(1, 500).unwrap().bytes), (1, b"after".to_vec()));
    drop(log);
    let (pool, lanes) = Pool::recover(&at.path, OWNER, options()).unwrap();
    assert!(LocalLog::recovered(pool, lanes).unwrap().get(1, 500).is_some());
}

#[test]
fn files_of_a_living_owner_or_of_another_log_are_refused() {
    let at = scratch();
    let recover = |owner, options| Pool::recover(&at.path, owner, options).map(|_| ()).unwrap_err();
    assert!(matches!(recover(OWNER, options()), PoolError::Tier(TierError::File(PrivateFileError::Io { .. }))));
    let pool = Pool::create(&at.path, OWNER, options()).unwrap();
    let alive = recover(OWNER, options());
    assert!(matches!(alive, PoolError::Tier(TierError::File(PrivateFileError::OwnerAlive { .. }))), "{alive}");
    let again = Pool::create(&at.path, OWNER, options()).map(|_| ()).unwrap_err();
    assert!(matches!(again, PoolError::Tier(_)), "{again}");
    drop(pool);
    assert!(!at.path.with_extension("3.new").exists());

    let refused = |owner, options, what| match recover(owner, options) {
        PoolError::Refused { reason: DamageError::Mismatch { what: found, .. }, .. } => assert_eq!(found, what),
        other => panic!("{other}"),
    };
    refused(Owner { rank: Rank(4), ..OWNER }, options(), "rank");
    refused(Owner { label: 8, ..OWNER }, options(), "label");
    refused(OWNER, PoolOptions { memory_bytes_max: 512 << 10, ..options() }, "memory_bytes_max");
    refused(OWNER, PoolOptions { chunk_bytes: 8192, ..options() }, "chunk_bytes");
    Pool::recover(&at.path, OWNER, options()).unwrap();
}

/// The layout on the module's page: programs of this version read each other's files.
#[test]
fn the_header_has_its_layout_and_its_check() {
    let at = scratch();
    drop(Pool::create(&at.path, OWNER, options()).unwrap());
    let file = std::fs::read(&at.path).unwrap();
    let words: Vec<u64> = (0..9).map(|index| word(&file, index * 8)).collect();
    let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&at.path).unwrap());
    let expected = [
        u64::from_le_bytes(*b"CFOILSHM"),
        1 << 32 | 3,
        u64::from(user) << 32 | u64::from(std::process::id()),
        7,
        0,
        256 << 10,
        4096,
        file.len() as u64,
    ];
    assert_eq!(words[..8], expected);
    let check =
        expected.iter().fold(0, |sum: u64, word| (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29));
    assert_eq!(words[8], check);
}

#[test]
fn another_version_and_a_file_cut_short_are_refused() {
    let at = scratch();
    drop(Pool::create(&at.path, OWNER, options()).unwrap());
    let whole = std::fs::read(&at.path).unwrap();
    let reason = |bytes: &[u8]| {
        std::fs::write(&at.path, bytes).unwrap();
        match Pool::recover(&at.path, OWNER, options()).map(|_| ()).unwrap_err() {
            PoolError::Refused { reason, .. } => reason,
            other => panic!("{other}"),
        }
    };
    for len in [1, 100, 4095, 4096, 8192, whole.len() - 1] {
        assert!(matches!(reason(&whole[..len]), DamageError::Length { .. }), "{len} bytes");
    }
    let mut other = whole.clone();
    other[12] = 9;
    assert_eq!(reason(&other), DamageError::Version { found: 9 });
    other[0] = b'X';
    assert_eq!(reason(&other), DamageError::NotALog);
    std::fs::write(&at.path, b"").unwrap();
    let empty = Pool::recover(&at.path, OWNER, options()).map(|_| ()).unwrap_err();
    assert!(matches!(empty, PoolError::Tier(TierError::Size { .. })), "{empty}");
    assert!(empty.to_string().contains("empty"), "{empty}");
}

/// Flips every byte ever written by the log, in turn.
///
/// A recovery either fails, or finds exactly the committed records, except for a payload byte: payloads are checked end
/// to end by the layer above.
#[test]
fn every_byte_flipped_is_an_error_or_changes_no_record_but_its_own() {
    let at = scratch();
    let small = PoolOptions { memory_bytes_max: 32 << 10, chunk_bytes: 4096, prefault_bytes: 0, cursors_max: 1 };
    let pool = Pool::create(&at.path, OWNER, small.clone()).unwrap();
    let mut lane = LaneWriter::new(pool.clone(), Rank(0));
    for ssn in 1..=70_u64 {
        let mut claim = lane.claim(8, 100).unwrap();
        claim.prefix_mut().copy_from_slice(&ssn.to_le_bytes());
        claim.payload_mut().fill(ssn as u8);
        if ssn == 5 {
            drop(claim);
            let mut claim = lane.claim(8, 100).unwrap();
            claim.prefix_mut().copy_from_slice(&ssn.to_le_bytes());
            claim.payload_mut().fill(ssn as u8);
            claim.commit();
        } else {
            claim.commit();
        }
    }
    drop((lane, pool));
    let whole = std::fs::read(&at.path).unwrap();
    let (mut refused, mut in_a_body, mut harmless) = (0, 0, 0);
    let written: Vec<usize> = (0..whole.len()).filter(|&at| whole[at] != 0 || (at > 0 && whole[at - 1] != 0)).collect();
    for flip in [0xFF, 0x01, 0x80] {
        for &offset in &written {
            let file = std::fs::OpenOptions::new().write(true).open(&at.path).unwrap();
            file.write_all_at(&whole, 0).unwrap();
            file.write_all_at(&[whole[offset] ^ flip], offset as u64).unwrap();
            drop(file);
            let (_pool, lanes) = match Pool::recover(&at.path, OWNER, small.clone()) {
                Ok(recovered) => recovered,
                Err(PoolError::Refused { .. }) => {
                    refused += 1;
                    continue;
                }
                Err(other) => panic!("offset {offset}: {other}"),
            };
            assert_eq!(lanes.len(), 1, "offset {offset}");
            let mut cursor = lanes[0].reader().open(Ssn(1)).unwrap();
            let mut changed = 0;
            for ssn in 1..=70_u64 {
                let record = cursor.peek().unwrap_or_else(|| panic!("offset {offset}: SSN {ssn} is missing"));
                assert_eq!(record.ssn(), Ssn(ssn), "offset {offset}");
                let body = [&ssn.to_le_bytes()[..], &[ssn as u8; 100]].concat();
                assert_eq!(record.wire().len(), body.len(), "offset {offset}");
                changed += record.wire().iter().zip(&body).filter(|(a, b)| a != b).count();
                cursor.advance();
            }
            assert!(cursor.peek().is_none(), "offset {offset}: a record was invented");
            assert!(changed <= 1);
            if changed == 1 { in_a_body += 1 } else { harmless += 1 }
        }
    }
    let figures = format!("{refused} refused, {in_a_body} inside a body, {harmless} in unused bytes");
    assert!(refused > 1000 && in_a_body >= 3 * 70 * 101, "{figures}");
    assert!(harmless < 3 * 200, "{figures}: flips were overlooked");
}
