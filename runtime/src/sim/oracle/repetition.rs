//! What the dead processes of a rank had done after the checkpoint that their successor goes on from: it has to come again.

use std::collections::VecDeque;

use counterfoil::Ssn;

use super::timeline::Operation;
use crate::sim::application::Payload;
use crate::sim::protocol::Repetition;
use crate::sim::violation::Wrong;

/// What the living process of a rank has yet to repeat.
#[derive(Debug, Default)]
pub(super) struct Predecessor {
    /// In order: to whom, and what.
    sent: VecDeque<(u32, Ssn, Payload)>,
    /// In order: from whom.
    accepted: VecDeque<(u32, Ssn)>,
}

impl Predecessor {
    /// A process has died; `undone` is what it did after the checkpoint that its successor goes on from. What it had not repeated
    /// itself comes after that.
    pub(super) fn die(&mut self, repetition: Repetition, undone: Vec<Operation>) {
        for operation in undone.into_iter().rev() {
            match operation {
                Operation::Sent { to, ssn, payload, .. } if repetition != Repetition::Free => {
                    self.sent.push_front((to, ssn, payload));
                }
                Operation::Accepted { from, ssn, .. } if repetition == Repetition::SendsAndReceives => {
                    self.accepted.push_front((from, ssn));
                }
                Operation::Sent { .. } | Operation::Accepted { .. } | Operation::Taken { .. } => {}
            }
        }
    }

    /// A message is sent.
    pub(super) fn check_sent(&mut self, (rank, to, ssn): (u32, u32, Ssn), payload: Payload) -> Result<(), Wrong> {
        match self.sent.pop_front() {
            Some(before) if before != (to, ssn, payload) => Err(Wrong::Diverged { rank, to, number: ssn.0 }),
            _ => Ok(()),
        }
    }

    /// A message is received.
    pub(super) fn check_accepted(&mut self, (rank, from, ssn): (u32, u32, Ssn)) -> Result<(), Wrong> {
        match self.accepted.pop_front() {
            Some(before) if before != (from, ssn) => Err(Wrong::OtherOrder { rank, from, number: ssn.0 }),
            _ => Ok(()),
        }
    }
}
