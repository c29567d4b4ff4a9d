//! Ranks unable to create their logs: no rank logs, and the reason is reported.

use std::fs;

use serde_json::{Value, json};

use super::ring::sandbox;
use crate::output::ProgramOutput;

/// Creates another job's log after `counterfoil run` has checked the directory.
const TAKEN: &str = "mkdir -m 700 logs/rank-$OMPI_COMM_WORLD_RANK; exec ./ring";
/// Gives one rank a directory on a pseudo file system, not writable even for root.
const NOT_WRITABLE: &str =
    "test $OMPI_COMM_WORLD_RANK = 1 && export COUNTERFOIL_LOG_DIR=/proc/self/fdinfo; exec ./ring";
/// Sets a value refused by `counterfoil run` itself.
const INVALID_SETTING: &str = "COUNTERFOIL_KEEP=some exec ./ring";

fn run(script: &str) -> Option<(ProgramOutput, Value)> {
    let sandbox = sandbox()?;
    let options = ["--log-dir", "logs", "--summary", "s.json"];
    let output = sandbox.counterfoil(&[&["run", "-n", "3"], &options[..], &["--", "sh", "-c", script]].concat());
    let summary = serde_json::from_slice(&fs::read(sandbox.path().join("s.json")).unwrap()).unwrap();
    assert_eq!(sandbox.remaining_jobs(), Vec::<std::path::PathBuf>::new());
    Some((output, summary))
}

/// Returns the lines printed by the command itself.
fn notes(output: &ProgramOutput) -> Vec<&str> {
    output.stderr.lines().filter(|line| line.starts_with("counterfoil: ")).collect()
}

#[test]
fn a_log_of_another_job_is_named_once_for_all_ranks() {
    let Some((output, summary)) = run(TAKEN) else { return };
    assert_eq!(output.code, Some(0), "the program continues: {}", output.stderr);
    let [note] = notes(&output)[..] else { panic!("{}", output.stderr) };
    assert!(note.starts_with("counterfoil: nothing was logged, because of ranks 0-2: "), "{note}");
    assert!(note.contains("/logs/rank-0 is there, the log of another job: give another directory"), "{note}");
    assert_eq!(summary["ranks"], json!([]));
    for (rank, refused) in summary["refused"].as_array().unwrap().iter().enumerate() {
        assert_eq!(refused["rank"], rank, "{refused}");
        assert!(refused["why"].as_str().unwrap().contains(&format!("/logs/rank-{rank} is there")), "{refused}");
    }
}

#[test]
fn no_rank_logs_if_one_cannot_write() {
    let Some((output, summary)) = run(NOT_WRITABLE) else { return };
    assert_eq!(output.code, Some(0), "the program continues: {}", output.stderr);
    let [note] = notes(&output)[..] else { panic!("{}", output.stderr) };
    assert!(note.starts_with("counterfoil: nothing was logged, because of rank 1: the log can't be made: "), "{note}");
    assert!(note.contains("/proc/self/fdinfo"), "{note}");
    let [refused] = &summary["refused"].as_array().unwrap()[..] else { panic!("{summary}") };
    assert_eq!((&refused["rank"], &summary["ranks"]), (&json!(1), &json!([])));
    assert!(note.ends_with(refused["why"].as_str().unwrap()), "{note}: {refused}");
}

#[test]
fn an_invalid_variable_is_reported_at_the_end_too() {
    let Some((output, summary)) = run(INVALID_SETTING) else { return };
    assert_eq!(output.code, Some(0), "the program continues: {}", output.stderr);
    let [note] = notes(&output)[..] else { panic!("{}", output.stderr) };
    assert!(note.contains("because of rank 0: COUNTERFOIL_KEEP is `some`: must be one of"), "{note}");
    assert_eq!(summary["refused"].as_array().unwrap().len(), 1, "{summary}");
}
