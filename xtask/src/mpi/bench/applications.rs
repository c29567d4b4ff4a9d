//! `cargo xtask bench applications`: run times of whole programs with and without the logging library, in alternating
//! runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::floor::{self, FLOOR_BYTES, Floor};
use super::interval::Interval;
use super::{mpirun_two_ranks, preload_library, read_summary, recover_two_ranks, run, run_program};
use crate::mpi::scratch::Scratch;
use crate::mpi::{Choice, Toolkit, hpcc, preload};
use crate::soak::runner::json_of;
use crate::workspace::{TaskError, Workspace, command_line, run_checked};

/// Options for `cargo xtask bench applications`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    choice: Choice,
    /// Program to run; repeatable [default: cg]
    #[arg(long = "program")]
    programs: Vec<Program>,
    /// Log configuration to compare with no library; repeatable [default: all]
    #[arg(long = "log")]
    logs: Vec<LogKind>,
    /// Pairs of runs, with and without the library, per log configuration
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(6..=1000))]
    pairs: u32,
}

/// Measured program, run with two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Program {
    /// mpi/benches/cg.c: matrix and message sizes of the NAS benchmark CG, class A
    Cg,
    /// The same, class B: a hundred times as long
    CgB,
    /// HPC Challenge as packaged by Debian, with a small problem
    Hpcc,
}

/// Log configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogKind {
    /// No library: measures the spread between runs
    None,
    /// Log all messages and release them when acknowledged
    Volatile,
    /// Like `volatile`, in shared memory that survives the process
    ProcessCrashSafe,
    /// Keep all messages in memory: a budget of 4 GiB
    KeepAllInMemory,
    /// The same, and 1.5 GiB are committed in MPI_Init
    KeepAllPrefaulted,
    /// Keep all messages in shared memory that survives the process
    KeepAllInSharedMemory,
    /// Keep all messages: 64 MiB in memory, the rest spilled to disk
    KeepAllSpilled,
    /// `counterfoil run --recover`, without a spare process: all messages are kept in shared memory
    Recover,
    /// A library that only copies each message of MPI_Send, MPI_Isend and MPI_Sendrecv into new memory: the floor of
    /// `keep-all-in-memory`
    Floor,
}

/// HPCC problem size for a run of a few seconds.
const HPCC_SIZE: u32 = 3000;
/// Settings for a log keeping all messages in memory.
const KEEP_ALL_IN_MEMORY: [(&str, &str); 2] = [("COUNTERFOIL_KEEP", "all"), ("COUNTERFOIL_BUDGET", "4GiB")];

impl LogKind {
    fn name(self) -> &'static str {
        match self {
            LogKind::None => "none",
            LogKind::Volatile => "volatile",
            LogKind::ProcessCrashSafe => "process-crash-safe",
            LogKind::KeepAllInMemory => "keep all, volatile",
            LogKind::KeepAllPrefaulted => "keep all, prefaulted",
            LogKind::KeepAllInSharedMemory => "keep all, process-crash-safe",
            LogKind::KeepAllSpilled => "keep all, spilled",
            LogKind::Recover => "recover",
            LogKind::Floor => "floor",
        }
    }
}

/// Returns the rows: `mpi`, `program`, `log`, `pairs`, `native_s`, `s`, `ratio`, `ratio_low`, `ratio_high`, `messages`,
/// `bytes`, `spilled_bytes`, `late_commit_bytes`.
///
/// A spilling log adds `disk_s`: the time to write the spilled bytes at the disk's rate measured after the run.
pub(crate) fn rows(workspace: &Workspace, options: &Options) -> Result<Vec<Value>, TaskError> {
    let toolkit = Toolkit::find_or_install(workspace, &options.choice)?;
    let library = preload::build(workspace, &toolkit)?;
    let programs = if options.programs.is_empty() { &[Program::Cg][..] } else { &options.programs };
    let logs = if options.logs.is_empty() { LogKind::value_variants() } else { &options.logs };
    let scratch = Scratch::on_disk(workspace.target(), "apps")?;
    let floor = floor::build(workspace, &toolkit, scratch.path(), Floor::Log)?;
    let counterfoil = workspace.build_release()?;
    let bench = Bench { toolkit: &toolkit, library: &library, floor: &floor, counterfoil, scratch };
    let mut rows = Vec::new();
    for program in programs {
        let application = Application::prepare(workspace, &toolkit, bench.scratch.path(), *program)?;
        rows.extend(bench.compare(&application, logs, options.pairs)?);
    }
    Ok(rows)
}

/// A program ready to run.
struct Application {
    name: &'static str,
    file: PathBuf,
    arguments: &'static [&'static str],
    /// Working directory, which receives output files.
    folder: PathBuf,
}

impl Application {
    /// Compiles CG, or finds HPCC and writes its input file.
    fn prepare(workspace: &Workspace, toolkit: &Toolkit, scratch: &Path, program: Program) -> Result<Self, TaskError> {
        match program {
            Program::Cg | Program::CgB => {
                let (source, file) = (workspace.root().join("mpi/benches/cg.c"), scratch.join("cg"));
                let mut compile = Command::new(&toolkit.mpi.mpicc);
                run_checked(compile.args(["-O3", "-o"]).arg(&file).arg(source).arg("-lm"))?;
                let (name, arguments) =
                    if program == Program::CgB { ("CG class B", &["B"][..]) } else { ("CG class A", &["A"][..]) };
                Ok(Self { name, file, arguments, folder: scratch.to_owned() })
            }
            Program::Hpcc => {
                let file = PathBuf::from(hpcc::FILE);
                if !file.is_file() {
                    return Err(TaskError::Missing { path: file, advice: "install Debian's hpcc" });
                }
                hpcc::write_input(scratch, HPCC_SIZE, (1, 2))?;
                Ok(Self { name: "HPCC", file, arguments: &[], folder: scratch.to_owned() })
            }
        }
    }

    /// Returns the run time in seconds: the reported time of CG's iterations, or HPCC's wall-clock time.
    ///
    /// Fails if the program's verification failed.
    fn elapsed_s(&self, stdout: &[u8], wall_s: f64) -> Result<f64, String> {
        if self.name == "HPCC" {
            let path = self.folder.join(hpcc::OUTPUT);
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            return if text.contains("Success=1") && !text.contains("FAILED") {
                Ok(wall_s)
            } else {
                Err("HPCC failed its verification".to_owned())
            };
        }
        let report: Value = serde_json::from_slice(stdout).map_err(|error| error.to_string())?;
        match (report["is_right"].as_bool(), report["seconds"].as_f64()) {
            (Some(true), Some(seconds)) => Ok(seconds),
            _ => Err(format!("CG failed its verification: {report}")),
        }
    }
}

/// Context for all runs.
struct Bench<'a> {
    toolkit: &'a Toolkit,
    library: &'a Path,
    /// The copy-only library.
    floor: &'a Path,
    /// The `counterfoil` program.
    counterfoil: PathBuf,
    scratch: Scratch,
}

/// One run's time and log totals.
struct Run {
    seconds: f64,
    messages: u64,
    bytes: u64,
    spilled: u64,
    late_commit: u64,
    /// Seconds for writing the spilled bytes to disk.
    disk_s: Option<f64>,
}

impl Bench<'_> {
    /// Measures each log configuration once per round, paired with a run without the library.
    ///
    /// The order within pairs alternates.
    fn compare(&self, application: &Application, logs: &[LogKind], pairs: u32) -> Result<Vec<Value>, TaskError> {
        let mut measurements: Vec<Vec<(Run, Run)>> = logs.iter().map(|_| Vec::new()).collect();
        for round in 0..pairs {
            eprintln!("{}, {}, round {} of {pairs}", self.toolkit.mpi, application.name, round + 1);
            for (log, measured) in logs.iter().zip(&mut measurements) {
                measured.push(if round % 2 == 0 {
                    let without = self.run(application, LogKind::None)?;
                    (self.run(application, *log)?, without)
                } else {
                    (self.run(application, *log)?, self.run(application, LogKind::None)?)
                });
            }
        }
        Ok(logs.iter().zip(measurements).filter_map(|(log, measured)| self.row(application, *log, &measured)).collect())
    }

    /// Returns a log configuration's row from runs with and without the library; `None` for fewer pairs than an
    /// interval needs.
    fn row(&self, application: &Application, log: LogKind, pairs: &[(Run, Run)]) -> Option<Value> {
        let interval = |value: &dyn Fn(&(Run, Run)) -> Option<f64>| {
            Interval::of(&pairs.iter().filter_map(value).collect::<Vec<_>>())
        };
        let ratio = interval(&|(with, without)| Some(with.seconds / without.seconds))?;
        let (last, _) = pairs.last()?;
        let mut row = json!({
            "mpi": format!("Open MPI {}", self.toolkit.mpi.version),
            "program": application.name,
            "log": log.name(),
            "pairs": pairs.len(),
            "native_s": interval(&|(_, without)| Some(without.seconds))?.median,
            "s": interval(&|(with, _)| Some(with.seconds))?.median,
            "ratio": ratio.median,
            "ratio_low": ratio.low,
            "ratio_high": ratio.high,
            "messages": last.messages,
            "bytes": last.bytes,
            "spilled_bytes": last.spilled,
            "late_commit_bytes": last.late_commit,
        });
        if let Some(disk_s) = interval(&|(with, _)| with.disk_s) {
            row["disk_s"] = json!(disk_s.median);
        }
        Some(row)
    }

    /// Runs the application once under `counterfoil run --recover`.
    fn run_recovering(&self, application: &Application) -> Result<Run, TaskError> {
        let mut command = recover_two_ranks(&self.toolkit.mpi, &self.counterfoil);
        command.arg("--").arg(&application.file).args(application.arguments).current_dir(&application.folder);
        let (start, output) = (Instant::now(), run(&mut command)?);
        let wall_s = start.elapsed().as_secs_f64();
        let (program, stderr) = (command_line(&command), String::from_utf8_lossy(&output.stderr));
        let refused = |reason| TaskError::Output { program: program.clone(), reason };
        let seconds = application.elapsed_s(&output.stdout, wall_s).map_err(refused)?;
        let summary = json_of(&stderr);
        let ranks = summary["ranks"].as_array().ok_or_else(|| refused("it has printed no summary".to_owned()))?.iter();
        let sum = |name: &str| ranks.clone().filter_map(|rank| rank[name].as_u64()).sum();
        let (messages, bytes) = (sum("messages_logged"), sum("bytes_logged"));
        Ok(Run { seconds, messages, bytes, spilled: 0, late_commit: 0, disk_s: None })
    }

    /// Runs the application once.
    fn run(&self, application: &Application, log: LogKind) -> Result<Run, TaskError> {
        if log == LogKind::Recover {
            return self.run_recovering(application);
        }
        let shared_memory = self.toolkit.mpi.transports()[0].1;
        let mut command = mpirun_two_ranks(&self.toolkit.mpi, shared_memory);
        let (memory, disk) = (Scratch::create("apps")?, Scratch::on_disk(self.scratch.path(), "spill")?);
        let (memory_path, disk_path) = (memory.path().to_string_lossy(), disk.path().to_string_lossy());
        let mut variables = vec![("COUNTERFOIL_SHM_DIR", &*memory_path), ("COUNTERFOIL_SUMMARY_DIR", &*memory_path)];
        match log {
            LogKind::None | LogKind::Volatile | LogKind::Recover => {}
            LogKind::ProcessCrashSafe => variables.push(("COUNTERFOIL_TIER", "process-crash-safe")),
            LogKind::KeepAllInMemory => variables.extend(KEEP_ALL_IN_MEMORY),
            LogKind::KeepAllPrefaulted => {
                variables.extend(KEEP_ALL_IN_MEMORY);
                variables.push(("COUNTERFOIL_PREFAULT", "1536MiB"));
            }
            LogKind::KeepAllInSharedMemory => {
                variables.extend(KEEP_ALL_IN_MEMORY);
                variables.push(("COUNTERFOIL_TIER", "process-crash-safe"));
            }
            LogKind::KeepAllSpilled => variables.extend([
                ("COUNTERFOIL_KEEP", "all"),
                ("COUNTERFOIL_TIER", "node-local"),
                ("COUNTERFOIL_SPILL_DIR", &*disk_path),
            ]),
            LogKind::Floor => variables = vec![("FLOOR_BYTES", FLOOR_BYTES), ("FLOOR_PREFAULT", "0")],
        }
        let library = if log == LogKind::Floor { self.floor } else { self.library };
        if log != LogKind::None {
            preload_library(&mut command, library, &variables);
        }
        let start = Instant::now();
        let output = run_program(
            command.current_dir(&application.folder),
            &self.toolkit.mpi,
            &application.file,
            application.arguments,
        )?;
        let wall_s = start.elapsed().as_secs_f64();
        let program = command_line(&command);
        let seconds = application
            .elapsed_s(&output.stdout, wall_s)
            .map_err(|reason| TaskError::Output { program: program.clone(), reason })?;
        let mut run = Run { seconds, messages: 0, bytes: 0, spilled: 0, late_commit: 0, disk_s: None };
        if !matches!(log, LogKind::None | LogKind::Floor) {
            run.add_summaries(memory.path()).map_err(|reason| TaskError::Output { program, reason })?;
        }
        if log == LogKind::KeepAllSpilled {
            run.disk_s = Some(run.spilled as f64 / floor::disk_bytes_per_s(disk.path())?);
        }
        Ok(run)
    }
}

impl Run {
    /// Adds the totals from both ranks' summaries.
    fn add_summaries(&mut self, folder: &Path) -> Result<(), String> {
        for rank in 0..2 {
            let summary = read_summary(folder, rank)?;
            let number = |name: &str| summary[name].as_u64().unwrap_or(0);
            self.messages += number("messages_logged");
            self.bytes += number("bytes_logged");
            self.spilled += number("spilled_bytes");
            self.late_commit += number("late_commit_bytes");
        }
        Ok(())
    }
}
