//! `cargo xtask bench operations`: MPI operations natively, under `counterfoil run --recover`, and under a floor, in
//! alternating jobs.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use super::floor::{self, FLOOR_BYTES, Floor};
use super::rounds::{Field, Job, Rounds, Times};
use super::{mpirun_two_ranks, preload_library, recover_two_ranks, run, run_program};
use crate::mpi::scratch::Scratch;
use crate::mpi::{Choice, Toolkit, preload};
use crate::workspace::{TaskError, Workspace, command_line, run_checked};

/// Options for `cargo xtask bench operations`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    choice: Choice,
    /// Number of rounds of four jobs: natively, under `counterfoil run --recover`, under a library that only copies
    /// each message and sends it as a frame, and natively
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(6..=1000))]
    rounds: u32,
    /// Directory on a disk for the logs, in place of shared memory
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
}

/// Program output line.
#[derive(Deserialize)]
struct Line {
    operation: String,
    bytes: u64,
    us: f64,
}

/// Operation and bytes.
type Key = (String, u64);

/// Context for all jobs.
struct Bench<'a> {
    toolkit: &'a Toolkit,
    counterfoil: PathBuf,
    program: PathBuf,
    /// The library that copies and sends only.
    floor: PathBuf,
    scratch: &'a Path,
    log_dir: Option<&'a Path>,
}

/// Returns the rows `mpi, operation, size, rounds, native_us, floor_us, us`, and `ratio` to the native time,
/// `floor_ratio` of the floor to it, `above_floor`, `control`, each with its interval as `_low` and `_high`.
///
/// `control` compares a round's two native jobs.
pub(crate) fn rows(workspace: &Workspace, options: &Options) -> Result<Vec<Value>, TaskError> {
    let toolkit = Toolkit::find_or_install(workspace, &options.choice)?;
    preload::build(workspace, &toolkit)?;
    let scratch = Scratch::on_disk(workspace.target(), "operations")?;
    let program = scratch.path().join("operations");
    let source = workspace.root().join("mpi/benches/operations.c");
    run_checked(Command::new(&toolkit.mpi.mpicc).args(["-O2", "-o"]).arg(&program).arg(source))?;
    let (counterfoil, log_dir) = (workspace.build_release()?, options.log_dir.as_deref());
    let floor = floor::build(workspace, &toolkit, scratch.path(), Floor::Frames)?;
    let bench = Bench { toolkit: &toolkit, counterfoil, program, floor, scratch: scratch.path(), log_dir };
    let label = toolkit.mpi.to_string();
    let (recovering, floor) = (|round| bench.run_recovering(round), |_| bench.run_floor());
    let rounds = Rounds::run(options.rounds, &label, || bench.run_native(), &[&recovering, &floor])?;
    let mpi = format!("Open MPI {}", toolkit.mpi.version);
    let head = |(operation, bytes): &Key| json!({ "mpi": mpi, "operation": operation, "size": bytes });
    let fields = [
        Field::Time("native_us", Job::Native),
        Field::Time("floor_us", Job::Floor),
        Field::Time("us", Job::Measured),
        Field::Ratio("ratio", Job::Measured, Job::Native),
        Field::Ratio("floor_ratio", Job::Floor, Job::Native),
        Field::Ratio("above_floor", Job::Measured, Job::Floor),
        Field::Ratio("control", Job::Control, Job::Native),
    ];
    Ok(rounds.rows(head, &fields))
}

impl Bench<'_> {
    fn mpirun(&self) -> Command {
        mpirun_two_ranks(&self.toolkit.mpi, self.toolkit.mpi.transports()[0].1)
    }

    fn run_native(&self) -> Result<Times<Key>, TaskError> {
        let mut command = self.mpirun();
        let output = run_program(&mut command, &self.toolkit.mpi, &self.program, &[])?;
        parse(&output.stdout, &command)
    }

    /// Runs the job with new shared memory for its log, as in recovery.
    fn run_floor(&self) -> Result<Times<Key>, TaskError> {
        let (mut command, memory) = (self.mpirun(), Scratch::create("frames")?);
        let dir = memory.path().to_string_lossy();
        let variables = [("FLOOR_BYTES", FLOOR_BYTES), ("FLOOR_PREFAULT", "0"), ("FLOOR_DIR", &*dir)];
        preload_library(&mut command, &self.floor, &variables);
        let output = run_program(&mut command, &self.toolkit.mpi, &self.program, &[])?;
        parse(&output.stdout, &command)
    }

    fn run_recovering(&self, round: u32) -> Result<Times<Key>, TaskError> {
        let log_dir = self.log_dir.map(|dir| dir.join(round.to_string()));
        let mut command = recover_two_ranks(&self.toolkit.mpi, &self.counterfoil);
        if let Some(dir) = &log_dir {
            command.arg("--log-dir").arg(dir);
        }
        command.arg("--").arg(&self.program).current_dir(self.scratch);
        let output = run(&mut command)?;
        if let Some(dir) = &log_dir {
            std::fs::remove_dir_all(dir).map_err(TaskError::file(dir))?;
        }
        parse(&output.stdout, &command)
    }
}

fn parse(stdout: &[u8], command: &Command) -> Result<Times<Key>, TaskError> {
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
