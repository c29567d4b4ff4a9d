//! Protocols and programs described by `counterfoil list`.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::workspace::{TaskError, json_output};

/// Output of `counterfoil list --json`.
#[derive(Debug, Deserialize)]
pub(super) struct Listed {
    protocols: Vec<Protocol>,
    pub(super) programs: Vec<Program>,
}

/// Recovery protocol.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Protocol {
    pub(super) name: String,
    /// The protocol takes `--clusters`.
    pub(super) clusters: bool,
    /// Values of `--bits`.
    pub(super) bits: Vec<String>,
    /// Values of `--moment`.
    pub(super) moment: Vec<String>,
    recovers: bool,
    /// The coordinator begins collections, or lines of checkpoints, on request.
    pub(super) collects: bool,
    /// Ranks take checkpoints only on request.
    pub(super) checkpoints_when_asked: bool,
    pub(super) needs_send_determinism: bool,
    pub(super) allows_late_frames: bool,
    /// Counters that long campaigns have to raise.
    pub(super) hard_cases: Vec<String>,
}

/// A demo program.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Program {
    pub(super) name: String,
    /// The program's sends don't depend on the order of receives.
    pub(super) send_deterministic: bool,
    /// Kinds of MPI calls made by the program.
    pub(super) calls: Vec<String>,
    /// Number of iterations reached by every rank with the demo's default size.
    pub(super) iterations: u32,
    /// Supported rank counts, among the smaller ones.
    pub(super) ranks: Vec<u32>,
}

impl Listed {
    /// Runs `counterfoil list` and parses its output.
    pub(super) fn by(program: &Path) -> Result<Listed, TaskError> {
        let mut command = Command::new(program);
        command.args(["list", "--json"]);
        let listed = json_output(&mut command)?;
        let program = program.display().to_string();
        serde_json::from_value(listed).map_err(|error| TaskError::Output { program, reason: error.to_string() })
    }

    /// Returns the protocols that survive failures; only one, if a name is given.
    ///
    /// # Errors
    /// [`TaskError::Protocol`] if no such protocol has the name.
    pub(super) fn protocols(&self, name: Option<&str>) -> Result<Vec<&Protocol>, TaskError> {
        let recovering = || self.protocols.iter().filter(|protocol| protocol.recovers);
        let named: Vec<&Protocol> =
            recovering().filter(|protocol| name.is_none_or(|name| name == protocol.name)).collect();
        if named.is_empty() {
            let known: Vec<&str> = recovering().map(|protocol| protocol.name.as_str()).collect();
            return Err(TaskError::Protocol { name: name.unwrap_or_default().to_owned(), known: known.join(", ") });
        }
        Ok(named)
    }
}

/// Lists for tests.
#[cfg(test)]
impl Listed {
    /// Returns protocols and programs of each kind.
    pub(super) fn sample() -> Listed {
        let protocol = |name: &str, hard_cases: &[&str]| Protocol {
            name: name.to_owned(),
            clusters: false,
            bits: Vec::new(),
            moment: Vec::new(),
            recovers: true,
            collects: false,
            checkpoints_when_asked: false,
            needs_send_determinism: false,
            allows_late_frames: false,
            hard_cases: hard_cases.iter().map(|case| (*case).to_owned()).collect(),
        };
        let program = |name: &str, ranks: &[u32], calls: &[&str]| Program {
            name: name.to_owned(),
            send_deterministic: true,
            calls: calls.iter().map(|call| (*call).to_owned()).collect(),
            iterations: 12,
            ranks: ranks.to_vec(),
        };
        let of_clusters = Protocol {
            clusters: true,
            collects: true,
            needs_send_determinism: true,
            allows_late_frames: true,
            ..protocol("of-clusters", &["orphans", "rollbacks"])
        };
        let of_bits = Protocol {
            bits: ["exchanged", "piggybacked"].map(str::to_owned).to_vec(),
            moment: ["any-time", "offered"].map(str::to_owned).to_vec(),
            collects: true,
            checkpoints_when_asked: true,
            ..protocol("of-bits", &["late", "rollbacks"])
        };
        let lossy = Protocol { recovers: false, ..protocol("lossy", &[]) };
        let any = [1, 2, 3, 4, 5, 6, 7, 8];
        Listed {
            protocols: vec![protocol("plain", &["replayed", "overtaken"]), of_clusters, of_bits, lossy],
            programs: vec![
                program("grid", &[1, 2, 4, 8], &["send", "receive", "checkpoint"]),
                program("ring", &any, &["send", "receive", "collective", "checkpoint"]),
                program("sums", &any, &["collective", "checkpoint"]),
                Program {
                    send_deterministic: false,
                    ..program("tasks", &any[1..], &["send", "receive", "collective", "checkpoint"])
                },
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_protocol_is_named_or_all_that_recover_are_meant() {
        let listed = Listed::sample();
        let names = |name| -> Result<Vec<&str>, String> {
            let protocols = listed.protocols(name).map_err(|error| error.to_string())?;
            Ok(protocols.iter().map(|protocol| protocol.name.as_str()).collect())
        };
        assert_eq!(names(None), Ok(vec!["plain", "of-clusters", "of-bits"]));
        assert_eq!(names(Some("of-bits")), Ok(vec!["of-bits"]));
        assert!(names(Some("lossy")).is_err_and(|error| error.contains("plain, of-clusters, of-bits")));
    }
}
