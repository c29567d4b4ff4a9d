//! What is refused to a process, and what it does then. Each refusal is of a child: none can be taken back.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod backend_suite;
mod child;

use std::io::ErrorKind;
use std::process::Command;

use backend_suite::{Place, recovery, write};
use counterfoil_log_io::{
    BackendChoice, BackendKind, BlockBuffer, BlockCursor, Directory, DirectoryError, Probe, StorageBackend,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

// The same numbers on every architecture.
const SETUP: i64 = 425;
const ENTER: i64 = 426;
const REGISTER: i64 = 427;

const EPERM: u32 = 1;
const EAGAIN: u32 = 11;
const ENOMEM: u32 = 12;
const ENOSYS: u32 = 38;

struct Refusal {
    calls: &'static [i64],
    /// Only where the call's fourth argument is more than this.
    above: Option<u64>,
    errno: u32,
    /// What the report says, or how many buffers are registered where io_uring works all the same.
    expected: Result<usize, &'static str>,
    /// Whether the whole suite is run; otherwise the directory is only opened.
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
    // For a while it is tried again, not for ever.
    Refusal {
        calls: &[ENTER],
        above: None,
        errno: EAGAIN,
        expected: Err("a ring was set up, but beginning a write fails: "),
        suite: false,
    },
    Refusal { calls: &[REGISTER], above: None, errno: ENOMEM, expected: Ok(0), suite: true },
    // Eight are asked for, then four, then two.
    Refusal { calls: &[REGISTER], above: Some(2), errno: ENOMEM, expected: Ok(2), suite: true },
];

/// From now on these calls of this thread, and of those that it starts, are refused; see [`Refusal`].
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
fn where_io_uring_is_refused_it_is_said_why_and_pwrite_does_it() {
    for index in 0..REFUSALS.len() {
        child::run("under_a_filter", &index.to_string());
    }
}

#[test]
#[ignore = "run by `where_io_uring_is_refused_it_is_said_why_and_pwrite_does_it`"]
fn under_a_filter() {
    let Refusal { calls, above, errno, expected, suite } = &REFUSALS[child::told().parse::<usize>().unwrap()];
    refuse(calls, *above, *errno);
    let place = Place::new();
    let (backend, probe) = Directory::create(&place.path(), BackendChoice::Auto).unwrap();
    drop(backend);
    match expected {
        Err(expected) => {
            assert_eq!(probe.kind, BackendKind::Pwrite);
            let why_not = probe.why_not.unwrap();
            assert!(why_not.starts_with(expected), "{why_not}");
            let error = Directory::create(&place.path(), BackendChoice::IoUring).unwrap_err();
            assert!(matches!(error, DirectoryError::Probe { .. }), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
            Directory::create(&place.path(), BackendChoice::Pwrite).unwrap();
        }
        Ok(registered) => assert_eq!((probe.kind, probe.registered), (BackendKind::IoUring, *registered)),
    }
    if *suite {
        for (_, property) in backend_suite::ALL {
            property(BackendChoice::Auto);
        }
    }
}

/// Calls that are refused when blocks are being read, and how.
const LATE_REFUSALS: &[(&[i64], u32)] = &[(&[SETUP], EPERM), (&[ENTER], EPERM), (&[ENTER], EAGAIN)];

#[test]
fn where_io_uring_is_refused_after_its_trial_a_store_is_read_without() {
    for index in 0..LATE_REFUSALS.len() {
        for taken in [0, 1, 5, 20] {
            child::run("refused_while_blocks_are_read", &format!("{index} {taken}"));
        }
    }
}

#[test]
#[ignore = "run by `where_io_uring_is_refused_after_its_trial_a_store_is_read_without`"]
fn refused_while_blocks_are_read() {
    let told = child::told();
    let (index, taken) = told.split_once(' ').unwrap();
    let (calls, errno) = LATE_REFUSALS[index.parse::<usize>().unwrap()];
    let taken: usize = taken.parse().unwrap();
    let place = Place::new();
    recovery::build(&place.path(), BackendChoice::IoUring);
    let (reader, blocks) = recovery::open(&place.path(), BackendChoice::IoUring).unwrap();
    let mut cursor = BlockCursor::new(reader.clone(), blocks.clone());
    let mut buffer = BlockBuffer::default();
    for block in &blocks[..taken] {
        assert!(cursor.next(&mut buffer).unwrap() && recovery::is_right(block, &buffer));
    }
    refuse(calls, None, errno);
    recovery::go_on(&mut cursor, &blocks, taken, 0..0);
    // Begun and dropped, and begun again, under the refusal.
    drop(BlockCursor::new(reader.clone(), blocks.clone()));
    recovery::read_all(reader, &blocks, 0..0);
}

#[test]
fn as_many_buffers_are_registered_as_memory_may_be_locked() {
    for limit_kib in ["0", "64", "600"] {
        child::run("with_little_memory_to_lock", limit_kib);
    }
}

#[test]
#[ignore = "run by `as_many_buffers_are_registered_as_memory_may_be_locked`"]
fn with_little_memory_to_lock() {
    let limit = child::told().parse::<u64>().unwrap() << 10;
    setrlimit(Resource::Memlock, Rlimit { current: Some(limit), maximum: Some(limit) }).unwrap();
    // Root may lock more than its limit.
    let mut sets = capabilities(None).unwrap();
    sets.effective -= CapabilitySet::IPC_LOCK;
    sets.permitted -= CapabilitySet::IPC_LOCK;
    set_capabilities(None, sets).unwrap();

    let place = Place::new();
    let (backend, probe) = Directory::create(&place.path(), BackendChoice::Auto).unwrap();
    drop(backend);
    match &probe {
        // Two of 256 KiB fit into 600 KiB, unless others of this user have some of it locked.
        Probe { kind: BackendKind::IoUring, registered, .. } => assert!(*registered as u64 <= limit >> 18, "{probe}"),
        // New kernels count the ring, too.
        Probe { why_not, .. } => {
            let expected = format!("no memory for a ring (ENOMEM): this process may lock {limit} bytes");
            assert!(why_not.as_ref().unwrap().starts_with(&expected), "{probe}");
        }
    }
    for (_, property) in backend_suite::ALL {
        property(BackendChoice::Auto);
    }
}

#[test]
fn a_write_that_is_cut_short_is_continued_until_it_is_an_error() {
    // The limit's signal is ignored, then its error is seen.
    let ignoring = "trap '' XFSZ; exec \"$@\"";
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", ignoring, "sh"]).arg(program).args(child::arguments("with_a_limit_to_the_size_of_files"));
    child::passed(&command.env(child::TOLD, "limit").output().unwrap(), "limit");
}

#[test]
#[ignore = "run by `a_write_that_is_cut_short_is_continued_until_it_is_an_error`"]
fn with_a_limit_to_the_size_of_files() {
    assert_eq!(child::told(), "limit");
    const LIMIT: u64 = 400 << 10;
    setrlimit(Resource::Fsize, Rlimit { current: Some(LIMIT), maximum: None }).unwrap();
    for choice in [BackendChoice::IoUring, BackendChoice::Pwrite] {
        let place = Place::new();
        let mut backend: Box<dyn StorageBackend> = backend_suite::backend(&place.path(), choice);
        let file = backend.create("segment-1", 256 << 10).unwrap();
        write(&mut *backend, file, 0, 64, 7);
        backend.flush().unwrap();
        write(&mut *backend, file, 256 << 10, 64, 8);
        let error = backend.flush().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{error}");
        backend.sync(file).unwrap();
        // The part that was written makes no difference: the write failed.
        assert_eq!(backend.len(file).unwrap(), LIMIT);
        assert_eq!(backend.create("segment-2", LIMIT + 4096).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(backend.list().unwrap(), ["segment-1"]);
        write(&mut *backend, file, 256 << 10, 36, 9);
        backend.sync(file).unwrap();
        let mut bytes = vec![0; LIMIT as usize];
        backend.reader("segment-1").unwrap().read_at(0, &mut bytes).unwrap();
        assert!(bytes[..256 << 10].iter().all(|byte| *byte == 7) && bytes[256 << 10..].iter().all(|byte| *byte == 9));
    }
}
