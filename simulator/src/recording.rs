//! Recording of a run, made by [`record`](super::record), for drawing a diagram.

use super::trace::Event;

/// Entry in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Number of the event, from 0, with possibly several activities.
    pub event: u64,
    /// Activity in the event.
    pub activity: Activity,
}

/// Activity in a run.
///
/// Nodes are ranks, and the number after the last rank is the coordinator. Messages are numbered from 1 on each
/// channel. An epoch is the one begun by a checkpoint; the first is the start of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// A process starts.
    Started {
        /// Node of the process.
        node: u32,
        /// Epoch of the checkpoint it starts from.
        epoch: u32,
        /// `true` for a replacement.
        again: bool,
    },
    /// A process dies.
    Killed {
        /// Node of the process.
        node: u32,
    },
    /// A living rank rolls back to a checkpoint.
    RolledBack {
        /// Rank concerned.
        rank: u32,
        /// Checkpoint epoch.
        epoch: u32,
    },
    /// A checkpoint saves the current state.
    Checkpointed {
        /// Rank concerned.
        rank: u32,
        /// Epoch begun by it.
        epoch: u32,
    },
    /// A checkpoint can be restored from now on.
    Durable {
        /// Rank concerned.
        rank: u32,
        /// Epoch begun by it.
        epoch: u32,
    },
    /// The application sends.
    Sent {
        /// Rank concerned.
        rank: u32,
        /// Receiver.
        to: u32,
        /// Message SSN.
        number: u64,
    },
    /// A message goes on the wire.
    ///
    /// If it is neither received nor dropped later on, it was lost with a connection, or was still under way or held
    /// when the run ended.
    Transmitted {
        /// Sender.
        from: u32,
        /// Receiver.
        to: u32,
        /// Message SSN.
        number: u64,
        /// `true` if its header marks it as a replay.
        ///
        /// A rule may mark whatever was in the log when the receiver's Hello came, even messages never on the wire
        /// before.
        marked: bool,
    },
    /// The protocol delivers a message.
    Received {
        /// Receiver.
        rank: u32,
        /// Sender.
        from: u32,
        /// Message SSN.
        number: u64,
        /// Transmission event.
        transmitted: u64,
    },
    /// The protocol drops a message.
    Dropped {
        /// Receiver.
        rank: u32,
        /// Sender.
        from: u32,
        /// Message SSN.
        number: u64,
        /// Transmission event.
        transmitted: u64,
        /// Reason.
        why: Dropped,
    },
    /// The application takes a message.
    Taken {
        /// Rank concerned.
        rank: u32,
        /// Sender.
        from: u32,
        /// Message SSN.
        number: u64,
    },
    /// The application completes a collective call.
    Completed {
        /// Rank concerned.
        rank: u32,
        /// Call number.
        number: u64,
        /// `true` if it ran here; otherwise it was skipped, or its result came from the local log.
        natively: bool,
    },
}

/// Reason for dropping a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Dropped {
    /// Message already received.
    Duplicate,
    /// Message from a dead incarnation.
    DeadIncarnation,
    /// Orphan to be sent again.
    Orphan,
}

impl Activity {
    /// Converts a complete oracle event.
    ///
    /// Starts, which the coordinator has too, and receipts, which belong to a transmission, are incomplete.
    pub(crate) fn of(event: Event) -> Option<Activity> {
        match event {
            Event::RolledBack { rank, epoch } => Some(Activity::RolledBack { rank, epoch: epoch.0 }),
            Event::Killed { node } => Some(Activity::Killed { node }),
            Event::Sent { rank, to, ssn, .. } => Some(Activity::Sent { rank, to, number: ssn.0 }),
            Event::Taken { rank, from, ssn, .. } => Some(Activity::Taken { rank, from, number: ssn.0 }),
            Event::Checkpointed { rank, epoch } => Some(Activity::Checkpointed { rank, epoch: epoch.0 }),
            Event::Durable { rank, epoch } => Some(Activity::Durable { rank, epoch: epoch.0 }),
            _ => None,
        }
    }
}

/// Optional records of a run, apart from its outcome.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// One line for each event, and for each activity in it.
    pub(crate) transcript: Option<Vec<String>>,
    pub(crate) recording: Option<Vec<Recorded>>,
}

impl Recorder {
    pub(crate) fn log(&mut self, event: u64, line: impl FnOnce() -> String) {
        if let Some(transcript) = &mut self.transcript {
            transcript.push(format!("{event:>6} {}", line()));
        }
    }

    pub(crate) fn record(&mut self, event: u64, activity: Activity) {
        if let Some(recording) = &mut self.recording {
            recording.push(Recorded { event, activity });
        }
    }

    pub(crate) fn note(&mut self, at: u64, event: Event) {
        self.log(at, || format!("    {event:?}"));
        if self.recording.is_some()
            && let Some(what) = Activity::of(event)
        {
            self.record(at, what);
        }
    }
}
