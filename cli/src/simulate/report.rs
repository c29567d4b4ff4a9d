//! What is printed at the end of a campaign.

use std::fmt::Write;
use std::ops::Range;

use counterfoil_runtime::sim::{self, Coverage, Shrunk, Violation};
use serde_json::{Value, json};

use super::campaign::Tally;
use super::options::SimulateArguments;
use super::protocol::{Engine, Protocol};
use super::words::{count, schedules};

/// How many runs are spent on making a failing schedule smaller.
const SHRINK_RUNS_MAX: u32 = 5_000;
/// How many coverage counters there are in a line.
const COLUMNS: usize = 2;

/// The first failure.
pub(super) struct Found {
    seed: u64,
    /// The schedule of the seed, as it was drawn, and what is wrong with it.
    schedule: String,
    violation: Violation,
    /// The smallest that fails in the same way.
    small: Option<Shrunk>,
    replay: String,
}

impl Found {
    /// Makes a failure as small as it gets.
    pub(super) fn shrink(engine: &Engine, protocol: Protocol, failure: &sim::Failure) -> Found {
        let small = failure.schedule.parse().ok().and_then(|schedule| (engine.shrink)(&schedule, SHRINK_RUNS_MAX));
        let smallest = small.as_ref().map_or_else(|| failure.schedule.clone(), |small| small.schedule.to_string());
        // A schedule has no quotes in it.
        let replay = format!("counterfoil simulate --protocol {} --replay '{smallest}'", protocol.name());
        let (seed, schedule, violation) = (failure.seed, failure.schedule.clone(), failure.violation.clone());
        Found { seed, schedule, violation, small, replay }
    }
}

/// Everything that is to be said.
pub(super) struct Report<'a> {
    pub(super) arguments: &'a SimulateArguments,
    pub(super) seeds: Range<u64>,
    pub(super) tally: Tally,
    pub(super) found: Option<Found>,
}

impl Report<'_> {
    /// Whether fewer schedules were run than were asked for.
    pub(super) fn interrupted(&self) -> bool {
        self.tally.summary.schedules < self.arguments.schedules
    }

    pub(super) fn to_json(&self) -> String {
        let Tally { summary, kinds, lost, duplicated, reordered, seeds_failed } = &self.tally;
        let found = self.found.as_ref().map(|found| {
            json!({
                "seed": found.seed,
                "schedule": found.schedule,
                "violation": violation_object(&found.violation),
                "shrunk": found.small.as_ref().map(|small| json!({
                    "schedule": small.schedule.to_string(),
                    "violation": violation_object(&small.violation),
                    "runs": small.runs,
                })),
                "replay": found.replay,
            })
        });
        let mut object = json!({
            "protocol": self.arguments.protocol.name(),
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
            "failure": found,
            "fingerprint": format!("{:016x}", summary.fingerprint),
        });
        met(&mut object, &summary.coverage);
        object.to_string()
    }

    pub(super) fn to_text(&self) -> String {
        let Tally { summary, kinds, lost, duplicated, reordered, .. } = &self.tally;
        let SimulateArguments { protocol, ranks, faults, .. } = self.arguments;
        let (name, first) = (protocol.name(), self.seeds.start);
        let last = first + summary.schedules.saturating_sub(1);
        let faults = if faults.max == 1 && faults.min == 1 { "1 fault".into() } else { format!("{faults} faults") };
        let mut text = format!("{} of {name}, {ranks} ranks, {faults}", schedules(summary.schedules));
        if let Some(canary) = self.arguments.canary() {
            let _ = write!(text, ", with the planted mistake {}", canary.name());
        }
        let _ = match summary.schedules {
            0 => writeln!(text, "; the first seed would have been {first}"),
            1 => writeln!(text, "; seed {first}"),
            _ => writeln!(text, "; seeds {first} to {last}"),
        };
        for line in counters(&summary.coverage) {
            let _ = writeln!(text, "  {line}");
        }
        let _ = write!(text, "{} failed: {lost} lost, {duplicated} duplicated, {reordered} reordered", summary.failed);
        if !kinds.is_empty() {
            let kinds: Vec<String> = kinds.iter().map(|(kind, times)| format!("{kind} {times}")).collect();
            let _ = write!(text, " ({})", kinds.join(", "));
        }
        if let Some(found) = &self.found {
            let _ = write!(text, "\n\nthe first is seed {}, at {}\n  {}", found.seed, found.violation, found.schedule);
            if let Some(Shrunk { schedule, violation, runs }) = &found.small {
                let runs = count((*runs).into(), "run", "runs");
                let _ = write!(text, "\nthe smallest of its kind, after {runs}, at {violation}\n  {schedule}");
            }
            let _ =
                write!(text, "\nto run it again (--tell tells what happens, --svg FILE draws it):\n  {}", found.replay);
        }
        text
    }
}

/// All counters, two in a line.
fn counters(coverage: &Coverage) -> Vec<String> {
    let each: Vec<(&str, u64)> = coverage.each().collect();
    let rows = each.len().div_ceil(COLUMNS);
    let cell = |(name, count): &(&str, u64)| format!("{:<26}{count:>14}", name.replace('_', " "));
    let line =
        |row: usize| (row..each.len()).step_by(rows).map(|place| cell(&each[place])).collect::<Vec<_>>().join("    ");
    (0..rows).map(line).collect()
}

/// A violation as an object: where, what kind, in words, and its fields.
pub(super) fn violation_object(violation: &Violation) -> Value {
    json!({
        "event": violation.event,
        "kind": violation.wrong.name(),
        "words": violation.wrong.to_string(),
        "fields": violation.wrong,
    })
}

/// Puts all coverage counters into an object, each under its name.
pub(super) fn met(object: &mut Value, coverage: &Coverage) {
    for (name, count) in coverage.each() {
        object[name] = json!(count);
    }
}
