//! Node-local tier: logs larger than memory, and checkpoints surviving its loss.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test, and its helpers, fail by panicking")]

use std::path::Path;
use std::process::Command;

use counterfoil::{
    Ack, AppendError, BackendChoice, Claim, Contents, CursorError, Epoch, Keep, Log, OpenError, Options, Phase, Rank,
    Recovered, ReplayError, Ssn, StoreOptions, Tier, create_private_dir,
};
use counterfoil_test_support::child;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

const RANKS: u32 = 4;
const BUDGET: usize = 1 << 20;

fn options(dir: &Path, backend: BackendChoice) -> Options {
    let mut options = Options::new(Rank(0), RANKS);
    options.tier = Tier::NodeLocal;
    (options.memory_bytes_max, options.chunk_bytes, options.prefault_bytes) = (BUDGET, 16 << 10, 0);
    let store = StoreOptions { segment_bytes: 1 << 20, block_bytes: 64 << 10, backend, ..StoreOptions::new(dir) };
    options.store = Some(store);
    options
}

/// Runs a test with an empty directory on each backend.
fn on_each_backend(test: impl Fn(Options)) {
    for backend in [BackendChoice::Auto, BackendChoice::Pwrite] {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("store");
        create_private_dir(&dir).unwrap();
        test(options(&dir, backend));
    }
}

fn payload(peer: Rank, ssn: Ssn) -> Vec<u8> {
    let len = 100 + (ssn.0 * 37 + u64::from(peer.0)) % 1900;
    (0..len).map(|index| (index * 7 + ssn.0 * 13 + u64::from(peer.0)) as u8).collect()
}

fn append(log: &mut Log, peer: Rank) -> Ssn {
    let bytes = payload(peer, log.next_ssn(peer));
    let mut claim = log.claim(peer, 8, bytes.len()).unwrap();
    claim.prefix_mut().copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    claim.payload_mut().copy_from_slice(&bytes);
    claim.commit()
}

fn acknowledge(log: &mut Log, peer: Rank, ssn: Ssn) {
    log.acknowledge(peer, Ack { ssn, epoch: Epoch::FIRST }, Phase(0)).unwrap();
}

/// Appends `count` messages to all peers in turn, acknowledged up to the last few.
fn fill(log: &mut Log, count: u64) {
    for number in 0..count {
        let peer = Rank(1 + (number % 3) as u32);
        let ssn = append(log, peer);
        if ssn.0.is_multiple_of(16) {
            acknowledge(log, peer, Ssn(ssn.0 - 5));
        }
        assert!(log.stats().used_bytes <= BUDGET);
    }
}

/// Reads and checks all messages to `peer` from `from` on; returns the last SSN.
fn check_replay(log: &mut Log, peer: Rank, from: Ssn) -> Ssn {
    let mut cursor = log.cursor(peer, from).unwrap();
    let mut next = from;
    while let Some(record) = cursor.read().unwrap() {
        assert_eq!(record.ssn(), next, "to {peer}");
        let bytes = payload(peer, next);
        assert_eq!(record.prefix(), (bytes.len() as u64).to_le_bytes());
        assert!(record.payload() == bytes, "{next} to {peer} has other bytes");
        next = next.next();
    }
    next.prev()
}

fn contents(text: &str) -> Contents {
    Contents { application: text.as_bytes().to_vec(), tables: vec![("windows".to_owned(), text.as_bytes().to_vec())] }
}

fn recover(options: &Options) -> (Log, Recovered) {
    Log::recover(options.clone()).unwrap()
}

#[test]
fn a_log_larger_than_memory_is_spilled_and_replayed_as_one_sequence() {
    on_each_backend(|options| {
        let mut log = Log::create(options).unwrap();
        fill(&mut log, 20_000);
        let stats = log.stats();
        assert!(stats.spilled_bytes > 15 << 20, "{stats:?}");
        for peer in (1..RANKS).map(Rank) {
            assert_eq!(log.kept_from(peer), Ssn::FIRST);
            for from in [1, 2, 700, 3333, log.next_ssn(peer).0 - 1] {
                assert_eq!(check_replay(&mut log, peer, Ssn(from)).next(), log.next_ssn(peer));
            }
        }
    });
}

/// Appends a message of `len` bytes, acknowledged by its receiver.
fn append_long(log: &mut Log, peer: Rank, len: usize) {
    let ssn = log.next_ssn(peer);
    let mut claim = log.claim(peer, 8, len).unwrap_or_else(|error| panic!("{ssn} to {peer}: {error}"));
    claim.payload_mut().fill(ssn.0 as u8 + peer.0 as u8);
    claim.commit();
    acknowledge(log, peer, ssn);
}

fn check_long(log: &mut Log, peer: Rank, len: usize) {
    let mut cursor = log.cursor(peer, Ssn::FIRST).unwrap();
    let mut next = Ssn::FIRST;
    while let Some(record) = cursor.read().unwrap() {
        assert!(record.ssn() == next && record.payload().len() == len);
        assert!(record.payload().iter().all(|byte| *byte == next.0 as u8 + peer.0 as u8), "{next} to {peer}");
        next = next.next();
    }
    assert_eq!(next, log.next_ssn(peer));
}

#[test]
fn the_newest_chunk_of_a_lane_leaves_memory_when_its_records_are_acknowledged() {
    on_each_backend(|options| {
        // Two messages don't fit, neither in one lane nor in two; or two take the whole budget, in two lanes' current
        // chunks.
        let half = BUDGET / 2 - 256;
        let large = [(1..2, BUDGET * 3 / 5), (1..4, BUDGET * 3 / 5), (1..4, BUDGET * 2 / 5), (1..4, BUDGET / 4)];
        for (peers, len) in large.into_iter().chain([(1..3, half), (1..4, half)]) {
            let parent = tempfile::tempdir().unwrap();
            let dir = parent.path().join("store");
            create_private_dir(&dir).unwrap();
            let mut options = options.clone();
            options.store = options.store.map(|store| StoreOptions { dir, ..store });
            let mut log = Log::create(options).unwrap();
            for _ in 0..5 {
                for peer in peers.clone() {
                    append_long(&mut log, Rank(peer), len);
                    assert!(log.stats().used_bytes <= BUDGET);
                }
            }
            peers.for_each(|peer| check_long(&mut log, Rank(peer), len));
        }
    });
}

#[test]
fn messages_that_nobody_acknowledges_are_spilled_and_read_like_any_other() {
    on_each_backend(|options| {
        for (keep, len) in [(Keep::Acked, None), (Keep::All, None), (Keep::Checkpoint, Some(BUDGET * 3 / 5))] {
            let parent = tempfile::tempdir().unwrap();
            let dir = parent.path().join("store");
            create_private_dir(&dir).unwrap();
            let mut options = Options { keep, ..options.clone() };
            options.store = options.store.map(|store| StoreOptions { dir, ..store });
            let mut log = Log::create(options.clone()).unwrap();
            let (peer, other) = (Rank(1), Rank(2));
            for _ in 0..if len.is_some() { 6 } else { 8000 } {
                match len {
                    Some(len) => {
                        let mut claim = log.claim(peer, 8, len).unwrap();
                        let ssn = claim.ssn();
                        claim.payload_mut().fill(ssn.0 as u8 + peer.0 as u8);
                        claim.commit();
                    }
                    None => drop(append(&mut log, peer)),
                }
                append(&mut log, other);
                assert!(log.stats().used_bytes <= BUDGET);
            }
            let check = |log: &mut Log| match len {
                Some(len) => check_long(log, peer, len),
                None => assert_eq!(check_replay(log, peer, Ssn::FIRST).next(), log.next_ssn(peer)),
            };
            check(&mut log);
            let last = log.next_ssn(peer).prev();
            assert_eq!((log.acked(peer), log.kept_from(peer)), (Ssn::ZERO, Ssn::FIRST));
            log.checkpoint(Epoch(2), contents("2")).unwrap();
            drop(log);
            let mut log = recover(&options).0;
            check(&mut log);
            // Some are acknowledged.
            acknowledge(&mut log, peer, Ssn(last.0 / 2));
            let kept_from = if keep == Keep::Acked { Ssn(last.0 / 2 + 1) } else { Ssn::FIRST };
            // Whole blocks are freed.
            let block = if len.is_none() { 100 } else { 0 };
            assert!((kept_from.0.saturating_sub(block)..=kept_from.0).contains(&log.kept_from(peer).0));
            if len.is_none() {
                assert_eq!(check_replay(&mut log, peer, kept_from), last);
            }
            acknowledge(&mut log, peer, last);
            log.receiver_rolled_back(peer, Ssn(last.0 / 2));
            assert_eq!(log.acked(peer), Ssn(last.0 / 2));
            log.receiver_covered(peer, Epoch(2), last).unwrap();
            log.checkpoint(Epoch(3), contents("3")).unwrap();
            assert_eq!(log.kept_from(peer), if keep == Keep::All { Ssn::FIRST } else { last.next() });
        }
    });
}

#[test]
fn a_cursor_continues_while_its_records_are_spilled_and_collected() {
    on_each_backend(|options| {
        let mut log = Log::create(options).unwrap();
        fill(&mut log, 3000);
        let peer = Rank(1);
        let mut cursor = log.cursor(peer, Ssn::FIRST).unwrap();
        for number in 0..3000_u64 {
            fill(&mut log, 3);
            let record = cursor.read().unwrap().unwrap();
            let ssn = Ssn(number + 1);
            assert_eq!((record.ssn(), record.payload()), (ssn, &payload(peer, ssn)[..]));
            if number % 100 == 0 {
                log.receiver_covered(peer, Epoch(2), Ssn(number + 50)).unwrap();
                log.collect();
            }
        }
    });
}

#[test]
fn records_that_a_receivers_checkpoint_covers_are_freed_on_disk_too() {
    on_each_backend(|options| {
        let mut log = Log::create(options).unwrap();
        fill(&mut log, 10_000);
        let before = log.stats().disk.unwrap();
        for peer in (1..RANKS).map(Rank) {
            let upto = Ssn(log.acked(peer).0 - 100);
            log.receiver_covered(peer, Epoch(2), upto).unwrap();
            log.collect();
            let gone = log.cursor(peer, Ssn::FIRST).unwrap_err();
            assert!(matches!(gone, ReplayError::Cursor(CursorError::Gone { .. })), "{gone}");
            let from = log.kept_from(peer);
            assert!(from <= upto.next());
            check_replay(&mut log, peer, from);
        }
        log.checkpoint(Epoch(2), contents("after")).unwrap();
        let after = log.stats().disk.unwrap();
        assert!(after.disk_bytes < before.disk_bytes / 3, "{before:?} {after:?}");
    });
}

#[test]
fn checkpoints_survive_repeated_losses_of_memory() {
    on_each_backend(|options| {
        let mut log = Log::create(options.clone()).unwrap();
        for round in 2..6_u32 {
            fill(&mut log, 3000);
            log.local().append(1, u64::from(round), b"a choice").unwrap();
            let text = format!("round {round}");
            log.checkpoint(Epoch(round), contents(&text)).unwrap();
            let state: Vec<_> = (1..RANKS).map(|rank| (log.next_ssn(Rank(rank)), log.acked(Rank(rank)))).collect();
            fill(&mut log, 1000);
            drop(log);
            let (mut resumed, recovered) = recover(&options);
            let restored = recovered.checkpoint.unwrap();
            assert_eq!((restored.epoch, restored.contents), (Epoch(round), contents(&text)));
            assert_eq!(recovered.local_entries, round as usize - 1);
            for (peer, (next, acked)) in (1..RANKS).map(Rank).zip(state) {
                assert_eq!((resumed.next_ssn(peer), resumed.acked(peer)), (next, acked));
                assert_eq!(check_replay(&mut resumed, peer, Ssn::FIRST), next.prev());
            }
            log = resumed;
        }
    });
}

#[test]
fn messages_can_be_appended_while_a_checkpoint_is_written() {
    on_each_backend(|options| {
        let mut log = Log::create(options.clone()).unwrap();
        fill(&mut log, 1000);
        let next = log.next_ssn(Rank(1));
        let pending = log.begin_checkpoint(Epoch(2), contents("meanwhile")).unwrap();
        fill(&mut log, 5000);
        assert_eq!(pending.wait().unwrap(), Epoch(2));
        drop(log);
        let (mut log, recovered) = recover(&options);
        assert_eq!(recovered.checkpoint.unwrap().contents, contents("meanwhile"));
        assert_eq!(log.next_ssn(Rank(1)), next);
        assert_eq!(check_replay(&mut log, Rank(1), Ssn::FIRST), next.prev());
    });
}

#[test]
fn a_truncated_lane_continues_with_other_bytes_on_disk_too() {
    on_each_backend(|options| {
        let mut log = Log::create(options.clone()).unwrap();
        fill(&mut log, 6000);
        let peer = Rank(2);
        for last in [1500, 700, 699, 3] {
            log.truncate(peer, Ssn(last)).unwrap();
            assert_eq!(log.next_ssn(peer), Ssn(last + 1));
            for _ in 0..40 {
                // Bytes differing from the truncated ones.
                let mut claim = log.claim(peer, 0, 5).unwrap();
                claim.payload_mut().fill(last as u8);
                claim.commit();
            }
            log.checkpoint(Epoch(2000 - last as u32), Contents::default()).unwrap();
        }
        let check = |log: &mut Log| {
            let mut cursor = log.cursor(peer, Ssn::FIRST).unwrap();
            for ssn in 1..=3 {
                assert_eq!(cursor.read().unwrap().unwrap().payload(), payload(peer, Ssn(ssn)));
            }
            for ssn in 4..44 {
                let record = cursor.read().unwrap().unwrap();
                assert_eq!((record.ssn(), record.payload()), (Ssn(ssn), &[3_u8; 5][..]));
            }
            assert!(cursor.read().unwrap().is_none());
        };
        check(&mut log);
        drop(log);
        check(&mut recover(&options).0);
    });
}

#[test]
fn synced_entries_of_the_local_log_survive_without_a_checkpoint() {
    on_each_backend(|options| {
        let mut log = Log::create(options.clone()).unwrap();
        for key in 0..10 {
            log.local().append(7, key, &key.to_le_bytes()).unwrap();
        }
        log.sync_local().unwrap();
        log.local().append(7, 10, b"not synced").unwrap();
        drop(log);
        let (mut log, recovered) = recover(&options);
        assert_eq!((recovered.local_entries, recovered.checkpoint), (10, None));
        for key in 0..10 {
            assert_eq!(log.local().consume(7, key).unwrap().bytes, key.to_le_bytes());
        }
        // The same with a checkpoint in between.
        log.checkpoint(Epoch(2), contents("x")).unwrap();
        log.local().append(7, 11, b"more").unwrap();
        log.sync_local().unwrap();
        drop(log);
        let (mut log, recovered) = recover(&options);
        assert_eq!(recovered.local_entries, 11);
        assert_eq!(log.local().get(7, 11).unwrap().bytes, b"more");
    });
}

#[test]
fn entries_that_a_dead_process_did_not_sync_are_synced_by_its_replacement() {
    on_each_backend(|mut options| {
        let memory = tempfile::tempdir().unwrap();
        let dir = memory.path().join("logs");
        options.dir = Some(dir.clone());
        create_private_dir(&dir).unwrap();
        let mut log = Log::create(options.clone()).unwrap();
        for key in 0..10 {
            log.local().append(7, key, b"").unwrap();
        }
        drop(log);
        let (mut log, recovered) = recover(&options);
        assert_eq!(recovered.local_entries, 10);
        log.sync_local().unwrap();
        drop(log);
        // A power cut.
        std::fs::remove_dir_all(&dir).unwrap();
        create_private_dir(&dir).unwrap();
        assert_eq!(recover(&options).1.local_entries, 10);
    });
}

#[test]
fn a_log_refuses_or_stops_logging_at_the_disk_budget() {
    for continues in [false, true] {
        on_each_backend(|mut options| {
            options.stops_logging = continues;
            let store = options.store.as_mut().unwrap();
            store.disk_bytes_max = 6 << 20;
            let mut log = Log::create(options).unwrap();
            let mut refused = None;
            for number in 0..20_000 {
                let peer = Rank(1 + number % 3);
                match log.claim(peer, 0, 1000).map(Claim::commit) {
                    Ok(ssn) => acknowledge(&mut log, peer, ssn),
                    Err(error) => {
                        refused = Some(error);
                        break;
                    }
                }
            }
            assert_eq!(refused.is_none(), continues, "{refused:?}");
            assert_eq!(log.stats().stopped_logging, continues);
            let disk = log.stats().disk.unwrap();
            assert!(disk.disk_bytes <= 6 << 20, "{disk:?}");
            if let Some(error) = refused {
                assert!(matches!(*error, AppendError::DiskRefused(_)), "{error}");
                // Messages covered by the peers' checkpoints are freed, in memory and on disk.
                for peer in (1..RANKS).map(Rank) {
                    let acked = log.acked(peer);
                    log.receiver_covered(peer, Epoch(2), acked).unwrap();
                }
                log.collect();
                for number in 0..3000 {
                    let peer = Rank(1 + number % 3);
                    let ssn = log.claim(peer, 0, 1000).unwrap().commit();
                    acknowledge(&mut log, peer, ssn);
                }
            }
        });
    }
}

#[test]
fn two_logs_do_not_share_a_store() {
    on_each_backend(|options| {
        let log = Log::create(options.clone()).unwrap();
        let second = Log::recover(options.clone()).unwrap_err();
        assert!(matches!(second, OpenError::Directory(_)), "{second}");
        drop(log);
        let over = Log::create(options.clone()).unwrap_err();
        assert!(matches!(over, OpenError::Store(_)), "{over}");
        recover(&options);
    });
}

#[test]
fn everything_works_with_pwrite_if_io_uring_is_refused() {
    child::run("under_a_filter", "EPERM");
}

#[test]
#[ignore = "run by `everything_works_with_pwrite_if_io_uring_is_refused`"]
fn under_a_filter() {
    assert_eq!(child::argument(), "EPERM");
    // The three io_uring calls have the same numbers on every architecture.
    let rules = [425, 426, 427].map(|call| (call, Vec::new())).into();
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(1), arch).unwrap();
    seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();

    on_each_backend(|options| {
        let backend = options.store.as_ref().unwrap().backend;
        let description = Log::create(options).unwrap().stats().backend.unwrap();
        let expected = match backend {
            BackendChoice::Auto => "pwrite (io_uring is not permitted (EPERM): by a seccomp filter",
            _ => "pwrite",
        };
        assert!(description.starts_with(expected), "{description}");
    });
    // The program's other tests inherit the filter.
    let all =
        Command::new(std::env::current_exe().unwrap()).args(["--skip", "if_io_uring_is_refused"]).output().unwrap();
    let output = String::from_utf8_lossy(&all.stdout);
    assert!(all.status.success() && !output.contains(" 0 passed"), "{output}");
}
