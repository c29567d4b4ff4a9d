//! A rank's program while it runs: the state that a checkpoint of the application holds.

use counterfoil::Ssn;

use super::program::{Program, Step};
use crate::random::mix;

/// What a message carries. Both halves tell its receiver apart from every other message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Payload {
    /// Follows from the sender, its place in its program, and the *set* of what it had taken until then: the same in
    /// every right execution.
    pub(super) content: u64,
    /// In an ordered program, also follows from the order in which it was taken, and so betrays an execution that
    /// doesn't repeat itself; otherwise 0.
    pub(super) history: u64,
}

/// What the application would do next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Need<'a> {
    Send {
        to: u32,
        tag: i32,
    },
    Receive {
        source: u32,
        tag: i32,
    },
    /// One of these, by source and tag.
    Any(&'a [(u32, i32)]),
    Checkpoint,
    Nothing,
}

/// The application's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Application {
    /// The step that it is at.
    at: usize,
    /// What the present gather has not taken yet.
    wanted: Vec<(u32, i32)>,
    /// A sum over all that was taken: commutative, and a duplicate or a loss changes it.
    taken: u64,
    /// Depends on the order too; 0 unless the program is ordered.
    history: u64,
    /// Sends and messages taken: how far it has come.
    pub(super) progress: u64,
}

impl Application {
    pub(super) fn new(program: &Program, rank: u32) -> Application {
        let mut fresh = Application::default();
        fresh.enter(program, rank);
        fresh
    }

    pub(super) fn need<'a>(&'a self, program: &Program, rank: u32) -> Need<'a> {
        match program.steps[rank as usize].get(self.at) {
            None => Need::Nothing,
            Some(&Step::Send { to, tag }) => Need::Send { to, tag },
            Some(&Step::Receive { source, tag }) => Need::Receive { source, tag },
            Some(Step::Gather(_)) => Need::Any(&self.wanted),
            Some(Step::Checkpoint) => Need::Checkpoint,
        }
    }

    /// What the next message carries.
    pub(super) fn payload(&self, rank: u32) -> Payload {
        let place = mix((u64::from(rank) + 1) << 32 | self.at as u64);
        let history = if self.history == 0 { 0 } else { mix(self.history ^ place) };
        Payload { content: mix(place ^ self.taken), history }
    }

    /// A message was sent, or a checkpoint taken: on to the next step.
    pub(super) fn pass(&mut self, program: &Program, rank: u32) {
        self.at += 1;
        self.progress += 1;
        self.enter(program, rank);
    }

    /// A message was taken.
    pub(super) fn take(&mut self, program: &Program, rank: u32, message: Taken, ordered: bool) {
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

    fn enter(&mut self, program: &Program, rank: u32) {
        self.wanted.clear();
        if let Some(Step::Gather(wanted)) = program.steps[rank as usize].get(self.at) {
            self.wanted.extend_from_slice(wanted);
        }
    }
}

/// A message as the application takes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) source: u32,
    pub(super) tag: i32,
    pub(super) ssn: Ssn,
    pub(super) payload: Payload,
}
