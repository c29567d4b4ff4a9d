//! Reports on real jobs, compared with figures known from the programs' sources.

use serde_json::{Value, json};

use super::sandbox::{Sandbox, mpi_available};

/// Traffic in `traffic.c`: messages and bytes.
fn traffic(from: u64, to: u64) -> (u64, u64) {
    let (messages, bytes) = if from == to { (2, 24) } else { ((to + 1) * (from + 1), 8 << (to % 8)) };
    (messages, messages * bytes)
}

fn figures(sandbox: &Sandbox, logs: &str) -> Value {
    let output = sandbox.counterfoil(&["report", logs, "--json"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    serde_json::from_str(&output.stdout).unwrap()
}

/// Checks that the traffic matrix has exactly the rows of the known ranks, with the right figures.
#[track_caller]
fn assert_rows(figures: &Value, ranks: u64, known: &[u64]) {
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
fn the_report_of_a_job_has_its_traffic() {
    if !mpi_available() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.compile_known("traffic");
    let output = sandbox.counterfoil(&["run", "-n", "4", "--log-dir", "logs", "--budget", "8MiB", "--", "./traffic"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let figures = figures(&sandbox, "logs");
    assert_rows(&figures, 4, &[0, 1, 2, 3]);
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
    assert!(sandbox.path().join("logs/report/report.html").exists());
    // The report's files don't affect verification.
    let verified = sandbox.counterfoil(&["log", "verify", "logs"]);
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
    sandbox
        .counterfoil(&["run", "-n", "2", "--log-dir", "logs", "--", "./traffic"])
        .assert_exit(2, "logs of another job");
}

#[test]
fn ranks_without_mpi_finalize_have_no_profile_but_aborted_ones_have() {
    if !mpi_available() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.compile_known("traffic");
    let output = sandbox.counterfoil(&["run", "-n", "3", "--log-dir", "exit", "--", "./traffic", "_exit"]);
    assert_eq!(output.code, Some(9), "{}", output.stderr);
    let left = figures(&sandbox, "exit");
    let notes = left["notes"].to_string();
    assert!(notes.contains("exit code 9") && notes.contains("ended without MPI_Finalize"), "{notes}");
    assert_ne!(left["ranks"][1]["source"], "profile");
    let output = sandbox.counterfoil(&["run", "-n", "3", "--log-dir", "abort", "--", "./traffic", "abort"]);
    assert_eq!(output.code, Some(7), "{}", output.stderr);
    let aborted = figures(&sandbox, "abort");
    assert_eq!(aborted["ranks"][1]["ended"], "aborted");
    assert!(aborted["notes"].to_string().contains("rank 1: called MPI_Abort"), "{}", aborted["notes"]);
    let row = aborted["matrix"].as_array().unwrap().iter().find(|row| row["from"] == 1 && row["to"] == 2).unwrap();
    assert_eq!(row["messages"], traffic(1, 2).0);
}

#[test]
fn a_longer_job_has_delays_and_growth() {
    if !mpi_available() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.compile_known("stream");
    let output =
        sandbox.counterfoil(&["run", "-n", "2", "--log-dir", "logs", "--keep", "acked", "--", "./stream", "100000"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let figures = figures(&sandbox, "logs");
    assert_eq!(figures["matrix"][0]["messages"], 100_000);
    assert!(figures["delays"]["samples"].as_u64().unwrap() > 100, "{}", figures["delays"]);
    assert!(figures["files"].to_string().contains("delays.svg"));
    let profile = std::fs::read(sandbox.path().join("logs/rank-0.profile")).unwrap();
    let profile: Value = serde_json::from_slice(&profile).unwrap();
    let samples = profile["series"]["samples"].as_array().unwrap();
    assert!((4..=513).contains(&samples.len()), "{}", samples.len());
    assert!(samples.is_sorted_by_key(|sample| sample[1].as_u64()), "the number of logged messages never decreases");
    assert_eq!(samples.last().unwrap()[1], 100_000);
}
