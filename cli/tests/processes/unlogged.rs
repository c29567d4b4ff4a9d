//! Tests of jobs without a log, and the benchmark comparing the rules with it.

use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::program::{Sandbox, send};

#[test]
fn a_job_without_a_log_is_right_while_nobody_dies() {
    for workload in ["cg", "ft", "gauss", "master-worker"] {
        let sandbox = Sandbox::new();
        let arguments = ["--protocol", "unlogged", "--no-kills", "--checkpoint-every", "3", "--workload", workload];
        let report = sandbox.demo(&[&arguments[..], &["--json"]].concat()).checked_report();
        assert_eq!((&report["checkpoints"], &report["messages_kept"]), (&0.into(), &0.into()), "{report}");
        assert_eq!(sandbox.remaining_jobs(), Vec::<String>::new());
    }
}

#[test]
fn a_rank_that_dies_without_a_log_ends_the_job_with_the_reason() {
    let sandbox = Sandbox::new();
    let demo = sandbox.start(&["--protocol", "unlogged", "--no-kills", "--class", "A"]);
    let ranks = demo.freeze(&sandbox, 4);
    send(ranks[2], Signal::KILL);
    demo.signal(Signal::CONT);
    let output = demo.wait();
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("has died, and nothing was kept of what was sent to it"), "{}", output.stderr);
    assert_eq!(sandbox.remaining_jobs(), Vec::<String>::new());
}

#[test]
fn the_benchmark_of_the_rules_has_a_row_for_each_program_and_rule() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    let output = command.args(["bench", "rules", "--quick", "--rounds", "1", "--json"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows.len(), 3 * 11);
    assert!(rows.iter().all(|row| row["ratio"].as_f64() > Some(0.0) && row["ms"].as_f64() > Some(0.0)), "{rows:?}");
}
