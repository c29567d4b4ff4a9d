//! The process of a rank, owned by the launcher. Killed and reaped on drop.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::job::JobPaths;

/// Most bytes of a failed rank's standard error that an error quotes.
const QUOTE_BYTES_MAX: u64 = 4096;

/// Started process of a rank.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// Readable once the process has exited.
    pidfd: OwnedFd,
    standard_error: PathBuf,
    reaped: bool,
}

impl Process {
    /// Starts `command` (the program and its first arguments) as an incarnation of `rank`.
    pub(super) fn start(command: &[OsString], paths: &JobPaths, rank: u32, incarnation: u32) -> io::Result<Process> {
        let (program, arguments) =
            command.split_first().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "an empty command"))?;
        let standard_error = paths.standard_error(rank, incarnation);
        let errors = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&standard_error)?;
        let mut command = Command::new(program);
        command.args(arguments).arg("--job").arg(paths.directory());
        for (name, value) in [("--rank", rank), ("--incarnation", incarnation), ("--launcher", std::process::id())] {
            command.arg(name).arg(value.to_string());
        }
        // A process group of its own: Ctrl-C at the terminal reaches only the launcher, which ends the ranks in order.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).process_group(0);
        let mut child = command.spawn()?;
        match open_pidfd(&child) {
            Ok(pidfd) => Ok(Process { child, pidfd, standard_error, reaped: false }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL. No effect if the process has exited.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// Reaps the process if it has exited, and returns its status.
    pub(super) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        self.reaped = status.is_some();
        Ok(status)
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
        if !self.reaped {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn open_pidfd(child: &Child) -> io::Result<OwnedFd> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("a process id that is none"))?;
    // The child has not been reaped, so the id is still its own.
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

fn read_end(path: &Path) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(QUOTE_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(QUOTE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
