//! Opening a log, and making room before a claim.

use std::path::Path;
use std::time::SystemTime;

use counterfoil::{
    AppendError, Contents, DirectoryError, Epoch, Keep, Log, OpenError, Options, Rank, ReadOnlyLog, Ssn, StoreOptions,
};

use crate::spilled::{acknowledge, append, payload, with_dir};

const PEER: Rank = Rank(1);

/// Runs a test with options for a log in an empty directory, and its rank's store directory.
fn with_rank_dir(test: impl FnOnce(Options, &Path)) {
    with_dir(2, |options| {
        let dir = options.store.as_ref().unwrap().dir.join("rank-0");
        test(options, &dir);
    });
}

fn files(dir: &Path) -> Vec<(String, u64, SystemTime)> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        (entry.file_name().into_string().unwrap(), metadata.len(), metadata.modified().unwrap())
    });
    let mut entries: Vec<_> = entries.collect();
    entries.sort();
    entries
}

#[test]
fn a_log_is_created_where_there_is_none_and_recovered_where_there_is_one() {
    with_rank_dir(|options, _| {
        let (mut log, recovered) = Log::recover(options.clone()).unwrap();
        assert_eq!(recovered, Default::default());
        append(&mut log, PEER).unwrap();
        log.checkpoint(Epoch(2), Contents::default()).unwrap();
        drop(log);
        let (log, recovered) = Log::recover(options).unwrap();
        assert_eq!((log.next_ssn(PEER), recovered.checkpoint.unwrap().epoch), (Ssn(2), Epoch(2)));
    });
}

#[test]
fn a_store_is_read_without_a_change() {
    with_rank_dir(|options, dir| {
        let missing = ReadOnlyLog::open(options.clone()).map(drop).unwrap_err();
        assert!(matches!(missing, OpenError::Directory(_)), "{missing}");
        assert!(!dir.exists());
        let mut log = Log::create(options.clone()).unwrap();
        for _ in 0..3000 {
            let ssn = append(&mut log, PEER).unwrap();
            if ssn <= Ssn(2000) {
                acknowledge(&mut log, PEER, ssn);
            }
        }
        log.local().append(1, 7, b"before").unwrap();
        let contents = Contents { application: b"program".to_vec(), tables: vec![("table".to_owned(), vec![1])] };
        log.checkpoint(Epoch(2), contents.clone()).unwrap();
        log.local().append(1, 8, b"after").unwrap();
        log.sync_local().unwrap();
        let in_use = ReadOnlyLog::open(options.clone()).map(drop).unwrap_err();
        assert!(matches!(in_use, OpenError::Directory(DirectoryError::Locked { .. })), "{in_use}");
        drop(log);
        let before = files(dir);
        // Two readers at once.
        let (mut reader, recovered) = ReadOnlyLog::open(options.clone()).unwrap();
        let other = ReadOnlyLog::open(options.clone()).unwrap();
        assert_eq!(recovered.checkpoint.unwrap().contents, contents);
        assert_eq!([reader.kept_from(PEER), reader.acked(PEER), reader.next_ssn(PEER)], [Ssn(1), Ssn(2000), Ssn(3001)]);
        let mut cursor = reader.cursor(PEER, Ssn::FIRST).unwrap();
        for ssn in (1..=3000).map(Ssn) {
            let record = cursor.read().unwrap().unwrap();
            assert!(record.ssn() == ssn && record.payload() == payload(PEER, ssn));
        }
        assert!(cursor.read().unwrap().is_none());
        assert_eq!(
            [7, 8].map(|key| reader.local().get(1, key).unwrap().bytes),
            [b"before".to_vec(), b"after".to_vec()]
        );
        drop((cursor, reader, other));
        assert_eq!(files(dir), before);
        assert_eq!(Log::recover(options).unwrap().1.local_entries, 2);
    });
}

#[test]
fn room_that_was_refused_can_be_made_and_reserved() {
    let mut options = Options { keep: Keep::Checkpoint, ..Options::new(Rank(0), 2) };
    (options.memory_bytes_max, options.chunk_bytes, options.prefault_bytes) = (64 << 10, 4 << 10, 0);
    let mut log = Log::create(options).unwrap();
    let mut collections = 0;
    for _ in 0..1000 {
        while let Err(refused) = log.reserve(PEER, 8, 500) {
            assert!(matches!(*refused, AppendError::Full(_)), "{refused}");
            let last = log.next_ssn(PEER).prev();
            log.receiver_covered(PEER, Epoch(2), last).unwrap();
            assert!(log.collect().chunks > 0);
            collections += 1;
        }
        let next = log.next_ssn(PEER);
        assert_eq!(log.claim_if_room(PEER, 8, 500).unwrap().commit(), next);
    }
    assert!(collections > 5, "{collections}");
    let refused = log.reserve(Rank(2), 0, 1).unwrap_err();
    assert!(matches!(*refused, AppendError::NoSuchRank { .. }), "{refused}");
}

#[test]
fn a_missing_directory_of_stores_is_found_at_the_start() {
    let parent = tempfile::tempdir().unwrap();
    let options = |dir: &Path| Options { store: Some(StoreOptions::new(dir)), ..Options::new(Rank(0), 2) };
    let missing = options(&parent.path().join("missing"));
    for refused in [Log::create(missing.clone()).map(drop), Log::recover(missing).map(drop)] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("open the directory of stores") && refused.contains("missing"), "{refused}");
    }
    let file = parent.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(matches!(Log::create(options(&file)), Err(OpenError::Directory(_))));
    assert!(Log::create(options(parent.path())).is_ok());
}
