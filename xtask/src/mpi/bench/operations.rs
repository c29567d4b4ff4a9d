//! `cargo xtask bench operations`: operations of MPI natively and under `counterfoil run --recover`, in alternating
//! jobs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use super::interval::Interval;
use super::{mpirun_two_ranks, run_program};
use crate::mpi::scratch::Scratch;
use crate::mpi::{Choice, Toolkit, preload};
use crate::workspace::{TaskError, Workspace, command_line, run_checked};

/// Options of `cargo xtask bench operations`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    choice: Choice,
    /// Number of rounds of three jobs: natively, under `counterfoil run --recover`, and natively
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(6..=1000))]
    rounds: u32,
    /// Directory on a disk for the logs, in place of shared memory
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
}

/// Memory for the log of one rank: all messages are kept.
const BUDGET: &str = "4GiB";

/// A line of the program.
#[derive(Deserialize)]
struct Line {
    operation: String,
    bytes: u64,
    us: f64,
}

/// Microseconds by operation and bytes.
type Times = BTreeMap<(String, u64), f64>;

/// Context of all jobs.
struct Bench<'a> {
    toolkit: &'a Toolkit,
    counterfoil: PathBuf,
    program: PathBuf,
    scratch: &'a Path,
    log_dir: Option<&'a Path>,
}

/// Returns the rows `mpi, operation, size, rounds, native_us, us, ratio, ratio_low, ratio_high, control, control_low,
/// control_high`. `control` compares the two native jobs of a round.
pub(crate) fn rows(workspace: &Workspace, options: &Options) -> Result<Vec<Value>, TaskError> {
    let toolkit = Toolkit::find_or_install(workspace, &options.choice)?;
    preload::build(workspace, &toolkit)?;
    let scratch = Scratch::on_disk(workspace.target(), "operations")?;
    let program = scratch.path().join("operations");
    let source = workspace.root().join("mpi/benches/operations.c");
    run_checked(Command::new(&toolkit.mpi.mpicc).args(["-O2", "-o"]).arg(&program).arg(source))?;
    let (counterfoil, log_dir) = (workspace.build_release()?, options.log_dir.as_deref());
    let bench = Bench { toolkit: &toolkit, counterfoil, program, scratch: scratch.path(), log_dir };
    let mut rounds: Vec<[Times; 3]> = Vec::new();
    for round in 0..options.rounds {
        eprintln!("{}, round {} of {}", toolkit.mpi, round + 1, options.rounds);
        let (first, recovering, last) = (bench.run_native()?, bench.run_recovering(round)?, bench.run_native()?);
        // The order of jobs may matter: the base alternates.
        let (native, other) = if round % 2 == 0 { (first, last) } else { (last, first) };
        rounds.push([native, recovering, other]);
    }
    let operations: Vec<(String, u64)> =
        rounds.first().map(|[native, ..]| native.keys().cloned().collect()).unwrap_or_default();
    Ok(operations.into_iter().filter_map(|operation| row(&toolkit, &operation, &rounds)).collect())
}

fn row(toolkit: &Toolkit, operation: &(String, u64), rounds: &[[Times; 3]]) -> Option<Value> {
    let times: Vec<[f64; 3]> = rounds
        .iter()
        .map(|times| {
            let [native, recovering, other] = times.each_ref().map(|times| times.get(operation).copied());
            Some([native?, recovering?, other?])
        })
        .collect::<Option<_>>()?;
    let interval = |value: fn(&[f64; 3]) -> f64| Interval::of(&times.iter().map(value).collect::<Vec<_>>());
    let ratio = interval(|[native, recovering, _]| recovering / native)?;
    let control = interval(|[native, _, other]| other / native)?;
    Some(json!({
        "mpi": format!("Open MPI {}", toolkit.mpi.version),
        "operation": operation.0,
        "size": operation.1,
        "rounds": times.len(),
        "native_us": interval(|[native, ..]| *native)?.median,
        "us": interval(|[_, recovering, _]| *recovering)?.median,
        "ratio": ratio.median,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "control": control.median,
        "control_low": control.low,
        "control_high": control.high,
    }))
}

impl Bench<'_> {
    fn run_native(&self) -> Result<Times, TaskError> {
        let mut command = mpirun_two_ranks(&self.toolkit.mpi, self.toolkit.mpi.transports()[0].1);
        let output = run_program(&mut command, &self.toolkit.mpi, &self.program, &[])?;
        parse(&output.stdout, &command)
    }

    fn run_recovering(&self, round: u32) -> Result<Times, TaskError> {
        let mut command = Command::new(&self.counterfoil);
        self.toolkit.mpi.set_environment(&mut command);
        command.args(["run", "--no-progress", "--recover", "--spares", "0", "--budget", BUDGET, "-n", "2", "--mpi"]);
        command.arg(self.toolkit.mpi.selector());
        if let Some(dir) = self.log_dir {
            command.arg("--log-dir").arg(dir.join(round.to_string()));
        }
        command.args(["--bind-to", "core", "--mca", "pml", "ob1", "--mca", "btl"]);
        command.arg(self.toolkit.mpi.transports()[0].1).arg("--").arg(&self.program).current_dir(self.scratch);
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(|source| TaskError::Start { program: command_line(&command), source })?;
        if !output.status.success() {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
            return Err(TaskError::Failed { program: command_line(&command) });
        }
        if let Some(dir) = self.log_dir {
            let dir = dir.join(round.to_string());
            std::fs::remove_dir_all(&dir).map_err(TaskError::file(&dir))?;
        }
        parse(&output.stdout, &command)
    }
}

fn parse(stdout: &[u8], command: &Command) -> Result<Times, TaskError> {
    let lines = String::from_utf8_lossy(stdout);
    let parsed = lines.lines().map(|line| {
        let Line { operation, bytes, us } = serde_json::from_str(line).map_err(|error| TaskError::Output {
            program: command_line(command),
            reason: format!("{error}: {line}"),
        })?;
        Ok(((operation, bytes), us))
    });
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_operations_and_others_are_refused() {
        let command = Command::new("operations");
        let times = parse(b"{\"operation\": \"barrier\", \"bytes\": 0, \"us\": 0.5}\n", &command).unwrap();
        assert_eq!(times.into_iter().collect::<Vec<_>>(), [(("barrier".to_owned(), 0), 0.5)]);
        assert!(parse(b"barrier\n", &command).is_err());
    }
}
