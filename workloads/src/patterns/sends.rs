//! Message builder for one rank.

use super::Message;

/// One rank's messages so far, and its current step.
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

    /// Adds a message in the current step.
    ///
    /// Omits the rank's messages to itself, which never reach a channel.
    pub(super) fn send(&mut self, destination: u32, bytes: u64) {
        if destination != self.rank {
            self.messages.push(Message { step: self.step, source: self.rank, destination, bytes });
        }
    }

    /// Begins the next step, with messages dependent on the current one.
    pub(super) fn next_step(&mut self) {
        self.skip(1);
    }

    /// Advances by `steps` steps: the current one and those in which this rank doesn't send.
    pub(super) fn skip(&mut self, steps: u32) {
        self.step += steps;
    }

    pub(super) fn finish(self) -> Vec<Message> {
        self.messages
    }
}
