//! How ranks end: killed as planned, killed by others, failed, or done; and what the launcher does then.

use std::mem::take;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use super::control::ToRank;
use super::kills::{Kill, KillPoint};
use super::launcher::Launcher;
use super::report::{DeathReport, JobReport, LaunchError, PowerCutReport, Progress, RecoveryClock, RecoveryTimes};
use super::slot::stuck;
use crate::oracle::{Timeline, read_timelines};
use crate::settings::LogTier;

/// Longest wait for ranks to end when everybody is done.
const FINISH_WAIT_MAX: Duration = Duration::from_secs(20);

impl Launcher<'_> {
    /// A rank's process has ended.
    pub(super) fn handle_end(&mut self, rank: usize) -> Result<(), LaunchError> {
        let Some(process) = &mut self.slots[rank].process else { return Ok(()) };
        let status = process.try_wait().map_err(|source| LaunchError::Io { action: "wait for a rank", source })?;
        let Some(status) = status else { return Ok(()) };
        // What it said before it ended.
        self.hear(rank)?;
        let slot = &mut self.slots[rank];
        let Some(process) = slot.process.take() else { return Ok(()) };
        slot.control = None;
        slot.welcomed = false;
        let mut tally = take(&mut slot.tally);
        let is_over = self.finishing.is_some();
        if self.options.settings.tier == LogTier::ProcessCrashSafe && !is_over {
            // Its replacement takes the log over, and counts what is in it.
            (tally.messages_logged, tally.bytes_logged) = (0, 0);
        }
        self.past += tally;
        let (number, incarnation) = (rank as u32, slot.incarnation);
        if is_over && slot.outcome.is_some() && slot.failure.is_none() {
            if !status.success() {
                // All that it had to give is here.
                tracing::warn!(rank, %status, "a rank ended in another way than asked to, after it was done");
            }
            return Ok(());
        }
        if take(&mut slot.going_back) && status.success() && slot.failure.is_none() {
            return self.handle_going_back(rank);
        }
        match status.signal() {
            Some(signal) if slot.failure.is_none() => self.handle_death(rank, process.pid(), signal),
            _ => Err(LaunchError::RankFailed {
                rank: number,
                incarnation,
                reason: slot.failure.take().unwrap_or_else(|| format!("it ended too early, with {status}")),
                last_words: process.last_words(),
            }),
        }
    }

    /// A rank goes back to an earlier checkpoint, from which its next process goes on.
    fn handle_going_back(&mut self, rank: usize) -> Result<(), LaunchError> {
        let slot = &mut self.slots[rank];
        // If a kill came at the same instant, it has struck a process that was about to end.
        slot.struck = None;
        slot.rolled_back += 1;
        slot.incarnation += 1;
        slot.iteration = 0;
        slot.iteration_began = None;
        slot.outcome_before = slot.outcome.take().or(slot.outcome_before.take());
        self.strikes.rank_died(rank as u32);
        if self.cut.is_some() { self.restore_power() } else { self.start(rank) }
    }

    /// A rank was killed: it is replaced at once.
    fn handle_death(&mut self, rank: usize, pid: u32, signal: i32) -> Result<(), LaunchError> {
        let now = Instant::now();
        let number = rank as u32;
        let slot = &mut self.slots[rank];
        let struck = slot.struck.take();
        if struck.is_none() {
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
            planned: struck.map(|(_, kill)| kill),
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
        self.deaths.push((report, RecoveryClock::new(struck.map(|(when, _)| when), now)));
        slot.incarnation += 1;
        slot.iteration = 0;
        slot.iteration_began = None;
        slot.heard = None;
        slot.outcome_before = slot.outcome.take().or(slot.outcome_before.take());
        self.strikes.rank_died(number);
        if self.cut.is_some() { self.restore_power() } else { self.start(rank) }
    }

    /// All ranks die at once.
    fn cut_power(&mut self, kill: Kill, iteration: u64) -> Result<(), LaunchError> {
        let failed = |source| LaunchError::Io { action: "kill a rank", source };
        let now = Instant::now();
        for slot in &mut self.slots {
            let Some(process) = &mut slot.process else { continue };
            if slot.struck.is_none() && process.try_wait().map_err(failed)?.is_none() {
                slot.struck = Some((now, kill));
                process.kill().map_err(failed)?;
            }
        }
        self.strikes.struck(kill);
        self.cut = Some(iteration);
        self.power_cuts.push(PowerCutReport { iteration, restored: vec![None; self.slots.len()] });
        self.observer.handle_progress(Progress::PowerCut { iteration });
        Ok(())
    }

    /// Once the last rank has ended, what they had in memory is discarded, and all are started again.
    fn restore_power(&mut self) -> Result<(), LaunchError> {
        if self.slots.iter().any(|slot| slot.process.is_some()) {
            return Ok(());
        }
        self.cut = None;
        self.job.discard_logs()?;
        (0..self.slots.len()).try_for_each(|rank| self.start(rank))
    }

    /// Carries out the kills that are due.
    pub(super) fn strike(&mut self) -> Result<(), LaunchError> {
        for kill in self.strikes.due(Instant::now()) {
            let slot = &mut self.slots[kill.rank as usize];
            let Some(process) = &mut slot.process else { continue };
            let failed = |source| LaunchError::Io { action: "kill a rank", source };
            // One that is dead already, and not yet noticed, can't be killed: its replacement can.
            if slot.struck.is_some() || process.try_wait().map_err(failed)?.is_some() {
                continue;
            }
            if let KillPoint::PowerCut(iteration) = kill.at {
                self.cut_power(kill, iteration)?;
                continue;
            }
            slot.struck = Some((Instant::now(), kill));
            process.kill().map_err(failed)?;
            self.strikes.struck(kill);
            if let KillPoint::RecoveryOf(other) = kill.at
                && !self.strikes.holds(other)
                && let Some(control) = &mut self.slots[other as usize].control
            {
                // If that one is dead too, its end is noticed next.
                let _ = control.send(&ToRank::Resume);
            }
        }
        Ok(())
    }

    /// What is due without anything having happened.
    pub(super) fn check_limits(&mut self) -> Result<(), LaunchError> {
        let now = Instant::now();
        for (rank, slot) in (0u32..).zip(&self.slots) {
            let (Some(process), Some(started)) = (&slot.process, slot.started) else { continue };
            if !slot.welcomed && now - started > self.options.start_wait_max {
                let last_words = process.last_words();
                return Err(LaunchError::Silent { rank, waited: now - started, last_words });
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
            return Err(LaunchError::TooLong { limit, state: stuck(&self.slots, now) });
        }
        match self.finishing {
            None if self.slots.iter().all(|slot| slot.outcome.is_some()) => {
                self.finishing = Some(now);
                for control in self.slots.iter_mut().filter_map(|slot| slot.control.as_mut()) {
                    // One that can't be told has ended.
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

    /// Everybody has ended well.
    pub(super) fn report(self) -> Result<JobReport, LaunchError> {
        let wall = self.began.elapsed();
        let timelines = match self.options.settings.trace {
            true => Some(read_timelines(&self.job.paths().traces(), self.options.settings.ranks)?),
            false => None,
        };
        let deaths = self.deaths.into_iter().map(|(mut death, clock)| {
            death.recovery = clock.times();
            let timeline = timelines.as_ref().and_then(|timelines| timelines.get(death.rank as usize));
            death.between_first_and_last_message = timeline.map(|timeline| died_amid(timeline, death.incarnation));
            death
        });
        let deaths: Vec<DeathReport> = deaths.collect();
        let rolled_back = self.slots.iter().map(|slot| slot.rolled_back).collect();
        let mut survivors = self.slots.iter().filter(|slot| slot.incarnation == 0);
        Ok(JobReport {
            survivors_undisturbed: survivors.all(|slot| !slot.went_back),
            outcomes: self.slots.into_iter().map(|slot| slot.outcome.unwrap_or_default()).collect(),
            tally: self.past,
            deaths,
            missed: self.strikes.pending().to_vec(),
            power_cuts: self.power_cuts,
            rolled_back,
            timelines,
            wall,
        })
    }
}

/// Whether this incarnation had done something and not everything when it died.
fn died_amid(timeline: &Timeline, incarnation: u32) -> bool {
    let reach = timeline.reach.iter().find(|reach| reach.incarnation == incarnation);
    reach.is_some_and(|reach| reach.events > 0 && reach.events < timeline.events.len() as u64)
}
