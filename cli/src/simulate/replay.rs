//! Replay of a single schedule.

use std::path::Path;
use std::process::ExitCode;

use clap::ValueEnum;
use counterfoil_simulator::{Canary, Schedule, diagram};
use serde_json::json;

use super::WIDE_DIAGRAM_STEPS;
use super::options::SimulateArguments;
use super::protocol::Protocol;
use super::report::{add_coverage, violation_object};
use crate::plural::count;
use crate::{Failure, print};

/// Refuses schedules that can't be of the selected protocol. A schedule doesn't name its protocol.
fn check(arguments: &SimulateArguments, schedule: &Schedule) -> Result<(), String> {
    let has_coordinator = arguments.protocol.engine().coordinator;
    let name = arguments.protocol.name();
    let needs_coordinator = schedule.collections > 0
        || schedule.clusters > 0
        || schedule.faults.iter().any(|fault| fault.node >= schedule.shape.ranks);
    if needs_coordinator && !has_coordinator {
        return Err(format!(
            "the schedule needs a coordinator, which {name} doesn't have: did you mean --protocol send-deterministic?"
        ));
    }
    let pattern = schedule.shape.pattern;
    if !arguments.protocol.runs(pattern) {
        return Err(format!("the schedule's pattern is {pattern}: {}", arguments.protocol.refusal(pattern)));
    }
    let other_protocols = |canary: &Canary| canary.is_of_a_rule() && !(arguments.protocol.engine().applies)(*canary);
    if let Some(canary) = schedule.canary.filter(other_protocols) {
        let right = Protocol::value_variants().iter().find(|protocol| (protocol.engine().applies)(canary));
        let right = right.map_or("another protocol", |protocol| protocol.name());
        return Err(format!("the schedule's canary doesn't apply to {name}: did you mean --protocol {right}?"));
    }
    Ok(())
}

pub(super) fn run(arguments: &SimulateArguments, schedule: &Schedule) -> Result<ExitCode, Failure> {
    let engine = arguments.protocol.engine();
    check(arguments, schedule).map_err(Failure::usage)?;
    let outcome = (engine.run)(schedule);
    let story = if arguments.tell { (engine.transcript)(schedule).1 } else { Vec::new() };
    if let Some(file) = &arguments.svg {
        let events = arguments.svg_events.clone().unwrap_or(0..=u64::MAX);
        let recording = (engine.record)(schedule).1;
        let steps = diagram::steps(schedule, &recording, events.clone());
        if steps == 0 {
            return Err(Failure::usage("--svg-events: the range has no events to draw"));
        }
        if steps > WIDE_DIAGRAM_STEPS && !arguments.json {
            eprintln!("note: the diagram has {steps} steps; --svg-events FROM..TO draws part of it");
        }
        write(file, &diagram::svg(schedule, &outcome, &recording, events))?;
    }
    let line = schedule.to_string();
    if arguments.json {
        let mut object = json!({
            "protocol": arguments.protocol.name(),
            "schedule": line,
            "violation": outcome.violation.as_ref().map(violation_object),
            "fingerprint": format!("{:016x}", outcome.fingerprint),
        });
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

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(file, text).map_err(|error| Failure::failed(format!("cannot write {}: {error}", file.display())))
}
