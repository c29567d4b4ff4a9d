//! Logged messages and rollbacks under the send-deterministic rule, for a message pattern and clusters of ranks.
//!
//! Guermouche 2011, section V.E: the columns %log and %rl of Table I. A [`Job`] has one real
//! [`SendDeterministic`](counterfoil_protocols::send_deterministic::SendDeterministic) for each rank and one real
//! [`RecoveryProcess`](counterfoil_protocols::send_deterministic::RecoveryProcess), in memory, without failures. Its
//! ranks send, receive, acknowledge, take checkpoints cluster by cluster and collect. A message counts as logged if the
//! state machines log it; rollbacks are those of
//! [`recovery_line`](counterfoil_protocols::send_deterministic::recovery_line) over their tables, as in the paper,
//! whose tables were saved every 30 s.
//!
//! | module | content |
//! |---|---|
//! | `iteration` | [`Iteration`]: one iteration's messages, step by step |
//! | `plan` | [`Plan`]: time of each cluster's checkpoints |
//! | `job`, `logged` | [`Job`]: the state machines; fate of each message |
//! | `failures` | [`RolledBack`]: ranks that roll back, for chosen failures |
//! | `coloured` | [`coloured`](fn@coloured): an epoch order in which a failure reaches few clusters |
//! | `outline` | [`Outline`]: the tables of a job too large for state machines |
//!
//! # Time
//!
//! Ranks go through an iteration in lockstep: all send a step's messages, then all of these arrive. Checkpoints are
//! taken between iterations, so no message crosses one. On a real machine some do; whether those few are logged depends
//! on the moment, not on the rule.
//!
//! ```
//! use counterfoil_protocols::cluster::Clusters;
//! use counterfoil_protocols::api::ProtocolError;
//! use counterfoil_simulator::measure::{Hop, Iteration, Plan, measure};
//!
//! // A ring of eight ranks in four clusters. Three of eight messages go up; p + 1 of 2p clusters roll back.
//! let ring = (0..8).map(|rank| Hop { step: 0, source: rank, destination: (rank + 1) % 8, bytes: 8 });
//! let back = (0..8).map(|rank| Hop { step: 1, source: (rank + 1) % 8, destination: rank, bytes: 8 });
//! let iteration = Iteration::new(8, ring.chain(back))?;
//! let measured = measure(&iteration, &Clusters::blocks(8, 2)?, Plan::default(), |_| {})?;
//! assert_eq!(measured.logged.percent(), 25.0);
//! assert_eq!(measured.rolled_back.percent(), 62.5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod coloured;
mod error;
mod failures;
mod iteration;
mod job;
mod logged;
mod outline;
mod plan;

pub use coloured::coloured;
pub use error::MeasureError;
pub use failures::RolledBack;
pub use iteration::{Hop, Iteration};
pub use job::Job;
pub use logged::Logged;
pub use outline::Outline;
pub use plan::Plan;

use counterfoil_protocols::cluster::Clusters;

/// Table I cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Messages logged by the rule: %log.
    pub logged: Logged,
    /// Ranks rolling back when one fails, each in turn: %rl.
    pub rolled_back: RolledBack,
}

/// Runs a job as planned and computes, after every iteration except the first round's, the rollbacks for a failure of
/// each rank.
///
/// Calls `progress` after every iteration with the completed share of the run, 0 to 1. Takes two or three microseconds
/// a message, and for each failure as long as
/// [`recovery_line`](counterfoil_protocols::send_deterministic::recovery_line).
///
/// # Errors
/// [`MeasureError`]: clusters of other ranks than the iteration's, or an event refused by a state machine.
pub fn measure(
    iteration: &Iteration,
    clusters: &Clusters,
    plan: Plan,
    mut progress: impl FnMut(f64),
) -> Result<Measured, MeasureError> {
    let mut job = Job::new(iteration, clusters)?;
    let mut rolled_back = RolledBack::default();
    for round in 0..plan.rounds {
        for at in 0..plan.iterations {
            job.iterate()?;
            if round > 0 && at == 0 {
                // Not earlier: messages acknowledged by then need not be asked for.
                job.collect()?;
            }
            if round > 0 || plan.rounds == 1 {
                rolled_back.add(&job.tables(), 0..iteration.ranks());
            }
            job.checkpoint_clusters(plan, at)?;
            progress(f64::from(round * plan.iterations + at + 1) / f64::from(plan.rounds * plan.iterations));
        }
    }
    Ok(Measured { logged: job.finish()?, rolled_back })
}

#[cfg(test)]
mod tests;
