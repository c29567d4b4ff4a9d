//! Single-schedule replay.

use std::process::ExitCode;

use counterfoil_protocols::api::Rule;
use counterfoil_simulator::{self as simulator, Schedule, diagram};
use serde_json::json;

use super::WIDE_DIAGRAM_STEPS;
use super::options::{SimulateArguments, refusal, runs};
use super::report::{add_coverage, add_options, violation_object};
use crate::plural::count;
use crate::{Failure, print, protocol, write_file};

/// Refuses schedules impossible under the selected protocol.
///
/// A schedule doesn't name its protocol.
fn check(rule: &Rule, schedule: &Schedule) -> Result<(), String> {
    let name = rule.name;
    let needs_coordinator = schedule.collections > 0
        || schedule.clusters > 0
        || schedule.faults.iter().any(|fault| fault.node >= schedule.shape.ranks);
    if needs_coordinator && !rule.properties.has_coordinator {
        let others = protocol::names(|rule| rule.properties.has_coordinator);
        return Err(format!(
            "the schedule needs a coordinator, which {name} doesn't have: did you mean --protocol {others}?"
        ));
    }
    let pattern = schedule.shape.pattern;
    if !runs(rule, pattern) {
        return Err(format!("the schedule's pattern is {pattern}: {}", refusal(rule, pattern)));
    }
    if let Some(canary) = schedule.canary.filter(|canary| canary.is_of_a_rule() && !canary.applies_to(rule)) {
        let others = protocol::names(|rule| canary.applies_to(rule));
        return Err(format!("the schedule's canary doesn't apply to {name}: did you mean --protocol {others}?"));
    }
    Ok(())
}

pub(super) fn run(arguments: &SimulateArguments, schedule: &Schedule) -> Result<ExitCode, Failure> {
    let rule = &arguments.rule();
    check(rule, schedule).map_err(Failure::usage)?;
    let outcome = simulator::run(rule, schedule);
    let story = if arguments.tell { simulator::transcript(rule, schedule).1 } else { Vec::new() };
    if let Some(file) = &arguments.svg {
        let events = arguments.svg_events.clone().unwrap_or(0..=u64::MAX);
        let recording = simulator::record(rule, schedule).1;
        let steps = diagram::steps(schedule, &recording, events.clone());
        if steps == 0 {
            return Err(Failure::usage("--svg-events: the range has no events to draw"));
        }
        if steps > WIDE_DIAGRAM_STEPS && !arguments.json {
            eprintln!("note: the diagram has {steps} steps; --svg-events FROM..TO draws part of it");
        }
        write_file(file, &diagram::svg(schedule, &outcome, &recording, events))?;
    }
    let line = schedule.to_string();
    if arguments.json {
        let mut object = json!({
            "protocol": rule.name,
            "schedule": line,
            "violation": outcome.violation.as_ref().map(violation_object),
            "fingerprint": format!("{:016x}", outcome.fingerprint),
        });
        add_options(&mut object, rule);
        add_coverage(&mut object, &outcome.coverage);
        if arguments.tell {
            object["story"] = json!(story);
        }
        if let Some(file) = &arguments.svg {
            object["svg"] = json!(file);
        }
        print(&object.to_string())?;
    } else {
        let mut lines = story;
        lines.push(line);
        let coverage = &outcome.coverage;
        let events = count(coverage.events, "event", "events");
        let messages = count(coverage.sends, "message", "messages");
        let processes = count(coverage.faults, "process", "processes");
        lines.push(format!("{events}, {messages} sent, {processes} killed"));
        lines.extend(arguments.svg.as_ref().map(|file| format!("diagram: {}", file.display())));
        lines.push(match &outcome.violation {
            Some(violation) => format!("violation at {violation}"),
            None => "no violation".to_owned(),
        });
        print(&lines.join("\n"))?;
    }
    Ok(if outcome.violation.is_some() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}
