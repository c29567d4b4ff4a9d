//! `counterfoil list`: protocols and programs.

use std::process::ExitCode;

use clap::Args;
use counterfoil_protocols::RULES;
use counterfoil_protocols::api::{Bits, Moment, Rule, RuleOption};
use counterfoil_runtime::transport::CallKind;
use counterfoil_simulator::Coverage;
use counterfoil_workloads::{Class, NAMES, Workload, by_name};
use serde_json::{Value, json};

use crate::{Failure, print};

/// Upper limit for the numbers of ranks tried with each program.
const RANKS_MAX: u32 = 8;

/// List the protocols and the other commands' programs.
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Print only a JSON object, with what tests need to know about each
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(arguments: &ListArguments) -> Result<ExitCode, Failure> {
    let programs = NAMES.map(|name| by_name(name, Class::default()));
    let programs = programs.into_iter().collect::<Result<Vec<_>, _>>().map_err(Failure::failed)?;
    let text = if arguments.json {
        let protocols: Vec<Value> = RULES.iter().map(protocol).collect();
        let programs: Vec<Value> = programs.iter().map(|program| object(program.as_ref())).collect();
        json!({ "protocols": protocols, "programs": programs }).to_string()
    } else {
        let width = RULES.iter().map(|rule| rule.name.len()).max().unwrap_or(0);
        let protocols = RULES.map(|rule| format!("  {:width$}  {}: {}", rule.name, rule.paper, rule.summary));
        let programs: Vec<String> = programs.iter().map(|program| format!("  {}", line(program.as_ref()))).collect();
        format!("protocols:\n{}\nprograms:\n{}", protocols.join("\n"), programs.join("\n"))
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn protocol(rule: &Rule) -> Value {
    let properties = rule.properties;
    let values = |option, names: Vec<&'static str>| if rule.takes(option) { names } else { Vec::new() };
    json!({
        "name": rule.name,
        "paper": rule.paper,
        "summary": rule.summary,
        "clusters": rule.takes(RuleOption::Clusters),
        "bits": values(RuleOption::Bits, Bits::ALL.map(Bits::name).to_vec()),
        "moment": values(RuleOption::Moment, Moment::ALL.map(Moment::name).to_vec()),
        "recovers": properties.recovers(),
        "collects": properties.collects,
        "checkpoints_when_asked": properties.checkpoints_when_asked(),
        "needs_send_determinism": properties.needs_send_determinism,
        "allows_late_frames": properties.allows_late_frames,
        "hard_cases": Coverage::hard_cases(&properties).collect::<Vec<_>>(),
    })
}

/// Returns the numbers of ranks supported by a program, up to [`RANKS_MAX`].
fn ranks(program: &dyn Workload) -> Vec<u32> {
    (1..=RANKS_MAX).filter(|ranks| program.validate(*ranks).is_ok()).collect()
}

fn object(program: &dyn Workload) -> Value {
    let calls = [
        (CallKind::Send, "send"),
        (CallKind::Receive, "receive"),
        (CallKind::Collective, "collective"),
        (CallKind::Checkpoint, "checkpoint"),
    ];
    let calls: Vec<&str> = calls.into_iter().filter(|(call, _)| program.makes(*call)).map(|(_, name)| name).collect();
    let ranks = ranks(program);
    let of_each = |count: &u32| (0..*count).map(|rank| program.iterations(rank, *count).at_least).collect::<Vec<_>>();
    json!({
        "name": program.name(),
        "send_deterministic": program.deterministic(),
        "calls": calls,
        "iterations": ranks.iter().flat_map(of_each).min(),
        "ranks": ranks,
    })
}

fn line(program: &dyn Workload) -> String {
    let order = if program.deterministic() { "" } else { "; sends depend on the order of receives" };
    format!("{}{order}", program.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_protocols_are_described_by_what_they_do() {
        let program = |name| object(by_name(name, Class::S).unwrap().as_ref());
        let cg = program("cg");
        assert_eq!((&cg["ranks"], &cg["iterations"]), (&json!([1, 2, 4, 8]), &json!(15)));
        assert_eq!(cg["calls"], json!(["send", "receive", "checkpoint"]));
        assert_eq!(program("gauss")["calls"], json!(["collective", "checkpoint"]));
        assert_eq!((&program("disks")["send_deterministic"], &cg["send_deterministic"]), (&json!(false), &json!(true)));
        let [coordinated, unlogged] = ["coordinated", "unlogged"].map(|name| protocol(&Rule::named(name).unwrap()));
        assert_eq!(coordinated["bits"], json!(["exchanged", "piggybacked"]));
        assert_eq!((&unlogged["recovers"], &unlogged["bits"]), (&json!(false), &json!([])));
    }
}
