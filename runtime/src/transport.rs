//! What an endpoint needs of whatever connects it with its peers and with its launcher.
//!
//! A transport moves frames (a [`WireHeader`] and the bytes that it announces) between ranks that are alive. It knows
//! no logs, no numbers and no protocols: a peer that dies is reported as lost, its replacement as met, and whatever was
//! under way is forgotten. That is enough, because everything that matters is sent again.

use std::time::Duration;

use bytes::Bytes;
use counterfoil_ack_piggyback::{HeaderError, WireHeader};
use std::path::PathBuf;

use crate::local::ControlError;
use crate::tally::Tally;

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// A connection to this incarnation of `peer` stands, and this is the first thing that it said. If it was
    /// the peer that called, it waits for an answer: [`Transport::greet`].
    Met {
        /// Who.
        peer: u32,
        /// Its incarnation.
        incarnation: u32,
        /// What it said: the protocol's business.
        hello: Bytes,
        /// Whether it still has to be greeted.
        answer: bool,
    },
    /// A frame came.
    Frame {
        /// From whom.
        peer: u32,
        /// Its header.
        header: WireHeader,
        /// What followed the header.
        body: Bytes,
    },
    /// The connection to `peer` is gone: it has died, or is about to be met anew.
    Lost {
        /// Who.
        peer: u32,
    },
    /// A control message of the protocol's coordinator.
    Order {
        /// The protocol's business.
        body: Vec<u8>,
    },
    /// The launcher has done what the recovery was held for.
    Resume,
    /// All ranks are done: end.
    Finish,
}

/// What a rank tells its launcher.
#[derive(Clone, Debug)]
pub enum Report {
    /// Iteration `n` begins.
    Iteration {
        /// Its number, from 1.
        n: u64,
        /// What the rank has counted so far.
        tally: Tally,
    },
    /// The process went on from the checkpoint that began this epoch.
    Restored {
        /// The epoch.
        epoch: u32,
    },
    /// Everything that peers had sent to the predecessor has been received.
    ReplayComplete,
    /// Everything that peers had received from the predecessor has been sent.
    CaughtUp,
    /// A control message to the protocol's coordinator.
    ToCoordinator {
        /// The protocol's business.
        body: Vec<u8>,
    },
    /// The rank goes back to the checkpoint that began this epoch: this process ends, and a replacement is to go on from there.
    GoingBack {
        /// The epoch.
        epoch: u32,
        /// What the process has counted.
        tally: Tally,
    },
    /// The program has ended; the rank serves its peers until [`Event::Finish`].
    Done {
        /// What the program gives to who started the job.
        outcome: Vec<u8>,
        /// What the rank has counted.
        tally: Tally,
    },
    /// The program or the runtime has failed.
    Failed {
        /// Why.
        error: String,
    },
}

/// What to wait for.
#[derive(Debug)]
pub struct Interest<'a> {
    /// For each rank: whether to read what it sends.
    pub read: &'a [bool],
    /// For each rank: whether there is something to send as soon as its connection takes it.
    pub write: &'a [bool],
    /// How long to wait if nothing happens: for ever if `None`.
    pub timeout: Option<Duration>,
}

/// Why a transport can't go on. A peer that dies is no such reason.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The launcher is gone, so this process has no business any more.
    #[error("the launcher is gone: {0}")]
    Launcher(#[source] ControlError),
    /// The operating system refused.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The place where this rank listens cannot be used.
    #[error("cannot listen at {}: {source}", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Bytes of a living peer that make no sense.
    #[error("rank {peer} sent something that is not a frame: {source}")]
    Header {
        /// Who.
        peer: u32,
        /// What is wrong.
        source: HeaderError,
    },
    /// A frame that is too long to be believed.
    #[error("rank {peer} announced a frame of {len} bytes, and the limit is {max}")]
    FrameTooLong {
        /// Who.
        peer: u32,
        /// Its length in bytes.
        len: u64,
        /// The limit.
        max: usize,
    },
    /// A peer reads nothing while control frames for it pile up.
    #[error("{len} bytes of control frames wait for rank {peer}, which does not read; the limit is {max}")]
    NotRead {
        /// Who.
        peer: u32,
        /// How many bytes wait.
        len: usize,
        /// The limit.
        max: usize,
    },
}

/// Connects a rank with its peers and its launcher. One thread; only [`Transport::poll`] may block.
pub trait Transport {
    /// Waits until something of `interest` can be done, and reads what has come.
    ///
    /// # Errors
    /// [`TransportError`].
    fn poll(&mut self, interest: &Interest<'_>) -> Result<(), TransportError>;

    /// The next thing that happened, in order; `None` if there is nothing left.
    fn next_event(&mut self) -> Option<Event>;

    /// Whether `peer` has been met and not been lost since.
    fn is_connected(&self, peer: u32) -> bool;

    /// Says `hello` to an incarnation of a peer: the first thing that it gets on its connection. Nothing happens if
    /// that incarnation has been lost since it was met; nothing else is sent to `peer` before it.
    ///
    /// # Errors
    /// [`TransportError`].
    fn greet(&mut self, peer: u32, incarnation: u32, hello: &[u8]) -> Result<(), TransportError>;

    /// Gives up the connection to `peer`, without an [`Event::Lost`].
    fn disconnect(&mut self, peer: u32);

    /// Sends a frame that isn't kept anywhere. Dropped if `peer` isn't connected.
    ///
    /// # Errors
    /// [`TransportError::NotRead`] if too many wait.
    fn send_control(&mut self, peer: u32, header: &WireHeader, body: &[u8]) -> Result<(), TransportError>;

    /// Sends the frame of `header` and `payload` from byte `offset` on, and says how many bytes were taken: 0 if the
    /// connection is busy or gone. What was begun has to be ended with the same bytes before another is sent.
    ///
    /// # Errors
    /// [`TransportError`].
    fn send(&mut self, peer: u32, header: &WireHeader, payload: &[u8], offset: usize) -> Result<usize, TransportError>;

    /// Tells the launcher.
    ///
    /// # Errors
    /// [`TransportError::Launcher`].
    fn report(&mut self, report: Report) -> Result<(), TransportError>;
}
