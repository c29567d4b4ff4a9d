//! Tests of the user-level protocol, with the demo and the simulator.

use std::process::Command;

use serde_json::{Value, json};

use crate::program::Sandbox;

/// Runs the demo under the protocol; it must succeed and leave no files.
fn run_demo(arguments: &[&str]) -> Value {
    let sandbox = Sandbox::new();
    let report = sandbox.demo(&[&["--protocol", "user-level", "--json"], arguments].concat()).checked_report();
    assert_eq!(sandbox.remaining_jobs(), Vec::<String>::new());
    assert_eq!((&report["protocol"], &report["survivors_undisturbed"]), (&json!("user-level"), &json!(true)));
    report
}

fn number(report: &Value, name: &str) -> u64 {
    report["collectives"][name].as_u64().unwrap()
}

#[test]
fn every_workload_recovers_on_all_tiers() {
    for workload in ["cg", "ring", "master-worker"] {
        for tier in ["volatile", "process-crash-safe", "node-local"] {
            for checkpoints in [&[][..], &["--checkpoint-every", "3"]] {
                let kills = ["--workload", workload, "--tier", tier, "--kill", "1@5", "--kill", "0@7"];
                let report = run_demo(&[&kills[..], checkpoints].concat());
                // CG exchanges its sums by point-to-point messages.
                assert_eq!(number(&report, "completed") > 0, workload != "cg", "{report}");
            }
        }
    }
}

/// The ring ends with an allgather: the dead rank completes it again, with the others' results or with their
/// contributions.
#[test]
fn a_rank_dies_in_a_collective() {
    for tier in ["volatile", "process-crash-safe", "node-local"] {
        for rank in ["0", "3"] {
            let kill = format!("{rank}@9:collective");
            let report = run_demo(&["--workload", "ring", "--tier", tier, "--kill", &kill]);
            assert!(number(&report, "completed") >= 4, "{report}");
        }
    }
}

#[test]
fn all_ranks_die_also_during_a_recovery() {
    let at_once = ["--kill", "0@6", "--kill", "1@6", "--kill", "2@6", "--kill", "3@6"];
    run_demo(&[&["--workload", "ring", "--tier", "volatile"], &at_once[..]].concat());
    run_demo(&["--workload", "master-worker", "--kill", "0@6", "--kill", "0@recovery:0", "--kill", "3@recovery:0"]);
    run_demo(&["--workload", "ring", "--tier", "node-local", "--power-cut", "8", "--checkpoint-every", "3"]);
}

#[test]
fn the_simulator_runs_collective_calls_under_this_protocol() {
    let simulate = |arguments: &[&str]| {
        let program = env!("CARGO_BIN_EXE_counterfoil");
        let output = Command::new(program).args(["simulate", "--json"]).args(arguments).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), report)
    };
    let calls = ["--protocol", "user-level", "--pattern", "calls", "--schedules", "300", "--seed", "1"];
    let (code, report) = simulate(&calls);
    assert_eq!((code, &report["violations"]), (Some(0), &json!(0)), "{report}");
    for counter in ["calls_recorded", "calls_skipped", "entries_sent", "calls_straddled_from_root", "overtaken"] {
        assert!(report[counter].as_u64().unwrap() > 0, "{counter}: {report}");
    }
    let line = "sim1 pattern=calls ranks=3 rounds=2 program=17 checkpoints=2 ordered=0 tier=volatile mode=uniform seed=5 faults=31:2:9";
    assert_eq!(simulate(&["--protocol", "user-level", "--replay", line]).0, Some(0));
}
