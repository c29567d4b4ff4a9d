//! Removing a log with all its files.

use std::path::Path;

use counterfoil::{
    Builder, Contents, DestroyError, Epoch, Log, Options, Rank, Ssn, StoreOptions, Tier, create_private_dir,
};
use counterfoil_log_io::{BackendChoice, Directory};
use counterfoil_test_support::SimulatedDisk;

use crate::spilled::{append, options};

const PEER: Rank = Rank(1);

fn names(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    std::fs::read_dir(dir).unwrap().map(name).collect()
}

#[test]
fn nothing_is_left_of_a_destroyed_log() {
    for tier in [Tier::NodeLocal, Tier::ProcessCrashSafe, Tier::Volatile] {
        let parent = tempfile::tempdir().unwrap();
        let [store, memory] = ["store", "memory"].map(|name| parent.path().join(name));
        create_private_dir(&store).unwrap();
        create_private_dir(&memory).unwrap();
        let options = Options { tier, dir: Some(memory.clone()), ..options(&store, 2) };
        let mut log = Log::create(options.clone()).unwrap();
        for _ in 0..1500 {
            if append(&mut log, PEER).is_err() {
                break;
            }
        }
        log.checkpoint(Epoch(2), Contents::default()).unwrap();
        assert!(!names(&store.join("rank-0")).is_empty() && !names(&memory).is_empty());
        let mut cursor = log.cursor(PEER, Ssn::FIRST).unwrap();
        log.destroy().unwrap();
        assert!(names(&store).is_empty(), "{tier:?}: {:?}", names(&store));
        assert!(names(&memory).is_empty(), "{tier:?}: {:?}", names(&memory));
        assert_eq!(cursor.read().unwrap().unwrap().ssn(), Ssn::FIRST);
        // A new log can take the place.
        let log = Log::create(options.clone()).unwrap();
        // Foreign files stay, with their directory.
        if tier == Tier::NodeLocal {
            std::fs::write(store.join("rank-0/notes"), b"").unwrap();
            log.destroy().unwrap();
            assert_eq!(names(&store.join("rank-0")), ["notes"]);
        }
    }
}

#[test]
fn stores_that_the_log_does_not_have_open_are_left() {
    let parent = tempfile::tempdir().unwrap();
    let store = parent.path().join("store");
    create_private_dir(&store).unwrap();
    let options = options(&store, 2);
    drop(Log::create(options.clone()).unwrap());
    let files = names(&store.join("rank-0")).len();
    // On a caller's disk, and without a store so far.
    let disk = SimulatedDisk::new(64 << 10);
    Builder::new(options.clone(), Box::new(disk.clone())).create().unwrap().destroy().unwrap();
    assert!(!disk.names().is_empty());
    Log::create(Options { tier: Tier::Volatile, ..options.clone() }).unwrap().destroy().unwrap();
    assert_eq!(names(&store.join("rank-0")).len(), files);
    // A store in use is refused.
    let log = Log::recover(options.clone()).unwrap().0;
    let path = StoreOptions::rank_dir(options.store.as_ref().unwrap(), Rank(0));
    assert!(Directory::remove_store(&path).is_err());
    assert_eq!(names(&path).len(), files);
    drop(log);
    // A store put in the log's place by another process is not removed.
    let log = Log::recover(options).unwrap().0;
    std::fs::rename(&path, parent.path().join("moved")).unwrap();
    let other = Directory::create(&path, BackendChoice::Auto).unwrap();
    let refused = log.destroy().unwrap_err();
    assert!(matches!(refused, DestroyError::Store(_)), "{refused}");
    drop(other);
}
