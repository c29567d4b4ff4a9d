//! What the rules cost: a workload on plain MPI and under each rule in turn, inside one job.
//!
//! `cargo xtask mpi -- test` sets the path of `mpirun`.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test's functions may")]

#[path = "support/mpirun.rs"]
mod mpirun;

use std::process::Command;

use counterfoil_runtime::{LogTier, Rule};
use counterfoil_workloads::costs::{Measured, Plan};
use mpirun::mpirun;

/// Runs the measurement; returns what rank 0 has printed.
fn measure(ranks: u32, plan: &Plan) -> Vec<serde_json::Value> {
    // A hung launcher ignores SIGTERM.
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "120"]).arg(mpirun()).args(["-n", &ranks.to_string()]);
    command.arg(env!("CARGO_BIN_EXE_counterfoil-mpi-demo")).args(["costs", &serde_json::to_string(plan).unwrap()]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_rule_has_a_ratio_for_each_round() {
    let rules = vec![
        None,
        Some(Rule::SenderBased),
        Some(Rule::Pessimistic),
        Some(Rule::SendDeterministic { clusters: 1 }),
        Some(Rule::SendDeterministic { clusters: 2 }),
        Some(Rule::UserLevel),
        Some(Rule::Coordinated { piggybacked: true }),
        Some(Rule::EventLogging),
        Some(Rule::MessageTagging),
    ];
    for (workload, rounds, tier) in
        [("cg", 1, LogTier::ProcessCrashSafe), ("ring", 1, LogTier::Volatile), ("cg", 2, LogTier::NodeLocal)]
    {
        let rules = rules.clone();
        let plan = Plan { workload: workload.to_owned(), class: "S".to_owned(), rounds, tier, rules };
        let lines = measure(2, &plan);
        assert_eq!(lines.iter().filter(|line| line["round"].is_number()).count() as u32, rounds);
        let measured: Vec<Measured> = serde_json::from_value(lines.last().unwrap()["measured"].clone()).unwrap();
        assert_eq!(measured.iter().map(|of| of.rule).collect::<Vec<_>>(), plan.rules);
        for of in measured {
            assert_eq!((of.seconds.len() as u32, of.ratios.len() as u32), (rounds, rounds), "{of:?}");
            assert!(of.seconds.iter().chain(&of.ratios).all(|value| *value > 0.0), "{of:?}");
        }
    }
}

#[test]
fn a_workload_with_wildcards_finds_its_answer_on_plain_mpi() {
    let plan = Plan {
        workload: "master-worker".to_owned(),
        class: "S".to_owned(),
        rounds: 1,
        tier: LogTier::ProcessCrashSafe,
        rules: vec![None, Some(Rule::Pessimistic)],
    };
    assert_eq!(measure(3, &plan).len(), 2);
}
