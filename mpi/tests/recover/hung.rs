//! A process hanging in MPI, as if its shared-memory queue had lost its end with a dead process.

use crate::job::{Job, Program, RANKS};
use crate::library::library;
use crate::ulfm::outlives_failures;

#[test]
fn a_process_that_hangs_in_mpi_is_replaced() {
    if outlives_failures() {
        let folder = tempfile::tempdir().unwrap();
        let library = library("tests/recover/c/hung.c", "hung", folder.path());
        let preload = format!("LD_PRELOAD={}", library.to_str().unwrap());
        let mut running = Job::new(RANKS + 1).with_options(&["-x", &preload]).start();
        running.wait_for_ranks();
        let (_, between) = Program::Rod.steps();
        running.wait_for_step(between);
        running.hang(2);
        assert_eq!(running.finish(), RANKS + 1);
    }
}
