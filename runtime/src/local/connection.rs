//! Non-blocking connection to one peer: receives and sends frames.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytes::{Buf, Bytes, BytesMut};
use counterfoil_ack_piggyback::WireHeader;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};

use crate::transport::TransportError;

/// Maximum bytes in one read, except within a large frame: bounds the events in one poll.
const READ_BYTES: usize = 64 << 10;
/// Maximum bytes in control frames queued for a peer that doesn't read.
const CONTROL_BYTES_MAX: usize = 4 << 20;

/// Result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    /// The connection is open; bytes may have arrived.
    Open,
    /// The peer has closed the connection.
    Closed,
}

/// Frame longer than one read, received straight into its buffer.
#[derive(Debug)]
struct LargeFrame {
    header: WireHeader,
    body: Vec<u8>,
    missing: usize,
}

/// Established connection: both sides know each other's identity.
#[derive(Debug)]
pub(super) struct Connection {
    peer: u32,
    fd: OwnedFd,
    /// Bytes read and not yet split into frames; less than one frame between calls.
    inbox: Vec<u8>,
    large: Option<LargeFrame>,
    /// Queued control frames.
    outbox: BytesMut,
    /// [`Connection::send`] has sent a partial frame.
    mid_frame: bool,
    /// The greeting was queued.
    ///
    /// It must be the first thing the peer gets: nothing is sent before.
    is_greeted: bool,
}

impl Connection {
    /// Takes over a connected, non-blocking socket and the bytes read from it after the peer's greeting.
    pub(super) fn new(peer: u32, fd: OwnedFd, inbox: Vec<u8>) -> Connection {
        Connection { peer, fd, inbox, large: None, outbox: BytesMut::new(), mid_frame: false, is_greeted: false }
    }

    /// Returns `true` if control frames are queued.
    pub(super) fn wants_to_write(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Reads once and passes every complete frame to `sink`.
    pub(super) fn read(
        &mut self,
        frame_bytes_max: usize,
        sink: &mut dyn FnMut(WireHeader, Bytes),
    ) -> Result<ReadOutcome, TransportError> {
        let result = match &mut self.large {
            Some(large) => rustix::io::read(&self.fd, spare_capacity(&mut large.body)),
            None => {
                self.inbox.reserve(READ_BYTES);
                rustix::io::read(&self.fd, spare_capacity(&mut self.inbox))
            }
        };
        match result {
            Ok(0) => return Ok(ReadOutcome::Closed),
            Ok(count) => {
                if let Some(large) = &mut self.large {
                    // The buffer may have more capacity than requested.
                    let beyond = count.saturating_sub(large.missing);
                    large.missing -= count - beyond;
                    let end = large.body.len() - beyond;
                    self.inbox.extend(large.body.drain(end..));
                }
            }
            Err(Errno::INTR | Errno::WOULDBLOCK) => return Ok(ReadOutcome::Open),
            Err(Errno::CONNRESET | Errno::PIPE) => return Ok(ReadOutcome::Closed),
            Err(errno) => return Err(TransportError::Io { action: "read from a peer", source: errno.into() }),
        }
        self.split_frames(frame_bytes_max, sink)?;
        Ok(ReadOutcome::Open)
    }

    /// Splits the inbox into frames and passes complete ones to `sink`.
    ///
    /// Also for bytes that arrived with the greeting.
    pub(super) fn split_frames(
        &mut self,
        frame_bytes_max: usize,
        sink: &mut dyn FnMut(WireHeader, Bytes),
    ) -> Result<(), TransportError> {
        if let Some(large) = self.large.take_if(|large| large.missing == 0) {
            sink(large.header, Bytes::from(large.body));
        }
        if self.large.is_some() {
            return Ok(());
        }
        let mut at = 0;
        while self.inbox.len() - at >= WireHeader::LEN {
            let peer = self.peer;
            let header =
                *WireHeader::parse(&self.inbox[at..]).map_err(|source| TransportError::Header { peer, source })?;
            let len = usize::try_from(header.payload_len()).ok().filter(|&len| len <= frame_bytes_max);
            let len =
                len.ok_or(TransportError::FrameTooLong { peer, len: header.payload_len(), max: frame_bytes_max })?;
            let body_at = at + WireHeader::LEN;
            match self.inbox.get(body_at..body_at + len) {
                Some(body) => {
                    sink(header, Bytes::copy_from_slice(body));
                    at = body_at + len;
                }
                // The next read can complete it in the inbox.
                None if len <= READ_BYTES => break,
                None => {
                    let mut body = Vec::with_capacity(len);
                    body.extend_from_slice(&self.inbox[body_at..]);
                    at = self.inbox.len();
                    self.large = Some(LargeFrame { header, missing: len - body.len(), body });
                    break;
                }
            }
        }
        self.inbox.drain(..at);
        Ok(())
    }

    /// Queues a control frame and sends as much as the connection takes.
    ///
    /// A frame before the greeting was meant for the previous incarnation, and is dropped.
    pub(super) fn send_control(&mut self, header: &WireHeader, body: &[&[u8]]) -> Result<(), TransportError> {
        if !self.is_greeted {
            return Ok(());
        }
        let len = self.outbox.len();
        if len > CONTROL_BYTES_MAX {
            return Err(TransportError::NotRead { peer: self.peer, len, max: CONTROL_BYTES_MAX });
        }
        self.outbox.extend_from_slice(header.as_bytes());
        body.iter().for_each(|part| self.outbox.extend_from_slice(part));
        self.flush()
    }

    /// Queues the greeting (or its unsent rest), which is no frame.
    ///
    /// Frames may be sent afterwards.
    pub(super) fn greet(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        self.is_greeted = true;
        self.outbox.extend_from_slice(bytes);
        self.flush()
    }

    /// Sends queued control frames, unless another frame is partly sent.
    pub(super) fn flush(&mut self) -> Result<(), TransportError> {
        if self.mid_frame {
            return Ok(());
        }
        while !self.outbox.is_empty() {
            match bytes_written(send(&self.fd, &self.outbox, SendFlags::NOSIGNAL))? {
                0 => break,
                // The unsent rest stays in place: a frame may be much longer than one call takes.
                count => self.outbox.advance(count),
            }
        }
        Ok(())
    }

    /// See [`Transport::send_record`](crate::transport::Transport::send_record).
    pub(super) fn send_record(
        &mut self,
        header: &WireHeader,
        payload: &[u8],
        offset: usize,
    ) -> Result<usize, TransportError> {
        if !self.is_greeted {
            return Ok(0);
        }
        if offset == 0 {
            self.mid_frame = false;
            self.flush()?;
            if !self.outbox.is_empty() {
                return Ok(0);
            }
        }
        let header = header.as_bytes();
        let total = header.len() + payload.len();
        let rest_of_header = header.get(offset..).unwrap_or(&[]);
        let rest_of_payload = &payload[offset.saturating_sub(header.len())..];
        // The payload is sent straight from the log: header and payload are not joined in a buffer.
        let parts = [IoSlice::new(rest_of_header), IoSlice::new(rest_of_payload)];
        let parts = if rest_of_header.is_empty() { &parts[1..] } else { &parts[..] };
        let count = bytes_written(sendmsg(&self.fd, parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL))?;
        self.mid_frame = offset + count < total && offset + count > 0;
        Ok(count)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns the number of bytes written: 0 if the peer has died, which the next read detects.
fn bytes_written(result: rustix::io::Result<usize>) -> Result<usize, TransportError> {
    match result {
        Ok(count) => Ok(count),
        Err(Errno::INTR | Errno::WOULDBLOCK | Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Ok(0),
        Err(errno) => Err(TransportError::Io { action: "write to a peer", source: io::Error::from(errno) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use counterfoil::{Envelope, Rank, Ssn};
    use counterfoil_ack_piggyback::{AckPolicy, Origin, SendWindow};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn pair() -> (Connection, Connection) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let (mut one, mut other) = (Connection::new(1, one, Vec::new()), Connection::new(0, other, Vec::new()));
        one.greet(&[]).unwrap();
        other.greet(&[]).unwrap();
        (one, other)
    }

    fn header(window: &mut SendWindow, len: usize) -> WireHeader {
        let envelope = Envelope { source: Rank(0), destination: Rank(1), tag: 3, comm: 0, len: len as u64 };
        WireHeader::message(&envelope, window.stamp(len).unwrap(), Origin::default(), None)
    }

    fn payload(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + len) as u8).collect()
    }

    #[test]
    fn frames_of_all_sizes_arrive_complete_and_in_order() {
        let (mut sender, mut receiver) = pair();
        let mut window = SendWindow::new(AckPolicy::default());
        let sizes = [0, 1, 63, 64, 65, 4096, READ_BYTES - 64, READ_BYTES, READ_BYTES + 1, 1 << 20, 3, 2 << 20, 0];
        let mut received = Vec::new();
        let mut pump = |receiver: &mut Connection| {
            let mut sink = |header: WireHeader, body: Bytes| received.push((header.ssn(), body));
            while receiver.read(4 << 20, &mut sink).unwrap() == ReadOutcome::Open {
                if received_all(receiver) {
                    break;
                }
            }
        };
        // An additional read that would block has no effect.
        fn received_all(receiver: &Connection) -> bool {
            rustix::io::ioctl_fionread(&receiver.fd).unwrap() == 0
        }
        for (number, &size) in sizes.iter().enumerate() {
            let (header, payload) = (header(&mut window, size), payload(size));
            let mut offset = 0;
            while offset < WireHeader::LEN + size {
                offset += sender.send_record(&header, &payload, offset).unwrap();
                pump(&mut receiver);
            }
            let _ = number;
        }
        drop(sender);
        assert_eq!(receiver.read(4 << 20, &mut |_, _| ()).unwrap(), ReadOutcome::Closed);
        let expected: Vec<_> = (1..).map(Ssn).zip(sizes.iter().map(|&size| Bytes::from(payload(size)))).collect();
        assert!(received == expected);
    }

    #[test]
    fn a_control_frame_never_interrupts_another_frame() {
        let (mut sender, mut receiver) = pair();
        let mut window = SendWindow::new(AckPolicy::default());
        let large = payload(1 << 20);
        let header = header(&mut window, large.len());
        let mut offset = sender.send_record(&header, &large, 0).unwrap();
        assert!(offset < large.len());
        let control = WireHeader::control(Rank(0), Rank(1), Origin::default(), 9, 4, None);
        sender.send_control(&control, &[b"bo", b"dy"]).unwrap();
        assert!(sender.wants_to_write());
        let mut kinds = Vec::new();
        while kinds.len() < 2 {
            let mut sink = |header: WireHeader, body: Bytes| kinds.push((header.kind(), body.len()));
            receiver.read(4 << 20, &mut sink).unwrap();
            if offset < WireHeader::LEN + large.len() {
                offset += sender.send_record(&header, &large, offset).unwrap();
            } else {
                sender.flush().unwrap();
            }
        }
        use counterfoil_ack_piggyback::Kind;
        assert_eq!(kinds, [(Kind::Message, large.len()), (Kind::Control, 4)]);
    }

    #[test]
    fn control_frames_longer_than_the_socket_takes_leave_in_parts_and_in_order() {
        let (mut sender, mut receiver) = pair();
        let bodies = [1 << 20, 3, 2 << 20, 0].map(payload);
        for (tag, body) in (0..).zip(&bodies) {
            let header = WireHeader::control(Rank(0), Rank(1), Origin::default(), tag, body.len() as u64, None);
            sender.send_control(&header, &[&body[..body.len() / 3], &body[body.len() / 3..]]).unwrap();
            assert!(sender.wants_to_write(), "the socket took {} bytes at once", body.len());
        }
        let mut received = Vec::new();
        while received.len() < bodies.len() {
            receiver.read(4 << 20, &mut |header, body| received.push((header.tag(), body))).unwrap();
            sender.flush().unwrap();
        }
        assert!(!sender.wants_to_write());
        let expected: Vec<_> = (0..).zip(bodies.map(Bytes::from)).collect();
        assert!(received == expected);
    }

    #[test]
    fn garbage_and_absurd_lengths_are_refused() {
        let (mut sender, mut receiver) = pair();
        sender.greet(&[0x5a; 200]).unwrap();
        let error = receiver.read(1 << 20, &mut |_, _| ()).unwrap_err();
        assert!(matches!(error, TransportError::Header { .. }), "{error}");
        let (mut sender, mut receiver) = pair();
        let header = header(&mut SendWindow::new(AckPolicy::default()), 2 << 20);
        sender.greet(header.as_bytes()).unwrap();
        let error = receiver.read(1 << 20, &mut |_, _| ()).unwrap_err();
        assert!(matches!(error, TransportError::FrameTooLong { .. }), "{error}");
    }

    #[test]
    fn a_dead_peer_takes_nothing_and_is_no_error() {
        let (mut sender, receiver) = pair();
        drop(receiver);
        let header = header(&mut SendWindow::new(AckPolicy::default()), 3);
        assert_eq!(sender.send_record(&header, b"abc", 0).unwrap(), 0);
        assert_eq!(sender.read(1 << 20, &mut |_, _| ()).unwrap(), ReadOutcome::Closed);
    }
}
