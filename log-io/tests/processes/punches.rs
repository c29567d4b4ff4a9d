//! A hole is punched, and a file truncated, only after the writes to the file have ended: a write that ends later would undo it.

use counterfoil_log_io::{BackendChoice, Directory, DirectoryError, ProbeError};
use counterfoil_test_support::child;

use crate::backend_suite::{TestDir, backend, write};
use crate::traced::{self, Step};

/// Returns the steps of [`writes_and_a_hole`]; `None` where they can't be observed.
fn steps(choice: BackendChoice) -> Option<Vec<Step>> {
    let steps = traced::steps_of("punches::writes_and_a_hole", &format!("{choice:?}"));
    if steps.is_none() {
        eprintln!("holes of the {choice:?} backend are NOT tested: no process can be traced here");
    }
    steps
}

#[test]
fn pwrite_writes_before_it_punches() {
    let Some(steps) = steps(BackendChoice::Pwrite) else { return };
    // Of two writes one is deferred until the hole is asked for.
    assert_eq!(steps, [Step::Write, Step::Write, Step::Punch]);
}

/// Tests nothing only if the kernel has no io_uring, doesn't permit one, or doesn't list its requests.
#[test]
fn io_uring_awaits_its_writes_before_it_punches() {
    use ProbeError::{Missing, Refused};
    match Directory::create(&TestDir::new().path(), BackendChoice::IoUring) {
        Err(DirectoryError::Probe { source: reason @ (Missing | Refused { .. }), .. }) => {
            eprintln!("holes of the io_uring backend are NOT tested: {reason}");
            return;
        }
        trial => drop(trial.unwrap()),
    }
    if !traced::lists_requests() {
        eprintln!("holes of the io_uring backend are NOT tested: that needs Linux 5.16");
        return;
    }
    let Some(steps) = steps(BackendChoice::IoUring) else { return };
    let punch = steps.iter().position(|step| *step == Step::Punch).unwrap();
    let last_write = steps.iter().rposition(|step| matches!(step, Step::Queued(_))).unwrap();
    assert!(steps[last_write..punch].contains(&Step::Awaited), "{steps:?}");
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
