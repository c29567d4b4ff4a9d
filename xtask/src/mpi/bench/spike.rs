//! `cargo xtask bench spike`: what it costs to log messages of MPI, and to tell which is which; over shared memory and TCP.

use clap::Args;
use serde_json::{Value, json};

use super::{PingPong, two_ranks};
use crate::mpi::Toolkit;
use crate::mpi::scratch::Scratch;
use crate::workspace::{TaskError, Workspace};

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    ping_pong: PingPong,
}

/// The rows of all runs: `mpi, transport, tags, run, size, way, ns, native_ns, ratio, ratio_p25, ratio_p75, floor_ratio, control`.
pub(crate) fn rows(workspace: &Workspace, Options { ping_pong }: &Options) -> Result<Vec<Value>, TaskError> {
    let toolkit = Toolkit::ready(workspace, &ping_pong.choice)?;
    let program = toolkit.program(workspace, "counterfoil-mpi-spike")?;
    let shm = Scratch::create("spike")?;
    let mut rows = Vec::new();
    for run in 1..=ping_pong.repeat {
        for (transport, layers) in toolkit.mpi.transports() {
            eprintln!("{}, {transport}, run {run} of {}", toolkit.mpi, ping_pong.repeat);
            let mut command = two_ranks(&toolkit.mpi, layers);
            command.arg(&program).args(["--transport", transport, "--dir"]).arg(shm.path());
            rows.extend(with_control(ping_pong.rows(&mut command, &[("run", json!(run))])?));
        }
    }
    Ok(rows)
}

/// Each row with the ratio of the naked calls to themselves at the same size.
fn with_control(mut rows: Vec<Value>) -> Vec<Value> {
    let native: Vec<Value> = rows.iter().filter(|row| row["way"] == "native").cloned().collect();
    for row in &mut rows {
        let control = native.iter().find(|native| native["size"] == row["size"]);
        row["control"] = control.map_or(Value::Null, |control| control["ratio"].clone());
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::bench::rows_with;

    #[test]
    fn every_row_has_the_control_of_its_size() {
        let report = json!({ "mpi": "Open MPI v5", "tags": 4, "transport": "tcp", "rows": [
            { "way": "native", "size": 8, "ratio": 1.01 },
            { "way": "counted", "size": 8, "ratio": 1.02 },
            { "way": "counted", "size": 64, "ratio": 1.03 },
        ]});
        let rows = with_control(rows_with(&report, &[("run", json!(2))]).unwrap());
        assert_eq!(
            rows[1],
            json!({ "way": "counted", "size": 8, "ratio": 1.02, "control": 1.01, "mpi": "Open MPI v5", "tags": 4,
            "transport": "tcp", "run": 2 })
        );
        assert!(rows[2]["control"].is_null());
        assert!(rows_with(&json!({}), &[]).is_none());
    }
}
