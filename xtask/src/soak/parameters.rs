//! Random parameters of one run: workload, number of ranks, log tier, protocol, and when ranks are killed.

use std::fmt;

use super::random::SplitMix64;

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

/// Cell of the matrix of kills; the other parameters of a run are random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    workload: Workload,
    rule: RuleName,
    pattern: Pattern,
}

/// Recovery protocol, without its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleName {
    SenderBased,
    Pessimistic,
    SendDeterministic,
    UserLevel,
    Coordinated,
    EventLogging,
    MessageTagging,
}

const PATTERNS: [Pattern; 10] = [
    Pattern::OneRank,
    Pattern::SameRankAgain,
    Pattern::TwoAtOnce,
    Pattern::DuringRepair,
    Pattern::DuringRecovery,
    Pattern::InCall(Call::Send),
    Pattern::InCall(Call::Receive),
    Pattern::InCall(Call::Collective),
    Pattern::InCall(Call::Checkpoint),
    Pattern::PowerCut,
];
const RULES: [RuleName; 7] = [
    RuleName::SenderBased,
    RuleName::Pessimistic,
    RuleName::SendDeterministic,
    RuleName::UserLevel,
    RuleName::Coordinated,
    RuleName::EventLogging,
    RuleName::MessageTagging,
];
const WORKLOADS: [Workload; 9] = [
    Workload::Ring,
    Workload::Cg,
    Workload::MasterWorker,
    Workload::Ft,
    Workload::Laplace,
    Workload::Gauss,
    Workload::Neurons,
    Workload::Matmul,
    Workload::Disks,
];
const TIERS: [Tier; 3] = [Tier::Volatile, Tier::ProcessCrashSafe, Tier::NodeLocal];
/// Distance of successive cells; coprime to their number.
const STRIDE: usize = 101;
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

impl Cell {
    /// Returns the cells of a protocol, or of all.
    pub(super) fn of(protocol: Option<&str>) -> Vec<Self> {
        let is_wanted = |cell: &Self| protocol.is_none_or(|protocol| protocol == cell.rule.name());
        Self::all().into_iter().filter(is_wanted).collect()
    }

    /// Returns the cells in an order in which every few successive ones have several workloads, rules and patterns.
    pub(super) fn all() -> Vec<Self> {
        let mut cells = Vec::new();
        for pattern in PATTERNS {
            for workload in WORKLOADS {
                for rule in RULES {
                    let is_impossible = (rule == RuleName::SendDeterministic && !workload.is_send_deterministic())
                        || matches!(pattern, Pattern::InCall(call) if !workload.makes(call));
                    if !is_impossible {
                        cells.push(Self { workload, rule, pattern });
                    }
                }
            }
        }
        (0..cells.len()).map(|at| cells[at * STRIDE % cells.len()]).collect()
    }
}

impl RuleName {
    /// Returns the name in command lines and tables.
    const fn name(self) -> &'static str {
        match self {
            Self::SenderBased => "sender-based",
            Self::Pessimistic => "pessimistic",
            Self::SendDeterministic => "send-deterministic",
            Self::UserLevel => "user-level",
            Self::Coordinated => "coordinated",
            Self::EventLogging => "event-logging",
            Self::MessageTagging => "message-tagging",
        }
    }
}

/// Returns the names of all protocols.
pub(super) fn protocols() -> Vec<&'static str> {
    RULES.map(RuleName::name).to_vec()
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

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneRank => "one rank",
            Self::SameRankAgain => "same rank again",
            Self::TwoAtOnce => "two at once",
            Self::DuringRepair => "during repair",
            Self::DuringRecovery => "during recovery",
            Self::InCall(call) => return write!(f, "in {call}"),
            Self::PowerCut => "power cut",
        })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Collective => "collective",
            Self::Checkpoint => "checkpoint",
        })
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ring => "ring",
            Self::Cg => "cg",
            Self::MasterWorker => "master-worker",
            Self::Ft => "ft",
            Self::Laplace => "laplace",
            Self::Gauss => "gauss",
            Self::Neurons => "neurons",
            Self::Matmul => "matmul",
            Self::Disks => "disks",
        })
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Volatile => "volatile",
            Self::ProcessCrashSafe => "process-crash-safe",
            Self::NodeLocal => "node-local",
        })
    }
}

impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At { rank, iteration } => write!(f, "{rank}@{iteration}"),
            Self::InCall { rank, iteration, call } => write!(f, "{rank}@{iteration}:{call}"),
            Self::DuringRepair { rank, dead } => write!(f, "{rank}@repair:{dead}"),
            Self::DuringRecovery { rank, recovering } => write!(f, "{rank}@recovery:{recovering}"),
            Self::PowerCut { iteration } => write!(f, "all@{iteration}"),
        }
    }
}

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, ranks, tier, pattern, .. } = self;
        write!(f, "{workload} on {ranks} ranks, {tier}, {}, {pattern}", self.protocol_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(count: u64) -> Vec<Parameters> {
        let mut random = SplitMix64::new(11);
        let cells = Cell::all();
        let draw =
            |run: u64| Parameters::draw(cells[run as usize % cells.len()], &mut SplitMix64::new(random.next_u64()));
        (0..count).map(draw).collect()
    }

    #[test]
    fn the_cells_are_in_a_mixed_order_and_all_there() {
        let cells = Cell::all();
        assert_eq!(cells.len(), 10 * 61 - 7 - 42);
        assert!(cells.iter().enumerate().all(|(at, cell)| !cells[at + 1..].contains(cell)));
        assert!(cells.windows(2).all(|two| two[0].pattern != two[1].pattern));
    }

    fn ranks_of(kill: &Kill) -> (u32, u32) {
        match *kill {
            Kill::PowerCut { .. } => (0, 0),
            Kill::At { rank, .. } | Kill::InCall { rank, .. } => (rank, rank),
            Kill::DuringRepair { rank, dead } => (rank, dead),
            Kill::DuringRecovery { rank, recovering } => (rank, recovering),
        }
    }

    #[test]
    fn the_cells_of_one_protocol_have_no_other() {
        for rule in RULES {
            assert!(protocols().contains(&rule.name()));
            let cells = Cell::of(Some(rule.name()));
            assert!(cells.len() >= 19 && cells.iter().all(|cell| cell.rule == rule));
        }
        assert_eq!(Cell::of(None), Cell::all());
    }

    #[test]
    fn the_same_seed_draws_the_same_command_line() {
        let draw = |seed| Parameters::draw(Cell::all()[0], &mut SplitMix64::new(seed)).arguments();
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    #[test]
    fn six_hundred_runs_draw_every_value_of_every_parameter() {
        let drawn = drawn(600);
        for pattern in PATTERNS {
            assert!(drawn.iter().any(|p| p.pattern == pattern), "{pattern}");
        }
        let clusters = [1, 2, 4].map(|clusters| Protocol::SendDeterministic { clusters });
        let bits = [false, true].map(|piggybacked| Protocol::Coordinated { piggybacked });
        let others = [
            Protocol::SenderBased,
            Protocol::Pessimistic,
            Protocol::UserLevel,
            Protocol::EventLogging,
            Protocol::MessageTagging,
        ];
        for protocol in others.into_iter().chain(clusters).chain(bits) {
            assert!(drawn.iter().any(|p| p.protocol == protocol), "{protocol:?}");
        }
        for checkpoint_every in CHECKPOINTS {
            assert!(drawn.iter().any(|p| p.checkpoint_every == checkpoint_every));
        }
        for workload in WORKLOADS {
            for tier in TIERS {
                assert!(drawn.iter().any(|p| (p.workload, p.tier) == (workload, tier)), "{workload} {tier}");
            }
            for &ranks in workload.rank_counts() {
                assert!(drawn.iter().any(|p| (p.workload, p.ranks) == (workload, ranks)), "{workload} {ranks}");
            }
        }
    }

    #[test]
    fn every_kill_is_of_an_existing_rank_and_iteration() {
        for parameters in drawn(2_000) {
            for kill in &parameters.kills {
                let (rank, other) = ranks_of(kill);
                assert!(rank.max(other) < parameters.ranks, "{parameters:?}");
                if let Kill::At { iteration, .. } | Kill::InCall { iteration, .. } | Kill::PowerCut { iteration } = kill
                {
                    let iterations = parameters.workload.iterations();
                    assert!((1..=iterations).contains(iteration), "{parameters:?}");
                }
            }
        }
    }

    #[test]
    fn the_kills_match_the_pattern() {
        for parameters in drawn(2_000) {
            let matches = match (parameters.pattern, parameters.kills.as_slice()) {
                (Pattern::OneRank, [Kill::At { .. }]) => true,
                (Pattern::SameRankAgain, [Kill::At { rank, iteration }, Kill::At { rank: same, iteration: later }]) => {
                    rank == same && later > iteration
                }
                (Pattern::TwoAtOnce, [Kill::At { rank, iteration }, Kill::At { rank: other, iteration: same }]) => {
                    rank != other && iteration == same
                }
                (Pattern::InCall(call), [Kill::InCall { call: in_call, .. }]) => {
                    call == *in_call && (call != Call::Checkpoint || parameters.checkpoint_every.is_some())
                }
                (Pattern::DuringRepair, [Kill::At { rank, .. }, Kill::DuringRepair { rank: second, dead }]) => {
                    rank == dead && rank != second
                }
                (Pattern::PowerCut, [Kill::PowerCut { .. }]) => parameters.tier == Tier::NodeLocal,
                (
                    Pattern::DuringRecovery,
                    [Kill::At { rank, .. }, Kill::DuringRecovery { rank: second, recovering }],
                ) => rank == recovering && rank != second,
                _ => false,
            };
            assert!(matches, "{parameters:?}");
        }
    }

    #[test]
    fn the_command_line_has_all_parameters() {
        let mut parameters = Parameters {
            pattern: Pattern::DuringRecovery,
            workload: Workload::Cg,
            tier: Tier::ProcessCrashSafe,
            ranks: 4,
            checkpoint_every: Some(3),
            protocol: Protocol::SendDeterministic { clusters: 2 },
            kills: vec![Kill::At { rank: 2, iteration: 7 }, Kill::DuringRecovery { rank: 0, recovering: 2 }],
            seed: 9,
            mpi: None,
            spares: None,
        };
        assert_eq!(
            parameters.arguments().join(" "),
            "demo --json --workload cg --ranks 4 --tier process-crash-safe --checkpoint-every 3 \
             --protocol send-deterministic --clusters 2 --kill 2@7 --kill 0@recovery:2 --seed 9"
        );
        (parameters.mpi, parameters.spares) = (Some("debian".to_owned()), Some(0));
        assert!(parameters.arguments().join(" ").starts_with("demo --json --mpi=debian --spares 0 --workload cg"));
    }
}
