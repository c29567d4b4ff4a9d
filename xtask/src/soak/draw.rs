//! What one run of the soak does: which program, how many ranks, who is killed when.

use std::fmt;

use super::random::SplitMix64;

/// What dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    OneRank,
    /// The replacement is killed as well, in a later iteration.
    SameRankAgain,
    /// Two ranks in the same iteration.
    TwoAtOnce,
    /// A second rank while the first one is being recovered.
    DuringRecovery,
    /// All ranks at once, with all that they had in memory.
    PowerCut,
}

/// The program that the ranks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Workload {
    Ring,
    Cg,
    MasterWorker,
}

/// Where the log lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tier {
    Volatile,
    ProcessCrashSafe,
    NodeLocal,
}

/// One `--kill`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kill {
    At {
        rank: u32,
        iteration: u32,
    },
    DuringRecoveryOf {
        rank: u32,
        other: u32,
    },
    /// In this iteration of rank 0.
    PowerCut {
        iteration: u32,
    },
}

/// All that one run depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) pattern: Pattern,
    pub(super) workload: Workload,
    pub(super) tier: Tier,
    pub(super) ranks: u32,
    pub(super) checkpoint_every: Option<u32>,
    pub(super) rule: Rule,
    pub(super) kills: Vec<Kill>,
    /// The demo's own seed: when inside its iteration a rank is killed.
    pub(super) seed: u64,
}

/// The rule of recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    SenderBased,
    Pessimistic,
    SendDeterministic { clusters: u32 },
}

const PATTERNS: [Pattern; 5] =
    [Pattern::OneRank, Pattern::SameRankAgain, Pattern::TwoAtOnce, Pattern::DuringRecovery, Pattern::PowerCut];
const WORKLOADS: [Workload; 3] = [Workload::Ring, Workload::Cg, Workload::MasterWorker];
const TIERS: [Tier; 3] = [Tier::Volatile, Tier::ProcessCrashSafe, Tier::NodeLocal];
const CHECKPOINTS: [Option<u32>; 5] = [None, Some(1), Some(2), Some(3), Some(4)];

impl Workload {
    /// How many iterations every rank is sure to reach in the demo's default size.
    const fn iterations(self) -> u32 {
        match self {
            Self::Ring => 30,
            Self::Cg => 15,
            // A worker can have more, the master has many more.
            Self::MasterWorker => 12,
        }
    }

    /// The sizes that the soak draws from; CG's process grid needs a power of two.
    const fn rank_counts(self) -> &'static [u32] {
        match self {
            Self::Cg => &[2, 4, 8],
            Self::Ring | Self::MasterWorker => &[2, 3, 4, 8],
        }
    }
}

impl Parameters {
    /// Everything follows from the generator's state.
    pub(super) fn draw(random: &mut SplitMix64) -> Self {
        let pattern = random.pick(&PATTERNS);
        let workload = random.pick(&WORKLOADS);
        let drawn = random.pick(&TIERS);
        // Nothing else survives one.
        let tier = if pattern == Pattern::PowerCut { Tier::NodeLocal } else { drawn };
        let ranks = random.pick(workload.rank_counts());
        let checkpoint_every = random.pick(&CHECKPOINTS);
        // What the master sends depends on the order of its receives: no program for the other rule.
        let rule = match random.within(0, if workload == Workload::MasterWorker { 2 } else { 5 }) {
            0 | 1 => Rule::SenderBased,
            2 => Rule::Pessimistic,
            _ => Rule::SendDeterministic { clusters: random.within(1, ranks) },
        };
        let kills = draw_kills(random, pattern, ranks, workload.iterations());
        Self {
            pattern,
            workload,
            tier,
            ranks,
            checkpoint_every,
            rule,
            kills,
            // Short enough to be typed again.
            seed: random.next_u64() >> 32,
        }
    }

    /// The command line of the demo.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut words = vec!["demo".to_owned(), "--json".to_owned()];
        let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        option("workload", self.workload.to_string());
        option("ranks", self.ranks.to_string());
        option("tier", self.tier.to_string());
        if let Some(every) = self.checkpoint_every {
            option("checkpoint-every", every.to_string());
        }
        option("protocol", self.protocol().to_owned());
        if let Rule::SendDeterministic { clusters } = self.rule {
            option("clusters", clusters.to_string());
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

    /// The rule as the tables show it.
    pub(super) fn protocol(&self) -> &'static str {
        match self.rule {
            Rule::SenderBased => "sender-based",
            Rule::Pessimistic => "pessimistic",
            Rule::SendDeterministic { .. } => "send-deterministic",
        }
    }

    /// The checkpoint interval as the tables show it.
    pub(super) fn checkpoints(&self) -> String {
        self.checkpoint_every.map_or_else(|| "none".to_owned(), |every| format!("every {every}"))
    }
}

fn draw_kills(random: &mut SplitMix64, pattern: Pattern, ranks: u32, iterations: u32) -> Vec<Kill> {
    let rank = random.within(0, ranks - 1);
    // Any rank but the first one.
    let other = (rank + random.within(1, ranks - 1)) % ranks;
    let iteration = random.within(1, iterations);
    let first = Kill::At { rank, iteration };
    match pattern {
        Pattern::OneRank => vec![first],
        Pattern::SameRankAgain => {
            let iteration = random.within(1, iterations - 1);
            let again = random.within(iteration + 1, iterations);
            vec![Kill::At { rank, iteration }, Kill::At { rank, iteration: again }]
        }
        Pattern::TwoAtOnce => vec![first, Kill::At { rank: other, iteration }],
        Pattern::DuringRecovery => vec![first, Kill::DuringRecoveryOf { rank: other, other: rank }],
        Pattern::PowerCut => vec![Kill::PowerCut { iteration }],
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneRank => "one rank",
            Self::SameRankAgain => "same rank again",
            Self::TwoAtOnce => "two at once",
            Self::DuringRecovery => "during recovery",
            Self::PowerCut => "power cut",
        })
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ring => "ring",
            Self::Cg => "cg",
            Self::MasterWorker => "master-worker",
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
            Self::DuringRecoveryOf { rank, other } => write!(f, "{rank}@recovery:{other}"),
            Self::PowerCut { iteration } => write!(f, "all@{iteration}"),
        }
    }
}

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, ranks, tier, pattern, .. } = self;
        write!(f, "{workload} on {ranks} ranks, {tier}, {}, {pattern}", self.protocol())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(count: u64) -> Vec<Parameters> {
        let mut random = SplitMix64::new(11);
        (0..count).map(|_| Parameters::draw(&mut SplitMix64::new(random.next_u64()))).collect()
    }

    fn ranks_of(kill: &Kill) -> (u32, u32) {
        match *kill {
            Kill::PowerCut { .. } => (0, 0),
            Kill::At { rank, .. } => (rank, rank),
            Kill::DuringRecoveryOf { rank, other } => (rank, other),
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_command_line() {
        let draw = |seed| Parameters::draw(&mut SplitMix64::new(seed)).arguments();
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    #[test]
    fn two_hundred_runs_draw_every_choice_of_every_kind() {
        let drawn = drawn(200);
        for pattern in PATTERNS {
            assert!(drawn.iter().any(|p| p.pattern == pattern), "{pattern}");
        }
        let clusters = [1, 2, 4].map(|clusters| Rule::SendDeterministic { clusters });
        for rule in [Rule::SenderBased, Rule::Pessimistic].into_iter().chain(clusters) {
            assert!(drawn.iter().any(|p| p.rule == rule), "{rule:?}");
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
    fn every_kill_names_ranks_and_an_iteration_that_exist() {
        for parameters in drawn(2_000) {
            for kill in &parameters.kills {
                let (rank, other) = ranks_of(kill);
                assert!(rank.max(other) < parameters.ranks, "{parameters:?}");
                if let Kill::At { iteration, .. } | Kill::PowerCut { iteration } = kill {
                    let iterations = parameters.workload.iterations();
                    assert!((1..=iterations).contains(iteration), "{parameters:?}");
                }
            }
        }
    }

    #[test]
    fn each_pattern_kills_as_its_name_says() {
        for parameters in drawn(2_000) {
            let as_named = match (parameters.pattern, parameters.kills.as_slice()) {
                (Pattern::OneRank, [Kill::At { .. }]) => true,
                (Pattern::SameRankAgain, [Kill::At { rank, iteration }, Kill::At { rank: same, iteration: later }]) => {
                    rank == same && later > iteration
                }
                (Pattern::TwoAtOnce, [Kill::At { rank, iteration }, Kill::At { rank: other, iteration: same }]) => {
                    rank != other && iteration == same
                }
                (Pattern::PowerCut, [Kill::PowerCut { .. }]) => parameters.tier == Tier::NodeLocal,
                (Pattern::DuringRecovery, [Kill::At { rank, .. }, Kill::DuringRecoveryOf { rank: second, other }]) => {
                    rank == other && rank != second
                }
                _ => false,
            };
            assert!(as_named, "{parameters:?}");
        }
    }

    #[test]
    fn the_command_line_has_what_was_drawn() {
        let parameters = Parameters {
            pattern: Pattern::DuringRecovery,
            workload: Workload::Cg,
            tier: Tier::ProcessCrashSafe,
            ranks: 4,
            checkpoint_every: Some(3),
            rule: Rule::SendDeterministic { clusters: 2 },
            kills: vec![Kill::At { rank: 2, iteration: 7 }, Kill::DuringRecoveryOf { rank: 0, other: 2 }],
            seed: 9,
        };
        assert_eq!(
            parameters.arguments().join(" "),
            "demo --json --workload cg --ranks 4 --tier process-crash-safe --checkpoint-every 3 \
             --protocol send-deterministic --clusters 2 --kill 2@7 --kill 0@recovery:2 --seed 9"
        );
    }
}
