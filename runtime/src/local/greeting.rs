//! Greeting: the first bytes from each side of a connection between two ranks.

use std::os::fd::OwnedFd;

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;

const MAGIC: u32 = u32::from_le_bytes(*b"CFhi");
const HEADER_BYTES: usize = 16;
/// Longest hello of a protocol, in bytes.
const HELLO_BYTES_MAX: usize = 1 << 20;

/// The sender's identity, and its protocol's hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) rank: u32,
    pub(super) incarnation: u32,
    pub(super) hello: Bytes,
}

/// Reason why a connection is closed during the greeting.
#[derive(Debug, thiserror::Error)]
pub(super) enum GreetingError {
    #[error("closed before the greeting")]
    Closed,
    #[error("something else than a greeting")]
    Malformed,
    #[error("{0}")]
    Io(Errno),
}

impl Greeting {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.hello.len());
        for field in [MAGIC, self.rank, self.incarnation, self.hello.len() as u32] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&self.hello);
        bytes
    }
}

/// Reads a greeting incrementally.
#[derive(Debug, Default)]
pub(super) struct GreetingReader {
    inbox: Vec<u8>,
}

impl GreetingReader {
    /// Reads the available bytes; returns the greeting once it is complete.
    pub(super) fn read(&mut self, fd: &OwnedFd) -> Result<Option<Greeting>, GreetingError> {
        loop {
            if let Some(greeting) = self.take()? {
                return Ok(Some(greeting));
            }
            self.inbox.reserve(4096);
            match rustix::io::read(fd, spare_capacity(&mut self.inbox)) {
                Ok(0) | Err(Errno::CONNRESET) => return Err(GreetingError::Closed),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(GreetingError::Io(errno)),
            }
        }
    }

    /// Returns the bytes received after the greeting.
    pub(super) fn into_rest(self) -> Vec<u8> {
        self.inbox
    }

    fn take(&mut self) -> Result<Option<Greeting>, GreetingError> {
        let Some(header) = self.inbox.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let field = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (magic, rank, incarnation, len) = (field(0), field(4), field(8), field(12) as usize);
        if magic != MAGIC || len > HELLO_BYTES_MAX {
            return Err(GreetingError::Malformed);
        }
        let Some(hello) = self.inbox.get(HEADER_BYTES..HEADER_BYTES + len) else { return Ok(None) };
        let hello = Bytes::copy_from_slice(hello);
        self.inbox.drain(..HEADER_BYTES + len);
        Ok(Some(Greeting { rank, incarnation, hello }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn greeting() -> Greeting {
        Greeting { rank: 3, incarnation: 2, hello: "protocol".into() }
    }

    fn pair() -> (UnixStream, OwnedFd) {
        let (one, other) = UnixStream::pair().unwrap();
        other.set_nonblocking(true).unwrap();
        (one, other.into())
    }

    #[test]
    fn a_greeting_is_read_byte_by_byte_and_the_next_bytes_are_left() {
        let (mut one, other) = pair();
        let mut reader = GreetingReader::default();
        let bytes = greeting().encode();
        for byte in &bytes[..bytes.len() - 1] {
            one.write_all(&[*byte]).unwrap();
            assert_eq!(reader.read(&other).unwrap(), None);
        }
        one.write_all(&bytes[bytes.len() - 1..]).unwrap();
        one.write_all(b"next").unwrap();
        assert_eq!(reader.read(&other).unwrap(), Some(greeting()));
        assert_eq!(reader.into_rest(), b"next");
    }

    #[test]
    fn an_invalid_greeting_is_refused() {
        let (mut one, other) = pair();
        one.write_all(&[7; 16]).unwrap();
        assert!(matches!(GreetingReader::default().read(&other), Err(GreetingError::Malformed)));
        let (mut one, other) = pair();
        let mut bytes = greeting().encode();
        bytes[15] = 0x7f;
        one.write_all(&bytes).unwrap();
        assert!(matches!(GreetingReader::default().read(&other), Err(GreetingError::Malformed)));
        let (one, other) = pair();
        drop(one);
        assert!(matches!(GreetingReader::default().read(&other), Err(GreetingError::Closed)));
    }
}
