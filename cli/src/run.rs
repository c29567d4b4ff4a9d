//! `counterfoil run`: an unmodified MPI program, and everything that it sends in a log.

mod account;
mod arguments;
mod launch;
mod left;
mod library;
pub(crate) mod mpi;
mod view;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use counterfoil::create_private_dir;
use counterfoil_profile::{Job, Setting, VERSION};
use counterfoil_runtime::local::{JobDirectory, default_checkpoint_root, default_shm_root};

use crate::Failure;
use crate::config::{Chosen, Key, Settings};
use account::Account;
use launch::Launch;
use mpi::Mpi;

pub(crate) use arguments::carry;
pub(crate) use library::find as find_library;

/// Run an MPI program, unmodified, and log what it sends.
///
/// The program runs under its own MPI's mpirun, with a library that stands between the two; options that are not known here are
/// mpirun's. Its input, its output and its exit code are its own: what this command has to say is on standard error. Settings come from options, from
/// the environment, and from a file: see `counterfoil config`. All ranks are on this machine.
#[derive(Debug, Args)]
#[command(override_usage = "counterfoil run [OPTIONS] [MPIRUN OPTIONS] -- PROGRAM [ARGUMENTS]")]
pub(crate) struct RunArguments {
    /// Ranks [default: as many as mpirun takes]
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = parse_ranks)]
    ranks: Option<u32>,
    #[command(flatten)]
    chosen: Chosen,
    /// At the end, one JSON object on standard error in place of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// No line that says how the job is doing. There is none either where standard error is no terminal. What the program prints on the
    /// same terminal stands behind it
    #[arg(long)]
    no_progress: bool,
    /// A word for mpirun: what isn't known here becomes one of these
    #[arg(long = arguments::CARRIER, value_name = "WORD", allow_hyphen_values = true, hide = true)]
    mpirun: Vec<OsString>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

fn parse_ranks(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("a job has at least one rank".to_owned()),
        Ok(ranks) => Ok(ranks),
        Err(_) => Err("it must be a number of ranks".to_owned()),
    }
}

/// Why the directory for logs can't be used.
#[derive(Debug, thiserror::Error)]
enum LogDirError {
    #[error("--log-dir: {0}")]
    Make(#[from] counterfoil::PrivateFileError),
    #[error("--log-dir: cannot make {}: {source}", path.display())]
    MakeParents { path: PathBuf, source: std::io::Error },
    #[error("--log-dir: cannot look into {}: {source}", path.display())]
    Look { path: PathBuf, source: std::io::Error },
    #[error("--log-dir: {} is not writable: {source}", path.display())]
    NotWritable { path: PathBuf, source: std::io::Error },
    #[error(
        "--log-dir: {} has logs of another job ({name}): give another directory, or remove what is there",
        path.display()
    )]
    Taken { path: PathBuf, name: String },
}

pub(crate) fn run(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    let settings = Settings::resolve(&arguments.chosen).map_err(Failure::refused)?;
    let asked = settings.value(Key::Mpi).map(|asked| (asked, settings.found(Key::Mpi).source.to_string()));
    let mpi = Mpi::find(asked.as_ref().map(|(asked, by)| (*asked, by.as_str()))).map_err(Failure::failed)?;
    let library = library::find(settings.value(Key::MpiLibrary).map(Path::new), &mpi).map_err(Failure::failed)?;
    // Where mpirun looks for it otherwise is mpirun's affair.
    if arguments.mpirun.is_empty() {
        exists(&arguments.program[0])?;
    }
    let summary = settings.value(Key::Summary).map(Path::new);
    if let Some(path) = summary {
        // Before the run: afterwards it would be too late to say so.
        can_be_written(path).map_err(|error| Failure::refused(format!("--summary: {}: {error}", path.display())))?;
    }
    let job = JobDirectory::create(&default_shm_root(), &default_checkpoint_root()).map_err(Failure::failed)?;
    let log_dir = settings.value(Key::LogDir).map(|dir| take(Path::new(dir)));
    let log_dir = log_dir.transpose().map_err(Failure::refused)?;
    let launch = Launch {
        mpi: &mpi,
        library: &library,
        settings: &settings,
        ranks: arguments.ranks,
        log_dir: log_dir.as_deref(),
        job: &job,
        mpirun_options: &arguments.mpirun,
        program: &arguments.program,
        has_progress: !arguments.no_progress,
    };
    let mut profile = describe(&settings, &mpi, &arguments.program);
    if let Some(dir) = &log_dir {
        // Before the run: nobody may see its end.
        profile.write(dir).map_err(Failure::failed)?;
    }
    let ended = launch.run().map_err(Failure::failed)?;
    let mut account = Account::read(&settings, &mpi, &ended, &job.paths().traces());
    let shared = job.paths().logs();
    let taken = left::take_over(&settings, (&shared, log_dir.as_deref()), account.ranks().unwrap_or(0), |rank| {
        account.is_done(rank)
    });
    account.taken_over(taken);
    if let Some(dir) = &log_dir {
        (profile.wall_s, profile.exit_code) = (Some(ended.wall.as_secs_f64()), Some(ended.code));
        (profile.interrupted, profile.ranks) = (ended.interrupted, account.ranks());
        if let Err(error) = profile.write(dir) {
            eprintln!("counterfoil: {error}");
        }
    }
    drop(job);
    let name = arguments.program[0].to_string_lossy();
    for note in account.notes(&name) {
        eprintln!("counterfoil: {note}");
    }
    if arguments.json {
        eprintln!("{}", account.to_json());
    } else if account.has_ranks() {
        eprintln!("{account}");
    }
    if let Some(path) = summary
        && let Err(error) = std::fs::write(path, format!("{}\n", account.to_json()))
    {
        let failure = format!("--summary: {}: {error}", path.display());
        if ended.code == 0 {
            return Err(Failure::failed(failure));
        }
        eprintln!("error: {failure}");
    }
    Ok(ExitCode::from(ended.code))
}

/// What is run, for `counterfoil report`.
fn describe(settings: &Settings, mpi: &Mpi, program: &[OsString]) -> Job {
    let keys = [Key::Protocol, Key::Logging, Key::Keep, Key::OnFull, Key::Budget, Key::Standstill, Key::Tier];
    let setting = |key: Key| {
        let found = settings.found(key);
        let value = found.value.clone().unwrap_or_default();
        Setting { name: key.name().to_owned(), value, source: found.source.to_string() }
    };
    Job {
        version: VERSION,
        program: program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        mpi: mpi.to_string(),
        settings: keys.map(setting).into(),
        wall_s: None,
        exit_code: None,
        interrupted: false,
        ranks: None,
    }
}

/// Whether there is such a program, as a path or in PATH.
fn exists(program: &OsString) -> Result<(), Failure> {
    let path = Path::new(program);
    let is_there = if program.as_bytes().contains(&b'/') {
        path.is_file()
    } else {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        // mpirun looks in the working directory, too.
        path.is_file() || std::env::split_paths(&folders).any(|folder| folder.join(path).is_file())
    };
    if is_there {
        return Ok(());
    }
    Err(Failure::refused(format!("there is no program {}", path.display())))
}

/// Whether a file can be written. One that is there is empty afterwards; one that isn't, isn't.
fn can_be_written(path: &Path) -> std::io::Result<()> {
    let is_new = !path.exists();
    std::fs::write(path, "")?;
    if is_new { std::fs::remove_file(path) } else { Ok(()) }
}

/// The directory for logs, made if it isn't there, as an absolute path: ranks may be started elsewhere. From here on it is this job's.
fn take(dir: &Path) -> Result<PathBuf, LogDirError> {
    if !dir.exists() {
        let parents = dir.parent().filter(|parents| !parents.as_os_str().is_empty());
        if let Some(parents) = parents {
            let make = |source| LogDirError::MakeParents { path: parents.to_owned(), source };
            std::fs::create_dir_all(parents).map_err(make)?;
        }
        match create_private_dir(dir) {
            // Another job may have made it meanwhile; who takes it is decided below.
            Err(_) if dir.is_dir() => {}
            made => made?,
        }
    }
    let look = |source| LogDirError::Look { path: dir.to_owned(), source };
    let taken = |name: String| LogDirError::Taken { path: dir.to_owned(), name };
    for entry in std::fs::read_dir(dir).map_err(look)? {
        let name = entry.map_err(look)?.file_name().to_string_lossy().into_owned();
        if name.starts_with("rank-") || name == counterfoil_profile::job::FILE {
            return Err(taken(name));
        }
    }
    // Only one job can make this file. And only a trial tells for everybody whether the directory can be written: the administrator, and
    // a file system that is read-only or is none.
    let description = Job::path(dir);
    match std::fs::OpenOptions::new().write(true).create_new(true).open(&description) {
        Ok(_) => std::path::absolute(dir).map_err(look),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(taken(counterfoil_profile::job::FILE.to_owned())),
        Err(source) => Err(LogDirError::NotWritable { path: dir.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_for_logs_is_made_and_refused_where_another_job_has_it() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("some where/logs");
        assert_eq!(take(&dir).unwrap(), dir, "with what is above it");
        let taken = |dir: &Path| take(dir).unwrap_err().to_string();
        assert!(taken(&dir).contains("logs of another job (job.json)"), "{}", taken(&dir));
        let there = place.path().join("there");
        std::fs::create_dir(&there).unwrap();
        assert_eq!(take(&there).unwrap(), there, "one that is there and empty will do");
        std::fs::remove_file(there.join("job.json")).unwrap();
        std::fs::create_dir(there.join("rank-3")).unwrap();
        assert!(taken(&there).contains("logs of another job (rank-3)"), "{}", taken(&there));
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(matches!(take(&file), Err(LogDirError::Look { .. })));
        assert!(matches!(take(&file.join("logs")), Err(LogDirError::MakeParents { .. })));
    }

    #[test]
    fn of_jobs_that_want_the_same_directory_one_has_it() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("logs");
        let start = std::sync::Barrier::new(8);
        let one = || {
            start.wait();
            take(&dir)
        };
        let taken = std::thread::scope(|scope| {
            let jobs: Vec<_> = (0..8).map(|_| scope.spawn(one)).collect();
            jobs.into_iter().map(|job| job.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(taken.iter().filter(|taken| taken.is_ok()).count(), 1, "{taken:?}");
        assert!(
            taken.iter().flat_map(|taken| taken.as_ref().err()).all(|error| matches!(error, LogDirError::Taken { .. }))
        );
    }

    #[test]
    fn a_file_for_the_summary_is_not_left_empty() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s.json");
        can_be_written(&path).unwrap();
        assert!(!path.exists());
        assert!(can_be_written(&place.path().join("none/s.json")).is_err());
    }

    #[test]
    fn ranks_are_a_number() {
        assert_eq!(parse_ranks("4"), Ok(4));
        for (wrong, what) in [("0", "at least one"), ("-1", "number"), ("x", "number")] {
            assert!(parse_ranks(wrong).unwrap_err().contains(what), "{wrong}");
        }
    }
}
