//! `cargo xtask bench netpipe`: unmodified NetPIPE with and without the logging library, in alternating jobs.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::rounds::{Field, Job, Rounds, Times};
use super::{mpirun_two_ranks, preload_library, read_summary, run_program};
use crate::mpi::scratch::Scratch;
use crate::mpi::{Choice, Toolkit, preload};
use crate::workspace::{TaskError, Workspace, command_line};

/// Debian's NetPIPE, which also runs with other Open MPI builds.
const PROGRAM: &str = "/usr/bin/NPopenmpi";

/// Options for `cargo xtask bench netpipe`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    choice: Choice,
    /// Number of rounds of three jobs: without the library, with it, and without it
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(6..=1000))]
    rounds: u32,
    /// Longest message, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20, value_parser = clap::value_parser!(u32).range(8..=64 << 20))]
    longest: u32,
    /// Path to NetPIPE's program
    #[arg(long, value_name = "FILE", default_value = PROGRAM)]
    program: PathBuf,
}

/// Job results: one-way latency in nanoseconds by message size in bytes.
type LatencyBySize = Times<u64>;

/// Returns the rows `mpi, size, rounds, native_ns, logged_ns, ratio, ratio_low, ratio_high, control, control_low,
/// control_high`.
///
/// Ratios are medians with 95 % intervals. `ratio` compares consecutive jobs with and without the library, `control` a
/// round's two jobs without it.
pub(crate) fn rows(workspace: &Workspace, options: &Options) -> Result<Vec<Value>, TaskError> {
    if !options.program.is_file() {
        let advice = "install Debian's netpipe-openmpi, or select another program with --program";
        return Err(TaskError::Missing { path: options.program.clone(), advice });
    }
    let toolkit = Toolkit::find_or_install(workspace, &options.choice)?;
    let library = preload::build(workspace, &toolkit)?;
    let netpipe = NetPipe { toolkit: &toolkit, library: &library, options };
    let label = format!("{}, NetPIPE", toolkit.mpi);
    let rounds = Rounds::run(options.rounds, &label, || netpipe.run(false), &[&|_| netpipe.run(true)])?;
    let mpi = format!("Open MPI {}", toolkit.mpi.version);
    let fields = [
        Field::Time("native_ns", Job::Native),
        Field::Time("logged_ns", Job::Measured),
        Field::Ratio("ratio", Job::Measured, Job::Native),
        Field::Ratio("control", Job::Control, Job::Native),
    ];
    Ok(rounds.rows(|size| json!({ "mpi": mpi, "size": size }), &fields))
}

/// A two-rank job.
struct NetPipe<'a> {
    toolkit: &'a Toolkit,
    library: &'a Path,
    options: &'a Options,
}

impl NetPipe<'_> {
    fn run(&self, is_logged: bool) -> Result<LatencyBySize, TaskError> {
        let scratch = Scratch::create("netpipe")?;
        let folder = scratch.path().to_string_lossy();
        let mut command = mpirun_two_ranks(&self.toolkit.mpi, self.toolkit.mpi.transports()[0].1);
        if is_logged {
            let variables = [("COUNTERFOIL_SHM_DIR", &*folder), ("COUNTERFOIL_SUMMARY_DIR", &*folder)];
            preload_library(&mut command, self.library, &variables);
        }
        // `-p 0` disables perturbation: sizes are powers of two and the midpoints between them.
        let longest = self.options.longest.to_string();
        let arguments = ["-p", "0", "-u", &longest, "-o", "np.out"];
        run_program(command.current_dir(scratch.path()), &self.toolkit.mpi, &self.options.program, &arguments)?;
        let program = command_line(&command);
        let output_error = |reason| TaskError::Output { program: program.clone(), reason };
        for rank in (0..2).filter(|_| is_logged) {
            read_summary(scratch.path(), rank).map_err(output_error)?;
        }
        let path = scratch.path().join("np.out");
        parse_output(&fs::read_to_string(&path).map_err(TaskError::file(&path))?).map_err(output_error)
    }
}

/// Parses lines with three numbers: message size in bytes, throughput in Mbit/s, and one-way time in seconds.
fn parse_output(text: &str) -> Result<LatencyBySize, String> {
    let line = |line: &str| {
        let mut numbers = line.split_whitespace();
        let (size, _, seconds) = (numbers.next()?, numbers.next()?, numbers.next()?);
        Some((size.parse().ok()?, seconds.parse::<f64>().ok().filter(|seconds| *seconds > 0.0)? * 1e9))
    };
    let latencies: Option<LatencyBySize> = text.lines().map(line).collect();
    latencies
        .filter(|latencies| !latencies.is_empty())
        .ok_or_else(|| format!("unexpected output: {:?}", text.lines().next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_output_of_netpipe_is_refused() {
        let latencies = parse_output("       1 8.711389   0.00000088\n    4096 7039.24   0.00000444\n").unwrap();
        assert_eq!(latencies.keys().copied().collect::<Vec<_>>(), [1, 4096]);
        assert!((latencies[&4096] - 4440.0).abs() < 1e-6);
        for wrong in ["", "1 2\n", "1 2 x\n", "1 2 0.0\n"] {
            assert!(parse_output(wrong).is_err(), "{wrong}");
        }
    }
}
