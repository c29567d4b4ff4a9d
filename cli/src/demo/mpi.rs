//! `counterfoil demo --mpi`: the same program again, as ranks of an MPI job.
//!
//! This program knows no MPI: it prepares a job's directory, starts `mpirun` with the program that `cargo xtask mpi` has built,
//! and reads what the ranks left.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use counterfoil_runtime::Tally;
use counterfoil_runtime::local::{Interrupts, JobDirectory, JobError, JobOptions, JobReport};
use counterfoil_runtime::oracle::{OracleError, read_timelines};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::json;

use crate::rank::Program;

/// The environment variable that names a build.
pub(super) const VARIABLE: &str = "COUNTERFOIL_MPI_BUILD";
/// In a build's folder: what it was built with.
const DESCRIPTION: &str = "mpi.json";
/// In a build's folder: one rank.
const PROGRAM: &str = "release/counterfoil-mpi-demo";
/// How long `mpirun` may take to end its ranks when it is asked to.
const GRACE: Duration = Duration::from_secs(3);

/// Why there is no run over MPI, or none that ended well.
#[derive(Debug, thiserror::Error)]
pub(super) enum MpiRunError {
    #[error(
        "--mpi: no program for MPI was found: `cargo xtask mpi` builds it; if it is not beside this program, {VARIABLE} says \
         where (the folder that `cargo xtask mpi` names)"
    )]
    NotBuilt,
    #[error("--mpi: {} is not a build of `cargo xtask mpi`: {reason}", folder.display())]
    NoBuild { folder: PathBuf, reason: String },
    #[error(transparent)]
    Job(#[from] JobError),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Malformed { path: PathBuf, source: serde_json::Error },
    #[error("cannot start {}: {source}", mpirun.display())]
    Start { mpirun: PathBuf, source: io::Error },
    #[error("cannot wait for mpirun: {0}")]
    Wait(#[source] io::Error),
    #[error("mpirun failed ({0}); its own words are above")]
    Failed(ExitStatus),
    #[error("the run over MPI was not done after {0:?}")]
    TooLong(Duration),
    #[error("interrupted by a signal; mpirun was ended and all files removed")]
    Interrupted,
    #[error(transparent)]
    Oracle(#[from] OracleError),
}

/// What `cargo xtask mpi` says of a build.
#[derive(Debug, Deserialize)]
struct Description {
    version: String,
    mpirun: PathBuf,
}

/// What rank 0 leaves.
#[derive(Debug, Deserialize)]
struct JobResult {
    outcomes: Vec<Vec<u8>>,
    tally: Tally,
}

/// A launcher, and a program for its MPI.
#[derive(Debug)]
pub(super) struct Build {
    program: PathBuf,
    mpirun: PathBuf,
    /// As in `Open MPI 5.0.11`.
    pub(super) version: String,
}

impl Build {
    /// The one that the environment names, or else one beside this program.
    pub(super) fn find() -> Result<Build, MpiRunError> {
        if let Some(folder) = std::env::var_os(VARIABLE) {
            return Build::open(Path::new(&folder));
        }
        let program = std::env::current_exe().map_err(|_| MpiRunError::NotBuilt)?;
        let folder = program.parent().and_then(Path::parent).ok_or(MpiRunError::NotBuilt)?.join("mpi");
        let mut folders: Vec<PathBuf> =
            fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        folders.sort();
        folders.iter().find_map(|folder| Build::open(folder).ok()).ok_or(MpiRunError::NotBuilt)
    }

    fn open(folder: &Path) -> Result<Build, MpiRunError> {
        let refuse = |reason: String| MpiRunError::NoBuild { folder: folder.to_owned(), reason };
        let text = fs::read(folder.join(DESCRIPTION)).map_err(|error| refuse(format!("{DESCRIPTION}: {error}")))?;
        let Description { version, mpirun } =
            serde_json::from_slice(&text).map_err(|error| refuse(format!("{DESCRIPTION}: {error}")))?;
        let program = folder.join(PROGRAM);
        if !program.is_file() {
            return Err(refuse(format!("it has no {PROGRAM}")));
        }
        Ok(Build { program, mpirun, version })
    }

    /// Runs the job, without failures.
    pub(super) fn launch(
        &self,
        options: &JobOptions,
        program: &Program,
        interrupts: &Interrupts,
    ) -> Result<JobReport, MpiRunError> {
        let ranks = options.settings.ranks;
        let job = JobDirectory::create(&options.shm_root, &options.checkpoint_root)?;
        let directory = job.paths().directory();
        let spec = json!({
            "settings": options.settings,
            "workload": program.workload,
            "class": program.class,
            "checkpoint_every": program.checkpoint_every,
            "store": job.checkpoints(),
        });
        let path = directory.join("mpi-job.json");
        fs::write(&path, spec.to_string()).map_err(|source| MpiRunError::File { path, source })?;
        let began = Instant::now();
        let child = self.command(ranks, directory).spawn();
        let mut child = child.map_err(|source| MpiRunError::Start { mpirun: self.mpirun.clone(), source })?;
        let status = wait(&mut child, options.wall_max, interrupts);
        let wall = began.elapsed();
        let status = status?;
        if !status.success() {
            return Err(MpiRunError::Failed(status));
        }
        let path = directory.join("mpi-result.json");
        let text = fs::read(&path).map_err(|source| MpiRunError::File { path: path.clone(), source })?;
        let JobResult { outcomes, tally } =
            serde_json::from_slice(&text).map_err(|source| MpiRunError::Malformed { path, source })?;
        let timelines = options.settings.trace.then(|| read_timelines(&job.paths().traces(), ranks)).transpose()?;
        job.remove()?;
        Ok(JobReport {
            outcomes,
            tally,
            deaths: Vec::new(),
            missed: Vec::new(),
            power_cuts: Vec::new(),
            rolled_back: vec![0; ranks as usize],
            survivors_undisturbed: true,
            timelines,
            wall,
        })
    }

    /// `mpirun -n RANKS PROGRAM`, as root too, and with more ranks than cores: as the demo's own launcher does.
    fn command(&self, ranks: u32, job: &Path) -> Command {
        let mut command = Command::new(&self.mpirun);
        for name in ["OMPI", "PRTE"] {
            command.env(format!("{name}_ALLOW_RUN_AS_ROOT"), "1");
            command.env(format!("{name}_ALLOW_RUN_AS_ROOT_CONFIRM"), "1");
        }
        // Of version 4, and of version 5.
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        command.env("PRTE_MCA_rmaps_default_mapping_policy", ":OVERSUBSCRIBE");
        command.args(["-n", &ranks.to_string()]).arg(&self.program).arg("--job").arg(job);
        // Standard output is the report's.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}

/// Waits for the launcher's end; ends it where it takes too long, or where somebody asks for that.
fn wait(child: &mut Child, limit: Option<Duration>, interrupts: &Interrupts) -> Result<ExitStatus, MpiRunError> {
    let began = Instant::now();
    let pause = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    loop {
        if let Some(status) = child.try_wait().map_err(MpiRunError::Wait)? {
            return Ok(status);
        }
        let mut fds = [PollFd::from_borrowed_fd(interrupts.as_fd(), PollFlags::IN)];
        if poll(&mut fds, Some(&pause)).is_ok() && !fds[0].revents().is_empty() {
            end(child);
            return Err(MpiRunError::Interrupted);
        }
        if let Some(limit) = limit.filter(|limit| began.elapsed() > *limit) {
            end(child);
            return Err(MpiRunError::TooLong(limit));
        }
    }
}

/// Asks the launcher to end its ranks and itself; a launcher that hangs doesn't hear that.
fn end(child: &mut Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::TERM);
    }
    let asked = Instant::now();
    while asked.elapsed() < GRACE {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_no_build_says_what_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |what: &str| {
            let error = Build::open(folder.path()).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        };
        refused("mpi.json");
        fs::write(folder.path().join(DESCRIPTION), "{}").unwrap();
        refused("version");
        fs::write(folder.path().join(DESCRIPTION), r#"{"version": "Open MPI 5", "mpirun": "/bin/mpirun"}"#).unwrap();
        refused(PROGRAM);
        fs::create_dir(folder.path().join("release")).unwrap();
        fs::write(folder.path().join(PROGRAM), "").unwrap();
        assert_eq!(Build::open(folder.path()).unwrap().mpirun, Path::new("/bin/mpirun"));
    }
}
