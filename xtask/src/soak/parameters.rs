//! Random parameters of one run: workload, number of ranks, log tier, protocol, and kill times.

mod cell;
mod names;
#[cfg(test)]
mod tests;

use std::fmt;

use super::listed::{Program, Protocol};
use super::random::SplitMix64;
pub(super) use cell::Cell;

/// Failure pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    OneRank,
    /// The restarted rank is killed again, in a later iteration.
    SameRankAgain,
    /// Two ranks in the same iteration.
    TwoAtOnce,
    /// A second rank, soon after the first one's death.
    DuringRepair,
    /// A second rank, while the first one recovers.
    DuringRecovery,
    /// One rank, in the middle of a call.
    InCall(Call),
    /// All ranks at once, losing their memory contents.
    PowerCut,
}

/// Call during which a rank is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Send,
    Receive,
    Collective,
    Checkpoint,
}

/// Log durability tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tier {
    Volatile,
    ProcessCrashSafe,
    NodeLocal,
}

/// A planned failure: one option `--kill` or `--power-cut`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kill {
    At {
        rank: u32,
        iteration: u32,
    },
    /// Kills `rank` in the first such call from `iteration` on.
    InCall {
        rank: u32,
        iteration: u32,
        call: Call,
    },
    /// Kills `rank` soon after the death of `dead`.
    DuringRepair {
        rank: u32,
        dead: u32,
    },
    /// Kills `rank` while `recovering` recovers.
    DuringRecovery {
        rank: u32,
        recovering: u32,
    },
    /// Power cut in this iteration of rank 0.
    PowerCut {
        iteration: u32,
    },
}

/// Parameters of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parameters<'a> {
    pub(super) pattern: Pattern,
    pub(super) workload: &'a Program,
    pub(super) tier: Tier,
    pub(super) ranks: u32,
    pub(super) checkpoint_every: Option<u32>,
    pub(super) protocol: &'a Protocol,
    /// Number of clusters, under a protocol that takes one.
    pub(super) clusters: Option<u32>,
    /// Value of `--bits`, under a protocol that takes one.
    pub(super) bits: Option<&'a str>,
    pub(super) kills: Vec<Kill>,
    /// Seed for the demo, which sets a kill's moment within its iteration.
    pub(super) seed: u64,
    /// Name of the MPI to run over; `None` for local processes.
    pub(super) mpi: Option<String>,
    /// Number of spares over MPI; `None`: one for each kill.
    pub(super) spares: Option<u32>,
}

const TIERS: [Tier; 3] = [Tier::Volatile, Tier::ProcessCrashSafe, Tier::NodeLocal];
/// Minimum number of iterations from a kill planned in a call to the end: the last checkpoint may be that many
/// iterations earlier.
const CALLS_FROM_END: u32 = 4;
/// Rank counts to choose from.
const RANKS: [u32; 4] = [2, 3, 4, 8];
const CHECKPOINTS: [Option<u32>; 5] = [None, Some(1), Some(2), Some(3), Some(4)];

impl Program {
    /// Returns `true` if the program makes such a call.
    pub(super) fn makes(&self, call: Call) -> bool {
        self.calls.contains(&call.to_string())
    }

    /// Returns the rank counts to choose from.
    fn rank_counts(&self) -> Vec<u32> {
        RANKS.into_iter().filter(|ranks| self.ranks.contains(ranks)).collect()
    }
}

impl<'a> Parameters<'a> {
    /// Draws a run's parameters in a cell.
    ///
    /// They depend on the cell and the generator's state only.
    pub(super) fn draw(cell: Cell<'a>, random: &mut SplitMix64) -> Self {
        let Cell { workload, protocol, pattern } = cell;
        let any_tier = random.choose(&TIERS);
        // Only this tier survives a power cut.
        let tier = if pattern == Pattern::PowerCut { Tier::NodeLocal } else { any_tier };
        let ranks = random.choose(&workload.rank_counts());
        // A rank that takes an offered checkpoint only after a line was begun takes few in a short run, and those may
        // all be in its first iterations: a longer interval would leave the kill without a place.
        let needs_checkpoints = pattern == Pattern::InCall(Call::Checkpoint);
        let has_few_lines = needs_checkpoints && protocol.checkpoints_when_asked;
        let checkpoint_every = random.choose(match (has_few_lines, needs_checkpoints) {
            (true, _) => &CHECKPOINTS[1..2],
            (_, true) => &CHECKPOINTS[1..],
            _ => &CHECKPOINTS,
        });
        let clusters = protocol.clusters.then(|| random.in_range(1, ranks));
        let bits: Vec<&str> = protocol.bits.iter().map(String::as_str).collect();
        let bits = (!bits.is_empty()).then(|| random.choose(&bits));
        let iterations = if has_few_lines { CALLS_FROM_END + 1 } else { workload.iterations };
        let kills = draw_kills(random, pattern, ranks, iterations);
        Self {
            pattern,
            workload,
            tier,
            ranks,
            checkpoint_every,
            protocol,
            clusters,
            bits,
            kills,
            // 32 bits keep the seed short enough to type.
            seed: random.next_u64() >> 32,
            mpi: None,
            spares: None,
        }
    }

    /// Returns the arguments of `counterfoil`.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut words = vec!["demo".to_owned(), "--json".to_owned()];
        words.extend(self.mpi.iter().map(|mpi| format!("--mpi={mpi}")));
        let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        if let Some(spares) = self.spares {
            option("spares", spares.to_string());
        }
        option("workload", self.workload.name.clone());
        option("ranks", self.ranks.to_string());
        option("tier", self.tier.to_string());
        if let Some(every) = self.checkpoint_every {
            option("checkpoint-every", every.to_string());
        }
        option("protocol", self.protocol.name.clone());
        if let Some(clusters) = self.clusters {
            option("clusters", clusters.to_string());
        }
        if let Some(bits) = self.bits {
            option("bits", bits.to_owned());
        }
        for kill in &self.kills {
            match kill {
                Kill::PowerCut { iteration } => option("power-cut", iteration.to_string()),
                kill => option("kill", kill.to_string()),
            }
        }
        option("seed", self.seed.to_string());
        words
    }

    /// Returns the checkpoint interval in tables.
    pub(super) fn checkpoints(&self) -> String {
        self.checkpoint_every.map_or_else(|| "none".to_owned(), |every| format!("every {every}"))
    }
}

fn draw_kills(random: &mut SplitMix64, pattern: Pattern, ranks: u32, iterations: u32) -> Vec<Kill> {
    let rank = random.in_range(0, ranks - 1);
    // Another rank, with equal probability for each.
    let other = (rank + random.in_range(1, ranks - 1)) % ranks;
    let iteration = random.in_range(1, iterations);
    let first = Kill::At { rank, iteration };
    match pattern {
        Pattern::OneRank => vec![first],
        Pattern::SameRankAgain => {
            let iteration = random.in_range(1, iterations - 1);
            let again = random.in_range(iteration + 1, iterations);
            vec![Kill::At { rank, iteration }, Kill::At { rank, iteration: again }]
        }
        Pattern::TwoAtOnce => vec![first, Kill::At { rank: other, iteration }],
        Pattern::DuringRepair => vec![first, Kill::DuringRepair { rank: other, dead: rank }],
        Pattern::InCall(call) => {
            let iteration = random.in_range(1, iterations - CALLS_FROM_END);
            vec![Kill::InCall { rank, iteration, call }]
        }
        Pattern::DuringRecovery => vec![first, Kill::DuringRecovery { rank: other, recovering: rank }],
        Pattern::PowerCut => vec![Kill::PowerCut { iteration }],
    }
}

impl fmt::Display for Parameters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, ranks, tier, pattern, protocol, .. } = self;
        write!(f, "{} on {ranks} ranks, {tier}, {}, {pattern}", workload.name, protocol.name)
    }
}
