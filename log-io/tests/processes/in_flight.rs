//! Operations that wait for writes and reads in flight.
//!
//! A hole is punched only after the writes to its file have ended: a later end would undo it. Read memory is freed only
//! after the reads have ended.

use counterfoil_log_io::{BackendChoice, Directory, DirectoryError, Extent, ProbeError, ReadAhead, ReadAheadOptions};
use counterfoil_test_support::{child, note_untested};

use crate::backend_suite::{TestDir, backend, write};
use crate::traced::{self, Step};

/// Returns the steps in a test in this module; `None` where they can't be observed.
fn steps(test: &str, choice: BackendChoice) -> Option<Vec<Step>> {
    let steps = traced::steps_of(&format!("in_flight::{test}"), &format!("{choice:?}"));
    if steps.is_none() {
        note_untested(&format!("what is in flight with {choice:?}: no process can be traced here"));
    }
    steps
}

/// Returns `false`, and says so, if the kernel has no io_uring, doesn't permit one, or doesn't list its requests.
fn has_observable_rings() -> bool {
    use ProbeError::{Missing, Refused};
    match Directory::create(&TestDir::new().path(), BackendChoice::IoUring) {
        Err(DirectoryError::Probe { source: reason @ (Missing | Refused { .. }), .. }) => {
            note_untested(&format!("what is in flight in an io_uring: {reason}"));
            return false;
        }
        trial => drop(trial.unwrap()),
    }
    if !traced::lists_requests() {
        note_untested("what is in flight in an io_uring: that needs Linux 5.16");
        return false;
    }
    true
}

#[test]
fn pwrite_writes_before_it_punches() {
    let Some(steps) = steps("writes_and_a_hole", BackendChoice::Pwrite) else { return };
    // One of two writes is deferred until the hole is requested.
    assert_eq!(steps, [Step::Write, Step::Write, Step::Punch]);
}

#[test]
fn io_uring_awaits_its_writes_before_it_punches() {
    if !has_observable_rings() {
        return;
    }
    let Some(steps) = steps("writes_and_a_hole", BackendChoice::IoUring) else { return };
    let punch = steps.iter().position(|step| *step == Step::Punch).unwrap();
    let last_write = steps.iter().rposition(|step| matches!(step, Step::Queued(_))).unwrap();
    assert!(steps[last_write..punch].contains(&Step::Awaited), "{steps:?}");
}

#[test]
fn reads_ahead_are_awaited_before_their_memory_is_freed() {
    if !has_observable_rings() {
        return;
    }
    let Some(steps) = steps("reads_that_nobody_takes", BackendChoice::IoUring) else { return };
    let queued = steps.iter().rposition(|step| *step == Step::Queued(4)).unwrap_or_else(|| panic!("{steps:?}"));
    assert!(steps[queued..].contains(&Step::Awaited), "{steps:?}");
}

#[test]
fn writes_of_a_dropped_ring_are_awaited_before_their_memory_is_freed() {
    if !has_observable_rings() {
        return;
    }
    let Some(steps) = steps("writes_that_nobody_flushes", BackendChoice::IoUring) else { return };
    // A wait ends with the first write, or with both.
    let (queued, waits) = steps.split_at(2.min(steps.len()));
    assert_eq!(queued, [Step::Queued(1); 2]);
    assert!(!waits.is_empty() && waits.iter().all(|step| *step == Step::Awaited), "{steps:?}");
}

#[test]
#[ignore = "run by the tests of each backend"]
fn writes_and_a_hole() {
    let choice = if child::argument() == "IoUring" { BackendChoice::IoUring } else { BackendChoice::Pwrite };
    let place = TestDir::new();
    let mut backend = backend(&place.path(), choice);
    let file = backend.create("segment-1", 1 << 20).unwrap();
    traced::begin();
    write(&mut *backend, file, 0, 16, 7);
    write(&mut *backend, file, 256 << 10, 16, 7);
    backend.punch(file, 0, 512 << 10).unwrap();
    backend.sync(file).unwrap();
}

#[test]
#[ignore = "run by `writes_of_a_dropped_ring_are_awaited_before_their_memory_is_freed`"]
fn writes_that_nobody_flushes() {
    assert_eq!(child::argument(), "IoUring");
    let place = TestDir::new();
    let mut backend = backend(&place.path(), BackendChoice::IoUring);
    let file = backend.create("segment-1", 1 << 20).unwrap();
    traced::begin();
    write(&mut *backend, file, 0, 16, 7);
    write(&mut *backend, file, 256 << 10, 16, 7);
    drop(backend);
}

#[test]
#[ignore = "run by `reads_ahead_are_awaited_before_their_memory_is_freed`"]
fn reads_that_nobody_takes() {
    assert_eq!(child::argument(), "IoUring");
    let place = TestDir::new();
    let mut backend = backend(&place.path(), BackendChoice::IoUring);
    let file = backend.create("segment-1", 4 << 20).unwrap();
    backend.sync(file).unwrap();
    let file = backend.reader("segment-1").unwrap();
    let extent = |at: u64| Extent { file: file.clone(), at: at << 20, len: 1 << 20 };
    let options = ReadAheadOptions { in_flight: 4, read_bytes: 1 << 20 };
    traced::begin();
    drop(ReadAhead::new((0..4).map(extent).collect(), options).unwrap());
}
