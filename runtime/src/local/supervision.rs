//! Supervision of ranks: exits after planned kills, other kills, failures or success, and the launcher's reaction.

use std::mem::take;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use counterfoil::Tier;

use super::control::ToRank;
use super::kills::{Kill, KillPoint};
use super::launcher::{Launcher, Restart};
use super::options::Processes;
use super::process::{Exit, Process};
use super::report::{DeathReport, JobReport, LaunchError, PowerCutReport, Progress, RecoveryClock, RecoveryTimes};
use super::slot::{Slot, describe_unfinished};
use crate::oracle::{Timeline, read_timelines};

/// Assumed time to start a replacement.
const START_GUESS: Duration = Duration::from_millis(1);
/// Assumed time to repair an MPI job.
const REPAIR_GUESS: Duration = Duration::from_millis(30);
/// Longest wait for the process manager to exit after all ranks have.
const MANAGER_WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest wait for ranks to exit after all are done.
const FINISH_WAIT_MAX: Duration = Duration::from_secs(20);

impl Launcher<'_> {
    /// Handles the exit of a rank's process.
    pub(super) fn handle_exit(&mut self, rank: usize) -> Result<(), LaunchError> {
        let Some(process) = &mut self.slots[rank].process else { return Ok(()) };
        let exit = process.try_wait().map_err(|source| LaunchError::Io { action: "wait for a rank", source })?;
        let Some(exit) = exit else { return Ok(()) };
        // Messages sent before the exit.
        self.read_messages(rank)?;
        if self.slots[rank].failure.is_some() && self.loses_all_ranks_by_a_death() {
            self.handle_exits_without_failure()?;
        }
        let slot = &mut self.slots[rank];
        let Some(process) = slot.process.take() else { return Ok(()) };
        slot.control = None;
        self.add_past_tally(rank);
        let slot = &mut self.slots[rank];
        let (number, incarnation) = (rank as u32, slot.incarnation);
        if self.finishing.is_some() && slot.outcome.is_some() && slot.failure.is_none() {
            if let Exit::Status(status) = exit
                && !status.success()
            {
                // Its outcome has arrived, so the job hasn't failed.
                tracing::warn!(rank, %status, "a rank exited with an error after it was done");
            }
            return Ok(());
        }
        let (was_killed, signal, how) = match exit {
            Exit::Status(status) => (status.signal().is_some(), status.signal(), status.to_string()),
            // The process manager alone knows.
            Exit::Unknown => (true, None, String::new()),
        };
        if take(&mut slot.rolling_back) && !was_killed && slot.failure.is_none() {
            // A kill at the same instant hit a process that was about to exit.
            slot.killed = None;
            self.handle_rollback(rank);
            return self.start_next(rank);
        }
        if take(&mut slot.exits) && slot.failure.is_none() {
            // A kill at the same instant hit a process that was about to exit.
            slot.killed = None;
            self.handle_rollback(rank);
            return self.restart_if_ended();
        }
        if self.goes_back_with_the_job(rank) {
            // Its failure follows from another rank's death.
            self.slots[rank].failure = None;
            self.handle_rollback(rank);
            return self.restart_if_ended();
        }
        let is_lost = was_killed || self.restart == Some(Restart::Saved);
        let slot = &mut self.slots[rank];
        if is_lost && slot.failure.is_none() {
            return self.handle_death(rank, process.pid(), signal);
        }
        Err(LaunchError::RankFailed {
            rank: number,
            incarnation,
            reason: slot.failure.take().unwrap_or_else(|| format!("it ended too early, with {how}")),
            stderr_tail: process.stderr_tail(),
        })
    }

    /// Returns `true` if the process manager ends all ranks after one has died.
    pub(super) fn loses_all_ranks_by_a_death(&self) -> bool {
        matches!(self.options.processes, Processes::Managed { outlive_failures: false, .. })
    }

    /// Returns `true` for a rank that has ended because another one is dead and the process manager ends all.
    fn goes_back_with_the_job(&self, rank: usize) -> bool {
        let is_restarting = self.restart == Some(Restart::JobLost);
        if self.restarts_by_rule() {
            return is_restarting && self.slots[rank].killed.is_none();
        }
        let has_killed = self.slots.iter().any(|slot| slot.killed.is_some());
        self.slots[rank].killed.is_none() && (is_restarting || self.loses_all_ranks_by_a_death() && has_killed)
    }

    /// Handles process exits without a reported failure: one of them may be the cause of another's failure.
    fn handle_exits_without_failure(&mut self) -> Result<(), LaunchError> {
        for rank in 0..self.slots.len() {
            self.read_messages(rank)?;
            if self.slots[rank].failure.is_none() {
                self.handle_exit(rank)?;
            }
        }
        Ok(())
    }

    /// Starts a rank's next process, alone or with all others.
    fn start_next(&mut self, rank: usize) -> Result<(), LaunchError> {
        if self.restarts_by_rule() {
            self.lose_rank(rank);
        }
        if self.restart.is_some() {
            return self.restart_if_ended();
        }
        if self.loses_all_ranks_by_a_death() {
            self.restart_job()?;
            return self.restart_if_ended();
        }
        // They were for its predecessor.
        self.slots[rank].queued_orders.clear();
        self.start(rank)
    }

    /// Ends all processes, then starts all again.
    pub(super) fn restart_job(&mut self) -> Result<(), LaunchError> {
        if self.restart.is_some() || self.finishing.is_some() {
            return Ok(());
        }
        self.restart = Some(Restart::JobLost);
        self.end_all()
    }

    /// Kills all processes of the job.
    pub(super) fn end_all(&mut self) -> Result<(), LaunchError> {
        let failed = |source| LaunchError::Io { action: "kill a rank", source };
        self.expect_exits();
        for process in self.slots.iter_mut().filter_map(|slot| slot.process.as_mut()).chain(&mut self.manager) {
            process.kill().map_err(failed)?;
        }
        self.spares.clear();
        Ok(())
    }

    /// Begins to wait for all processes to exit: those that joined long ago are not late.
    fn expect_exits(&mut self) {
        let now = Instant::now();
        self.slots.iter_mut().for_each(|slot| slot.started = Some(now));
    }

    /// Adds a finished execution's counters to the job's.
    fn add_past_tally(&mut self, rank: usize) {
        let slot = &mut self.slots[rank];
        slot.welcomed = false;
        let mut tally = take(&mut slot.tally);
        if self.options.settings.tier == Tier::ProcessCrashSafe && self.finishing.is_none() {
            // The next execution takes over the log, and counts its messages.
            (tally.messages_logged, tally.bytes_logged) = (0, 0);
        }
        self.past += tally;
    }

    /// Prepares for a rank's next execution in the same process.
    pub(super) fn handle_rollback_in_place(&mut self, rank: usize) {
        self.add_past_tally(rank);
        self.slots[rank].rolling_back = false;
        self.handle_rollback(rank);
    }

    /// Counts a rank's rollback to an earlier checkpoint.
    fn handle_rollback(&mut self, rank: usize) {
        let slot = &mut self.slots[rank];
        slot.rolled_back += 1;
        slot.begin_incarnation();
        self.kill_schedule.handle_end(rank as u32);
    }

    /// Replaces a killed rank.
    ///
    /// `signal`: if known.
    fn handle_death(&mut self, rank: usize, pid: u32, signal: Option<i32>) -> Result<(), LaunchError> {
        let now = Instant::now();
        let number = rank as u32;
        let slot = &mut self.slots[rank];
        let killed = slot.killed.take();
        if killed.is_none() && self.restart.is_none() {
            slot.deaths_unplanned += 1;
            if slot.deaths_unplanned > self.options.deaths_max {
                return Err(LaunchError::TooManyDeaths { rank: number, deaths: slot.deaths_unplanned, signal });
            }
        }
        let report = DeathReport {
            rank: number,
            incarnation: slot.incarnation,
            pid,
            iteration: slot.iteration,
            planned: killed.map(|(_, kill)| kill),
            signal,
            at: now - self.began,
            recovery: RecoveryTimes::default(),
            between_first_and_last_message: None,
        };
        self.observer.handle_progress(Progress::Died {
            rank: number,
            incarnation: report.incarnation,
            iteration: report.iteration,
            planned: report.planned.is_some(),
        });
        slot.recovering_from = Some(self.deaths.len());
        self.deaths.push((report, RecoveryClock::new(killed.map(|(when, _)| when), now)));
        slot.begin_incarnation();
        slot.last_report = None;
        self.kill_schedule.handle_end(number);
        let takes = match self.options.processes {
            Processes::Started => START_GUESS,
            Processes::Managed { .. } => REPAIR_GUESS,
        };
        self.kill_schedule.handle_death(number, now, takes);
        self.start_next(rank)
    }

    /// Kills all ranks at once.
    fn cut_power(&mut self, kill: Kill, iteration: u64) -> Result<(), LaunchError> {
        let failed = |source| LaunchError::Io { action: "kill a rank", source };
        let now = Instant::now();
        self.expect_exits();
        for slot in &mut self.slots {
            let Some(process) = &mut slot.process else { continue };
            if slot.killed.is_none() && process.try_wait().map_err(failed)?.is_none() {
                slot.killed = Some((now, kill));
                process.kill().map_err(failed)?;
            }
        }
        self.kill_schedule.note_killed(kill);
        self.restart = Some(Restart::PowerCut);
        if let Some(manager) = &mut self.manager {
            manager.kill().map_err(failed)?;
        }
        self.spares.clear();
        self.power_cuts.push(PowerCutReport { iteration, restored: vec![None; self.slots.len()] });
        self.observer.handle_progress(Progress::PowerCut { iteration });
        Ok(())
    }

    /// Once the last process has exited, starts all again; after a power cut, without the logs in memory.
    pub(super) fn restart_if_ended(&mut self) -> Result<(), LaunchError> {
        if self.manager.is_some() || self.slots.iter().any(|slot| slot.process.is_some()) {
            return Ok(());
        }
        if self.restart.take() == Some(Restart::PowerCut) || self.restarts_by_rule() {
            self.job.discard_logs()?;
        }
        self.begin_generation()?;
        // They were for the predecessors; a rank that never had one still waits for its own.
        self.slots.iter_mut().filter(|slot| slot.incarnation > 0).for_each(|slot| slot.queued_orders.clear());
        self.start_all()
    }

    /// Carries out due kills.
    pub(super) fn carry_out_kills(&mut self) -> Result<(), LaunchError> {
        for kill in self.kill_schedule.due(Instant::now()) {
            let slot = &mut self.slots[kill.rank as usize];
            let Some(process) = &mut slot.process else { continue };
            let failed = |source| LaunchError::Io { action: "kill a rank", source };
            // A process that has exited but not been handled yet can't be killed: the kill waits for its replacement.
            if slot.killed.is_some() || process.try_wait().map_err(failed)?.is_some() {
                continue;
            }
            if let KillPoint::PowerCut(iteration) = kill.at {
                self.cut_power(kill, iteration)?;
                continue;
            }
            slot.killed = Some((Instant::now(), kill));
            process.kill().map_err(failed)?;
            self.kill_schedule.note_killed(kill);
            if let KillPoint::RecoveryOf(other) = kill.at
                && !self.kill_schedule.holds_recovery(other)
                && let Some(control) = &mut self.slots[other as usize].control
            {
                // An error means a dead process: its exit is handled next.
                let _ = control.send(&ToRank::Resume);
            }
        }
        Ok(())
    }

    /// Returns the first rank without a hello in time, and the time waited for it.
    fn silent_rank(&self, now: Instant) -> Option<(u32, Duration)> {
        let is_silent = |slot: &Slot| {
            let is_expected = slot.process.is_some() || self.manager.is_some() && slot.outcome.is_none();
            let waited = now - slot.started.filter(|_| is_expected && !slot.welcomed)?;
            (waited > self.options.start_wait_max).then_some(waited)
        };
        (0..).zip(&self.slots).find_map(|(rank, slot)| Some((rank, is_silent(slot)?)))
    }

    /// Checks time limits and outcomes, and ends the job once all ranks are done.
    pub(super) fn check_limits(&mut self) -> Result<(), LaunchError> {
        let now = Instant::now();
        if let Some((rank, waited)) = self.silent_rank(now).filter(|_| !self.generations.awaits_saves())
            && !self.restart_stalled(Some(rank), now)?
        {
            let process = self.slots[rank as usize].process.as_ref().or(self.manager.as_ref());
            let stderr_tail = process.map(Process::stderr_tail).unwrap_or_default();
            let state = describe_unfinished(&self.slots, now);
            return Err(LaunchError::Silent { rank, waited, state, stderr_tail });
        }
        for (rank, slot) in (0u32..).zip(&self.slots) {
            if let (Some(outcome), Some(before)) = (&slot.outcome, &slot.outcome_before)
                && outcome != before
                && !self.restarts_by_rule()
            {
                return Err(LaunchError::OutcomeChanged { rank });
            }
        }
        self.check_repair(now)?;
        self.check_generation(now)?;
        if let Some(limit) = self.options.wall_max
            && now - self.began > limit
        {
            return Err(LaunchError::TooLong { limit, state: describe_unfinished(&self.slots, now) });
        }
        match self.finishing {
            None if self.slots.iter().all(|slot| slot.outcome.is_some()) => {
                self.finishing = Some(now);
                self.kill_schedule.disarm();
                let of_ranks = self.slots.iter_mut().filter_map(|slot| slot.control.as_mut());
                for control in of_ranks.chain(self.spares.iter_mut().map(|spare| &mut spare.control)) {
                    // An error means an exited process.
                    let _ = control.send(&ToRank::Finish);
                }
                Ok(())
            }
            // The ranks have ended, and the process manager hangs.
            Some(since) if now - since > MANAGER_WAIT_MAX && self.slots.iter().all(|slot| slot.process.is_none()) => {
                let Some(manager) = &mut self.manager else { return Ok(()) };
                manager.kill().map_err(|source| LaunchError::Io { action: "end the process manager", source })
            }
            Some(since) if now - since > FINISH_WAIT_MAX => {
                let alive = (0u32..).zip(&self.slots).filter(|(_, slot)| slot.process.is_some());
                Err(LaunchError::NotEnding { ranks: alive.map(|(rank, _)| rank).collect(), waited: now - since })
            }
            _ => Ok(()),
        }
    }

    /// Makes the report for a successful job.
    pub(super) fn report(mut self) -> Result<JobReport, LaunchError> {
        let wall = self.began.elapsed();
        let timelines = match self.options.settings.trace {
            true => Some({
                let settings = &self.options.settings;
                read_timelines(&self.job.paths().traces(), settings.ranks, settings.repeats())?
            }),
            false => None,
        };
        let deaths = self.deaths.into_iter().map(|(mut death, clock)| {
            death.recovery = clock.times();
            let timeline = timelines.as_ref().and_then(|timelines| timelines.get(death.rank as usize));
            death.between_first_and_last_message =
                timeline.map(|timeline| died_between_messages(timeline, death.incarnation));
            death
        });
        let deaths: Vec<DeathReport> = deaths.collect();
        let rolled_back = self.slots.iter().map(|slot| slot.rolled_back).collect();
        let rolled_back_to = self.slots.iter_mut().map(|slot| take(&mut slot.rolled_back_to)).collect();
        let mut survivors = self.slots.iter().filter(|slot| slot.incarnation == 0);
        Ok(JobReport {
            survivors_undisturbed: survivors.all(|slot| !slot.repeated_iteration),
            outcomes: self.slots.into_iter().map(|slot| slot.outcome.unwrap_or_default()).collect(),
            tally: self.past,
            deaths,
            missed: self.kill_schedule.pending().to_vec(),
            power_cuts: self.power_cuts,
            stalls: self.stalls,
            restarts: self.generations.into_reports(),
            rolled_back,
            rolled_back_to,
            coordinators_lost: self.coordinator.as_ref().map_or(0, |coordinator| coordinator.replaced),
            losses_missed: self.coordinator_losses,
            timelines,
            wall,
        })
    }
}

/// Returns `true` if this incarnation died after its rank's first event and before the last one.
fn died_between_messages(timeline: &Timeline, incarnation: u32) -> bool {
    let reach = timeline.reach.iter().find(|reach| reach.incarnation == incarnation);
    reach.is_some_and(|reach| reach.events > 0 && reach.events < timeline.events.len() as u64)
}
