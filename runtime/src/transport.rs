//! Interface between an endpoint and the connections to its peers and its launcher.
//!
//! A transport moves frames (a [`WireHeader`] and its payload) between live ranks. It knows no logs, no SSNs and no
//! protocols: it reports a dead peer as disconnected and its replacement as connected, and drops frames in flight. That
//! is enough, because the log resends every message that matters.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use counterfoil_ack_piggyback::{HeaderError, WireHeader};
use serde::{Deserialize, Serialize};

use crate::tally::Tally;

/// Event from a peer or from the launcher.
#[derive(Debug)]
pub enum Event {
    /// An incarnation of `peer` can be greeted: [`Transport::greet`].
    ///
    /// The connection is established once its own hello has arrived.
    Reachable {
        /// Peer rank.
        peer: u32,
        /// The peer's incarnation, as far as known.
        incarnation: u32,
    },
    /// A connection to an incarnation of `peer` is established, and the peer has sent its hello.
    ///
    /// If the peer opened the connection, it waits for an answer: [`Transport::greet`].
    Connected {
        /// Peer rank.
        peer: u32,
        /// The peer's incarnation.
        incarnation: u32,
        /// The peer's hello, for the protocol.
        hello: Bytes,
        /// The peer waits for a greeting.
        answer: bool,
    },
    /// A frame arrived.
    Frame {
        /// Sending rank.
        peer: u32,
        /// Frame header.
        header: WireHeader,
        /// Bytes after the header.
        body: Bytes,
    },
    /// The connection to `peer` is closed: the peer has died, or a newer connection replaces this one.
    Disconnected {
        /// Peer rank.
        peer: u32,
    },
    /// A control message from the protocol's coordinator.
    Order {
        /// Bytes for the protocol.
        body: Vec<u8>,
    },
    /// This rank is no longer held: see [`Transport::holds_after`].
    Resume,
    /// All ranks are done: this one may end.
    Finish,
}

/// Kind of a call in whose midst a process can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CallKind {
    /// A send by the program: the message is in the log, but not even partly transmitted.
    Send,
    /// A receive by the program: the message was taken, but not yet returned.
    Receive,
    /// A collective: the rank has sent or received a part.
    Collective,
    /// A checkpoint: the rank's part of the tables is sealed, and the checkpoint is being written.
    Checkpoint,
}

impl CallKind {
    /// All kinds.
    pub const ALL: [CallKind; 4] = [CallKind::Send, CallKind::Receive, CallKind::Collective, CallKind::Checkpoint];
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CallKind::Send => "send",
            CallKind::Receive => "receive",
            CallKind::Collective => "collective",
            CallKind::Checkpoint => "checkpoint",
        })
    }
}

/// Step of a rank's execution after which its transport may hold the rank ([`Transport::holds_after`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A message is in the log, but not even partly transmitted.
    Logged {
        /// Message context.
        context: u32,
    },
    /// A message was handed to the transport, as far as the transport takes it.
    Sent {
        /// Message context.
        context: u32,
    },
    /// A message was taken, but the program doesn't have it.
    Taken {
        /// Message context.
        context: u32,
    },
    /// The rank's part of the tables is sealed, and the checkpoint is being written.
    CheckpointBegun,
    /// A program iteration is over.
    Iteration,
    /// A replacement has caught up with its predecessor, but not reported it.
    CaughtUp,
}

/// Message from a rank to its launcher.
#[derive(Clone, Debug)]
pub enum Report {
    /// A replacement has its log and its checkpoint.
    Started,
    /// Iteration `n` begins.
    Iteration {
        /// Iteration number, from 1.
        n: u64,
        /// The rank's counters so far.
        tally: Tally,
    },
    /// The process is in the midst of a call with a planned kill, and waits for the kill.
    InCall {
        /// Call kind.
        call: CallKind,
        /// The rank's iteration, from 1; 0 before the first.
        iteration: u64,
        /// Number of the current event, from 1.
        event: u64,
    },
    /// The process restored a checkpoint.
    Restored {
        /// Epoch that the checkpoint began.
        epoch: u32,
    },
    /// The replacement has received all messages sent to its predecessor.
    ReplayComplete,
    /// The replacement has sent all messages that its peers had received from its predecessor.
    CaughtUp,
    /// A control message to the protocol's coordinator.
    ToCoordinator {
        /// Bytes for the coordinator.
        body: Vec<u8>,
    },
    /// The rank rolls back to an earlier checkpoint: this process ends, and a replacement continues from there.
    RollingBack {
        /// Epoch that the checkpoint began.
        epoch: u32,
        /// The process's counters.
        tally: Tally,
    },
    /// The process exits, since a rank was lost and the job is started again.
    Exits {
        /// Outcome of saving its state.
        save: Save,
        /// The process's counters.
        tally: Tally,
    },
    /// The program has ended; the rank serves its peers until [`Event::Finish`].
    Done {
        /// The program's result, for the launcher.
        outcome: Vec<u8>,
        /// The process's counters.
        tally: Tally,
    },
    /// The process waits for all others, to agree on the dead ones, or has ceased to.
    Repair {
        /// The process waits.
        waits: bool,
    },
    /// A rank is dead, and no process can take its place: the process ends.
    NoSpare,
    /// The program or the runtime has failed.
    Failed {
        /// Reason.
        error: String,
    },
}

/// Outcome of saving an exiting rank's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Save {
    /// The state is saved.
    Done {
        /// File length in bytes.
        bytes: u64,
        /// Duration of the save.
        took: Duration,
    },
    /// The state is lost.
    Failed {
        /// Reason.
        error: String,
    },
    /// The state isn't rebuilt: the one it was to be rebuilt from is loaded again.
    NotWanted,
}

/// Events to wait for.
#[derive(Debug)]
pub struct Interest<'a> {
    /// For each rank: read from it.
    ///
    /// `None`: from all ranks.
    pub read: Option<&'a [bool]>,
    /// For each rank: there is something to send as soon as its connection is writable.
    ///
    /// `None`: to no rank.
    pub write: Option<&'a [bool]>,
    /// Longest wait if nothing happens; unlimited if `None`.
    pub timeout: Option<Duration>,
}

impl Interest<'_> {
    /// Returns `true` if `peer` is read from.
    pub fn reads(&self, peer: u32) -> bool {
        self.read.is_none_or(|read| read[peer as usize])
    }

    /// Returns `true` if there is something to send to `peer`.
    pub fn writes(&self, peer: u32) -> bool {
        self.write.is_some_and(|write| write[peer as usize])
    }
}

/// Failure of a transport.
///
/// A peer's death is not a failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The launcher is gone, so this process must end.
    #[error("the launcher is gone: {0}")]
    Launcher(#[source] Box<dyn StdError + Send + Sync>),
    /// A failure specific to this kind of transport.
    #[error(transparent)]
    Other(Box<dyn StdError + Send + Sync>),
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// Failed action.
        action: &'static str,
        /// Operating system error.
        source: std::io::Error,
    },
    /// A peer sent bytes that are no frame.
    #[error("rank {peer} sent something that is not a frame: {source}")]
    Header {
        /// Peer rank.
        peer: u32,
        /// Reason.
        source: HeaderError,
    },
    /// A peer announced a frame above the limit.
    #[error("rank {peer} announced a frame of {len} bytes, and the limit is {max}")]
    FrameTooLong {
        /// Peer rank.
        peer: u32,
        /// Announced length in bytes.
        len: u64,
        /// Limit in bytes.
        max: usize,
    },
    /// A peer doesn't read, and too many control frames for it are queued.
    #[error("{len} bytes of control frames wait for rank {peer}, which does not read; the limit is {max}")]
    NotRead {
        /// Peer rank.
        peer: u32,
        /// Queued bytes.
        len: usize,
        /// Limit in bytes.
        max: usize,
    },
}

/// Connection from a rank to its peers and its launcher.
///
/// Single-threaded; only [`Transport::poll`] may block.
pub trait Transport {
    /// Waits until a connection in `interest` is ready, and reads the arrived bytes.
    ///
    /// # Errors
    /// [`TransportError`].
    fn poll(&mut self, interest: &Interest<'_>) -> Result<(), TransportError>;

    /// Returns the next event in order; `None` if there is none.
    fn next_event(&mut self) -> Option<Event>;

    /// Returns `true` while `peer` is connected.
    fn is_connected(&self, peer: u32) -> bool;

    /// Sends `hello` to a peer's incarnation, as the first bytes on its connection; nothing else is sent to `peer`
    /// before.
    ///
    /// Does nothing if that incarnation has been disconnected since.
    ///
    /// # Errors
    /// [`TransportError`].
    fn greet(&mut self, peer: u32, incarnation: u32, hello: &[u8]) -> Result<(), TransportError>;

    /// Closes the connection to `peer`, without an [`Event::Disconnected`].
    fn disconnect(&mut self, peer: u32);

    /// Returns `false` while too many control frames for `peer` are queued for another one that can wait.
    ///
    /// [`poll`](Transport::poll) with a write interest in `peer` returns once there is room. By default, always `true`.
    fn has_room(&self, peer: u32) -> bool {
        let _ = peer;
        true
    }

    /// Sends an unlogged frame.
    ///
    /// Its body consists of parts. Dropped if `peer` isn't connected.
    ///
    /// # Errors
    /// [`TransportError::NotRead`] if too many bytes were queued before.
    fn send_control(&mut self, peer: u32, header: &WireHeader, body: &[&[u8]]) -> Result<(), TransportError>;

    /// Sends a logged record's frame, its `header` and `payload`, starting at byte `offset`.
    ///
    /// Returns the number of bytes taken: 0 if the connection is busy or gone. A partial frame must be completed with
    /// the same bytes before the next is sent.
    ///
    /// # Errors
    /// [`TransportError`].
    fn send_record(
        &mut self,
        peer: u32,
        header: &WireHeader,
        payload: &[u8],
        offset: usize,
    ) -> Result<usize, TransportError>;

    /// Sends a report to the launcher.
    ///
    /// # Errors
    /// [`TransportError::Launcher`].
    fn report(&mut self, report: Report) -> Result<(), TransportError>;

    /// Returns `true` while the rank is held after this step: it serves its peers and asks again.
    ///
    /// `iteration` is the rank's, 0 before the first.
    ///
    /// By default, never: this is for a transport wrapping another one, which holds a rank to be killed.
    ///
    /// # Errors
    /// [`TransportError::Launcher`].
    fn holds_after(&mut self, step: Step, iteration: u64) -> Result<bool, TransportError> {
        let _ = (step, iteration);
        Ok(false)
    }

    /// Returns `true` if the rank only repeats its record: anything unrecorded ends its execution
    /// ([`RecordEnd`](crate::replay::RecordEnd)).
    ///
    /// By default, `false`.
    fn repeats_only(&self) -> bool {
        false
    }
}
