//! Interface between an endpoint and the connections to its peers and its launcher.
//!
//! A transport moves frames (a [`WireHeader`] and its payload) between ranks that are alive. It knows
//! no logs, no SSNs and no protocols: it reports a peer that dies as disconnected and its replacement as connected, and
//! drops frames in flight. That is enough, because the log sends again every message that matters.

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
    /// An incarnation of `peer` can be greeted: [`Transport::greet`]. The connection is established once its own hello
    /// has arrived.
    Reachable {
        /// Rank of the peer.
        peer: u32,
        /// Incarnation of the peer, as far as it is known.
        incarnation: u32,
    },
    /// A connection to an incarnation of `peer` is established, and the peer has sent its hello. If the peer opened
    /// the connection, it waits for an answer: [`Transport::greet`].
    Connected {
        /// Rank of the peer.
        peer: u32,
        /// Incarnation of the peer.
        incarnation: u32,
        /// The peer's hello, for the protocol.
        hello: Bytes,
        /// The peer waits for a greeting.
        answer: bool,
    },
    /// A frame arrived.
    Frame {
        /// Rank of the sender.
        peer: u32,
        /// Header of the frame.
        header: WireHeader,
        /// Bytes after the header.
        body: Bytes,
    },
    /// The connection to `peer` is closed: the peer has died, or a newer connection replaces this one.
    Disconnected {
        /// Rank of the peer.
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
    /// A send of the program: the message is in the log, and nothing of it is transmitted.
    Send,
    /// A receive of the program: the message was taken, and the program doesn't have it.
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
    /// A message is in the log, and nothing of it is transmitted.
    Logged {
        /// Context of the message.
        context: u32,
    },
    /// A message was handed to the transport, as far as that takes it.
    Sent {
        /// Context of the message.
        context: u32,
    },
    /// A message was taken, and the program doesn't have it.
    Taken {
        /// Context of the message.
        context: u32,
    },
    /// The rank's part of the tables is sealed, and the checkpoint is being written.
    CheckpointBegun,
    /// An iteration of the program is over.
    Iteration,
    /// A replacement has caught up with its predecessor, and has not reported it.
    CaughtUp,
}

/// Message from a rank to its launcher.
#[derive(Clone, Debug)]
pub enum Report {
    /// A replacement has its log and its checkpoint.
    Started,
    /// Iteration `n` begins.
    Iteration {
        /// Number of the iteration, from 1.
        n: u64,
        /// Counters of the rank so far.
        tally: Tally,
    },
    /// The process stands in the midst of a call in which its kill is planned, and waits for the kill.
    InCall {
        /// Kind of the call.
        call: CallKind,
        /// Iteration of the rank, from 1; 0 before the first.
        iteration: u64,
        /// Number of the event at which it stands, from 1.
        event: u64,
    },
    /// The process restored a checkpoint.
    Restored {
        /// Epoch that the checkpoint began.
        epoch: u32,
    },
    /// The replacement has received everything that peers had sent to its predecessor.
    ReplayComplete,
    /// The replacement has sent everything that peers had received from its predecessor.
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
        /// Counters of the process.
        tally: Tally,
    },
    /// The process exits, since a rank was lost and the job is started again.
    Exits {
        /// What has become of its state.
        save: Save,
        /// Counters of the process.
        tally: Tally,
    },
    /// The program has ended; the rank serves its peers until [`Event::Finish`].
    Done {
        /// Result of the program, for the launcher.
        outcome: Vec<u8>,
        /// Counters of the process.
        tally: Tally,
    },
    /// The process waits for all others, to agree on which of them are dead, or has ceased to.
    Repair {
        /// It waits.
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

/// What has become of the state of a rank that exits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Save {
    /// It is saved.
    Done {
        /// Bytes of the file.
        bytes: u64,
        /// Duration of the save.
        took: Duration,
    },
    /// It is lost.
    Failed {
        /// Reason.
        error: String,
    },
    /// It isn't rebuilt: the one that it was to be rebuilt from is loaded again.
    NotWanted,
}

/// Events to wait for.
#[derive(Debug)]
pub struct Interest<'a> {
    /// For each rank: read what it sends. `None`: of all ranks.
    pub read: Option<&'a [bool]>,
    /// For each rank: there is something to send as soon as its connection is writable. `None`: to no rank.
    pub write: Option<&'a [bool]>,
    /// Longest wait if nothing happens; unlimited if `None`.
    pub timeout: Option<Duration>,
}

impl Interest<'_> {
    /// Returns `true` if what `peer` sends is read.
    pub fn reads(&self, peer: u32) -> bool {
        self.read.is_none_or(|read| read[peer as usize])
    }

    /// Returns `true` if there is something to send to `peer`.
    pub fn writes(&self, peer: u32) -> bool {
        self.write.is_some_and(|write| write[peer as usize])
    }
}

/// Failure of a transport. The death of a peer is not a failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The launcher is gone, so this process must end.
    #[error("the launcher is gone: {0}")]
    Launcher(#[source] Box<dyn StdError + Send + Sync>),
    /// A failure that only this kind of transport has.
    #[error(transparent)]
    Other(Box<dyn StdError + Send + Sync>),
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// Failed action.
        action: &'static str,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A peer sent bytes that are no frame.
    #[error("rank {peer} sent something that is not a frame: {source}")]
    Header {
        /// Rank of the peer.
        peer: u32,
        /// Reason.
        source: HeaderError,
    },
    /// A peer announced a frame above the limit.
    #[error("rank {peer} announced a frame of {len} bytes, and the limit is {max}")]
    FrameTooLong {
        /// Rank of the peer.
        peer: u32,
        /// Announced length in bytes.
        len: u64,
        /// Limit in bytes.
        max: usize,
    },
    /// A peer doesn't read, and too many control frames for it are queued.
    #[error("{len} bytes of control frames wait for rank {peer}, which does not read; the limit is {max}")]
    NotRead {
        /// Rank of the peer.
        peer: u32,
        /// Queued bytes.
        len: usize,
        /// Limit in bytes.
        max: usize,
    },
}

/// Connection of a rank to its peers and its launcher. Single-threaded; only [`Transport::poll`] may block.
pub trait Transport {
    /// Waits until a connection in `interest` is ready, and reads what has arrived.
    ///
    /// # Errors
    /// [`TransportError`].
    fn poll(&mut self, interest: &Interest<'_>) -> Result<(), TransportError>;

    /// Returns the next event in order; `None` if there is none.
    fn next_event(&mut self) -> Option<Event>;

    /// Returns `true` while `peer` is connected.
    fn is_connected(&self, peer: u32) -> bool;

    /// Sends `hello` to an incarnation of a peer, as the first bytes on its connection; nothing else is sent to `peer`
    /// before. Does nothing if that incarnation has been disconnected since.
    ///
    /// # Errors
    /// [`TransportError`].
    fn greet(&mut self, peer: u32, incarnation: u32, hello: &[u8]) -> Result<(), TransportError>;

    /// Closes the connection to `peer`, without an [`Event::Disconnected`].
    fn disconnect(&mut self, peer: u32);

    /// Returns `false` while too many control frames for `peer` are queued for another one that can wait.
    /// [`poll`](Transport::poll) with a write interest in it returns once there is room. By default, always `true`.
    fn has_room(&self, peer: u32) -> bool {
        let _ = peer;
        true
    }

    /// Sends a frame that no log keeps. Its body is made of parts. Dropped if `peer` isn't connected.
    ///
    /// # Errors
    /// [`TransportError::NotRead`] if too many bytes were queued before.
    fn send_control(&mut self, peer: u32, header: &WireHeader, body: &[&[u8]]) -> Result<(), TransportError>;

    /// Sends the frame of a record in the log, its `header` and `payload`, from byte `offset` on. Returns the number of
    /// bytes taken: 0 if the connection is busy or gone. A partial frame must be completed with the same bytes before
    /// the next is sent.
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

    /// Returns `true` while the rank is held after this step: it serves its peers and asks again. `iteration`: that of
    /// the rank, 0 before the first.
    ///
    /// By default, never: this is for a transport around another one, which holds a rank that is to be killed.
    ///
    /// # Errors
    /// [`TransportError::Launcher`].
    fn holds_after(&mut self, step: Step, iteration: u64) -> Result<bool, TransportError> {
        let _ = (step, iteration);
        Ok(false)
    }

    /// Returns `true` if the rank only repeats what is on record: what is not ends its execution
    /// ([`RecordEnd`](crate::replay::RecordEnd)). By default, `false`.
    fn repeats_only(&self) -> bool {
        false
    }
}
