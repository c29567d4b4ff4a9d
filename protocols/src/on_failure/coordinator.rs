//! The coordinator: it spreads the failure notice, knows which states are saved, and commits a recovery.

use std::collections::{BTreeSet, VecDeque};

use counterfoil_log_core::Rank;

use super::States;
use super::message::Message;
use crate::api::{self, CoordinatorError, Restart};

/// Actual or possible initial states of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Saved {
    generation: u32,
    ranks: BTreeSet<Rank>,
}

/// Coordinator state machine.
///
/// It outlives the ranks: the job ends with it.
#[derive(Debug)]
pub struct Coordinator {
    ranks: u32,
    states: States,
    generation: u32,
    has_failed: bool,
    /// Ranks in this generation with rebuilt states.
    rebuilt: BTreeSet<Rank>,
    /// Initial states of this generation, until its recovery is committed; `None` if it began without states.
    begun_with: Option<Saved>,
    /// The states of all ranks in this generation are rebuilt, or made.
    is_committed: bool,
    /// Ranks in this generation with states loadable by the next one.
    saved: BTreeSet<Rank>,
    messages: VecDeque<(Rank, Message)>,
}

impl Coordinator {
    /// Creates the coordinator for a new job.
    pub fn new(ranks: u32, states: States) -> Coordinator {
        Coordinator {
            ranks,
            states,
            generation: 0,
            has_failed: false,
            rebuilt: BTreeSet::new(),
            begun_with: None,
            is_committed: false,
            saved: BTreeSet::new(),
            messages: VecDeque::new(),
        }
    }

    fn fail(&mut self) {
        if !std::mem::replace(&mut self.has_failed, true) {
            let failed = Message::Failed { generation: self.generation };
            self.messages.extend((0..self.ranks).map(|rank| (Rank(rank), failed)));
        }
    }
}

impl api::Coordinator for Coordinator {
    fn handle_control(&mut self, from: Rank, body: &[u8]) -> Result<(), CoordinatorError> {
        let ranks = self.ranks;
        if from.0 >= ranks {
            return Err(CoordinatorError::UnknownRank { rank: from, ranks });
        }
        let message = Message::decode(body).ok_or(CoordinatorError::Malformed { from, len: body.len() })?;
        match message {
            Message::Failed { generation } if generation == self.generation => self.fail(),
            // After a failure, more of the states saved now may be lost than of those with which the recovery began.
            Message::Rebuilt { generation } if generation == self.generation && !self.has_failed => {
                self.rebuilt.insert(from);
                if self.rebuilt.len() == ranks as usize {
                    (self.begun_with, self.is_committed) = (None, true);
                }
            }
            // From an earlier generation.
            Message::Failed { .. } | Message::Rebuilt { .. } => {}
        }
        Ok(())
    }

    fn poll_message(&mut self) -> Option<(Rank, Vec<u8>)> {
        self.messages.pop_front().map(|(rank, message)| (rank, message.encode()))
    }

    fn is_recovering(&self) -> bool {
        self.has_failed || self.begun_with.is_some()
    }

    fn handle_rank_lost(&mut self, _rank: Rank) {
        self.fail();
    }

    fn handle_saved(&mut self, rank: Rank) {
        self.saved.insert(rank);
    }

    fn needed_saves(&self) -> Option<u32> {
        self.begun_with.as_ref().map(|saved| saved.generation)
    }

    fn restart(&mut self) -> Option<Restart> {
        self.generation += 1;
        let saved = Saved { generation: self.generation, ranks: std::mem::take(&mut self.saved) };
        match self.states {
            // As long as a recovery isn't committed, what it began with is complete, and what was saved since isn't.
            States::Saved => {
                if std::mem::take(&mut self.is_committed) {
                    self.begun_with = Some(saved).filter(|saved| !saved.ranks.is_empty());
                }
            }
            // A recovery changes what it has begun with, and once all ranks have had a state, what is there counts.
            States::InMemory => {
                let is_committed = self.is_committed;
                self.begun_with = Some(saved).filter(|saved| is_committed && !saved.ranks.is_empty());
                self.is_committed = self.begun_with.is_some();
            }
        }
        self.has_failed = false;
        self.rebuilt.clear();
        self.messages.clear();
        let loads = self.begun_with.as_ref().map(|saved| saved.generation);
        let is_lost = |rank: &Rank| self.begun_with.as_ref().is_none_or(|saved| !saved.ranks.contains(rank));
        let lost = (0..self.ranks).map(Rank).filter(is_lost).collect();
        Some(Restart { generation: self.generation, loads, lost })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Coordinator as _;

    fn told(coordinator: &mut Coordinator) -> Vec<(u32, Message)> {
        let next = || coordinator.poll_message();
        std::iter::from_fn(next).map(|(rank, body)| (rank.0, Message::decode(&body).unwrap())).collect()
    }

    fn rebuild(coordinator: &mut Coordinator, ranks: std::ops::Range<u32>) {
        let generation = coordinator.generation;
        for rank in ranks {
            coordinator.handle_control(Rank(rank), &Message::Rebuilt { generation }.encode()).unwrap();
        }
    }

    #[test]
    fn a_failure_is_told_to_all_once() {
        let mut coordinator = Coordinator::new(3, States::Saved);
        coordinator.handle_rank_lost(Rank(1));
        coordinator.handle_rank_lost(Rank(2));
        coordinator.handle_control(Rank(0), &Message::Failed { generation: 0 }.encode()).unwrap();
        assert_eq!(told(&mut coordinator), [0, 1, 2].map(|rank| (rank, Message::Failed { generation: 0 })));
        assert!(coordinator.is_recovering());
        coordinator.restart();
        coordinator.handle_control(Rank(0), &Message::Failed { generation: 0 }.encode()).unwrap();
        assert_eq!(told(&mut coordinator), [], "of the generation before");
    }

    #[test]
    fn who_has_not_saved_is_lost() {
        let mut coordinator = Coordinator::new(3, States::Saved);
        rebuild(&mut coordinator, 0..3);
        coordinator.handle_rank_lost(Rank(1));
        [0, 2].iter().for_each(|rank| coordinator.handle_saved(Rank(*rank)));
        let restart = coordinator.restart().unwrap();
        assert_eq!(restart, Restart { generation: 1, loads: Some(1), lost: vec![Rank(1)] });
        // Nobody has saved anything, or one had no state yet: from the beginning.
        for rebuilt in [2, 1] {
            let mut coordinator = Coordinator::new(2, States::Saved);
            rebuild(&mut coordinator, 0..rebuilt);
            (rebuilt..2).for_each(|_| coordinator.handle_saved(Rank(0)));
            let restart = coordinator.restart().unwrap();
            assert_eq!(restart, Restart { generation: 1, loads: None, lost: vec![Rank(0), Rank(1)] });
        }
    }

    #[test]
    fn until_a_recovery_is_committed_what_it_began_with_is_loaded() {
        let mut coordinator = Coordinator::new(3, States::Saved);
        rebuild(&mut coordinator, 0..3);
        [0, 2].iter().for_each(|rank| coordinator.handle_saved(Rank(*rank)));
        coordinator.restart();
        rebuild(&mut coordinator, 0..2);
        assert_eq!(coordinator.needed_saves(), Some(1));
        // Rank 0 is lost; rank 1 was ready, and saves; rank 2 was not.
        coordinator.handle_rank_lost(Rank(0));
        coordinator.handle_saved(Rank(1));
        rebuild(&mut coordinator, 2..3);
        let again = coordinator.restart().unwrap();
        assert_eq!(again, Restart { generation: 2, loads: Some(1), lost: vec![Rank(1)] });
        rebuild(&mut coordinator, 0..3);
        assert_eq!(coordinator.needed_saves(), None);
        // From now on, what is saved next counts.
        [1, 2].iter().for_each(|rank| coordinator.handle_saved(Rank(*rank)));
        assert_eq!(coordinator.restart(), Some(Restart { generation: 3, loads: Some(3), lost: vec![Rank(0)] }));
    }

    #[test]
    fn states_in_memory_count_as_they_are_once_all_ranks_have_had_one() {
        let mut coordinator = Coordinator::new(3, States::InMemory);
        coordinator.handle_saved(Rank(0));
        let lost = (0..3).map(Rank).collect();
        assert_eq!(coordinator.restart(), Some(Restart { generation: 1, loads: None, lost }));
        rebuild(&mut coordinator, 0..3);
        [0, 2].iter().for_each(|rank| coordinator.handle_saved(Rank(*rank)));
        assert_eq!(coordinator.restart(), Some(Restart { generation: 2, loads: Some(2), lost: vec![Rank(1)] }));
        // In the midst of that recovery.
        rebuild(&mut coordinator, 0..1);
        [0, 1].iter().for_each(|rank| coordinator.handle_saved(Rank(*rank)));
        assert_eq!(coordinator.restart(), Some(Restart { generation: 3, loads: Some(3), lost: vec![Rank(2)] }));
        // All were changing theirs: as at the beginning.
        let lost = (0..3).map(Rank).collect();
        assert_eq!(coordinator.restart(), Some(Restart { generation: 4, loads: None, lost }));
        coordinator.handle_saved(Rank(1));
        assert_eq!(coordinator.restart().unwrap().loads, None);
    }

    #[test]
    fn other_messages_are_refused() {
        let mut coordinator = Coordinator::new(2, States::Saved);
        let refused = coordinator.handle_control(Rank(2), &Message::Failed { generation: 0 }.encode());
        assert_eq!(refused, Err(CoordinatorError::UnknownRank { rank: Rank(2), ranks: 2 }));
        for body in [&[][..], &[9]] {
            let refused = coordinator.handle_control(Rank(1), body);
            assert_eq!(refused, Err(CoordinatorError::Malformed { from: Rank(1), len: body.len() }));
        }
        assert!(told(&mut coordinator).is_empty() && !coordinator.is_recovering());
    }
}
