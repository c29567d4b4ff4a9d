//! The list of canaries and the protocols that they apply to.

use std::process::ExitCode;

use clap::ValueEnum;
use counterfoil_simulator::Canary;
use serde_json::{Value, json};

use super::protocol::Protocol;
use crate::{Failure, print};

/// Prints the list, for `--canary list`.
pub(super) fn run(as_json: bool) -> Result<ExitCode, Failure> {
    let rows: Vec<(String, Vec<&str>)> = Canary::every().map(|canary| (canary.name(), protocols(canary))).collect();
    if as_json {
        let rows = rows.iter().map(|(name, protocols)| json!({ "name": name, "protocols": protocols }));
        print(&Value::Array(rows.collect()).to_string())?;
    } else {
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let lines: Vec<String> =
            rows.iter().map(|(name, protocols)| format!("{name:<width$}  {}", protocols.join(", "))).collect();
        print(&lines.join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn protocols(canary: Canary) -> Vec<&'static str> {
    let applies = |protocol: &&Protocol| (protocol.engine().applies)(canary);
    Protocol::value_variants().iter().filter(applies).map(|protocol| protocol.name()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_canary_applies_to_a_protocol() {
        for canary in Canary::every() {
            assert!(!protocols(canary).is_empty(), "{canary:?}");
        }
        assert_eq!(protocols(Canary::ForgetChoices), ["plain", "user-level", "event-logging", "message-tagging"]);
        let chandy_lamport = ["event-logging", "message-tagging"];
        assert!(
            Canary::of_chandy_lamport()
                .all(|canary| protocols(canary).iter().all(|name| chandy_lamport.contains(name)))
        );
        assert_eq!(protocols(Canary::DropRecord), ["plain", "pessimistic", "send-deterministic", "user-level"]);
        let coordinated = ["coordinated", "coordinated-offered"];
        assert!(Canary::of_coordinated().all(|canary| protocols(canary) == coordinated));
        assert!(Canary::of_pessimistic().all(|canary| protocols(canary) == ["pessimistic"]));
        assert!(Canary::of_user_level().all(|canary| protocols(canary) == ["user-level"]));
        assert!(Canary::of_send_deterministic().all(|canary| protocols(canary) == ["send-deterministic"]));
    }
}
