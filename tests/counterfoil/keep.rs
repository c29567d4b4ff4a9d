//! Retention of acknowledged messages.

use std::path::{Path, PathBuf};

use counterfoil::{
    Ack, CursorError, Epoch, Keep, Log, Options, Phase, Rank, ReplayError, Ssn, Tier, create_private_dir,
};

const PEER: Rank = Rank(1);
const SENT: u64 = 2000;

fn private_dir(parent: &Path) -> PathBuf {
    let dir = parent.join("job");
    create_private_dir(&dir).unwrap();
    dir
}

/// Runs a test with a log in either tier, with [`SENT`] messages, the first 1,500 acknowledged.
fn each_tier(keep: Keep, test: impl Fn(Log)) {
    for tier in [Tier::Volatile, Tier::ProcessCrashSafe] {
        let parent = tempfile::tempdir().unwrap();
        let mut options = Options::new(Rank(0), 2);
        (options.tier, options.keep) = (tier, keep);
        (options.memory_bytes_max, options.chunk_bytes) = (1 << 20, 4096);
        options.dir = (tier == Tier::ProcessCrashSafe).then(|| private_dir(parent.path()));
        let mut log = Log::create(options).unwrap();
        for ssn in 1..=SENT {
            let mut claim = log.try_claim(PEER, 8, 100).unwrap();
            claim.prefix_mut().copy_from_slice(&ssn.to_le_bytes());
            claim.payload_mut().fill(ssn as u8);
            assert_eq!(claim.commit(), Ssn(ssn));
        }
        for (upto, epoch) in [(700, 1), (1500, 2)] {
            log.acknowledge(PEER, Ack { ssn: Ssn(upto), epoch: Epoch(epoch) }, Phase(3)).unwrap();
        }
        assert_eq!(log.acked(PEER), Ssn(1500));
        test(log);
    }
}

/// Replays from `from`, checks the bytes, and returns the SSNs.
fn replayed(log: &mut Log, from: u64) -> Result<Vec<u64>, CursorError> {
    let mut cursor = match log.cursor(PEER, Ssn(from)) {
        Ok(cursor) => cursor,
        Err(ReplayError::Cursor(error)) => return Err(error),
        Err(other) => panic!("{other}"),
    };
    let mut ssns = Vec::new();
    while let Some(record) = cursor.peek().unwrap() {
        let ssn = record.ssn().0;
        assert_eq!((record.prefix(), record.payload()), (&ssn.to_le_bytes()[..], &[ssn as u8; 100][..]));
        ssns.push(ssn);
        cursor.advance();
    }
    Ok(ssns)
}

fn expect_all_from(log: &mut Log, from: u64) {
    assert_eq!(replayed(log, from), Ok((from..=SENT).collect()));
}

#[test]
fn keep_acked_keeps_only_unacknowledged_messages() {
    each_tier(Keep::Acked, |mut log| {
        let used = log.stats().used_bytes;
        assert!(used < 500 * (16 + 112) + 16 * 4096, "{used} bytes");
        assert_eq!(log.stats().holders, []);
        assert!(matches!(replayed(&mut log, 1), Err(CursorError::Gone { asked: Ssn(1), .. })));
        expect_all_from(&mut log, 1501);
    });
}

#[test]
fn keep_checkpoint_keeps_messages_until_a_checkpoint_covers_them() {
    each_tier(Keep::Checkpoint, |mut log| {
        expect_all_from(&mut log, 1);
        assert_eq!(log.collect().chunks, 0, "no checkpoint, nothing to collect");
        let before = log.stats();
        assert_eq!((before.holders.len(), before.holders[0].lane, before.holders[0].since), (1, PEER, Ssn(1)));

        log.receiver_covered(PEER, Epoch(2), Ssn(700)).unwrap();
        assert!(log.collect().chunks >= 20);
        assert!(matches!(replayed(&mut log, 1), Err(CursorError::Gone { .. })));
        expect_all_from(&mut log, 701);
        assert!(log.stats().used_bytes < before.used_bytes);

        // A checkpoint also acknowledges.
        log.receiver_covered(PEER, Epoch(3), Ssn(SENT)).unwrap();
        log.collect();
        assert_eq!(log.acked(PEER), Ssn(SENT));
        assert_eq!(log.stats().holders, []);
    });
}

#[test]
fn an_older_checkpoint_than_the_last_one_changes_nothing() {
    each_tier(Keep::Checkpoint, |mut log| {
        log.receiver_covered(PEER, Epoch(3), Ssn(1500)).unwrap();
        log.collect();
        let stats = log.stats();
        log.receiver_covered(PEER, Epoch(2), Ssn(700)).unwrap();
        log.receiver_covered(PEER, Epoch(2), Ssn::ZERO).unwrap();
        log.collect();
        assert_eq!(log.stats(), stats);
        expect_all_from(&mut log, 1501);
    });
}

#[test]
fn keep_all_keeps_covered_messages_too() {
    each_tier(Keep::All, |mut log| {
        log.receiver_covered(PEER, Epoch(3), Ssn(SENT)).unwrap();
        assert_eq!(log.collect().chunks, 0);
        expect_all_from(&mut log, 1);
    });
}

#[test]
fn unsent_messages_can_be_neither_acknowledged_nor_covered() {
    for keep in [Keep::Acked, Keep::Checkpoint, Keep::All] {
        each_tier(keep, |mut log| {
            let beyond = Ssn(SENT + 1);
            assert!(log.acknowledge(PEER, Ack { ssn: beyond, epoch: Epoch(2) }, Phase(0)).is_err());
            assert!(log.receiver_covered(PEER, Epoch(2), beyond).is_err());
            assert!(log.receiver_covered(Rank(0), Epoch(2), Ssn(1)).is_err(), "an unused lane");
            assert!(log.receiver_covered(Rank(9), Epoch(2), Ssn(1)).is_err(), "an invalid rank");
            assert_eq!(log.acked(PEER), Ssn(1500));
            log.collect();
            expect_all_from(&mut log, 1501);
        });
    }
}

#[test]
fn messages_lost_in_a_receivers_rollback_are_kept_until_received_again() {
    each_tier(Keep::Checkpoint, |mut log| {
        log.receiver_covered(PEER, Epoch(2), Ssn(700)).unwrap();
        log.collect();
        log.receiver_rolled_back(PEER, Ssn(700));
        assert_eq!(log.acked(PEER), Ssn(700));
        log.collect();
        expect_all_from(&mut log, 701);
        log.acknowledge(PEER, Ack { ssn: Ssn(SENT), epoch: Epoch(4) }, Phase(4)).unwrap();
        expect_all_from(&mut log, 701);
        log.receiver_covered(PEER, Epoch(5), Ssn(SENT)).unwrap();
        log.collect();
        assert_eq!(log.stats().holders, []);
    });
}
