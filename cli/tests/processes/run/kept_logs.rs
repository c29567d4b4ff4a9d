//! Logs kept in the log directory, and reports on incomplete ones.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::ring::sandbox;
use super::sandbox::Sandbox;

fn summary(sandbox: &Sandbox) -> Value {
    serde_json::from_slice(&fs::read(sandbox.path().join("s.json")).unwrap()).unwrap()
}

#[test]
fn a_log_that_could_not_be_kept_is_reported_in_table_and_summary() {
    let Some(sandbox) = sandbox() else { return };
    let run = |what: &str| {
        sandbox.counterfoil(&["run", "-n", "2", "--log-dir", "logs", "--summary", "s.json", "--", "./ring", what])
    };
    let output = run("remove");
    output.assert_exit(0, "NOT KEPT: the log of ranks 0, 1 in logs is incomplete");
    for rank in summary(&sandbox)["ranks"].as_array().unwrap() {
        assert_eq!((&rank["kept"], &rank["complete"]), (&json!(false), &json!(true)), "{rank}");
        assert!(!rank["not_kept"].as_str().unwrap().is_empty(), "{rank}");
    }
    let kept = run("nothing");
    assert!(kept.code == Some(0) && !kept.stderr.contains("NOT KEPT"), "{}", kept.stderr);
    for rank in summary(&sandbox)["ranks"].as_array().unwrap() {
        assert_eq!((&rank["kept"], &rank["not_kept"]), (&json!(true), &Value::Null), "{rank}");
    }
    let job: Value = serde_json::from_slice(&fs::read(sandbox.path().join("logs/job.json")).unwrap()).unwrap();
    assert_eq!((&job["ranks"], &job["interrupted"]), (&json!(2), &json!(false)));
    let without = sandbox.counterfoil(&["run", "-n", "2", "--json", "--", "./ring", "nothing"]);
    assert_eq!(without.summary()["ranks"][0]["kept"], Value::Null, "no log directory was given");
}

#[test]
fn logs_of_killed_ranks_in_shared_memory_are_taken_over() {
    let Some(sandbox) = sandbox() else { return };
    let options = ["--tier", "process-crash-safe", "--log-dir", "logs", "--summary", "s.json", "--budget", "8MiB"];
    let output = sandbox.counterfoil(&[&["run", "-n", "3"], &options[..], &["--", "./ring", "die"]].concat());
    assert_ne!(output.code, Some(0));
    assert!(output.stderr.contains("ranks 0-2: log in shared memory taken over into logs"), "{}", output.stderr);
    for rank in summary(&sandbox)["ranks"].as_array().unwrap() {
        assert_eq!((&rank["kept"], &rank["complete"]), (&json!(true), &json!(false)), "{rank}");
        // Ten messages, and possibly contributions to the barriers.
        assert!(rank["taken_over"].as_u64().unwrap() >= 10, "{rank}");
    }
    let verified = sandbox.counterfoil(&["log", "verify", "logs"]);
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
    assert_eq!(verified.stdout.matches("took its log over from shared memory").count(), 3, "{}", verified.stdout);
    let dump = sandbox.counterfoil(&["log", "dump", "logs/rank-1", "--peer", "2", "--json", "--hex"]);
    let dump: Value = serde_json::from_str(&dump.stdout).unwrap();
    let records = dump["records"].as_array().unwrap();
    let numbers: Vec<u64> = records.iter().map(|record| record["header"]["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=10).collect::<Vec<_>>());
    assert!(records.iter().all(|record| record["payload_hex"].as_str().unwrap().starts_with("6262")), "{dump}");
    let report = sandbox.counterfoil(&["report", "logs", "--json"]);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!(
        report["matrix"].as_array().unwrap().iter().map(|row| row["messages"].as_u64().unwrap()).sum::<u64>(),
        30
    );
    assert!(report["notes"].to_string().contains("its log from shared memory"), "{}", report["notes"]);
    assert_eq!(sandbox.remaining_jobs(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn records_in_memory_of_killed_ranks_are_reported_as_missing() {
    let Some(sandbox) = sandbox() else { return };
    let output = sandbox.counterfoil(&["run", "-n", "2", "--log-dir", "logs", "--", "./ring", "die"]);
    assert_ne!(output.code, Some(0));
    assert!(output.stderr.contains("NOT KEPT: the log of ranks 0, 1 in logs is incomplete"), "{}", output.stderr);
    let verified = sandbox.counterfoil(&["log", "verify", "logs"]);
    assert_eq!(verified.code, Some(1), "{}", verified.stdout);
    assert_eq!(verified.stdout.matches("ended without MPI_Finalize and left no checkpoint").count(), 2);
    let report = sandbox.counterfoil(&["report", "logs"]);
    assert!(
        report.stdout.contains("ranks 0, 1: ended without MPI_Finalize; records in memory are lost"),
        "{}",
        report.stdout
    );
}

#[test]
fn contributions_to_collective_operations_are_in_the_totals() {
    let Some(sandbox) = sandbox() else { return };
    let output = sandbox.counterfoil(&["run", "-n", "2", "--log-dir", "logs", "--", "./ring", "gather"]);
    output.assert_exit(0, "20 messages logged (19.53 KiB), and 1.95 KiB contributed to collective operations");
    let report = sandbox.counterfoil(&["report", "logs"]);
    assert!(
        report.stdout.contains("2 ranks, 20 messages logged (19.53 KiB), and 1.95 KiB contributed"),
        "{}",
        report.stdout
    );
}

/// Collects the names of all fields, recursively, except inside `collectives_by_kind`.
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
    let Some(sandbox) = sandbox() else { return };
    let options = ["--log-dir", "logs", "--summary", "s.json"];
    let output = sandbox.counterfoil(&[&["run", "-n", "2"], &options[..], &["--", "./ring", "gather"]].concat());
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let mut found = Vec::new();
    for file in ["s.json", "logs/job.json", "logs/rank-0.profile"] {
        let value = serde_json::from_slice(&fs::read(sandbox.path().join(file)).unwrap()).unwrap();
        names(&value, &mut found);
    }
    let dead = ["--tier", "process-crash-safe", "--log-dir", "dead", "--json"];
    names(
        &sandbox.counterfoil(&[&["run", "-n", "2"], &dead[..], &["--", "./ring", "die"]].concat()).summary(),
        &mut found,
    );
    let refused =
        ["--keep", "all", "--json", "--", "env", "COUNTERFOIL_LOG_DIR=/proc/self/fdinfo", "./ring", "nothing"];
    names(&sandbox.counterfoil(&[&["run", "-n", "2"], &refused[..]].concat()).summary(), &mut found);
    let chapter = "docs/book/src/reference/report-fields.md";
    let docs = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(chapter)).unwrap();
    let (_, fields) = docs.split_once("\n## Fields\n").unwrap();
    assert!(
        ["taken_over", "interrupted", "why"].iter().all(|name| found.iter().any(|known| known == name)),
        "{found:?}"
    );
    let unknown: Vec<&String> = found.iter().filter(|name| !fields.contains(&format!("`{name}`"))).collect();
    assert!(unknown.is_empty(), "{chapter} lacks {unknown:?}");
}
