//! Comparison with real state machines, for small tori.

use counterfoil_protocols::cluster::Clusters;
use counterfoil_protocols::send_deterministic::recovery_line;
use counterfoil_simulator::measure::{Job, MeasureError, Outline, Plan};
use counterfoil_workloads::patterns::Pattern;

/// Results from a job of state machines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machines {
    /// Resident memory added per rank; `None` if unknown.
    pub(super) bytes_per_rank: Option<f64>,
    /// True if logged messages and, for every tested failure, the recovery line equal the outline's.
    pub(super) agree: bool,
}

/// Runs a job as planned up to the moment of `outline`, and compares.
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
    // Unknown if the job reused an earlier one's memory.
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

/// Returns this process's resident memory (Linux).
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}
