//! Completely failed jobs, started again under their name.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use crate::job::{Job, Program, RANKS};

/// Starts the job, and kills a rank after this step; no other process replaces it.
#[track_caller]
fn start_and_kill(job: &Job, rank: usize, step: u32) {
    let mut running = job.clone().start();
    running.wait_for_ranks();
    running.wait_for_step(step);
    sleep(Duration::from_millis(7 * rank as u64));
    running.kill(rank);
    running.lose();
}

/// Checks that the job goes on after this step, ends as without kills, and leaves nothing.
#[track_caller]
fn resume(job: &Job, behind: u32) {
    let mut running = job.clone().start();
    let first = running.first_step();
    assert!(first > behind, "{first}");
    assert_eq!(running.finish(), RANKS);
    for directory in job.directories() {
        assert!(!directory.exists(), "{directory:?}");
    }
}

#[test]
fn a_job_is_resumed_each_time_that_it_has_failed() {
    let (steps, between) = Program::Rod.steps();
    for tier in ["process-crash-safe", "node-local"] {
        let job = Job::new(RANKS).with_setting(tier).with_name();
        for (rank, step) in (0..).zip([0, between, between, 3 * between]) {
            start_and_kill(&job, rank, step);
        }
        resume(&job, 2 * between);
        // It is another job with the same name.
        start_and_kill(&job, 1, between);
        resume(&job, 0);
        assert!(steps > 3 * between);
    }
}

#[test]
fn a_job_is_resumed_after_a_power_cut() {
    let (_, between) = Program::Rod.steps();
    let job = Job::new(RANKS).with_setting("node-local").with_name();
    for (rank, step) in (0..).zip([between, 2 * between]) {
        start_and_kill(&job, rank, step);
        fs::remove_dir_all(&job.directories()[0]).unwrap();
    }
    resume(&job, between);
}

#[test]
fn every_call_returns_its_value_in_a_job_that_is_resumed() {
    for rule in ["sender-based", "pessimistic"] {
        let job = Job::new(RANKS).with_program(Program::EveryCall).with_setting(rule).with_name();
        for (rank, step) in (0..RANKS).cycle().zip([0, 3, 6, 9, 12, 14, 17, 20]) {
            start_and_kill(&job, rank, step);
        }
        resume(&job, 18);
    }
}

#[test]
fn a_job_that_can_not_be_resumed_is_an_error() {
    let (_, between) = Program::Rod.steps();
    let job = Job::new(RANKS).with_setting("process-crash-safe").with_name();
    let mut running = job.clone().start();
    running.wait_for_ranks();
    running.wait_for_step(between);
    running.stop(3);
    job.clone().start().fail("is running: a process holds the files of rank");
    running.kill(3);
    running.lose();
    job.clone()
        .with_setting("node-local")
        .start()
        .fail("has the tier ProcessCrashSafe, and is started again with NodeLocal");
    let [memory, checkpoints] = job.directories();
    fs::remove_dir_all(&memory).unwrap();
    job.clone().start().fail("can't be resumed: its files aren't in /dev/shm");
    fs::write(checkpoints.join("job"), "x").unwrap();
    job.clone().start().fail("isn't the record of a job");
    // Each start makes it again.
    fs::remove_dir_all(&memory).unwrap();
    job.named("../heat").start().fail("is no name of a job");
}

#[test]
fn a_job_that_began_with_other_checkpoints_is_not_begun_again() {
    let (_, between) = Program::Rod.steps();
    let job = Job::new(RANKS).with_setting("process-crash-safe").with_name();
    start_and_kill(&job, 2, between);
    let elsewhere = job.clone().with_other_temporary();
    elsewhere.start().fail("and began with checkpoints in another directory");
    resume(&job, between);
}

#[test]
fn a_job_that_has_ended_is_not_resumed() {
    let (_, between) = Program::Rod.steps();
    for tier in ["process-crash-safe", "node-local"] {
        let job = Job::new(RANKS).with_setting(tier).with_name();
        let running = job.clone().start();
        // As if the last process had been killed before it had removed the files.
        let joined = job.join();
        assert_eq!(running.complete(), RANKS);
        drop(joined);
        assert!(job.directories().iter().all(|directory| directory.exists()));
        let mut running = job.clone().start();
        assert_eq!(running.first_step(), between);
        assert_eq!(running.finish(), RANKS);
    }
}
