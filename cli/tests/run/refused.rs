//! Ranks that can't make their logs: nobody logs, and it is said why.

use std::fs;

use serde_json::{Value, json};

use super::ring::place;
use crate::ended::Ended;

/// A log of another job, put there when the command has looked already.
const TAKEN: &str = "mkdir -m 700 logs/rank-$OMPI_COMM_WORLD_RANK; exec ./ring";
/// A directory of the kernel's own for one rank, which is never writable: not for root either.
const NOT_WRITABLE: &str =
    "test $OMPI_COMM_WORLD_RANK = 1 && export COUNTERFOIL_LOG_DIR=/proc/self/fdinfo; exec ./ring";
/// What `counterfoil run` itself would refuse.
const NO_SETTING: &str = "COUNTERFOIL_KEEP=some exec ./ring";

fn run(script: &str) -> Option<(Ended, Value)> {
    let place = place()?;
    let options = ["--log-dir", "logs", "--summary", "s.json"];
    let ended = place.counterfoil(&[&["run", "-n", "3"], &options[..], &["--", "sh", "-c", script]].concat());
    let summary = serde_json::from_slice(&fs::read(place.path().join("s.json")).unwrap()).unwrap();
    assert_eq!(place.left_behind(), Vec::<std::path::PathBuf>::new());
    Some((ended, summary))
}

/// What the command itself said.
fn notes(ended: &Ended) -> Vec<&str> {
    ended.stderr.lines().filter(|line| line.starts_with("counterfoil: ")).collect()
}

#[test]
fn a_log_of_another_job_is_named_once_for_all_ranks() {
    let Some((ended, summary)) = run(TAKEN) else { return };
    assert_eq!(ended.code, Some(0), "the program goes on: {}", ended.stderr);
    let [note] = notes(&ended)[..] else { panic!("{}", ended.stderr) };
    assert!(note.starts_with("counterfoil: nothing was logged, because of ranks 0-2: "), "{note}");
    assert!(note.contains("/logs/rank-0 is there, the log of another job: give another directory"), "{note}");
    assert_eq!(summary["ranks"], json!([]));
    for (rank, refused) in summary["refused"].as_array().unwrap().iter().enumerate() {
        assert_eq!(refused["rank"], rank, "{refused}");
        assert!(refused["why"].as_str().unwrap().contains(&format!("/logs/rank-{rank} is there")), "{refused}");
    }
}

#[test]
fn one_rank_that_cannot_write_is_why_nobody_logs() {
    let Some((ended, summary)) = run(NOT_WRITABLE) else { return };
    assert_eq!(ended.code, Some(0), "the program goes on: {}", ended.stderr);
    let [note] = notes(&ended)[..] else { panic!("{}", ended.stderr) };
    assert!(note.starts_with("counterfoil: nothing was logged, because of rank 1: the log can't be made: "), "{note}");
    assert!(note.contains("/proc/self/fdinfo"), "{note}");
    let [refused] = &summary["refused"].as_array().unwrap()[..] else { panic!("{summary}") };
    assert_eq!((&refused["rank"], &summary["ranks"]), (&json!(1), &json!([])));
    assert!(note.ends_with(refused["why"].as_str().unwrap()), "{note}: {refused}");
}

#[test]
fn a_variable_that_makes_no_sense_is_named_at_the_end_too() {
    let Some((ended, summary)) = run(NO_SETTING) else { return };
    assert_eq!(ended.code, Some(0), "the program goes on: {}", ended.stderr);
    let [note] = notes(&ended)[..] else { panic!("{}", ended.stderr) };
    assert!(note.contains("because of rank 0: COUNTERFOIL_KEEP is `some`: it must be"), "{note}");
    assert_eq!(summary["refused"].as_array().unwrap().len(), 1, "{summary}");
}
