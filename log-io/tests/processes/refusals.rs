//! System calls and resources refused to a process.
//!
//! Each test runs in a child, because refusals are permanent.

use std::io::ErrorKind;
use std::process::Command;

use counterfoil_log_core::{LaneWriter, Pool, PoolOptions, Rank, Ssn};
use counterfoil_log_io::{
    BackendChoice, BackendKind, BlockBuffer, BlockCursor, Directory, DirectoryError, Probe, StorageBackend, Store,
    StoreOptions,
};
use counterfoil_test_support::child;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::backend_suite::{TestDir, recovery, write};
use crate::many_segments::One;

// The same numbers on every architecture.
const SETUP: i64 = 425;
const ENTER: i64 = 426;
const REGISTER: i64 = 427;

/// Differs by architecture.
const FSYNC: i64 = if cfg!(target_arch = "x86_64") { 74 } else { 82 };
const FALLOCATE: i64 = if cfg!(target_arch = "x86_64") { 285 } else { 47 };

const EPERM: u32 = 1;
const EAGAIN: u32 = 11;
const ENOMEM: u32 = 12;
const EACCES: u32 = 13;
const ENOSYS: u32 = 38;
const EOPNOTSUPP: u32 = 95;

struct Refusal {
    calls: &'static [i64],
    /// If set, refuse only calls with a fourth argument above this.
    above: Option<u64>,
    errno: u32,
    /// Number of registered buffers, if io_uring still works; or the start of the reported reason.
    expected: Result<usize, &'static str>,
    /// Run the whole suite; otherwise only open the directory.
    suite: bool,
}

const REFUSALS: &[Refusal] = &[
    Refusal {
        calls: &[SETUP, ENTER, REGISTER],
        above: None,
        errno: EPERM,
        expected: Err("io_uring is not permitted (EPERM): by a seccomp filter"),
        suite: true,
    },
    Refusal {
        calls: &[SETUP],
        above: None,
        errno: EACCES,
        expected: Err("io_uring is not permitted (EACCES): by a seccomp filter"),
        suite: false,
    },
    Refusal {
        calls: &[SETUP],
        above: None,
        errno: ENOSYS,
        expected: Err("this kernel has no io_uring (ENOSYS)"),
        suite: false,
    },
    Refusal {
        calls: &[SETUP],
        above: None,
        errno: ENOMEM,
        expected: Err("no memory for a ring (ENOMEM): this process may lock"),
        suite: false,
    },
    Refusal {
        calls: &[ENTER],
        above: None,
        errno: EPERM,
        expected: Err("a ring was set up, but beginning a write fails: "),
        suite: true,
    },
    // Retried for a limited time.
    Refusal {
        calls: &[ENTER],
        above: None,
        errno: EAGAIN,
        expected: Err("a ring was set up, but beginning a write fails: "),
        suite: false,
    },
    Refusal { calls: &[REGISTER], above: None, errno: ENOMEM, expected: Ok(0), suite: true },
    // The backend tries eight, then four, then two.
    Refusal { calls: &[REGISTER], above: Some(2), errno: ENOMEM, expected: Ok(2), suite: true },
];

/// Refuses these calls for good, in this thread and threads started by it; see [`Refusal`].
fn refuse(calls: &[i64], above: Option<u64>, errno: u32) {
    let rule = |above| {
        let condition = SeccompCondition::new(3, SeccompCmpArgLen::Dword, SeccompCmpOp::Gt, above).unwrap();
        SeccompRule::new(vec![condition]).unwrap()
    };
    let rules = calls.iter().map(|call| (*call, above.map(rule).into_iter().collect())).collect();
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), arch).unwrap();
    seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

#[test]
fn if_io_uring_is_refused_pwrite_is_used_and_the_reason_reported() {
    for index in 0..REFUSALS.len() {
        child::run("refusals::under_a_filter", &index.to_string());
    }
}

#[test]
#[ignore = "run by `if_io_uring_is_refused_pwrite_is_used_and_the_reason_reported`"]
fn under_a_filter() {
    let Refusal { calls, above, errno, expected, suite } = &REFUSALS[child::argument().parse::<usize>().unwrap()];
    refuse(calls, *above, *errno);
    let place = TestDir::new();
    let (backend, probe) = Directory::create(&place.path(), BackendChoice::Auto).unwrap();
    drop(backend);
    match expected {
        Err(expected) => {
            assert_eq!(probe.kind, BackendKind::Pwrite);
            let fallback_reason = probe.fallback_reason.unwrap();
            assert!(fallback_reason.starts_with(expected), "{fallback_reason}");
            let error = Directory::create(&place.path(), BackendChoice::IoUring).unwrap_err();
            assert!(matches!(error, DirectoryError::Probe { .. }), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
            Directory::create(&place.path(), BackendChoice::Pwrite).unwrap();
        }
        Ok(registered) => assert_eq!((probe.kind, probe.registered), (BackendKind::IoUring, *registered)),
    }
    if *suite {
        for (_, property) in crate::backend_suite::ALL {
            property(BackendChoice::Auto);
        }
    }
}

/// Calls refused while blocks are read, with the error.
const LATE_REFUSALS: &[(&[i64], u32)] = &[(&[SETUP], EPERM), (&[ENTER], EPERM), (&[ENTER], EAGAIN)];

#[test]
fn if_io_uring_is_refused_after_its_trial_a_store_is_read_without_it() {
    for index in 0..LATE_REFUSALS.len() {
        for taken in [0, 1, 5, 20] {
            child::run("refusals::refused_while_blocks_are_read", &format!("{index} {taken}"));
        }
    }
}

#[test]
#[ignore = "run by `if_io_uring_is_refused_after_its_trial_a_store_is_read_without_it`"]
fn refused_while_blocks_are_read() {
    let argument = child::argument();
    let (index, taken) = argument.split_once(' ').unwrap();
    let (calls, errno) = LATE_REFUSALS[index.parse::<usize>().unwrap()];
    let taken: usize = taken.parse().unwrap();
    let place = TestDir::new();
    recovery::build(&place.path(), BackendChoice::IoUring);
    let (reader, blocks) = recovery::open(&place.path(), BackendChoice::IoUring).unwrap();
    let mut cursor = BlockCursor::new(reader.clone(), blocks.clone());
    let mut buffer = BlockBuffer::default();
    for block in &blocks[..taken] {
        assert!(cursor.next(&mut buffer).unwrap() && recovery::is_right(block, &buffer));
    }
    refuse(calls, None, errno);
    recovery::read_rest(&mut cursor, &blocks, taken, 0..0);
    // A cursor is created and dropped, and another one reads everything, both under the refusal.
    drop(BlockCursor::new(reader.clone(), blocks.clone()));
    recovery::read_all(reader, &blocks, 0..0);
}

#[test]
fn the_limit_of_locked_memory_limits_registered_buffers() {
    for limit_kib in ["0", "64", "600"] {
        child::run("refusals::with_little_memory_to_lock", limit_kib);
    }
}

#[test]
#[ignore = "run by `the_limit_of_locked_memory_limits_registered_buffers`"]
fn with_little_memory_to_lock() {
    let limit = child::argument().parse::<u64>().unwrap() << 10;
    setrlimit(Resource::Memlock, Rlimit { current: Some(limit), maximum: Some(limit) }).unwrap();
    // Root may lock more than its limit.
    let mut sets = capabilities(None).unwrap();
    sets.effective -= CapabilitySet::IPC_LOCK;
    sets.permitted -= CapabilitySet::IPC_LOCK;
    set_capabilities(None, sets).unwrap();

    let place = TestDir::new();
    let (backend, probe) = Directory::create(&place.path(), BackendChoice::Auto).unwrap();
    drop(backend);
    match &probe {
        // Two 256 KiB buffers fit into 600 KiB, unless this user's other processes have locked some.
        Probe { kind: BackendKind::IoUring, registered, .. } => assert!(*registered as u64 <= limit >> 18, "{probe}"),
        // Newer kernels count the ring, too.
        Probe { fallback_reason, .. } => {
            let expected = format!("no memory for a ring (ENOMEM): this process may lock {limit} bytes");
            assert!(fallback_reason.as_ref().unwrap().starts_with(&expected), "{probe}");
        }
    }
    for (_, property) in crate::backend_suite::ALL {
        property(BackendChoice::Auto);
    }
}

#[test]
fn a_short_write_is_continued_until_an_error() {
    // The limit's signal is ignored, so that writes return its error.
    let ignoring = "trap '' XFSZ; exec \"$@\"";
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", ignoring, "sh"])
        .arg(program)
        .args(child::arguments("refusals::with_a_limit_to_the_size_of_files"));
    child::assert_passed(&command.env(child::ARGUMENT, "limit").output().unwrap(), "limit");
}

#[test]
#[ignore = "run by `a_short_write_is_continued_until_an_error`"]
fn with_a_limit_to_the_size_of_files() {
    assert_eq!(child::argument(), "limit");
    const LIMIT: u64 = 400 << 10;
    setrlimit(Resource::Fsize, Rlimit { current: Some(LIMIT), maximum: None }).unwrap();
    for choice in [BackendChoice::IoUring, BackendChoice::Pwrite] {
        let place = TestDir::new();
        let mut backend: Box<dyn StorageBackend> = crate::backend_suite::backend(&place.path(), choice);
        let file = backend.create("segment-1", 256 << 10).unwrap();
        write(&mut *backend, file, 0, 64, 7);
        backend.flush().unwrap();
        write(&mut *backend, file, 256 << 10, 64, 8);
        let error = backend.flush().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{error}");
        backend.sync(file).unwrap();
        // The write failed, although partly written.
        assert_eq!(backend.len(file).unwrap(), LIMIT);
        assert_eq!(backend.create("segment-2", LIMIT + 4096).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(backend.list().unwrap(), ["segment-1"]);
        // A chunk write with its first pages within the limit.
        let mut lane = LaneWriter::new(Pool::volatile(PoolOptions::default()).unwrap(), Rank(1));
        for _ in 0..2000 {
            let mut claim = lane.claim(8, 100).unwrap();
            claim.body_mut().fill(5);
            claim.commit();
        }
        let mut cursor = lane.cursor(Ssn::FIRST).unwrap();
        let chunk = loop {
            match cursor.read_chunk(Ssn::MAX, 1 << 20) {
                Some(chunk) if chunk.len() >= 64 << 10 => break chunk,
                _ => drop(cursor.read().unwrap()),
            }
        };
        let mut head = backend.header_buffer().unwrap();
        head.set_len(1);
        backend.write_chunks(file, LIMIT - (16 << 10), head, vec![chunk]).unwrap();
        assert_eq!(backend.flush().unwrap_err().kind(), ErrorKind::FileTooLarge);

        write(&mut *backend, file, 256 << 10, 36, 9);
        backend.sync(file).unwrap();
        let mut bytes = vec![0; LIMIT as usize];
        backend.reader("segment-1").unwrap().read_at(0, &mut bytes).unwrap();
        assert!(bytes[..256 << 10].iter().all(|byte| *byte == 7) && bytes[256 << 10..].iter().all(|byte| *byte == 9));
    }
}

#[test]
fn a_directory_whose_entry_cannot_be_synced_is_refused_also_if_it_exists() {
    child::run("refusals::without_syncs", "syncs");
}

#[test]
#[ignore = "run by `a_directory_whose_entry_cannot_be_synced_is_refused_also_if_it_exists`"]
fn without_syncs() {
    const EIO: u32 = 5;
    assert_eq!(child::argument(), "syncs");
    let place = TestDir::new();
    drop(Directory::create(&place.path(), BackendChoice::Pwrite).unwrap());
    drop(Directory::create(&place.path(), BackendChoice::Pwrite).unwrap());
    refuse(&[FSYNC], None, EIO);
    // Somebody else may have created it without a sync.
    let error = Directory::create(&place.path(), BackendChoice::Pwrite).map(drop).unwrap_err();
    let DirectoryError::Io { action: "syncing", path, .. } = &error else { panic!("{error}") };
    assert_eq!(Some(path.as_path()), place.path().parent());
}

#[test]
fn a_file_system_that_cannot_allocate_gets_zeros_and_no_holes() {
    for errno in [EOPNOTSUPP, ENOSYS] {
        child::run("refusals::without_allocation", &errno.to_string());
    }
}

#[test]
#[ignore = "run by `a_file_system_that_cannot_allocate_gets_zeros_and_no_holes`"]
fn without_allocation() {
    refuse(&[FALLOCATE], None, child::argument().parse().unwrap());
    let place = TestDir::new();
    let mut backend = crate::backend_suite::backend(&place.path(), BackendChoice::Pwrite);
    let bytes = (1 << 20) + (300 << 10);
    let file = backend.create("segment-9", bytes).unwrap();
    assert_eq!(backend.len(file).unwrap(), bytes);
    assert!(place.blocks_bytes("segment-9") >= bytes, "its space is allocated");
    assert_eq!(backend.punch(file, 0, 4096).unwrap_err().kind(), ErrorKind::Unsupported);
    backend.remove("segment-9").unwrap();

    // A store keeps its dead blocks until their segment is dead.
    let options = StoreOptions {
        segment_bytes: 16 << 10,
        block_bytes: 4 << 10,
        reserve_bytes: 0,
        ..StoreOptions::new(Rank(0), 2)
    };
    let mut store = Store::create(backend, options).unwrap();
    let body = vec![7; 3000];
    let mut blocks = Vec::new();
    for ssn in 1..=7 {
        store.append(Rank(1), &mut One(Some((Ssn(ssn), &body))), &mut blocks).unwrap();
    }
    store.sync().unwrap();
    let before = store.usage();
    store.free(&blocks[..2]);
    let after = store.usage();
    assert_eq!((after.disk_bytes, after.dead_bytes, after.segments), (before.disk_bytes, 2 * 4096, before.segments));
    store.free(&blocks[2..3]);
    assert_eq!(store.usage().segments, before.segments - 1);
    let mut buffer = BlockBuffer::default();
    store.reader().read(&blocks[3], &mut buffer).unwrap();
    store.sync().unwrap();
}
