//! `counterfoil run`: an unmodified MPI program, and everything that it sends in a log.

mod account;
mod arguments;
mod launch;
mod left;
mod library;
pub(crate) mod mpi;
mod view;

use std::ffi::OsString;
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
    json: bool,
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
    let settings = Settings::resolve(&arguments.chosen).map_err(Failure::usage)?;
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
        std::fs::write(path, "").map_err(|error| Failure::usage(format!("--summary: {}: {error}", path.display())))?;
    }
    let log_dir = settings.value(Key::LogDir).map(|dir| prepare(Path::new(dir)));
    let log_dir = log_dir.transpose().map_err(Failure::usage)?;
    let job = JobDirectory::create(&default_shm_root(), &default_checkpoint_root()).map_err(Failure::failed)?;
    let launch = Launch {
        mpi: &mpi,
        library: &library,
        settings: &settings,
        ranks: arguments.ranks,
        ranks_elsewhere: arguments::ranks_in(&arguments.mpirun),
        log_dir: log_dir.as_deref(),
        job: &job,
        mpirun_options: &arguments.mpirun,
        program: &arguments.program,
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
    let keys = [Key::Protocol, Key::Logging, Key::Keep, Key::OnFull, Key::Budget, Key::Tier];
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
    Err(Failure::usage(format!("there is no program {}", path.display())))
}

/// The directory for logs, made if it isn't there, as an absolute path: ranks may be started elsewhere.
fn prepare(dir: &Path) -> Result<PathBuf, LogDirError> {
    if !dir.exists() {
        create_private_dir(dir)?;
    }
    let look = |source| LogDirError::Look { path: dir.to_owned(), source };
    for entry in std::fs::read_dir(dir).map_err(look)? {
        let name = entry.map_err(look)?.file_name().to_string_lossy().into_owned();
        if name.starts_with("rank-") || name == counterfoil_profile::job::FILE {
            return Err(LogDirError::Taken { path: dir.to_owned(), name });
        }
    }
    // Only a trial tells it for everybody: the administrator, and a file system that is read-only or is none.
    let trial = dir.join(format!(".counterfoil-{}", std::process::id()));
    let tried = std::fs::create_dir(&trial).and_then(|()| std::fs::remove_dir(&trial));
    tried.map_err(|source| LogDirError::NotWritable { path: dir.to_owned(), source })?;
    std::path::absolute(dir).map_err(look)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_for_logs_is_made_and_refused_where_another_job_has_it() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("logs");
        assert_eq!(prepare(&dir).unwrap(), dir);
        assert_eq!(prepare(&dir).unwrap(), dir, "one that is there and empty will do");
        std::fs::create_dir(dir.join("rank-3")).unwrap();
        let taken = prepare(&dir).unwrap_err().to_string();
        assert!(taken.contains("logs of another job (rank-3)"), "{taken}");
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(matches!(prepare(&file), Err(LogDirError::Look { .. })));
        assert!(matches!(prepare(&place.path().join("a/b")), Err(LogDirError::Make(_))));
    }

    #[test]
    fn ranks_are_a_number() {
        assert_eq!(parse_ranks("4"), Ok(4));
        for (wrong, what) in [("0", "at least one"), ("-1", "number"), ("x", "number")] {
            assert!(parse_ranks(wrong).unwrap_err().contains(what), "{wrong}");
        }
    }
}
