//! What is there of the logs afterwards, and what is said of those that aren't.

use std::fs;

use serde_json::{Value, json};

use super::place::Place;
use super::ring::place;

fn summary(place: &Place) -> Value {
    serde_json::from_slice(&fs::read(place.path().join("s.json")).unwrap()).unwrap()
}

#[test]
fn a_log_that_could_not_be_kept_is_said_in_table_and_summary() {
    let Some(place) = place() else { return };
    let run = |what: &str| {
        place.counterfoil(&["run", "-n", "2", "--log-dir", "logs", "--summary", "s.json", "--", "./ring", what])
    };
    let ended = run("remove");
    ended.says(0, "NOT KEPT: in logs the log of ranks 0, 1 is not complete");
    for rank in summary(&place)["ranks"].as_array().unwrap() {
        assert_eq!((&rank["kept"], &rank["complete"]), (&json!(false), &json!(true)), "{rank}");
        assert!(!rank["not_kept"].as_str().unwrap().is_empty(), "{rank}");
    }
    let kept = run("nothing");
    assert!(kept.code == Some(0) && !kept.stderr.contains("NOT KEPT"), "{}", kept.stderr);
    for rank in summary(&place)["ranks"].as_array().unwrap() {
        assert_eq!((&rank["kept"], &rank["not_kept"]), (&json!(true), &Value::Null), "{rank}");
    }
    let job: Value = serde_json::from_slice(&fs::read(place.path().join("logs/job.json")).unwrap()).unwrap();
    assert_eq!((&job["ranks"], &job["interrupted"]), (&json!(2), &json!(false)));
    let without = place.counterfoil(&["run", "-n", "2", "--json", "--", "./ring", "nothing"]);
    assert_eq!(without.account()["ranks"][0]["kept"], Value::Null, "nobody asked for it");
}

#[test]
fn what_killed_ranks_left_in_shared_memory_is_put_into_the_directory() {
    let Some(place) = place() else { return };
    let options = ["--tier", "process-crash-safe", "--log-dir", "logs", "--summary", "s.json", "--budget", "8MiB"];
    let ended = place.counterfoil(&[&["run", "-n", "3"], &options[..], &["--", "./ring", "die"]].concat());
    assert_ne!(ended.code, Some(0));
    assert!(ended.stderr.contains("ranks 0-2: what was left in shared memory is in logs now"), "{}", ended.stderr);
    for rank in summary(&place)["ranks"].as_array().unwrap() {
        assert_eq!((&rank["kept"], &rank["complete"]), (&json!(true), &json!(false)), "{rank}");
        // Ten messages, and perhaps what was kept of the barriers.
        assert!(rank["taken_over"].as_u64().unwrap() >= 10, "{rank}");
    }
    let verified = place.counterfoil(&["log", "verify", "logs"]);
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
    assert_eq!(verified.stdout.matches("took the log over from shared memory").count(), 3, "{}", verified.stdout);
    let dump = place.counterfoil(&["log", "dump", "logs/rank-1", "--peer", "2", "--json", "--hex"]);
    let dump: Value = serde_json::from_str(&dump.stdout).unwrap();
    let records = dump["records"].as_array().unwrap();
    let numbers: Vec<u64> = records.iter().map(|record| record["header"]["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=10).collect::<Vec<_>>());
    assert!(records.iter().all(|record| record["payload_hex"].as_str().unwrap().starts_with("6262")), "{dump}");
    let report = place.counterfoil(&["report", "logs", "--json"]);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!(
        report["matrix"].as_array().unwrap().iter().map(|row| row["messages"].as_u64().unwrap()).sum::<u64>(),
        30
    );
    assert!(report["notes"].to_string().contains("as it was in shared memory"), "{}", report["notes"]);
    assert_eq!(place.left_behind(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn what_killed_ranks_had_in_memory_is_said_to_be_missing() {
    let Some(place) = place() else { return };
    let ended = place.counterfoil(&["run", "-n", "2", "--log-dir", "logs", "--", "./ring", "die"]);
    assert_ne!(ended.code, Some(0));
    assert!(ended.stderr.contains("NOT KEPT: in logs the log of ranks 0, 1 is not complete"), "{}", ended.stderr);
    let verified = place.counterfoil(&["log", "verify", "logs"]);
    assert_eq!(verified.code, Some(1), "{}", verified.stdout);
    assert_eq!(verified.stdout.matches("ended without MPI_Finalize, and left no checkpoint").count(), 2);
    let report = place.counterfoil(&["report", "logs"]);
    assert!(
        report.stdout.contains("ranks 0, 1: ended without MPI_Finalize; what it had in memory is missing"),
        "{}",
        report.stdout
    );
}

#[test]
fn what_was_kept_of_collective_operations_is_in_the_sum() {
    let Some(place) = place() else { return };
    let ended = place.counterfoil(&["run", "-n", "2", "--log-dir", "logs", "--", "./ring", "gather"]);
    ended.says(0, "20 messages logged (19.53 KiB), and 1.95 KiB that ranks gave to collective operations");
    let report = place.counterfoil(&["report", "logs"]);
    assert!(
        report.stdout.contains("2 ranks, 20 messages logged (19.53 KiB), and 1.95 KiB that ranks gave"),
        "{}",
        report.stdout
    );
}

/// The names of fields, of objects within, too, but for those of operations.
fn names(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                found.push(name.clone());
                if name != "collectives_by_kind" {
                    names(field, found);
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|one| names(one, found)),
        _ => {}
    }
}

#[test]
fn every_field_is_documented() {
    let Some(place) = place() else { return };
    let options = ["--log-dir", "logs", "--summary", "s.json"];
    let ended = place.counterfoil(&[&["run", "-n", "2"], &options[..], &["--", "./ring", "gather"]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let mut found = Vec::new();
    for file in ["s.json", "logs/job.json", "logs/rank-0.profile"] {
        let value = serde_json::from_slice(&fs::read(place.path().join(file)).unwrap()).unwrap();
        names(&value, &mut found);
    }
    let dead = ["--tier", "process-crash-safe", "--log-dir", "dead", "--json"];
    names(
        &place.counterfoil(&[&["run", "-n", "2"], &dead[..], &["--", "./ring", "die"]].concat()).account(),
        &mut found,
    );
    let refused =
        ["--keep", "all", "--json", "--", "env", "COUNTERFOIL_LOG_DIR=/proc/self/fdinfo", "./ring", "nothing"];
    names(&place.counterfoil(&[&["run", "-n", "2"], &refused[..]].concat()).account(), &mut found);
    let docs = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/report.md")).unwrap();
    let (_, fields) = docs.split_once("\n## Fields\n").unwrap();
    assert!(
        ["taken_over", "interrupted", "why"].iter().all(|name| found.iter().any(|known| known == name)),
        "{found:?}"
    );
    let unknown: Vec<&String> = found.iter().filter(|name| !fields.contains(&format!("`{name}`"))).collect();
    assert!(unknown.is_empty(), "docs/report.md doesn't have {unknown:?}");
}
