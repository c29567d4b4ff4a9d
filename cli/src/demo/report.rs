//! The demo's summary, for people and as JSON.

mod text;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use counterfoil_runtime::local::{DeathReport, JobOptions, JobReport, Kill, KillPoint, RecoveryTimes};
use counterfoil_runtime::oracle::{Verdict, compare, judge};
use counterfoil_runtime::{LogTier, Rule, Tally};
use counterfoil_workloads::{Outcome, Value, Workload, job_digest};
use serde::Serialize;

/// All that the demo found out.
#[derive(Debug, Serialize)]
pub(super) struct DemoReport {
    ranks: u32,
    workload: String,
    class: String,
    tier: &'static str,
    protocol: &'static str,
    /// `null` where the protocol has none.
    clusters: Option<u32>,
    seed: u64,
    /// The MPI over which it ran; `null` for processes of this machine without one.
    pub(super) mpi: Option<String>,
    /// Whether the answer is the known one; `null` if none is known.
    verified: Option<bool>,
    value: String,
    digest: String,
    /// Whether every rank ended with the same bytes as in the run without kills.
    digest_equal: bool,
    /// Whether every rank sent and received the same, event by event; `null` where that depends on timing.
    same_events: Option<bool>,
    kills: Vec<KillReport>,
    /// Power cuts: all ranks killed at once, memory discarded.
    power_cuts: Vec<PowerCut>,
    /// Kills that were asked for and did not happen.
    kills_missed: Vec<String>,
    /// Power cuts that were asked for and did not happen: their iterations.
    power_cuts_missed: Vec<u64>,
    recovered: bool,
    /// Ranks that were neither killed nor taken back.
    survivors: u32,
    survivors_undisturbed: bool,
    /// For each rank, how often it went back though nobody had killed it.
    rolled_back: Vec<u32>,
    /// Of the acknowledged messages, what the protocol keeps for recoveries, and what it has released.
    messages_kept: u64,
    messages_released: u64,
    messages_logged: u64,
    bytes_logged: u64,
    messages_replayed: u64,
    duplicates_dropped: u64,
    sends_repeated: u64,
    choices_logged: u64,
    /// Deliveries that were recorded; none but under `pessimistic`.
    determinants: Determinants,
    checkpoints: u64,
    /// Ranks whose log was full and has stopped keeping messages.
    logging_stopped: u64,
    // From the traces alone.
    messages_sent: u64,
    messages_delivered: u64,
    lost: u64,
    duplicated: u64,
    reordered: u64,
    altered: u64,
    diverged: u64,
    /// The slowest recovery.
    recovery_ms: RecoveryMs,
    wall_ms: f64,
    reference_wall_ms: f64,
    /// With `pessimistic`: the time of the job without kills under `sender-based`, and how many times that the run without
    /// kills took.
    plain_wall_ms: Option<f64>,
    overhead: Option<f64>,
    /// Where the ranks' stores were kept; `null` if they were removed.
    files: Option<PathBuf>,
}

/// How many there are, and their bytes without what the log puts around each. What a killed process had recorded since it was last
/// heard of is not counted.
#[derive(Clone, Copy, Debug, Serialize)]
struct Determinants {
    count: u64,
    bytes: u64,
}

/// The runs that a report is about.
#[derive(Clone, Copy)]
pub(super) struct Runs<'a> {
    /// With kills.
    pub(super) run: &'a JobReport,
    /// Without.
    pub(super) reference: &'a JobReport,
    /// Without kills and under the plain rule, where that is what the protocol is compared with.
    pub(super) plain: Option<&'a JobReport>,
}

#[derive(Debug, Serialize)]
struct PowerCut {
    iteration: u64,
    /// For each rank the epoch of the checkpoint that it went on from; `null` if it began anew.
    restored: Vec<Option<u32>>,
}

#[derive(Debug, Serialize)]
struct KillReport {
    rank: u32,
    iteration: u64,
    incarnation: u32,
    pid: u32,
    signal: i32,
    /// What was asked for; `null` if somebody else killed it.
    planned: Option<String>,
    at_ms: f64,
    between_first_and_last_message: Option<bool>,
    recovery_ms: RecoveryMs,
}

/// Milliseconds, each from the end of the one before; `null` where it was killed again before.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct RecoveryMs {
    detect: Option<f64>,
    start: Option<f64>,
    replay: Option<f64>,
    catch_up: Option<f64>,
}

impl From<RecoveryTimes> for RecoveryMs {
    fn from(times: RecoveryTimes) -> RecoveryMs {
        RecoveryMs {
            detect: times.detect.map(ms),
            start: times.start.map(ms),
            replay: times.replay.map(ms),
            catch_up: times.catch_up.map(ms),
        }
    }
}

/// Milliseconds, to the microsecond.
fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// To three digits behind the point.
fn ratio(one: Duration, other: Duration) -> f64 {
    (one.as_secs_f64() / other.as_secs_f64().max(f64::MIN_POSITIVE) * 1e3).round() / 1e3
}

impl From<&DeathReport> for KillReport {
    fn from(death: &DeathReport) -> KillReport {
        KillReport {
            rank: death.rank,
            iteration: death.iteration,
            incarnation: death.incarnation,
            pid: death.pid,
            signal: death.signal,
            planned: death.planned.map(|kill| kill.to_string()),
            at_ms: ms(death.at),
            between_first_and_last_message: death.between_first_and_last_message,
            recovery_ms: death.recovery.into(),
        }
    }
}

/// How many ranks there are, in words.
pub(super) fn counted(ranks: u32) -> String {
    if ranks == 1 { "1 rank".to_owned() } else { format!("{ranks} ranks") }
}

impl DemoReport {
    /// Judges a run against the one without kills.
    pub(super) fn new(
        job: &JobOptions,
        workload: &dyn Workload,
        Runs { run, reference, plain }: Runs<'_>,
        seed: u64,
    ) -> Result<DemoReport, postcard::Error> {
        let (outcomes, expected) = (outcomes(run)?, outcomes(reference)?);
        let timelines = run.timelines.as_deref().unwrap_or_default();
        let verdict: Verdict = judge(timelines);
        let same_events = workload
            .deterministic()
            .then(|| compare(timelines, reference.timelines.as_deref().unwrap_or_default()).is_none());
        let Tally { messages_logged, bytes_logged, messages_replayed, duplicates_dropped, .. } = run.tally;
        let Tally { sends_repeated, choices_logged, checkpoints, logging_stopped, .. } = run.tally;
        let Tally { messages_kept, messages_released, determinants_logged, determinant_bytes, .. } = run.tally;
        let digest = job_digest(&outcomes);
        Ok(DemoReport {
            ranks: job.settings.ranks,
            workload: workload.name().to_owned(),
            class: workload.class().to_string(),
            tier: match job.settings.tier {
                LogTier::Volatile => "volatile",
                LogTier::ProcessCrashSafe => "process-crash-safe",
                LogTier::NodeLocal => "node-local",
            },
            protocol: match job.settings.rule {
                Rule::SenderBased => "sender-based",
                Rule::Pessimistic => "pessimistic",
                Rule::SendDeterministic { .. } => "send-deterministic",
            },
            clusters: match job.settings.rule {
                Rule::SenderBased | Rule::Pessimistic => None,
                Rule::SendDeterministic { clusters } => Some(clusters),
            },
            seed,
            mpi: None,
            verified: verified(&outcomes),
            value: outcomes.first().map(|outcome| value(&outcome.value)).unwrap_or_default(),
            digest: format!("{digest:016x}"),
            digest_equal: digest == job_digest(&expected),
            same_events,
            kills: run.deaths.iter().map(KillReport::from).collect(),
            power_cuts: run
                .power_cuts
                .iter()
                .map(|cut| PowerCut { iteration: cut.iteration, restored: cut.restored.clone() })
                .collect(),
            kills_missed: run.missed.iter().filter(|kill| power_cut(kill).is_none()).map(Kill::to_string).collect(),
            power_cuts_missed: run.missed.iter().filter_map(power_cut).collect(),
            recovered: recovered(&run.deaths),
            survivors: survivors(run),
            survivors_undisturbed: run.survivors_undisturbed,
            rolled_back: run.rolled_back.clone(),
            messages_kept,
            messages_released,
            messages_logged,
            bytes_logged,
            messages_replayed,
            duplicates_dropped,
            sends_repeated,
            choices_logged,
            determinants: Determinants { count: determinants_logged, bytes: determinant_bytes },
            checkpoints,
            logging_stopped,
            messages_sent: verdict.sent,
            messages_delivered: verdict.delivered,
            lost: verdict.lost,
            duplicated: verdict.duplicated,
            reordered: verdict.reordered,
            altered: verdict.altered,
            diverged: verdict.diverged,
            recovery_ms: slowest(&run.deaths).into(),
            wall_ms: ms(run.wall),
            reference_wall_ms: ms(reference.wall),
            plain_wall_ms: plain.map(|plain| ms(plain.wall)),
            overhead: plain.map(|plain| ratio(reference.wall, plain.wall)),
            files: job.keep_stores.clone(),
        })
    }

    /// What was promised and not kept; empty if all is well.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self
            .kills_missed
            .iter()
            .map(|kill| {
                format!("kill {kill} never happened: the run doesn't come there, or the rank was restarted behind it")
            })
            .collect();
        problems.extend(self.power_cuts_missed.iter().map(|n| {
            format!("the power cut in iteration {n} never happened: rank 0 didn't come there, or went on behind it")
        }));
        let mut check = |good: bool, problem: &str| {
            if !good {
                problems.push(problem.to_owned());
            }
        };
        check(self.verified != Some(false), "the answer is not the known one");
        check(self.digest_equal, "the result differs from that of the run without kills");
        check(
            self.same_events != Some(false),
            "the ranks sent or received something else than in the run without kills",
        );
        check(self.recovered, "a killed rank did not come back to where it was");
        check(self.survivors_undisturbed, "a rank that was not killed went back");
        for (count, what) in [
            (self.lost, "lost"),
            (self.duplicated, "delivered twice"),
            (self.reordered, "delivered out of order"),
            (self.altered, "altered"),
        ] {
            check(count == 0, &format!("{count} messages were {what}"));
        }
        check(self.diverged == 0, "a re-execution did something else than the process before it");
        problems
    }

    pub(super) fn to_json(&self) -> String {
        // Numbers, texts and lists of them: nothing that cannot be written.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

fn outcomes(report: &JobReport) -> Result<Vec<Outcome>, postcard::Error> {
    report.outcomes.iter().map(|bytes| postcard::from_bytes(bytes)).collect()
}

fn value(value: &Value) -> String {
    value.to_string()
}

/// One rank that has a wrong answer spoils it; `None` if no rank knows the answer.
fn verified(outcomes: &[Outcome]) -> Option<bool> {
    let known: Vec<bool> = outcomes.iter().filter_map(|outcome| outcome.verified).collect();
    (!known.is_empty()).then(|| known.iter().all(|verified| *verified))
}

/// The iteration of a power cut.
fn power_cut(kill: &Kill) -> Option<u64> {
    match kill.at {
        KillPoint::PowerCut(n) => Some(n),
        _ => None,
    }
}

/// How many ranks were never killed, and never taken back either.
fn survivors(run: &JobReport) -> u32 {
    let killed: BTreeSet<u32> = run.deaths.iter().map(|death| death.rank).collect();
    let stayed = (0..).zip(&run.rolled_back).filter(|(rank, times)| **times == 0 && !killed.contains(rank));
    stayed.count() as u32
}

/// The last death of each rank must have been recovered from.
fn recovered(deaths: &[DeathReport]) -> bool {
    deaths.iter().enumerate().all(|(index, death)| {
        let died_again = deaths[index + 1..].iter().any(|later| later.rank == death.rank);
        died_again || death.recovery.catch_up.is_some()
    })
}

fn slowest(deaths: &[DeathReport]) -> RecoveryTimes {
    let total = |times: &RecoveryTimes| -> Duration {
        [times.detect, times.start, times.replay, times.catch_up].into_iter().flatten().sum()
    };
    let whole = deaths.iter().map(|death| death.recovery).filter(|times| times.catch_up.is_some());
    whole.max_by_key(total).unwrap_or_default()
}
