//! `cargo xtask bench spike`: costs of the ways to log and identify MPI messages, over shared memory and TCP.

use clap::Args;
use serde_json::{Value, json};

use super::{PingPongOptions, mpirun_two_ranks};
use crate::mpi::Toolkit;
use crate::mpi::scratch::Scratch;
use crate::workspace::{TaskError, Workspace};

/// Options of `cargo xtask bench spike`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    ping_pong: PingPongOptions,
}

/// Returns the rows of all runs: `mpi, transport, tags, run, size, way, ns, native_ns, ratio, ratio_p25, ratio_p75, floor_ratio,
/// control`.
pub(crate) fn rows(workspace: &Workspace, Options { ping_pong }: &Options) -> Result<Vec<Value>, TaskError> {
    let toolkit = Toolkit::find_or_install(workspace, &ping_pong.choice)?;
    let program = toolkit.build_program(workspace, "counterfoil-mpi-spike")?;
    let shm = Scratch::create("spike")?;
    let mut rows = Vec::new();
    for run in 1..=ping_pong.repeat {
        for (transport, btl) in toolkit.mpi.transports() {
            eprintln!("{}, {transport}, run {run} of {}", toolkit.mpi, ping_pong.repeat);
            let mut command = mpirun_two_ranks(&toolkit.mpi, btl);
            command.arg(&program).args(["--transport", transport, "--dir"]).arg(shm.path());
            rows.extend(add_controls(ping_pong.rows(&mut command, &[("run", json!(run))])?));
        }
    }
    Ok(rows)
}

/// Adds to each row the control of its size: the ratio of native calls to themselves.
fn add_controls(mut rows: Vec<Value>) -> Vec<Value> {
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
    use crate::mpi::bench::rows_with_fields;

    #[test]
    fn every_row_has_the_control_of_its_size() {
        let report = json!({ "mpi": "Open MPI v5", "tags": 4, "transport": "tcp", "rows": [
            { "way": "native", "size": 8, "ratio": 1.01 },
            { "way": "counted", "size": 8, "ratio": 1.02 },
            { "way": "counted", "size": 64, "ratio": 1.03 },
        ]});
        let rows = add_controls(rows_with_fields(&report, &[("run", json!(2))]).unwrap());
        assert_eq!(
            rows[1],
            json!({ "way": "counted", "size": 8, "ratio": 1.02, "control": 1.01, "mpi": "Open MPI v5", "tags": 4,
            "transport": "tcp", "run": 2 })
        );
        assert!(rows[2]["control"].is_null());
        assert!(rows_with_fields(&json!({}), &[]).is_none());
    }
}
