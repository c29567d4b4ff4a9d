//! A process not told of failures, as Open MPI 5.0.11 sometimes leaves one out under load.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::job::{Job, Program, RANKS, Running};
use crate::library::library;
use crate::ulfm::outlives_failures;

/// Line printed by the library.
const DEAF: &str = "a process is deaf";
/// Longest time for the processes to end after their launcher.
const END_MAX: Duration = Duration::from_secs(30);

/// Starts a job with one deaf process, and waits for its ranks.
///
/// Returns it, and the folder with the library that makes the process deaf.
#[track_caller]
fn start_with_deaf(process: u32) -> (Running, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let library = library("tests/recover/c/deaf.c", "deaf", folder.path());
    let preload = format!("LD_PRELOAD={}", library.to_str().unwrap());
    let job = Job::new(RANKS + 1).with_options(&["-x", &preload, "-x", &format!("COUNTERFOIL_DEAF={process}")]);
    let mut running = job.start();
    running.wait_for_ranks();
    assert!(running.has_said(DEAF));
    (running, folder)
}

#[test]
fn a_process_that_is_told_of_no_failure_is_called_to_the_repair() {
    if outlives_failures() {
        // A rank, and the spare.
        for (deaf, killed) in [(2, 1), (RANKS as u32, 2)] {
            let (mut running, _folder) = start_with_deaf(deaf);
            running.kill(killed);
            running.wait_for_ranks();
            let (_, between) = Program::Rod.steps();
            running.wait_for_step(between);
            // The wait in the deaf process's MPI_Finalize depends on the load.
            running.kill_launcher();
            running.lose_all();
        }
    }
}

#[test]
fn a_process_that_is_told_of_no_failure_ends_an_agreement_that_waits_for_the_dead() {
    if outlives_failures() {
        let (mut running, _folder) = start_with_deaf(2);
        // Root of the agreement.
        running.kill(0);
        running.fail("MPI has not told this process that process 0 of MPI_COMM_WORLD is dead");
    }
}

#[test]
fn a_process_that_is_told_of_no_failure_ends_with_its_launcher() {
    if outlives_failures() {
        let (running, _folder) = start_with_deaf(2);
        let ranks: Vec<u32> = (0..RANKS).map(|rank| running.process(rank)).collect();
        running.kill_launcher();
        let begun = Instant::now();
        while let Some(rank) = ranks.iter().find(|process| is_alive(**process)) {
            assert!(begun.elapsed() < END_MAX, "process {rank} lives without its launcher");
            sleep(Duration::from_millis(20));
        }
        running.lose_all();
    }
}

/// Returns `true` for a process that has not ended; an ended one may wait for its parent.
fn is_alive(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}
