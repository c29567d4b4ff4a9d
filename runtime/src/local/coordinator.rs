//! The process apart from the ranks, if the rule has one: it runs in the launcher, to which every rank is connected.

use std::time::Instant;

use counterfoil::Rank;
use counterfoil_protocols::api::{self, Floor, Rule};

use super::control::ToRank;
use super::launcher::Launcher;
use super::report::LaunchError;
use crate::interval::Interval;
use crate::settings::RankSettings;
use crate::tally::Tally;

/// A job's coordinator, and the time of its last collection.
#[derive(Debug)]
pub(super) struct Coordinator {
    pub(super) process: Box<dyn api::Coordinator>,
    /// Number of earlier coordinators.
    pub(super) replaced: u32,
    /// The ranks' total checkpoints when the last collection began.
    collected_at: u64,
    /// Time of the last collection, if ranks take checkpoints for one only.
    interval: Interval,
}

impl Coordinator {
    /// Makes a job's coordinator; `None` if its rule needs none.
    pub(super) fn new(rule: &Rule, settings: &RankSettings) -> Option<Coordinator> {
        let process = rule.coordinator(settings.ranks, 0)?;
        Some(Coordinator {
            process,
            replaced: 0,
            collected_at: 0,
            interval: Interval::new(settings.mtbf, Instant::now()),
        })
    }

    /// Begins a collection if the ranks have taken new checkpoints, or take them only for a collection that is due now.
    ///
    /// `tally`: the sum of their counters.
    fn note_checkpoints(&mut self, tally: &Tally) {
        let now = Instant::now();
        // The total shrinks when a process is replaced: its successor counts from 0.
        self.collected_at = self.collected_at.min(tally.checkpoints);
        let is_due = match self.process.makes_checkpoints() {
            true => self.interval.is_due(now),
            false => tally.checkpoints > self.collected_at,
        };
        if is_due && !self.process.is_collecting() && self.process.begin_collection(Floor::ByLine) {
            self.collected_at = tally.checkpoints;
            self.interval.note_checkpoint(now, tally);
        }
    }
}

impl Launcher<'_> {
    /// Handles a message from a rank to the coordinator.
    pub(super) fn handle_coordinator_message(&mut self, rank: usize, body: &[u8]) -> Result<(), LaunchError> {
        let Some(coordinator) = &mut self.coordinator else { return Ok(()) };
        let handled = coordinator.process.handle_control(Rank(rank as u32), body);
        handled.map_err(|source| LaunchError::Coordinator { rank: rank as u32, source })?;
        self.send_orders();
        self.consider_saves()
    }

    /// Loses the coordinator and its orders to ranks yet to join, if planned in this iteration of rank 0, and makes
    /// another one without its state.
    pub(super) fn lose_coordinator(&mut self, iteration: u64) {
        let ranks = self.options.settings.ranks;
        let Some(coordinator) = &mut self.coordinator else { return };
        let Some(place) = self.coordinator_losses.iter().position(|&planned| planned == iteration) else { return };
        if let Some(process) = self.rule.coordinator(ranks, coordinator.replaced + 1) {
            self.coordinator_losses.remove(place);
            let replaced = coordinator.replaced + 1;
            (coordinator.process, coordinator.replaced, coordinator.collected_at) = (process, replaced, 0);
            self.slots.iter_mut().for_each(|slot| slot.queued_orders.clear());
            self.send_orders();
        }
    }

    /// Begins a collection if the ranks have taken new checkpoints.
    pub(super) fn consider_collection(&mut self) {
        let Some(coordinator) = &mut self.coordinator else { return };
        let sum = |count: fn(&Tally) -> u64| self.slots.iter().map(|slot| count(&slot.tally)).sum();
        let (checkpoints, checkpoint_us) = (sum(|tally| tally.checkpoints), sum(|tally| tally.checkpoint_us));
        coordinator.note_checkpoints(&Tally { checkpoints, checkpoint_us, ..Tally::default() });
        self.send_orders();
    }

    /// Sends the coordinator's messages, or keeps them until their ranks have joined.
    pub(super) fn send_orders(&mut self) {
        let Some(coordinator) = &mut self.coordinator else { return };
        while let Some((rank, body)) = coordinator.process.poll_message() {
            let slot = &mut self.slots[rank.index()];
            match &mut slot.control {
                Some(control) if slot.welcomed => {
                    // An error means a dead rank: its replacement begins another round.
                    let _ = control.send(&ToRank::Order { body });
                }
                // Sent after its hello.
                _ => slot.queued_orders.push(body),
            }
        }
    }
}
