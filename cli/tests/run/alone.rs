//! The library without `counterfoil run`, and MPI before it is there.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::place::{Place, is_there};
use crate::ended::Ended;

const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <string.h>

/* `alone`: a message to itself, and exit code 5. `early`, `late`: a send before MPI_Init, or behind MPI_Finalize. */
int main(int argc, char **argv) {
    int out = 7, in = 0, is_there;
    const char *what = argc > 1 ? argv[1] : "";
    MPI_Initialized(&is_there);
    if (is_there) return 1;
    if (!strcmp(what, "early")) MPI_Send(&out, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
    MPI_Init(&argc, &argv);
    MPI_Sendrecv(&out, 1, MPI_INT, 0, 1, &in, 1, MPI_INT, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    MPI_Finalize();
    if (!strcmp(what, "late")) MPI_Send(&out, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
    printf("in = %d\n", in);
    return 5;
}
"#;

/// The library that `counterfoil run` would take, and where its MPI's libraries are.
fn library() -> (String, Option<String>) {
    let doctor = Command::new(env!("CARGO_BIN_EXE_counterfoil")).args(["doctor", "--json"]).output().unwrap();
    let found: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let mpi = found["findings"].as_array().unwrap().iter().find(|one| one["library"].is_string()).unwrap();
    let prefix = Path::new(mpi["mpirun"].as_str().unwrap()).ancestors().nth(2).map(|prefix| prefix.join("lib"));
    let libraries = prefix.filter(|libraries| libraries.join("libmpi.so.40").exists());
    (mpi["library"].as_str().unwrap().to_owned(), libraries.map(|path| path.to_str().unwrap().to_owned()))
}

fn place() -> Option<Place> {
    is_there().then(|| {
        let place = Place::new();
        place.compile("program", PROGRAM);
        place
    })
}

/// Runs a program without mpirun, with or without the library.
fn alone(place: &Place, with_library: bool, program: &[&str]) -> Ended {
    let (library, libraries) = library();
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "120", "env"]);
    command.args(libraries.map(|path| format!("LD_LIBRARY_PATH={path}")));
    command.args(with_library.then(|| format!("LD_PRELOAD={library}")));
    command.args(program).current_dir(place.path()).env("TMPDIR", place.path().join("tmp"));
    for name in ["OMPI", "PRTE"] {
        command.env(format!("{name}_ALLOW_RUN_AS_ROOT"), "1").env(format!("{name}_ALLOW_RUN_AS_ROOT_CONFIRM"), "1");
    }
    command.output().unwrap().into()
}

#[test]
fn without_mpirun_a_program_is_a_job_of_one_rank_and_is_told_so() {
    let Some(place) = place() else { return };
    let ended = alone(&place, true, &["./program"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(5), "in = 7\n"), "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("the program runs without mpirun").count(), 1, "{}", ended.stderr);
    let under = place.counterfoil(&["run", "-n", "1", "--", "./program"]);
    under.says(5, "1 messages logged");
    assert!(!under.stderr.contains("without mpirun"), "{}", under.stderr);
}

#[test]
fn a_program_without_mpi_doesn_t_notice_the_library() {
    let Some(place) = place() else { return };
    let ended = alone(&place, true, &["sh", "-c", "echo hello; exit 3"]);
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(3), "hello\n", ""));
}

#[test]
fn a_call_before_mpi_is_there_or_when_it_is_gone_is_answered_by_mpi() {
    let Some(place) = place() else { return };
    for (what, says) in [("early", "MPI_INIT"), ("late", "MPI_FINALIZE")] {
        let (with, without) = (alone(&place, true, &["./program", what]), alone(&place, false, &["./program", what]));
        assert!(without.code.is_none_or(|code| code != 0), "{}", without.stderr);
        assert_eq!(with.code, without.code, "{what}: {}", with.stderr);
        for ended in [with, without] {
            assert!(ended.stderr.to_uppercase().contains(says), "{what}: {}", ended.stderr);
        }
        let under = place.counterfoil(&["run", "-n", "1", "--", "./program", what]);
        assert_ne!(under.code, Some(0), "{what}: {}", under.stderr);
        assert!(under.stderr.contains("MPI_Send") && !under.stderr.contains("panicked"), "{what}: {}", under.stderr);
    }
}

#[test]
fn a_variable_that_makes_no_sense_or_the_log_of_another_job_is_named_at_the_beginning() {
    let Some(place) = place() else { return };
    let with = |variable: &str| alone(&place, true, &["env", variable, "./program"]);
    for (variable, says) in [
        ("COUNTERFOIL_PROTOCOL=hydee", "COUNTERFOIL_PROTOCOL is `hydee`: it must be `sender-based`"),
        ("COUNTERFOIL_BUDGET=1", "COUNTERFOIL_BUDGET is `1`: it must be a number of bytes"),
    ] {
        let ended = with(variable);
        ended.says(5, says);
        assert!(ended.stderr.contains("nothing is logged"), "{}", ended.stderr);
    }
    let logs = place.path().join("logs");
    let variable = format!("COUNTERFOIL_LOG_DIR={}", logs.display());
    std::fs::create_dir(&logs).unwrap();
    std::fs::set_permissions(&logs, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    with(&variable).says(5, "without mpirun");
    let profile = std::fs::read(logs.join("rank-0.profile")).unwrap();
    with(&variable).says(5, "rank-0 is there, the log of another job: give another directory");
    assert!(profile == std::fs::read(logs.join("rank-0.profile")).unwrap());
}
