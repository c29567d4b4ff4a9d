//! Text form of a schedule: one line, written and read.
//!
//! ```text
//! sim1 pattern=ring ranks=3 rounds=2 program=17 checkpoints=2 ordered=0 tier=volatile mode=uniform seed=5 \
//!     faults=31:2:9
//! ```
//!
//! `faults` are event (or `end`, of the run), node and seed, and the number of the event's effects before the death, if
//! the node dies within it. A list of choices is `mode=list:3,0x12,1`; `0x12` is twelve times 0. `collections` and
//! `clusters` are written only if they aren't 0, `late=1`, `revoked=1`, `unnamed=1`, `background=1` and `overtaking=1`
//! only if true, and `canary` only if there is one: a variant's name, preceded by the rule's name for a rule's mistake
//! (`send-deterministic/PhaseNotRaised`).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::canary::Canary;
use super::program::{Pattern, Shape};
use super::schedule::{Fault, Mode, Schedule, Tier};

/// First word of a line, with the version of the format.
const VERSION: &str = "sim1";

/// Word for a fault's event at the end of the run.
const END: &str = "end";

/// Largest accepted number of choices.
const CHOICES_MAX: usize = 1 << 24;

/// Error in parsing a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// First word other than the accepted version.
    #[error("a schedule begins with `{VERSION}`, not with `{found}`")]
    Version {
        /// First word.
        found: String,
    },
    /// Unknown word, or a repeated field.
    #[error("`{word}` is not a field of a schedule, or is there twice")]
    Word {
        /// Word found.
        word: String,
    },
    /// Missing, malformed, or out-of-range field.
    #[error("the field `{field}` of a schedule is missing, malformed or out of range")]
    Field {
        /// Field name.
        field: &'static str,
    },
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { pattern, ranks, rounds, seed, checkpoint_one_in, ordered } = self.shape;
        write!(f, "{VERSION} pattern={pattern} ranks={ranks} rounds={rounds} program={seed}")?;
        write!(f, " checkpoints={checkpoint_one_in} ordered={}", u8::from(ordered))?;
        let tier = match self.tier {
            Tier::Volatile => "volatile",
            Tier::ProcessCrashSafe => "crash-safe",
        };
        write!(f, " tier={tier} mode=")?;
        match &self.mode {
            Mode::Uniform => f.write_str("uniform")?,
            Mode::Priorities { falls } => write!(f, "priorities:{falls}")?,
            Mode::Stalls { stalls } => write!(f, "stalls:{stalls}")?,
            Mode::Listed(choices) => {
                f.write_str("list:")?;
                write_choices(f, choices)?;
            }
        }
        write!(f, " seed={} faults=", self.seed)?;
        for (place, Fault { at, node, seed, effects }) in self.faults.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            f.write_str(comma)?;
            match *at {
                u64::MAX => f.write_str(END)?,
                at => write!(f, "{at}")?,
            }
            write!(f, ":{node}:{seed}")?;
            effects.map_or(Ok(()), |effects| write!(f, ":{effects}"))?;
        }
        for (name, number) in [("collections", self.collections), ("clusters", self.clusters)] {
            if number > 0 {
                write!(f, " {name}={number}")?;
            }
        }
        if self.late {
            f.write_str(" late=1")?;
        }
        if self.revoked {
            f.write_str(" revoked=1")?;
        }
        if self.unnamed {
            f.write_str(" unnamed=1")?;
        }
        if self.clocks {
            f.write_str(" clocks=1")?;
        }
        if self.background {
            f.write_str(" background=1")?;
        }
        if self.overtaking {
            f.write_str(" overtaking=1")?;
        }
        self.canary.map_or(Ok(()), |canary| write!(f, " canary={canary}"))
    }
}

fn write_choices(f: &mut fmt::Formatter<'_>, choices: &[u32]) -> fmt::Result {
    for (place, run) in choices.chunk_by(|a, b| a == b).enumerate() {
        let comma = if place > 0 { "," } else { "" };
        match run {
            [one] => write!(f, "{comma}{one}")?,
            [first, ..] => write!(f, "{comma}{first}x{}", run.len())?,
            [] => {}
        }
    }
    Ok(())
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    /// Parses text written by [`Display`](fmt::Display); fields may come in any order.
    fn from_str(line: &str) -> Result<Schedule, ScheduleError> {
        let mut words = line.split_whitespace();
        let found = words.next().unwrap_or_default();
        if found != VERSION {
            return Err(ScheduleError::Version { found: found.into() });
        }
        let mut fields = Fields::default();
        words.try_for_each(|word| fields.note(word))?;
        let (ranks, rounds) = (fields.number("ranks")?, fields.number("rounds")?);
        if !(2..=Shape::RANKS_MAX).contains(&ranks) {
            return Err(ScheduleError::Field { field: "ranks" });
        }
        if !(1..=Shape::ROUNDS_MAX).contains(&rounds) {
            return Err(ScheduleError::Field { field: "rounds" });
        }
        let collections = fields.number_or_0("collections")?;
        if collections > Schedule::COLLECTIONS_MAX {
            return Err(ScheduleError::Field { field: "collections" });
        }
        let pattern: Pattern = fields.number("pattern")?;
        if pattern.fixed_ranks().is_some_and(|fixed| fixed != ranks) {
            return Err(ScheduleError::Field { field: "ranks" });
        }
        Ok(Schedule {
            shape: Shape {
                pattern,
                ranks,
                rounds,
                seed: fields.number("program")?,
                checkpoint_one_in: fields.number("checkpoints")?,
                ordered: fields.parsed("ordered", parse_flag)?,
            },
            tier: fields.parsed("tier", parse_tier)?,
            mode: fields.parsed("mode", parse_mode)?,
            seed: fields.number("seed")?,
            faults: fields.parsed("faults", parse_faults)?,
            collections,
            clusters: fields.number_or_0("clusters")?,
            late: fields.is_there("late") && fields.parsed("late", parse_flag)?,
            revoked: fields.is_there("revoked") && fields.parsed("revoked", parse_flag)?,
            unnamed: fields.is_there("unnamed") && fields.parsed("unnamed", parse_flag)?,
            clocks: fields.is_there("clocks") && fields.parsed("clocks", parse_flag)?,
            background: fields.is_there("background") && fields.parsed("background", parse_flag)?,
            overtaking: fields.is_there("overtaking") && fields.parsed("overtaking", parse_flag)?,
            canary: if fields.is_there("canary") { Some(fields.parsed("canary", parse_canary)?) } else { None },
        })
    }
}

const NAMES: [&str; 19] = [
    "pattern",
    "ranks",
    "rounds",
    "program",
    "checkpoints",
    "ordered",
    "tier",
    "mode",
    "seed",
    "faults",
    "collections",
    "clusters",
    "late",
    "revoked",
    "unnamed",
    "clocks",
    "background",
    "overtaking",
    "canary",
];

/// Text of each present field.
#[derive(Default)]
struct Fields<'a>([Option<&'a str>; NAMES.len()]);

impl<'a> Fields<'a> {
    fn note(&mut self, word: &'a str) -> Result<(), ScheduleError> {
        let unknown = || ScheduleError::Word { word: word.into() };
        let (name, text) = word.split_once('=').ok_or_else(unknown)?;
        let place = NAMES.iter().position(|&known| known == name).ok_or_else(unknown)?;
        match self.0[place].replace(text) {
            None => Ok(()),
            Some(_) => Err(unknown()),
        }
    }

    fn text(&self, field: &'static str) -> Option<&'a str> {
        let place = NAMES.iter().position(|&known| known == field);
        place.and_then(|place| self.0[place])
    }

    fn is_there(&self, field: &'static str) -> bool {
        self.text(field).is_some()
    }

    fn number_or_0(&self, field: &'static str) -> Result<u32, ScheduleError> {
        if self.is_there(field) { self.number(field) } else { Ok(0) }
    }

    fn parsed<T>(&self, field: &'static str, parse: impl FnOnce(&'a str) -> Option<T>) -> Result<T, ScheduleError> {
        self.text(field).and_then(parse).ok_or(ScheduleError::Field { field })
    }

    fn number<T: FromStr>(&self, field: &'static str) -> Result<T, ScheduleError> {
        self.parsed(field, |text| text.parse().ok())
    }
}

fn parse_flag(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

fn parse_tier(text: &str) -> Option<Tier> {
    match text {
        "volatile" => Some(Tier::Volatile),
        "crash-safe" => Some(Tier::ProcessCrashSafe),
        _ => None,
    }
}

fn parse_mode(text: &str) -> Option<Mode> {
    if text == "uniform" {
        return Some(Mode::Uniform);
    }
    if let Some(falls) = text.strip_prefix("priorities:") {
        return Some(Mode::Priorities { falls: falls.parse().ok()? });
    }
    if let Some(stalls) = text.strip_prefix("stalls:") {
        return Some(Mode::Stalls { stalls: stalls.parse().ok()? });
    }
    let mut choices = Vec::new();
    for run in text.strip_prefix("list:")?.split(',').filter(|run| !run.is_empty()) {
        let (choice, times) = run.split_once('x').unwrap_or((run, "1"));
        let times: usize = times.parse().ok()?;
        if times > CHOICES_MAX - choices.len() {
            return None;
        }
        choices.resize(choices.len() + times, choice.parse().ok()?);
    }
    Some(Mode::Listed(choices))
}

fn parse_faults(text: &str) -> Option<Vec<Fault>> {
    let mut faults = Vec::new();
    for fault in text.split(',').filter(|fault| !fault.is_empty()) {
        let (at, rest) = fault.split_once(':')?;
        let at = if at == END { u64::MAX } else { at.parse().ok()? };
        let mut numbers = rest.split(':').map(str::parse::<u64>);
        let node = u32::try_from(numbers.next()?.ok()?).ok()?;
        let seed = numbers.next()?.ok()?;
        let effects = numbers.next().transpose().ok()?.map(u32::try_from).transpose().ok()?;
        if numbers.next().is_some() {
            return None;
        }
        faults.push(Fault { at, node, seed, effects });
    }
    Some(faults)
}

fn parse_canary(text: &str) -> Option<Canary> {
    Canary::every().find(|canary| canary.to_string() == text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::program::Pattern;

    const LINE: &str = "sim1 pattern=ring ranks=3 rounds=2 program=17 checkpoints=2 ordered=0 tier=volatile \
                        mode=uniform seed=5 faults=31:2:9,40:0:1";

    fn schedules() -> impl Strategy<Value = Schedule> {
        let shape = (0..Pattern::ALL.len(), 2..=32_u32, 1..=64_u32, any::<u64>(), any::<u32>(), any::<bool>());
        let mode = prop_oneof![
            Just(Mode::Uniform),
            any::<u32>().prop_map(|falls| Mode::Priorities { falls }),
            any::<u32>().prop_map(|stalls| Mode::Stalls { stalls }),
            prop::collection::vec(0..3_u32, 0..20).prop_map(Mode::Listed),
        ];
        let at = prop_oneof![any::<u64>(), Just(u64::MAX)];
        let fault = (at, any::<u32>(), any::<u64>(), prop::option::of(any::<u32>()));
        let fault = fault.prop_map(|(at, node, seed, effects)| Fault { at, node, seed, effects });
        let canaries: Vec<Canary> = Canary::every().collect();
        let canary = prop::option::of((0..canaries.len()).prop_map(move |place| canaries[place]));
        let counts = (0..=Schedule::COLLECTIONS_MAX, any::<u32>(), any::<[bool; 6]>());
        let tier = prop_oneof![Just(Tier::Volatile), Just(Tier::ProcessCrashSafe)];
        let all = (shape, mode, any::<u64>(), prop::collection::vec(fault, 0..4), canary, tier, counts);
        all.prop_map(
            |(
                (pattern, ranks, rounds, program, checkpoint_one_in, ordered),
                mode,
                seed,
                faults,
                canary,
                tier,
                counts,
            )| {
                let (collections, clusters, [late, revoked, unnamed, clocks, background, overtaking]) = counts;
                let pattern = Pattern::ALL[pattern];
                let shape = Shape { pattern, ranks, rounds, seed: program, checkpoint_one_in, ordered };
                Schedule {
                    shape,
                    tier,
                    mode,
                    seed,
                    faults,
                    collections,
                    clusters,
                    late,
                    revoked,
                    unnamed,
                    clocks,
                    background,
                    overtaking,
                    canary,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_written_schedule_is_read_back(schedule in schedules()) {
            prop_assert_eq!(schedule.to_string().parse(), Ok(schedule));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "(sim1 )?([a-z]{1,8}=[a-z0-9:,x]{0,12} ){0,12}") {
            let _ = text.parse::<Schedule>();
        }
    }

    #[test]
    fn a_line_has_every_field_once_and_in_its_range() {
        let read = |line: String| line.parse::<Schedule>();
        assert_eq!(read(LINE.into()).map(|schedule| schedule.to_string()), Ok(LINE.to_string()));
        let changed = |from: &str, to: &str| read(LINE.replacen(from, to, 1));
        assert_eq!(changed("sim1", "sim2"), Err(ScheduleError::Version { found: "sim2".into() }));
        assert_eq!(changed("seed=5", "sed=5"), Err(ScheduleError::Word { word: "sed=5".into() }));
        assert_eq!(changed("seed=5", "ranks=5"), Err(ScheduleError::Word { word: "ranks=5".into() }));
        assert_eq!(changed("seed=5", ""), Err(ScheduleError::Field { field: "seed" }));
        for (from, to, field) in [
            ("ranks=3", "ranks=1", "ranks"),
            ("ranks=3", "ranks=33", "ranks"),
            ("rounds=2", "rounds=0", "rounds"),
            ("ring", "rong", "pattern"),
            ("ordered=0", "ordered=2", "ordered"),
            ("volatile", "solid", "tier"),
            ("uniform", "list:0x99999999999", "mode"),
            ("31:2:9", "31:2", "faults"),
            ("31:2:9", "31:2:9:9:9", "faults"),
        ] {
            assert_eq!(changed(from, to), Err(ScheduleError::Field { field }), "{to}");
        }
    }
}
