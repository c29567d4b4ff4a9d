//! Supervision by the ranks themselves, in a job without a launcher: their notices about the job.
//!
//! A notice is a message with its kind, one byte, and a body.

use std::collections::VecDeque;
use std::io;

use counterfoil::Rank;
use counterfoil_protocols::api::{Coordinator, Floor};
use counterfoil_runtime::local::Welcome;
use counterfoil_runtime::transport::{Event, Report, TransportError};

use super::supervisor::Supervisor;

/// Rank running the rule's coordinator.
const COORDINATOR_RANK: u32 = 0;

/// The sender is done.
///
/// No body.
const DONE: u8 = 0;
/// To the rule's coordinator.
const REPORT: u8 = 1;
/// From the rule's coordinator.
const ORDER: u8 = 2;

/// All ranks, seen from one of them.
#[derive(Debug)]
pub(super) struct Ranks {
    rank: u32,
    /// For each rank: true if it is done.
    done: Vec<bool>,
    /// The rule's coordinator, on [`COORDINATOR_RANK`].
    coordinator: Option<Box<dyn Coordinator>>,
    /// Notices to send, with their receivers.
    notices: VecDeque<(u32, Vec<u8>)>,
}

impl Ranks {
    /// Returns the supervision of `rank`.
    ///
    /// `coordinator` is the rule's, and runs in rank 0's process.
    pub(super) fn new(rank: u32, ranks: u32, coordinator: Option<Box<dyn Coordinator>>) -> Ranks {
        let coordinator = coordinator.filter(|_| rank == COORDINATOR_RANK);
        Ranks { rank, done: vec![false; ranks as usize], coordinator, notices: VecDeque::new() }
    }

    fn notify(&mut self, to: u32, kind: u8, body: &[u8]) {
        self.notices.push_back((to, [&[kind], body].concat()));
    }

    /// Notes that this rank is done, and tells the others.
    fn announce_done(&mut self) {
        self.done[self.rank as usize] = true;
        let own = self.rank;
        (0..self.done.len() as u32).filter(|peer| *peer != own).for_each(|peer| self.notify(peer, DONE, &[]));
    }

    /// Passes a message to this process's coordinator.
    fn coordinate(&mut self, from: u32, body: &[u8], events: &mut VecDeque<Event>) -> Result<(), TransportError> {
        if let Some(coordinator) = &mut self.coordinator {
            let handled = coordinator.handle_control(Rank(from), body);
            handled.map_err(|error| TransportError::Io { action: "coordinate", source: io::Error::other(error) })?;
        }
        self.take_orders(events);
        Ok(())
    }

    /// Takes the messages from this process's coordinator.
    fn take_orders(&mut self, events: &mut VecDeque<Event>) {
        while let Some((Rank(to), body)) = self.coordinator.as_mut().and_then(|coordinator| coordinator.poll_message())
        {
            if to == self.rank {
                events.push_back(Event::Order { body });
            } else {
                self.notify(to, ORDER, &body);
            }
        }
    }
}

impl Supervisor for Ranks {
    fn join(&mut self, _: u32) -> Result<Option<Welcome>, TransportError> {
        Err(TransportError::Io { action: "roll a rank back", source: io::Error::other("the job has no launcher") })
    }

    fn poll(&mut self, events: &mut VecDeque<Event>) -> Result<(), TransportError> {
        // If ranks take checkpoints for a collection only, and none is under way.
        if let Some(coordinator) = &mut self.coordinator
            && coordinator.makes_checkpoints()
            && !coordinator.is_collecting()
        {
            coordinator.begin_collection(Floor::ByLine);
        }
        self.take_orders(events);
        Ok(())
    }

    fn handle_report(&mut self, report: Report, events: &mut VecDeque<Event>) -> Result<(), TransportError> {
        match report {
            Report::Done { .. } => self.announce_done(),
            Report::ToCoordinator { body } if self.rank == COORDINATOR_RANK => {
                self.coordinate(self.rank, &body, events)?;
            }
            Report::ToCoordinator { body } => self.notify(COORDINATOR_RANK, REPORT, &body),
            Report::Failed { error } => tracing::error!(rank = self.rank, %error, "the rank has failed"),
            _ => {}
        }
        Ok(())
    }

    fn report_repair(&mut self, _: bool) {}

    fn handle_replaced(&mut self, rank: u32) {
        self.done[rank as usize] = false;
        if self.done[self.rank as usize] {
            self.notify(rank, DONE, &[]);
        }
    }

    fn has_notices(&self) -> bool {
        true
    }

    fn handle_notice(&mut self, from: u32, notice: &[u8], events: &mut VecDeque<Event>) -> Result<(), TransportError> {
        match notice {
            [DONE] => self.done[from as usize] = true,
            [REPORT, body @ ..] => self.coordinate(from, body, events)?,
            [ORDER, body @ ..] => events.push_back(Event::Order { body: body.to_vec() }),
            _ => {
                return Err(TransportError::Io {
                    action: "read a peer's notice",
                    source: io::Error::other(format!("rank {from} sent {} bytes", notice.len())),
                });
            }
        }
        Ok(())
    }

    fn poll_notice(&mut self) -> Option<(u32, Vec<u8>)> {
        self.notices.pop_front()
    }

    fn are_all_done(&self) -> bool {
        self.done.iter().all(|done| *done)
    }

    fn is_done(&self, rank: u32) -> bool {
        self.done[rank as usize]
    }
}

#[cfg(test)]
mod tests {
    use counterfoil_runtime::Tally;

    use super::*;

    /// Carries one rank's notices to another.
    fn carry(from: &mut Ranks, to: &mut Ranks) {
        let mut events = VecDeque::new();
        while let Some((receiver, notice)) = from.poll_notice() {
            assert_eq!(receiver, to.rank);
            to.handle_notice(from.rank, &notice, &mut events).unwrap();
        }
        assert!(events.is_empty());
    }

    fn done() -> Report {
        Report::Done { outcome: Vec::new(), tally: Tally::default() }
    }

    #[test]
    fn a_rank_that_is_done_tells_a_replacement_again() {
        let (mut one, mut other) = (Ranks::new(0, 2, None), Ranks::new(1, 2, None));
        let events = &mut VecDeque::new();
        one.handle_report(done(), events).unwrap();
        carry(&mut one, &mut other);
        assert!(other.is_done(0) && !other.are_all_done());

        let mut replacement = Ranks::new(1, 2, None);
        one.handle_replaced(1);
        carry(&mut one, &mut replacement);
        replacement.handle_report(done(), events).unwrap();
        carry(&mut replacement, &mut one);
        assert!(one.are_all_done() && replacement.are_all_done());
        one.handle_replaced(1);
        assert!(!one.are_all_done() && one.is_done(0));
    }

    #[test]
    fn an_unknown_notice_is_an_error() {
        let refused = Ranks::new(0, 2, None).handle_notice(1, &[9, 9], &mut VecDeque::new());
        assert!(matches!(refused, Err(TransportError::Io { action: "read a peer's notice", .. })));
    }
}
