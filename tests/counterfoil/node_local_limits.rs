//! Limits of the node-local tier: very large records, more lanes than chunks in memory, all cursors in use, a removed
//! store.

use counterfoil::{
    Ack, AppendError, CheckpointError, Contents, Cursor, CursorError, Epoch, Keep, Log, Options, Phase, Rank,
    ReplayError, Ssn, create_private_dir,
};

use crate::spilled::{KIB, MIB, acknowledge, append, check_replay, with_dir};

const PEER: Rank = Rank(1);

fn fill(log: &mut Log, count: u64) {
    for _ in 0..count {
        let ssn = append(log, PEER).unwrap();
        acknowledge(log, PEER, ssn);
    }
}

#[test]
fn records_larger_than_a_chunk_a_block_and_a_segment_are_spilled_and_recovered() {
    with_dir(2, |mut options| {
        options.memory_bytes_max = 8 << 20;
        let sizes = [0, 10, 17 * KIB, 70 * KIB, 300 * KIB, 1 << 20, 3 << 20, 5];
        let check = |log: &mut Log, count: usize| {
            let mut cursor = log.cursor(PEER, Ssn::FIRST).unwrap();
            for (number, size) in sizes.iter().cycle().take(count).enumerate() {
                let record = cursor.read().unwrap().unwrap();
                assert_eq!((record.ssn(), record.payload().len()), (Ssn(number as u64 + 1), *size));
                assert!(record.payload().iter().all(|byte| *byte == number as u8));
            }
            assert!(cursor.read().unwrap().is_none());
        };
        let mut log = Log::create(options.clone()).unwrap();
        for (number, size) in sizes.iter().cycle().take(80).enumerate() {
            let mut claim = log.claim(PEER, 0, *size).unwrap();
            claim.payload_mut().fill(number as u8);
            let ssn = claim.commit();
            acknowledge(&mut log, PEER, ssn);
        }
        assert!(log.stats().spilled_bytes > 20 * MIB);
        check(&mut log, 80);
        log.checkpoint(Epoch(2), Contents::default()).unwrap();
        drop(log);
        check(&mut Log::recover(options).unwrap().0, 80);
    });
}

#[test]
fn a_thousand_lanes_share_the_memory_and_the_disk() {
    const RANKS: u32 = 1001;
    with_dir(RANKS, |mut options| {
        (options.memory_bytes_max, options.chunk_bytes) = (16 << 20, 8 * KIB);
        let mut log = Log::create(options.clone()).unwrap();
        for round in 1..=60 {
            for peer in (1..RANKS).map(Rank) {
                assert_eq!(append(&mut log, peer).unwrap(), Ssn(round));
                acknowledge(&mut log, peer, Ssn(round));
            }
        }
        assert!(log.stats().spilled_bytes > 16 * MIB, "{}", log.stats().spilled_bytes);
        assert!(!log.stats().spill_cpu.is_zero());
        log.checkpoint(Epoch(2), Contents::default()).unwrap();
        for peer in (1..RANKS).map(Rank) {
            assert_eq!(check_replay(&mut log, peer), (Ssn::FIRST, Ssn(61)));
        }
        drop(log);
        let (mut log, recovered) = Log::recover(options).unwrap();
        assert_eq!(recovered.checkpoint.unwrap().lanes.len(), RANKS as usize - 1);
        for peer in (1..RANKS).map(Rank) {
            assert_eq!(check_replay(&mut log, peer), (Ssn::FIRST, Ssn(61)));
            log.receiver_covered(peer, Epoch(2), Ssn(60)).unwrap();
        }
        log.checkpoint(Epoch(3), Contents::default()).unwrap();
        let disk = log.stats().disk.unwrap();
        assert_eq!(disk.live_bytes, 0, "{disk:?}");
    });
}

#[test]
fn a_checkpoint_without_a_free_cursor_is_refused_with_the_reason() {
    with_dir(2, |mut options| {
        options.cursors_max = 3;
        let mut log = Log::create(options).unwrap();
        fill(&mut log, 100);
        let mut held: Vec<Cursor> = (0..3).map(|_| log.cursor(PEER, Ssn::FIRST).unwrap()).collect();
        let too_many = log.cursor(PEER, Ssn::FIRST).unwrap_err();
        assert!(matches!(too_many, ReplayError::Cursor(CursorError::TooMany { .. })), "{too_many}");
        let refused = log.checkpoint(Epoch(2), Contents::default()).unwrap_err();
        assert!(matches!(refused, CheckpointError::Cursor(CursorError::TooMany { .. })), "{refused}");
        assert!(refused.to_string().contains("cursors_max"), "{refused}");
        held.pop();
        log.checkpoint(Epoch(2), Contents::default()).unwrap();
        // Without a free cursor nothing can be spilled, either.
        let third = log.cursor(PEER, Ssn::FIRST).unwrap();
        let full = (0..10_000).find_map(|_| append(&mut log, PEER).map(|ssn| acknowledge(&mut log, PEER, ssn)).err());
        assert!(matches!(full, Some(AppendError::Full(_))), "{full:?}");
        drop((held, third));
        fill(&mut log, 3000);
        // Writes in flight use cursors, too.
        log.checkpoint(Epoch(3), Contents::default()).unwrap();
        assert_eq!(check_replay(&mut log, PEER).0, Ssn::FIRST);
    });
}

#[test]
fn keep_all_keeps_everything_in_memory_and_on_disk() {
    with_dir(2, |mut options| {
        options.keep = Keep::All;
        let mut log = Log::create(options.clone()).unwrap();
        fill(&mut log, 5000);
        let acked = log.acked(PEER);
        log.receiver_covered(PEER, Epoch(2), acked).unwrap();
        log.collect();
        fill(&mut log, 5000);
        log.checkpoint(Epoch(2), Contents::default()).unwrap();
        assert_eq!(check_replay(&mut log, PEER), (Ssn::FIRST, Ssn(10_001)));
        drop(log);
        assert_eq!(check_replay(&mut Log::recover(options).unwrap().0, PEER), (Ssn::FIRST, Ssn(10_001)));
    });
}

#[test]
fn keep_acked_does_not_accumulate_records_on_disk() {
    with_dir(2, |mut options| {
        options.keep = Keep::Acked;
        let mut log = Log::create(options.clone()).unwrap();
        let mut most = 0;
        for epoch in 2..60 {
            for _ in 0..200 {
                append(&mut log, PEER).unwrap();
            }
            log.checkpoint(Epoch(epoch), Contents::default()).unwrap();
            let last = log.next_ssn(PEER).prev();
            acknowledge(&mut log, PEER, Ssn(last.0 - 10));
            most = log.stats().disk.unwrap().disk_bytes.max(most);
        }
        // Messages of two checkpoints, segments being written, and the reserve.
        assert!(most < 6 * MIB, "{most} bytes on disk for {} logged", log.stats().bytes_logged);
        log.checkpoint(Epoch(60), Contents::default()).unwrap();
        let (first, next) = check_replay(&mut log, PEER);
        assert!(first.0 >= next.0 - 210, "{first}");
        drop(log);
        let (mut log, _) = Log::recover(options).unwrap();
        assert_eq!(log.acked(PEER), Ssn(next.0 - 11));
        let (first, last) = check_replay(&mut log, PEER);
        assert!(first <= Ssn(next.0 - 10) && last == next, "{first} to {last}");
    });
}

#[test]
fn an_empty_log_has_valid_checkpoints() {
    with_dir(2, |options| {
        let mut log = Log::create(options.clone()).unwrap();
        log.checkpoint(Epoch(2), Contents::default()).unwrap();
        for epoch in [Epoch(2), Epoch(1)] {
            let refused = log.checkpoint(epoch, Contents::default()).unwrap_err();
            assert!(matches!(refused, CheckpointError::Store(_)), "{refused}");
            assert!(refused.to_string().contains("can't follow one that begins epoch 2"), "{refused}");
        }
        fill(&mut log, 10);
        drop(log);
        let (mut log, recovered) = Log::recover(options.clone()).unwrap();
        let restored = recovered.checkpoint.unwrap();
        assert_eq!((restored.epoch, restored.lanes.len(), recovered.local_entries), (Epoch(2), 0, 0));
        fill(&mut log, 10);
        log.checkpoint(Epoch(3), Contents::default()).unwrap();
        log.discard_checkpoints_beyond(Epoch(1)).unwrap();
        drop(log);
        assert_eq!(Log::recover(options).unwrap().1.checkpoint, None);
    });
}

#[test]
fn checkpoints_before_an_epoch_are_discarded_and_the_newest_stays() {
    with_dir(2, |options| {
        let mut options = options;
        options.store.as_mut().unwrap().checkpoints_kept = 8;
        let oldest = |options: &Options| Log::recover(options.clone()).unwrap().1.oldest_checkpoint;
        let mut log = Log::create(options.clone()).unwrap();
        log.discard_checkpoints_before(Epoch(9)).unwrap();
        for epoch in 2..=6 {
            log.checkpoint(Epoch(epoch), Contents::default()).unwrap();
        }
        log.discard_checkpoints_before(Epoch(4)).unwrap();
        log.discard_checkpoints_before(Epoch(3)).unwrap();
        drop(log);
        assert_eq!(oldest(&options), Some(Epoch(4)));
        let (mut log, recovered) = Log::recover(options.clone()).unwrap();
        assert_eq!(recovered.checkpoint.unwrap().epoch, Epoch(6));
        log.discard_checkpoints_beyond(Epoch(5)).unwrap();
        log.discard_checkpoints_before(Epoch(9)).unwrap();
        drop(log);
        assert_eq!(oldest(&options), Some(Epoch(5)));
    });
}

#[test]
fn a_removed_directory_is_an_error_but_its_open_files_are_still_read() {
    with_dir(2, |options| {
        let mut log = Log::create(options.clone()).unwrap();
        fill(&mut log, 4000);
        // The store's thread may create a segment while the directory is being emptied.
        while let Err(error) = std::fs::remove_dir_all(&options.store.as_ref().unwrap().dir) {
            assert_eq!(error.kind(), std::io::ErrorKind::DirectoryNotEmpty, "{error}");
        }
        let refused = loop {
            match append(&mut log, PEER) {
                Ok(ssn) => acknowledge(&mut log, PEER, ssn),
                Err(refused) => break refused,
            }
        };
        assert!(matches!(refused, AppendError::DiskRefused(_)), "{refused}");
        // The next segment, or one just created.
        let message = refused.to_string();
        assert!(message.contains("cannot create segment") || message.contains("cannot open segment"), "{message}");
        let refused = log.checkpoint(Epoch(2), Contents::default()).unwrap_err();
        assert!(matches!(refused, CheckpointError::Store(_)), "{refused}");
        assert_eq!(check_replay(&mut log, PEER), (Ssn::FIRST, log.next_ssn(PEER)));
        // A receiver's checkpoint frees memory.
        let acked = log.acked(PEER);
        log.receiver_covered(PEER, Epoch(2), acked).unwrap();
        log.collect();
        append(&mut log, PEER).unwrap();
    });
}

#[test]
fn blocks_pinned_by_a_cursor_are_freed_with_the_next_collection() {
    with_dir(2, |options| {
        let mut log = Log::create(options).unwrap();
        fill(&mut log, 6000);
        let mut cursor = log.cursor(PEER, Ssn::FIRST).unwrap();
        let acked = log.acked(PEER);
        log.receiver_covered(PEER, Epoch(2), acked).unwrap();
        log.collect();
        let live = |log: &Log| log.stats().disk.unwrap().live_bytes;
        assert!(live(&log) > 3 * MIB);
        // The cursor reads all records, on disk and in memory.
        for ssn in 1..=6000 {
            assert_eq!(cursor.read().unwrap().unwrap().ssn(), Ssn(ssn));
        }
        drop(cursor);
        log.collect();
        fill(&mut log, 1);
        log.checkpoint(Epoch(2), Contents::default()).unwrap();
        assert!(live(&log) < MIB / 4, "{}", live(&log));
    });
}

#[test]
fn a_lane_on_disk_is_truncated_while_others_fill_the_memory() {
    with_dir(3, |options| {
        let mut log = Log::create(options.clone()).unwrap();
        fill(&mut log, 3000);
        log.checkpoint(Epoch(2), Contents::default()).unwrap();
        drop(log);
        let (mut log, _) = Log::recover(options).unwrap();
        let other = Rank(2);
        // Without a free cursor the records can't leave memory.
        let cursors_max = log.options().cursors_max;
        let readers: Vec<Cursor> = (0..cursors_max).map(|_| log.cursor(other, Ssn::FIRST).unwrap()).collect();
        let full = (0..100_000).find_map(|_| append(&mut log, other).err());
        assert!(matches!(full, Some(AppendError::Full(_))), "{full:?}");
        log.truncate(PEER, Ssn(1700)).unwrap();
        drop(readers);
        assert_eq!(check_replay(&mut log, PEER), (Ssn::FIRST, Ssn(1701)));
        let last = log.next_ssn(other).prev();
        log.acknowledge(other, Ack { ssn: last, epoch: Epoch::FIRST }, Phase(0)).unwrap();
        fill(&mut log, 100);
        assert_eq!(check_replay(&mut log, PEER), (Ssn::FIRST, Ssn(1801)));
    });
}

/// Appends a message of five bytes `fill`.
fn append_filled(log: &mut Log, fill: u8) {
    let mut claim = log.claim(PEER, 0, 5).unwrap();
    claim.payload_mut().fill(fill);
    claim.commit();
}

fn filled(log: &mut Log, from: Ssn) -> Vec<(u64, u8)> {
    let mut cursor = log.cursor(PEER, from).unwrap();
    let mut found = Vec::new();
    while let Some(record) = cursor.read().unwrap() {
        found.push((record.ssn().0, record.payload()[0]));
    }
    found
}

#[test]
fn a_cursor_passes_skipped_ssns_in_memory_and_on_disk() {
    with_dir(2, |options| {
        let mut log = Log::create(options.clone()).unwrap();
        (1..=3).for_each(|fill| append_filled(&mut log, fill));
        log.checkpoint(Epoch(2), Contents::default()).unwrap();
        log.set_next_ssn(PEER, Ssn(7)).unwrap();
        append_filled(&mut log, 7);
        let expected = [(1, 1), (2, 2), (3, 3), (7, 7)];
        assert_eq!(filled(&mut log, Ssn(1)), expected);
        assert_eq!(filled(&mut log, Ssn(5)), expected[3..]);
        log.set_next_ssn(PEER, Ssn(10)).unwrap();
        log.checkpoint(Epoch(3), Contents::default()).unwrap();
        drop(log);
        let (mut log, _) = Log::recover(options).unwrap();
        assert_eq!(log.next_ssn(PEER), Ssn(10));
        assert_eq!(filled(&mut log, Ssn(1)), expected);
        assert_eq!(filled(&mut log, Ssn(8)), []);
        append_filled(&mut log, 10);
        assert_eq!(filled(&mut log, Ssn(4)), [(7, 7), (10, 10)]);
    });
}

#[test]
fn messages_not_yet_repeated_are_not_in_a_checkpoint() {
    with_dir(2, |options| {
        let mut log = Log::create(options.clone()).unwrap();
        for epoch in 2..6 {
            (0..10).for_each(|_| append_filled(&mut log, 1));
            log.checkpoint(Epoch(epoch), Contents::default()).unwrap();
        }
        log.rewind(PEER, Ssn(3));
        log.checkpoint(Epoch(6), Contents::default()).unwrap();
        drop(log);
        let (mut log, _) = Log::recover(options.clone()).unwrap();
        assert_eq!((log.next_ssn(PEER), filled(&mut log, Ssn(1)).len()), (Ssn(4), 3));
        // The next messages differ, also after a gap.
        append_filled(&mut log, 2);
        log.checkpoint(Epoch(7), Contents::default()).unwrap();
        log.truncate(PEER, Ssn(2)).unwrap();
        log.set_next_ssn(PEER, Ssn(9)).unwrap();
        append_filled(&mut log, 3);
        let expected = [(1, 1), (2, 1), (9, 3)];
        assert_eq!(filled(&mut log, Ssn(1)), expected);
        log.checkpoint(Epoch(8), Contents::default()).unwrap();
        drop(log);
        let (mut log, recovered) = Log::recover(options).unwrap();
        assert_eq!(filled(&mut log, Ssn(1)), expected);
        assert_eq!(recovered.checkpoint.unwrap().contents, Contents::default(), "the log's own table is hidden");
    });
}

#[test]
fn a_crash_while_restoring_the_local_log_loses_no_entry() {
    with_dir(2, |mut options| {
        let shared = tempfile::tempdir().unwrap();
        let dir = shared.path().join("shared");
        create_private_dir(&dir).unwrap();
        let note = |log: &mut Log, keys: std::ops::Range<u64>| {
            keys.for_each(|key| log.local().append(7, key, &key.to_le_bytes()).unwrap());
        };
        let mut log = Log::create(options.clone()).unwrap();
        note(&mut log, 0..10);
        log.checkpoint(Epoch(2), Contents::default()).unwrap();
        drop(log);
        // A shared-memory file as left by a recovery killed after three entries.
        options.dir = Some(dir);
        let mut killed = Options::new(Rank(0), 2);
        killed.dir.clone_from(&options.dir);
        (killed.chunk_bytes, killed.memory_bytes_max) = (options.chunk_bytes, options.memory_bytes_max);
        note(&mut Log::create(killed).unwrap(), 0..3);
        for _ in 0..2 {
            let (mut log, recovered) = Log::recover(options.clone()).unwrap();
            assert_eq!(recovered.local_entries, 10);
            assert!((0..10).all(|key| log.local().get(7, key).unwrap().bytes == key.to_le_bytes()));
        }
    });
}

/// Messages retained by a rule are followed by unneeded ones, in a lane mostly on disk.
#[test]
fn a_release_keeps_the_messages_that_were_retained_before_in_memory_and_on_disk() {
    with_dir(2, |options| {
        let mut log = Log::create(options).unwrap();
        let peer = Rank(1);
        let release = |log: &mut Log, ssn| {
            log.acknowledge_and_release(peer, Ack { ssn, epoch: Epoch::FIRST }, Phase(0)).unwrap();
            log.collect();
        };
        let append_all = |log: &mut Log, count| (0..count).map(|_| append(log, peer).unwrap()).last().unwrap();
        // The first ones are not needed.
        let released = append_all(&mut log, 2_000);
        release(&mut log, released);
        let retained = append_all(&mut log, 3_000);
        assert!(log.stats().spilled_bytes > MIB);
        acknowledge(&mut log, peer, retained);
        let last = append_all(&mut log, 10);
        release(&mut log, last);
        let (first, next) = check_replay(&mut log, peer);
        assert!(first > Ssn(1_900) && first <= released.next() && next > retained, "{first} to {next}");
        // Once a checkpoint covers them, nothing is left but the last chunk.
        log.receiver_covered(peer, Epoch(2), retained).unwrap();
        release(&mut log, last);
        assert!(log.kept_from(peer) > Ssn(retained.0 - 100), "{}", log.kept_from(peer));
    });
}
