//! The process apart from the ranks.

use std::fmt;

use auto_impl::auto_impl;
use counterfoil_ack_piggyback::{Origin, WireHeader};
use counterfoil_log_core::{Epoch, Incarnation, Phase, Rank};
use thiserror::Error;

use super::{Effect, Party};

/// State machine for the separate process needed by some rules: the recovery process in Guermouche 2011 (Figure 4), the
/// initiator in C3 (section 3.1).
///
/// A driver reports the ranks' messages to it and sends its own. It may be lost, and is replaced by one without
/// knowledge of it.
///
/// - Messages from one rank come in order: none from a process comes after one from its replacement.
/// - Messages to one rank come in order. Those from a lost coordinator may come late, also after those from its
///   replacement.
#[auto_impl(Box)]
pub trait Coordinator: fmt::Debug {
    /// Handles a control message from a rank to [`Party::Coordinator`](super::Party::Coordinator).
    ///
    /// # Errors
    /// [`CoordinatorError`]; don't trust the rank any further.
    fn handle_control(&mut self, from: Rank, body: &[u8]) -> Result<(), CoordinatorError>;

    /// Returns the next control message to send, and its destination; `None` when there is none.
    ///
    /// Call it after every other call. The rank gets it with a [`command_header`].
    fn poll_message(&mut self) -> Option<(Rank, Vec<u8>)>;

    /// Begins a collection of checkpoints and records no longer needed by any recovery, unless a recovery is under way;
    /// returns `true` if it did.
    ///
    /// An unfinished earlier collection is abandoned. Rules that collect otherwise never begin one.
    fn begin_collection(&mut self, floor: Floor) -> bool {
        let _ = floor;
        false
    }

    /// Returns `true` if ranks take checkpoints for a collection only: then one has to be begun whenever none is under
    /// way.
    fn makes_checkpoints(&self) -> bool {
        false
    }

    /// Reports an unexpected end of a rank's process.
    ///
    /// By default ignored: the other ranks, or the rank's replacement, cause the reaction.
    fn handle_rank_lost(&mut self, rank: Rank) {
        let _ = rank;
    }

    /// Reports that an exiting rank has saved its state.
    ///
    /// For rules that [start the job again](super::Properties::restarts_job).
    fn handle_saved(&mut self, rank: Rank) {
        let _ = rank;
    }

    /// Returns the generation whose start loads the saved states a failure may still need; `None` if it needs none of
    /// the existing ones.
    ///
    /// Others may be removed.
    fn needed_saves(&self) -> Option<u32> {
        None
    }

    /// Begins the next generation, after all processes in the last have ended.
    ///
    /// Returns its start; `None` under rules without job restarts.
    fn restart(&mut self) -> Option<Restart> {
        None
    }

    /// Returns `true` while a collection is under way.
    fn is_collecting(&self) -> bool {
        false
    }

    /// Returns `true` while a recovery is under way.
    fn is_recovering(&self) -> bool {
        false
    }

    /// Returns the last recovery line and its number: each rank's rollback epoch, or `None` if it stays.
    ///
    /// For simulators and reports.
    fn line(&self) -> Option<(u64, &[Option<u32>])> {
        None
    }

    /// Returns the coordinator's current wait, if the ranks may never end it; `None` if it waits for nothing.
    ///
    /// For simulators and reports.
    fn waits_for(&self) -> Option<String> {
        None
    }
}

/// Start of a generation, that is, of a run after a job restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restart {
    /// Its number: the restart count.
    pub generation: u32,
    /// Generation for whose start the states loaded now were saved; `None` if there are none, and the program begins
    /// anew. An earlier one after a failure in the midst of a recovery.
    pub loads: Option<u32>,
    /// Ranks without a state, ascending.
    pub lost: Vec<Rank>,
}

/// Limit for collecting checkpoints and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// Each rank's epoch in the recovery line after a failure of all ranks: collects the most possible.
    ByLine,
    /// Smallest epoch in the job (Guermouche 2011, section III.A.4): one number for all.
    BySmallestEpoch,
}

/// Reason for refusing a rank's control message.
///
/// Nothing is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CoordinatorError {
    /// No such rank in this job.
    #[error("{rank} is not in a job of {ranks} ranks")]
    UnknownRank {
        /// Named rank.
        rank: Rank,
        /// Job size in ranks.
        ranks: u32,
    },
    /// Bytes other than a message to the coordinator.
    #[error("a report of {len} bytes from {from} that can't be read")]
    Malformed {
        /// Message sender.
        from: Rank,
        /// Message length.
        len: usize,
    },
    /// Phase reported free of orphans, but never with any.
    #[error("{from} reports that phase {phase} has no orphans left, but it had none there")]
    NotOpen {
        /// Message sender.
        from: Rank,
        /// Named phase.
        phase: u32,
    },
}

/// Returns the header for a message from the coordinator to a rank, for
/// [`Protocol::handle_control`](super::Protocol::handle_control).
pub fn command_header(rank: Rank, body: &[u8]) -> WireHeader {
    let origin = Origin { incarnation: Incarnation::default(), epoch: Epoch::FIRST, phase: Phase::default() };
    WireHeader::control(rank, rank, origin, COMMAND, body.len() as u64, None)
}

/// Returns the effect that sends a message from a rank to the coordinator.
pub fn report_effect(rank: Rank, origin: Origin, body: Vec<u8>) -> Effect {
    let header = WireHeader::control(rank, rank, origin, COMMAND, body.len() as u64, None);
    Effect::Transmit { to: Party::Coordinator, header, body }
}

/// Control header tag between a rank and the coordinator.
pub const COMMAND: i32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// Coordinator for a rule without recoveries and collections.
    #[derive(Debug)]
    struct Idle;

    impl Coordinator for Idle {
        fn handle_control(&mut self, _from: Rank, _body: &[u8]) -> Result<(), CoordinatorError> {
            Ok(())
        }

        fn poll_message(&mut self) -> Option<(Rank, Vec<u8>)> {
            None
        }
    }

    /// Coordinator with a recovery and a collection under way, refusing every message.
    #[derive(Debug)]
    struct Busy;

    impl Coordinator for Busy {
        fn handle_control(&mut self, from: Rank, body: &[u8]) -> Result<(), CoordinatorError> {
            Err(CoordinatorError::Malformed { from, len: body.len() })
        }

        fn poll_message(&mut self) -> Option<(Rank, Vec<u8>)> {
            Some((Rank(2), vec![3, 4]))
        }

        fn begin_collection(&mut self, floor: Floor) -> bool {
            floor == Floor::ByLine
        }

        fn makes_checkpoints(&self) -> bool {
            true
        }

        fn is_collecting(&self) -> bool {
            true
        }

        fn is_recovering(&self) -> bool {
            true
        }

        fn line(&self) -> Option<(u64, &[Option<u32>])> {
            Some((5, &[Some(6), None]))
        }

        fn waits_for(&self) -> Option<String> {
            Some("a rank".to_owned())
        }
    }

    #[test]
    fn by_default_a_coordinator_neither_collects_nor_recovers() {
        assert!(!Idle.begin_collection(Floor::ByLine) && !Idle.makes_checkpoints());
        assert_eq!((Idle.is_collecting(), Idle.is_recovering(), Idle.line()), (false, false, None));
        assert_eq!(Idle.waits_for(), None);
    }

    #[test]
    fn a_boxed_coordinator_answers_as_the_one_in_the_box() {
        let mut idle = Box::new(Idle);
        assert!(!Coordinator::is_collecting(&idle) && !Coordinator::is_recovering(&idle));
        assert_eq!(Coordinator::poll_message(&mut idle), None);

        let mut busy: Box<dyn Coordinator> = Box::new(Busy);
        let refused = CoordinatorError::Malformed { from: Rank(1), len: 4 };
        assert_eq!(Coordinator::handle_control(&mut busy, Rank(1), &[0; 4]), Err(refused));
        assert_eq!(Coordinator::poll_message(&mut busy), Some((Rank(2), vec![3, 4])));
        assert!(Coordinator::begin_collection(&mut busy, Floor::ByLine));
        assert!(!Coordinator::begin_collection(&mut busy, Floor::BySmallestEpoch));
        assert!(
            Coordinator::is_collecting(&busy)
                && Coordinator::is_recovering(&busy)
                && Coordinator::makes_checkpoints(&busy)
        );
        assert_eq!(Coordinator::line(&busy), Some((5, &[Some(6), None][..])));
        assert_eq!(Coordinator::waits_for(&busy).as_deref(), Some("a rank"));
    }
}
