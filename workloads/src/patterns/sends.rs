//! One rank's messages, while they are written down step by step.

use super::Message;

/// The messages of one rank so far, and the step that it is in.
#[derive(Debug)]
pub(super) struct Sends {
    rank: u32,
    step: u32,
    messages: Vec<Message>,
}

impl Sends {
    pub(super) fn new(rank: u32) -> Sends {
        Sends { rank, step: 0, messages: Vec::new() }
    }

    /// A message of the current step. What a rank sends to itself never reaches a channel, so it is left out.
    pub(super) fn send(&mut self, destination: u32, bytes: u64) {
        if destination != self.rank {
            self.messages.push(Message { step: self.step, source: self.rank, destination, bytes });
        }
    }

    /// The step is over: what follows may depend on what was sent in it.
    pub(super) fn next_step(&mut self) {
        self.skip(1);
    }

    /// `steps` steps are over, the current one and those that this rank has no part in.
    pub(super) fn skip(&mut self, steps: u32) {
        self.step += steps;
    }

    pub(super) fn finish(self) -> Vec<Message> {
        self.messages
    }
}
