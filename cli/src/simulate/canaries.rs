//! Canaries and the protocols they apply to.

use std::process::ExitCode;

use counterfoil_protocols::RULES;
use counterfoil_simulator::Canary;
use serde_json::{Value, json};

use crate::{Failure, print};

/// Prints the list, for `--canary list`.
pub(super) fn run(as_json: bool) -> Result<ExitCode, Failure> {
    if as_json {
        let row = |canary: Canary| {
            let (name, protocols, description) = (canary.name(), protocols(canary), canary.description());
            json!({ "name": name, "protocols": protocols, "description": description })
        };
        print(&Value::Array(Canary::every().map(row).collect()).to_string())?;
    } else {
        let width = Canary::every().map(|canary| canary.name().len()).max().unwrap_or(0);
        let row = |canary: Canary| {
            let (name, protocols, description) = (canary.name(), protocols(canary), canary.description());
            format!("{name:<width$}  {}\n{:width$}  {description}", protocols.join(", "), "")
        };
        print(&Canary::every().map(row).collect::<Vec<String>>().join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn protocols(canary: Canary) -> Vec<&'static str> {
    let rules =
        RULES.iter().filter(|rule| (rule.properties.recovers() || canary.is_of_a_rule()) && canary.applies_to(rule));
    rules.map(|rule| rule.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_canary_applies_to_a_protocol() {
        for canary in Canary::every() {
            assert!(!protocols(canary).is_empty(), "{canary:?}");
        }
        assert_eq!(
            protocols(Canary::ForgetChoices),
            ["sender-based", "user-level", "event-logging", "message-tagging"]
        );
        assert_eq!(protocols(Canary::DropRecord), ["sender-based", "pessimistic", "send-deterministic", "user-level"]);
        for mistake in counterfoil_canaries::Canary::ALL {
            let known = protocols(Canary::Rule(mistake));
            match mistake.family() {
                "chandy_lamport" => {
                    assert!(known.iter().all(|name| ["event-logging", "message-tagging"].contains(name)))
                }
                // Two forms of one rule.
                "on_failure" => assert!(known.iter().all(|name| name.starts_with("on-failure"))),
                family => assert_eq!(known, [family.replace('_', "-")]),
            }
        }
    }
}
