//! Options for `counterfoil simulate`.

use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use counterfoil_protocols::RULES;
use counterfoil_protocols::api::{Bits, Kept, Moment, NativeCollectives, Rule, RuleOption};
use counterfoil_simulator::{Canary, Config, Pattern, Schedule, ScheduleError, Shape};

use super::scale;
use crate::{plural, protocol};

/// Maximum number of process failures in a schedule.
const FAULTS_MAX: u32 = 64;
/// Maximum number of effects after which a process dies within an event.
const EFFECTS_MAX: u32 = 64;
/// Maximum number of clusters.
const CLUSTERS_MAX: u32 = 8;
/// Maximum number of schedules in a campaign.
const SCHEDULES_MAX: u64 = 1_000_000_000_000;

/// Run a protocol under random failure schedules and check every run.
///
/// Virtual ranks exchange messages in one process and in virtual time; a seed determines all events and failures.
/// Oracles check every event independently of the protocol and its log. The first failing schedule is shrunk and
/// printed as one line, with its replay command. The exit code is 0 if no schedule failed, 1 if one did, and 130 after
/// an interrupt.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SimulateArguments {
    #[command(subcommand)]
    pub(super) command: Option<SimulateCommand>,
    /// Protocol to simulate
    #[arg(long, value_name = "PROTOCOL", default_value = RULES[0].name, value_parser = protocol::parser(|rule| rule.properties.recovers()))]
    protocol: Rule,
    /// Transport of a collective call's two bits to the receivers of its data, in protocols with such bits [default:
    /// exchanged]
    #[arg(long, value_parser = protocol::bits())]
    bits: Option<Bits>,
    /// Moment at which a rank takes a requested checkpoint, in protocols with checkpoints of the whole job: at any
    /// time, or where the program offers one [default: any-time]
    #[arg(long, value_parser = protocol::moment())]
    moment: Option<Moment>,
    /// Communication patterns: stencil, tree, master-worker, ring, graph, backlog or collective; with protocols that
    /// run collective calls as a whole, also calls and calls-to-root; comma-separated [default: all]
    #[arg(long = "pattern", visible_alias = "workload", value_name = "PATTERN", value_delimiter = ',', value_parser = parse_pattern)]
    patterns: Vec<Pattern>,
    /// Number of ranks, from 2 to 32; ranges are inclusive
    #[arg(long, value_name = "N|MIN..MAX", default_value = "2..6", value_parser = parse_ranks)]
    pub(super) ranks: CountRange,
    /// Number of rounds of the pattern, from 1 to 64
    #[arg(long, value_name = "N|MIN..MAX", default_value = "1..4", value_parser = parse_rounds)]
    rounds: CountRange,
    /// Number of process failures per schedule, from 0 to 64
    #[arg(long, value_name = "N|MIN..MAX", default_value = "1..3", value_parser = parse_faults)]
    pub(super) faults: CountRange,
    /// Number of collections, or checkpoints of the job, begun by the coordinator per schedule, from 0 to 64. For
    /// protocols whose coordinator does so [default: 0..3]
    #[arg(long, value_name = "N|MIN..MAX", value_parser = parse_collections)]
    collections: Option<CountRange>,
    /// Number of rank clusters, from 0 (none) to 8. For protocols with clusters [default: 0..3]
    #[arg(long, value_name = "N|MIN..MAX", value_parser = parse_clusters)]
    clusters: Option<CountRange>,
    /// In half of the schedules, a rank's replacement breaks all connections between the others, which reconnect: like
    /// an MPI job's repair by revocation
    #[arg(long)]
    revoked: bool,
    /// In half of the schedules, a process's messages can still arrive after it, or its replacement, has reconnected: a
    /// transport may not do that, and few protocols allow it
    #[arg(long)]
    late: bool,
    /// A process dies after at most this many effects of an event, from 0 to 64, in a third of the failures
    #[arg(long, value_name = "N", default_value_t = Config::EFFECTS, value_parser = clap::value_parser!(u32).range(..=i64::from(EFFECTS_MAX)))]
    effects: u32,
    /// Programs don't announce receives that can match several messages, so their outcomes aren't recorded: a protocol
    /// that doesn't record all receives anyway fails if results depend on them. For protocols that log all messages
    #[arg(long)]
    unnamed: bool,
    /// No rank takes checkpoints
    #[arg(long)]
    no_checkpoints: bool,
    /// Number of schedules, one per seed
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=SCHEDULES_MAX))]
    pub(super) schedules: u64,
    /// First seed; the others follow it consecutively [default: from the clock; printed]
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// Number of threads; doesn't affect the results [default: number of processors]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// Plant a bug for the oracles to find, such as drop-record; `list` prints all of them and their protocols
    #[arg(long = "canary", value_name = "NAME|list", value_parser = parse_canary, hide = !Canary::PLANTED)]
    planted: Option<Planted>,
    /// Replay a single schedule, given as the (quoted) line printed by a failure
    #[arg(long, value_name = "SCHEDULE", value_parser = parse_schedule, conflicts_with_all = ["patterns", "ranks", "rounds", "faults", "collections", "clusters", "no_checkpoints", "revoked", "late", "effects", "unnamed",
        "schedules", "seed", "threads", "planted"])]
    pub(super) replay: Option<Schedule>,
    /// With --replay or --schedules 1: print every event of the run
    #[arg(long)]
    pub(super) tell: bool,
    /// With --replay or --schedules 1: draw the run as a space-time diagram into this file
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
    /// Draw only these events; either end may be omitted
    #[arg(long, value_name = "FROM..TO", requires = "svg", value_parser = parse_events)]
    pub(super) svg_events: Option<RangeInclusive<u64>>,
    /// Same as `counterfoil reproduce table-1`
    #[arg(long, conflicts_with_all = ["replay", "tell", "svg", "patterns", "ranks", "rounds", "faults", "collections", "clusters",
        "no_checkpoints", "revoked", "late", "effects", "unnamed", "schedules", "seed", "threads", "planted", "protocol", "bits", "moment"])]
    pub(super) table_1: bool,
    /// Print a JSON object and nothing else
    #[arg(long)]
    pub(super) json: bool,
}

/// Another measurement with the state machines.
#[derive(Debug, Subcommand)]
pub(super) enum SimulateCommand {
    Scale(scale::ScaleArguments),
}

/// Value for `--canary`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planted {
    /// List all canaries.
    List,
    /// Plant this canary.
    One(Canary),
}

/// Inclusive range for a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CountRange {
    pub(super) min: u32,
    pub(super) max: u32,
}

impl CountRange {
    fn parse(text: &str, allowed: RangeInclusive<u32>) -> Result<CountRange, String> {
        let number =
            |digits: &str| digits.parse::<u32>().map_err(|_| format!("{digits:?} is not a number; use N or MIN..MAX"));
        let (min, max) = match text.split_once("..") {
            Some((min, max)) => (number(min)?, number(max)?),
            None => (number(text)?, number(text)?),
        };
        if min > max {
            return Err(format!("{min} is more than {max}"));
        }
        if !allowed.contains(&min) || !allowed.contains(&max) {
            return Err(format!("must be from {} to {}", allowed.start(), allowed.end()));
        }
        Ok(CountRange { min, max })
    }
}

impl std::fmt::Display for CountRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.min == self.max { write!(f, "{}", self.min) } else { write!(f, "{} to {}", self.min, self.max) }
    }
}

impl SimulateArguments {
    /// Returns `true` if the output is JSON.
    pub(crate) fn wants_json(&self) -> bool {
        match &self.command {
            Some(SimulateCommand::Scale(arguments)) => arguments.json,
            None => self.json,
        }
    }

    /// Returns the protocol, with its options.
    pub(super) fn rule(&self) -> Rule {
        self.protocol.with_bits(self.bits.unwrap_or_default()).with_moment(self.moment.unwrap_or_default())
    }

    pub(super) fn config(&self) -> Config {
        let properties = self.protocol.properties;
        Config {
            patterns: if self.patterns.is_empty() { Pattern::of(&self.protocol) } else { self.patterns.clone() },
            ranks: (self.ranks.min, self.ranks.max),
            rounds: (self.rounds.min, self.rounds.max),
            faults: (self.faults.min, self.faults.max),
            checkpoints: !self.no_checkpoints,
            ordered: !properties.needs_send_determinism,
            overtaking: properties.allows_overtaking,
            clocks: properties.knows_due_checkpoints,
            collections: range(self.collections, properties.collects),
            clusters: range(self.clusters, self.protocol.takes(RuleOption::Clusters)),
            revoked: self.revoked,
            late: self.late,
            effects: Some(self.effects),
            unnamed: self.unnamed,
            canary: self.canary(),
            ..Config::default()
        }
    }

    /// Returns the canary to plant.
    pub(super) fn canary(&self) -> Option<Canary> {
        match self.planted {
            Some(Planted::One(canary)) => Some(canary),
            Some(Planted::List) | None => None,
        }
    }

    /// Returns `true` if the canaries are to be listed.
    pub(super) fn wants_canaries(&self) -> bool {
        self.planted == Some(Planted::List)
    }

    /// Checks the combination of arguments.
    pub(super) fn check(&self) -> Result<(), String> {
        let requires = [
            ("--unnamed", self.unnamed, logs_all_messages as fn(&Rule) -> bool),
            ("--clusters", self.clusters.is_some(), |rule| rule.takes(RuleOption::Clusters)),
            ("--collections", self.collections.is_some(), |rule| rule.properties.collects),
            ("--late", self.late, |rule| rule.properties.allows_late_frames),
            ("--bits", self.bits.is_some(), |rule| rule.takes(RuleOption::Bits)),
            ("--moment", self.moment.is_some(), |rule| rule.takes(RuleOption::Moment)),
        ];
        if let Some((option, _, allows)) =
            requires.into_iter().find(|(_, is_given, allows)| *is_given && !allows(&self.protocol))
        {
            return Err(format!("{option} requires --protocol {}", protocol::names(allows)));
        }
        if let Some(pattern) = self.patterns.iter().find(|&&pattern| !runs(&self.protocol, pattern)) {
            return Err(format!("--pattern {pattern}: {}", refusal(&self.protocol, *pattern)));
        }
        self.check_canary()
    }

    /// Refuses a canary without effect under the protocol, which could never be found.
    fn check_canary(&self) -> Result<(), String> {
        match self.canary() {
            Some(canary) if !canary.applies_to(&self.protocol) => {
                let known: Vec<String> =
                    Canary::every().filter(|canary| canary.applies_to(&self.protocol)).map(Canary::name).collect();
                let (name, protocol) = (canary.name(), self.protocol.name);
                Err(format!("--canary {name} has no effect under {protocol}; available: {}", known.join(", ")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the consecutive seeds of all schedules, starting with `seed`.
    pub(super) fn seeds(&self, seed: u64) -> Result<Range<u64>, String> {
        let end = seed.checked_add(self.schedules);
        end.map(|end| seed..end).ok_or_else(|| {
            format!(
                "--seed {seed} is too large for {}, which take consecutive seeds",
                plural::schedules(self.schedules)
            )
        })
    }

    pub(super) fn threads(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or_else(processors, |threads| threads as usize)
    }

    /// Returns `true` if an option requests a single run's details.
    pub(super) fn shows_one_run(&self) -> bool {
        self.tell || self.svg.is_some()
    }
}

/// Returns `true` if a rule keeps all messages of all calls: its runs make sense with unnamed receives.
fn logs_all_messages(rule: &Rule) -> bool {
    let properties = rule.properties;
    properties.keeps == Kept::UntilCovered && properties.native_collectives == NativeCollectives::None
}

/// Returns the range for a quantity specific to some rules.
fn range(range: Option<CountRange>, has: bool) -> (u32, u32) {
    match range {
        Some(CountRange { min, max }) => (min, max),
        None if has => (0, 3),
        None => (0, 0),
    }
}

/// Returns `true` if this pattern's programs can run under a rule.
pub(super) fn runs(rule: &Rule, pattern: Pattern) -> bool {
    !Pattern::OF_CALLS.contains(&pattern) || Pattern::of(rule).contains(&pattern)
}

/// Explains why a pattern in [`Pattern::OF_CALLS`] can't run.
pub(super) fn refusal(rule: &Rule, pattern: Pattern) -> String {
    let calls = if runs(rule, Pattern::Calls) { "calls to a root" } else { "collective calls" };
    let others = protocol::names(|rule| runs(rule, pattern));
    format!("{} doesn't run {calls} as a whole; use --protocol {others}", rule.name)
}

fn parse_pattern(name: &str) -> Result<Pattern, String> {
    let known = Pattern::ALL.into_iter().chain(Pattern::OF_CALLS).map(|pattern| pattern.to_string());
    name.parse().map_err(|()| format!("unknown pattern; available: {}", known.collect::<Vec<_>>().join(", ")))
}

fn parse_schedule(line: &str) -> Result<Schedule, String> {
    line.parse().map_err(|error: ScheduleError| error.to_string())
}

fn parse_ranks(text: &str) -> Result<CountRange, String> {
    CountRange::parse(text, 2..=Shape::RANKS_MAX)
}

fn parse_rounds(text: &str) -> Result<CountRange, String> {
    CountRange::parse(text, 1..=Shape::ROUNDS_MAX)
}

fn parse_faults(text: &str) -> Result<CountRange, String> {
    CountRange::parse(text, 0..=FAULTS_MAX)
}

fn parse_collections(text: &str) -> Result<CountRange, String> {
    CountRange::parse(text, 0..=Schedule::COLLECTIONS_MAX)
}

fn parse_clusters(text: &str) -> Result<CountRange, String> {
    CountRange::parse(text, 0..=CLUSTERS_MAX)
}

/// Parses a canary's name, or its spelling in a schedule's line.
fn parse_canary(name: &str) -> Result<Planted, String> {
    if !Canary::PLANTED {
        return Err("this build has no canaries: build the program with `--features planted`".to_owned());
    }
    if name == "list" {
        return Ok(Planted::List);
    }
    let variant = name.rsplit_once('/').map_or(name, |(_, variant)| variant);
    let found = Canary::every().find(|&canary| canary.name() == name || canary.variant() == variant);
    let known = || Canary::every().map(Canary::name).collect::<Vec<_>>().join(", ");
    found.map(Planted::One).ok_or_else(|| format!("unknown canary; available: {}", known()))
}

fn parse_events(text: &str) -> Result<RangeInclusive<u64>, String> {
    let wrong = || format!("{text:?} is not FROM..TO");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let end = |digits: &str, open: u64| if digits.is_empty() { Ok(open) } else { digits.parse().map_err(|_| wrong()) };
    let (from, to) = (end(from, 0)?, end(to, u64::MAX)?);
    if from > to {
        return Err(format!("{from} is more than {to}"));
    }
    Ok(from..=to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_one_number_or_two() {
        assert_eq!(parse_ranks("4"), Ok(CountRange { min: 4, max: 4 }));
        assert_eq!(parse_ranks("2..32"), Ok(CountRange { min: 2, max: 32 }));
        assert_eq!(parse_faults("0"), Ok(CountRange { min: 0, max: 0 }));
        for wrong in ["", "x", "1", "33", "4..2", "2..", "2..33", "1..3", "2...3", "-2"] {
            assert!(parse_ranks(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn canaries_have_unique_names() {
        let mut names = std::collections::BTreeSet::new();
        for canary in Canary::every() {
            assert_eq!(parse_canary(&canary.name()), Ok(Planted::One(canary)));
            assert!(names.insert(canary.name()), "{canary:?}");
        }
        let phase = Canary::every().find(|canary| canary.name() == "phase-not-raised").map(Planted::One);
        assert!(phase.is_some());
        for name in ["PhaseNotRaised", "send-deterministic/PhaseNotRaised"] {
            assert_eq!(parse_canary(name).ok(), phase, "{name}");
        }
        assert_eq!(parse_canary("FreeOneMore"), Ok(Planted::One(Canary::FreeOneMore)));
        assert_eq!(parse_canary("list"), Ok(Planted::List));
        assert!(parse_canary("nightingale").is_err_and(|error| error.contains("drop-record")));
    }

    #[test]
    fn event_ranges_may_be_open() {
        assert_eq!(parse_events("3..9"), Ok(3..=9));
        assert_eq!(parse_events("3.."), Ok(3..=u64::MAX));
        assert_eq!(parse_events("..9"), Ok(0..=9));
        for wrong in ["", "3", "9..3", "a..b", "1..2..3"] {
            assert!(parse_events(wrong).is_err(), "{wrong}");
        }
    }
}
