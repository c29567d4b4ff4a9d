//! State of a rank's running program, as checkpointed.

use counterfoil_log_core::Ssn;

use super::program::{Program, Step};
use crate::random::mix;

/// Message payload.
///
/// Both halves distinguish it from every other message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Payload {
    /// Follows from the sender, its place in its program, and the *set* of messages it had taken: equal in every
    /// correct execution.
    pub(crate) content: u64,
    /// In an ordered program, also depends on the order of takes, so a diverging execution has another; otherwise 0.
    pub(crate) history: u64,
}

/// The application's next operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NextOp<'a> {
    Send {
        to: u32,
        tag: i32,
    },
    Receive {
        source: u32,
        tag: i32,
    },
    /// Take one of these, by source and tag.
    Any(&'a [(u32, i32)]),
    /// Make the collective call with this number.
    Call(u64),
    Checkpoint,
    Nothing,
}

/// Application memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Application {
    /// Index of the current step.
    at: usize,
    /// Messages not yet taken by the current gather.
    wanted: Vec<(u32, i32)>,
    /// Sum over all taken messages: commutative, and a duplicate or a loss changes it.
    taken: u64,
    /// Hash that depends on the order too; 0 unless the program is ordered.
    history: u64,
    /// Number of completed collective calls.
    calls: u64,
    /// Number of sends, taken messages and completed calls.
    pub(crate) progress: u64,
}

impl Application {
    pub(crate) fn new(program: &Program, rank: u32) -> Application {
        let mut fresh = Application::default();
        fresh.enter(program, rank);
        fresh
    }

    pub(crate) fn next_op<'a>(&'a self, program: &Program, rank: u32) -> NextOp<'a> {
        match program.steps[rank as usize].get(self.at) {
            None => NextOp::Nothing,
            Some(&Step::Send { to, tag }) => NextOp::Send { to, tag },
            Some(&Step::Receive { source, tag }) => NextOp::Receive { source, tag },
            Some(Step::Gather(_)) => NextOp::Any(&self.wanted),
            Some(Step::Call) => NextOp::Call(self.calls),
            Some(Step::Checkpoint) => NextOp::Checkpoint,
        }
    }

    /// Returns the payload of the next message, or the contribution to the next collective call.
    pub(crate) fn payload(&self, rank: u32) -> Payload {
        let place = mix((u64::from(rank) + 1) << 32 | self.at as u64);
        let history = if self.history == 0 { 0 } else { mix(self.history ^ place) };
        Payload { content: mix(place ^ self.taken), history }
    }

    /// Advances to the next step, after a send or a checkpoint.
    pub(crate) fn pass(&mut self, program: &Program, rank: u32) {
        self.at += 1;
        self.progress += 1;
        self.enter(program, rank);
    }

    /// Takes a message.
    pub(crate) fn take(&mut self, program: &Program, rank: u32, message: Taken, ordered: bool) {
        let Taken { source, tag, ssn, payload } = message;
        let stream = mix(u64::from(source) << 32 | u64::from(tag.unsigned_abs()));
        self.taken = self.taken.wrapping_add(mix(stream ^ payload.content));
        if ordered {
            let fact = mix(payload.history ^ payload.content ^ u64::from(source) << 48 ^ ssn.0);
            self.history = mix(self.history.rotate_left(9) ^ fact) | 1;
        }
        if let Some(position) = self.wanted.iter().position(|&wanted| wanted == (source, tag)) {
            self.wanted.remove(position);
        }
        self.progress += 1;
        if self.wanted.is_empty() {
            self.at += 1;
            self.enter(program, rank);
        }
    }

    /// Returns the number of completed collective calls.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    /// Takes a collective call's result.
    pub(crate) fn complete(&mut self, program: &Program, rank: u32, result: Payload, ordered: bool) {
        let place = mix(u64::MAX ^ self.calls);
        self.taken = self.taken.wrapping_add(mix(place ^ result.content));
        if ordered {
            self.history = mix(self.history.rotate_left(9) ^ result.history ^ result.content ^ place) | 1;
        }
        self.calls += 1;
        self.pass(program, rank);
    }

    fn enter(&mut self, program: &Program, rank: u32) {
        self.wanted.clear();
        if let Some(Step::Gather(wanted)) = program.steps[rank as usize].get(self.at) {
            self.wanted.extend_from_slice(wanted);
        }
    }
}

/// Message as taken by the application.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) source: u32,
    pub(crate) tag: i32,
    pub(crate) ssn: Ssn,
    pub(crate) payload: Payload,
}
