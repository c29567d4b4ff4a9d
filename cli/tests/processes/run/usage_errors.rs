//! Errors before the program starts.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::sandbox::{Sandbox, mpi_available};
use crate::output::ProgramOutput;
use crate::script;

#[test]
fn a_missing_mpi_or_library_is_reported_with_advice() {
    let sandbox = Sandbox::new();
    let run = |sandbox: &Sandbox, variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = sandbox.command_with(variables, arguments);
        command.env_remove("COUNTERFOIL_MPI").env_remove("COUNTERFOIL_MPI_LIBRARY").env_remove("CARGO_TARGET_DIR");
        ProgramOutput::from(command.output().unwrap())
    };
    let no_path = run(&sandbox, &[("PATH", "/nonexistent")], &["run", "--", "/bin/true"]);
    no_path.assert_exit(1, "no mpirun in PATH");
    if Path::new("/usr/bin/mpirun.openmpi").exists() {
        no_path.assert_exit(1, "--mpi debian");
    }
    let wrong = run(&sandbox, &[("COUNTERFOIL_MPI", "/nonexistent")], &["run", "--", "/bin/true"]);
    wrong.assert_exit(1, "COUNTERFOIL_MPI: /nonexistent has no bin/mpirun");
    // Claims to be an Open MPI, but no library is built for it.
    let mpirun = sandbox.path().join("mpi/bin/mpirun");
    fs::create_dir_all(mpirun.parent().unwrap()).unwrap();
    script::write(&mpirun, "echo 'mpirun (Open MPI) 5.0.99'");
    let folder = sandbox.path().join("mpi");
    let folder = folder.to_str().unwrap();
    let not_built = run(&sandbox, &[], &["run", "--mpi", folder, "--", "/bin/true"]);
    not_built.assert_exit(1, &format!("cargo xtask preload --mpi {folder}"));
    let library = [("COUNTERFOIL_MPI_LIBRARY", "/nonexistent.so")];
    run(&sandbox, &library, &["run", "--mpi", folder, "--", "/bin/true"]).assert_exit(1, "/nonexistent.so not found");
}

#[test]
fn invalid_arguments_are_refused_before_anything_starts() {
    let sandbox = Sandbox::new();
    for (arguments, what) in [
        (&["run", "--keep", "some", "--", "true"][..], "acked, checkpoint, all"),
        (&["run", "--budget", "64MB", "--", "true"], "KiB, MiB or GiB"),
        (&["run", "--budget", "63KiB", "--", "true"], "--budget is `63KiB`: a log needs at least 64KiB"),
        (&["run", "-n", "0", "--", "true"], "at least one rank"),
        (&["run", "-n", "2"], "-- PROGRAM"),
        (&["run", "-n", "2", "./program"], "-- PROGRAM"),
        (&["run", "-n", "2", "./program", "5"], "put the program after `--`"),
        (&["rnu"], "unrecognized subcommand"),
    ] {
        sandbox.counterfoil(arguments).assert_exit(2, what);
    }
    assert_eq!(sandbox.remaining_jobs(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_missing_program_or_output_path_is_named() {
    if !mpi_available() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.counterfoil(&["run", "-n", "1", "--", "./none"]).assert_exit(2, "program not found: ./none");
    sandbox
        .counterfoil(&["run", "-n", "1", "--summary", "none/s.json", "--", "true"])
        .assert_exit(2, "--summary: none/s.json");
    sandbox.counterfoil(&["run", "-n", "1", "--log-dir", "/dev/null/logs", "--", "true"]).assert_exit(2, "--log-dir");
    fs::write(sandbox.path().join("file"), "").unwrap();
    sandbox
        .counterfoil(&["run", "-n", "1", "--log-dir", "file", "--", "true"])
        .assert_exit(2, "--log-dir: cannot read file");
    // A pseudo file system, not writable even for root.
    sandbox
        .counterfoil(&["run", "-n", "1", "--log-dir", "/proc/self/fdinfo", "--", "true"])
        .assert_exit(2, "is not writable");
    fs::create_dir_all(sandbox.path().join("taken/rank-0")).unwrap();
    sandbox
        .counterfoil(&["run", "-n", "1", "--log-dir", "taken", "--", "true"])
        .assert_exit(2, "logs of another job (rank-0)");
    assert_eq!(sandbox.remaining_jobs(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn with_json_errors_are_objects_too() {
    let sandbox = Sandbox::new();
    let last =
        |text: &str| -> Value { serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or_default() };
    // Standard output belongs to the program being run.
    for arguments in [
        &["run", "--json", "--budget", "junk", "--", "true"][..],
        &["run", "--json", "-n", "0", "--", "true"],
        &["run", "-n", "1", "--json"],
        &["run", "-n", "1", "--json", "--log-dir", "/dev/null/logs", "--", "./none"],
    ] {
        let output = sandbox.counterfoil(arguments);
        let object = last(&output.stderr);
        assert!(object["error"].is_string(), "{arguments:?}: {}", output.stderr);
        assert_eq!((&object["exit_code"], output.stdout.as_str()), (&json!(output.code), ""), "{arguments:?}");
    }
    for arguments in
        [&["demo", "--json", "--ranks", "banana"][..], &["log", "dump", "--json"], &["config", "--json", "x"]]
    {
        let output = sandbox.counterfoil(arguments);
        let object = last(&output.stdout);
        assert!(object["error"].is_string(), "{arguments:?}: {}", output.stdout);
        assert_eq!(object["exit_code"], 2, "{arguments:?}");
    }
    let program = sandbox.counterfoil(&["run", "-n", "0", "--", "./program", "--json"]);
    assert!(!program.stderr.contains("exit_code"), "{}", program.stderr);
}
