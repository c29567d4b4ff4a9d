//! Demo result, as text and as JSON.

mod text;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use counterfoil_protocols::api::{Kept, Properties, RuleOption};
use counterfoil_runtime::Tally;
use counterfoil_runtime::local::{
    DeathReport, JobOptions, JobReport, Kill, KillPoint, RecoveryTimes, RestartReport, StallReport,
};
use counterfoil_runtime::oracle::{Verdict, compare, judge};
use counterfoil_workloads::{Outcome, Value, Workload, job_digest};
use serde::Serialize;

/// Results of all runs in a demo.
#[derive(Debug, Serialize)]
pub(super) struct DemoReport {
    ranks: u32,
    workload: String,
    class: String,
    tier: &'static str,
    protocol: &'static str,
    /// Number of clusters; `null` for protocols without clusters.
    clusters: Option<u32>,
    seed: u64,
    /// MPI used; `null` for local processes.
    pub(super) mpi: Option<String>,
    /// True if the answer is the known one; `null` if none is known.
    verified: Option<bool>,
    value: String,
    digest: String,
    /// True if every rank's final state equals that of the run without kills, byte for byte; `null` for protocols where
    /// the program rebuilds lost states, since rounding may differ then.
    digest_equal: Option<bool>,
    /// True if every rank's sequence of sends and deliveries equals that of the run without kills; `null` if it depends
    /// on timing.
    same_events: Option<bool>,
    kills: Vec<KillReport>,
    /// Power cuts: all ranks killed at once, their memory discarded.
    power_cuts: Vec<PowerCut>,
    /// Requested kills missed by the run.
    kills_missed: Vec<String>,
    /// Iterations of requested power cuts missed by the run.
    power_cuts_missed: Vec<u64>,
    recovered: bool,
    /// Number of ranks neither killed nor rolled back.
    survivors: u32,
    survivors_undisturbed: bool,
    /// Restarts of the whole job from the ranks' saved states; `null` for other protocols.
    restarts: Option<Vec<Restart>>,
    /// Per rank, number of rollbacks without a kill.
    rolled_back: Vec<u32>,
    /// Epochs of the whole job's rollback lines, in order, 1 for the start; `null` for protocols that roll back single
    /// ranks.
    lines: Option<Vec<u32>>,
    /// Times at which mpirun's processes made no progress, so all were ended and restarted.
    stalls: Vec<Stall>,
    /// Number of lost and replaced initiators or recovery processes, and iterations of missed losses.
    initiators_lost: u32,
    losses_missed: Vec<u64>,
    /// Acknowledged messages kept by the protocol for recovery, and released ones.
    messages_kept: u64,
    messages_released: u64,
    messages_logged: u64,
    bytes_logged: u64,
    messages_replayed: u64,
    duplicates_dropped: u64,
    sends_repeated: u64,
    choices_logged: u64,
    /// Recorded deliveries; zero except under `pessimistic`.
    determinants: Determinants,
    /// Collective calls outside the log; zero except under `user-level`.
    collectives: Collectives,
    checkpoints: u64,
    /// Mean checkpoint time.
    checkpoint_ms: Option<f64>,
    /// Number of ranks with a full, stopped log.
    logging_stopped: u64,
    // From the traces only.
    messages_sent: u64,
    messages_delivered: u64,
    lost: u64,
    duplicated: u64,
    reordered: u64,
    altered: u64,
    diverged: u64,
    /// Phases of the slowest recovery.
    recovery_ms: RecoveryMs,
    wall_ms: f64,
    reference_wall_ms: f64,
    /// Under `pessimistic`: wall time of the run without kills under `sender-based`, and the ratio of the run without
    /// kills to it.
    plain_wall_ms: Option<f64>,
    overhead: Option<f64>,
    /// Directory of the kept stores; `null` if they were removed.
    files: Option<PathBuf>,
}

/// Number and bytes of determinants, without the log's own headers.
///
/// Excludes determinants recorded by a killed process after its last report to the launcher.
#[derive(Clone, Copy, Debug, Serialize)]
struct Determinants {
    count: u64,
    bytes: u64,
}

/// Completed calls, calls with a recorded result, native runs ended by a lost rank, and results sent to others.
#[derive(Clone, Copy, Debug, Serialize)]
struct Collectives {
    completed: u64,
    recorded: u64,
    failed: u64,
    results_sent: u64,
}

/// Runs compared by a report.
#[derive(Clone, Copy)]
pub(super) struct Runs<'a> {
    /// Run with kills.
    pub(super) run: &'a JobReport,
    /// Run without kills.
    pub(super) reference: &'a JobReport,
    /// Run without kills under the sender-based protocol, if the protocol is compared with it.
    pub(super) plain: Option<&'a JobReport>,
}

#[derive(Debug, Serialize)]
struct PowerCut {
    iteration: u64,
    /// Per rank, epoch of the restored checkpoint; `null` if the rank restarted from the beginning.
    restored: Vec<Option<u32>>,
}

/// Job restart; the durations follow each other.
#[derive(Debug, Serialize)]
struct Restart {
    /// Ranks with lost states.
    lost: Vec<u32>,
    /// `false` if no state was left, and the program began anew.
    from_saved: bool,
    at_ms: f64,
    bytes: u64,
    longest_save_ms: f64,
    save_ms: f64,
    end_ms: f64,
    start_ms: Option<f64>,
    rebuild_ms: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Stall {
    /// Rank that no process had joined as in time; `null` if all processes waited for each other in a repair.
    rank: Option<u32>,
    /// Time since the job's start.
    at_ms: f64,
    /// The unfinished ranks, each with its last report.
    state: String,
}

#[derive(Debug, Serialize)]
struct KillReport {
    rank: u32,
    iteration: u64,
    incarnation: u32,
    pid: u32,
    /// `null` if only mpirun knows it.
    signal: Option<i32>,
    /// Requested kill; `null` if another process killed the rank.
    planned: Option<String>,
    at_ms: f64,
    between_first_and_last_message: Option<bool>,
    recovery_ms: RecoveryMs,
}

/// Duration of each recovery phase in milliseconds; `null` if the rank was killed again before the phase ended.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct RecoveryMs {
    detect: Option<f64>,
    /// `null` between local processes.
    repair: Option<f64>,
    start: Option<f64>,
    replay: Option<f64>,
    catch_up: Option<f64>,
}

impl From<RecoveryTimes> for RecoveryMs {
    fn from(times: RecoveryTimes) -> RecoveryMs {
        RecoveryMs {
            detect: times.detect.map(ms),
            repair: times.repair.map(ms),
            start: times.start.map(ms),
            replay: times.replay.map(ms),
            catch_up: times.catch_up.map(ms),
        }
    }
}

/// Converts to milliseconds with microsecond resolution.
fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// Returns `one / other`, rounded to three decimals.
fn ratio(one: Duration, other: Duration) -> f64 {
    (one.as_secs_f64() / other.as_secs_f64().max(f64::MIN_POSITIVE) * 1e3).round() / 1e3
}

impl From<&StallReport> for Stall {
    fn from(stall: &StallReport) -> Stall {
        Stall { rank: stall.rank, at_ms: ms(stall.at), state: stall.state.clone() }
    }
}

impl From<&RestartReport> for Restart {
    fn from(restart: &RestartReport) -> Restart {
        Restart {
            lost: restart.lost.clone(),
            from_saved: restart.from_saved,
            at_ms: ms(restart.at),
            bytes: restart.bytes,
            longest_save_ms: ms(restart.longest_save),
            save_ms: ms(restart.save),
            end_ms: ms(restart.end),
            start_ms: restart.start.map(ms),
            rebuild_ms: restart.rebuild.map(ms),
        }
    }
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

/// Formats a rank count: `1 rank`, `4 ranks`.
pub(super) fn rank_count(ranks: u32) -> String {
    if ranks == 1 { "1 rank".to_owned() } else { format!("{ranks} ranks") }
}

impl DemoReport {
    /// Compares a run with the one without kills.
    pub(super) fn new(
        job: &JobOptions,
        workload: &dyn Workload,
        Runs { run, reference, plain }: Runs<'_>,
        seed: u64,
    ) -> Result<DemoReport, postcard::Error> {
        let (outcomes, expected) = (outcomes(run)?, outcomes(reference)?);
        let timelines = run.timelines.as_deref().unwrap_or_default();
        let verdict: Verdict = judge(timelines);
        let has_traces = run.timelines.is_some();
        let same_events = (workload.deterministic() && has_traces)
            .then(|| compare(timelines, reference.timelines.as_deref().unwrap_or_default()).is_none());
        let Tally { messages_logged, bytes_logged, messages_replayed, duplicates_dropped, .. } = run.tally;
        let Tally { sends_repeated, choices_logged, checkpoints, checkpoint_us, logging_stopped, .. } = run.tally;
        let Tally { messages_kept, messages_released, determinants_logged, determinant_bytes, .. } = run.tally;
        let Tally { collectives, collectives_recorded, collectives_failed, entries_sent, .. } = run.tally;
        let rule = &job.settings.rule;
        let Properties { keeps, rolls_back_survivors, restarts_job, .. } = rule.properties;
        let digest = job_digest(&outcomes);
        Ok(DemoReport {
            ranks: job.settings.ranks,
            workload: workload.name().to_owned(),
            class: workload.class().to_string(),
            tier: job.settings.tier.word(),
            protocol: rule.name,
            clusters: rule.takes(RuleOption::Clusters).then_some(rule.options.clusters),
            seed,
            mpi: None,
            verified: verified(&outcomes),
            value: outcomes.first().map(|outcome| value(&outcome.value)).unwrap_or_default(),
            digest: format!("{digest:016x}"),
            digest_equal: (!restarts_job).then(|| digest == job_digest(&expected)),
            same_events,
            kills: run.deaths.iter().map(KillReport::from).collect(),
            power_cuts: run
                .power_cuts
                .iter()
                .map(|cut| PowerCut { iteration: cut.iteration, restored: cut.restored.clone() })
                .collect(),
            kills_missed: run.missed.iter().filter(|kill| power_cut(kill).is_none()).map(Kill::to_string).collect(),
            power_cuts_missed: run.missed.iter().filter_map(power_cut).collect(),
            recovered: if restarts_job { is_rebuilt(run) } else { recovered(&run.deaths) },
            survivors: survivors(run),
            survivors_undisturbed: run.survivors_undisturbed || restarts_job,
            restarts: restarts_job.then(|| run.restarts.iter().map(Restart::from).collect()),
            rolled_back: run.rolled_back.clone(),
            lines: (keeps == Kept::Nothing && rolls_back_survivors).then(|| lines(run)),
            stalls: run.stalls.iter().map(Stall::from).collect(),
            initiators_lost: run.coordinators_lost,
            losses_missed: run.losses_missed.clone(),
            messages_kept,
            messages_released,
            messages_logged,
            bytes_logged,
            messages_replayed,
            duplicates_dropped,
            sends_repeated,
            choices_logged,
            determinants: Determinants { count: determinants_logged, bytes: determinant_bytes },
            collectives: Collectives {
                completed: collectives,
                recorded: collectives_recorded,
                failed: collectives_failed,
                results_sent: entries_sent,
            },
            checkpoints,
            checkpoint_ms: (checkpoints > 0).then(|| checkpoint_us as f64 / 1e3 / checkpoints as f64),
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

    /// Returns the failed checks; empty if the demo succeeded.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self
            .kills_missed
            .iter()
            .map(|kill| {
                format!(
                    "kill {kill} never happened: the run ended before, or the rank was restarted from a later iteration"
                )
            })
            .collect();
        problems.extend(self.power_cuts_missed.iter().map(|n| {
            format!("the power cut in iteration {n} never happened: rank 0 ended before, or continued after it")
        }));
        problems.extend(self.losses_missed.iter().map(|n| {
            format!("the initiator was not lost in iteration {n}: rank 0 ended before, or continued after it")
        }));
        let mut check = |good: bool, problem: &str| {
            if !good {
                problems.push(problem.to_owned());
            }
        };
        check(self.verified != Some(false), "the answer is not the known one");
        check(self.digest_equal != Some(false), "the result differs from that of the run without kills");
        check(
            self.same_events != Some(false),
            "the ranks' sends and deliveries differ from those of the run without kills",
        );
        check(self.recovered, "a killed rank did not catch up");
        check(self.survivors_undisturbed, "a rank that was not killed repeated iterations");
        for (count, what) in [
            (self.lost, "lost"),
            (self.duplicated, "delivered twice"),
            (self.reordered, "delivered out of order"),
            (self.altered, "altered"),
        ] {
            check(count == 0, &format!("{count} messages were {what}"));
        }
        check(self.diverged == 0, "a re-execution diverged from the killed process");
        problems
    }

    pub(super) fn to_json(&self) -> String {
        // Numbers, strings and lists: serialization cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

fn outcomes(report: &JobReport) -> Result<Vec<Outcome>, postcard::Error> {
    report.outcomes.iter().map(|bytes| postcard::from_bytes(bytes)).collect()
}

fn value(value: &Value) -> String {
    value.to_string()
}

/// Returns `true` if all ranks that check the answer found it right; `None` if no rank checks it.
fn verified(outcomes: &[Outcome]) -> Option<bool> {
    let known: Vec<bool> = outcomes.iter().filter_map(|outcome| outcome.verified).collect();
    (!known.is_empty()).then(|| known.iter().all(|verified| *verified))
}

/// Returns a power cut's iteration.
fn power_cut(kill: &Kill) -> Option<u64> {
    match kill.at {
        KillPoint::PowerCut(n) => Some(n),
        _ => None,
    }
}

/// Returns the whole job's rollback lines: at each, a rank that wasn't killed went back.
fn lines(run: &JobReport) -> Vec<u32> {
    run.rolled_back_to.iter().max_by_key(|lines| lines.len()).cloned().unwrap_or_default()
}

/// Counts the ranks neither killed nor rolled back.
fn survivors(run: &JobReport) -> u32 {
    let killed: BTreeSet<u32> = run.deaths.iter().map(|death| death.rank).collect();
    let stayed = (0..).zip(&run.rolled_back).filter(|(rank, times)| **times == 0 && !killed.contains(rank));
    stayed.count() as u32
}

/// Returns `true` if each rank recovered from its last death.
fn recovered(deaths: &[DeathReport]) -> bool {
    deaths.iter().enumerate().all(|(index, death)| {
        let died_again = deaths[index + 1..].iter().any(|later| later.rank == death.rank);
        died_again || death.recovery.catch_up.is_some()
    })
}

/// Returns `true` if the last restart has ended with all states rebuilt, or with none to rebuild.
fn is_rebuilt(run: &JobReport) -> bool {
    run.restarts.last().is_none_or(|restart| restart.rebuild.is_some() || !restart.from_saved)
}

fn slowest(deaths: &[DeathReport]) -> RecoveryTimes {
    let total = |times: &RecoveryTimes| -> Duration {
        [times.detect, times.repair, times.start, times.replay, times.catch_up].into_iter().flatten().sum()
    };
    let whole = deaths.iter().map(|death| death.recovery).filter(|times| times.catch_up.is_some());
    whole.max_by_key(total).unwrap_or_default()
}
