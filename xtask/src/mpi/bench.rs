//! What the library between a program and its MPI costs, and what its ways of logging would.

pub(crate) mod applications;
mod interval;
pub(crate) mod netpipe;
pub(crate) mod ping_pong;
pub(crate) mod spike;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use clap::Args;
use serde_json::{Value, json};

use super::{Choice, Mpi};
use crate::workspace::{TaskError, command_line, report_of};

/// What every ping-pong is told.
#[derive(Debug, Args)]
struct PingPong {
    #[command(flatten)]
    choice: Choice,
    /// Run each job so often, to see how far they lie apart
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Pairs of batches for each figure
    #[arg(long, value_name = "ROUNDS")]
    rounds: Option<u32>,
    /// Bytes of a message; repeatable [default: 8 B to 1 MiB, and 4 MiB with the library]
    #[arg(long = "size", value_name = "BYTES")]
    sizes: Vec<u32>,
}

impl PingPong {
    /// Runs it: the rows that it prints, each with these fields and what is the same for all.
    fn rows(&self, command: &mut Command, fields: &[(&str, Value)]) -> Result<Vec<Value>, TaskError> {
        command.arg("--json");
        for size in &self.sizes {
            command.args(["--size", &size.to_string()]);
        }
        if let Some(rounds) = self.rounds {
            command.args(["--rounds", &rounds.to_string()]);
        }
        let report = report_of(command)?;
        rows_with(&report, fields)
            .ok_or_else(|| TaskError::Output { program: command_line(command), reason: "it has no rows".to_owned() })
    }
}

/// The rows of a report, each with these fields and what is the same for all.
fn rows_with(report: &Value, fields: &[(&str, Value)]) -> Option<Vec<Value>> {
    let mut rows = report["rows"].as_array()?.clone();
    for row in &mut rows {
        for name in ["mpi", "tags", "transport"] {
            row[name] = report[name].clone();
        }
        for (name, value) in fields {
            row[*name] = value.clone();
        }
    }
    Some(rows)
}

/// What a rank says that it has logged, in the folder of its job's accounts; an error where logging ended before the program.
fn account(folder: &Path, rank: u32) -> Result<Value, String> {
    let path = folder.join(format!("rank-{rank}.json"));
    let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let account: Value = serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    if !account["gave_up"].is_null() || account["logging_stopped"] != json!(false) {
        return Err(format!("logging ended before the program: {}", account["gave_up"]));
    }
    Ok(account)
}

/// Two ranks, each bound to a core, and the layers that their bytes go by.
fn two_ranks(mpi: &Mpi, layers: &str) -> Command {
    let mut command = mpi.mpirun(2);
    command.args(["--bind-to", "core", "--mca", "pml", "ob1", "--mca", "btl", layers]);
    command
}

/// Loads the library into the ranks, not into the launcher, and tells it something.
fn with_library(command: &mut Command, library: &Path, variables: &[(&str, &str)]) {
    for (name, value) in variables {
        command.env(name, value).args(["-x", name]);
    }
    command.arg("-x").arg(format!("LD_PRELOAD={}", library.display()));
}

/// Runs a program of Debian's, or one that was compiled for the MPI, to its end: it finds the MPI that is measured.
fn finished(command: &mut Command, mpi: &Mpi, program: &Path, arguments: &[&str]) -> Result<Output, TaskError> {
    command.env("LD_LIBRARY_PATH", &mpi.libraries).args(["-x", "LD_LIBRARY_PATH"]);
    command.arg(program).args(arguments).stdin(Stdio::null());
    let output = command.output().map_err(|source| TaskError::Start { program: command_line(command), source })?;
    if output.status.success() {
        return Ok(output);
    }
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    Err(TaskError::Failed { program: command_line(command) })
}
