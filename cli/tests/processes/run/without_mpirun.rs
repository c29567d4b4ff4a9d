//! The preloaded library without `counterfoil run`, and MPI calls before MPI_Init and after MPI_Finalize.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::sandbox::{Sandbox, mpi_available};
use crate::output::ProgramOutput;

const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <string.h>

/* Sends a message to itself; exit code 5. `early`, `late`: also sends before MPI_Init, or after MPI_Finalize. */
int main(int argc, char **argv) {
    int out = 7, in = 0, is_initialized;
    const char *what = argc > 1 ? argv[1] : "";
    MPI_Initialized(&is_initialized);
    if (is_initialized) return 1;
    if (!strcmp(what, "early")) MPI_Send(&out, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
    MPI_Init(&argc, &argv);
    MPI_Sendrecv(&out, 1, MPI_INT, 0, 1, &in, 1, MPI_INT, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    MPI_Finalize();
    if (!strcmp(what, "late")) MPI_Send(&out, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
    printf("in = %d\n", in);
    return 5;
}
"#;

/// Returns the library preloaded by `counterfoil run`, and the folder with its MPI's libraries.
fn library() -> (String, Option<String>) {
    let doctor = Command::new(env!("CARGO_BIN_EXE_counterfoil")).args(["doctor", "--json"]).output().unwrap();
    let found: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let mpi = found["findings"].as_array().unwrap().iter().find(|one| one["library"].is_string()).unwrap();
    let prefix = Path::new(mpi["mpirun"].as_str().unwrap()).ancestors().nth(2).map(|prefix| prefix.join("lib"));
    let libraries = prefix.filter(|libraries| libraries.join("libmpi.so.40").exists());
    (mpi["library"].as_str().unwrap().to_owned(), libraries.map(|path| path.to_str().unwrap().to_owned()))
}

fn sandbox() -> Option<Sandbox> {
    mpi_available().then(|| {
        let sandbox = Sandbox::new();
        sandbox.compile("program", PROGRAM);
        sandbox
    })
}

/// Runs a program without mpirun, with or without the library.
fn run_alone(sandbox: &Sandbox, with_library: bool, program: &[&str]) -> ProgramOutput {
    let (library, libraries) = library();
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "120", "env"]);
    command.args(libraries.map(|path| format!("LD_LIBRARY_PATH={path}")));
    command.args(with_library.then(|| format!("LD_PRELOAD={library}")));
    command.args(program).current_dir(sandbox.path()).env("TMPDIR", sandbox.path().join("tmp"));
    for name in ["OMPI", "PRTE"] {
        command.env(format!("{name}_ALLOW_RUN_AS_ROOT"), "1").env(format!("{name}_ALLOW_RUN_AS_ROOT_CONFIRM"), "1");
    }
    command.output().unwrap().into()
}

#[test]
fn a_program_without_mpirun_is_a_job_of_one_rank() {
    let Some(sandbox) = sandbox() else { return };
    let output = run_alone(&sandbox, true, &["./program"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(5), "in = 7\n"), "{}", output.stderr);
    assert_eq!(output.stderr.matches("the program runs without mpirun").count(), 1, "{}", output.stderr);
    let under = sandbox.counterfoil(&["run", "-n", "1", "--", "./program"]);
    under.assert_exit(5, "1 messages logged");
    assert!(!under.stderr.contains("without mpirun"), "{}", under.stderr);
}

#[test]
fn programs_without_mpi_are_not_affected_by_the_library() {
    let Some(sandbox) = sandbox() else { return };
    let output = run_alone(&sandbox, true, &["sh", "-c", "echo hello; exit 3"]);
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (Some(3), "hello\n", ""));
}

#[test]
fn calls_before_mpi_init_and_after_mpi_finalize_fail_as_without_the_library() {
    let Some(sandbox) = sandbox() else { return };
    for (what, message) in [("early", "MPI_INIT"), ("late", "MPI_FINALIZE")] {
        let (with, without) =
            (run_alone(&sandbox, true, &["./program", what]), run_alone(&sandbox, false, &["./program", what]));
        assert!(without.code.is_none_or(|code| code != 0), "{}", without.stderr);
        assert_eq!(with.code, without.code, "{what}: {}", with.stderr);
        for output in [with, without] {
            assert!(output.stderr.to_uppercase().contains(message), "{what}: {}", output.stderr);
        }
        let under = sandbox.counterfoil(&["run", "-n", "1", "--", "./program", what]);
        assert_ne!(under.code, Some(0), "{what}: {}", under.stderr);
        assert!(under.stderr.contains("MPI_Send") && !under.stderr.contains("panicked"), "{what}: {}", under.stderr);
    }
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let Some(sandbox) = sandbox() else { return };
    for name in ["LOGGING", "KEEP", "ON_FULL", "BUDGET", "PREFAULT", "SPILL_CPU", "DEADLOCK_AFTER", "TIER"] {
        let output = run_alone(&sandbox, true, &["env", &format!("COUNTERFOIL_{name}="), "./program"]);
        output.assert_exit(5, "without mpirun");
        assert!(!output.stderr.contains("nothing is logged"), "{name}: {}", output.stderr);
    }
}

#[test]
fn invalid_variables_and_the_log_of_another_job_are_reported_at_start() {
    let Some(sandbox) = sandbox() else { return };
    let with = |variable: &str| run_alone(&sandbox, true, &["env", variable, "./program"]);
    for (variable, message) in [
        ("COUNTERFOIL_KEEP=some", "COUNTERFOIL_KEEP is `some`: must be one of acked, checkpoint, all"),
        ("COUNTERFOIL_BUDGET=63KiB", "COUNTERFOIL_BUDGET is `63KiB`: a log needs at least 64KiB"),
    ] {
        let output = with(variable);
        output.assert_exit(5, message);
        assert!(output.stderr.contains("nothing is logged"), "{}", output.stderr);
    }
    let logs = sandbox.path().join("logs");
    let variable = format!("COUNTERFOIL_LOG_DIR={}", logs.display());
    std::fs::create_dir(&logs).unwrap();
    std::fs::set_permissions(&logs, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    with(&variable).assert_exit(5, "without mpirun");
    let profile = std::fs::read(logs.join("rank-0.profile")).unwrap();
    with(&variable).assert_exit(5, "rank-0 is there, the log of another job: give another directory");
    assert!(profile == std::fs::read(logs.join("rank-0.profile")).unwrap());
}
