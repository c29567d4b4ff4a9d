//! Supervision of ranks: exits after planned kills, other kills, failures or success, and the launcher's reaction.

use std::mem::take;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use super::control::ToRank;
use super::kills::{Kill, KillPoint};
use super::launcher::Launcher;
use super::report::{DeathReport, JobReport, LaunchError, PowerCutReport, Progress, RecoveryClock, RecoveryTimes};
use super::slot::describe_unfinished;
use crate::oracle::{Timeline, read_timelines};
use crate::settings::LogTier;

/// Longest wait for ranks to exit after all are done.
const FINISH_WAIT_MAX: Duration = Duration::from_secs(20);

impl Launcher<'_> {
    /// Handles the exit of a rank's process.
    pub(super) fn handle_exit(&mut self, rank: usize) -> Result<(), LaunchError> {
        let Some(process) = &mut self.slots[rank].process else { return Ok(()) };
        let status = process.try_wait().map_err(|source| LaunchError::Io { action: "wait for a rank", source })?;
        let Some(status) = status else { return Ok(()) };
        // Messages that it sent before it exited.
        self.read_messages(rank)?;
        let slot = &mut self.slots[rank];
        let Some(process) = slot.process.take() else { return Ok(()) };
        slot.control = None;
        slot.welcomed = false;
        let mut tally = take(&mut slot.tally);
        let is_over = self.finishing.is_some();
        if self.options.settings.tier == LogTier::ProcessCrashSafe && !is_over {
            // Its replacement takes over the log, and counts the messages in it.
            (tally.messages_logged, tally.bytes_logged) = (0, 0);
        }
        self.past += tally;
        let (number, incarnation) = (rank as u32, slot.incarnation);
        if is_over && slot.outcome.is_some() && slot.failure.is_none() {
            if !status.success() {
                // Its outcome has arrived, so this is no failure of the job.
                tracing::warn!(rank, %status, "a rank exited with an error after it was done");
            }
            return Ok(());
        }
        if take(&mut slot.rolling_back) && status.success() && slot.failure.is_none() {
            return self.handle_rollback(rank);
        }
        match status.signal() {
            Some(signal) if slot.failure.is_none() => self.handle_death(rank, process.pid(), signal),
            _ => Err(LaunchError::RankFailed {
                rank: number,
                incarnation,
                reason: slot.failure.take().unwrap_or_else(|| format!("it ended too early, with {status}")),
                stderr_tail: process.stderr_tail(),
            }),
        }
    }

    /// Starts the next process of a rank that rolls back to an earlier checkpoint.
    fn handle_rollback(&mut self, rank: usize) -> Result<(), LaunchError> {
        let slot = &mut self.slots[rank];
        // A kill at the same instant hit a process that was about to exit.
        slot.killed = None;
        slot.rolled_back += 1;
        slot.incarnation += 1;
        slot.iteration = 0;
        slot.iteration_began = None;
        slot.outcome_before = slot.outcome.take().or(slot.outcome_before.take());
        self.kill_schedule.handle_death(rank as u32);
        if self.cut.is_some() { self.restore_power() } else { self.start(rank) }
    }

    /// Replaces a rank that was killed.
    fn handle_death(&mut self, rank: usize, pid: u32, signal: i32) -> Result<(), LaunchError> {
        let now = Instant::now();
        let number = rank as u32;
        let slot = &mut self.slots[rank];
        let killed = slot.killed.take();
        if killed.is_none() {
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
        slot.incarnation += 1;
        slot.iteration = 0;
        slot.iteration_began = None;
        slot.last_report = None;
        slot.outcome_before = slot.outcome.take().or(slot.outcome_before.take());
        self.kill_schedule.handle_death(number);
        if self.cut.is_some() { self.restore_power() } else { self.start(rank) }
    }

    /// Kills all ranks at once.
    fn cut_power(&mut self, kill: Kill, iteration: u64) -> Result<(), LaunchError> {
        let failed = |source| LaunchError::Io { action: "kill a rank", source };
        let now = Instant::now();
        for slot in &mut self.slots {
            let Some(process) = &mut slot.process else { continue };
            if slot.killed.is_none() && process.try_wait().map_err(failed)?.is_none() {
                slot.killed = Some((now, kill));
                process.kill().map_err(failed)?;
            }
        }
        self.kill_schedule.note_killed(kill);
        self.cut = Some(iteration);
        self.power_cuts.push(PowerCutReport { iteration, restored: vec![None; self.slots.len()] });
        self.observer.handle_progress(Progress::PowerCut { iteration });
        Ok(())
    }

    /// Once the last rank has exited, discards the logs in memory and starts all ranks again.
    fn restore_power(&mut self) -> Result<(), LaunchError> {
        if self.slots.iter().any(|slot| slot.process.is_some()) {
            return Ok(());
        }
        self.cut = None;
        self.job.discard_logs()?;
        (0..self.slots.len()).try_for_each(|rank| self.start(rank))
    }

    /// Carries out the kills that are due.
    pub(super) fn carry_out_kills(&mut self) -> Result<(), LaunchError> {
        for kill in self.kill_schedule.due(Instant::now()) {
            let slot = &mut self.slots[kill.rank as usize];
            let Some(process) = &mut slot.process else { continue };
            let failed = |source| LaunchError::Io { action: "kill a rank", source };
            // A process that has exited and not been handled yet can't be killed: the kill waits for its replacement.
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
                // An error means that it is dead: its exit is handled next.
                let _ = control.send(&ToRank::Resume);
            }
        }
        Ok(())
    }

    /// Checks time limits and outcomes, and ends the job once all ranks are done.
    pub(super) fn check_limits(&mut self) -> Result<(), LaunchError> {
        let now = Instant::now();
        for (rank, slot) in (0u32..).zip(&self.slots) {
            let (Some(process), Some(started)) = (&slot.process, slot.started) else { continue };
            if !slot.welcomed && now - started > self.options.start_wait_max {
                let stderr_tail = process.stderr_tail();
                return Err(LaunchError::Silent { rank, waited: now - started, stderr_tail });
            }
            if let (Some(outcome), Some(before)) = (&slot.outcome, &slot.outcome_before)
                && outcome != before
            {
                return Err(LaunchError::OutcomeChanged { rank });
            }
        }
        if let Some(limit) = self.options.wall_max
            && now - self.began > limit
        {
            return Err(LaunchError::TooLong { limit, state: describe_unfinished(&self.slots, now) });
        }
        match self.finishing {
            None if self.slots.iter().all(|slot| slot.outcome.is_some()) => {
                self.finishing = Some(now);
                for control in self.slots.iter_mut().filter_map(|slot| slot.control.as_mut()) {
                    // An error means that the process has exited.
                    let _ = control.send(&ToRank::Finish);
                }
                Ok(())
            }
            Some(since) if now - since > FINISH_WAIT_MAX => {
                let alive = (0u32..).zip(&self.slots).filter(|(_, slot)| slot.process.is_some());
                Err(LaunchError::NotEnding { ranks: alive.map(|(rank, _)| rank).collect(), waited: now - since })
            }
            _ => Ok(()),
        }
    }

    /// Makes the report of a job that has succeeded.
    pub(super) fn report(self) -> Result<JobReport, LaunchError> {
        let wall = self.began.elapsed();
        let timelines = match self.options.settings.trace {
            true => Some(read_timelines(&self.job.paths().traces(), self.options.settings.ranks)?),
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
        let mut survivors = self.slots.iter().filter(|slot| slot.incarnation == 0);
        Ok(JobReport {
            survivors_undisturbed: survivors.all(|slot| !slot.repeated_iteration),
            outcomes: self.slots.into_iter().map(|slot| slot.outcome.unwrap_or_default()).collect(),
            tally: self.past,
            deaths,
            missed: self.kill_schedule.pending().to_vec(),
            power_cuts: self.power_cuts,
            rolled_back,
            timelines,
            wall,
        })
    }
}

/// Returns `true` if this incarnation died after the first event and before the last one of its rank.
fn died_between_messages(timeline: &Timeline, incarnation: u32) -> bool {
    let reach = timeline.reach.iter().find(|reach| reach.incarnation == incarnation);
    reach.is_some_and(|reach| reach.events > 0 && reach.events < timeline.events.len() as u64)
}
