//! Messages between the launcher and its ranks, and their framing.
//!
//! A frame is its length (u32, little-endian) and the postcard bytes. Both sides are the same program on one machine,
//! so the messages have no version; a length above [`FRAME_BYTES_MAX`] or malformed bytes end the connection with an
//! error.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::kills::RankKills;
use crate::endpoint::BegunWith;
use crate::settings::RankSettings;
use crate::tally::Tally;
use crate::transport::{CallKind, Save};

/// Longest frame, in bytes.
///
/// The longest is a welcome, with the list of peers (at most 10 bytes each).
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 20;
/// Maximum bytes queued for a receiver that doesn't read; the connection fails above.
const OUTBOX_BYTES_MAX: usize = 2 * FRAME_BYTES_MAX;

/// Message from a rank to the launcher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToLauncher {
    /// First message from a process started by the launcher: identity of the rank.
    Hello { rank: u32, incarnation: u32, pid: u32 },
    /// A managed process becomes a rank, or begins again after a rollback.
    ///
    /// The launcher counts the incarnations.
    Join { rank: u32, pid: u32 },
    /// First message from a process that may become a rank later.
    Spare { pid: u32 },
    /// A replacement has its log and its checkpoint.
    Started,
    /// Iteration `n` begins.
    Iteration { n: u64, tally: Tally },
    /// The process stands in a call with a planned kill.
    InCall { call: CallKind, iteration: u64, event: u64 },
    /// The process has restored the checkpoint that began `epoch`.
    Restored { epoch: u32 },
    /// A replacement has received all messages sent to its predecessor.
    ReplayComplete,
    /// A replacement has sent at least all messages that its peers had received from its predecessor.
    CaughtUp,
    /// A control message to the protocol's coordinator.
    ToCoordinator { body: Vec<u8> },
    /// The process ends; its replacement continues from the checkpoint that began `epoch`.
    RollingBack { epoch: u32, tally: Tally },
    /// The process exits, since the job is started again.
    Exits { save: Save, tally: Tally },
    /// The program has succeeded; the process continues to serve its peers.
    Done { outcome: Vec<u8>, tally: Tally },
    /// The process waits for all other managed processes, to agree on the dead ones, or has ceased to.
    Repair { waits: bool },
    /// A rank is dead and no managed process can replace it; the process ends.
    NoSpare,
    /// The program or the runtime has failed; the process ends.
    Failed { error: String },
}

/// Message from the launcher to a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToRank {
    /// The answer to Hello.
    Welcome(Box<Welcome>),
    /// A control message from the protocol's coordinator.
    Order { body: Vec<u8> },
    /// Releases a held recovery: the planned kill has happened.
    Resume,
    /// All ranks are done: this one may end.
    Finish,
}

/// Configuration of a rank, from the launcher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// Number of the rank's earlier processes.
    pub(crate) incarnation: u32,
    /// Job settings.
    pub(crate) settings: RankSettings,
    /// Opaque description of the program to run.
    pub(crate) program: Vec<u8>,
    /// Directory with the ranks' stores.
    pub(crate) checkpoints: std::path::PathBuf,
    /// Initial state of the job's generation, if it isn't the program's beginning.
    pub(crate) begun_with: Option<BegunWith>,
    /// Live ranks welcomed before, as (rank, incarnation): connect to these.
    ///
    /// All others will connect.
    pub(crate) peers: Vec<(u32, u32)>,
    /// Planned kills for this process.
    pub(super) kills: RankKills,
}

/// Failure of a control connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The other side has closed the connection.
    #[error("the control connection was closed by the other side")]
    Closed,
    /// A system call failed.
    #[error("the control connection failed: {0}")]
    Io(#[from] io::Error),
    /// A frame exceeds the limit.
    #[error("a control frame of {len} bytes, and the limit is {FRAME_BYTES_MAX}")]
    TooLong {
        /// Frame length in bytes.
        len: usize,
    },
    /// A frame isn't a message.
    #[error("a control frame that cannot be read: {0}")]
    Malformed(#[from] postcard::Error),
    /// The other side doesn't read.
    #[error("{len} bytes of control frames wait for the other side, and the limit is {OUTBOX_BYTES_MAX}")]
    NotRead {
        /// Queued bytes.
        len: usize,
    },
}

/// One end of a control connection.
///
/// Never blocks.
#[derive(Debug)]
pub(crate) struct Control {
    stream: UnixStream,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
}

impl Control {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Control> {
        stream.set_nonblocking(true)?;
        Ok(Control { stream, inbox: Vec::new(), outbox: Vec::new() })
    }

    /// Queues a message and sends as much as the connection takes; [`Control::flush`] sends the rest.
    pub(crate) fn send<T: Serialize>(&mut self, message: &T) -> Result<(), ControlError> {
        let at = self.outbox.len();
        self.outbox.extend_from_slice(&[0; 4]);
        self.outbox = postcard::to_extend(message, std::mem::take(&mut self.outbox))?;
        let len = self.outbox.len() - at - 4;
        if len > FRAME_BYTES_MAX {
            self.outbox.truncate(at);
            return Err(ControlError::TooLong { len });
        }
        self.outbox[at..at + 4].copy_from_slice(&(len as u32).to_le_bytes());
        self.flush()?;
        if self.outbox.len() > OUTBOX_BYTES_MAX {
            return Err(ControlError::NotRead { len: self.outbox.len() });
        }
        Ok(())
    }

    /// Sends queued bytes.
    pub(crate) fn flush(&mut self) -> Result<(), ControlError> {
        let mut sent = 0;
        while sent < self.outbox.len() {
            match (&self.stream).write(&self.outbox[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(as_control_error(error)),
            }
        }
        self.outbox.drain(..sent);
        Ok(())
    }

    /// Returns `true` if bytes are queued for [`Control::flush`].
    pub(crate) fn wants_to_write(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Returns the next message, or sends queued bytes if there is none.
    ///
    /// A connection that takes no more bytes may still have messages.
    pub(crate) fn receive_or_flush<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ControlError> {
        match self.receive()? {
            Some(message) => Ok(Some(message)),
            None => self.flush().map(|()| None),
        }
    }

    /// Returns the next message, if it has arrived completely.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ControlError> {
        let mut chunk = [0; 4096];
        loop {
            if let Some(message) = self.take_frame()? {
                return Ok(Some(message));
            }
            match (&self.stream).read(&mut chunk) {
                Ok(0) => return Err(ControlError::Closed),
                Ok(count) => self.inbox.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(as_control_error(error)),
            }
        }
    }

    fn take_frame<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ControlError> {
        let Some(len) = self.inbox.first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_le_bytes(*len) as usize;
        if len > FRAME_BYTES_MAX {
            return Err(ControlError::TooLong { len });
        }
        let Some(frame) = self.inbox.get(4..4 + len) else { return Ok(None) };
        let message = postcard::from_bytes(frame)?;
        self.inbox.drain(..4 + len);
        Ok(Some(message))
    }
}

impl Welcome {
    /// Returns a rank's configuration in a job without a launcher, with its stores in `checkpoints`.
    pub fn new(incarnation: u32, settings: RankSettings, checkpoints: std::path::PathBuf) -> Welcome {
        Welcome {
            incarnation,
            settings,
            program: Vec::new(),
            checkpoints,
            begun_with: None,
            peers: Vec::new(),
            kills: RankKills::default(),
        }
    }

    /// Returns the opaque description of the program to run.
    pub fn program(&self) -> &[u8] {
        &self.program
    }

    /// Returns the job's settings.
    pub fn settings(&self) -> &RankSettings {
        &self.settings
    }

    /// Returns the number of the rank's earlier processes.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Maps the errors on a connection to a dead process to [`ControlError::Closed`].
fn as_control_error(error: io::Error) -> ControlError {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ControlError::Closed,
        _ => ControlError::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Control, Control) {
        let (one, other) = UnixStream::pair().unwrap();
        (Control::new(one).unwrap(), Control::new(other).unwrap())
    }

    fn hello(rank: u32) -> ToLauncher {
        ToLauncher::Hello { rank, incarnation: 0, pid: 7 }
    }

    #[test]
    fn messages_arrive_in_order_and_then_none() {
        let (mut rank, mut launcher) = pair();
        (0..5).for_each(|number| rank.send(&hello(number)).unwrap());
        for number in 0..5 {
            assert_eq!(launcher.receive::<ToLauncher>().unwrap(), Some(hello(number)));
        }
        assert_eq!(launcher.receive::<ToLauncher>().unwrap(), None);
    }

    #[test]
    fn what_a_dead_process_has_sent_is_read_although_nothing_can_be_sent_to_it() {
        let (mut rank, mut launcher) = pair();
        rank.send(&hello(3)).unwrap();
        drop(rank);
        assert!(matches!(launcher.send(&ToRank::Finish), Err(ControlError::Closed)));
        assert_eq!(launcher.receive_or_flush::<ToLauncher>().unwrap(), Some(hello(3)));
        assert!(matches!(launcher.receive_or_flush::<ToLauncher>(), Err(ControlError::Closed)));
    }

    #[test]
    fn a_message_larger_than_the_socket_buffers_arrives_in_parts() {
        let (mut rank, mut launcher) = pair();
        let large = ToLauncher::Failed { error: "x".repeat(3 << 20) };
        rank.send(&large).unwrap();
        assert!(rank.wants_to_write());
        let received = loop {
            if let Some(message) = launcher.receive::<ToLauncher>().unwrap() {
                break message;
            }
            rank.flush().unwrap();
        };
        assert!(received == large && !rank.wants_to_write());
    }

    #[test]
    fn messages_before_the_close_are_received_before_the_close() {
        let (mut rank, mut launcher) = pair();
        rank.send(&hello(1)).unwrap();
        drop(rank);
        assert_eq!(launcher.receive::<ToLauncher>().unwrap(), Some(hello(1)));
        assert!(matches!(launcher.receive::<ToLauncher>(), Err(ControlError::Closed)));
        assert!(matches!(launcher.send(&ToRank::Finish), Err(ControlError::Closed)));
    }

    #[test]
    fn an_absurd_length_and_garbage_are_refused() {
        let (rank, mut launcher) = pair();
        (&rank.stream).write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert!(matches!(launcher.receive::<ToLauncher>(), Err(ControlError::TooLong { .. })));
        let (rank, mut launcher) = pair();
        (&rank.stream).write_all(&[1, 0, 0, 0, 0xff]).unwrap();
        assert!(matches!(launcher.receive::<ToLauncher>(), Err(ControlError::Malformed(_))));
    }
}
