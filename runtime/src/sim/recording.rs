//! What a run did, kept for whoever wants to look at it: [`record`](super::record) makes it, a diagram is drawn from it.

use super::trace::Event;

/// Something that happened, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The number of the event, from 0; several things can happen in one.
    pub event: u64,
    /// What happened.
    pub what: Happening,
}

/// What can happen. Nodes are ranks, and the number after the last rank is the coordinator. Messages are numbered from 1
/// on each channel. Epochs are those that a checkpoint begins; the first is the start of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Happening {
    /// A process starts.
    Started {
        /// Of which node.
        node: u32,
        /// The checkpoint that it starts from.
        epoch: u32,
        /// It takes the place of one that died.
        again: bool,
    },
    /// A process dies.
    Killed {
        /// Of which node.
        node: u32,
    },
    /// A rank that lives goes back to a checkpoint.
    RolledBack {
        /// Which rank.
        rank: u32,
        /// To which checkpoint.
        epoch: u32,
    },
    /// A checkpoint has the state of this moment.
    Checkpointed {
        /// Of which rank.
        rank: u32,
        /// The epoch that it begins.
        epoch: u32,
    },
    /// A checkpoint can be restored from now on.
    Durable {
        /// Of which rank.
        rank: u32,
        /// The epoch that it began.
        epoch: u32,
    },
    /// The application sends.
    Sent {
        /// Which rank.
        rank: u32,
        /// To whom.
        to: u32,
        /// The message's number.
        number: u64,
    },
    /// A message goes on the wire. If it is neither received nor dropped later on, it was lost with a connection, or was
    /// still under way or held when the run ended.
    Transmitted {
        /// The sender.
        from: u32,
        /// The receiver.
        to: u32,
        /// The message's number.
        number: u64,
        /// Its header says that it is a replay. A rule may say so of whatever was in the log when it met the receiver,
        /// also of what was never on the wire before.
        marked: bool,
    },
    /// The protocol lets a message in.
    Received {
        /// The receiver.
        rank: u32,
        /// The sender.
        from: u32,
        /// The message's number.
        number: u64,
        /// The event in which it went on the wire.
        transmitted: u64,
    },
    /// The protocol drops a message.
    Dropped {
        /// The receiver.
        rank: u32,
        /// The sender.
        from: u32,
        /// The message's number.
        number: u64,
        /// The event in which it went on the wire.
        transmitted: u64,
        /// Why.
        why: Dropped,
    },
    /// The application takes a message.
    Taken {
        /// Which rank.
        rank: u32,
        /// The sender.
        from: u32,
        /// The message's number.
        number: u64,
    },
}

/// Why a message is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Dropped {
    /// It was received before.
    Duplicate,
    /// The incarnation that sent it is dead.
    DeadIncarnation,
    /// An orphan that is sent again.
    Orphan,
}

impl Happening {
    /// What the oracles hear, as far as it says all there is to know of it: not of starts, which the coordinator has too,
    /// and not of receives, to which a transmission belongs.
    pub(super) fn of(event: Event) -> Option<Happening> {
        match event {
            Event::RolledBack { rank, epoch } => Some(Happening::RolledBack { rank, epoch: epoch.0 }),
            Event::Killed { node } => Some(Happening::Killed { node }),
            Event::Sent { rank, to, ssn, .. } => Some(Happening::Sent { rank, to, number: ssn.0 }),
            Event::Taken { rank, from, ssn, .. } => Some(Happening::Taken { rank, from, number: ssn.0 }),
            Event::Checkpointed { rank, epoch } => Some(Happening::Checkpointed { rank, epoch: epoch.0 }),
            Event::Durable { rank, epoch } => Some(Happening::Durable { rank, epoch: epoch.0 }),
            _ => None,
        }
    }
}

/// What is kept of a run beside its outcome; nothing, unless it is asked for.
#[derive(Debug, Default)]
pub(super) struct Witness {
    /// One line for each event, and for each thing that happened in it.
    pub(super) story: Option<Vec<String>>,
    pub(super) recording: Option<Vec<Recorded>>,
}

impl Witness {
    pub(super) fn tell(&mut self, event: u64, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(format!("{event:>6} {}", line()));
        }
    }

    pub(super) fn record(&mut self, event: u64, what: Happening) {
        if let Some(recording) = &mut self.recording {
            recording.push(Recorded { event, what });
        }
    }

    pub(super) fn note(&mut self, at: u64, event: Event) {
        self.tell(at, || format!("    {event:?}"));
        if self.recording.is_some()
            && let Some(what) = Happening::of(event)
        {
            self.record(at, what);
        }
    }
}
