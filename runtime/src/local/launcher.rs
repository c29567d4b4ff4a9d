//! The launcher: starts a job's ranks, replaces dead ones, and cleans up after all of them.
//!
//! One thread, one poll(2): over the ranks' pidfds (exits), their control connections (messages), the listening socket
//! (new connections), and termination signals. However [`launch`] returns, it leaves no process and no file of the job.

mod managed;
mod messages;

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use counterfoil_protocols::api::Rule;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::control::{Control, ToLauncher};
use super::coordinator::Coordinator;
use super::generations::Generations;
use super::interrupts::Interrupts;
use super::job::JobDirectory;
use super::kill_schedule::KillSchedule;
use super::kills::KillPlan;
use super::options::{JobOptions, Processes};
use super::process::Process;
use super::report::{
    DeathReport, JobReport, LaunchError, Observer, PowerCutReport, Progress, RecoveryClock, StallReport,
};
use super::slot::Slot;
use super::timeout::timespec;
use crate::tally::Tally;

/// Longest wait for a killed process to exit.
const EXIT_WAIT_MAX: Duration = Duration::from_secs(5);
/// Maximum consecutive starts of a process manager without a joining process.
///
/// `mpirun` fails now and then before it starts a process, for want of a thread or a port of its own (status 213: "The
/// PMIx server's listener thread failed to start").
const MANAGER_STARTS_MAX: u32 = 2;
/// Longest wait between time limit checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Runs a job to its end.
///
/// The calling thread must stay alive meanwhile: the kernel kills the ranks when it dies. A signal in `interrupts` ends
/// the job early.
///
/// # Errors
/// [`LaunchError`].
pub fn launch(
    options: &JobOptions,
    interrupts: Option<&Interrupts>,
    observer: &mut dyn Observer,
) -> Result<JobReport, LaunchError> {
    launch_under(&options.settings.rule, options, interrupts, observer)
}

/// Runs a job as [`launch`] does, under the program's own rule in place of the one in the settings.
///
/// Each process calls [`join_under`](super::join_under) with it.
///
/// # Errors
/// [`LaunchError`].
pub fn launch_under(
    rule: &Rule,
    options: &JobOptions,
    interrupts: Option<&Interrupts>,
    observer: &mut dyn Observer,
) -> Result<JobReport, LaunchError> {
    options.validate()?;
    // Ranks and `clean` may have other working directories.
    let absolute = |root: &std::path::Path| std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    let job = JobDirectory::create(&absolute(&options.shm_root), &absolute(&options.checkpoint_root))?;
    let report = Launcher::new(options, rule, &job, interrupts, observer)?.run();
    // All processes have exited, so the stores no longer change.
    let is_interrupted = matches!(report, Err(LaunchError::Interrupted));
    let keep = options.keep_stores.as_ref().filter(|_| !is_interrupted);
    let kept = keep.map_or(Ok(()), |to| job.keep_stores(to));
    // A drop would not return errors.
    let removed = job.remove();
    let report = report?;
    kept?;
    removed?;
    Ok(report)
}

/// Ready entry in the poll set.
#[derive(Clone, Copy, Debug)]
enum Ready {
    Interrupt,
    Listener,
    Unidentified,
    Control(usize),
    Exit(usize),
    Spare,
    Manager,
}

/// Reason for starting the whole job again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restart {
    /// The logs in memory are lost as well.
    PowerCut,
    /// The process manager ends all processes after one has died, or has none to replace it.
    JobLost,
    /// A rank is lost, and the others save their states.
    Saved,
}

/// Process that may become a rank.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) control: Control,
    pub(super) process: Process,
    /// Start of its wait for the others in a repair.
    pub(super) repairing: Option<Instant>,
}

/// Running job.
///
/// Module `supervision` handles exits, kills and replacements.
pub(super) struct Launcher<'a> {
    pub(super) options: &'a JobOptions,
    pub(super) job: &'a JobDirectory,
    interrupts: Option<&'a Interrupts>,
    pub(super) observer: &'a mut dyn Observer,
    listener: UnixListener,
    /// Connections without a hello so far.
    unidentified: Vec<Control>,
    pub(super) slots: Vec<Slot>,
    /// `Some` for managed processes, until it has exited.
    pub(super) manager: Option<Process>,
    /// Starts of the process manager since a rank last joined.
    manager_starts: u32,
    pub(super) stalls: Vec<StallReport>,
    pub(super) spares: Vec<Spare>,
    pub(super) deaths: Vec<(DeathReport, RecoveryClock)>,
    pub(super) kill_schedule: KillSchedule,
    /// Counters from exited processes.
    pub(super) past: Tally,
    pub(super) began: Instant,
    /// Time at which all ranks were done.
    pub(super) finishing: Option<Instant>,
    /// Reason why all processes end and are started again; `None` in normal operation.
    pub(super) restart: Option<Restart>,
    pub(super) power_cuts: Vec<PowerCutReport>,
    pub(super) coordinator: Option<Coordinator>,
    pub(super) generations: Generations,
    pub(super) rule: &'a Rule,
    /// Rank 0's iterations in which the coordinator is to be lost.
    pub(super) coordinator_losses: Vec<u64>,
}

impl<'a> Launcher<'a> {
    fn new(
        options: &'a JobOptions,
        rule: &'a Rule,
        job: &'a JobDirectory,
        interrupts: Option<&'a Interrupts>,
        observer: &'a mut dyn Observer,
    ) -> Result<Launcher<'a>, LaunchError> {
        let failed = |source| LaunchError::Io { action: "listen for ranks", source };
        let listener = UnixListener::bind(job.paths().launcher_socket()).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Launcher {
            options,
            job,
            interrupts,
            observer,
            listener,
            unidentified: Vec::new(),
            slots: (0..options.settings.ranks).map(|_| Slot::default()).collect(),
            manager: None,
            manager_starts: 0,
            stalls: Vec::new(),
            spares: Vec::new(),
            deaths: Vec::new(),
            kill_schedule: KillSchedule::new(KillPlan::new(&options.kills, &options.power_cuts, options.seed)),
            past: Tally::default(),
            began: Instant::now(),
            finishing: None,
            restart: None,
            power_cuts: Vec::new(),
            coordinator: Coordinator::new(rule, &options.settings),
            generations: Generations::default(),
            rule,
            coordinator_losses: options.coordinator_losses.clone(),
        })
    }

    fn run(mut self) -> Result<JobReport, LaunchError> {
        self.start_all()?;
        self.send_orders();
        while self.is_running() {
            for ready in self.wait()? {
                match ready {
                    Ready::Interrupt => return Err(LaunchError::Interrupted),
                    Ready::Listener => self.accept()?,
                    Ready::Unidentified => {} // all are read below
                    Ready::Control(rank) => self.read_messages(rank)?,
                    Ready::Exit(rank) => self.handle_exit(rank)?,
                    Ready::Spare => {} // as above
                    Ready::Manager => self.handle_manager_exit()?,
                }
            }
            self.read_unidentified()?;
            self.read_spares()?;
            self.carry_out_kills()?;
            self.check_limits()?;
        }
        self.report()
    }

    /// Starts all ranks' processes.
    pub(super) fn start_all(&mut self) -> Result<(), LaunchError> {
        if let Processes::Managed { .. } = self.options.processes {
            let manager = Process::start_manager(self.options, self.job.paths());
            self.manager_starts += 1;
            self.manager =
                Some(manager.map_err(|source| LaunchError::Io { action: "start the process manager", source })?);
        }
        (0..self.slots.len()).try_for_each(|rank| self.start(rank))
    }

    /// Returns `true` while the job has live processes.
    fn is_running(&self) -> bool {
        self.manager.is_some() || self.slots.iter().any(|slot| slot.process.is_some())
    }

    /// Starts a rank's process, or expects it from the process manager.
    ///
    /// Checks for a signal first, since a thousand process starts take a while.
    pub(super) fn start(&mut self, rank: usize) -> Result<(), LaunchError> {
        if self.is_interrupted()? {
            return Err(LaunchError::Interrupted);
        }
        let slot = &mut self.slots[rank];
        let (number, incarnation) = (rank as u32, slot.incarnation);
        slot.started = Some(Instant::now());
        if let Processes::Managed { .. } = self.options.processes {
            return Ok(());
        }
        let process = Process::start(self.options, self.job.paths(), number, incarnation)
            .map_err(|source| LaunchError::Start { rank: number, source })?;
        let pid = process.pid();
        slot.process = Some(process);
        self.observer.handle_progress(Progress::Started { rank: number, incarnation, pid });
        Ok(())
    }

    /// Returns `true` if a termination signal has arrived.
    ///
    /// Doesn't wait.
    fn is_interrupted(&self) -> Result<bool, LaunchError> {
        let Some(interrupts) = self.interrupts else { return Ok(false) };
        let mut fds = [PollFd::from_borrowed_fd(interrupts.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timespec(Duration::ZERO))) {
            Ok(_) => Ok(!fds[0].revents().is_empty()),
            // The next start checks again.
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(LaunchError::Io { action: "look for signals", source: errno.into() }),
        }
    }

    /// Waits until an entry is ready, a kill is due, or limits must be checked.
    fn wait(&mut self) -> Result<Vec<Ready>, LaunchError> {
        let timeout = self
            .kill_schedule
            .next_due()
            .map_or(CHECK_INTERVAL, |due| due.saturating_duration_since(Instant::now()).min(CHECK_INTERVAL));
        let (mut fds, mut ready) = (Vec::new(), Vec::new());
        let mut add = |fd, flags, source| {
            fds.push(PollFd::from_borrowed_fd(fd, flags));
            ready.push(source);
        };
        if let Some(interrupts) = self.interrupts {
            add(interrupts.as_fd(), PollFlags::IN, Ready::Interrupt);
        }
        add(self.listener.as_fd(), PollFlags::IN, Ready::Listener);
        for control in &self.unidentified {
            add(control.as_fd(), PollFlags::IN, Ready::Unidentified);
        }
        for spare in &self.spares {
            add(spare.control.as_fd(), PollFlags::IN, Ready::Spare);
        }
        if let Some(manager) = &self.manager {
            add(manager.as_fd(), PollFlags::IN, Ready::Manager);
        }
        for (rank, slot) in self.slots.iter().enumerate() {
            // A rank's messages come before its exit.
            if let Some(control) = &slot.control {
                let out = if control.wants_to_write() { PollFlags::OUT } else { PollFlags::empty() };
                add(control.as_fd(), PollFlags::IN | out, Ready::Control(rank));
            }
            if let Some(process) = &slot.process {
                add(process.as_fd(), PollFlags::IN, Ready::Exit(rank));
            }
        }
        match poll(&mut fds, Some(&timespec(timeout))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(LaunchError::Io { action: "wait for ranks", source: errno.into() }),
        }
        let happened = fds.iter().zip(ready).filter(|(fd, _)| !fd.revents().is_empty());
        Ok(happened.map(|(_, ready)| ready).collect())
    }

    fn accept(&mut self) -> Result<(), LaunchError> {
        let failed = |source| LaunchError::Io { action: "accept a rank", source };
        match self.listener.accept() {
            Ok((stream, _)) => self.unidentified.push(Control::new(stream).map_err(failed)?),
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(failed(error)),
        }
        // The connection to a rank that died before its hello is removed when it is read.
        if self.unidentified.len() > 2 * self.slots.len() + 16 {
            self.unidentified.remove(0);
        }
        Ok(())
    }

    fn read_unidentified(&mut self) -> Result<(), LaunchError> {
        for mut control in std::mem::take(&mut self.unidentified) {
            match control.receive::<ToLauncher>() {
                Ok(None) => self.unidentified.push(control),
                Ok(Some(ToLauncher::Hello { rank, incarnation, pid })) => {
                    let known = self.slots.get(rank as usize).is_some_and(|slot| {
                        let process = slot.process.as_ref().map(Process::pid);
                        !slot.welcomed && slot.incarnation == incarnation && process == Some(pid)
                    });
                    if known {
                        self.welcome(rank as usize, control)?;
                    }
                }
                Ok(Some(ToLauncher::Join { rank, pid })) => self.handle_join(rank, pid, control)?,
                Ok(Some(ToLauncher::Spare { pid })) => {
                    // An error means a dead process.
                    if let Ok(process) = Process::adopt(pid, self.job.paths()) {
                        self.spares.push(Spare { control, process, repairing: None });
                    }
                }
                // Dead, or not a rank in this job.
                Ok(Some(_)) | Err(_) => {}
            }
        }
        Ok(())
    }
}
