//! What can't be run, and why.

use std::fs;

use super::place::{Place, is_there};
use crate::ended::Ended;
use crate::script;

#[test]
fn without_an_mpi_it_says_what_to_do() {
    let place = Place::new();
    let run = |place: &Place, variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = place.command_with(variables, arguments);
        command.env_remove("COUNTERFOIL_MPI").env_remove("COUNTERFOIL_MPI_LIBRARY").env_remove("CARGO_TARGET_DIR");
        Ended::from(command.output().unwrap())
    };
    run(&place, &[("PATH", "/nonexistent")], &["run", "--", "/bin/true"]).says(1, "no mpirun in PATH");
    let wrong = run(&place, &[("COUNTERFOIL_MPI", "/nonexistent")], &["run", "--", "/bin/true"]);
    wrong.says(1, "COUNTERFOIL_MPI: /nonexistent has no bin/mpirun");
    // Something that calls itself an MPI, for which nothing is built.
    let mpirun = place.path().join("mpi/bin/mpirun");
    fs::create_dir_all(mpirun.parent().unwrap()).unwrap();
    script::write(&mpirun, "echo 'mpirun (Open MPI) 5.0.99'");
    let folder = place.path().join("mpi");
    let folder = folder.to_str().unwrap();
    let not_built = run(&place, &[], &["run", "--mpi", folder, "--", "/bin/true"]);
    not_built.says(1, &format!("cargo xtask preload --mpi {folder}"));
    let library = [("COUNTERFOIL_MPI_LIBRARY", "/nonexistent.so")];
    run(&place, &library, &["run", "--mpi", folder, "--", "/bin/true"]).says(1, "/nonexistent.so is not there");
}

#[test]
fn arguments_that_make_no_sense_are_refused_before_anything_starts() {
    let place = Place::new();
    for (arguments, what) in [
        (&["run", "--protocol", "hydee", "--", "true"][..], "over MPI there is only `sender-based`"),
        (&["run", "--keep", "some", "--", "true"], "acked, checkpoint, all"),
        (&["run", "--budget", "64MB", "--", "true"], "KiB, MiB or GiB"),
        (&["run", "--budget", "63KiB", "--", "true"], "at least 64 KiB"),
        (&["run", "-n", "0", "--", "true"], "at least one rank"),
        (&["run", "-n", "2"], "-- PROGRAM"),
        (&["run", "-n", "2", "./program"], "-- PROGRAM"),
    ] {
        place.counterfoil(arguments).says(2, what);
    }
    assert_eq!(place.left_behind(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_program_or_a_place_for_files_that_is_not_there_is_named() {
    if !is_there() {
        return;
    }
    let place = Place::new();
    place.counterfoil(&["run", "-n", "1", "--", "./none"]).says(2, "there is no program ./none");
    place.counterfoil(&["run", "-n", "1", "--summary", "none/s.json", "--", "true"]).says(2, "--summary: none/s.json");
    place.counterfoil(&["run", "-n", "1", "--log-dir", "none/logs", "--", "true"]).says(2, "--log-dir");
    fs::write(place.path().join("file"), "").unwrap();
    place
        .counterfoil(&["run", "-n", "1", "--log-dir", "file", "--", "true"])
        .says(2, "--log-dir: cannot look into file");
    // Of the kernel's own, and never writable: not for root either.
    place.counterfoil(&["run", "-n", "1", "--log-dir", "/proc/self/fdinfo", "--", "true"]).says(2, "is not writable");
    fs::create_dir_all(place.path().join("taken/rank-0")).unwrap();
    place.counterfoil(&["run", "-n", "1", "--log-dir", "taken", "--", "true"]).says(2, "logs of another job (rank-0)");
    assert_eq!(place.left_behind(), Vec::<std::path::PathBuf>::new());
}
