//! Every workload under every rule, as ranks of an MPI job: the known answer, and no message lost, duplicated or reordered.
//!
//! `cargo xtask mpi -- test` sets the path of `mpirun`.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test's functions may")]

use std::fs;
use std::process::{Command, Output};

use counterfoil_mpi::JobResult;
use counterfoil_mpi::job::{JobSpec, RESULT_FILE, SPEC_FILE};
use counterfoil_runtime::local::JobDirectory;
use counterfoil_runtime::oracle::{judge, read_timelines};
use counterfoil_runtime::{LogTier, RankSettings, Rule};
use counterfoil_workloads::Outcome;

/// Runs a job of `started` ranks; returns the output of mpirun, and the result that rank 0 wrote, if it did.
fn run(
    started: u32,
    settings: RankSettings,
    workload: &str,
    checkpoint_every: Option<u64>,
) -> (Output, Option<JobResult>) {
    let root = tempfile::tempdir().unwrap();
    let job = JobDirectory::create(root.path(), root.path()).unwrap();
    let directory = job.paths().directory();
    let ranks = settings.ranks;
    let spec = JobSpec {
        settings: RankSettings { trace: true, ..settings },
        workload: workload.to_owned(),
        class: "S".to_owned(),
        checkpoint_every,
        store: job.checkpoints().to_owned(),
    };
    fs::write(directory.join(SPEC_FILE), serde_json::to_vec(&spec).unwrap()).unwrap();
    let mpirun = std::env::var_os("COUNTERFOIL_MPIRUN").unwrap_or_else(|| "mpirun".into());
    // A hung launcher ignores SIGTERM.
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "120"]).arg(mpirun).args(["-n", &started.to_string()]);
    command.arg(env!("CARGO_BIN_EXE_counterfoil-mpi-demo")).arg("--job").arg(directory);
    let output = command.output().unwrap();
    let result: Option<JobResult> =
        fs::read(directory.join(RESULT_FILE)).ok().map(|text| serde_json::from_slice(&text).unwrap());
    if result.is_some() {
        let verdict = judge(&read_timelines(&job.paths().traces(), ranks).unwrap());
        assert!(verdict.is_clean() && verdict.sent > 0 && verdict.sent == verdict.delivered, "{verdict:?}");
    }
    (output, result)
}

/// Runs a job that has to succeed; returns its result.
fn run_successfully(settings: RankSettings, workload: &str, checkpoint_every: Option<u64>) -> JobResult {
    let (ranks, rule) = (settings.ranks, settings.rule);
    let (output, result) = run(ranks, settings, workload, checkpoint_every);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{workload} on {ranks} ranks under {rule:?}: {}: {stderr}", output.status);
    let result = result.unwrap();
    assert_eq!(result.outcomes.len(), ranks as usize);
    for outcome in &result.outcomes {
        let outcome: Outcome = postcard::from_bytes(outcome).unwrap();
        assert_ne!(outcome.verified, Some(false), "{workload} on {ranks} ranks under {rule:?}");
    }
    result
}

#[test]
fn every_workload_finds_its_known_answer() {
    for (workload, ranks) in [("cg", 4), ("ring", 3), ("master-worker", 3)] {
        let result = run_successfully(RankSettings::new(ranks), workload, None);
        assert!(result.tally.messages_logged > 0 && result.tally.messages_delivered > 0, "{workload}");
    }
}

#[test]
fn every_tier_takes_checkpoints_and_a_job_may_have_one_rank() {
    for tier in [LogTier::Volatile, LogTier::ProcessCrashSafe, LogTier::NodeLocal] {
        let result = run_successfully(RankSettings { tier, ..RankSettings::new(2) }, "cg", Some(5));
        assert!(result.tally.checkpoints >= 4, "{tier:?}: {:?}", result.tally);
    }
    run_successfully(RankSettings::new(1), "ring", None);
}

#[test]
fn the_send_deterministic_rule_runs_its_recovery_process_on_rank_0() {
    let rule = Rule::SendDeterministic { clusters: 2 };
    let result = run_successfully(RankSettings { rule, ..RankSettings::new(4) }, "cg", Some(4));
    assert!(result.tally.checkpoints > 0 && result.tally.messages_released > 0, "{:?}", result.tally);
}

#[test]
fn a_wrong_number_of_ranks_is_rejected() {
    let (output, result) = run(2, RankSettings::new(3), "ring", None);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && result.is_none());
    assert!(stderr.contains("the job has 3 ranks, and mpirun has started 2"), "{stderr}");
}
