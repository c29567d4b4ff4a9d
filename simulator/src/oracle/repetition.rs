//! Operations that the dead processes of a rank had done after the checkpoint that their successor restarts from, and
//! that it has to repeat.

use std::collections::VecDeque;

use counterfoil_log_core::Ssn;

use super::timeline::Operation;
use crate::application::Payload;
use crate::violation::ViolationKind;
use counterfoil_protocols::api::Repetition;

/// Operations that the living process of a rank has yet to repeat.
#[derive(Debug, Default)]
pub(super) struct Predecessor {
    /// Sends, in order: receiver, SSN, payload.
    sent: VecDeque<(u32, Ssn, Payload)>,
    /// Receipts, in order: sender, SSN.
    accepted: VecDeque<(u32, Ssn)>,
}

impl Predecessor {
    /// Handles the death of a process; `undone` are its operations after the checkpoint that its successor restarts
    /// from. Operations that it had not repeated itself come after them.
    pub(super) fn die(&mut self, repetition: Repetition, undone: Vec<Operation>) {
        for operation in undone.into_iter().rev() {
            match operation {
                Operation::Sent { to, ssn, payload, .. } if repetition != Repetition::Nothing => {
                    self.sent.push_front((to, ssn, payload));
                }
                Operation::Accepted { from, ssn, .. } if repetition == Repetition::SendsAndReceives => {
                    self.accepted.push_front((from, ssn));
                }
                Operation::Sent { .. }
                | Operation::Accepted { .. }
                | Operation::Taken { .. }
                | Operation::Completed { .. } => {}
            }
        }
    }

    /// Checks a send.
    pub(super) fn check_sent(
        &mut self,
        (rank, to, ssn): (u32, u32, Ssn),
        payload: Payload,
    ) -> Result<(), ViolationKind> {
        match self.sent.pop_front() {
            Some(before) if before != (to, ssn, payload) => Err(ViolationKind::Diverged { rank, to, number: ssn.0 }),
            _ => Ok(()),
        }
    }

    /// Checks a receipt.
    pub(super) fn check_accepted(&mut self, (rank, from, ssn): (u32, u32, Ssn)) -> Result<(), ViolationKind> {
        match self.accepted.pop_front() {
            Some(before) if before != (from, ssn) => Err(ViolationKind::OtherOrder { rank, from, number: ssn.0 }),
            _ => Ok(()),
        }
    }
}
