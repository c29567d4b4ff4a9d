//! What the launcher and its ranks tell each other, and how it is framed.
//!
//! A frame is its length (u32, little-endian) and that many bytes of postcard. Both sides live on one machine and are
//! one program, so the messages need no version of their own; a length beyond [`FRAME_BYTES_MAX`] or bytes that don't
//! parse end the connection with an error.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::settings::RankSettings;
use crate::tally::Tally;

/// Longest frame, in bytes. The longest is a welcome, with the list of peers (at most 10 bytes each).
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 20;
/// Most bytes that may wait to be read by the other side before the connection is given up.
const OUTBOX_BYTES_MAX: usize = 2 * FRAME_BYTES_MAX;

/// What a rank tells the launcher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToLauncher {
    /// The first message: who has connected.
    Hello { rank: u32, incarnation: u32, pid: u32 },
    /// Iteration `n` begins.
    Iteration { n: u64, tally: Tally },
    /// The process has taken up the checkpoint that began `epoch`.
    Restored { epoch: u32 },
    /// A replacement has received all that its peers had sent to its predecessor.
    ReplayComplete,
    /// A replacement has sent at least what its peers had received from its predecessor.
    CaughtUp,
    /// A control message to the protocol's coordinator.
    ToCoordinator { body: Vec<u8> },
    /// The process ends, so that another goes on from the checkpoint that began `epoch`.
    GoingBack { epoch: u32, tally: Tally },
    /// The program has ended well; the process goes on serving its peers.
    Done { outcome: Vec<u8>, tally: Tally },
    /// The program or the runtime has failed; the process ends.
    Failed { error: String },
}

/// What the launcher tells a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToRank {
    /// The answer to Hello.
    Welcome(Box<Welcome>),
    /// A control message of the protocol's coordinator.
    Order { body: Vec<u8> },
    /// The kill that the recovery was held for has happened.
    Resume,
    /// Everybody is done: end.
    Finish,
}

/// All that a rank has to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Welcome {
    /// The limits and choices of the job.
    pub(crate) settings: RankSettings,
    /// What the program is to run: opaque here.
    pub(crate) program: Vec<u8>,
    /// Where this rank's checkpoints are.
    pub(crate) checkpoints: std::path::PathBuf,
    /// Who was welcomed before and lives, as (rank, incarnation): connect to these. Everybody else will connect.
    pub(crate) peers: Vec<(u32, u32)>,
    /// Iterations that this process may not leave alive, because a kill is planned in them.
    pub(crate) fatal_iterations: Vec<u64>,
    /// Don't finish recovering before [`ToRank::Resume`], because a kill is planned during the recovery.
    pub(crate) hold_recovery: bool,
}

/// Why a control connection is of no more use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The other side has ended.
    #[error("the control connection was closed by the other side")]
    Closed,
    /// The operating system said no.
    #[error("the control connection failed: {0}")]
    Io(#[from] io::Error),
    /// A frame longer than the limit.
    #[error("a control frame of {len} bytes, and the limit is {FRAME_BYTES_MAX}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// Bytes that aren't a message.
    #[error("a control frame that cannot be read: {0}")]
    Malformed(#[from] postcard::Error),
    /// The other side doesn't read.
    #[error("{len} bytes of control frames wait for the other side, and the limit is {OUTBOX_BYTES_MAX}")]
    NotRead {
        /// How many bytes wait.
        len: usize,
    },
}

/// One end of a control connection. Never blocks.
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

    /// Sends a message, or as much of it as the connection takes; [`Control::flush`] sends the rest.
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

    /// Sends what an earlier [`Control::send`] could not.
    pub(crate) fn flush(&mut self) -> Result<(), ControlError> {
        let mut sent = 0;
        while sent < self.outbox.len() {
            match (&self.stream).write(&self.outbox[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(closed_or(error)),
            }
        }
        self.outbox.drain(..sent);
        Ok(())
    }

    /// Whether [`Control::flush`] has something to do once the connection can be written to.
    pub(crate) fn wants_to_write(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// The next message, if a whole one has come.
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
                Err(error) => return Err(closed_or(error)),
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

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// A connection whose other end has died may say so in several ways.
fn closed_or(error: io::Error) -> ControlError {
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
    fn messages_come_in_order_and_then_none() {
        let (mut rank, mut launcher) = pair();
        (0..5).for_each(|number| rank.send(&hello(number)).unwrap());
        for number in 0..5 {
            assert_eq!(launcher.receive::<ToLauncher>().unwrap(), Some(hello(number)));
        }
        assert_eq!(launcher.receive::<ToLauncher>().unwrap(), None);
    }

    #[test]
    fn a_message_larger_than_the_sockets_buffers_comes_in_parts() {
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
    fn what_was_sent_before_the_end_is_received_before_the_end() {
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
