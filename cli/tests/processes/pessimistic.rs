//! Tests of the pessimistic protocol, with the demo and the simulator.

use std::process::Command;

use serde_json::{Value, json};

use crate::program::Sandbox;

/// Runs the demo under the protocol; it must succeed and leave no files.
fn run_demo(arguments: &[&str]) -> Value {
    let sandbox = Sandbox::new();
    let report = sandbox.demo(&[&["--protocol", "pessimistic", "--json"], arguments].concat()).checked_report();
    assert_eq!(sandbox.remaining_jobs(), Vec::<String>::new());
    assert_eq!(report["protocol"], json!("pessimistic"));
    report
}

fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap()
}

#[test]
fn every_workload_recovers_on_all_tiers() {
    for workload in ["cg", "ring", "master-worker"] {
        for tier in ["volatile", "process-crash-safe", "node-local"] {
            for checkpoints in [&[][..], &["--checkpoint-every", "3"]] {
                let kills = ["--workload", workload, "--tier", tier, "--kill", "1@5", "--kill", "0@7"];
                let report = run_demo(&[&kills[..], checkpoints].concat());
                let determinants = &report["determinants"];
                let count = number(determinants, "count");
                assert!(count > 0 && number(determinants, "bytes") == 20 * count, "{report}");
                assert_eq!(report["survivors_undisturbed"], json!(true));
            }
        }
    }
}

#[test]
fn each_delivery_is_recorded_once_and_the_cost_is_reported() {
    let report = run_demo(&["--workload", "master-worker", "--no-kills"]);
    // Without kills, each message is delivered and recorded once.
    assert_eq!(number(&report["determinants"], "count"), number(&report, "messages_delivered"));
    let (times, plain) = (report["overhead"].as_f64().unwrap(), report["plain_wall_ms"].as_f64().unwrap());
    let without_kills = report["reference_wall_ms"].as_f64().unwrap();
    assert!(plain > 0.0 && (times - without_kills / plain).abs() < 0.01, "{report}");
}

#[test]
fn the_plain_protocol_records_no_order_and_reports_no_overhead() {
    let report = Sandbox::new().demo(&["--json", "--no-kills", "--workload", "ring"]).checked_report();
    assert_eq!(report["determinants"], json!({ "count": 0, "bytes": 0 }));
    assert_eq!((&report["overhead"], &report["plain_wall_ms"]), (&Value::Null, &Value::Null));
}

#[test]
fn several_ranks_die_also_during_a_recovery() {
    for more in [
        &["--kill", "1@6", "--kill", "2@6"][..],
        &["--kill", "2@6", "--kill", "1@recovery:2", "--kill", "2@recovery:2"],
        &["--workload", "master-worker", "--kill", "0@6", "--kill", "0@recovery:0", "--kill", "3@recovery:0"],
        &[
            "--workload",
            "ring",
            "--tier",
            "volatile",
            "--kill",
            "0@6",
            "--kill",
            "1@6",
            "--kill",
            "2@6",
            "--kill",
            "3@6",
        ],
        &["--ranks", "1", "--workload", "ring", "--kill", "0@11"],
    ] {
        run_demo(more);
    }
}

#[test]
fn after_a_power_cut_the_order_of_all_messages_is_known() {
    for workload in ["cg", "ring", "master-worker"] {
        let tier = ["--workload", workload, "--tier", "node-local", "--power-cut", "8"];
        let report = run_demo(&[&tier[..], &["--checkpoint-every", "3"]].concat());
        assert_eq!(report["power_cuts"].as_array().unwrap().len(), 1);
        run_demo(&[&tier[..], &["--power-cut", "4", "--kill", "1@10"]].concat());
    }
}

/// Runs `counterfoil simulate --json`; returns exit code and output.
fn simulate(arguments: &[&str]) -> (Option<i32>, Value) {
    let program = env!("CARGO_BIN_EXE_counterfoil");
    let output = Command::new(program).args(["simulate", "--json"]).args(arguments).output().unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn unnamed_programs_fail_under_plain_only() {
    let unnamed = ["--unnamed", "--schedules", "1000", "--seed", "1"];
    let (code, report) = simulate(&[&["--protocol", "pessimistic"], &unnamed[..]].concat());
    assert_eq!((code, number(&report, "violations"), number(&report, "choices")), (Some(0), 0, 0), "{report}");
    assert!(number(&report, "determinants") > 10_000, "{report}");
    let (code, report) = simulate(&[&["--protocol", "sender-based"], &unnamed[..]].concat());
    assert_eq!(code, Some(1));
    assert!(number(&report, "violations") > 0 && number(&report["kinds"], "Diverged") > 0, "{report}");

    // The schedule's line marks its program as unnamed, and runs under the other protocol too.
    let line = report["failure"]["shrunk"]["schedule"].as_str().unwrap();
    assert!(line.contains(" unnamed=1"), "{line}");
    assert_eq!(simulate(&["--protocol", "sender-based", "--replay", line]).0, Some(1));
    assert_eq!(simulate(&["--protocol", "pessimistic", "--replay", line]).0, Some(0));
}

#[test]
fn options_of_other_protocols_are_refused() {
    let (code, error) = simulate(&["--protocol", "send-deterministic", "--unnamed"]);
    assert!(code == Some(2) && error["error"].as_str().unwrap().contains("--unnamed"), "{error}");
    let line = "sim1 pattern=ring ranks=3 rounds=2 program=17 checkpoints=2 ordered=0 tier=volatile mode=uniform seed=5 \
                faults=31:2:9 canary=pessimistic/OrderNotForced";
    let (code, error) = simulate(&["--replay", line]);
    assert!(code == Some(2) && error["error"].as_str().unwrap().contains("--protocol pessimistic"), "{error}");
    let usage = Sandbox::new().demo(&["--protocol", "pessimistic", "--clusters", "2"]);
    assert_eq!(usage.code, Some(2), "{}", usage.stderr);
}
