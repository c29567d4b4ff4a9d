//! The pessimistic rule from the command line: real processes and real kills, and the simulator.

use std::process::Command;

use serde_json::{Value, json};

use crate::program::Place;

/// Runs the demo under the rule, which has to go well and to leave nothing.
fn good(arguments: &[&str]) -> Value {
    let place = Place::new();
    let report = place.demo(&[&["--protocol", "pessimistic", "--json"], arguments].concat()).right_report();
    assert_eq!(place.left_behind(), Vec::<String>::new());
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
                let report = good(&[&kills[..], checkpoints].concat());
                let determinants = &report["determinants"];
                let count = number(determinants, "count");
                assert!(count > 0 && number(determinants, "bytes") == 20 * count, "{report}");
                assert_eq!(report["survivors_undisturbed"], json!(true));
            }
        }
    }
}

#[test]
fn each_delivery_is_recorded_once_and_the_cost_is_said() {
    let report = good(&["--workload", "master-worker", "--no-kills"]);
    // Nobody was killed, so each message was delivered once, and recorded once.
    assert_eq!(number(&report["determinants"], "count"), number(&report, "messages_delivered"));
    let (times, plain) = (report["overhead"].as_f64().unwrap(), report["plain_wall_ms"].as_f64().unwrap());
    let without_kills = report["reference_wall_ms"].as_f64().unwrap();
    assert!(plain > 0.0 && (times - without_kills / plain).abs() < 0.01, "{report}");
}

#[test]
fn the_plain_rule_records_no_order_and_is_compared_with_nothing() {
    let report = Place::new().demo(&["--json", "--no-kills", "--workload", "ring"]).right_report();
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
        good(more);
    }
}

#[test]
fn a_power_cut_leaves_no_message_whose_place_in_the_order_is_forgotten() {
    for workload in ["cg", "ring", "master-worker"] {
        let tier = ["--workload", workload, "--tier", "node-local", "--power-cut", "8"];
        let report = good(&[&tier[..], &["--checkpoint-every", "3"]].concat());
        assert_eq!(report["power_cuts"].as_array().unwrap().len(), 1);
        good(&[&tier[..], &["--power-cut", "4", "--kill", "1@10"]].concat());
    }
}

/// What `counterfoil simulate` prints as JSON, and how it exits.
fn simulate(arguments: &[&str]) -> (Option<i32>, Value) {
    let program = env!("CARGO_BIN_EXE_counterfoil");
    let ended = Command::new(program).args(["simulate", "--json"]).args(arguments).output().unwrap();
    (ended.status.code(), serde_json::from_slice(&ended.stdout).unwrap())
}

#[test]
fn programs_that_name_nothing_fail_under_the_plain_rule_and_not_under_this_one() {
    let unnamed = ["--unnamed", "--schedules", "1000", "--seed", "1"];
    let (code, report) = simulate(&[&["--protocol", "pessimistic"], &unnamed[..]].concat());
    assert_eq!((code, number(&report, "violations"), number(&report, "choices")), (Some(0), 0, 0), "{report}");
    assert!(number(&report, "determinants") > 10_000, "{report}");
    let (code, report) = simulate(&[&["--protocol", "plain"], &unnamed[..]].concat());
    assert_eq!(code, Some(1));
    assert!(number(&report, "violations") > 0 && number(&report["kinds"], "Diverged") > 0, "{report}");

    // The line that it prints says what kind of program it is, and runs under the other rule.
    let line = report["failure"]["shrunk"]["schedule"].as_str().unwrap();
    assert!(line.contains(" unnamed=1"), "{line}");
    assert_eq!(simulate(&["--protocol", "plain", "--replay", line]).0, Some(1));
    assert_eq!(simulate(&["--protocol", "pessimistic", "--replay", line]).0, Some(0));
}

#[test]
fn what_makes_no_sense_under_another_rule_is_refused() {
    let (code, error) = simulate(&["--protocol", "send-deterministic", "--unnamed"]);
    assert!(code == Some(2) && error["error"].as_str().unwrap().contains("--unnamed"), "{error}");
    let line = "sim1 pattern=ring ranks=3 rounds=2 program=17 checkpoints=2 ordered=0 tier=volatile mode=uniform seed=5 \
                faults=31:2:9 canary=pessimistic/OrderNotForced";
    let (code, error) = simulate(&["--replay", line]);
    assert!(code == Some(2) && error["error"].as_str().unwrap().contains("--protocol pessimistic"), "{error}");
    let usage = Place::new().demo(&["--protocol", "pessimistic", "--clusters", "2"]);
    assert_eq!(usage.code, Some(2), "{}", usage.stderr);
}
