//! What can be asked of the simulator.

use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;

use clap::Args;
use counterfoil_runtime::sim::{Canary, Config, Pattern, Schedule, Shape};

use super::protocol::Protocol;
use super::redraw::Redraw;
use super::words;

/// The most failures of processes in one schedule.
const FAULTS_MAX: u32 = 64;
/// The most clusters.
const CLUSTERS_MAX: u32 = 8;
/// The most schedules in one campaign.
const SCHEDULES_MAX: u64 = 1_000_000_000_000;

/// Run a protocol under many random schedules of failures, and check every run.
///
/// Virtual ranks exchange messages in one process, without a clock; what happens next, and who dies when, follows from a
/// seed. Oracles hear of everything and ask neither the protocol nor its log what was right. A schedule that fails is
/// made smaller and printed as one line, with the command that runs it again. Exits with 0 if nothing failed, with 1 if
/// something did, and with 130 if it was interrupted before.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SimulateArguments {
    #[command(subcommand)]
    pub(super) redraw: Option<Redraw>,
    /// The protocol
    #[arg(long, value_enum, default_value_t = Protocol::Plain)]
    pub(super) protocol: Protocol,
    /// Who exchanges messages with whom: stencil, tree, master-worker, ring or graph; several with commas [default: all]
    #[arg(long = "pattern", visible_alias = "workload", value_name = "PATTERN", value_delimiter = ',', value_parser = parse_pattern)]
    patterns: Vec<Pattern>,
    /// How many ranks, from 2 to 32; MIN..MAX has both ends in it
    #[arg(long, value_name = "N|MIN..MAX", default_value = "2..6", value_parser = parse_ranks)]
    pub(super) ranks: Limits,
    /// How many rounds of its pattern a program has, from 1 to 64
    #[arg(long, value_name = "N|MIN..MAX", default_value = "1..4", value_parser = parse_rounds)]
    rounds: Limits,
    /// How many processes die in a schedule, from 0 to 64
    #[arg(long, value_name = "N|MIN..MAX", default_value = "1..3", value_parser = parse_faults)]
    pub(super) faults: Limits,
    /// How many collections a schedule has, from 0 to 64. With --protocol send-deterministic [default: 0..3]
    #[arg(long, value_name = "N|MIN..MAX", value_parser = parse_collections)]
    collections: Option<Limits>,
    /// Into how many clusters the ranks are divided, from 0 (not at all) to 8. With --protocol send-deterministic [default: 0..3]
    #[arg(long, value_name = "N|MIN..MAX", value_parser = parse_clusters)]
    clusters: Option<Limits>,
    /// Programs don't say where a receive can take one of several messages, so that nothing records what it took: plain fails where
    /// bytes depend on that. With --protocol plain or pessimistic, which never asks
    #[arg(long)]
    unnamed: bool,
    /// No rank ever takes a checkpoint
    #[arg(long)]
    no_checkpoints: bool,
    /// How many schedules are run, one for each seed
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=SCHEDULES_MAX))]
    pub(super) schedules: u64,
    /// The first seed; the others follow it one by one [default: from the clock; printed]
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// How many threads run schedules; what is found does not depend on it [default: one for each processor]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// Plant a mistake that the oracles have to find, such as drop-record; `list` names all, and the protocols that they are for
    #[arg(long = "canary", value_name = "NAME|list", value_parser = parse_canary)]
    planted: Option<Planted>,
    /// Run one schedule again, given as the line of text that a failure prints (in quotes)
    #[arg(long, value_name = "SCHEDULE", conflicts_with_all = ["patterns", "ranks", "rounds", "faults", "collections", "clusters", "no_checkpoints", "unnamed",
        "schedules", "seed", "threads", "planted"])]
    pub(super) replay: Option<Schedule>,
    /// With --replay or --schedules 1: tell everything that happens in the run
    #[arg(long)]
    pub(super) tell: bool,
    /// With --replay or --schedules 1: draw the run as a space-time diagram into this file
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
    /// Draw only these events; either end can be left out
    #[arg(long, value_name = "FROM..TO", requires = "svg", value_parser = parse_events)]
    pub(super) svg_events: Option<RangeInclusive<u64>>,
    /// Print Table I of Guermouche 2011 beside what the state machines do: as `counterfoil simulate table-1`
    #[arg(long, conflicts_with_all = ["replay", "tell", "svg", "patterns", "ranks", "rounds", "faults", "collections", "clusters",
        "no_checkpoints", "unnamed", "schedules", "seed", "threads", "planted", "protocol"])]
    pub(super) table_1: bool,
    /// Print one JSON object and nothing else
    #[arg(long)]
    pub(super) json: bool,
}

/// What `--canary` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planted {
    /// Name them all.
    List,
    /// Plant this one.
    One(Canary),
}

/// Fewest and most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) min: u32,
    pub(super) max: u32,
}

impl Limits {
    fn parse(text: &str, allowed: RangeInclusive<u32>) -> Result<Limits, String> {
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
            return Err(format!("must be within {} and {}", allowed.start(), allowed.end()));
        }
        Ok(Limits { min, max })
    }
}

impl std::fmt::Display for Limits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.min == self.max { write!(f, "{}", self.min) } else { write!(f, "{} to {}", self.min, self.max) }
    }
}

impl SimulateArguments {
    /// Whether what is printed is for a program.
    pub(crate) fn wants_json(&self) -> bool {
        self.redraw.as_ref().map_or(self.json, Redraw::json)
    }

    pub(super) fn config(&self) -> Config {
        Config {
            patterns: self.patterns.clone(),
            ranks: (self.ranks.min, self.ranks.max),
            rounds: (self.rounds.min, self.rounds.max),
            faults: (self.faults.min, self.faults.max),
            checkpoints: !self.no_checkpoints,
            ordered: self.protocol.engine().ordered,
            collections: self.of_coordinator(self.collections),
            clusters: self.of_coordinator(self.clusters),
            unnamed: self.unnamed,
            canary: self.canary(),
            ..Config::default()
        }
    }

    /// The mistake that is to be planted.
    pub(super) fn canary(&self) -> Option<Canary> {
        match self.planted {
            Some(Planted::One(canary)) => Some(canary),
            Some(Planted::List) | None => None,
        }
    }

    /// Whether the mistakes that can be planted are to be named.
    pub(super) fn wants_canaries(&self) -> bool {
        self.planted == Some(Planted::List)
    }

    /// What is wrong with these arguments together, if anything is.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.unnamed && self.protocol == Protocol::SendDeterministic {
            return Err("--unnamed: send-deterministic never asks; use --protocol plain or pessimistic".to_owned());
        }
        let given = [("--collections", self.collections), ("--clusters", self.clusters)];
        match given.into_iter().find(|(_, limits)| limits.is_some()) {
            Some((option, _)) if !self.protocol.engine().coordinator => {
                Err(format!("{option}: {} has none; use --protocol send-deterministic", self.protocol.name()))
            }
            _ => self.check_canary(),
        }
    }

    /// A mistake that changes nothing would never be found.
    fn check_canary(&self) -> Result<(), String> {
        match self.canary() {
            Some(canary) if !(self.protocol.engine().heeds)(canary) => {
                let known: Vec<String> = self.protocol.canaries().map(Canary::name).collect();
                let (name, protocol) = (canary.name(), self.protocol.name());
                Err(format!("--canary {name} changes nothing under {protocol}; what does: {}", known.join(", ")))
            }
            _ => Ok(()),
        }
    }

    /// Limits of what only a protocol with a coordinator has.
    fn of_coordinator(&self, limits: Option<Limits>) -> (u32, u32) {
        match limits {
            Some(Limits { min, max }) => (min, max),
            None if self.protocol.engine().coordinator => (0, 3),
            None => (0, 0),
        }
    }

    /// The seeds of all schedules, of which the first is `seed`.
    pub(super) fn seeds(&self, seed: u64) -> Result<Range<u64>, String> {
        let end = seed.checked_add(self.schedules);
        end.map(|end| seed..end).ok_or_else(|| {
            format!("--seed {seed} is too large for {}, each with a seed of its own", words::schedules(self.schedules))
        })
    }

    pub(super) fn threads(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or_else(processors, |threads| threads as usize)
    }

    /// Whether something is asked for that shows a single run.
    pub(super) fn wants_one_run(&self) -> bool {
        self.tell || self.svg.is_some()
    }
}

fn parse_pattern(name: &str) -> Result<Pattern, String> {
    name.parse().map_err(|()| format!("no such pattern; there are {}", Pattern::ALL.map(|p| p.to_string()).join(", ")))
}

fn parse_ranks(text: &str) -> Result<Limits, String> {
    Limits::parse(text, 2..=Shape::RANKS_MAX)
}

fn parse_rounds(text: &str) -> Result<Limits, String> {
    Limits::parse(text, 1..=Shape::ROUNDS_MAX)
}

fn parse_faults(text: &str) -> Result<Limits, String> {
    Limits::parse(text, 0..=FAULTS_MAX)
}

fn parse_collections(text: &str) -> Result<Limits, String> {
    Limits::parse(text, 0..=Schedule::COLLECTIONS_MAX)
}

fn parse_clusters(text: &str) -> Result<Limits, String> {
    Limits::parse(text, 0..=CLUSTERS_MAX)
}

/// The mistake of this name, which may be written as in a schedule's line, too.
fn parse_canary(name: &str) -> Result<Planted, String> {
    if name == "list" {
        return Ok(Planted::List);
    }
    let in_a_line = |canary: Canary| match canary {
        Canary::SendDeterministic(canary) => format!("{canary:?}"),
        Canary::Pessimistic(canary) => format!("{canary:?}"),
        canary => format!("{canary:?}"),
    };
    let variant = name.rsplit_once('/').map_or(name, |(_, variant)| variant);
    let found = Canary::every().find(|&canary| canary.name() == name || in_a_line(canary) == variant);
    let known = || Canary::every().map(Canary::name).collect::<Vec<_>>().join(", ");
    found.map(Planted::One).ok_or_else(|| format!("no such mistake; there are {}", known()))
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
    fn limits_are_one_number_or_two() {
        assert_eq!(parse_ranks("4"), Ok(Limits { min: 4, max: 4 }));
        assert_eq!(parse_ranks("2..32"), Ok(Limits { min: 2, max: 32 }));
        assert_eq!(parse_faults("0"), Ok(Limits { min: 0, max: 0 }));
        for wrong in ["", "x", "1", "33", "4..2", "2..", "2..33", "1..3", "2...3", "-2"] {
            assert!(parse_ranks(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_canary_has_a_name_of_its_own() {
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
    fn events_may_lack_an_end() {
        assert_eq!(parse_events("3..9"), Ok(3..=9));
        assert_eq!(parse_events("3.."), Ok(3..=u64::MAX));
        assert_eq!(parse_events("..9"), Ok(0..=9));
        for wrong in ["", "3", "9..3", "a..b", "1..2..3"] {
            assert!(parse_events(wrong).is_err(), "{wrong}");
        }
    }
}
