//! A rank's connection to its launcher.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::control::{Control, ControlError, ToLauncher, ToRank, Welcome};
use super::job::JobPaths;
use super::timeout::timespec;
use crate::transport::{Event, Report, TransportError};

/// One process's connection to its job's launcher.
#[derive(Debug)]
pub struct LauncherConnection {
    control: Control,
}

impl LauncherConnection {
    /// Connects to the job's launcher.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn open(paths: &JobPaths) -> Result<LauncherConnection, ControlError> {
        Ok(LauncherConnection { control: Control::new(UnixStream::connect(paths.launcher_socket())?)? })
    }

    #[cfg(test)]
    pub(super) fn new(control: Control) -> LauncherConnection {
        LauncherConnection { control }
    }

    pub(super) fn hello(&mut self, rank: u32, incarnation: u32) -> Result<Welcome, ControlError> {
        self.control.send(&ToLauncher::Hello { rank, incarnation, pid: std::process::id() })?;
        self.await_welcome()?.ok_or(ControlError::Closed)
    }

    /// Makes this managed process a rank, and returns the launcher's configuration for it.
    ///
    /// A rank that rolls back calls this again. Returns `None` if the job has ended.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn join(&mut self, rank: u32) -> Result<Option<Welcome>, ControlError> {
        self.control.send(&ToLauncher::Join { rank, pid: std::process::id() })?;
        self.await_welcome()
    }

    /// Tells the launcher that this process is a spare.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn wait_as_spare(&mut self) -> Result<(), ControlError> {
        self.control.send(&ToLauncher::Spare { pid: std::process::id() })
    }

    fn await_welcome(&mut self) -> Result<Option<Welcome>, ControlError> {
        loop {
            match self.control.receive::<ToRank>()? {
                Some(ToRank::Welcome(welcome)) => return Ok(Some(*welcome)),
                Some(ToRank::Finish) => return Ok(None),
                // Meant for the rolled-back execution.
                Some(_) => {}
                None => self.wait(None)?,
            }
        }
    }

    /// Waits until something has arrived, and sends queued bytes.
    fn wait(&mut self, limit: Option<Duration>) -> Result<(), ControlError> {
        let writable = if self.control.wants_to_write() { PollFlags::OUT } else { PollFlags::empty() };
        let mut fds = [PollFd::new(&self.control, PollFlags::IN | writable)];
        match poll(&mut fds, limit.map(timespec).as_ref()) {
            Ok(_) | Err(Errno::INTR) => self.control.flush(),
            Err(errno) => Err(ControlError::Io(errno.into())),
        }
    }

    /// Adds arrived events to `events`, and sends queued bytes.
    ///
    /// Doesn't wait.
    ///
    /// # Errors
    /// [`TransportError::Launcher`].
    pub fn poll(&mut self, events: &mut VecDeque<Event>) -> Result<(), TransportError> {
        self.control.flush().map_err(gone)?;
        while let Some(message) = self.control.receive::<ToRank>().map_err(gone)? {
            match message {
                ToRank::Order { body } => events.push_back(Event::Order { body }),
                ToRank::Resume => events.push_back(Event::Resume),
                ToRank::Finish => events.push_back(Event::Finish),
                // It comes first and once, and was read by `join`.
                ToRank::Welcome(_) => tracing::warn!("a second welcome is ignored"),
            }
        }
        Ok(())
    }

    /// Sends a report.
    ///
    /// # Errors
    /// [`TransportError::Launcher`].
    pub fn report(&mut self, report: Report) -> Result<(), TransportError> {
        // Nothing is sent after it.
        let is_last = matches!(report, Report::Exits { .. });
        let message = match report {
            Report::Started => ToLauncher::Started,
            Report::Iteration { n, tally } => ToLauncher::Iteration { n, tally },
            Report::InCall { call, iteration, event } => ToLauncher::InCall { call, iteration, event },
            Report::Restored { epoch } => ToLauncher::Restored { epoch },
            Report::ReplayComplete => ToLauncher::ReplayComplete,
            Report::CaughtUp => ToLauncher::CaughtUp,
            Report::ToCoordinator { body } => ToLauncher::ToCoordinator { body },
            Report::RollingBack { epoch, tally } => ToLauncher::RollingBack { epoch, tally },
            Report::Exits { save, tally } => ToLauncher::Exits { save, tally },
            Report::Done { outcome, tally } => ToLauncher::Done { outcome, tally },
            Report::Repair { waits } => ToLauncher::Repair { waits },
            Report::NoSpare => ToLauncher::NoSpare,
            Report::Failed { error } => ToLauncher::Failed { error },
        };
        self.control.send(&message).map_err(gone)?;
        while is_last && self.control.wants_to_write() {
            self.wait(None).map_err(gone)?;
        }
        Ok(())
    }

    pub(super) fn wants_to_write(&self) -> bool {
        self.control.wants_to_write()
    }
}

fn gone(error: ControlError) -> TransportError {
    TransportError::Launcher(error.into())
}

impl AsFd for LauncherConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::tally::Tally;
    use crate::transport::Save;

    #[test]
    fn the_last_report_is_sent_in_full_although_the_launcher_is_busy() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut connection = LauncherConnection::new(Control::new(ours).unwrap());
        while !connection.wants_to_write() {
            connection.report(Report::Failed { error: "x".repeat(1 << 16) }).unwrap();
        }
        let launcher = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            let mut launcher = Control::new(theirs).unwrap();
            while !matches!(launcher.receive::<ToLauncher>().unwrap(), Some(ToLauncher::Exits { .. })) {}
        });
        connection.report(Report::Exits { save: Save::NotWanted, tally: Tally::default() }).unwrap();
        drop(connection);
        launcher.join().unwrap();
    }
}
