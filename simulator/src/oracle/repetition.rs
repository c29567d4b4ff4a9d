//! Undone operations of a rank's dead processes, to be repeated by the successor.
//!
//! These are the operations after the checkpoint from which the successor restarts.

use std::collections::VecDeque;

use counterfoil_log_core::Ssn;

use super::timeline::Operation;
use crate::application::Payload;
use crate::violation::ViolationKind;
use counterfoil_protocols::api::Repetition;

/// Operations still to be repeated by a rank's living process.
#[derive(Debug, Default)]
pub(super) struct Predecessor {
    /// Sends, in order: receiver, SSN, payload.
    sent: VecDeque<(u32, Ssn, Payload)>,
    /// Receipts, in order: sender, SSN.
    accepted: VecDeque<(u32, Ssn)>,
}

impl Predecessor {
    /// Handles a process's death.
    ///
    /// `undone` are its operations after the checkpoint from which its successor restarts. Operations not repeated by
    /// the process itself come after them.
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
