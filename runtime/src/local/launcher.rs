//! The launcher: starts a job's ranks, replaces those that die, and cleans up after all of them.
//!
//! One thread, one poll(2): over the ranks' pidfds (who has ended), their control connections (what they say), the
//! socket at which new ones call, and the signals that ask for an end. Whatever way [`launch`] returns, no process and
//! no file of the job is left.

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::control::{Control, ControlError, ToLauncher, ToRank, Welcome};
use super::coordinator::Coordinator;
use super::interrupts::Interrupts;
use super::job::JobDirectory;
use super::kills::KillPlan;
use super::options::JobOptions;
use super::process::Process;
use super::report::{DeathReport, JobReport, LaunchError, Observer, PowerCutReport, Progress, RecoveryClock};
use super::slot::{Heard, Slot};
use super::sockets::timespec;
use super::strikes::Strikes;
use crate::tally::Tally;

/// How often limits of time are looked at while nothing happens.
const IDLE: Duration = Duration::from_millis(100);

/// Runs a job to its end.
///
/// The calling thread has to live as long as this runs: ranks are killed by the kernel when it dies. `interrupts` end
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
    // Ranks and `clean` look for it from elsewhere.
    let absolute = |root: &std::path::Path| std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    let job = JobDirectory::create(&absolute(&options.shm_root), &absolute(&options.checkpoint_root))?;
    let report = Launcher::new(options, &job, interrupts, observer)?.run();
    // No process is left to write there.
    let is_interrupted = matches!(report, Err(LaunchError::Interrupted));
    let keep = options.keep_stores.as_ref().filter(|_| !is_interrupted);
    let kept = keep.map_or(Ok(()), |to| job.keep_stores(to));
    // Dropping would do it too, but in silence.
    let removed = job.remove();
    let report = report?;
    kept?;
    removed?;
    Ok(report)
}

/// Something that became ready.
#[derive(Clone, Copy, Debug)]
enum Ready {
    Interrupt,
    Caller,
    Visitor,
    Words(usize),
    End(usize),
}

/// A job that runs. How ranks end, are killed and replaced is in `supervision`.
pub(super) struct Launcher<'a> {
    pub(super) options: &'a JobOptions,
    pub(super) job: &'a JobDirectory,
    interrupts: Option<&'a Interrupts>,
    pub(super) observer: &'a mut dyn Observer,
    listener: UnixListener,
    /// Connections that haven't said who they are.
    visitors: Vec<Control>,
    pub(super) slots: Vec<Slot>,
    pub(super) deaths: Vec<(DeathReport, RecoveryClock)>,
    pub(super) strikes: Strikes,
    /// What dead incarnations counted.
    pub(super) past: Tally,
    pub(super) began: Instant,
    /// Since when everybody is done.
    pub(super) finishing: Option<Instant>,
    /// All ranks were killed at once, in this iteration, and not all are known to have ended.
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
            visitors: Vec::new(),
            slots: (0..options.settings.ranks).map(|_| Slot::default()).collect(),
            deaths: Vec::new(),
            strikes: Strikes::new(KillPlan::new(&options.kills, &options.power_cuts, options.seed)),
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
                    Ready::Caller => self.accept()?,
                    Ready::Visitor => {} // heard below, all of them
                    Ready::Words(rank) => self.hear(rank)?,
                    Ready::End(rank) => self.handle_end(rank)?,
                }
            }
            self.hear_visitors()?;
            self.strike()?;
            self.check_limits()?;
        }
        self.report()
    }

    /// Starts a rank's process, unless a signal has asked for an end: to start a thousand takes a while.
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
        slot.orders.clear();
        slot.started = Some(Instant::now());
        self.observer.handle_progress(Progress::Started { rank: number, incarnation, pid });
        Ok(())
    }

    /// Whether a signal has asked for an end. Doesn't wait.
    fn is_interrupted(&self) -> Result<bool, LaunchError> {
        let Some(interrupts) = self.interrupts else { return Ok(false) };
        let mut fds = [PollFd::from_borrowed_fd(interrupts.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timespec(Duration::ZERO))) {
            Ok(_) => Ok(!fds[0].revents().is_empty()),
            // It is looked at again with the next one.
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(LaunchError::Io { action: "look for signals", source: errno.into() }),
        }
    }

    /// Waits until something is ready, or until something is due.
    fn wait(&mut self) -> Result<Vec<Ready>, LaunchError> {
        let timeout =
            self.strikes.next_due().map_or(IDLE, |due| due.saturating_duration_since(Instant::now()).min(IDLE));
        let (mut fds, mut ready) = (Vec::new(), Vec::new());
        let mut add = |fd, flags, source| {
            fds.push(PollFd::from_borrowed_fd(fd, flags));
            ready.push(source);
        };
        if let Some(interrupts) = self.interrupts {
            add(interrupts.as_fd(), PollFlags::IN, Ready::Interrupt);
        }
        add(self.listener.as_fd(), PollFlags::IN, Ready::Caller);
        for visitor in &self.visitors {
            add(visitor.as_fd(), PollFlags::IN, Ready::Visitor);
        }
        for (rank, slot) in self.slots.iter().enumerate() {
            // What a rank said comes before its end.
            if let Some(control) = &slot.control {
                let out = if control.wants_to_write() { PollFlags::OUT } else { PollFlags::empty() };
                add(control.as_fd(), PollFlags::IN | out, Ready::Words(rank));
            }
            if let Some(process) = &slot.process {
                add(process.as_fd(), PollFlags::IN, Ready::End(rank));
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
            Ok((stream, _)) => self.visitors.push(Control::new(stream).map_err(failed)?),
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(failed(error)),
        }
        // A rank that dies before it speaks leaves its connection, which goes when it is heard.
        if self.visitors.len() > 2 * self.slots.len() + 16 {
            self.visitors.remove(0);
        }
        Ok(())
    }

    fn hear_visitors(&mut self) -> Result<(), LaunchError> {
        for mut visitor in std::mem::take(&mut self.visitors) {
            match visitor.receive::<ToLauncher>() {
                Ok(None) => self.visitors.push(visitor),
                Ok(Some(ToLauncher::Hello { rank, incarnation, pid })) => {
                    let known = self.slots.get(rank as usize).is_some_and(|slot| {
                        let process = slot.process.as_ref().map(Process::pid);
                        !slot.welcomed && slot.incarnation == incarnation && process == Some(pid)
                    });
                    if known {
                        self.welcome(rank as usize, visitor)?;
                    }
                }
                // Dead, or not one of ours.
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
            hold_recovery = self.strikes.recovery_begins(number, now);
        }
        let welcome = Welcome {
            settings: self.options.settings.clone(),
            program: self.options.program.clone(),
            checkpoints: self.job.checkpoints().to_owned(),
            peers,
            fatal_iterations: self.strikes.fatal_iterations(number),
            hold_recovery,
        };
        // If it has died meanwhile, its end is noticed next.
        let mut sent = control.send(&ToRank::Welcome(Box::new(welcome)));
        let slot = &mut self.slots[rank];
        for body in std::mem::take(&mut slot.orders) {
            sent = sent.and_then(|()| control.send(&ToRank::Order { body }));
        }
        slot.heard = Some((now, Heard::Hello));
        slot.welcomed = true;
        slot.control = sent.is_ok().then_some(control);
        Ok(())
    }

    /// Reads what a rank says, until it has said all.
    pub(super) fn hear(&mut self, rank: usize) -> Result<(), LaunchError> {
        loop {
            let Some(control) = &mut self.slots[rank].control else { return Ok(()) };
            match control.flush().and_then(|()| control.receive::<ToLauncher>()) {
                Ok(Some(message)) => self.handle_message(rank, message)?,
                Ok(None) => return Ok(()),
                Err(error) => {
                    if !matches!(error, ControlError::Closed) {
                        tracing::warn!(rank, %error, "a rank's control connection is given up");
                    }
                    // The process ends by itself now, if it hasn't.
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
                slot.went_back |= n < slot.iteration;
                let took = slot.iteration_began.map_or(Duration::ZERO, |began| now - began);
                slot.iteration_began = Some(now);
                slot.iteration = n;
                slot.heard = Some((now, Heard::Iteration(n)));
                self.strikes.iteration_begins(number, n, now, took);
                self.observer.handle_progress(Progress::Iteration { rank: number, n });
                self.consider_collection();
            }
            ToLauncher::ToCoordinator { body } => self.hear_report(rank, &body)?,
            ToLauncher::GoingBack { epoch, tally } => {
                (slot.tally, slot.going_back) = (tally, true);
                slot.heard = Some((now, Heard::GoesBack));
                self.observer.handle_progress(Progress::GoesBack { rank: number, epoch });
            }
            ToLauncher::Restored { epoch } => {
                slot.heard = Some((now, Heard::Restored(epoch)));
                if let Some(cut) = self.power_cuts.last_mut()
                    && cut.restored[rank].is_none()
                {
                    cut.restored[rank] = Some(epoch);
                }
                self.observer.handle_progress(Progress::Restored { rank: number, epoch });
            }
            ToLauncher::ReplayComplete => {
                slot.heard = Some((now, Heard::ReplayComplete));
                if let Some(death) = recovery {
                    self.deaths[death].1.replayed = Some(now);
                }
                self.observer.handle_progress(Progress::ReplayComplete { rank: number });
            }
            ToLauncher::CaughtUp => {
                slot.heard = Some((now, Heard::CaughtUp));
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
