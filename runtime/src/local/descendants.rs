//! Ends a process and all its descendants.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Sends SIGKILL to a child that has not been waited for, and to all its descendants.
///
/// Each is stopped before its children are looked for, so none escapes by a fork, and no process id is reused.
///
/// # Errors
/// Errors from pidfd_open(2) and pidfd_send_signal(2) for the child. Another process can end before it is found or
/// killed.
pub fn kill_with_descendants(child: &Child) -> io::Result<()> {
    let root = open_pidfd(child.id())?;
    send(root.as_fd(), Signal::STOP)?;
    let mut descendants: Vec<(u32, OwnedFd)> = Vec::new();
    loop {
        let parents = [child.id()].into_iter().chain(descendants.iter().map(|(pid, _)| *pid));
        let children: Vec<u32> = parents.flat_map(children_of).collect();
        let known = descendants.len();
        for child in children {
            if descendants.iter().all(|(pid, _)| *pid != child)
                && let Ok(pidfd) = open_pidfd(child)
                && send(pidfd.as_fd(), Signal::STOP).is_ok()
            {
                descendants.push((child, pidfd));
            }
        }
        if descendants.len() == known {
            break;
        }
    }
    for (_, pidfd) in &descendants {
        // An error means that the process is another user's.
        let _ = send(pidfd.as_fd(), Signal::KILL);
    }
    send(root.as_fd(), Signal::KILL)
}

/// Returns a process descriptor.
///
/// # Errors
/// System errors, including that there is no such process any more.
pub(super) fn open_pidfd(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("a process id that is none"))?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Sends a signal.
///
/// No effect if the process has exited.
pub(super) fn send(pidfd: BorrowedFd<'_>, signal: Signal) -> io::Result<()> {
    match pidfd_send_signal(pidfd, signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns a process's children; none if it has exited.
fn children_of(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::local::timeout::timespec;

    #[test]
    fn a_process_its_children_and_theirs_are_killed() {
        // The last has a session of its own, as ranks have process groups of their own.
        let script = "sleep 1000 & echo $!; sh -c 'setsid sleep 1000 & echo $!; wait' & echo $!; wait";
        let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(3);
        let pids: Vec<u32> = lines.map(|line| line.unwrap().parse().unwrap()).collect();
        let descendants: Vec<OwnedFd> = pids.iter().map(|pid| open_pidfd(*pid).unwrap()).collect();
        kill_with_descendants(&child).unwrap();
        for (pid, pidfd) in pids.iter().zip(&descendants) {
            let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
            assert_eq!(poll(&mut fds, Some(&timespec(Duration::from_secs(10)))), Ok(1), "{pid} is alive");
        }
        // No effect on a process that has exited and was not waited for.
        kill_with_descendants(&child).unwrap();
        assert!(!child.wait().unwrap().success());
    }
}
