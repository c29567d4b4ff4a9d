//! `cargo xtask bench spike`: what it costs to log messages of MPI, and to tell which is which; over shared memory and TCP.

use std::process::Command;

use clap::Args;
use serde_json::{Value, json};

use super::scratch::Scratch;
use super::{Choice, Toolkit};
use crate::workspace::{TaskError, Workspace, command_line, report_of, run_to_end};

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct SpikeOptions {
    #[command(flatten)]
    choice: Choice,
    /// Run it so often, to see how far the medians lie apart
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Pairs of batches for each figure
    #[arg(long, value_name = "ROUNDS")]
    rounds: Option<u32>,
    /// Bytes of a message; repeatable [default: 8 B to 1 MiB]
    #[arg(long = "size", value_name = "BYTES")]
    sizes: Vec<u32>,
}

/// The rows of all runs: `mpi, transport, run, size, way, ns, native_ns, ratio, ratio_p25, ratio_p75, floor_ratio, control`.
pub(crate) fn rows(workspace: &Workspace, options: &SpikeOptions) -> Result<Vec<Value>, TaskError> {
    let toolkit = Toolkit::ready(workspace, &options.choice)?;
    let mut build = toolkit.cargo(workspace);
    build.args(["build", "--quiet", "--release", "--bin", PROGRAM]);
    run_to_end(&mut build)?;
    let program = toolkit.target.join("release").join(PROGRAM);
    let shm = Scratch::create("spike")?;
    let mut rows = Vec::new();
    for run in 1..=options.repeat {
        for (transport, layers) in toolkit.mpi.transports() {
            eprintln!("{}, {transport}, run {run} of {}", toolkit.mpi, options.repeat);
            let mut command = toolkit.mpi.mpirun(2);
            command.args(["--bind-to", "core", "--mca", "pml", "ob1", "--mca", "btl", layers]);
            command.arg(&program).args(["--json", "--transport", transport, "--dir"]).arg(shm.path());
            for size in &options.sizes {
                command.args(["--size", &size.to_string()]);
            }
            if let Some(rounds) = options.rounds {
                command.args(["--rounds", &rounds.to_string()]);
            }
            rows.extend(rows_of(&mut command, transport, run)?);
        }
    }
    Ok(rows)
}

const PROGRAM: &str = "counterfoil-mpi-spike";

fn rows_of(command: &mut Command, transport: &str, run: u32) -> Result<Vec<Value>, TaskError> {
    let report = report_of(command)?;
    with_control(&report, transport, run)
        .ok_or_else(|| TaskError::Output { program: command_line(command), reason: "it has no rows".to_owned() })
}

/// Each row with what is the same for all, and with the ratio of the naked calls to themselves at the same size.
fn with_control(report: &Value, transport: &str, run: u32) -> Option<Vec<Value>> {
    let rows = report["rows"].as_array()?;
    let control = |size: &Value| rows.iter().find(|row| row["way"] == "native" && row["size"] == *size);
    let mut whole = rows.clone();
    for row in &mut whole {
        row["control"] = control(&row["size"]).map_or(Value::Null, |control| control["ratio"].clone());
        row["mpi"] = report["mpi"].clone();
        row["transport"] = json!(transport);
        row["run"] = json!(run);
    }
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_the_control_of_its_size() {
        let report = json!({ "mpi": "Open MPI v5", "rows": [
            { "way": "native", "size": 8, "ratio": 1.01 },
            { "way": "counted", "size": 8, "ratio": 1.02 },
            { "way": "counted", "size": 64, "ratio": 1.03 },
        ]});
        let rows = with_control(&report, "tcp", 2).unwrap();
        assert_eq!(
            rows[1],
            json!({ "way": "counted", "size": 8, "ratio": 1.02, "control": 1.01, "mpi": "Open MPI v5",
            "transport": "tcp", "run": 2 })
        );
        assert!(rows[2]["control"].is_null());
        assert!(with_control(&json!({}), "tcp", 1).is_none());
    }
}
