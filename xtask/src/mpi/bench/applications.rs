//! `cargo xtask bench applications`: what whole programs take with and without the library, run after run in turn.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::interval::Interval;
use super::{account, finished, two_ranks, with_library};
use crate::mpi::scratch::Scratch;
use crate::mpi::{Choice, Toolkit, preload};
use crate::workspace::{TaskError, Workspace, command_line, run_to_end};

/// What to run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    choice: Choice,
    /// Which programs; repeatable [default: cg]
    #[arg(long = "program")]
    programs: Vec<Program>,
    /// With which logs, beside none; repeatable [default: all]
    #[arg(long = "log")]
    logs: Vec<LogKind>,
    /// Runs of each, in turn: a log's and the one without beside it are a pair
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(6..=1000))]
    pairs: u32,
}

/// A program of two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Program {
    /// mpi/benches/cg.c: the sizes and messages of the NAS benchmark CG, class A
    Cg,
    /// Debian's HPC Challenge, with a small problem
    Hpcc,
}

/// What is logged, and where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogKind {
    /// Without the library: how far two runs lie apart
    None,
    /// Everything, until it is acknowledged
    Volatile,
    /// The same, in shared memory that outlives the process
    ProcessCrashSafe,
    /// Everything is kept: 64 MiB of memory, and what is beyond on disk
    KeepAll,
}

impl LogKind {
    fn name(self) -> &'static str {
        match self {
            LogKind::None => "none",
            LogKind::Volatile => "volatile",
            LogKind::ProcessCrashSafe => "process-crash-safe",
            LogKind::KeepAll => "keep all, spilled",
        }
    }
}

/// The rows: `mpi, program, log, pairs, native_s, s, ratio, ratio_low, ratio_high, messages, bytes, spilled_bytes`.
pub(crate) fn rows(workspace: &Workspace, options: &Options) -> Result<Vec<Value>, TaskError> {
    let toolkit = Toolkit::ready(workspace, &options.choice)?;
    let library = preload::build(workspace, &toolkit)?;
    let programs = if options.programs.is_empty() { &[Program::Cg][..] } else { &options.programs };
    let logs = if options.logs.is_empty() { LogKind::value_variants() } else { &options.logs };
    let bench = Bench { toolkit: &toolkit, library: &library, scratch: Scratch::on_disk(workspace.target(), "apps")? };
    let mut rows = Vec::new();
    for program in programs {
        let application = Application::prepare(workspace, &toolkit, bench.scratch.path(), *program)?;
        rows.extend(bench.compare(&application, logs, options.pairs)?);
    }
    Ok(rows)
}

/// A program that can be started.
struct Application {
    name: &'static str,
    file: PathBuf,
    /// Where it runs and leaves its files.
    folder: PathBuf,
}

impl Application {
    fn prepare(workspace: &Workspace, toolkit: &Toolkit, scratch: &Path, program: Program) -> Result<Self, TaskError> {
        match program {
            Program::Cg => {
                let (source, file) = (workspace.root().join("mpi/benches/cg.c"), scratch.join("cg"));
                let mut compile = Command::new(&toolkit.mpi.mpicc);
                run_to_end(compile.args(["-O3", "-o"]).arg(&file).arg(source).arg("-lm"))?;
                Ok(Self { name: "CG class A", file, folder: scratch.to_owned() })
            }
            Program::Hpcc => {
                let file = PathBuf::from("/usr/bin/hpcc");
                if !file.is_file() {
                    return Err(TaskError::Missing { path: file, advice: "install Debian's hpcc" });
                }
                let input = scratch.join("hpccinf.txt");
                fs::write(&input, HPCC_INPUT).map_err(TaskError::file(&input))?;
                Ok(Self { name: "HPCC", file, folder: scratch.to_owned() })
            }
        }
    }

    /// What its run took, in seconds, by its own clock where it has one; an error where its own checks failed.
    fn seconds(&self, out: &[u8], wall: f64) -> Result<f64, String> {
        if self.name == "HPCC" {
            let path = self.folder.join("hpccoutf.txt");
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            return if text.contains("Success=1") && !text.contains("FAILED") {
                Ok(wall)
            } else {
                Err("a self-check of HPCC failed".to_owned())
            };
        }
        let said: Value = serde_json::from_slice(out).map_err(|error| error.to_string())?;
        match (said["is_right"].as_bool(), said["seconds"].as_f64()) {
            (Some(true), Some(seconds)) => Ok(seconds),
            _ => Err(format!("it says {said}")),
        }
    }
}

/// One process row of two columns, and sizes with which a run takes a few seconds.
const HPCC_INPUT: &str = "HPLinpack benchmark input file
The Counterfoil authors
HPL.out
8            device out
1            # of problems sizes (N)
3000         Ns
1            # of NBs
80           NBs
0            PMAP process mapping (0=Row-,1=Column-major)
1            # of process grids (P x Q)
1            Ps
2            Qs
16.0         threshold
1            # of panel fact
2            PFACTs (0=left, 1=Crout, 2=Right)
1            # of recursive stopping criterium
4            NBMINs (>= 1)
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
1            RFACTs (0=left, 1=Crout, 2=Right)
1            # of broadcast
1            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1            # of lookahead depth
1            DEPTHs (>=0)
2            SWAP (0=bin-exch,1=long,2=mix)
64           swapping threshold
0            L1 in (0=transposed,1=no-transposed) form
0            U  in (0=transposed,1=no-transposed) form
1            Equilibration (0=no,1=yes)
8            memory alignment in double (> 0)
##### This line (no. 32) is ignored (it serves as a separator). ######
0            Number of additional problem sizes for PTRANS
3000         values of N
0            number of additional blocking sizes for PTRANS
40           values of NB
";

struct Bench<'a> {
    toolkit: &'a Toolkit,
    library: &'a Path,
    scratch: Scratch,
}

/// What was found of a log.
#[derive(Default)]
struct Found {
    /// Seconds with it and without.
    pairs: Vec<(f64, f64)>,
    last: Option<Run>,
}

/// What one run took, and what was logged in it.
struct Run {
    seconds: f64,
    messages: u64,
    bytes: u64,
    spilled: u64,
}

impl Bench<'_> {
    /// In each round every log has its turn, and beside it one run without.
    fn compare(&self, application: &Application, logs: &[LogKind], pairs: u32) -> Result<Vec<Value>, TaskError> {
        let mut found: Vec<Found> = logs.iter().map(|_| Found::default()).collect();
        for round in 0..pairs {
            eprintln!("{}, {}, round {} of {pairs}", self.toolkit.mpi, application.name, round + 1);
            for (log, found) in logs.iter().zip(&mut found) {
                let (with, without) = if round % 2 == 0 {
                    let without = self.run(application, LogKind::None)?;
                    (self.run(application, *log)?, without)
                } else {
                    (self.run(application, *log)?, self.run(application, LogKind::None)?)
                };
                found.pairs.push((with.seconds, without.seconds));
                found.last = Some(with);
            }
        }
        Ok(logs
            .iter()
            .zip(found)
            .filter_map(|(log, found)| self.row(application, *log, &found.pairs, found.last?))
            .collect())
    }

    fn row(&self, application: &Application, log: LogKind, pairs: &[(f64, f64)], last: Run) -> Option<Value> {
        let median = |of: &dyn Fn(&(f64, f64)) -> f64| Interval::of(&pairs.iter().map(of).collect::<Vec<_>>());
        let ratio = median(&|(with, without)| with / without)?;
        Some(json!({
            "mpi": format!("Open MPI {}", self.toolkit.mpi.version),
            "program": application.name,
            "log": log.name(),
            "pairs": pairs.len(),
            "native_s": median(&|pair| pair.1)?.median,
            "s": median(&|pair| pair.0)?.median,
            "ratio": ratio.median,
            "ratio_low": ratio.low,
            "ratio_high": ratio.high,
            "messages": last.messages,
            "bytes": last.bytes,
            "spilled_bytes": last.spilled,
        }))
    }

    fn run(&self, application: &Application, log: LogKind) -> Result<Run, TaskError> {
        let shared_memory = self.toolkit.mpi.transports()[0].1;
        let mut command = two_ranks(&self.toolkit.mpi, shared_memory);
        let (memory, disk) = (Scratch::create("apps")?, Scratch::on_disk(self.scratch.path(), "spill")?);
        let (memory_path, disk_path) = (memory.path().to_string_lossy(), disk.path().to_string_lossy());
        let mut variables = vec![("COUNTERFOIL_SHM_DIR", &*memory_path), ("COUNTERFOIL_SUMMARY_DIR", &*memory_path)];
        match log {
            LogKind::None | LogKind::Volatile => {}
            LogKind::ProcessCrashSafe => variables.push(("COUNTERFOIL_TIER", "process-crash-safe")),
            LogKind::KeepAll => variables.extend([
                ("COUNTERFOIL_KEEP", "all"),
                ("COUNTERFOIL_TIER", "node-local"),
                ("COUNTERFOIL_SPILL_DIR", &*disk_path),
            ]),
        }
        if log != LogKind::None {
            with_library(&mut command, self.library, &variables);
        }
        let begun = Instant::now();
        let output = finished(command.current_dir(&application.folder), &self.toolkit.mpi, &application.file, &[])?;
        let wall = begun.elapsed().as_secs_f64();
        let program = command_line(&command);
        let seconds = application
            .seconds(&output.stdout, wall)
            .map_err(|reason| TaskError::Output { program: program.clone(), reason })?;
        let mut run = Run { seconds, messages: 0, bytes: 0, spilled: 0 };
        if log != LogKind::None {
            run.add(memory.path()).map_err(|reason| TaskError::Output { program, reason })?;
        }
        Ok(run)
    }
}

impl Run {
    /// Adds what both ranks say that they have logged.
    fn add(&mut self, accounts: &Path) -> Result<(), String> {
        for rank in 0..2 {
            let account = account(accounts, rank)?;
            let number = |name: &str| account[name].as_u64().unwrap_or(0);
            self.messages += number("messages_logged");
            self.bytes += number("bytes_logged");
            self.spilled += number("spilled_bytes");
        }
        Ok(())
    }
}
