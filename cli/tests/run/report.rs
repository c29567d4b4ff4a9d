//! The report of real jobs: figures that are known from the program's text.

use serde_json::{Value, json};

use super::place::{Place, is_there};

/// What `traffic.c` sends.
fn traffic(from: u64, to: u64) -> (u64, u64) {
    let (messages, bytes) = if from == to { (2, 24) } else { ((to + 1) * (from + 1), 8 << (to % 8)) };
    (messages, messages * bytes)
}

fn figures(place: &Place, logs: &str) -> Value {
    let ended = place.counterfoil(&["report", logs, "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

/// Rows of the matrix are right for these ranks, and others have none.
#[track_caller]
fn has_rows(figures: &Value, ranks: u64, known: &[u64]) {
    let matrix = figures["matrix"].as_array().unwrap();
    for from in 0..ranks {
        for to in 0..ranks {
            let (messages, bytes) = traffic(from, to);
            let right = json!({ "from": from, "to": to, "messages": messages, "bytes": bytes });
            let found = matrix.iter().find(|row| row["from"] == from && row["to"] == to);
            assert_eq!(found, known.contains(&from).then_some(&right), "{from} to {to}");
        }
    }
}

#[test]
fn a_jobs_report_has_what_the_program_did() {
    if !is_there() {
        return;
    }
    let place = Place::new();
    place.compile_known("traffic");
    let ended = place.counterfoil(&["run", "-n", "4", "--log-dir", "logs", "--budget", "8MiB", "--", "./traffic"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let figures = figures(&place, "logs");
    has_rows(&figures, 4, &[0, 1, 2, 3]);
    assert_eq!(figures["notes"], json!([]));
    let kinds = [("Allreduce", 20, 4 * 5 * 8), ("Barrier", 4, 0), ("Bcast", 12, 300)];
    let kinds: Vec<Value> =
        kinds.iter().map(|(kind, calls, kept)| json!({ "kind": kind, "calls": calls, "kept_bytes": kept })).collect();
    assert_eq!(figures["collectives"], json!(kinds));
    let sizes: u64 = figures["sizes"].as_array().unwrap().iter().map(|class| class["messages"].as_u64().unwrap()).sum();
    let sent: u64 = (0..4).flat_map(|from| (0..4).map(move |to| traffic(from, to).0)).sum();
    assert_eq!(sizes, sent);
    let settings = figures["job"]["settings"].as_array().unwrap();
    assert!(
        settings.iter().any(|one| one["name"] == "budget" && one["value"] == "8MiB" && one["source"] == "--budget")
    );
    assert_eq!(figures["job"]["exit_code"], 0);
    assert!(place.path().join("logs/report/report.html").exists());
    // What was added to the directory disturbs nobody.
    let verified = place.counterfoil(&["log", "verify", "logs"]);
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
    place.counterfoil(&["run", "-n", "2", "--log-dir", "logs", "--", "./traffic"]).says(2, "logs of another job");
}

#[test]
fn ranks_that_ended_without_a_word_are_missing_and_one_that_aborts_is_there() {
    if !is_there() {
        return;
    }
    let place = Place::new();
    place.compile_known("traffic");
    let ended = place.counterfoil(&["run", "-n", "3", "--log-dir", "exit", "--", "./traffic", "_exit"]);
    assert_eq!(ended.code, Some(9), "{}", ended.stderr);
    let left = figures(&place, "exit");
    let notes = left["notes"].to_string();
    assert!(notes.contains("exit code 9") && notes.contains("ended without MPI_Finalize"), "{notes}");
    assert_ne!(left["ranks"][1]["source"], "profile");
    let ended = place.counterfoil(&["run", "-n", "3", "--log-dir", "abort", "--", "./traffic", "abort"]);
    assert_eq!(ended.code, Some(7), "{}", ended.stderr);
    let aborted = figures(&place, "abort");
    assert_eq!(aborted["ranks"][1]["ended"], "aborted");
    assert!(aborted["notes"].to_string().contains("rank 1: called MPI_Abort"), "{}", aborted["notes"]);
    let row = aborted["matrix"].as_array().unwrap().iter().find(|row| row["from"] == 1 && row["to"] == 2).unwrap();
    assert_eq!(row["messages"], traffic(1, 2).0);
}

#[test]
fn delays_and_growth_are_known_of_a_job_that_sends_for_a_while() {
    if !is_there() {
        return;
    }
    let place = Place::new();
    place.compile_known("stream");
    let ended =
        place.counterfoil(&["run", "-n", "2", "--log-dir", "logs", "--keep", "acked", "--", "./stream", "100000"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let figures = figures(&place, "logs");
    assert_eq!(figures["matrix"][0]["messages"], 100_000);
    assert!(figures["delays"]["samples"].as_u64().unwrap() > 100, "{}", figures["delays"]);
    assert!(figures["files"].to_string().contains("delays.svg"));
    let profile = std::fs::read(place.path().join("logs/rank-0.profile")).unwrap();
    let profile: Value = serde_json::from_slice(&profile).unwrap();
    let samples = profile["series"]["samples"].as_array().unwrap();
    assert!((4..=513).contains(&samples.len()), "{}", samples.len());
    assert!(samples.is_sorted_by_key(|sample| sample[1].as_u64()), "what was logged only grows");
    assert_eq!(samples.last().unwrap()[1], 100_000);
}
