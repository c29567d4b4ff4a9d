//! `counterfoil replay`: runs one rank of a job again, alone, from the job's logs.

mod outcome;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use counterfoil_runtime::local::SharedJobDirectory;
use counterfoil_settings::recover::{
    Begun, CallMark, Ended, Exited, JobDescription, RecoverSettings, ReplaySettings, Replayed, read_report,
};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::SIGINT;

use crate::Failure;
use crate::run::launch::{library_path, preload};
use crate::run::mpi::Mpi;
use crate::run::{find_recovery_library, hash_seed};
use crate::settings::{SettingOptions, Settings};
use outcome::Outcome;

/// Progress display interval.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The debugger.
const DEBUGGER: &str = "gdb";

/// Run one rank of a job again, alone, from the logs kept by `counterfoil run --recover --log-dir`.
///
/// Starts the program without mpirun. It gets the rank's received messages and timing-dependent outcomes again; what it
/// sends is compared with what it had sent. The replay ends with the program, at the first difference, or where a
/// killed rank's record ends. The logs stay as they are. The program's input and output are those of this command,
/// which reports on standard error. The exit code is 0 if the rank did the same, 1 if it did something else, 2 if it
/// can't be replayed.
#[derive(Debug, Args)]
#[command(override_usage = "counterfoil replay --rank R [OPTIONS] LOGS -- PROGRAM [ARGUMENTS]")]
pub(crate) struct ReplayArguments {
    /// The rank
    #[arg(short, long, value_name = "R")]
    rank: u32,
    /// Stop before this MPI call, counted from 1 after MPI_Init
    #[arg(long, value_name = "CALL", value_parser = clap::value_parser!(u64).range(1..))]
    until: Option<u64>,
    /// Run the program under gdb, which gets control where the replay stops: before the --until call, at the first
    /// difference, where the record ends. Without --until, gdb waits for `run`
    #[arg(long)]
    gdb: bool,
    #[command(flatten)]
    mpi: MpiOptions,
    /// Print a JSON object on standard error
    #[arg(long)]
    pub(crate) json: bool,
    /// Don't show the progress line (shown on terminals only)
    #[arg(long)]
    no_progress: bool,
    /// The directory with the job's logs
    #[arg(value_name = "LOGS")]
    logs: PathBuf,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// MPI and library for a replay.
#[derive(Debug, Args)]
pub(crate) struct MpiOptions {
    /// The program's MPI: `wheel`, `debian`, `mpich` or a prefix [default: same as `counterfoil run`]
    #[arg(long, value_name = "MPI")]
    mpi: Option<String>,
    /// The logging library, with the recovery library next to it [default: the one built for this MPI]
    #[arg(long, value_name = "PATH")]
    mpi_library: Option<String>,
}

impl MpiOptions {
    /// Returns the MPI, and the recovery library for it.
    pub(crate) fn find(&self) -> Result<(Mpi, PathBuf), Failure> {
        let options = SettingOptions::of([("mpi", self.mpi.as_deref()), ("mpi-library", self.mpi_library.as_deref())]);
        let settings = Settings::resolve(&options).map_err(Failure::refused)?;
        let by = settings.source("mpi").to_string();
        let mpi = Mpi::find(settings.run.mpi.as_deref().map(|mpi| (mpi, by.as_str()))).map_err(Failure::failed)?;
        let library = find_recovery_library(settings.run.mpi_library.as_deref(), &mpi).map_err(Failure::failed)?;
        Ok((mpi, library))
    }
}

/// A job's rank, as described by the logs.
pub(crate) struct Rank {
    pub(crate) settings: ReplaySettings,
    /// Job description.
    pub(crate) job: JobDescription,
    /// The rank's exit code, if it had called `MPI_Finalize`.
    exited: Option<i32>,
}

pub(crate) fn run(arguments: &ReplayArguments) -> Result<ExitCode, Failure> {
    let mut rank = Rank::find(&arguments.logs, arguments.rank)?;
    (rank.settings.until, rank.settings.is_debugged) = (arguments.until, arguments.gdb);
    let (mpi, library) = arguments.mpi.find()?;
    if let Some(note) = rank.note(&arguments.program, &mpi) {
        eprintln!("counterfoil: {note}");
    }
    let reports = tempfile::tempdir().map_err(|error| Failure::failed(format!("a temporary directory: {error}")))?;
    let mut command = command(arguments, &library);
    command.envs(library_path(&mpi)).envs(rank.variables(reports.path()));
    let status = watch(command, arguments, &rank, reports.path())?;
    let outcome = Outcome {
        rank: rank.settings.rank,
        died_in: rank.settings.died_in,
        replayed: read_report(&reports.path().join(Replayed::FILE)),
        calls: calls_in(reports.path(), rank.settings.rank).unwrap_or_default(),
        status,
        exited: rank.exited,
        until: arguments.until,
    };
    if arguments.json {
        eprintln!("{}", outcome.to_json());
    } else {
        eprintln!("counterfoil: {outcome}");
    }
    Ok(ExitCode::from(outcome.exit_code()))
}

impl Rank {
    /// Finds a rank in its job's logs.
    pub(crate) fn find(logs: &Path, rank: u32) -> Result<Rank, Failure> {
        let canonical = fs::canonicalize(logs);
        let logs = canonical.map_err(|error| Failure::refused(format!("{}: {error}", logs.display())))?;
        let job = JobDescription::read(&logs).map_err(Failure::refused)?;
        let ranks = job.settings.ranks;
        if rank >= ranks {
            return Err(Failure::usage(format!("--rank: the ranks are 0 to {}", ranks - 1)));
        }
        let name = job.settings.job.as_deref().unwrap_or_default();
        let log_directory = SharedJobDirectory::kept_logs(&logs, name).ok_or_else(|| {
            Failure::refused(format!("{} has no logs: the job has ended before its ranks began", logs.display()))
        })?;
        let reports = job.settings.report_dir.file_name().map(|name| logs.join(name)).unwrap_or_default();
        let ended: Option<Ended> = read_report(&reports.join(Ended::file(rank)));
        // Its call count is the maximum over its processes.
        let has_one_process = Begun::of_rank(&reports, rank).len() == 1;
        let settings = ReplaySettings {
            rank,
            log_directory,
            died_in: if ended.is_none() && has_one_process { calls_in(&reports, rank) } else { None },
            ended,
            until: None,
            is_debugged: false,
            history: None,
        };
        let exited = read_report::<Exited>(&reports.join(Exited::file(rank))).map(|exited| exited.code);
        Ok(Rank { settings, job, exited })
    }

    /// Returns the variables for its process, which writes its reports there.
    pub(crate) fn variables(&self, reports: &Path) -> Vec<(&'static str, OsString)> {
        let settings = RecoverSettings {
            report_dir: reports.to_owned(),
            kills: Vec::new(),
            keeps_logs: true,
            replay: Some(self.settings.clone()),
            ..self.job.settings.clone()
        };
        settings.to_replay_env()
    }

    /// Returns a note if the job ran another program, or with other arguments, or on another MPI.
    pub(crate) fn note(&self, program: &[OsString], mpi: &Mpi) -> Option<String> {
        let given: Vec<String> = program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let name = |program: &[String]| program.first().map(|path| Path::new(path).file_name().map(OsString::from));
        let is_other = name(&given) != name(&self.job.program)
            || given.get(1..) != self.job.program.get(1..)
            || self.job.mpi != mpi.to_string();
        is_other.then(|| format!("the job was run with `{}` on {}", self.job.program.join(" "), self.job.mpi))
    }
}

/// Returns the number of calls begun by a rank, if counted in this directory.
pub(crate) fn calls_in(reports: &Path, rank: u32) -> Option<u64> {
    CallMark::parse(&fs::read(reports.join(CallMark::file(rank))).ok()?)
}

/// Returns the command that runs the program with the library, perhaps under the debugger.
fn command(arguments: &ReplayArguments, library: &Path) -> Command {
    if !arguments.gdb {
        return preloaded(&arguments.program, library);
    }
    let (name, value) = preload(library);
    let mut command = Command::new(DEBUGGER);
    command.envs(hash_seed());
    // The debugger itself must not load the library.
    let mut preloaded = OsString::from(format!("set environment {name} "));
    preloaded.push(value);
    command.args(["-q", "-ex", "set startup-with-shell off", "-ex"]).arg(preloaded);
    if arguments.until.is_some() {
        // It stops in the library, called by the program.
        command.args(["-ex", "run", "-ex", "frame function main"]);
    }
    command.arg("--args").args(&arguments.program);
    command
}

/// Returns the command that runs a program with the library preloaded.
pub(crate) fn preloaded(program: &[OsString], library: &Path) -> Command {
    let (name, value) = preload(library);
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).env(name, value).envs(hash_seed());
    command
}

/// Returns a line showing a command's progress.
pub(crate) fn progress_line(unit: &str, all: u64, is_shown: bool) -> ProgressBar {
    let line = if is_shown { ProgressBar::new(all) } else { ProgressBar::hidden() };
    if let Ok(style) =
        ProgressStyle::with_template(&format!("{{elapsed_precise}} {unit} {{pos}} of {{len}} {{wide_bar}}"))
    {
        line.set_style(style);
    }
    line
}

/// Runs the program to its end, and shows its progress.
fn watch(
    mut command: Command,
    arguments: &ReplayArguments,
    rank: &Rank,
    reports: &Path,
) -> Result<ExitStatus, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |error| Failure::failed(format!("cannot run {program}: {error}"));
    // An interrupt is for the program or its debugger: this command reports how they have ended.
    signal_hook::flag::register(SIGINT, Arc::default()).map_err(failed)?;
    let mut child = command.spawn().map_err(failed)?;
    if arguments.gdb {
        return child.wait().map_err(failed);
    }
    let all = rank.settings.ended.as_ref().map(|ended| ended.calls).or(rank.settings.died_in);
    let line = progress_line("call", all.unwrap_or_default(), !arguments.no_progress);
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        line.set_position(calls_in(reports, rank.settings.rank).unwrap_or_default());
        std::thread::sleep(POLL_INTERVAL);
    };
    line.finish_and_clear();
    Ok(status)
}
