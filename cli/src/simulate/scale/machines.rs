//! Real state machines for the smaller tori: what they weigh, and that they say what the outline says.

use counterfoil_protocols::cluster::Clusters;
use counterfoil_protocols::send_deterministic::recovery_line;
use counterfoil_runtime::measure::{Job, MeasureError, Outline, Plan};
use counterfoil_workloads::patterns::Pattern;

/// What a job of state machines was found to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machines {
    /// Resident memory that the job added, per rank; `None` where the system doesn't tell.
    pub(super) bytes_per_rank: Option<f64>,
    /// Whether they log what the outline logs and take back whom it takes back, for every failure that was asked about.
    pub(super) agree: bool,
}

/// Runs a job as planned, up to the moment that `outline` is of, and compares.
pub(super) fn run(
    pattern: &Pattern,
    clusters: &Clusters,
    plan: Plan,
    outline: &Outline,
    failing: &[u32],
) -> Result<Machines, MeasureError> {
    let iteration = pattern.iteration()?;
    let before = resident_bytes();
    let mut job = Job::new(&iteration, clusters)?;
    for round in 0..plan.rounds {
        for at in 0..plan.iterations {
            job.iterate()?;
            if (round, at) == (plan.rounds - 1, plan.iterations - 1) {
                break;
            }
            if round > 0 && at == 0 {
                job.collect()?;
            }
            job.checkpoint_clusters(plan, at)?;
        }
    }
    // Where the memory of an earlier job is used again, this says nothing.
    let added =
        resident_bytes().zip(before).map(|(after, before)| after.saturating_sub(before)).filter(|&added| added > 0);
    let tables = job.tables();
    let same_line = |&rank: &u32| {
        let mut failed = vec![None; tables.len()];
        failed[rank as usize] = tables.get(rank as usize).map(|table| table.epoch);
        recovery_line(&tables, &failed) == recovery_line(&outline.tables, &failed)
    };
    let same_lines = failing.iter().all(same_line);
    let logged = job.finish()?;
    let same_logs = (logged.messages, logged.logged) == (outline.logged.messages, outline.logged.logged);
    Ok(Machines {
        bytes_per_rank: added.map(|bytes| bytes as f64 / f64::from(pattern.ranks())),
        agree: same_lines && same_logs,
    })
}

/// Memory of this process that is in use, as Linux tells it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}
