//! The launcher: starts a job's ranks, replaces those that die, and cleans up after all of them.
//!
//! One thread, one poll(2): over the ranks' pidfds (exits), their control connections (messages), the listening socket
//! (new connections), and termination signals. No process and no file of the job is left when [`launch`] returns, in any
//! way.

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::control::{Control, ControlError, ToLauncher, ToRank, Welcome};
use super::coordinator::Coordinator;
use super::interrupts::Interrupts;
use super::job::JobDirectory;
use super::kill_schedule::KillSchedule;
use super::kills::KillPlan;
use super::options::{JobOptions, Processes};
use super::process::{Exit, Process};
use super::report::{DeathReport, JobReport, LaunchError, Observer, PowerCutReport, Progress, RecoveryClock};
use super::slot::{LastReport, Slot, describe_unfinished};
use super::sockets::timespec;
use crate::rule::MakeRule;
use crate::tally::Tally;

/// Longest wait for the exit of a killed process.
const EXIT_WAIT_MAX: Duration = Duration::from_secs(5);
/// Most starts in a row of a process manager that ends before any of its processes has joined. `mpirun` fails now and then before it
/// starts a process, for want of a thread or a port of its own (status 213: "The PMIx server's listener thread failed to start").
const MANAGER_STARTS_MAX: u32 = 2;
/// Longest wait between checks of time limits.
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

/// Runs a job as [`launch`] does, under a rule of the program's own in place of the one in the settings. Each process calls
/// [`join_under`](super::join_under) with it.
///
/// # Errors
/// [`LaunchError`].
pub fn launch_under(
    rule: &dyn MakeRule,
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

/// Entry of the poll set that is ready.
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

/// Why the whole job is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restart {
    /// The logs in memory are lost as well.
    PowerCut,
    /// The process manager ends all processes after the death of one, or has none to replace it.
    JobLost,
}

/// Process that may become a rank.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) control: Control,
    pub(super) process: Process,
}

/// Running job. Module `supervision` handles exits, kills and replacements.
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
    /// Number of starts of the process manager since a rank last joined.
    manager_starts: u32,
    pub(super) spares: Vec<Spare>,
    pub(super) deaths: Vec<(DeathReport, RecoveryClock)>,
    pub(super) kill_schedule: KillSchedule,
    /// Counters of processes that have exited.
    pub(super) past: Tally,
    pub(super) began: Instant,
    /// Time since which all ranks are done.
    pub(super) finishing: Option<Instant>,
    /// Why all processes end before all are started again; `None` in normal operation.
    pub(super) restart: Option<Restart>,
    pub(super) power_cuts: Vec<PowerCutReport>,
    pub(super) coordinator: Option<Coordinator>,
    pub(super) rule: &'a dyn MakeRule,
    /// Iterations of rank 0 in which it is to be lost.
    pub(super) coordinator_losses: Vec<u64>,
}

impl<'a> Launcher<'a> {
    fn new(
        options: &'a JobOptions,
        rule: &'a dyn MakeRule,
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
            spares: Vec::new(),
            deaths: Vec::new(),
            kill_schedule: KillSchedule::new(KillPlan::new(&options.kills, &options.power_cuts, options.seed)),
            past: Tally::default(),
            began: Instant::now(),
            finishing: None,
            restart: None,
            power_cuts: Vec::new(),
            coordinator: Coordinator::new(rule, &options.settings),
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

    /// Starts the processes of all ranks.
    pub(super) fn start_all(&mut self) -> Result<(), LaunchError> {
        if let Processes::Managed { .. } = self.options.processes {
            let manager = Process::start_manager(self.options, self.job.paths());
            self.manager_starts += 1;
            self.manager =
                Some(manager.map_err(|source| LaunchError::Io { action: "start the process manager", source })?);
        }
        (0..self.slots.len()).try_for_each(|rank| self.start(rank))
    }

    /// Returns `true` while processes of the job are alive.
    fn is_running(&self) -> bool {
        self.manager.is_some() || self.slots.iter().any(|slot| slot.process.is_some())
    }

    /// Starts a rank's process, or expects it from the process manager. Checks for a signal first, since the start of a thousand processes takes a while.
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

    /// Returns `true` if a termination signal has arrived. Doesn't wait.
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
            // The messages of a rank come before its exit.
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
        // The connection of a rank that died before its hello is removed when it is read.
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
                    // An error means that it has died.
                    if let Ok(process) = Process::adopt(pid, self.job.paths()) {
                        self.spares.push(Spare { control, process });
                    }
                }
                // Dead, or not a rank of this job.
                Ok(Some(_)) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Lets a process of the process manager become a rank.
    fn handle_join(&mut self, rank: u32, pid: u32, control: Control) -> Result<(), LaunchError> {
        let index = rank as usize;
        let is_managed = matches!(self.options.processes, Processes::Managed { .. });
        if !is_managed || index >= self.slots.len() {
            return Ok(());
        }
        self.end_predecessor(index)?;
        // An error means that it has died: another process will join.
        let Ok(process) = Process::adopt(pid, self.job.paths()) else { return Ok(()) };
        self.manager_starts = 0;
        if self.finishing.is_some() {
            let mut control = control;
            // An error means that it has died.
            let _ = control.send(&ToRank::Finish);
            self.spares.push(Spare { control, process });
            return Ok(());
        }
        let slot = &mut self.slots[index];
        slot.process = Some(process);
        let incarnation = slot.incarnation;
        self.observer.handle_progress(Progress::Started { rank, incarnation, pid });
        self.welcome(index, control)
    }

    /// Makes sure that a process whose place another one takes is dead, and handles its exit.
    fn end_predecessor(&mut self, rank: usize) -> Result<(), LaunchError> {
        let Some(process) = &mut self.slots[rank].process else { return Ok(()) };
        let failed = |source| LaunchError::Io { action: "end a rank that was replaced", source };
        process.kill().map_err(failed)?;
        process.wait_for_exit(EXIT_WAIT_MAX).map_err(failed)?;
        self.handle_exit(rank)
    }

    /// Reads the messages of spare processes: one may have become a rank, or have died.
    fn read_spares(&mut self) -> Result<(), LaunchError> {
        for Spare { mut control, mut process } in std::mem::take(&mut self.spares) {
            match control.receive::<ToLauncher>() {
                // A spare of a job that is started again is dropped, which kills it.
                Ok(None) if self.restart.is_some() => {}
                Ok(None) => self.spares.push(Spare { control, process }),
                Ok(Some(ToLauncher::Join { rank, pid })) => {
                    process.forget();
                    self.handle_join(rank, pid, control)?;
                }
                Ok(Some(ToLauncher::NoSpare)) => self.restart_job()?,
                Ok(Some(ToLauncher::Failed { error })) if self.restart.is_none() => {
                    return Err(LaunchError::SpareFailed { reason: error });
                }
                Ok(Some(_)) | Err(_) => process.forget(),
            }
        }
        Ok(())
    }

    /// Handles the exit of the process manager: all its processes have exited, or are about to.
    fn handle_manager_exit(&mut self) -> Result<(), LaunchError> {
        let Some(manager) = &mut self.manager else { return Ok(()) };
        let failed = |source| LaunchError::Io { action: "wait for the process manager", source };
        let Some(exit) = manager.try_wait().map_err(failed)? else { return Ok(()) };
        let stderr_tail = manager.stderr_tail();
        self.manager = None;
        // Exits that led to its own come first.
        for rank in 0..self.slots.len() {
            self.read_messages(rank)?;
            self.handle_exit(rank)?;
        }
        if self.manager.is_some() {
            // The last of these exits has started the job again.
            return Ok(());
        }
        if self.slots.iter().all(|slot| slot.outcome.is_some()) && self.restart.is_none() {
            return Ok(());
        }
        // Nobody may be left to ask for it: a rank had joined, and all have died.
        if self.manager_starts == 0 || self.slots.iter().any(|slot| slot.killed.is_some()) {
            self.restart_job()?;
        }
        if self.restart.is_some() {
            return self.restart_if_ended();
        }
        let status = if let Exit::Status(status) = exit { status.to_string() } else { String::new() };
        if (1..MANAGER_STARTS_MAX).contains(&self.manager_starts) {
            tracing::warn!(
                status,
                stderr = stderr_tail,
                "the process manager ended before any rank joined: starting it again"
            );
            self.job.discard_manager_errors()?;
            return self.start_all();
        }
        let state = describe_unfinished(&self.slots, Instant::now());
        Err(LaunchError::ManagerFailed { state, status, stderr_tail })
    }

    fn welcome(&mut self, rank: usize, mut control: Control) -> Result<(), LaunchError> {
        let now = Instant::now();
        let number = rank as u32;
        let peers = (0u32..).zip(&self.slots).filter(|(_, slot)| slot.welcomed);
        let peers = peers.map(|(peer, slot)| (peer, slot.incarnation)).collect();
        let mut hold_recovery = false;
        if let Some(death) = self.slots[rank].recovering_from {
            let clock = &mut self.deaths[death].1;
            match self.options.processes {
                Processes::Started => clock.started = Some(now),
                Processes::Managed { .. } => clock.joined = Some(now),
            }
            hold_recovery = self.kill_schedule.handle_recovery(number, now);
        }
        let welcome = Welcome {
            incarnation: self.slots[rank].incarnation,
            settings: self.options.settings.clone(),
            program: self.options.program.clone(),
            checkpoints: self.job.checkpoints().to_owned(),
            peers,
            fatal_iterations: self.kill_schedule.fatal_iterations(number),
            fatal_calls: self.kill_schedule.fatal_calls(number),
            hold_recovery,
        };
        // An error means that it has died: its exit is handled next.
        let mut sent = control.send(&ToRank::Welcome(Box::new(welcome)));
        let slot = &mut self.slots[rank];
        for body in std::mem::take(&mut slot.queued_orders) {
            sent = sent.and_then(|()| control.send(&ToRank::Order { body }));
        }
        slot.last_report = Some((now, LastReport::Hello));
        slot.welcomed = true;
        slot.control = sent.is_ok().then_some(control);
        Ok(())
    }

    /// Reads and handles all available messages of a rank.
    pub(super) fn read_messages(&mut self, rank: usize) -> Result<(), LaunchError> {
        loop {
            let Some(control) = &mut self.slots[rank].control else { return Ok(()) };
            match control.flush().and_then(|()| control.receive::<ToLauncher>()) {
                Ok(Some(message)) => self.handle_message(rank, message)?,
                Ok(None) => return Ok(()),
                Err(error) => {
                    if !matches!(error, ControlError::Closed) {
                        tracing::warn!(rank, %error, "a rank's control connection failed and is closed");
                    }
                    // The process notices the close and exits by itself.
                    self.slots[rank].control = None;
                    return Ok(());
                }
            }
        }
    }

    fn handle_message(&mut self, rank: usize, message: ToLauncher) -> Result<(), LaunchError> {
        let now = Instant::now();
        let number = rank as u32;
        let slot = &mut self.slots[rank];
        let (recovery, slot_is_welcomed) = (slot.recovering_from, slot.welcomed);
        match message {
            ToLauncher::Hello { .. } | ToLauncher::Spare { .. } => tracing::warn!(rank, "a second hello is ignored"),
            ToLauncher::Join { .. } => {
                // A rank begins again after it has rolled back.
                if let Some(control) = self.slots[rank].control.take_if(|_| !slot_is_welcomed) {
                    self.welcome(rank, control)?;
                }
            }
            ToLauncher::Iteration { n, tally } => {
                slot.tally = tally;
                slot.repeated_iteration |= n < slot.iteration;
                let took = slot.iteration_began.map_or(Duration::ZERO, |began| now - began);
                slot.iteration_began = Some(now);
                slot.iteration = n;
                slot.last_report = Some((now, LastReport::Iteration(n)));
                self.kill_schedule.handle_iteration(number, n, now, took);
                self.observer.handle_progress(Progress::Iteration { rank: number, n });
                if rank == 0 {
                    self.lose_coordinator(n);
                }
                self.consider_collection();
            }
            ToLauncher::InCall { call, iteration } => {
                slot.last_report = Some((now, LastReport::InCall(call)));
                self.kill_schedule.handle_call(number, iteration, call, now);
            }
            ToLauncher::Started => {
                if let Some(death) = recovery
                    && self.deaths[death].1.joined.is_some()
                {
                    self.deaths[death].1.started = Some(now);
                }
            }
            ToLauncher::ToCoordinator { body } => self.handle_coordinator_message(rank, &body)?,
            ToLauncher::RollingBack { epoch, tally } => {
                (slot.tally, slot.rolling_back) = (tally, true);
                slot.rolled_back_to.push(epoch);
                slot.last_report = Some((now, LastReport::RollsBack));
                self.observer.handle_progress(Progress::RollsBack { rank: number, epoch });
                if let Processes::Managed { .. } = self.options.processes {
                    self.handle_rollback_in_place(rank);
                }
            }
            ToLauncher::Restored { epoch } => {
                slot.last_report = Some((now, LastReport::Restored(epoch)));
                if let Some(cut) = self.power_cuts.last_mut()
                    && cut.restored[rank].is_none()
                {
                    cut.restored[rank] = Some(epoch);
                }
                self.observer.handle_progress(Progress::Restored { rank: number, epoch });
            }
            ToLauncher::ReplayComplete => {
                slot.last_report = Some((now, LastReport::ReplayComplete));
                if let Some(death) = recovery {
                    self.deaths[death].1.replayed = Some(now);
                }
                self.observer.handle_progress(Progress::ReplayComplete { rank: number });
            }
            ToLauncher::CaughtUp => {
                slot.last_report = Some((now, LastReport::CaughtUp));
                if let Some(death) = recovery {
                    self.deaths[death].1.caught_up = Some(now);
                }
                self.observer.handle_progress(Progress::CaughtUp { rank: number });
            }
            ToLauncher::Done { outcome, tally } => {
                slot.tally = tally;
                slot.outcome = Some(outcome);
                self.observer.handle_progress(Progress::Done { rank: number });
            }
            ToLauncher::NoSpare => self.restart_job()?,
            ToLauncher::Failed { error } if self.restart.is_none() => slot.failure = Some(error),
            ToLauncher::Failed { .. } => {}
        }
        Ok(())
    }
}
