//! Failure-free cost of the rules: a program on plain MPI and under each rule in turn, inside one job.
//!
//! Separate jobs differ by more than the effect, so a run under a rule is compared with the runs on plain MPI before
//! and after it. Only the workload is timed, not the log's start and end.

use std::error::Error as StdError;
use std::rc::Rc;
use std::time::{Duration, Instant};

use counterfoil_mpi_core::error::MpiError;
use counterfoil_mpi_core::universe::Universe;
use counterfoil_runtime::communicator::{Communicator, Reduction};
use counterfoil_runtime::{RankSettings, Tally, Tier};
use counterfoil_workloads::costs::{Logged, Measured, Mode, Plan, Subject};
use counterfoil_workloads::{LookupError, Outcome, Workload};

use crate::native::NativeCommunicator;
use crate::recovery::{self, Options, RecoveryError};

/// Measurement failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CostError {
    /// An MPI call failed.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// A run under a rule failed.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// A run on plain MPI failed.
    #[error("on plain MPI: {0}")]
    Native(#[source] Box<dyn StdError + Send + Sync>),
    /// There is no such workload.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// A run found another answer than the known one.
    #[error("a run under {rule} found a wrong answer: {value}")]
    WrongAnswer {
        /// The rule's name, or `plain MPI`.
        rule: &'static str,
        /// Answer found.
        value: String,
    },
}

/// Runs the measurement on all of the job's processes; returns each subject's measurements in each mode.
///
/// Collective. `progress` is called before each round, with the number of earlier rounds.
///
/// # Errors
/// [`CostError`].
pub fn measure(universe: &Rc<Universe>, plan: &Plan, progress: impl Fn(u32)) -> Result<Vec<Vec<Measured>>, CostError> {
    let begun = |subject: usize| subject as u32 * plan.rounds;
    let subjects = plan.subjects.iter().enumerate();
    subjects
        .map(|(number, subject)| measure_one(universe, subject, plan, |round| progress(begun(number) + round)))
        .collect()
}

fn measure_one(
    universe: &Rc<Universe>,
    subject: &Subject,
    plan: &Plan,
    progress: impl Fn(u32),
) -> Result<Vec<Measured>, CostError> {
    let workload = subject.program.workload()?;
    let run = |mode| run(universe, workload.as_ref(), mode, plan.tier);
    // Not counted: the first run finds cold caches.
    let (mut before, _) = run(None).and_then(|_| run(None))?;
    let new = |mode: &Option<Mode>| Measured { mode: *mode, ..Measured::default() };
    let mut measured: Vec<Measured> = subject.modes.iter().map(new).collect();
    for round in 0..plan.rounds {
        progress(round);
        for of_mode in &mut measured {
            let (took, logged) = run(of_mode.mode)?;
            let (after, _) = run(None)?;
            let seconds = took.as_secs_f64();
            of_mode.logged = logged;
            of_mode.seconds.push(seconds);
            of_mode.ratios.push(2.0 * seconds / (before + after).as_secs_f64());
            before = after;
        }
    }
    Ok(measured)
}

/// Runs the workload once; returns the slowest rank's time, and the log totals of all ranks.
fn run(
    universe: &Rc<Universe>,
    workload: &dyn Workload,
    mode: Option<Mode>,
    tier: Tier,
) -> Result<(Duration, Logged), CostError> {
    let ((outcome, took), logged) = match mode {
        None => {
            let mut comm = NativeCommunicator::new(universe)?;
            let done = timed(workload, None, &mut comm).map_err(CostError::Native)?;
            comm.finish()?;
            (done, Logged::default())
        }
        Some(Mode { rule, checkpoint_every }) => {
            let ranks = universe.world().size()?;
            let settings = RankSettings { rule, tier, ..RankSettings::new(ranks) };
            let options = Options { without_recovery: true, settings, ..Options::new(ranks) };
            let done = recovery::run_counted(universe, &options, |comm| timed(workload, checkpoint_every, comm))?;
            // All processes are ranks.
            let (done, tally) = done.ok_or_else(|| CostError::Native("a rank without a result".into()))?;
            (done, sum(universe, tally)?)
        }
    };
    if outcome.verified == Some(false) {
        let rule = mode.map_or("plain MPI", |mode| mode.rule.name);
        return Err(CostError::WrongAnswer { rule, value: outcome.value.to_string() });
    }
    Ok((took, logged))
}

/// Sums all ranks' log counts.
///
/// Collective.
fn sum(universe: &Rc<Universe>, tally: Tally) -> Result<Logged, CostError> {
    let mut sums = [tally.messages_logged, tally.bytes_logged, tally.entries_kept, tally.entry_bytes];
    let mut comm = NativeCommunicator::new(universe)?;
    comm.allreduce_u64(&mut sums, Reduction::Sum).map_err(|error| CostError::Native(error.into()))?;
    comm.finish()?;
    let [messages, message_bytes, entries, entry_bytes] = sums;
    Ok(Logged { messages, message_bytes, entries, entry_bytes })
}

/// Runs the workload after a barrier; the barrier also opens all connections.
fn timed(
    workload: &dyn Workload,
    checkpoint_every: Option<u64>,
    comm: &mut dyn Communicator,
) -> Result<(Outcome, Duration), Box<dyn StdError + Send + Sync>> {
    comm.barrier()?;
    let begun = Instant::now();
    let outcome = workload.run(comm, checkpoint_every)?;
    let mut took = [begun.elapsed().as_secs_f64()];
    comm.allreduce_f64(&mut took, Reduction::Max)?;
    Ok((outcome, Duration::from_secs_f64(took[0])))
}
