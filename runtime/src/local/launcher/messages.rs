//! Messages between the launcher and a rank.

use std::time::{Duration, Instant};

use super::Launcher;
use crate::local::control::{Control, ControlError, ToLauncher, ToRank, Welcome};
use crate::local::options::Processes;
use crate::local::report::{LaunchError, Progress};
use crate::local::slot::LastReport;

impl Launcher<'_> {
    pub(super) fn welcome(&mut self, rank: usize, mut control: Control) -> Result<(), LaunchError> {
        let now = Instant::now();
        let number = rank as u32;
        let peers = (0u32..).zip(&self.slots).filter(|(_, slot)| slot.welcomed);
        let peers = peers.map(|(peer, slot)| (peer, slot.incarnation)).collect();
        let mut kills = self.kill_schedule.kills_of(number);
        if let Some(death) = self.slots[rank].recovering_from {
            let clock = &mut self.deaths[death].1;
            match self.options.processes {
                Processes::Started => clock.started = Some(now),
                Processes::Managed { .. } => clock.joined = Some(now),
            }
            kills.in_recovery = self.kill_schedule.handle_recovery(number, now);
        }
        let welcome = Welcome {
            incarnation: self.slots[rank].incarnation,
            settings: self.options.settings.clone(),
            program: self.options.program.clone(),
            checkpoints: self.job.checkpoints().to_owned(),
            begun_with: self.generations.begun_with(),
            peers,
            kills,
        };
        // An error means a dead process: its exit is handled next.
        let mut sent = control.send(&ToRank::Welcome(Box::new(welcome)));
        let slot = &mut self.slots[rank];
        for body in std::mem::take(&mut slot.queued_orders) {
            sent = sent.and_then(|()| control.send(&ToRank::Order { body }));
        }
        slot.last_report = Some((now, LastReport::Hello));
        slot.welcomed = true;
        slot.control = sent.is_ok().then_some(control);
        self.note_joined();
        Ok(())
    }

    /// Reads and handles all available messages from a rank.
    pub(in crate::local) fn read_messages(&mut self, rank: usize) -> Result<(), LaunchError> {
        loop {
            let Some(control) = &mut self.slots[rank].control else { return Ok(()) };
            match control.receive_or_flush::<ToLauncher>() {
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
            ToLauncher::InCall { call, iteration, event } => {
                slot.last_report = Some((now, LastReport::InCall(call)));
                self.kill_schedule.handle_call(number, (iteration, call, event), now);
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
            ToLauncher::Exits { save, tally } => self.handle_exits(rank, save, tally),
            ToLauncher::Done { outcome, tally } => {
                slot.tally = tally;
                slot.outcome = Some(outcome);
                self.observer.handle_progress(Progress::Done { rank: number });
            }
            ToLauncher::Repair { waits } => slot.repairing = waits.then_some(now),
            ToLauncher::NoSpare => self.restart_job()?,
            ToLauncher::Failed { error } if self.restart.is_none() => slot.failure = Some(error),
            ToLauncher::Failed { .. } => {}
        }
        Ok(())
    }
}
