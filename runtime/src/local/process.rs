//! A rank's process, as its launcher sees it. Killed and reaped on every path: dropping it is enough.

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

/// How much of a failed rank's standard error is quoted, in bytes.
const QUOTE_BYTES_MAX: u64 = 4096;

/// A started process.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// Becomes readable when the process has ended.
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
        // A process group of its own: Ctrl-C at the terminal is for the launcher, which ends the ranks in order.
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

    /// Sends SIGKILL. Nothing happens if the process has ended.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// How it ended, if it has.
    pub(super) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        self.reaped = status.is_some();
        Ok(status)
    }

    /// The end of what it wrote to its standard error.
    pub(super) fn last_words(&self) -> String {
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
