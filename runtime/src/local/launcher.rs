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
use super::options::JobOptions;
use super::process::Process;
use super::report::{DeathReport, JobReport, LaunchError, Observer, PowerCutReport, Progress, RecoveryClock};
use super::slot::{LastReport, Slot};
use super::sockets::timespec;
use crate::tally::Tally;

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
    options.validate()?;
    // Ranks and `clean` may have other working directories.
    let absolute = |root: &std::path::Path| std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    let job = JobDirectory::create(&absolute(&options.shm_root), &absolute(&options.checkpoint_root))?;
    let report = Launcher::new(options, &job, interrupts, observer)?.run();
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
    pub(super) deaths: Vec<(DeathReport, RecoveryClock)>,
    pub(super) kill_schedule: KillSchedule,
    /// Counters of processes that have exited.
    pub(super) past: Tally,
    pub(super) began: Instant,
    /// Time since which all ranks are done.
    pub(super) finishing: Option<Instant>,
    /// Iteration of a power cut, until all ranks are known to have exited.
    pub(super) cut: Option<u64>,
    pub(super) power_cuts: Vec<PowerCutReport>,
    pub(super) coordinator: Option<Coordinator>,
}

impl<'a> Launcher<'a> {
    fn new(
        options: &'a JobOptions,
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
            deaths: Vec::new(),
            kill_schedule: KillSchedule::new(KillPlan::new(&options.kills, &options.power_cuts, options.seed)),
            past: Tally::default(),
            began: Instant::now(),
            finishing: None,
            cut: None,
            power_cuts: Vec::new(),
            coordinator: Coordinator::new(&options.settings),
        })
    }

    fn run(mut self) -> Result<JobReport, LaunchError> {
        for rank in 0..self.slots.len() {
            self.start(rank)?;
        }
        while self.slots.iter().any(|slot| slot.process.is_some()) {
            for ready in self.wait()? {
                match ready {
                    Ready::Interrupt => return Err(LaunchError::Interrupted),
                    Ready::Listener => self.accept()?,
                    Ready::Unidentified => {} // all are read below
                    Ready::Control(rank) => self.read_messages(rank)?,
                    Ready::Exit(rank) => self.handle_exit(rank)?,
                }
            }
            self.read_unidentified()?;
            self.carry_out_kills()?;
            self.check_limits()?;
        }
        self.report()
    }

    /// Starts a rank's process. Checks for a signal first, since the start of a thousand processes takes a while.
    pub(super) fn start(&mut self, rank: usize) -> Result<(), LaunchError> {
        if self.is_interrupted()? {
            return Err(LaunchError::Interrupted);
        }
        let slot = &mut self.slots[rank];
        let (number, incarnation) = (rank as u32, slot.incarnation);
        let process = Process::start(&self.options.command, self.job.paths(), number, incarnation)
            .map_err(|source| LaunchError::Start { rank: number, source })?;
        let pid = process.pid();
        slot.process = Some(process);
        slot.queued_orders.clear();
        slot.started = Some(Instant::now());
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
                // Dead, or not a rank of this job.
                Ok(Some(_)) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn welcome(&mut self, rank: usize, mut control: Control) -> Result<(), LaunchError> {
        let now = Instant::now();
        let number = rank as u32;
        let peers = (0u32..).zip(&self.slots).filter(|(_, slot)| slot.welcomed);
        let peers = peers.map(|(peer, slot)| (peer, slot.incarnation)).collect();
        let mut hold_recovery = false;
        if let Some(death) = self.slots[rank].recovering_from {
            self.deaths[death].1.hello = Some(now);
            hold_recovery = self.kill_schedule.handle_recovery(number, now);
        }
        let welcome = Welcome {
            settings: self.options.settings.clone(),
            program: self.options.program.clone(),
            checkpoints: self.job.checkpoints().to_owned(),
            peers,
            fatal_iterations: self.kill_schedule.fatal_iterations(number),
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
        let recovery = slot.recovering_from;
        match message {
            ToLauncher::Hello { .. } => tracing::warn!(rank, "a second hello is ignored"),
            ToLauncher::Iteration { n, tally } => {
                slot.tally = tally;
                slot.repeated_iteration |= n < slot.iteration;
                let took = slot.iteration_began.map_or(Duration::ZERO, |began| now - began);
                slot.iteration_began = Some(now);
                slot.iteration = n;
                slot.last_report = Some((now, LastReport::Iteration(n)));
                self.kill_schedule.handle_iteration(number, n, now, took);
                self.observer.handle_progress(Progress::Iteration { rank: number, n });
                self.consider_collection();
            }
            ToLauncher::ToCoordinator { body } => self.handle_coordinator_message(rank, &body)?,
            ToLauncher::RollingBack { epoch, tally } => {
                (slot.tally, slot.rolling_back) = (tally, true);
                slot.last_report = Some((now, LastReport::RollsBack));
                self.observer.handle_progress(Progress::RollsBack { rank: number, epoch });
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
            ToLauncher::Failed { error } => slot.failure = Some(error),
        }
        Ok(())
    }
}
