//! `counterfoil demo --mpi`: runs the same program as ranks of an MPI job.
//!
//! This program doesn't link to MPI. It prepares a job directory, starts `mpirun` with the program built by `cargo xtask mpi`,
//! and reads the files that the ranks wrote.

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

/// Environment variable that names a build's folder.
pub(super) const VARIABLE: &str = "COUNTERFOIL_MPI_BUILD";
/// File in a build's folder that describes it.
const DESCRIPTION: &str = "mpi.json";
/// Program of one rank, in a build's folder.
const PROGRAM: &str = "release/counterfoil-mpi-demo";
/// Time for `mpirun` to end its ranks after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);

/// Error of a run over MPI.
#[derive(Debug, thiserror::Error)]
pub(super) enum MpiRunError {
    #[error(
        "--mpi: no MPI program found: `cargo xtask mpi` builds it; unless it is next to this program, set {VARIABLE} to the folder that \
         `cargo xtask mpi` prints"
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
    #[error("mpirun failed ({0}); see its messages above")]
    Failed(ExitStatus),
    #[error("the run over MPI did not finish within {0:?}")]
    TooLong(Duration),
    #[error("interrupted by a signal; mpirun was stopped and all files were removed")]
    Interrupted,
    #[error(transparent)]
    Oracle(#[from] OracleError),
}

/// Description of a build, written by `cargo xtask mpi`.
#[derive(Debug, Deserialize)]
struct Description {
    version: String,
    mpirun: PathBuf,
}

/// Result file written by rank 0.
#[derive(Debug, Deserialize)]
struct JobResult {
    outcomes: Vec<Vec<u8>>,
    tally: Tally,
}

/// A launcher and the program built for its MPI.
#[derive(Debug)]
pub(super) struct Build {
    program: PathBuf,
    mpirun: PathBuf,
    /// Name and version, such as `Open MPI 5.0.11`.
    pub(super) version: String,
}

impl Build {
    /// Finds the build named by the environment, else one next to this program.
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
        let not_a_build = |reason: String| MpiRunError::NoBuild { folder: folder.to_owned(), reason };
        let text =
            fs::read(folder.join(DESCRIPTION)).map_err(|error| not_a_build(format!("{DESCRIPTION}: {error}")))?;
        let Description { version, mpirun } =
            serde_json::from_slice(&text).map_err(|error| not_a_build(format!("{DESCRIPTION}: {error}")))?;
        let program = folder.join(PROGRAM);
        if !program.is_file() {
            return Err(not_a_build(format!("{PROGRAM} is missing")));
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

    /// Builds `mpirun -n RANKS PROGRAM`; permits root and oversubscription, like the demo's own launcher.
    fn command(&self, ranks: u32, job: &Path) -> Command {
        let mut command = Command::new(&self.mpirun);
        for name in ["OMPI", "PRTE"] {
            command.env(format!("{name}_ALLOW_RUN_AS_ROOT"), "1");
            command.env(format!("{name}_ALLOW_RUN_AS_ROOT_CONFIRM"), "1");
        }
        // For Open MPI 4 and 5, respectively.
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        command.env("PRTE_MCA_rmaps_default_mapping_policy", ":OVERSUBSCRIBE");
        command.args(["-n", &ranks.to_string()]).arg(&self.program).arg("--job").arg(job);
        // Standard output is reserved for the report.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}

/// Waits until the launcher ends; stops it at the time limit or on an interrupt.
fn wait(child: &mut Child, limit: Option<Duration>, interrupts: &Interrupts) -> Result<ExitStatus, MpiRunError> {
    let began = Instant::now();
    let pause = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    loop {
        if let Some(status) = child.try_wait().map_err(MpiRunError::Wait)? {
            return Ok(status);
        }
        let mut fds = [PollFd::from_borrowed_fd(interrupts.as_fd(), PollFlags::IN)];
        if poll(&mut fds, Some(&pause)).is_ok() && !fds[0].revents().is_empty() {
            stop(child);
            return Err(MpiRunError::Interrupted);
        }
        if let Some(limit) = limit.filter(|limit| began.elapsed() > *limit) {
            stop(child);
            return Err(MpiRunError::TooLong(limit));
        }
    }
}

/// Sends SIGTERM to the launcher, which then ends its ranks; kills it after [`GRACE`], since a hung launcher ignores SIGTERM.
fn stop(child: &mut Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::TERM);
    }
    let terminated_at = Instant::now();
    while terminated_at.elapsed() < GRACE {
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
    fn opening_a_folder_without_a_build_names_what_is_missing() {
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
