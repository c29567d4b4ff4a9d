//! Tests of event logging and message tagging, with the demo.

use serde_json::{Value, json};

use crate::program::Sandbox;

/// Runs the demo under the protocol; it must succeed with the same bytes as the run without kills, and leave no files.
fn run_demo(protocol: &str, arguments: &[&str]) -> Value {
    let sandbox = Sandbox::new();
    let report = sandbox.demo(&[&["--protocol", protocol, "--json"], arguments].concat()).checked_report();
    assert_eq!(sandbox.remaining_jobs(), Vec::<String>::new());
    assert_eq!(report["protocol"], json!(protocol));
    assert_eq!(report["digest_equal"], json!(true));
    report
}

fn go_back_on_all_tiers(protocol: &str) {
    for workload in ["cg", "ring", "master-worker"] {
        for tier in ["volatile", "process-crash-safe", "node-local"] {
            for checkpoints in [&[][..], &["--checkpoint-every", "3"]] {
                let kills = ["--workload", workload, "--tier", tier, "--kill", "1@5", "--kill", "0@7"];
                let report = run_demo(protocol, &[&kills[..], checkpoints].concat());
                let rolled_back = report["rolled_back"].as_array().unwrap();
                // The ranks that weren't killed.
                assert!(rolled_back[2..].iter().all(|count| count.as_u64() > Some(0)), "{report}");
                assert_eq!(report["messages_kept"], json!(0), "{report}");
            }
        }
    }
}

#[test]
fn all_ranks_go_back_on_all_tiers_with_event_logging() {
    go_back_on_all_tiers("event-logging");
}

#[test]
fn all_ranks_go_back_on_all_tiers_with_message_tagging() {
    go_back_on_all_tiers("message-tagging");
}

#[test]
fn ranks_die_in_a_recovery_and_in_a_checkpoint() {
    for kills in [
        &["--kill", "2@6", "--kill", "1@recovery:2", "--kill", "2@recovery:2"][..],
        &["--kill", "1@6", "--kill", "2@6", "--workload", "master-worker"],
        &["--kill", "1@6:checkpoint", "--checkpoint-every", "2", "--workload", "ring"],
    ] {
        run_demo("event-logging", kills);
        run_demo("message-tagging", kills);
    }
}

#[test]
fn checkpoints_by_interval_are_few_and_suffice() {
    for protocol in ["event-logging", "message-tagging", "coordinated", "sender-based"] {
        // A failure in an hour: after the first checkpoint none is due.
        let arguments = ["--workload", "laplace", "--kill", "1@30", "--mtbf", "3600"];
        let report = run_demo(protocol, &arguments);
        let checkpoints = report["checkpoints"].as_u64().unwrap();
        // Each process takes one, after a recovery too; coordinated, one more before the cost is known.
        assert!((4..=16).contains(&checkpoints), "{report}");
        assert!(report["checkpoint_ms"].as_f64() > Some(0.0), "{report}");
        // Failures faster than checkpoints: all are due.
        let report = run_demo(protocol, &["--workload", "laplace", "--kill", "1@30", "--mtbf", "0.000001"]);
        assert!(report["checkpoints"].as_u64().unwrap() > 20, "{report}");
    }
}

/// Lines are committed all the time, also where each iteration has a collective, and where each rank has its own clock:
/// a late kill takes the job back to a late line.
#[test]
fn the_newest_lines_are_committed_in_programs_with_collectives() {
    for protocol in ["event-logging", "message-tagging"] {
        for workload in ["neurons", "gauss"] {
            for (interval, least) in [(["--checkpoint-every", "2"], 20), (["--mtbf", "0.001"], 10)] {
                let arguments = ["--workload", workload, "--class", "W", "--kill", "1@150", "--seed", "3"];
                let report = run_demo(protocol, &[&arguments[..], &interval].concat());
                let line = report["lines"][0].as_u64().unwrap();
                assert!(line >= least, "{protocol} {workload} {interval:?}: back to line {line}; {report}");
            }
        }
    }
}

/// A record saved with a checkpoint was still on disk after it and its successor had been transmitted and released.
#[test]
fn a_replay_begins_after_what_was_transmitted() {
    let arguments = [
        "--workload",
        "ring",
        "--ranks",
        "3",
        "--tier",
        "node-local",
        "--checkpoint-every",
        "4",
        "--kill",
        "1@29",
        "--kill",
        "1@30",
        "--seed",
        "1698226198",
    ];
    run_demo("event-logging", &arguments);
}
