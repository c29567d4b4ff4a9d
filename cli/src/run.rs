//! `counterfoil run`: runs an unmodified MPI program and logs its messages.

mod arguments;
pub(crate) mod launch;
mod library;
pub(crate) mod mpi;
mod progress;
mod recover;
mod summary;
mod takeover;

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use counterfoil::{Tier, create_private_dir};
use counterfoil_mpi_discovery::find_in_path;
use counterfoil_profile::{Job, Setting, VERSION};
use counterfoil_runtime::local::{JobDirectory, clean, default_checkpoint_root, default_shm_root};
use counterfoil_settings::recover::JobDescription;
use counterfoil_settings::{Key, RunSettings};

use crate::Failure;
use crate::settings::{SettingOptions, Settings};
use launch::Launch;
use mpi::Mpi;
use progress::ProgressLine;
use recover::RecoverOptions;
use summary::JobSummary;

pub(crate) use arguments::wrap_mpirun_options;
pub(crate) use library::{find as find_library, find_recovery as find_recovery_library};
pub(crate) use recover::hash_seed;

/// Run an unmodified MPI program and log its sent messages; with --recover, replace killed ranks.
///
/// Runs the program under its MPI's mpirun, with a preloaded library that intercepts its MPI calls. Passes unknown
/// options on to mpirun. Input, output and exit code are the program's own; this command reports on standard error.
/// Settings come from options, environment variables and a file; see `counterfoil config`.
#[derive(Debug, Args)]
#[command(override_usage = "counterfoil run [OPTIONS] [MPIRUN OPTIONS] -- PROGRAM [ARGUMENTS]")]
pub(crate) struct RunArguments {
    /// Number of ranks [default: mpirun's]
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = parse_ranks)]
    ranks: Option<u32>,
    #[command(flatten)]
    recover: RecoverOptions,
    #[command(flatten)]
    options: SettingOptions,
    /// At the end, print a JSON object on standard error instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// Don't show the progress line (shown on terminals only)
    #[arg(long)]
    no_progress: bool,
    /// A word for mpirun; unknown options are wrapped in this one
    #[arg(long = arguments::WRAPPER, value_name = "WORD", allow_hyphen_values = true, hide = true)]
    mpirun: Vec<OsString>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

fn parse_ranks(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("a job has at least one rank".to_owned()),
        Ok(ranks) => Ok(ranks),
        Err(_) => Err("must be a number of ranks".to_owned()),
    }
}

/// Error while preparing the log directory.
#[derive(Debug, thiserror::Error)]
enum LogDirError {
    #[error("--log-dir: {0}")]
    Make(#[from] counterfoil::PrivateFileError),
    #[error("--log-dir: cannot create {}: {source}", path.display())]
    MakeParents { path: PathBuf, source: std::io::Error },
    #[error("--log-dir: cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("--log-dir: {} is not writable: {source}", path.display())]
    NotWritable { path: PathBuf, source: std::io::Error },
    #[error(
        "--log-dir: {} contains logs of another job ({name}): remove them, or choose another directory",
        path.display()
    )]
    Taken { path: PathBuf, name: String },
}

pub(crate) fn run(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    let settings = Settings::resolve(&arguments.options).map_err(Failure::refused)?;
    for word in &arguments.mpirun {
        if let Some(own) = arguments::resembled(word) {
            eprintln!("counterfoil: {} is passed on to mpirun; did you mean --{own}?", word.display());
        }
    }
    let run = &settings.run;
    let by = settings.source("mpi").to_string();
    let mpi = Mpi::find(run.mpi.as_deref().map(|mpi| (mpi, by.as_str()))).map_err(Failure::failed)?;
    // With its own options, mpirun may search for the program elsewhere.
    if arguments.mpirun.is_empty() {
        check_program(&arguments.program[0])?;
    }
    if let Some(path) = &run.summary {
        // Before the run: afterwards the error would come too late.
        check_writable(path).map_err(|error| Failure::refused(format!("--summary: {}: {error}", path.display())))?;
    }
    if arguments.recover.is_wanted() {
        return recover::run(arguments, &settings, &mpi);
    }
    let library = library::find(run.mpi_library.as_deref(), &mpi).map_err(Failure::failed)?;
    let roots = [default_shm_root(), default_checkpoint_root()];
    remove_dead_jobs(&roots);
    let job = JobDirectory::create(&roots[0], &roots[1]).map_err(Failure::failed)?;
    let log_dir = run.log_dir.as_deref().map(|dir| claim_log_dir(dir, counterfoil_profile::job::FILE));
    let log_dir = log_dir.transpose().map_err(Failure::refused)?;
    let of_ranks = settings_of_ranks(run, log_dir, &job);
    let log_dir = &of_ranks.log_dir;
    let launch = Launch {
        mpi: &mpi,
        library: &library,
        variables: of_ranks.to_env(),
        processes: arguments.ranks,
        job: &job,
        has_own_output: false,
        options: &[],
        mpirun_options: &arguments.mpirun,
        program: &arguments.program,
    };
    let mut description = job_description(&settings, &mpi, &arguments.program);
    if let Some(dir) = log_dir {
        // Before the run: this process may be killed before its end.
        description.write(dir).map_err(Failure::failed)?;
    }
    let mut progress = ProgressLine::new(&job.paths().traces(), !arguments.no_progress);
    let exit = launch.run(&mut progress).map_err(Failure::failed)?;
    let mut job_summary = JobSummary::read(run, &mpi, &exit, &job.paths().traces());
    let taken = takeover::take_over(&of_ranks, job_summary.ranks().unwrap_or(0), |rank| job_summary.is_done(rank));
    job_summary.add_taken_over(taken);
    if let Some(dir) = log_dir {
        (description.wall_s, description.exit_code) = (Some(exit.wall.as_secs_f64()), Some(exit.code));
        (description.interrupted, description.ranks) = (exit.interrupted, job_summary.ranks());
        description.not_logged = job_summary.refusals().collect();
        if let Err(error) = description.write(dir) {
            eprintln!("counterfoil: {error}");
        }
    }
    drop(job);
    let name = arguments.program[0].to_string_lossy();
    for note in job_summary.notes(&name) {
        eprintln!("counterfoil: {note}");
    }
    if arguments.json {
        eprintln!("{}", job_summary.to_json());
    } else if job_summary.has_ranks() {
        eprintln!("{job_summary}");
    }
    if let Some(path) = &run.summary
        && let Err(error) = std::fs::write(path, format!("{}\n", job_summary.to_json()))
    {
        let failure = format!("--summary: {}: {error}", path.display());
        if exit.code == 0 {
            return Err(Failure::failed(failure));
        }
        eprintln!("error: {failure}");
    }
    Ok(ExitCode::from(exit.code))
}

/// Removes the files of jobs whose `counterfoil` was killed, as `counterfoil clean` does, and reports it.
///
/// Failed removals are left for `counterfoil clean` to report.
fn remove_dead_jobs(roots: &[PathBuf]) {
    let Ok(cleaned) = clean(roots) else { return };
    for path in &cleaned.removed {
        eprintln!("counterfoil: removed {}, which a killed job had left", path.display());
    }
}

/// Returns the ranks' settings: the run's, with this job's directories.
fn settings_of_ranks(run: &RunSettings, log_dir: Option<PathBuf>, job: &JobDirectory) -> RunSettings {
    RunSettings {
        log_dir,
        shm_dir: (run.tier == Tier::ProcessCrashSafe).then(|| job.paths().logs()),
        spill_dir: (run.tier == Tier::NodeLocal).then(|| job.checkpoints().into()),
        summary_dir: Some(job.paths().traces()),
        ..run.clone()
    }
}

/// Describes the job for `counterfoil report`.
fn job_description(settings: &Settings, mpi: &Mpi, program: &[OsString]) -> Job {
    let setting = |key: &Key| {
        let value = key.get(&settings.run)?;
        Some(Setting { name: key.name.to_owned(), value, source: settings.source(key.name).to_string() })
    };
    Job {
        version: VERSION,
        program: program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        mpi: mpi.to_string(),
        settings: Key::of_ranks().filter_map(setting).collect(),
        wall_s: None,
        exit_code: None,
        interrupted: false,
        ranks: None,
        not_logged: Vec::new(),
    }
}

/// Checks that the program exists.
fn check_program(program: &OsStr) -> Result<(), Failure> {
    let not_found = || Failure::refused(format!("program not found: {}", Path::new(program).display()));
    find_program(program).map(drop).ok_or_else(not_found)
}

/// Returns the file of a program named by its path, or found in `PATH`.
fn find_program(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    // mpirun also searches the working directory.
    if path.is_file() {
        return Some(path.to_owned());
    }
    let is_name = !program.as_bytes().contains(&b'/');
    is_name.then(|| find_in_path(std::env::var_os("PATH").as_deref(), program))?
}

/// Checks that a file can be written; truncates an existing file, and leaves no new one.
fn check_writable(path: &Path) -> std::io::Result<()> {
    let is_new = !path.exists();
    std::fs::write(path, "")?;
    if is_new { std::fs::remove_file(path) } else { Ok(()) }
}

/// Claims the directory for this job's logs, with an empty job description; creates it if missing.
///
/// Returns an absolute path, since ranks may start in another working directory.
fn claim_log_dir(dir: &Path, description: &str) -> Result<PathBuf, LogDirError> {
    if !dir.exists() {
        let parents = dir.parent().filter(|parents| !parents.as_os_str().is_empty());
        if let Some(parents) = parents {
            let make = |source| LogDirError::MakeParents { path: parents.to_owned(), source };
            std::fs::create_dir_all(parents).map_err(make)?;
        }
        match create_private_dir(dir) {
            // Another job may have created it meanwhile; the file below decides which job gets it.
            Err(_) if dir.is_dir() => {}
            made => made?,
        }
    }
    let read_error = |source| LogDirError::Read { path: dir.to_owned(), source };
    let taken = |name: String| LogDirError::Taken { path: dir.to_owned(), name };
    for entry in std::fs::read_dir(dir).map_err(read_error)? {
        let name = entry.map_err(read_error)?.file_name().to_string_lossy().into_owned();
        if name.starts_with("rank-")
            || [recover::REPORTS, counterfoil_profile::job::FILE, JobDescription::FILE].contains(&name.as_str())
        {
            return Err(taken(name));
        }
    }
    // Only one job can create this file. And only an attempt tells whether the directory is writable, also for root, on
    // read-only and on pseudo file systems.
    match std::fs::OpenOptions::new().write(true).create_new(true).open(dir.join(description)) {
        Ok(_) => std::path::absolute(dir).map_err(read_error),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(taken(description.to_owned())),
        Err(source) => Err(LogDirError::NotWritable { path: dir.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(dir: &Path) -> Result<PathBuf, LogDirError> {
        claim_log_dir(dir, counterfoil_profile::job::FILE)
    }

    #[test]
    fn a_log_directory_is_created_and_refused_if_another_job_uses_it() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("some where/logs");
        assert_eq!(claim(&dir).unwrap(), dir, "with its parents");
        let taken = |dir: &Path| claim(dir).unwrap_err().to_string();
        assert!(taken(&dir).contains("logs of another job (job.json)"), "{}", taken(&dir));
        let existing = place.path().join("existing");
        std::fs::create_dir(&existing).unwrap();
        assert_eq!(claim(&existing).unwrap(), existing, "an empty directory is accepted");
        std::fs::remove_file(existing.join("job.json")).unwrap();
        std::fs::create_dir(existing.join("rank-3")).unwrap();
        assert!(taken(&existing).contains("logs of another job (rank-3)"), "{}", taken(&existing));
        let recovering = place.path().join("recovering");
        claim_log_dir(&recovering, JobDescription::FILE).unwrap();
        assert!(taken(&recovering).contains("logs of another job (recover.json)"), "{}", taken(&recovering));
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(matches!(claim(&file), Err(LogDirError::Read { .. })));
        assert!(matches!(claim(&file.join("logs")), Err(LogDirError::MakeParents { .. })));
    }

    #[test]
    fn only_one_of_several_jobs_claims_a_directory() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("logs");
        let start = std::sync::Barrier::new(8);
        let claim_with_others = || {
            start.wait();
            claim(&dir)
        };
        let taken = std::thread::scope(|scope| {
            let jobs: Vec<_> = (0..8).map(|_| scope.spawn(claim_with_others)).collect();
            jobs.into_iter().map(|job| job.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(taken.iter().filter(|taken| taken.is_ok()).count(), 1, "{taken:?}");
        assert!(
            taken.iter().flat_map(|taken| taken.as_ref().err()).all(|error| matches!(error, LogDirError::Taken { .. }))
        );
    }

    #[test]
    fn checking_the_summary_file_leaves_none_behind() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s.json");
        check_writable(&path).unwrap();
        assert!(!path.exists());
        assert!(check_writable(&place.path().join("none/s.json")).is_err());
    }

    #[test]
    fn the_number_of_ranks_must_be_positive() {
        assert_eq!(parse_ranks("4"), Ok(4));
        for (wrong, what) in [("0", "at least one"), ("-1", "number"), ("x", "number")] {
            assert!(parse_ranks(wrong).unwrap_err().contains(what), "{wrong}");
        }
    }
}
