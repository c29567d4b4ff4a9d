//! Programs without a launcher, with processes and hosts killed while they run: `examples/recover.rs`, and
//! `examples/every_call` with every call of a `LoggedCommunicator`.
//!
//! `cargo xtask mpi -- test` sets the path to `mpirun`. With an MPI that doesn't survive failures (Open MPI 4), only
//! the failure-free run is tested.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test's functions may")]

#[path = "../support/build.rs"]
mod build;
mod deaf;
mod hang;
#[path = "../support/holder.rs"]
mod holder;
mod hosts;
mod hung;
mod job;
#[path = "../support/library.rs"]
mod library;
mod lost;
#[path = "../support/mpirun.rs"]
mod mpirun;
mod namespaces;
mod resume;
#[path = "../support/ulfm.rs"]
mod ulfm;

use std::time::Duration;

use job::{Job, Program, RANKS};
use ulfm::outlives_failures;

/// Runs the example and kills `kills` ranks, each at some place in its work after all ranks have a process.
///
/// Returns the number of processes that became ranks.
#[track_caller]
fn run(job: Job, kills: usize) -> usize {
    let (_, between) = job.program().steps();
    // Kills fall into different phases: before the first checkpoint, and at different places after one.
    let steps: Vec<u32> = (0..kills as u32).map(|kill| kill * between).collect();
    run_with_kills_after(job, &steps)
}

/// Runs the example and kills a rank at some place in its work after each of these steps.
///
/// Returns the number of processes that became ranks.
#[track_caller]
fn run_with_kills_after(job: Job, steps: &[u32]) -> usize {
    let mut running = job.start();
    for (kill, step) in steps.iter().enumerate() {
        running.wait_for_ranks();
        running.wait_for_step(*step);
        running.wait_until_has_run(kill % RANKS, Duration::from_millis(3 * kill as u64));
        running.kill(kill % RANKS);
    }
    running.finish()
}

#[test]
fn a_program_ends_the_same_with_and_without_kills() {
    assert_eq!(run(Job::new(RANKS), 0), RANKS);
    if outlives_failures() {
        assert_eq!(run(Job::new(RANKS + 1), 0), RANKS);
        assert_eq!(run(Job::new(RANKS + 1), 1), RANKS + 1);
        assert_eq!(run(Job::new(RANKS + 5), 5), RANKS + 5);
    }
}

#[test]
fn every_call_returns_its_value_in_a_job_that_recovers() {
    let job = |spares| Job::new(RANKS + spares).with_program(Program::EveryCall);
    assert_eq!(run(job(0), 0), RANKS);
    if outlives_failures() {
        // A kill after each part but the last.
        let (parts, _) = Program::EveryCall.steps();
        let settings = ["sender-based", "pessimistic", "node-local", "pessimistic"];
        for (kills, setting) in (0..parts).collect::<Vec<_>>().chunks(5).zip(settings) {
            let job = job(kills.len()).with_setting(setting);
            assert_eq!(run_with_kills_after(job, kills), RANKS + kills.len());
        }
    }
}

#[test]
fn what_can_not_be_recovered_from_is_said() {
    if outlives_failures() {
        let mut running = Job::new(RANKS).start();
        running.wait_for_ranks();
        running.kill(2);
        running.fail("rank 2 is dead and no spare process is left");
    } else {
        Job::new(RANKS + 1)
            .start()
            .fail("1 of the processes are spares, but this MPI ends the job with its first dead process");
    }
}

#[test]
fn a_rank_that_gives_up_ends_the_job() {
    let job = |setting| Job::new(RANKS).with_program(Program::EveryCall).with_setting(setting);
    job("panics").start().fail_with(101, "rank 2 gives up");
    job("fails").start().fail_with(1, "the program failed on rank 2");
    if outlives_failures() {
        let job = Job::new(RANKS + 2).with_options(&["--mca", "btl", "tcp,self"]);
        job.with_program(Program::EveryCall).with_setting("panics").start().fail("rank 2 gives up");
    }
}

#[test]
fn a_killed_rank_is_replaced_over_tcp() {
    if outlives_failures() {
        let job = Job::new(RANKS + 2).with_options(&["--mca", "btl", "tcp,self"]);
        assert_eq!(run(job, 2), RANKS + 2);
    }
}
