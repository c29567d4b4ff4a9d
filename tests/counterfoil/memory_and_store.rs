//! Recovery from shared memory and store.

use counterfoil::{Contents, Epoch, Log, Options, Rank, Ssn, StoreOptions, create_private_dir};

use crate::recover::{Job, append, replayed};

const PEER: Rank = Rank(0);

/// Runs a test with options for a log in shared memory with a store.
fn with_store(test: impl FnOnce(&Job, Options)) {
    let (job, disk) = (Job::new(), tempfile::tempdir().unwrap());
    let dir = disk.path().join("store");
    create_private_dir(&dir).unwrap();
    let options = Options { store: Some(StoreOptions::new(dir)), ..job.options() };
    test(&job, options);
}

/// Leaves a log without memory, as after a power cut, with `last` messages in a checkpoint.
///
/// Returns its recovered log.
fn after_a_power_cut(job: &Job, options: &Options, last: u64) -> Log {
    let mut log = Log::create(options.clone()).unwrap();
    append(&mut log, PEER, last);
    log.checkpoint(Epoch(2), Contents::default()).unwrap();
    drop(log);
    for file in [job.lanes_file(), job.local_file()] {
        std::fs::remove_file(file).unwrap();
    }
    let (log, recovered) = Log::recover(options.clone()).unwrap();
    assert_eq!((recovered.lanes, log.next_ssn(PEER)), (vec![], Ssn(last + 1)));
    log
}

#[test]
fn a_lane_whose_process_died_in_its_first_claim_is_recovered_with_a_checkpoint_from_before() {
    with_store(|_, options| {
        let mut log = Log::create(options.clone()).unwrap();
        append(&mut log, PEER, 3);
        // The lane has a chunk, and no record.
        drop(log.try_claim(Rank(3), 8, 50).unwrap());
        log.checkpoint(Epoch(1), Contents::default()).unwrap();
        drop(log);
        let (mut log, recovered) = Log::recover(options).unwrap();
        assert_eq!(recovered.checkpoint.map(|checkpoint| checkpoint.epoch), Some(Epoch(1)));
        assert_eq!((log.next_ssn(PEER), log.next_ssn(Rank(3))), (Ssn(4), Ssn(1)));
        append(&mut log, Rank(3), 5);
        assert_eq!(replayed(&mut log, Rank(3), 1), [1, 2, 3, 4, 5]);
    });
}

#[test]
fn a_lane_that_was_truncated_to_nothing_is_recovered_with_a_checkpoint_from_before() {
    with_store(|_, options| {
        let mut log = Log::create(options.clone()).unwrap();
        append(&mut log, PEER, 3);
        log.checkpoint(Epoch(2), Contents::default()).unwrap();
        log.truncate(PEER, Ssn::ZERO).unwrap();
        drop(log);
        let (mut log, _) = Log::recover(options).unwrap();
        assert_eq!((log.next_ssn(PEER), log.kept_from(PEER)), (Ssn(1), Ssn(1)));
        append(&mut log, PEER, 2);
        assert_eq!(replayed(&mut log, PEER, 1), [1, 2]);
    });
}

#[test]
fn a_cursor_passes_what_memory_freed_after_the_messages_of_the_checkpoint() {
    with_store(|job, options| {
        let mut log = after_a_power_cut(job, &options, 100);
        append(&mut log, PEER, 300);
        log.receiver_covered(PEER, Epoch(3), Ssn(200)).unwrap();
        assert!(log.collect().chunks > 0);
        drop(log);
        // The checkpoint knows of no coverage.
        let (mut log, recovered) = Log::recover(options).unwrap();
        let in_memory = recovered.lanes[0].kept_from.0;
        assert!((102..=201).contains(&in_memory), "{recovered:?}");
        assert_eq!(replayed(&mut log, PEER, 1), (1..=100).chain(in_memory..=300).collect::<Vec<_>>());
        // And so among the next checkpoint's blocks.
        log.checkpoint(Epoch(3), Contents::default()).unwrap();
        assert_eq!(replayed(&mut log, PEER, 90), (90..=100).chain(in_memory..=300).collect::<Vec<_>>());
    });
}

#[test]
fn a_cursor_passes_ssns_that_were_skipped_after_the_messages_of_the_checkpoint() {
    with_store(|job, options| {
        let mut log = after_a_power_cut(job, &options, 100);
        log.set_next_ssn(PEER, Ssn(120)).unwrap();
        append(&mut log, PEER, 130);
        drop(log);
        let (mut log, _) = Log::recover(options).unwrap();
        assert_eq!(replayed(&mut log, PEER, 1), (1..=100).chain(120..=130).collect::<Vec<_>>());
    });
}
