//! A rank's process, or a process manager.
//!
//! Killed on drop, and reaped if the launcher started it.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;

use super::descendants::{kill_with_descendants, open_pidfd, send};
use super::job::JobPaths;
use super::options::JobOptions;
use super::timeout::timespec;

/// Maximum bytes quoted in an error from a failed rank's standard error.
const QUOTE_BYTES_MAX: u64 = 4096;

/// Directories for the shared memory of Open MPI 5 and 4.
///
/// The default is /dev/shm, where processes killed with `mpirun` would leave theirs.
const SHARED_MEMORY_DIRECTORY: [&str; 2] =
    ["OMPI_MCA_btl_sm_backing_directory", "OMPI_MCA_btl_vader_backing_directory"];

/// A rank's process, or a process manager.
#[derive(Debug)]
pub(super) struct Process {
    pid: u32,
    /// Readable once the process has exited.
    pidfd: OwnedFd,
    standard_error: PathBuf,
    /// `None` for a process started by a process manager.
    child: Option<Child>,
    is_manager: bool,
    has_exited: bool,
}

/// Way in which a process has ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Exit {
    /// Status of the launcher's child.
    Status(ExitStatus),
    /// The process was a child of a process manager, which alone learns the status.
    Unknown,
}

impl Process {
    /// Starts the job's command as an incarnation of `rank`.
    pub(super) fn start(options: &JobOptions, paths: &JobPaths, rank: u32, incarnation: u32) -> io::Result<Process> {
        let standard_error = paths.standard_error(rank, incarnation);
        let mut command = command(options, paths)?;
        for (name, value) in [("--rank", rank), ("--incarnation", incarnation), ("--launcher", std::process::id())] {
            command.arg(name).arg(value.to_string());
        }
        Process::spawn(command, standard_error, false)
    }

    /// Starts the job's command, a process manager that starts all processes in the job.
    pub(super) fn start_manager(options: &JobOptions, paths: &JobPaths) -> io::Result<Process> {
        let mut command = command(options, paths)?;
        command.env("TMPDIR", paths.manager_temporary());
        for variable in SHARED_MEMORY_DIRECTORY {
            if std::env::var_os(variable).is_none() {
                command.env(variable, paths.manager_temporary());
            }
        }
        Process::spawn(command, paths.manager_standard_error(), true)
    }

    fn spawn(mut command: Command, standard_error: PathBuf, is_manager: bool) -> io::Result<Process> {
        let errors = OpenOptions::new().append(true).create(true).mode(0o600).open(&standard_error)?;
        // A process group of its own: Ctrl-C at the terminal reaches only the launcher, which ends the ranks in order.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).process_group(0);
        let mut child = command.spawn()?;
        let pid = child.id();
        // It has not been reaped, so the number is still its own.
        match open_pidfd(pid) {
            Ok(pidfd) => Ok(Process { pid, pidfd, standard_error, child: Some(child), is_manager, has_exited: false }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Takes over a managed process.
    ///
    /// Its standard error is the manager's.
    ///
    /// # Errors
    /// System errors, including that there is no such process any more.
    pub(super) fn adopt(pid: u32, paths: &JobPaths) -> io::Result<Process> {
        let standard_error = paths.manager_standard_error();
        // It has just sent its number, so that is still its own.
        let pidfd = open_pidfd(pid)?;
        Ok(Process { pid, pidfd, standard_error, child: None, is_manager: false, has_exited: false })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends SIGKILL; for a process manager, also to its processes, some of which may not have joined.
    ///
    /// No effect if the process has exited.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        match &self.child {
            Some(child) if self.is_manager && !self.has_exited => kill_with_descendants(child),
            _ => send(self.pidfd.as_fd(), Signal::KILL),
        }
    }

    /// Returns the process's exit, and reaps it; `None` if it is alive.
    pub(super) fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        let exit = match &mut self.child {
            Some(child) => child.try_wait()?.map(Exit::Status),
            None => self.wait_for_exit(Duration::ZERO)?.then_some(Exit::Unknown),
        };
        self.has_exited |= exit.is_some();
        Ok(exit)
    }

    /// Waits until the process has exited; returns `false` if it hasn't within the limit.
    pub(super) fn wait_for_exit(&self, limit: Duration) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        loop {
            match poll(&mut fds, Some(&timespec(limit))) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Keeps a drop from killing the process.
    pub(super) fn forget(&mut self) {
        self.has_exited = true;
    }

    /// Returns the end of the process's standard error.
    pub(super) fn stderr_tail(&self) -> String {
        read_end(&self.standard_error).unwrap_or_default().trim().to_owned()
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.has_exited {
            let _ = self.kill();
            if let Some(child) = &mut self.child {
                let _ = child.wait();
            }
        }
    }
}

/// Returns the job's command, with the job's directory as its last argument.
fn command(options: &JobOptions, paths: &JobPaths) -> io::Result<Command> {
    let (program, arguments) =
        options.command.split_first().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "an empty command"))?;
    let mut command = Command::new(program);
    command.args(arguments).arg("--job").arg(paths.directory());
    command.envs(options.environment.iter().map(|(name, value)| (name, value)));
    Ok(command)
}

fn read_end(path: &Path) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(QUOTE_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(QUOTE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
