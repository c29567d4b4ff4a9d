//! Control messages between a job's loggers.

/// Kind of control message.
///
/// Over MPI it is the message's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlKind {
    /// Acknowledgements: [`AckBatcher::take`](crate::AckBatcher::take).
    Acks = 1,
    /// Queries answered when there is news: [`ProgressQueries`](crate::ProgressQueries).
    Query,
    /// Answers to queries.
    Answer,
    /// Request for an immediate reply: [`ProgressRequest`](crate::ProgressRequest).
    ProgressRequest,
    /// Reply to it.
    ProgressReply,
    /// The sender leaves without waiting for the others to end.
    Leave,
    /// The sender has revoked a communicator: an entry with its number.
    Revoked,
}

impl ControlKind {
    /// Returns the kind with this number; `None` for an unknown number.
    pub fn from_tag(tag: i32) -> Option<ControlKind> {
        use ControlKind::{Acks, Answer, Leave, ProgressReply, ProgressRequest, Query, Revoked};
        [Acks, Query, Answer, ProgressRequest, ProgressReply, Leave, Revoked]
            .into_iter()
            .find(|kind| *kind as i32 == tag)
    }
}

/// A received control message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedControl {
    /// Its kind.
    pub kind: ControlKind,
    /// The sender's rank in MPI_COMM_WORLD.
    pub from: u32,
    /// Its entries.
    pub bytes: Vec<u8>,
}

/// A control message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlMessage {
    /// The receiver's rank in MPI_COMM_WORLD.
    pub to: u32,
    /// Its kind.
    pub kind: ControlKind,
    /// Entries of 16 bytes each.
    ///
    /// The driver may split them into several messages between entries.
    pub bytes: Vec<u8>,
}
