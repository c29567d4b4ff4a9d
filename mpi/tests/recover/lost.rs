//! An endless agreement, as sometimes lost by Open MPI 5.0.11 when two processes die at the same time.

use crate::job::{Job, RANKS};
use crate::library::library;
use crate::ulfm::outlives_failures;

#[test]
fn a_job_whose_agreement_is_lost_fails() {
    if outlives_failures() {
        let folder = tempfile::tempdir().unwrap();
        let library = library("tests/recover/c/lost.c", "lost", folder.path());
        let preload = format!("LD_PRELOAD={}", library.to_str().unwrap());
        let mut running = Job::new(RANKS + 2).with_options(&["-x", &preload]).start();
        running.wait_for_ranks();
        running.kill(1);
        running.kill(2);
        running.fail("MPI has lost the agreement on which processes are dead");
    }
}
