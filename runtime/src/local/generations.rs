//! Restarts of the whole job, under a rule that makes ranks save their states when one is lost.
//!
//! A *generation* runs from one start of all processes to the next. When a rank is lost, the coordinator tells all
//! others, which save and exit; those that haven't within [`JobOptions::save_wait_max`] are ended, and lost as well.
//! When the last process has ended, all are started again.

use std::time::{Duration, Instant};

use counterfoil::Rank;
use counterfoil_protocols::api::Restart as Begun;

use super::launcher::{Launcher, Restart};
use super::report::{LaunchError, Progress, RestartReport};
use crate::endpoint::BegunWith;
use crate::saved;
use crate::tally::Tally;
use crate::transport::Save;

/// A job's generations.
#[derive(Debug, Default)]
pub(super) struct Generations {
    /// Beginning of the current one; `None` for the first.
    begun: Option<Begun>,
    reports: Vec<RestartReport>,
    /// End of the current one.
    ending: Option<Ending>,
    /// States still needed by the coordinator when last asked.
    needed: Option<u32>,
}

/// End of a generation.
#[derive(Debug)]
struct Ending {
    /// Time at which the launcher noticed the loss.
    noticed: Instant,
    /// Time of the last report from an exiting rank.
    saved: Instant,
    /// Bytes saved by the ranks, and the longest duration of one save.
    bytes: u64,
    took: Duration,
    /// For each rank: time at which it began to save its state, or reported an exit without.
    heard: Vec<Option<Instant>>,
    /// The remaining processes have been killed.
    are_killed: bool,
}

impl Generations {
    /// Returns the reports of all restarts.
    pub(super) fn into_reports(self) -> Vec<RestartReport> {
        self.reports
    }

    /// Returns `true` while ranks may save their states: their time limit is another one.
    pub(super) fn awaits_saves(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| !ending.are_killed)
    }

    /// Returns the beginning for a rank in the current generation.
    pub(super) fn begun_with(&self) -> Option<BegunWith> {
        let begun = self.begun.as_ref()?;
        let lost = begun.lost.iter().map(|rank| rank.0).collect();
        begun.loads.map(|generation| BegunWith { generation, lost })
    }
}

impl Launcher<'_> {
    /// Returns `true` if the job is started again after a rank is lost.
    pub(super) fn restarts_by_rule(&self) -> bool {
        self.rule.properties.restarts_job
    }

    /// Marks the end of the generation, and its time.
    fn end_generation(&mut self) -> &mut Ending {
        let now = Instant::now();
        self.restart.get_or_insert(Restart::Saved);
        let heard = vec![None; self.slots.len()];
        let begin = || Ending { noticed: now, saved: now, bytes: 0, took: Duration::ZERO, heard, are_killed: false };
        self.generations.ending.get_or_insert_with(begin)
    }

    /// Lets all others save their states: a rank is lost.
    pub(super) fn lose_rank(&mut self, rank: usize) {
        self.end_generation();
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.process.handle_rank_lost(Rank(rank as u32));
        }
        self.send_orders();
    }

    /// Handles an exiting rank's report.
    pub(super) fn handle_exits(&mut self, rank: usize, save: Save, tally: Tally) {
        let slot = &mut self.slots[rank];
        (slot.tally, slot.exits) = (tally, true);
        let ending = self.end_generation();
        let now = Instant::now();
        ending.saved = now;
        ending.heard[rank] = Some(now);
        match save {
            Save::Done { bytes, took } => {
                ending.bytes += bytes;
                ending.took = ending.took.max(took);
                ending.heard[rank] = Some(now - took);
                if let Some(coordinator) = &mut self.coordinator {
                    coordinator.process.handle_saved(Rank(rank as u32));
                }
            }
            Save::Failed { error } => {
                tracing::warn!(rank, error, "the state of a rank is lost: it can't be saved");
            }
            Save::NotWanted => {}
        }
    }

    /// Ends the processes that haven't exited in time.
    pub(super) fn check_generation(&mut self, now: Instant) -> Result<(), LaunchError> {
        let Some(ending) = &mut self.generations.ending else { return Ok(()) };
        if ending.are_killed || now - ending.noticed <= self.options.save_wait_max {
            return Ok(());
        }
        ending.are_killed = true;
        let late = (0u32..).zip(&self.slots).filter(|(_, slot)| slot.process.is_some() && !slot.exits);
        let ranks: Vec<u32> = late.map(|(rank, _)| rank).collect();
        tracing::warn!(?ranks, "ranks haven't saved their states in time, and are ended");
        self.end_all()
    }

    /// Begins the next generation: all processes have ended.
    pub(super) fn begin_generation(&mut self) -> Result<(), LaunchError> {
        let Some(coordinator) = &mut self.coordinator else { return Ok(()) };
        if self.rule.properties.keeps_states_in_memory {
            let directory = self.job.paths().directory();
            for rank in 0..self.slots.len() as u32 {
                if saved::has_state_in_memory(directory, rank).map_err(LaunchError::StateInMemory)? {
                    coordinator.process.handle_saved(Rank(rank));
                }
            }
        }
        let Some(begun) = coordinator.process.restart() else { return Ok(()) };
        self.generations.needed = begun.loads;
        self.keep_saves(begun.loads)?;
        let now = Instant::now();
        let ending = self.generations.ending.take();
        let lost: Vec<u32> = begun.lost.iter().map(|rank| rank.0).collect();
        self.observer.handle_progress(Progress::Restarts { generation: begun.generation, lost: lost.len() as u32 });
        let noticed = ending.as_ref().map_or(now, |ending| ending.noticed);
        let saved = ending.as_ref().map_or(now, |ending| ending.saved);
        self.generations.reports.push(RestartReport {
            generation: begun.generation,
            from_saved: begun.loads.is_some(),
            lost,
            at: noticed - self.began,
            bytes: ending.as_ref().map_or(0, |ending| ending.bytes),
            longest_save: ending.as_ref().map_or(Duration::ZERO, |ending| ending.took),
            heard: ending.map_or_else(Vec::new, |ending| {
                ending.heard.iter().map(|heard| heard.map(|heard| heard.saturating_duration_since(noticed))).collect()
            }),
            save: saved - noticed,
            end: now - saved,
            start: None,
            rebuild: None,
            ended: now,
        });
        for slot in &mut self.slots {
            slot.incarnation = begun.generation;
        }
        self.generations.begun = Some(begun);
        Ok(())
    }

    /// Records that a rank has joined.
    pub(super) fn note_joined(&mut self) {
        if self.slots.iter().all(|slot| slot.welcomed)
            && let Some(report) = self.generations.reports.last_mut()
        {
            report.start.get_or_insert(report.ended.elapsed());
        }
    }

    /// Removes saved states no longer needed after any failure, following a message to the coordinator.
    pub(super) fn consider_saves(&mut self) -> Result<(), LaunchError> {
        let needed = self.coordinator.as_ref().and_then(|coordinator| coordinator.process.needed_saves());
        if self.restart.is_some() || std::mem::replace(&mut self.generations.needed, needed) == needed {
            return Ok(());
        }
        if let Some(report) = self.generations.reports.last_mut() {
            let started = report.ended + report.start.unwrap_or_default();
            report.rebuild.get_or_insert(started.elapsed());
        }
        self.keep_saves(needed)
    }

    fn keep_saves(&self, generation: Option<u32>) -> Result<(), LaunchError> {
        let keeps = |other| Some(other) == generation;
        [self.job.checkpoints(), self.job.paths().directory()]
            .into_iter()
            .try_for_each(|directory| saved::remove(directory, keeps).map_err(LaunchError::Saved))
    }
}
