//! Cost of the rules: a workload on plain MPI and under each rule in turn, inside one job.
//!
//! `cargo xtask mpi -- test` sets the path to `mpirun`.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test's functions may")]

#[path = "support/mpirun.rs"]
mod mpirun;

use std::process::Command;

use counterfoil_protocols::{
    api::Bits, coordinated, event_logging, message_tagging, pessimistic, send_deterministic, sender_based, user_level,
};
use counterfoil_runtime::{Rule, Tier};
use counterfoil_workloads::costs::{Call, Measured, Mode, Plan, Program, Subject};
use mpirun::mpirun;

/// Runs the measurement; returns rank 0's output.
fn measure(ranks: u32, plan: &Plan) -> Vec<serde_json::Value> {
    // A hung launcher ignores SIGTERM.
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "120"]).arg(mpirun()).args(["-n", &ranks.to_string()]);
    command.arg(env!("CARGO_BIN_EXE_counterfoil-mpi-demo")).args(["costs", &serde_json::to_string(plan).unwrap()]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn workload(name: &str) -> Program {
    Program::Workload { name: name.to_owned(), class: "S".to_owned() }
}

const RULES: [Rule; 8] = [
    sender_based::RULE,
    pessimistic::RULE,
    send_deterministic::RULE.with_clusters(1),
    send_deterministic::RULE.with_clusters(2),
    user_level::RULE,
    coordinated::RULE.with_bits(Bits::Piggybacked),
    event_logging::RULE,
    message_tagging::RULE,
];

#[test]
fn every_rule_has_a_ratio_for_each_round() {
    let without = || [None].into_iter().chain(RULES.map(|rule| Some(rule.into())));
    let with = RULES.map(|rule| Some(Mode { rule, checkpoint_every: Some(4) }));
    for (program, rounds, tier) in [
        (workload("cg"), 1, Tier::ProcessCrashSafe),
        (workload("ring"), 1, Tier::Volatile),
        (workload("cg"), 2, Tier::NodeLocal),
    ] {
        let subject = Subject { program, modes: without().chain(with).collect() };
        let plan = Plan { subjects: vec![subject], rounds, tier };
        let lines = measure(2, &plan);
        assert_eq!(lines.iter().filter(|line| line["round"].is_number()).count() as u32, rounds);
        let mut measured: Vec<Vec<Measured>> =
            serde_json::from_value(lines.last().unwrap()["measured"].clone()).unwrap();
        let measured = measured.remove(0);
        assert_eq!(measured.iter().map(|of| of.mode).collect::<Vec<_>>(), plan.subjects[0].modes);
        for of in measured {
            assert_eq!((of.seconds.len() as u32, of.ratios.len() as u32), (rounds, rounds), "{of:?}");
            assert!(of.seconds.iter().chain(&of.ratios).all(|value| *value > 0.0), "{of:?}");
        }
    }
}

#[test]
fn a_workload_with_wildcards_finds_its_answer_on_plain_mpi() {
    let subject = Subject { program: workload("master-worker"), modes: vec![None, Some(pessimistic::RULE.into())] };
    let plan = Plan { subjects: vec![subject], rounds: 1, tier: Tier::ProcessCrashSafe };
    assert_eq!(measure(3, &plan).len(), 2);
}

#[test]
fn calls_of_each_kind_have_right_results_under_every_rule() {
    let calls = |call, bytes| Program::Calls { call, bytes, calls: 20 };
    let modes: Vec<_> = RULES.map(|rule| Some(rule.into())).into();
    let programs = [calls(Call::Allreduce, 8), calls(Call::Reduce, 4096), calls(Call::Bcast, 1 << 19)];
    let subjects = programs.map(|program| Subject { program, modes: modes.clone() }).into();
    let lines = measure(3, &Plan { subjects, rounds: 1, tier: Tier::ProcessCrashSafe });
    let rounds: Vec<u64> = lines.iter().filter_map(|line| line["round"].as_u64()).collect();
    assert_eq!(rounds, [0, 1, 2]);
    assert_eq!(lines.last().unwrap()["measured"].as_array().unwrap().len(), 3);
}
