//! `cargo xtask bench netpipe`: NetPIPE as it is, with and without the library, job after job in turn.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::interval::Interval;
use super::{account, finished, two_ranks, with_library};
use crate::mpi::scratch::Scratch;
use crate::mpi::{Choice, Toolkit, preload};
use crate::workspace::{TaskError, Workspace, command_line};

/// Debian's program, which runs on other builds of Open MPI, too.
const PROGRAM: &str = "/usr/bin/NPopenmpi";

/// What to run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    choice: Choice,
    /// Rounds: a job without the library, one with it, and another one without
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(6..=1000))]
    rounds: u32,
    /// Bytes of the longest message
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20, value_parser = clap::value_parser!(u32).range(8..=64 << 20))]
    longest: u32,
    /// NetPIPE's program
    #[arg(long, value_name = "FILE", default_value = PROGRAM)]
    program: PathBuf,
}

/// What a job found: nanoseconds of one way, for messages of so many bytes.
type Found = BTreeMap<u64, f64>;

/// The rows: `mpi, size, rounds, native_ns, logged_ns, ratio, ratio_low, ratio_high, control, control_low, control_high`: medians with
/// 95 % intervals of the ratios of jobs beside each other; the control is of two without the library.
pub(crate) fn rows(workspace: &Workspace, options: &Options) -> Result<Vec<Value>, TaskError> {
    if !options.program.is_file() {
        let advice = "install Debian's netpipe-openmpi, or name another one by --program";
        return Err(TaskError::Missing { path: options.program.clone(), advice });
    }
    let toolkit = Toolkit::ready(workspace, &options.choice)?;
    let library = preload::build(workspace, &toolkit)?;
    let job = Job { toolkit: &toolkit, library: &library, options };
    let mut rounds = Vec::new();
    for round in 0..options.rounds {
        eprintln!("{}, NetPIPE, round {} of {}", toolkit.mpi, round + 1, options.rounds);
        let before = job.run(false)?;
        let logged = job.run(true)?;
        let behind = job.run(false)?;
        // What comes first may be slower than what comes last: each of the two is the neighbour in half of the rounds.
        let (native, other) = if round % 2 == 0 { (before, behind) } else { (behind, before) };
        rounds.push([native, logged, other]);
    }
    let sizes: Vec<u64> = rounds.first().map(|[native, ..]| native.keys().copied().collect()).unwrap_or_default();
    Ok(sizes.into_iter().filter_map(|size| row(&toolkit, size, &rounds)).collect())
}

/// `None` where a job has nothing of the size.
fn row(toolkit: &Toolkit, size: u64, rounds: &[[Found; 3]]) -> Option<Value> {
    let times: Vec<[f64; 3]> = rounds
        .iter()
        .map(|[native, logged, other]| Some([*native.get(&size)?, *logged.get(&size)?, *other.get(&size)?]))
        .collect::<Option<_>>()?;
    let of = |f: fn(&[f64; 3]) -> f64| Interval::of(&times.iter().map(f).collect::<Vec<_>>());
    let (ratio, control) = (of(|[native, logged, _]| logged / native)?, of(|[native, _, other]| other / native)?);
    Some(json!({
        "mpi": format!("Open MPI {}", toolkit.mpi.version),
        "size": size,
        "rounds": times.len(),
        "native_ns": of(|[native, ..]| *native)?.median,
        "logged_ns": of(|[_, logged, _]| *logged)?.median,
        "ratio": ratio.median,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "control": control.median,
        "control_low": control.low,
        "control_high": control.high,
    }))
}

struct Job<'a> {
    toolkit: &'a Toolkit,
    library: &'a Path,
    options: &'a Options,
}

impl Job<'_> {
    fn run(&self, is_logged: bool) -> Result<Found, TaskError> {
        let scratch = Scratch::create("netpipe")?;
        let folder = scratch.path().to_string_lossy();
        let mut command = two_ranks(&self.toolkit.mpi, self.toolkit.mpi.transports()[0].1);
        if is_logged {
            let variables = [("COUNTERFOIL_SHM_DIR", &*folder), ("COUNTERFOIL_SUMMARY_DIR", &*folder)];
            with_library(&mut command, self.library, &variables);
        }
        // Powers of two and half-way between them, without their neighbours.
        let longest = self.options.longest.to_string();
        let arguments = ["-p", "0", "-u", &longest, "-o", "np.out"];
        finished(command.current_dir(scratch.path()), &self.toolkit.mpi, &self.options.program, &arguments)?;
        let program = command_line(&command);
        let wrong = |reason| TaskError::Output { program: program.clone(), reason };
        for rank in (0..2).filter(|_| is_logged) {
            account(scratch.path(), rank).map_err(wrong)?;
        }
        let path = scratch.path().join("np.out");
        found_in(&fs::read_to_string(&path).map_err(TaskError::file(&path))?).map_err(wrong)
    }
}

/// Lines of three numbers: bytes, megabits in a second, and seconds of one way.
fn found_in(text: &str) -> Result<Found, String> {
    let line = |line: &str| {
        let mut numbers = line.split_whitespace();
        let (size, _, seconds) = (numbers.next()?, numbers.next()?, numbers.next()?);
        Some((size.parse().ok()?, seconds.parse::<f64>().ok().filter(|seconds| *seconds > 0.0)? * 1e9))
    };
    let found: Option<Found> = text.lines().map(line).collect();
    found
        .filter(|found| !found.is_empty())
        .ok_or_else(|| format!("it says {:?}", text.lines().next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_netpipe_writes_is_read_or_refused() {
        let found = found_in("       1 8.711389   0.00000088\n    4096 7039.24   0.00000444\n").unwrap();
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [1, 4096]);
        assert!((found[&4096] - 4440.0).abs() < 1e-6);
        for wrong in ["", "1 2\n", "1 2 x\n", "1 2 0.0\n"] {
            assert!(found_in(wrong).is_err(), "{wrong}");
        }
    }
}
