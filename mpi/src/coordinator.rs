//! Job coordinator on rank 0, in place of a launcher: collects the ranks' outcomes, ends the job when all are done, and runs the
//! recovery process of a rule that has one.

use std::collections::VecDeque;

use counterfoil::Rank;
use counterfoil_protocols::send_deterministic::{Floor, RecoveryError, RecoveryProcess};
use counterfoil_runtime::local::clusters;
use counterfoil_runtime::{RankSettings, Tally};
use serde::{Deserialize, Serialize};

/// Message from a rank to the coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToCoordinator {
    /// Number of checkpoints that the rank has taken.
    Checkpoints { taken: u64 },
    /// Control message to the protocol's recovery process.
    Control { body: Vec<u8> },
    /// The rank's program has ended without an error.
    Done { outcome: Vec<u8>, tally: Tally },
}

/// Message from the coordinator to a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum FromCoordinator {
    /// Control message of the protocol's recovery process.
    Order { body: Vec<u8> },
    /// All ranks are done.
    Finish,
}

/// Error of a coordinator message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CoordinatorError {
    #[error("a coordinator message cannot be encoded or decoded: {0}")]
    Malformed(#[from] postcard::Error),
    #[error("rank {rank} has reported its outcome twice")]
    DoneTwice { rank: u32 },
    #[error("there is no rank {rank} in the job")]
    NoSuchRank { rank: u32 },
    #[error("the recovery process cannot handle a message of rank {rank}: {source}")]
    Recovery { rank: u32, source: RecoveryError },
}

impl ToCoordinator {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, CoordinatorError> {
        Ok(postcard::to_stdvec(self)?)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<ToCoordinator, CoordinatorError> {
        Ok(postcard::from_bytes(bytes)?)
    }
}

impl FromCoordinator {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, CoordinatorError> {
        Ok(postcard::to_stdvec(self)?)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<FromCoordinator, CoordinatorError> {
        Ok(postcard::from_bytes(bytes)?)
    }
}

/// Outcome of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobResult {
    /// Outcome of each rank's program, in the order of the ranks.
    pub outcomes: Vec<Vec<u8>>,
    /// Sum of the ranks' tallies.
    pub tally: Tally,
}

/// State of the coordinator.
#[derive(Debug)]
pub(crate) struct Coordinator {
    outcomes: Vec<Option<Vec<u8>>>,
    tally: Tally,
    /// Number of checkpoints of each rank.
    checkpoints: Vec<u64>,
    recovery: Option<RecoveryProcess>,
    /// Sum of `checkpoints` when the last collection began.
    collected_at: u64,
    /// Ranks that have still to be told to finish.
    finish: VecDeque<u32>,
}

impl Coordinator {
    pub(crate) fn new(settings: &RankSettings) -> Coordinator {
        let ranks = settings.ranks;
        Coordinator {
            outcomes: vec![None; ranks as usize],
            tally: Tally::default(),
            checkpoints: vec![0; ranks as usize],
            recovery: clusters(settings).map(|clusters| RecoveryProcess::new(ranks, Some(clusters))),
            collected_at: 0,
            finish: VecDeque::new(),
        }
    }

    pub(crate) fn handle_message(&mut self, rank: u32, message: ToCoordinator) -> Result<(), CoordinatorError> {
        let index = rank as usize;
        if index >= self.outcomes.len() {
            return Err(CoordinatorError::NoSuchRank { rank });
        }
        match message {
            ToCoordinator::Checkpoints { taken } => {
                self.checkpoints[index] = taken;
                self.begin_collection_if_due();
            }
            ToCoordinator::Control { body } => {
                if let Some(recovery) = &mut self.recovery {
                    recovery
                        .handle_control(Rank(rank), &body)
                        .map_err(|source| CoordinatorError::Recovery { rank, source })?;
                }
            }
            ToCoordinator::Done { outcome, tally } => {
                if self.outcomes[index].replace(outcome).is_some() {
                    return Err(CoordinatorError::DoneTwice { rank });
                }
                self.tally += tally;
                if self.outcomes.iter().all(Option::is_some) {
                    self.finish.extend(0..self.outcomes.len() as u32);
                }
            }
        }
        Ok(())
    }

    /// Begins a collection if checkpoints were taken since the last one began.
    fn begin_collection_if_due(&mut self) {
        let taken = self.checkpoints.iter().sum();
        let Some(recovery) = &mut self.recovery else { return };
        if taken > self.collected_at && !recovery.is_collecting() && recovery.begin_collection(Floor::ByLine) {
            self.collected_at = taken;
        }
    }

    /// Returns the next message to send, and its destination.
    pub(crate) fn poll_message(&mut self) -> Option<(u32, FromCoordinator)> {
        if let Some((rank, body)) = self.recovery.as_mut().and_then(RecoveryProcess::poll_message) {
            return Some((rank.0, FromCoordinator::Order { body }));
        }
        Some((self.finish.pop_front()?, FromCoordinator::Finish))
    }

    pub(crate) fn into_result(self) -> JobResult {
        JobResult { outcomes: self.outcomes.into_iter().flatten().collect(), tally: self.tally }
    }
}

#[cfg(test)]
mod tests {
    use counterfoil_runtime::Rule;

    use super::*;

    fn done(rank: u32) -> ToCoordinator {
        ToCoordinator::Done { outcome: vec![rank as u8], tally: Tally::default() }
    }

    #[test]
    fn ranks_finish_when_the_last_is_done_and_not_before() {
        let mut coordinator = Coordinator::new(&RankSettings::new(3));
        for rank in [2, 0] {
            coordinator.handle_message(rank, done(rank)).unwrap();
            assert_eq!(coordinator.poll_message(), None);
        }
        assert!(matches!(coordinator.handle_message(0, done(0)), Err(CoordinatorError::DoneTwice { rank: 0 })));
        assert!(matches!(coordinator.handle_message(3, done(3)), Err(CoordinatorError::NoSuchRank { rank: 3 })));
        let mut coordinator = Coordinator::new(&RankSettings::new(3));
        (0..3).for_each(|rank| coordinator.handle_message(rank, done(rank)).unwrap());
        let sent: Vec<_> = std::iter::from_fn(|| coordinator.poll_message()).collect();
        assert_eq!(sent, [(0, FromCoordinator::Finish), (1, FromCoordinator::Finish), (2, FromCoordinator::Finish)]);
        assert_eq!(coordinator.into_result().outcomes, [[0], [1], [2]]);
    }

    #[test]
    fn a_checkpoint_begins_a_collection_if_the_rule_has_a_recovery_process() {
        let rule = Rule::SendDeterministic { clusters: 2 };
        let mut coordinator = Coordinator::new(&RankSettings { rule, ..RankSettings::new(2) });
        coordinator.handle_message(1, ToCoordinator::Checkpoints { taken: 1 }).unwrap();
        assert!(matches!(coordinator.poll_message(), Some((_, FromCoordinator::Order { .. }))));
        let mut coordinator = Coordinator::new(&RankSettings::new(2));
        coordinator.handle_message(1, ToCoordinator::Checkpoints { taken: 1 }).unwrap();
        assert_eq!(coordinator.poll_message(), None);
    }

    #[test]
    fn messages_survive_encoding() {
        let message = ToCoordinator::Control { body: vec![1, 2, 3] };
        assert_eq!(ToCoordinator::decode(&message.encode().unwrap()).unwrap(), message);
        let order = FromCoordinator::Order { body: vec![4] };
        assert_eq!(FromCoordinator::decode(&order.encode().unwrap()).unwrap(), order);
        assert!(ToCoordinator::decode(&[9]).is_err() && FromCoordinator::decode(&[]).is_err());
    }
}
