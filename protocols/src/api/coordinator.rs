//! The process apart from the ranks.

use std::fmt;

use auto_impl::auto_impl;
use counterfoil_ack_piggyback::{Origin, WireHeader};
use counterfoil_log_core::{Epoch, Incarnation, Phase, Rank};
use thiserror::Error;

use super::{Effect, Party};

/// State machine of the process apart from the ranks that some rules need: the recovery process of Guermouche 2011
/// (Figure 4), the initiator of C3 (section 3.1).
///
/// A driver reports the ranks' messages to it and sends its own. It may be lost, and is replaced by one that knows
/// nothing of it.
///
/// - Messages from one rank come in order: none of a process comes after one of its replacement.
/// - Messages to one rank come in order. Those of a lost coordinator may come late, also after those of its
///   replacement.
#[auto_impl(Box)]
pub trait Coordinator: fmt::Debug {
    /// Handles a control message of a rank to [`Party::Coordinator`](super::Party::Coordinator).
    ///
    /// # Errors
    /// [`CoordinatorError`]; don't trust the rank any further.
    fn handle_control(&mut self, from: Rank, body: &[u8]) -> Result<(), CoordinatorError>;

    /// Returns the next control message to send, and its destination; `None` when there is none. Call it after every
    /// other call. The rank gets it with a [`command_header`].
    fn poll_message(&mut self) -> Option<(Rank, Vec<u8>)>;

    /// Begins a collection of what no recovery needs any more, unless a recovery is under way; returns `true` if it
    /// did. An unfinished earlier collection is abandoned. Rules that collect otherwise never begin one.
    fn begin_collection(&mut self, floor: Floor) -> bool {
        let _ = floor;
        false
    }

    /// Returns `true` if ranks take checkpoints for a collection only: then one has to be begun whenever none is under
    /// way.
    fn makes_checkpoints(&self) -> bool {
        false
    }

    /// Reports that a rank's process has ended, and not because it was to exit. By default ignored: the other ranks, or
    /// the rank's replacement, say what there is to do.
    fn handle_rank_lost(&mut self, rank: Rank) {
        let _ = rank;
    }

    /// Reports that a rank that exits has saved its state. For rules that
    /// [start the job again](super::Properties::restarts_job).
    fn handle_saved(&mut self, rank: Rank) {
        let _ = rank;
    }

    /// Returns the generation with whose start the saved states are loaded that a failure may still need; `None` if it
    /// needs none of those that are there. Others may be removed.
    fn needed_saves(&self) -> Option<u32> {
        None
    }

    /// Begins the next generation, after all processes of the last have ended. Returns what it begins with; `None`
    /// under rules that don't start the job again.
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

    /// Returns the last recovery line and its number: for each rank the epoch that it rolls back to, or `None` if it
    /// stays. For simulators and reports.
    fn line(&self) -> Option<(u64, &[Option<u32>])> {
        None
    }

    /// Returns what a coordinator waits for that the ranks may never do; `None` if it waits for nothing. For simulators
    /// and reports.
    fn waits_for(&self) -> Option<String> {
        None
    }
}

/// What a generation of a job begins with, that is, a run after the job was started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restart {
    /// Its number: that of restarts.
    pub generation: u32,
    /// Generation for whose start the states were saved that are loaded now; `None` if there are none, and the program
    /// begins anew. It is an earlier one after a failure in the midst of a recovery.
    pub loads: Option<u32>,
    /// Ranks without a state, ascending.
    pub lost: Vec<Rank>,
}

/// Limit of the collection of checkpoints and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// Each rank's epoch in the recovery line of a failure of all ranks: collects the most possible.
    ByLine,
    /// Smallest epoch in the job (Guermouche 2011, section III.A.4): one number for all.
    BySmallestEpoch,
}

/// Reason for refusing a control message of a rank. Nothing is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CoordinatorError {
    /// No such rank in this job.
    #[error("{rank} is not in a job of {ranks} ranks")]
    UnknownRank {
        /// Rank that was named.
        rank: Rank,
        /// Number of ranks in the job.
        ranks: u32,
    },
    /// Bytes that are not a message to the coordinator.
    #[error("a report of {len} bytes from {from} that can't be read")]
    Malformed {
        /// Sender of the message.
        from: Rank,
        /// Length of the message.
        len: usize,
    },
    /// Phase reported free of orphans that had none.
    #[error("{from} reports that phase {phase} has no orphans left, but it had none there")]
    NotOpen {
        /// Sender of the message.
        from: Rank,
        /// Phase that was named.
        phase: u32,
    },
}

/// Returns the header of a coordinator's message to a rank, for
/// [`Protocol::handle_control`](super::Protocol::handle_control).
pub fn command_header(rank: Rank, body: &[u8]) -> WireHeader {
    let origin = Origin { incarnation: Incarnation::default(), epoch: Epoch::FIRST, phase: Phase::default() };
    WireHeader::control(rank, rank, origin, COMMAND, body.len() as u64, None)
}

/// Returns the effect that sends a rank's message to the coordinator.
pub fn report_effect(rank: Rank, origin: Origin, body: Vec<u8>) -> Effect {
    let header = WireHeader::control(rank, rank, origin, COMMAND, body.len() as u64, None);
    Effect::Transmit { to: Party::Coordinator, header, body }
}

/// Tag of a control header between a rank and the coordinator.
pub const COMMAND: i32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// Coordinator of a rule without recoveries and collections.
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

    /// Coordinator with a recovery and a collection under way, which refuses every message.
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
