//! The process apart from the ranks that the send-deterministic rule needs: it runs in the launcher, to which every rank is
//! connected in any case.

use counterfoil::Rank;
use counterfoil_protocols::send_deterministic::{Clusters, Floor, RecoveryProcess};

use super::control::ToRank;
use super::launcher::Launcher;
use super::report::LaunchError;
use crate::settings::{RankSettings, Rule};

/// Epochs between clusters: so many checkpoints may one be ahead of the next.
const CLUSTER_GAP: u32 = 8;

/// The recovery process, and when it looks for what may be collected.
#[derive(Debug)]
pub(super) struct Coordinator {
    process: RecoveryProcess,
    /// Checkpoints that the ranks had taken when the last collection began.
    collected_at: u64,
}

impl Coordinator {
    /// Of a job with these settings; `None` where its rule needs none.
    pub(super) fn new(settings: &RankSettings) -> Option<Coordinator> {
        let clusters = clusters(settings)?;
        Some(Coordinator { process: RecoveryProcess::new(settings.ranks, Some(clusters)), collected_at: 0 })
    }

    /// The ranks have taken so many checkpoints: looks for what may be collected, if that is news.
    fn note_checkpoints(&mut self, checkpoints: u64) {
        // Of processes that went back some are counted no more.
        self.collected_at = self.collected_at.min(checkpoints);
        if checkpoints > self.collected_at
            && !self.process.is_collecting()
            && self.process.begin_collection(Floor::ByLine)
        {
            self.collected_at = checkpoints;
        }
    }
}

/// The clusters of a job whose rule has them: as many as are asked for, of neighbouring ranks and of equal size as far as
/// possible.
pub fn clusters(settings: &RankSettings) -> Option<Clusters> {
    let Rule::SendDeterministic { clusters } = settings.rule else { return None };
    // At most 1,024 clusters, 8 epochs apart: never refused.
    Clusters::contiguous(settings.ranks, clusters, CLUSTER_GAP).ok()
}

impl Launcher<'_> {
    /// A rank says something to the coordinator.
    pub(super) fn hear_report(&mut self, rank: usize, body: &[u8]) -> Result<(), LaunchError> {
        let Some(coordinator) = &mut self.coordinator else { return Ok(()) };
        let handled = coordinator.process.handle_control(Rank(rank as u32), body);
        handled.map_err(|source| LaunchError::Coordinator { rank: rank as u32, source })?;
        self.give_orders();
        Ok(())
    }

    /// A rank has said how many checkpoints it has taken.
    pub(super) fn consider_collection(&mut self) {
        let checkpoints = self.slots.iter().map(|slot| slot.tally.checkpoints).sum();
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.note_checkpoints(checkpoints);
            self.give_orders();
        }
    }

    fn give_orders(&mut self) {
        let Some(coordinator) = &mut self.coordinator else { return };
        while let Some((rank, body)) = coordinator.process.poll_message() {
            let slot = &mut self.slots[rank.index()];
            match &mut slot.control {
                Some(control) if slot.welcomed => {
                    // If it is dead, its replacement begins another round.
                    let _ = control.send(&ToRank::Order { body });
                }
                // It hears of it when it is there.
                _ => slot.orders.push(body),
            }
        }
    }
}
