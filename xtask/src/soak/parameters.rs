//! Random parameters of one run: workload, number of ranks, log tier, protocol, and when ranks are killed.

mod cell;
mod names;
#[cfg(test)]
mod tests;

use std::fmt;

use super::random::SplitMix64;
use cell::RuleName;
pub(super) use cell::{Cell, protocols};

/// Pattern of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    OneRank,
    /// The restarted rank is killed again, in a later iteration.
    SameRankAgain,
    /// Two ranks in the same iteration.
    TwoAtOnce,
    /// A second rank, soon after the death of the first one.
    DuringRepair,
    /// A second rank, while the first one recovers.
    DuringRecovery,
    /// One rank, in the midst of a call.
    InCall(Call),
    /// All ranks at once, with the contents of their memory.
    PowerCut,
}

/// Call in whose midst a rank is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Send,
    Receive,
    Collective,
    Checkpoint,
}

/// Program run by the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Workload {
    Ring,
    Cg,
    MasterWorker,
    Ft,
    Laplace,
    Gauss,
    Neurons,
    Matmul,
    Disks,
}

/// Durability tier of the log.
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
pub(super) struct Parameters {
    pub(super) pattern: Pattern,
    pub(super) workload: Workload,
    pub(super) tier: Tier,
    pub(super) ranks: u32,
    pub(super) checkpoint_every: Option<u32>,
    pub(super) protocol: Protocol,
    pub(super) kills: Vec<Kill>,
    /// Seed of the demo, which sets the moment of a kill within its iteration.
    pub(super) seed: u64,
    /// Name of the MPI to run over; `None` for local processes.
    pub(super) mpi: Option<String>,
    /// Number of spares over MPI; `None`: one for each kill.
    pub(super) spares: Option<u32>,
}

/// Recovery protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    SenderBased,
    Pessimistic,
    SendDeterministic { clusters: u32 },
    UserLevel,
    Coordinated { piggybacked: bool },
    EventLogging,
    MessageTagging,
}

const TIERS: [Tier; 3] = [Tier::Volatile, Tier::ProcessCrashSafe, Tier::NodeLocal];
/// Least number of iterations from the one in a planned kill in a call to the end: the last checkpoint is up to as many before it.
const CALLS_FROM_END: u32 = 4;
const CHECKPOINTS: [Option<u32>; 5] = [None, Some(1), Some(2), Some(3), Some(4)];

impl Workload {
    /// Returns the number of iterations that every rank reaches with the demo's default size.
    const fn iterations(self) -> u32 {
        match self {
            Self::Ring => 30,
            Self::Cg => 15,
            // A lower bound: a worker may run more, and the master runs many more.
            Self::MasterWorker | Self::Disks => 12,
            Self::Ft => 7,
            Self::Laplace | Self::Neurons => 60,
            Self::Gauss => 48,
            Self::Matmul => 8,
        }
    }

    /// Returns the numbers of ranks to choose from. CG's process grid and FT's planes need a power of two.
    const fn rank_counts(self) -> &'static [u32] {
        match self {
            Self::Cg | Self::Ft => &[2, 4, 8],
            _ => &[2, 3, 4, 8],
        }
    }

    /// Returns `true` if the program makes such a call. CG exchanges its sums by point-to-point messages.
    pub(super) fn makes(self, call: Call) -> bool {
        match self {
            Self::Cg => call != Call::Collective,
            Self::Ft | Self::Gauss | Self::Neurons => !matches!(call, Call::Send | Call::Receive),
            _ => true,
        }
    }

    /// Returns `true` if the sends don't depend on the order of receives, as they do where a master assigns tasks.
    fn is_send_deterministic(self) -> bool {
        !matches!(self, Self::MasterWorker | Self::Disks)
    }
}

impl Parameters {
    /// Draws the parameters of a run in a cell. They depend on the cell and the generator's state only.
    pub(super) fn draw(cell: Cell, random: &mut SplitMix64) -> Self {
        let Cell { workload, rule, pattern } = cell;
        let any_tier = random.choose(&TIERS);
        // Only this tier survives a power cut.
        let tier = if pattern == Pattern::PowerCut { Tier::NodeLocal } else { any_tier };
        let ranks = random.choose(workload.rank_counts());
        let needs_checkpoints = pattern == Pattern::InCall(Call::Checkpoint);
        let checkpoint_every = random.choose(match rule {
            // A rank takes an offered checkpoint only if the initiator has begun a line: one in few would leave the kill without a place.
            RuleName::Coordinated if needs_checkpoints => &CHECKPOINTS[1..2],
            _ if needs_checkpoints => &CHECKPOINTS[1..],
            _ => &CHECKPOINTS,
        });
        let protocol = match rule {
            RuleName::SenderBased => Protocol::SenderBased,
            RuleName::Pessimistic => Protocol::Pessimistic,
            RuleName::SendDeterministic => Protocol::SendDeterministic { clusters: random.in_range(1, ranks) },
            RuleName::UserLevel => Protocol::UserLevel,
            RuleName::Coordinated => Protocol::Coordinated { piggybacked: random.in_range(0, 1) == 1 },
            RuleName::EventLogging => Protocol::EventLogging,
            RuleName::MessageTagging => Protocol::MessageTagging,
        };
        // The few lines of a short run may all be in its first iterations.
        let has_few_lines = rule == RuleName::Coordinated && needs_checkpoints;
        let iterations = if has_few_lines { CALLS_FROM_END + 1 } else { workload.iterations() };
        let kills = draw_kills(random, pattern, ranks, iterations);
        Self {
            pattern,
            workload,
            tier,
            ranks,
            checkpoint_every,
            protocol,
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
        option("workload", self.workload.to_string());
        option("ranks", self.ranks.to_string());
        option("tier", self.tier.to_string());
        if let Some(every) = self.checkpoint_every {
            option("checkpoint-every", every.to_string());
        }
        option("protocol", self.protocol_name().to_owned());
        if let Protocol::SendDeterministic { clusters } = self.protocol {
            option("clusters", clusters.to_string());
        }
        if let Protocol::Coordinated { piggybacked } = self.protocol {
            option("bits", if piggybacked { "piggybacked" } else { "exchanged" }.to_owned());
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

    /// Returns the name of the protocol in command lines and tables.
    pub(super) fn protocol_name(&self) -> &'static str {
        let rule = match self.protocol {
            Protocol::SenderBased => RuleName::SenderBased,
            Protocol::Pessimistic => RuleName::Pessimistic,
            Protocol::SendDeterministic { .. } => RuleName::SendDeterministic,
            Protocol::UserLevel => RuleName::UserLevel,
            Protocol::Coordinated { .. } => RuleName::Coordinated,
            Protocol::EventLogging => RuleName::EventLogging,
            Protocol::MessageTagging => RuleName::MessageTagging,
        };
        rule.name()
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

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, ranks, tier, pattern, .. } = self;
        write!(f, "{workload} on {ranks} ranks, {tier}, {}, {pattern}", self.protocol_name())
    }
}
