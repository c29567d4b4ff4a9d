//! Campaign report.

use std::fmt::Write;
use std::ops::Range;

use counterfoil_protocols::api::{Rule, RuleOption};
use counterfoil_simulator::{self as simulator, Coverage, Shrunk, Violation};
use serde_json::{Value, json};

use super::campaign::Tally;
use super::options::SimulateArguments;
use crate::plural::{count, schedules};
use crate::protocol;

/// Maximum number of runs for shrinking a schedule.
const SHRINK_RUNS_MAX: u32 = 5_000;
/// Number of coverage counters per line.
const COLUMNS: usize = 2;

/// A campaign's first failure.
pub(super) struct FirstFailure {
    seed: u64,
    /// Schedule generated from the seed.
    schedule: String,
    violation: Violation,
    /// Smallest schedule found with the same violation kind.
    small: Option<Shrunk>,
    /// Command replaying the smallest schedule.
    replay: String,
}

impl FirstFailure {
    /// Shrinks a failure's schedule.
    pub(super) fn shrink(rule: &Rule, failure: &simulator::Failure) -> FirstFailure {
        let small =
            failure.schedule.parse().ok().and_then(|schedule| simulator::shrink(rule, &schedule, SHRINK_RUNS_MAX));
        let smallest = small.as_ref().map_or_else(|| failure.schedule.clone(), |small| small.schedule.to_string());
        // A schedule contains no quotes.
        let replay = format!("counterfoil simulate {} --replay '{smallest}'", protocol::options(rule));
        let (seed, schedule, violation) = (failure.seed, failure.schedule.clone(), failure.violation.clone());
        FirstFailure { seed, schedule, violation, small, replay }
    }
}

/// Report contents.
pub(super) struct Report<'a> {
    pub(super) arguments: &'a SimulateArguments,
    pub(super) rule: Rule,
    pub(super) seeds: Range<u64>,
    pub(super) tally: Tally,
    pub(super) failure: Option<FirstFailure>,
}

impl Report<'_> {
    /// Returns `true` if fewer schedules were run than requested.
    pub(super) fn interrupted(&self) -> bool {
        self.tally.summary.schedules < self.arguments.schedules
    }

    pub(super) fn to_json(&self) -> String {
        let Tally { summary, kinds, lost, duplicated, reordered, seeds_failed } = &self.tally;
        let failure = self.failure.as_ref().map(|failure| {
            json!({
                "seed": failure.seed,
                "schedule": failure.schedule,
                "violation": violation_object(&failure.violation),
                "shrunk": failure.small.as_ref().map(|small| json!({
                    "schedule": small.schedule.to_string(),
                    "violation": violation_object(&small.violation),
                    "runs": small.runs,
                })),
                "replay": failure.replay,
            })
        });
        let mut object = json!({
            "protocol": self.rule.name,
            "seed": self.seeds.start,
            "schedules": summary.schedules,
            "schedules_wanted": self.arguments.schedules,
            "interrupted": self.interrupted(),
            "violations": summary.failed,
            "lost": lost,
            "duplicated": duplicated,
            "reordered": reordered,
            "kinds": kinds,
            "seeds_failed": seeds_failed,
            "failure": failure,
            "fingerprint": format!("{:016x}", summary.fingerprint),
        });
        add_options(&mut object, &self.rule);
        object["settings"] = counts(summary.settings.each());
        add_coverage(&mut object, &summary.coverage);
        object.to_string()
    }

    pub(super) fn to_text(&self) -> String {
        let Tally { summary, kinds, lost, duplicated, reordered, .. } = &self.tally;
        let SimulateArguments { ranks, faults, .. } = self.arguments;
        let (name, first) = (self.rule.name, self.seeds.start);
        let last = first + summary.schedules.saturating_sub(1);
        let faults = if faults.max == 1 && faults.min == 1 { "1 fault".into() } else { format!("{faults} faults") };
        let mut text = format!("{} of {name}, {ranks} ranks, {faults}", schedules(summary.schedules));
        if let Some(canary) = self.arguments.canary() {
            let _ = write!(text, ", with canary {}", canary.name());
        }
        let _ = match summary.schedules {
            0 => writeln!(text, "; the first seed would have been {first}"),
            1 => writeln!(text, "; seed {first}"),
            _ => writeln!(text, "; seeds {first} to {last}"),
        };
        for line in counters(&summary.coverage) {
            let _ = writeln!(text, "  {line}");
        }
        for (name, splits) in summary.coverage.splits() {
            let (ways, met) = (splits.each().count(), splits.each().map(|(_, count)| count).filter(|count| *count > 0));
            if let Some(fewest) = met.clone().min() {
                let (name, met) = (name.replace('_', " "), met.count());
                let _ = writeln!(text, "  {name}: {met} of {ways}, each {fewest} times or more");
            }
        }
        let _ = write!(text, "{} failed: {lost} lost, {duplicated} duplicated, {reordered} reordered", summary.failed);
        if !kinds.is_empty() {
            let kinds: Vec<String> = kinds.iter().map(|(kind, times)| format!("{kind} {times}")).collect();
            let _ = write!(text, " ({})", kinds.join(", "));
        }
        if let Some(failure) = &self.failure {
            let _ = write!(
                text,
                "\n\nfirst failure: seed {}, at {}\n  {}",
                failure.seed, failure.violation, failure.schedule
            );
            if let Some(Shrunk { schedule, violation, runs }) = &failure.small {
                let runs = count((*runs).into(), "run", "runs");
                let _ = write!(text, "\nshrunk in {runs}, at {violation}\n  {schedule}");
            }
            let _ =
                write!(text, "\nto replay it (--tell prints every event, --svg FILE draws it):\n  {}", failure.replay);
        }
        text
    }
}

/// Formats the coverage counters in columns.
fn counters(coverage: &Coverage) -> Vec<String> {
    let each: Vec<(&str, u64)> = coverage.each().collect();
    let rows = each.len().div_ceil(COLUMNS);
    let cell = |(name, count): &(&str, u64)| format!("{:<26}{count:>14}", name.replace('_', " "));
    let line =
        |row: usize| (row..each.len()).step_by(rows).map(|place| cell(&each[place])).collect::<Vec<_>>().join("    ");
    (0..rows).map(line).collect()
}

/// Converts a violation to a JSON object: event, kind, description and fields.
pub(super) fn violation_object(violation: &Violation) -> Value {
    json!({
        "event": violation.event,
        "kind": violation.kind.name(),
        "words": violation.kind.to_string(),
        "fields": violation.kind,
    })
}

/// Adds each coverage counter to an object, under its name.
///
/// The splits are separate objects.
pub(super) fn add_coverage(object: &mut Value, coverage: &Coverage) {
    for (name, count) in coverage.each() {
        object[name] = json!(count);
    }
    for (name, splits) in coverage.splits() {
        object[name] = counts(splits.each());
    }
}

/// Adds a rule's options to an object, except clusters, which are in schedules.
pub(super) fn add_options(object: &mut Value, rule: &Rule) {
    if rule.takes(RuleOption::Bits) {
        object["bits"] = json!(rule.options.bits.name());
    }
    if rule.takes(RuleOption::Moment) {
        object["moment"] = json!(rule.options.moment.name());
    }
}

/// Converts counters to an object.
fn counts(each: impl Iterator<Item = (String, u64)>) -> Value {
    each.map(|(name, count)| (name, json!(count))).collect()
}
