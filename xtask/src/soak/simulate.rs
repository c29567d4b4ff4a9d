//! `cargo xtask soak simulate`: runs `counterfoil simulate` for all protocols, with settings drawn from wide ranges.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use clap::Args;
use serde_json::{Value, json};

use super::listed::{Listed, Protocol};
use super::random::SplitMix64;
use super::{clear_progress, seed_from_clock, show_progress};
use crate::table::Table;
use crate::workspace::{TaskError, Workspace, command_line};

/// Rank classes, with the maximum rounds of each: the effects of many ranks show in the first rounds.
const RANKS: [(u32, u32, u32); 4] = [(2, 2, 16), (3, 4, 12), (5, 8, 5), (9, 16, 2)];
/// Classes by faults per schedule.
const FAULTS: [(u32, u32); 3] = [(0, 1), (2, 4), (5, 10)];
/// Maximum schedules per process, all with the same ranges of settings.
///
/// One process takes a minute at most.
const SCHEDULES_PER_SLICE: u64 = 5_000;
/// Counters shown in the table, with their headings.
const COLUMNS: [(&str, &str); 6] = [
    ("faults", "faults"),
    ("faults_during_recovery", "in recovery"),
    ("in_flight_lost", "lost in flight"),
    ("replayed", "replayed"),
    ("duplicates", "duplicates dropped"),
    ("violations", "violations"),
];

/// Counters for the ways to split calls with four ranks.
const SPLITS: [&str; 2] = ["splits_at_faults", "splits_at_lines"];
/// Counters of schedules' settings, alone and in pairs.
const SETTINGS: &str = "settings";
/// Minimum occurrences per hard case in a protocol, over so many schedules.
const HARD_CASES_MIN: u64 = 1_000;
const HARD_SCHEDULES_MIN: u64 = 1_000_000;

/// Maximum number of effects before a process dies within an event.
const EFFECTS_MAX: u32 = 12;

/// Options for `cargo xtask soak simulate`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of schedules over all protocols and values of their options, or of the one given
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    schedules: u64,
    /// Run only this protocol
    #[arg(long)]
    protocol: Option<String>,
    /// Seed for all schedules [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// Protocol with option values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Variant<'a> {
    protocol: &'a Protocol,
    bits: Option<&'a str>,
    moment: Option<&'a str>,
}

impl<'a> Variant<'a> {
    /// Returns the protocol with each combination of values.
    fn all(protocol: &'a Protocol) -> Vec<Variant<'a>> {
        fn each(values: &[String]) -> Vec<Option<&str>> {
            if values.is_empty() { vec![None] } else { values.iter().map(|value| Some(value.as_str())).collect() }
        }
        let of_bits = |bits| each(&protocol.moment).into_iter().map(move |moment| Variant { protocol, bits, moment });
        each(&protocol.bits).into_iter().flat_map(of_bits).collect()
    }
}

impl std::fmt::Display for Variant<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = [Some(self.protocol.name.as_str()), self.bits, self.moment];
        f.write_str(&words.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

/// Slices of one protocol variant, with ranks and faults in one class.
struct Group<'a> {
    variant: Variant<'a>,
    ranks: (u32, u32),
    rounds_max: u32,
    faults: (u32, u32),
    schedules: u64,
    /// Each counter's sum over the slices.
    counters: BTreeMap<String, u64>,
}

/// A protocol's hard case, with its number of occurrences.
#[derive(Debug, PartialEq, Eq)]
struct HardCase<'a> {
    variant: Variant<'a>,
    name: &'a str,
    count: u64,
    /// The variant's schedule count.
    schedules: u64,
}

impl HardCase<'_> {
    /// Returns `true` if at least [`HARD_SCHEDULES_MIN`] schedules have met it less often than [`HARD_CASES_MIN`]
    /// times.
    fn is_missed(&self) -> bool {
        self.schedules >= HARD_SCHEDULES_MIN && self.count < HARD_CASES_MIN
    }
}

impl std::fmt::Display for HardCase<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} met {} only {} times", self.variant, self.name, self.count)
    }
}

/// A slice's settings: ranges from which its schedules are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settings {
    ranks: (u32, u32),
    rounds: (u32, u32),
    faults: (u32, u32),
    collections: (u32, u32),
    clusters: (u32, u32),
    revoked: bool,
    late: bool,
    checkpoints: bool,
    effects: u32,
}

impl Settings {
    /// Draws settings within a rank class and a fault class.
    fn draw(random: &mut SplitMix64, group: &Group) -> Self {
        let mut range = |first, last| {
            let low = random.in_range(first, last);
            (low, random.in_range(low, last))
        };
        Settings {
            ranks: range(group.ranks.0, group.ranks.1),
            rounds: range(1, group.rounds_max),
            faults: range(group.faults.0, group.faults.1),
            collections: range(0, 6),
            clusters: range(0, 4),
            revoked: random.in_range(0, 2) == 0,
            checkpoints: random.in_range(0, 5) > 0,
            late: random.in_range(0, 2) == 0,
            effects: random.in_range(0, EFFECTS_MAX),
        }
    }

    fn arguments(&self, variant: &Variant) -> Vec<String> {
        let Variant { protocol, bits, moment } = variant;
        let range = |(first, last): (u32, u32)| format!("{first}..{last}");
        let mut arguments = vec!["simulate".to_owned()];
        let mut add = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
        add("protocol", protocol.name.clone());
        for (name, value) in [("bits", bits), ("moment", moment)] {
            value.iter().for_each(|value| add(name, (*value).to_owned()));
        }
        add("ranks", range(self.ranks));
        add("rounds", range(self.rounds));
        add("faults", range(self.faults));
        if protocol.collects {
            add("collections", range(self.collections));
        }
        if protocol.clusters {
            add("clusters", range(self.clusters));
        }
        add("effects", self.effects.to_string());
        arguments.extend((self.late && protocol.allows_late_frames).then(|| "--late".to_owned()));
        arguments.extend(self.revoked.then(|| "--revoked".to_owned()));
        arguments.extend((!self.checkpoints).then(|| "--no-checkpoints".to_owned()));
        arguments
    }
}

/// A failed slice.
struct Failure {
    /// Command that repeats the slice.
    command: String,
    /// The violation and the command that replays the smallest failing schedule, or the program's output.
    details: String,
}

/// Runs the soak test.
///
/// Returns `true` if no slice failed.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let seed = options.seed.unwrap_or_else(seed_from_clock);
    let program = workspace.build_release()?;
    let mut random = SplitMix64::new(seed);
    let listed = Listed::by(&program)?;
    let mut groups = groups(&listed.protocols(options.protocol.as_deref())?);
    let mut failures = Vec::new();
    let mut done = 0;
    // The groups take turns, so that each has its share whatever the number of schedules.
    let slice = SCHEDULES_PER_SLICE.min(options.schedules.div_ceil(groups.len() as u64));
    for turn in (0..groups.len()).cycle() {
        let schedules = slice.min(options.schedules - done);
        if schedules == 0 {
            break;
        }
        let group = &mut groups[turn];
        let settings = Settings::draw(&mut random, group);
        let mut command = Command::new(&program);
        // 32 bits keep the seed short enough to type.
        let slice_seed = random.next_u64() >> 32;
        command.args(settings.arguments(&group.variant));
        command.args(["--schedules", &schedules.to_string(), "--seed", &slice_seed.to_string(), "--json"]);
        group.schedules += schedules;
        failures.extend(run_slice(command, group)?);
        done += schedules;
        report_progress(done, options.schedules, group, failures.len());
    }
    let hard = hard_cases(&groups);
    let has_passed = failures.is_empty() && !hard.iter().any(HardCase::is_missed);
    print_report(options, seed, &groups, &failures, &hard, has_passed);
    Ok(has_passed)
}

/// Returns all combinations of the protocols' variants with rank and fault classes.
fn groups<'a>(protocols: &[&'a Protocol]) -> Vec<Group<'a>> {
    let mut groups = Vec::new();
    for variant in protocols.iter().flat_map(|protocol| Variant::all(protocol)) {
        for (first, last, rounds_max) in RANKS {
            for faults in FAULTS {
                let (ranks, counters) = ((first, last), BTreeMap::new());
                groups.push(Group { variant, ranks, rounds_max, faults, schedules: 0, counters });
            }
        }
    }
    groups
}

/// Returns the groups' variants, in their order.
fn variants<'a>(groups: &[Group<'a>]) -> Vec<Variant<'a>> {
    let mut variants: Vec<Variant> = groups.iter().map(|group| group.variant).collect();
    variants.dedup();
    variants
}

/// Returns the hard cases for the variants that have run.
fn hard_cases<'a>(groups: &[Group<'a>]) -> Vec<HardCase<'a>> {
    let of = |variant: Variant<'a>| {
        let groups = move || groups.iter().filter(move |group| group.variant == variant);
        let schedules: u64 = groups().map(|group| group.schedules).sum();
        let names = variant.protocol.hard_cases.iter().filter(move |_| schedules > 0);
        names.map(move |name| {
            let count = groups().filter_map(|group| group.counters.get(name)).sum();
            HardCase { variant, name, count, schedules }
        })
    };
    variants(groups).into_iter().flat_map(of).collect()
}

/// Runs a slice and adds its counters to the group.
///
/// Returns the failure, if any.
fn run_slice(mut command: Command, group: &mut Group) -> Result<Option<Failure>, TaskError> {
    let line = command_line(&command);
    let output = command.output().map_err(|source| TaskError::Start { program: line.clone(), source })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(&text).unwrap_or_default();
    add_counters(&mut group.counters, &report);
    if output.status.success() && report["violations"] == 0 {
        return Ok(None);
    }
    let violation = &report["failure"];
    let details = match violation["replay"].as_str() {
        Some(replay) => {
            let words = [&violation["shrunk"], violation].map(|found| found["violation"]["words"].as_str());
            format!("{}\n  {replay}", words.into_iter().flatten().next().unwrap_or("a violation"))
        }
        None => format!("{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr)),
    };
    clear_progress();
    eprintln!("FAILED: {line}\n  {details}");
    Ok(Some(Failure { command: line, details }))
}

/// Adds a report's numbers, except those that are not counts.
///
/// The name of a split or a setting follows its group's name and a colon.
fn add_counters(counters: &mut BTreeMap<String, u64>, report: &Value) {
    for (name, value) in report.as_object().into_iter().flatten() {
        if let (Some(count), false) = (value.as_u64(), matches!(name.as_str(), "seed" | "schedules_wanted")) {
            *counters.entry(name.clone()).or_default() += count;
        }
        if SPLITS.contains(&name.as_str()) || name == SETTINGS {
            for (case, count) in value.as_object().into_iter().flatten() {
                *counters.entry(format!("{name}: {case}")).or_default() += count.as_u64().unwrap_or(0);
            }
        }
    }
}

/// Returns the cases in a group of counters, as named by [`add_counters`].
fn cases<'a>(counters: &'a BTreeMap<String, u64>, group: &str) -> impl Iterator<Item = (&'a str, u64)> + Clone {
    counters.iter().filter_map(move |(name, count)| Some((name.strip_prefix(group)?.strip_prefix(": ")?, *count)))
}

/// Formats the number of ways met to split a call with four ranks; `None` if there was none.
fn splits_met(counters: &BTreeMap<String, u64>, group: &str) -> Option<String> {
    let splits = cases(counters, group);
    let (ways, met) = (splits.clone().count(), splits.filter(|(_, count)| *count > 0));
    let (split, fewest) = met.clone().min_by_key(|(_, count)| *count)?;
    Some(format!("{} of {ways}, fewest of those {split}: {fewest}", met.count()))
}

/// Settings met by a variant's schedules.
struct Settled<'a> {
    variant: Variant<'a>,
    /// Number of schedules with a setting, or with two joined by `and`.
    schedules: BTreeMap<&'a str, u64>,
}

impl<'a> Settled<'a> {
    /// Adds up each variant's groups, in their order.
    fn of_each(groups: &'a [Group<'a>]) -> Vec<Settled<'a>> {
        let mut all: Vec<Settled> = Vec::new();
        for group in groups {
            if all.last().is_none_or(|last| last.variant != group.variant) {
                all.push(Settled { variant: group.variant, schedules: BTreeMap::new() });
            }
            let Some(Settled { schedules, .. }) = all.last_mut() else { continue };
            for (setting, count) in cases(&group.counters, SETTINGS) {
                *schedules.entry(setting).or_default() += count;
            }
        }
        all
    }

    /// Returns the pairs met by no schedule, although each of the two was met.
    fn never_met(&self) -> Vec<&'a str> {
        let is_met = |setting: &str| self.schedules.get(setting).is_some_and(|count| *count > 0);
        let pairs = self.schedules.iter().filter_map(|(name, count)| Some((*name, name.split_once(" and ")?, *count)));
        pairs.filter(|(_, (a, b), count)| *count == 0 && is_met(a) && is_met(b)).map(|(name, ..)| name).collect()
    }
}

/// Prints the number of each protocol's schedules with each setting, and the pairs met by none.
fn print_settings(groups: &[Group]) {
    let all = Settled::of_each(groups);
    let variants: Vec<String> = all.iter().map(|settled| settled.variant.to_string()).collect();
    let mut table = Table::new(std::iter::once("schedules with").chain(variants.iter().map(String::as_str)));
    let names = all.iter().flat_map(|settled| settled.schedules.keys().copied());
    for name in names.filter(|name| !name.contains(" and ")).collect::<BTreeSet<_>>() {
        let count = |settled: &Settled| settled.schedules.get(name).copied().unwrap_or(0).to_string();
        table.row(std::iter::once(name.to_owned()).chain(all.iter().map(count)));
    }
    println!("\n{table}");
    for settled in &all {
        match &settled.never_met()[..] {
            [] => println!("{}: every pair of these was met", settled.variant),
            never => println!("{}: never met: {}", settled.variant, never.join("; ")),
        }
    }
    println!();
}

fn report_progress(done: u64, total: u64, group: &Group, failed: usize) {
    let line = format!("{done} of {total} schedules, {failed} slices failed; last: {group}");
    show_progress(&line, done == total, true);
}

impl std::fmt::Display for Group<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Group { variant, ranks, faults, .. } = self;
        write!(f, "{variant}, {} to {} ranks, {} to {} faults", ranks.0, ranks.1, faults.0, faults.1)
    }
}

/// Prints the table or the JSON object.
fn print_report(
    options: &Options,
    seed: u64,
    groups: &[Group],
    failures: &[Failure],
    hard: &[HardCase],
    has_passed: bool,
) {
    let missed = || hard.iter().filter(|case| case.is_missed());
    let mut total: BTreeMap<String, u64> = BTreeMap::new();
    for (name, count) in groups.iter().flat_map(|group| &group.counters) {
        *total.entry(name.clone()).or_default() += count;
    }
    if options.json {
        let groups = groups.iter().map(|group| {
            let Group { variant, ranks, faults, counters, .. } = group;
            json!({ "protocol": variant.to_string(), "ranks": ranks, "faults": faults, "counters": counters })
        });
        let failures_json =
            failures.iter().map(|failure| json!({ "command": failure.command, "what": failure.details }));
        println!(
            "{}",
            json!({
                "seed": seed,
                "passed": has_passed,
                "counters": total,
                "hard_cases": hard.iter().map(|case| json!([case.variant.to_string(), case.name, case.count])).collect::<Vec<_>>(),
                "hard_cases_missed": missed().map(HardCase::to_string).collect::<Vec<_>>(),
                "groups": groups.collect::<Vec<_>>(),
                "wrong": failures_json.collect::<Vec<_>>(),
            })
        );
        return;
    }
    let heading = ["protocol", "ranks", "faults per schedule", "schedules"];
    let mut table = Table::new(heading.into_iter().chain(COLUMNS.map(|(_, heading)| heading)));
    for group in groups {
        let counts = COLUMNS.map(|(name, _)| group.counters.get(name).copied().unwrap_or(0).to_string());
        let [ranks, faults] = [group.ranks, group.faults].map(|(first, last)| format!("{first}..{last}"));
        let words = [group.variant.to_string(), ranks, faults, group.schedules.to_string()];
        table.row(words.into_iter().chain(counts));
    }
    println!("\n{table}");
    print_settings(groups);
    for (name, count) in total.iter().filter(|(name, _)| !name.contains(": ")) {
        println!("{name:<26}{count:>16}");
    }
    for (group, met) in SPLITS.iter().filter_map(|group| Some((group, splits_met(&total, group)?))) {
        println!("{group}: {met}");
    }
    for variant in variants(groups) {
        let cases = hard.iter().filter(|case| case.variant == variant);
        if let Some(HardCase { name, count, .. }) = cases.clone().min_by_key(|case| case.count) {
            println!("{variant}: {} hard cases, fewest of those {name}: {count}", cases.count());
        }
    }
    missed().for_each(|case| println!("FAILED: {case}; a million schedules should meet it {HARD_CASES_MIN} times"));
    let result = if has_passed { "passed" } else { "FAILED" };
    println!("{} schedules, {} slices failed, seed {seed}: {result}", options.schedules, failures.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_counts_are_added() {
        let mut counters = BTreeMap::new();
        let report =
            json!({ "seed": 7, "schedules_wanted": 9, "schedules": 4, "faults": 5, "protocol": "plain", "lost": 0 });
        add_counters(&mut counters, &report);
        add_counters(&mut counters, &report);
        let expected = [("faults", 10), ("lost", 0), ("schedules", 8)].map(|(name, count)| (name.to_owned(), count));
        assert_eq!(counters, BTreeMap::from(expected));
    }

    #[test]
    fn splits_are_counted_by_group_and_name() {
        let mut counters = BTreeMap::new();
        let report =
            json!({ "splits_at_lines": { "barrier beyond 1": 5, "barrier beyond 2": 0, "barrier beyond 3": 2 } });
        add_counters(&mut counters, &report);
        add_counters(&mut counters, &report);
        assert_eq!(counters["splits_at_lines: barrier beyond 1"], 10);
        let met = splits_met(&counters, "splits_at_lines").expect("two are met");
        assert_eq!(met, "2 of 3, fewest of those barrier beyond 3: 4");
        assert_eq!(splits_met(&counters, "splits_at_faults"), None);
    }

    #[test]
    fn a_hard_case_that_a_million_schedules_hardly_meet_is_a_failure() {
        let listed = Listed::sample();
        let mut all = groups(&listed.protocols(Some("plain")).unwrap());
        let counters = || ["replayed", "overtaken"].map(|case| (case.to_owned(), HARD_CASES_MIN)).into_iter().collect();
        (all[0].schedules, all[0].counters) = (HARD_SCHEDULES_MIN - 1, counters());
        let count = HARD_CASES_MIN - 1;
        all[0].counters.insert("overtaken".to_owned(), count);
        fn missed<'a>(all: &[Group<'a>]) -> Vec<HardCase<'a>> {
            hard_cases(all).into_iter().filter(HardCase::is_missed).collect()
        }
        assert_eq!((hard_cases(&all).len(), missed(&all)), (2, vec![]));
        all[1].schedules = 1;
        let variant = all[0].variant;
        assert_eq!(missed(&all), [HardCase { variant, name: "overtaken", count, schedules: HARD_SCHEDULES_MIN }]);
        all[1].counters.insert("overtaken".to_owned(), 1);
        assert_eq!(missed(&all), []);
    }

    #[test]
    fn a_protocol_has_a_variant_for_each_combination_of_its_options() {
        let listed = Listed::sample();
        let variants = variants(&groups(&listed.protocols(None).unwrap()));
        let names: Vec<String> = variants.iter().map(Variant::to_string).collect();
        let of_bits = ["exchanged any-time", "exchanged offered", "piggybacked any-time", "piggybacked offered"];
        let of_bits = of_bits.map(|values| format!("of-bits {values}"));
        assert_eq!((&names[..2], &names[2..]), (&["plain".to_owned(), "of-clusters".to_owned()][..], &of_bits[..]));
    }

    #[test]
    fn pairs_of_settings_that_were_met_alone_only_are_named() {
        let listed = Listed::sample();
        let mut all = groups(&listed.protocols(None).unwrap());
        let report = |late: u64, both: u64| json!({ "settings": { "2 ranks": 4, "late": late, "clusters": 0, "2 ranks and late": both, "2 ranks and clusters": 0 } });
        add_counters(&mut all[0].counters, &report(2, 0));
        add_counters(&mut all[5].counters, &report(0, 0));
        add_counters(&mut all[12].counters, &report(2, 1));
        let settled = Settled::of_each(&all);
        assert_eq!(settled.iter().map(|settled| settled.variant).collect::<Vec<_>>(), variants(&all));
        assert_eq!((settled[0].schedules["2 ranks"], settled[1].schedules["2 ranks"]), (8, 4));
        assert_eq!((settled[0].never_met(), settled[1].never_met()), (vec!["2 ranks and late"], vec![]));
    }

    #[test]
    fn settings_stay_within_their_class_and_reach_its_ends() {
        let listed = Listed::sample();
        let plain = groups(&listed.protocols(Some("plain")).unwrap());
        let (mut random, mut seen) = (SplitMix64::new(1), [false; 6]);
        for _ in 0..200 {
            let drawn = Settings::draw(&mut random, &plain[8]);
            for ((low, high), (first, last)) in [(drawn.ranks, (5, 8)), (drawn.rounds, (1, 5)), (drawn.faults, (5, 10))]
            {
                assert!(first <= low && low <= high && high <= last, "{drawn:?}");
            }
            let reached = [
                drawn.ranks.0 == 5,
                drawn.ranks.1 == 8,
                drawn.revoked,
                !drawn.checkpoints,
                drawn.late,
                drawn.effects == EFFECTS_MAX,
            ];
            seen.iter_mut().zip(reached).for_each(|(seen, reached)| *seen |= reached);
        }
        assert_eq!(seen, [true; 6]);
        let settings = Settings { late: true, ..Settings::draw(&mut random, &plain[0]) };
        assert!(settings.arguments(&plain[0].variant).contains(&"2..2".to_owned()));
        let all = groups(&listed.protocols(None).unwrap());
        for variant @ Variant { protocol, .. } in variants(&all) {
            let arguments = settings.arguments(&variant);
            let has = |option: &str| arguments.contains(&option.to_owned());
            assert_eq!((has("--collections"), has("--clusters")), (protocol.collects, protocol.clusters));
            assert_eq!((has("--late"), has("--bits")), (protocol.allows_late_frames, !protocol.bits.is_empty()));
        }
        assert_eq!((all.len(), plain.len()), (72, 12));
    }

    #[test]
    fn a_failed_program_and_a_violation_are_failures() {
        let listed = Listed::sample();
        let mut group = groups(&listed.protocols(Some("plain")).unwrap()).remove(0);
        let failure = run_slice(Command::new("false"), &mut group).expect("it starts").expect("it fails");
        assert!(failure.details.contains("exit status: 1"), "{}", failure.details);
        let mut violation = Command::new("echo");
        violation.arg(r#"{"violations": 1, "failure": {"replay": "again", "violation": {"words": "bad"}}}"#);
        let failure = run_slice(violation, &mut group).expect("it starts").expect("it fails");
        assert_eq!(failure.details, "bad\n  again");
        let mut good = Command::new("echo");
        good.arg(r#"{"violations": 0, "schedules": 3}"#);
        assert!(run_slice(good, &mut group).expect("it starts").is_none());
        assert_eq!(group.counters.get("schedules"), Some(&3));
    }
}
