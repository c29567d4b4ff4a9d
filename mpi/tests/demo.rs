//! MPI jobs under the launcher: every workload under every rule, without failures and with killed ranks.
//!
//! The oracles are the known answers, the traces of all messages, and a failure-free run.
//!
//! `cargo xtask mpi -- test` sets the path to `mpirun`. With an MPI that doesn't survive failures (Open MPI 4), the
//! launcher starts the whole job again after a death.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test's functions may")]

#[path = "support/build.rs"]
mod build;
#[path = "support/mpirun.rs"]
mod mpirun;
#[path = "support/ulfm.rs"]
mod ulfm;

use std::ffi::OsString;
use std::sync::OnceLock;
use std::time::Duration;

use counterfoil_mpi_discovery::environment::LIVES_ON;
use counterfoil_protocols::{
    api::Bits, coordinated, event_logging, message_tagging, on_failure, pessimistic, send_deterministic, sender_based,
    user_level,
};
use counterfoil_runtime::local::{JobOptions, JobReport, LaunchError, Observer, Processes, Progress, launch};
use counterfoil_runtime::oracle::{compare, judge};
use counterfoil_runtime::{RankSettings, Rule, Tier};
use counterfoil_workloads::{Outcome, Program, job_digest};
use mpirun::mpirun;
use rustix::process::{Pid, Signal, kill_process};
use ulfm::{outlives_failures, version};

/// A job and its processes' program.
struct Job {
    settings: RankSettings,
    workload: &'static str,
    checkpoint_every: Option<u64>,
    kills: &'static [&'static str],
    power_cuts: &'static [u64],
    spares: u32,
    first_start: FirstStart,
    start_wait_max: Duration,
    /// `mpirun` is ended even if the test is killed.
    ///
    /// It isn't a child of the launcher then.
    has_limit: bool,
}

/// Behaviour of the process manager at its first start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstStart {
    Starts,
    Fails,
    Hangs,
}

impl Job {
    fn new(workload: &'static str, ranks: u32) -> Job {
        let settings = RankSettings { trace: true, ..RankSettings::new(ranks) };
        Job {
            settings,
            workload,
            checkpoint_every: None,
            kills: &[],
            power_cuts: &[],
            spares: 0,
            first_start: FirstStart::Starts,
            start_wait_max: Duration::from_secs(30),
            has_limit: true,
        }
    }

    fn under(rule: Rule, workload: &'static str, kills: &'static [&'static str]) -> Job {
        let mut job = Job::new(workload, 4);
        job.settings.rule = rule;
        job.checkpoint_every = rule.properties.rolls_back_survivors.then_some(3);
        Job { kills, spares: kills.len() as u32, ..job }
    }

    /// Runs the job with `processes` processes in `mpirun`.
    fn run_with(&self, processes: u32, observer: &mut dyn Observer) -> Result<JobReport, LaunchError> {
        let root = tempfile::Builder::new().prefix("cfm").tempdir_in("/tmp").unwrap();
        // A hung launcher ignores SIGTERM.
        let mut command: Vec<OsString> = Vec::new();
        let first = match self.first_start {
            FirstStart::Starts => None,
            FirstStart::Fails => Some("exit 213"),
            FirstStart::Hangs => Some("exec sleep 1000"),
        };
        if let Some(first) = first {
            let script = format!(r#"mkdir "$0" && {first}; exec "$@""#);
            command.extend(["sh".into(), "-c".into(), script.into(), root.path().join("started").into()]);
        }
        if self.has_limit {
            command.extend(["timeout", "-s", "KILL", "120"].map(OsString::from));
        }
        command.push(mpirun());
        let restarts = self.settings.rule.properties.restarts_job;
        if restarts && !version().contains("HYDRA") {
            command.push("--enable-recovery".into());
        } else if outlives_failures() && !restarts {
            command.extend(["--with-ft", "ulfm", "--mca", "async_mpi_finalize", "1"].map(OsString::from));
        }
        command.extend(["-n".into(), processes.to_string().into(), env!("CARGO_BIN_EXE_counterfoil-mpi-demo").into()]);
        command.extend(["job".into(), "--ranks".into(), self.settings.ranks.to_string().into()]);
        let program = Program {
            workload: self.workload.to_owned(),
            class: "S".to_owned(),
            checkpoint_every: self.checkpoint_every,
        };
        let options = JobOptions {
            processes: Processes::Managed { spares: self.spares, outlive_failures: outlives_failures() && !restarts },
            save_wait_max: Duration::from_secs(3),
            settings: self.settings.clone(),
            program: program.encode().unwrap(),
            shm_root: root.path().to_owned(),
            checkpoint_root: root.path().to_owned(),
            kills: self.kills.iter().map(|kill| kill.parse().unwrap()).collect(),
            power_cuts: self.power_cuts.to_vec(),
            environment: restarts.then(|| (LIVES_ON.0.into(), LIVES_ON.1.into())).into_iter().collect(),
            seed: u64::from(std::process::id()),
            start_wait_max: self.start_wait_max,
            wall_max: Some(Duration::from_secs(100)),
            ..JobOptions::new(command, self.settings.ranks)
        };
        launch(&options, None, observer)
    }

    fn describe(&self) -> String {
        let RankSettings { rule, tier, ranks, .. } = &self.settings;
        format!(
            "{} on {ranks} ranks under {rule:?}, {tier:?}, kills {:?}, seed {}",
            self.workload,
            self.kills,
            std::process::id()
        )
    }

    /// Runs the job, expecting success, and judges its answers and traces.
    #[track_caller]
    fn run(&self) -> JobReport {
        self.run_observed(&mut ())
    }

    /// Same as [`run`](Self::run), with a progress observer.
    #[track_caller]
    fn run_observed(&self, observer: &mut dyn Observer) -> JobReport {
        let spares = if outlives_failures() && !self.settings.rule.properties.restarts_job { self.spares } else { 0 };
        let report = self.run_with(self.settings.ranks + spares, observer);
        let report = report.unwrap_or_else(|error| panic!("{}: {error}", self.describe()));
        for outcome in outcomes(&report) {
            assert_ne!(outcome.verified, Some(false), "{}", self.describe());
        }
        assert!(report.missed.is_empty(), "{}: {:?} never happened", self.describe(), report.missed);
        if self.settings.rule.properties.restarts_job {
            return report;
        }
        let verdict = judge(report.timelines.as_deref().unwrap());
        let is_complete = verdict.sent > 0 && verdict.sent == verdict.delivered;
        assert!(verdict.is_clean() && is_complete, "{}: {verdict:?}", self.describe());
        report
    }

    /// Runs the job with its kills, and compares it with a failure-free run of cg under the plain rule.
    #[track_caller]
    fn run_and_compare(&self) -> JobReport {
        self.observe_and_compare(&mut ())
    }

    /// Same as [`run_and_compare`](Self::run_and_compare), with a progress observer.
    #[track_caller]
    fn observe_and_compare(&self, observer: &mut dyn Observer) -> JobReport {
        static REFERENCE: OnceLock<JobReport> = OnceLock::new();
        let report = self.run_observed(observer);
        let reference = REFERENCE.get_or_init(|| Job::new("cg", 4).run());
        assert_eq!(job_digest(&outcomes(&report)), job_digest(&outcomes(reference)), "{}", self.describe());
        let difference = compare(report.timelines.as_deref().unwrap(), reference.timelines.as_deref().unwrap());
        assert!(difference.is_none(), "{}: {difference:?}", self.describe());
        report
    }
}

fn outcomes(report: &JobReport) -> Vec<Outcome> {
    report.outcomes.iter().map(|outcome| postcard::from_bytes(outcome).unwrap()).collect()
}

#[test]
fn every_workload_finds_its_known_answer() {
    for (workload, ranks) in [("cg", 4), ("ring", 3), ("master-worker", 3)] {
        let tally = Job::new(workload, ranks).run().tally;
        assert!(tally.messages_logged > 0 && tally.messages_delivered > 0, "{workload}");
    }
}

#[test]
fn every_tier_takes_checkpoints_and_a_job_may_have_one_rank() {
    for tier in [Tier::Volatile, Tier::ProcessCrashSafe, Tier::NodeLocal] {
        let mut job = Job { checkpoint_every: Some(5), ..Job::new("cg", 2) };
        job.settings.tier = tier;
        let tally = job.run().tally;
        assert!(tally.checkpoints >= 4, "{tier:?}: {tally:?}");
    }
    Job::new("ring", 1).run();
}

#[test]
fn the_send_deterministic_rule_collects_what_its_recovery_process_allows() {
    let tally = Job::under(send_deterministic::RULE.with_clusters(2), "cg", &[]).run().tally;
    assert!(tally.checkpoints > 0 && tally.messages_released > 0, "{tally:?}");
}

#[test]
fn too_few_processes_are_refused() {
    let error = Job::new("ring", 3).run_with(2, &mut ()).unwrap_err().to_string();
    assert!(error.contains("the job has 3 ranks, and mpirun has started 2"), "{error}");
}

#[test]
fn an_mpirun_that_fails_to_start_is_started_again() {
    for rule in [sender_based::RULE, event_logging::RULE] {
        let report = Job { first_start: FirstStart::Fails, ..Job::under(rule, "ring", &[]) }.run();
        assert_eq!(report.stalls, [], "{rule:?}");
    }
}

#[test]
fn an_mpirun_that_hangs_at_its_start_is_started_again() {
    // A start takes half a second on an idle machine. The coordinator's first orders wait for the ranks.
    let start_wait_max = Duration::from_secs(10);
    let job = Job { first_start: FirstStart::Hangs, start_wait_max, ..Job::under(event_logging::RULE, "ring", &[]) };
    let report = job.run();
    assert!(report.stalls.len() == 1 && report.rolled_back.iter().all(|times| *times == 0), "{report:?}");
}

/// Stops `mpirun`, then kills a rank's first process to begin iteration 3, so that nobody tells the others.
struct KillUntold {
    rank: u32,
    process: Option<Pid>,
    is_done: bool,
}

impl Observer for KillUntold {
    fn handle_progress(&mut self, progress: Progress) {
        match progress {
            Progress::Started { rank, pid, .. } if rank == self.rank => self.process = Pid::from_raw(pid as i32),
            Progress::Iteration { rank, n: 3 } if rank == self.rank && !self.is_done => {
                let rank = self.process.unwrap();
                // Shared memory stays when they are killed, so it has to be in the job's directory.
                let maps = std::fs::read_to_string(format!("/proc/{}/maps", rank.as_raw_nonzero())).unwrap();
                let mut shared = maps.lines().filter(|line| line.contains("_segment.")).peekable();
                assert!(shared.peek().is_some() && shared.all(|line| line.contains("/mpirun/")), "{maps}");
                let status = std::fs::read_to_string(format!("/proc/{}/status", rank.as_raw_nonzero())).unwrap();
                let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
                let mpirun = Pid::from_raw(parent.trim().parse().unwrap()).unwrap();
                kill_process(mpirun, Signal::STOP).unwrap();
                kill_process(rank, Signal::KILL).unwrap();
                self.is_done = true;
            }
            _ => {}
        }
    }
}

#[test]
fn the_job_is_started_again_if_mpi_tells_nobody_of_a_death() {
    for rule in [pessimistic::RULE, message_tagging::RULE] {
        let start_wait_max = Duration::from_secs(10);
        let job = Job { spares: 1, start_wait_max, checkpoint_every: Some(2), ..Job::under(rule, "cg", &[]) };
        let report = job.observe_and_compare(&mut KillUntold { rank: 3, process: None, is_done: false });
        assert!(report.deaths.iter().any(|death| death.rank == 3 && death.planned.is_none()), "{rule:?}");
        // If MPI ends all processes after a death, the launcher doesn't wait for a replacement.
        let stalled: Vec<_> = report.stalls.iter().map(|stall| stall.rank).collect();
        assert_eq!(stalled, if outlives_failures() { vec![Some(3)] } else { vec![] }, "{rule:?}");
    }
}

/// Delays the launcher in a job's first iteration.
struct Late {
    delay: Option<Duration>,
}

impl Observer for Late {
    fn handle_progress(&mut self, progress: Progress) {
        if let Progress::Iteration { .. } = progress {
            self.delay.take().into_iter().for_each(std::thread::sleep);
        }
    }
}

#[test]
fn a_job_that_has_run_for_longer_than_the_wait_for_a_start_is_started_again() {
    let start_wait_max = Duration::from_secs(5);
    let mut job = Job { checkpoint_every: Some(3), start_wait_max, ..Job::under(sender_based::RULE, "cg", &["2@7"]) };
    job.spares = 0;
    // It exits later than its ranks.
    job.has_limit = false;
    let report = job.observe_and_compare(&mut Late { delay: Some(2 * start_wait_max) });
    assert!(report.stalls.is_empty() && report.rolled_back.iter().sum::<u32>() > 0);
    let mut job = Job { kills: &[], power_cuts: &[8], ..job };
    job.settings.tier = Tier::NodeLocal;
    let report = job.observe_and_compare(&mut Late { delay: Some(2 * start_wait_max) });
    assert!(report.stalls.is_empty() && report.power_cuts.len() == 1);
}

/// Killed ranks: alone, rank 0, two at once, one after another, again, during a recovery, during repairs, and in calls.
const KILLS: [&[&str]; 8] = [
    &["2@7"],
    &["0@5"],
    &["1@3", "2@3"],
    &["2@4", "2@8", "1@10"],
    &["2@7", "0@recovery:2"],
    &["2@7", "2@recovery:2"],
    &["2@7", "0@repair:2", "1@repair:0"],
    &["3@2:send", "0@4:receive", "2@6:receive", "1@9:send"],
];

/// Rules with a rollback of all ranks together.
const OF_THE_WHOLE_JOB: [Rule; 3] =
    [coordinated::RULE.with_bits(Bits::Piggybacked), event_logging::RULE, message_tagging::RULE];

fn kill_under(rule: Rule) {
    let mut stalls = Vec::new();
    for kills in KILLS {
        let report = Job::under(rule, "cg", kills).run_and_compare();
        assert_eq!(report.deaths.iter().filter(|death| death.planned.is_some()).count(), kills.len(), "{kills:?}");
        // If Open MPI has lost a process or an agreement, all ranks have gone back.
        let is_undisturbed = outlives_failures() && !rule.properties.rolls_back_survivors && report.stalls.is_empty();
        stalls.extend(report.stalls);
        if is_undisturbed {
            assert!(report.rolled_back.iter().all(|times| *times == 0), "{kills:?}: {:?}", report.rolled_back);
            assert!(report.survivors_undisturbed, "{kills:?}");
        }
    }
    // That was seen once.
    assert!(stalls.len() <= 1, "{stalls:?} in {} jobs", KILLS.len());
}

#[test]
fn killed_ranks_are_replaced_under_the_plain_rule() {
    kill_under(sender_based::RULE);
}

#[test]
fn killed_ranks_are_replaced_under_the_pessimistic_rule() {
    kill_under(pessimistic::RULE);
}

#[test]
fn killed_ranks_are_replaced_under_the_send_deterministic_rule_and_others_go_back_in_place() {
    kill_under(send_deterministic::RULE.with_clusters(1));
    kill_under(send_deterministic::RULE.with_clusters(2));
}

#[test]
fn killed_ranks_are_replaced_under_the_user_level_rule() {
    kill_under(user_level::RULE);
}

#[test]
fn killed_ranks_are_replaced_under_the_rules_of_the_whole_job_and_all_go_back_in_place() {
    kill_under(coordinated::RULE);
    OF_THE_WHOLE_JOB.into_iter().for_each(kill_under);
}

#[test]
fn every_workload_and_tier_survives_a_kill() {
    Job::under(sender_based::RULE, "ring", &["1@3"]).run();
    Job::under(sender_based::RULE, "master-worker", &["0@3", "2@4"]).run();
    Job::under(pessimistic::RULE, "master-worker", &["1@3"]).run();
    for tier in [Tier::Volatile, Tier::NodeLocal] {
        let mut job = Job { checkpoint_every: Some(4), ..Job::under(sender_based::RULE, "cg", &["2@7"]) };
        job.settings.tier = tier;
        job.run_and_compare();
    }
}

#[test]
fn a_rank_that_is_killed_in_a_collective_or_a_checkpoint_is_replaced() {
    for rule in [sender_based::RULE, pessimistic::RULE, send_deterministic::RULE.with_clusters(2)] {
        Job { checkpoint_every: Some(4), ..Job::under(rule, "ring", &["2@9:checkpoint", "0@20:collective"]) }.run();
    }
    // A rank may skip a checkpoint outside any recovery line.
    for rule in OF_THE_WHOLE_JOB.into_iter().chain([user_level::RULE]) {
        Job { checkpoint_every: Some(1), ..Job::under(rule, "ring", &["2@9:checkpoint", "0@20:collective"]) }.run();
    }
}

#[test]
fn after_a_power_cut_the_whole_job_goes_on_from_its_checkpoints() {
    for rule in [sender_based::RULE, send_deterministic::RULE.with_clusters(2)].into_iter().chain(OF_THE_WHOLE_JOB) {
        let mut job = Job { checkpoint_every: Some(3), power_cuts: &[8], ..Job::under(rule, "cg", &[]) };
        job.settings.tier = Tier::NodeLocal;
        let report = job.run_and_compare();
        assert!(report.power_cuts.len() == 1 && report.power_cuts[0].restored.iter().all(Option::is_some), "{rule:?}");
    }
}

#[test]
fn after_a_death_without_a_spare_the_whole_job_goes_on_from_its_checkpoints() {
    let of_ranks = [sender_based::RULE, pessimistic::RULE, user_level::RULE, send_deterministic::RULE.with_clusters(2)];
    for rule in of_ranks.into_iter().chain(OF_THE_WHOLE_JOB) {
        for (kills, spares) in [(&["2@7"][..], 0), (&["2@4", "1@4", "3@9"], 1), (&["0@6", "1@6", "2@6", "3@6"], 0)] {
            let job = Job { checkpoint_every: Some(3), spares, ..Job::under(rule, "cg", kills) };
            let report = job.run_and_compare();
            let all_are_killed = kills.len() == 4;
            assert!(all_are_killed || report.rolled_back.iter().sum::<u32>() > 0, "{rule:?}: {kills:?}");
        }
    }
}

/// Returns a factorisation job; its ranks save when one is lost.
fn factorization(workload: &'static str, kills: &'static [&'static str]) -> Job {
    let mut job = Job { spares: 0, ..Job::under(on_failure::RULE, workload, kills) };
    job.settings.trace = false;
    job
}

#[test]
fn survivors_save_and_exit_and_the_job_is_started_again() {
    // MPICH ends all processes at once, and the program begins anew.
    let saves = !version().contains("HYDRA");
    for (workload, kills, lost) in [
        ("qr", &["2@7"][..], &[2][..]),
        ("qr:2x2:rotating:160x160:16", &["0@5"], &[0]),
        ("qr:2x2:duplicated:160x144:16", &["3@3", "1@8"], &[1]),
        ("qr:1x4:3:160x160:16", &["1@4", "1@recovery:1"], &[1]),
    ] {
        let report = factorization(workload, kills).run();
        let last = report.restarts.last().unwrap();
        if saves {
            assert_eq!((last.from_saved, &last.lost[..]), (true, lost), "{workload}");
            // After a kill in a recovery, its starting state is loaded again, and nothing more is saved.
            assert!(report.restarts[0].bytes > 0 && last.rebuild.is_some(), "{workload}: {:?}", report.restarts);
        }
    }
}

/// Stops a rank, and kills another one.
struct StopOneKillOther {
    processes: [Option<Pid>; 4],
    is_done: bool,
}

impl Observer for StopOneKillOther {
    fn handle_progress(&mut self, progress: Progress) {
        match progress {
            Progress::Started { rank, pid, .. } => self.processes[rank as usize] = Pid::from_raw(pid as i32),
            Progress::Iteration { rank: 3, n: 4 } if !self.is_done => {
                kill_process(self.processes[0].unwrap(), Signal::STOP).unwrap();
                kill_process(self.processes[3].unwrap(), Signal::KILL).unwrap();
                self.is_done = true;
            }
            _ => {}
        }
    }
}

#[test]
fn a_rank_that_does_not_save_in_time_is_lost_as_well() {
    let job = factorization("qr:2x2:rotating:160x160:16", &[]);
    let report = job.run_observed(&mut StopOneKillOther { processes: [None; 4], is_done: false });
    let [restart] = &report.restarts[..] else { panic!("{:?}", report.restarts) };
    assert!(!restart.from_saved || restart.lost == [0, 3], "{restart:?}");
    assert!(restart.save + restart.end >= Duration::from_secs(3) || version().contains("HYDRA"), "{restart:?}");
}

/// The example passes `mpirun` an Open MPI option.
#[test]
fn a_program_without_mpi_gets_its_result_although_ranks_are_killed() {
    if version().contains("HYDRA") {
        return;
    }
    let run = |kills: &[&str]| {
        let mut command = std::process::Command::new("timeout");
        command.args(["-s", "KILL", "100"]).arg(build::built("examples/coordinator")).arg(mpirun()).args(kills);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{kills:?}: {output:?}");
        let line = String::from_utf8(output.stdout).unwrap();
        let (result, lost) = line.trim_end().split_once("; ").unwrap();
        (result.to_owned(), lost.to_owned())
    };
    let (expected, lost) = run(&[]);
    assert_eq!(lost, "started again 0 times, lost []");
    for (kills, lost) in [
        (&["1@20", "2@45"][..], "started again 2 times, lost [[1], [2]]"),
        (&["0@5", "0@recovery:0"], "started again 2 times, lost [[0], [0]]"),
    ] {
        assert_eq!(run(kills), (expected.clone(), lost.to_owned()), "{kills:?}");
    }
}
