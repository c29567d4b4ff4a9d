//! One run, looked at closely.

use std::path::Path;
use std::process::ExitCode;

use clap::ValueEnum;
use counterfoil_runtime::sim::{Canary, Schedule, diagram};
use serde_json::json;

use super::STEPS_WIDE;
use super::options::SimulateArguments;
use super::protocol::Protocol;
use super::report::{met, violation_object};
use super::words::count;
use crate::{Failure, print};

/// A line doesn't say which protocol it is of; but some can't be of this one.
fn check(arguments: &SimulateArguments, schedule: &Schedule) -> Result<(), String> {
    let has_coordinator = arguments.protocol.engine().coordinator;
    let name = arguments.protocol.name();
    let of_other = schedule.collections > 0
        || schedule.clusters > 0
        || schedule.faults.iter().any(|fault| fault.node >= schedule.shape.ranks);
    if of_other && !has_coordinator {
        return Err(format!(
            "{name} has no coordinator, and this line needs one: is it of --protocol send-deterministic?"
        ));
    }
    let another = |canary: &Canary| canary.is_of_a_rule() && !(arguments.protocol.engine().heeds)(*canary);
    if let Some(canary) = schedule.canary.filter(another) {
        let right = Protocol::value_variants().iter().find(|protocol| (protocol.engine().heeds)(canary));
        let right = right.map_or("another protocol", |protocol| protocol.name());
        return Err(format!("this line's mistake is not one of {name}: is it of --protocol {right}?"));
    }
    Ok(())
}

pub(super) fn run(arguments: &SimulateArguments, schedule: &Schedule) -> Result<ExitCode, Failure> {
    let engine = arguments.protocol.engine();
    check(arguments, schedule).map_err(Failure::usage)?;
    let outcome = (engine.run)(schedule);
    let story = if arguments.tell { (engine.tell)(schedule).1 } else { Vec::new() };
    if let Some(file) = &arguments.svg {
        let events = arguments.svg_events.clone().unwrap_or(0..=u64::MAX);
        let recording = (engine.record)(schedule).1;
        let steps = diagram::steps(schedule, &recording, events.clone());
        if steps == 0 {
            return Err(Failure::usage("--svg-events: nothing is to be seen in these events"));
        }
        if steps > STEPS_WIDE && !arguments.json {
            eprintln!("note: the picture has {steps} steps; --svg-events FROM..TO draws a part of it");
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
        met(&mut object, &outcome.coverage);
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
        let met = &outcome.coverage;
        let events = count(met.events, "event", "events");
        let messages = count(met.sends, "message", "messages");
        let processes = count(met.faults, "process", "processes");
        lines.push(format!("{events}, {messages} sent, {processes} killed"));
        lines.extend(arguments.svg.as_ref().map(|file| format!("drawn in {}", file.display())));
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
