//! Option validation: errors name the option, and nothing is created.

use counterfoil::{Keep, Log, OpenError, Options, Rank, StoreOptions, Tier, create_private_dir};

fn refused(change: impl FnOnce(&mut Options)) -> (&'static str, String) {
    let mut options = Options::new(Rank(0), 2);
    change(&mut options);
    let from_create = match Log::create(options.clone()) {
        Err(OpenError::Options(error)) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{options:?} was accepted"),
    };
    assert!(matches!(Log::recover(options.clone()), Err(OpenError::Options(error)) if error == from_create));
    assert_eq!(options.validate().as_ref(), Err(&from_create));
    let text = from_create.to_string();
    assert!(text.starts_with(from_create.option), "{text}");
    (from_create.option, text)
}

#[test]
fn an_option_out_of_its_limits_is_named() {
    let of = |change: fn(&mut Options)| refused(change).0;
    assert_eq!(of(|options| options.ranks = 0), "ranks");
    assert_eq!(of(|options| options.rank = Rank(2)), "rank");
    assert_eq!(of(|options| options.tier = Tier::ProcessCrashSafe), "dir");
    assert_eq!(of(|options| options.chunk_bytes = 2048), "chunk_bytes");
    assert_eq!(of(|options| options.chunk_bytes = 5000), "chunk_bytes");
    assert_eq!(of(|options| options.chunk_bytes = 0), "chunk_bytes");
    assert_eq!(of(|options| options.chunk_bytes = 2 << 30), "chunk_bytes");
    assert_eq!(of(|options| options.memory_bytes_max = 0), "memory_bytes_max");
    assert_eq!(of(|options| options.memory_bytes_max = options.chunk_bytes - 1), "memory_bytes_max");
    assert_eq!(of(|options| options.memory_bytes_max = (256 << 30) + 1), "memory_bytes_max");
    assert_eq!(of(|options| options.memory_bytes_max = usize::MAX), "memory_bytes_max");
    assert_eq!(of(|options| options.prefault_bytes = options.memory_bytes_max + 1), "prefault_bytes");
    assert_eq!(of(|options| options.cursors_max = 0), "cursors_max");
    assert_eq!(of(|options| options.cursors_max = 65), "cursors_max");
    assert_eq!(of(|options| options.local_bytes_max = 4095), "local_bytes_max");
    assert_eq!(of(|options| options.local_bytes_max = usize::MAX), "local_bytes_max");
    assert_eq!(of(|options| options.record_bytes_max = options.chunk_bytes - 1), "record_bytes_max");
    let store = |percent| Some(StoreOptions { cpu_percent_max: percent, ..StoreOptions::new("/nowhere") });
    for percent in [0, 101] {
        let options = Options { store: store(percent), ..Options::new(Rank(0), 1) };
        assert_eq!(options.validate().unwrap_err().option, "store.cpu_percent_max");
    }
    for percent in [1, 100] {
        Options { store: store(percent), ..Options::new(Rank(0), 1) }.validate().unwrap();
    }
}

#[test]
fn a_refusal_names_the_value_and_the_rule() {
    let (_, text) = refused(|options| options.cursors_max = 65);
    assert_eq!(text, "cursors_max = 65: must be from 1 to 64");
    let (_, text) = refused(|options| options.memory_bytes_max = 100);
    assert_eq!(text, "memory_bytes_max = 100: must hold at least one chunk");
}

#[test]
fn options_at_their_limits_are_accepted() {
    let accepted = |change: fn(&mut Options)| {
        let mut options = Options::new(Rank(0), 1);
        change(&mut options);
        let mut log = Log::create(options).unwrap();
        log.try_claim(Rank(0), 0, 100).unwrap().commit();
        log.local().append(1, 1, b"entry").unwrap();
    };
    accepted(|_| {});
    accepted(|options| {
        (options.chunk_bytes, options.memory_bytes_max, options.prefault_bytes) = (4096, 4096, 0);
        (options.local_bytes_max, options.cursors_max, options.record_bytes_max) = (4096, 1, 4096);
    });
    accepted(|options| (options.memory_bytes_max, options.prefault_bytes) = (65536, 65536));
    accepted(|options| options.cursors_max = 64);
}

#[test]
fn sizes_suit_what_is_kept_and_the_budget() {
    let retain = |tier, keep, memory| {
        let mut options = Options { tier, ..Options::new(Rank(0), 2) };
        options.retain(keep, memory);
        assert_eq!((options.keep, options.memory_bytes_max), (keep, memory));
        (options.chunk_bytes, options.prefault_bytes, options.prefault_ahead_bytes)
    };
    let (kib, mib, gib) = (1 << 10, 1 << 20, 1 << 30);
    assert_eq!(retain(Tier::Volatile, Keep::Acked, 8 * gib), (64 * kib, 256 * kib, 0));
    assert_eq!(retain(Tier::Volatile, Keep::Acked, 100 * kib), (64 * kib, 100 * kib, 0));
    assert_eq!(retain(Tier::Volatile, Keep::All, 64 * kib), (64 * kib, 64 * kib, 0));
    assert_eq!(retain(Tier::Volatile, Keep::All, 64 * mib), (256 * kib, 16 * mib, mib));
    assert_eq!(retain(Tier::ProcessCrashSafe, Keep::Checkpoint, gib), (4 * mib, 16 * mib, 16 * mib));
    assert_eq!(retain(Tier::Volatile, Keep::All, 2 * gib), (8 * mib, 16 * mib, 32 * mib));
    assert_eq!(retain(Tier::Volatile, Keep::All, 4 * gib), (16 * mib, 16 * mib, 64 * mib));
    assert_eq!(retain(Tier::Volatile, Keep::All, 256 * gib), (16 * mib, 16 * mib, 64 * mib));
    assert_eq!(retain(Tier::NodeLocal, Keep::All, 4 * mib), (64 * kib, 4 * mib, 0));
    assert_eq!(retain(Tier::NodeLocal, Keep::All, 64 * mib), (mib, 16 * mib, 4 * mib));
    assert_eq!(retain(Tier::NodeLocal, Keep::All, gib), (mib, 16 * mib, 16 * mib));
    // With many lanes, chunks are a fraction of the budget.
    let mut options = Options::new(Rank(0), 1000);
    options.retain(Keep::All, 256 * mib);
    assert_eq!(options.chunk_bytes, 128 * kib);
}

#[test]
fn a_refused_log_leaves_no_file() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("job");
    create_private_dir(&dir).unwrap();
    let mut options = Options::new(Rank(0), 2);
    (options.tier, options.dir, options.cursors_max) = (Tier::ProcessCrashSafe, Some(dir.clone()), 0);
    assert!(Log::create(options.clone()).is_err() && Log::recover(options.clone()).is_err());
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);

    options.cursors_max = 1;
    options.dir = Some(dir.join("missing"));
    assert!(matches!(Log::create(options.clone()), Err(OpenError::Dir(_))));
    assert!(matches!(Log::recover(options), Err(OpenError::Dir(_))));
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
}

#[test]
fn a_retained_log_has_room_for_long_outcomes_in_a_small_local_log() {
    let mut options = Options::new(Rank(0), 2);
    options.retain(Keep::All, 256 << 20);
    options.local_bytes_max = 16 << 20;
    assert_eq!(options.chunk_bytes, 1 << 20);
    let mut log = Log::create(options).unwrap();
    // In 1 MiB chunks each would take two.
    let outcome = vec![7; (512 << 10) + 1];
    (0..28).for_each(|key| log.local().append(1, key, &outcome).unwrap());
}
