//! Processes started by a process manager: they join as ranks, wait as spares, and end with it.

use std::time::{Duration, Instant};

use super::{EXIT_WAIT_MAX, Launcher, MANAGER_STARTS_MAX, Spare};
use crate::local::control::{Control, ToLauncher, ToRank};
use crate::local::options::Processes;
use crate::local::process::{Exit, Process};
use crate::local::report::{LaunchError, Progress, StallReport};
use crate::local::slot::describe_unfinished;

/// Longest time all live processes may wait for each other in a repair.
const REPAIR_WAIT_MAX: Duration = Duration::from_secs(10);

/// Returns `true` if all processes have waited for longer than [`REPAIR_WAIT_MAX`].
///
/// `since`: start of each live one's wait.
fn is_lost(since: impl Iterator<Item = Option<Instant>>, now: Instant) -> bool {
    let latest = since.map(|since| since.map(|since| now.saturating_duration_since(since))).min();
    latest.flatten().is_some_and(|waited| waited > REPAIR_WAIT_MAX)
}

impl Launcher<'_> {
    /// Lets a managed process become a rank.
    pub(super) fn handle_join(&mut self, rank: u32, pid: u32, control: Control) -> Result<(), LaunchError> {
        let index = rank as usize;
        let is_managed = matches!(self.options.processes, Processes::Managed { .. });
        if !is_managed || index >= self.slots.len() {
            return Ok(());
        }
        self.end_predecessor(index)?;
        // An error means a dead process: another will join.
        let Ok(process) = Process::adopt(pid, self.job.paths()) else { return Ok(()) };
        self.manager_starts = 0;
        if self.finishing.is_some() {
            let mut control = control;
            // An error means a dead process.
            let _ = control.send(&ToRank::Finish);
            self.spares.push(Spare { control, process, repairing: None });
            return Ok(());
        }
        let slot = &mut self.slots[index];
        slot.process = Some(process);
        slot.repairing = None;
        let incarnation = slot.incarnation;
        self.observer.handle_progress(Progress::Started { rank, incarnation, pid });
        self.welcome(index, control)
    }

    /// Makes sure that a replaced process is dead, and handles its exit.
    fn end_predecessor(&mut self, rank: usize) -> Result<(), LaunchError> {
        let Some(process) = &mut self.slots[rank].process else { return Ok(()) };
        let failed = |source| LaunchError::Io { action: "end a rank that was replaced", source };
        process.kill().map_err(failed)?;
        process.wait_for_exit(EXIT_WAIT_MAX).map_err(failed)?;
        self.handle_exit(rank)
    }

    /// Reads messages from spare processes: one may have become a rank, or have died.
    pub(super) fn read_spares(&mut self) -> Result<(), LaunchError> {
        for Spare { mut control, mut process, mut repairing } in std::mem::take(&mut self.spares) {
            let message = loop {
                match control.receive::<ToLauncher>() {
                    Ok(Some(ToLauncher::Repair { waits })) => repairing = waits.then(Instant::now),
                    other => break other,
                }
            };
            match message {
                // A spare of a job being restarted is dropped, which kills it.
                Ok(None) if self.restart.is_some() => {}
                Ok(None) => self.spares.push(Spare { control, process, repairing }),
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

    /// Starts the job again if its processes have waited for each other for too long.
    ///
    /// Then the MPI's agreement, which takes milliseconds once all have begun it, is lost. With Open MPI 5.0.11 that
    /// happens now and then when two processes die at the same time.
    ///
    /// # Errors
    /// [`LaunchError::RepairStalled`] if that has happened too often.
    pub(in crate::local) fn check_repair(&mut self, now: Instant) -> Result<(), LaunchError> {
        let living = self.slots.iter().filter(|slot| slot.process.is_some()).map(|slot| slot.repairing);
        let all = living.chain(self.spares.iter().map(|spare| spare.repairing));
        if self.manager.is_none() || self.restart.is_some() || self.finishing.is_some() || !is_lost(all, now) {
            return Ok(());
        }
        if self.restart_stalled(None, now)? {
            return Ok(());
        }
        Err(LaunchError::RepairStalled { waited: REPAIR_WAIT_MAX, state: describe_unfinished(&self.slots, now) })
    }

    /// Starts the job again because the managed processes make no progress: `rank` has had none for too long, or all
    /// wait for each other.
    ///
    /// Returns `false`, and does nothing, if that has happened too often, in a job ending or about to be started again,
    /// and without a process manager.
    pub(in crate::local) fn restart_stalled(&mut self, rank: Option<u32>, now: Instant) -> Result<bool, LaunchError> {
        let is_too_often =
            self.manager_starts >= MANAGER_STARTS_MAX || self.stalls.len() >= self.options.deaths_max as usize;
        if self.manager.is_none() || self.restart.is_some() || self.finishing.is_some() || is_too_often {
            return Ok(false);
        }
        let state = describe_unfinished(&self.slots, now);
        tracing::warn!(rank, state, "the processes of the process manager make no progress: starting all again");
        self.stalls.push(StallReport { rank, at: now - self.began, state });
        self.restart_job()?;
        Ok(true)
    }

    /// Handles the exit of the process manager: all its processes have exited, or are about to.
    pub(super) fn handle_manager_exit(&mut self) -> Result<(), LaunchError> {
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
            // The last exit has started the job again.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_is_lost_if_all_living_processes_have_waited_too_long() {
        let now = Instant::now() + 2 * REPAIR_WAIT_MAX;
        let long = Some(now - REPAIR_WAIT_MAX - Duration::from_millis(1));
        let short = Some(now - REPAIR_WAIT_MAX);
        let is_lost = |since: &[Option<Instant>]| is_lost(since.iter().copied(), now);
        assert!(is_lost(&[long]) && is_lost(&[long, long, long]));
        assert!(!is_lost(&[long, short]), "one has come late");
        assert!(!is_lost(&[long, None, long]), "one computes, or is being replaced");
        assert!(!is_lost(&[]), "none is alive: the process manager ends");
    }
}
