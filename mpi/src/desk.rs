//! What a launcher does for a job while it runs, at rank 0: collects what the ranks came to, says when all are done, and is the
//! recovery process of a rule that has one.

use std::collections::VecDeque;

use counterfoil::Rank;
use counterfoil_protocols::send_deterministic::{Floor, RecoveryError, RecoveryProcess};
use counterfoil_runtime::local::clusters;
use counterfoil_runtime::{RankSettings, Tally};
use serde::{Deserialize, Serialize};

/// What a rank says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToDesk {
    /// It has taken so many checkpoints.
    Checkpoints { taken: u64 },
    /// A control message to the protocol's coordinator.
    Coordinator { body: Vec<u8> },
    /// Its program has ended well.
    Done { outcome: Vec<u8>, tally: Tally },
}

/// What is said to a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum FromDesk {
    /// A control message of the protocol's coordinator.
    Order { body: Vec<u8> },
    /// Everybody is done.
    Finish,
}

/// Why a message can't be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeskError {
    #[error("a message that cannot be read or written: {0}")]
    Malformed(#[from] postcard::Error),
    #[error("rank {rank} was done already")]
    DoneTwice { rank: u32 },
    #[error("rank {rank} is not one of the job's")]
    NoSuchRank { rank: u32 },
    #[error("rank {rank} said to the recovery process what no rank says: {source}")]
    Recovery { rank: u32, source: RecoveryError },
}

impl ToDesk {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, DeskError> {
        Ok(postcard::to_stdvec(self)?)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<ToDesk, DeskError> {
        Ok(postcard::from_bytes(bytes)?)
    }
}

impl FromDesk {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, DeskError> {
        Ok(postcard::to_stdvec(self)?)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<FromDesk, DeskError> {
        Ok(postcard::from_bytes(bytes)?)
    }
}

/// What a job came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobResult {
    /// What each rank's program gave.
    pub outcomes: Vec<Vec<u8>>,
    /// What all ranks counted.
    pub tally: Tally,
}

/// The launcher's part, on rank 0.
#[derive(Debug)]
pub(crate) struct Desk {
    outcomes: Vec<Option<Vec<u8>>>,
    tally: Tally,
    /// For each rank.
    checkpoints: Vec<u64>,
    recovery: Option<RecoveryProcess>,
    collected_at: u64,
    finish: VecDeque<u32>,
}

impl Desk {
    pub(crate) fn new(settings: &RankSettings) -> Desk {
        let ranks = settings.ranks;
        Desk {
            outcomes: vec![None; ranks as usize],
            tally: Tally::default(),
            checkpoints: vec![0; ranks as usize],
            recovery: clusters(settings).map(|clusters| RecoveryProcess::new(ranks, Some(clusters))),
            collected_at: 0,
            finish: VecDeque::new(),
        }
    }

    pub(crate) fn hear(&mut self, rank: u32, message: ToDesk) -> Result<(), DeskError> {
        let index = rank as usize;
        if index >= self.outcomes.len() {
            return Err(DeskError::NoSuchRank { rank });
        }
        match message {
            ToDesk::Checkpoints { taken } => {
                self.checkpoints[index] = taken;
                self.consider_collection();
            }
            ToDesk::Coordinator { body } => {
                if let Some(recovery) = &mut self.recovery {
                    recovery
                        .handle_control(Rank(rank), &body)
                        .map_err(|source| DeskError::Recovery { rank, source })?;
                }
            }
            ToDesk::Done { outcome, tally } => {
                if self.outcomes[index].replace(outcome).is_some() {
                    return Err(DeskError::DoneTwice { rank });
                }
                self.tally += tally;
                if self.outcomes.iter().all(Option::is_some) {
                    self.finish.extend(0..self.outcomes.len() as u32);
                }
            }
        }
        Ok(())
    }

    /// More checkpoints than at the last collection: looks for what may be collected.
    fn consider_collection(&mut self) {
        let taken = self.checkpoints.iter().sum();
        let Some(recovery) = &mut self.recovery else { return };
        if taken > self.collected_at && !recovery.is_collecting() && recovery.begin_collection(Floor::ByLine) {
            self.collected_at = taken;
        }
    }

    /// The next thing to say, and to whom.
    pub(crate) fn poll_order(&mut self) -> Option<(u32, FromDesk)> {
        if let Some((rank, body)) = self.recovery.as_mut().and_then(RecoveryProcess::poll_message) {
            return Some((rank.0, FromDesk::Order { body }));
        }
        Some((self.finish.pop_front()?, FromDesk::Finish))
    }

    pub(crate) fn into_result(self) -> JobResult {
        JobResult { outcomes: self.outcomes.into_iter().flatten().collect(), tally: self.tally }
    }
}

#[cfg(test)]
mod tests {
    use counterfoil_runtime::Rule;

    use super::*;

    fn done(rank: u32) -> ToDesk {
        ToDesk::Done { outcome: vec![rank as u8], tally: Tally::default() }
    }

    #[test]
    fn everybody_ends_when_the_last_is_done_and_not_before() {
        let mut desk = Desk::new(&RankSettings::new(3));
        for rank in [2, 0] {
            desk.hear(rank, done(rank)).unwrap();
            assert_eq!(desk.poll_order(), None);
        }
        assert!(matches!(desk.hear(0, done(0)), Err(DeskError::DoneTwice { rank: 0 })));
        assert!(matches!(desk.hear(3, done(3)), Err(DeskError::NoSuchRank { rank: 3 })));
        let mut desk = Desk::new(&RankSettings::new(3));
        (0..3).for_each(|rank| desk.hear(rank, done(rank)).unwrap());
        let told: Vec<_> = std::iter::from_fn(|| desk.poll_order()).collect();
        assert_eq!(told, [(0, FromDesk::Finish), (1, FromDesk::Finish), (2, FromDesk::Finish)]);
        assert_eq!(desk.into_result().outcomes, [[0], [1], [2]]);
    }

    #[test]
    fn a_checkpoint_begins_a_collection_under_the_rule_that_has_a_recovery_process() {
        let rule = Rule::SendDeterministic { clusters: 2 };
        let mut desk = Desk::new(&RankSettings { rule, ..RankSettings::new(2) });
        desk.hear(1, ToDesk::Checkpoints { taken: 1 }).unwrap();
        assert!(matches!(desk.poll_order(), Some((_, FromDesk::Order { .. }))));
        let mut desk = Desk::new(&RankSettings::new(2));
        desk.hear(1, ToDesk::Checkpoints { taken: 1 }).unwrap();
        assert_eq!(desk.poll_order(), None);
    }

    #[test]
    fn what_is_said_is_read_as_it_was_written() {
        let said = ToDesk::Coordinator { body: vec![1, 2, 3] };
        assert_eq!(ToDesk::decode(&said.encode().unwrap()).unwrap(), said);
        let order = FromDesk::Order { body: vec![4] };
        assert_eq!(FromDesk::decode(&order.encode().unwrap()).unwrap(), order);
        assert!(ToDesk::decode(&[9]).is_err() && FromDesk::decode(&[]).is_err());
    }
}
