//! Transport between processes on one machine: Unix stream sockets and poll(2).
//!
//! A new process connects to all live ranks welcomed by the launcher before it; later ones connect to it. So each pair
//! has exactly one connecting side, also when several ranks are replaced at the same time. If the other side has died,
//! the connect fails, and its replacement will connect.
//!
//! Each side first sends a greeting: magic u32, rank u32, incarnation u32, length u32 and the protocol's hello. The
//! accepting side sends its greeting after it has received the other one, so its hello is never older than the
//! connection.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bytes::Bytes;
use counterfoil_ack_piggyback::WireHeader;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with};

use super::connection::{Connection, ReadOutcome};
use super::greeting::{Greeting, GreetingReader};
use super::job::JobPaths;
use super::launcher_connection::LauncherConnection;
use super::timeout::timespec;
use crate::transport::{Event, Interest, Report, Transport, TransportError};

/// Connection without the other side's complete greeting.
#[derive(Debug)]
struct Handshake {
    fd: OwnedFd,
    greeting: GreetingReader,
    /// Rank and incarnation to which this side connected; `None` if it accepted the connection.
    connected_to: Option<(u32, u32)>,
    /// Unsent rest of this side's greeting.
    outbox: Vec<u8>,
}

#[derive(Debug, Default)]
struct Peer {
    /// Newest connected incarnation.
    incarnation: u32,
    connection: Option<Connection>,
}

/// Source of a poll set entry.
#[derive(Clone, Copy)]
enum Source {
    Launcher,
    Listener,
    Handshake(usize),
    Peer(usize),
}

/// One rank's connections to its peers and its launcher.
#[derive(Debug)]
pub struct LocalTransport {
    rank: u32,
    incarnation: u32,
    paths: JobPaths,
    launcher: LauncherConnection,
    listener: OwnedFd,
    handshakes: Vec<Handshake>,
    peers: Vec<Peer>,
    events: VecDeque<Event>,
    frame_bytes_max: usize,
}

impl LocalTransport {
    /// Binds the socket on which this incarnation of `rank` listens.
    pub(super) fn listen(paths: &JobPaths, rank: u32, incarnation: u32) -> io::Result<OwnedFd> {
        let listener = unix_socket()?;
        // Fails if the path exists: no other incarnation uses it.
        bind(&listener, &SocketAddrUnix::new(paths.rank_socket(rank, incarnation))?)?;
        // The system's maximum (it caps this): all peers may connect at once.
        listen(&listener, i32::MAX)?;
        Ok(listener)
    }

    /// Makes a transport without peers.
    ///
    /// `frame_bytes_max`: longest payload in a peer's frame.
    ///
    /// Handles launcher messages that arrived together with its welcome.
    pub(super) fn new(
        (rank, incarnation): (u32, u32),
        ranks: u32,
        paths: JobPaths,
        launcher: LauncherConnection,
        listener: OwnedFd,
        frame_bytes_max: usize,
    ) -> Result<LocalTransport, TransportError> {
        let peers = (0..ranks).map(|_| Peer::default()).collect();
        let (handshakes, events) = (Vec::new(), VecDeque::new());
        let mut transport =
            LocalTransport { rank, incarnation, paths, launcher, listener, handshakes, peers, events, frame_bytes_max };
        transport.launcher.poll(&mut transport.events)?;
        Ok(transport)
    }

    /// Connects to a peer's incarnation and sends `hello`.
    ///
    /// Succeeds if that incarnation is dead.
    ///
    /// # Errors
    /// [`TransportError::Io`].
    pub fn connect(&mut self, peer: u32, incarnation: u32, hello: &[u8]) -> Result<(), TransportError> {
        let failed = |errno: Errno| TransportError::Io { action: "connect to a peer", source: errno.into() };
        let fd = unix_socket().map_err(failed)?;
        let address = SocketAddrUnix::new(self.paths.rank_socket(peer, incarnation)).map_err(failed)?;
        loop {
            match rustix::net::connect(&fd, &address) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                // The peer's accept queue is full: it is alive and will accept.
                Err(Errno::AGAIN) => std::thread::sleep(Duration::from_millis(1)),
                // Dead: its replacement will connect.
                Err(Errno::CONNREFUSED | Errno::NOENT) => return Ok(()),
                Err(errno) => return Err(failed(errno)),
            }
        }
        let outbox = Greeting { rank: self.rank, incarnation: self.incarnation, hello: hello.to_vec().into() }.encode();
        let connected_to = Some((peer, incarnation));
        self.handshakes.push(Handshake { fd, greeting: GreetingReader::default(), connected_to, outbox });
        Ok(())
    }

    fn accept(&mut self) -> Result<(), TransportError> {
        loop {
            match accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(fd) => {
                    let greeting = GreetingReader::default();
                    self.handshakes.push(Handshake { fd, greeting, connected_to: None, outbox: Vec::new() });
                    // All peers may be replaced during their greetings; more connections are not from this job.
                    if self.handshakes.len() > 2 * self.peers.len() + 16 {
                        self.handshakes.remove(0);
                    }
                }
                Err(Errno::WOULDBLOCK) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Err(TransportError::Io { action: "accept a peer", source: errno.into() }),
            }
        }
    }

    /// Continues a handshake.
    ///
    /// Returns it unless it is complete or has failed.
    fn advance_handshake(&mut self, mut handshake: Handshake) -> Result<Option<Handshake>, TransportError> {
        if !handshake.write() {
            return Ok(None);
        }
        let greeting = match handshake.greeting.read(&handshake.fd) {
            Ok(None) => return Ok(Some(handshake)),
            Ok(Some(greeting)) => greeting,
            Err(error) => {
                tracing::debug!(%error, "a connection failed during the greeting");
                return Ok(None);
            }
        };
        let Some(peer) = self.peers.get_mut(greeting.rank as usize) else { return Ok(None) };
        let expected = handshake.connected_to.is_none_or(|expected| expected == (greeting.rank, greeting.incarnation));
        if !expected || greeting.rank == self.rank || greeting.incarnation < peer.incarnation {
            tracing::debug!(
                rank = greeting.rank,
                incarnation = greeting.incarnation,
                "a greeting of a dead or unexpected incarnation is ignored"
            );
            return Ok(None);
        }
        if peer.connection.take().is_some() {
            self.events.push_back(Event::Disconnected { peer: greeting.rank });
        }
        peer.incarnation = greeting.incarnation;
        self.events.push_back(Event::Connected {
            peer: greeting.rank,
            incarnation: greeting.incarnation,
            hello: greeting.hello,
            answer: handshake.connected_to.is_none(),
        });
        let mut connection = Connection::new(greeting.rank, handshake.fd, handshake.greeting.into_rest());
        let events = &mut self.events;
        let mut sink = |header, body| events.push_back(Event::Frame { peer: greeting.rank, header, body });
        connection.split_frames(self.frame_bytes_max, &mut sink)?;
        if handshake.connected_to.is_some() {
            connection.greet(&handshake.outbox)?;
        }
        peer.connection = Some(connection);
        Ok(None)
    }

    fn read_peer(&mut self, rank: usize) -> Result<(), TransportError> {
        let Some(connection) = &mut self.peers[rank].connection else { return Ok(()) };
        let (peer, events) = (rank as u32, &mut self.events);
        let mut sink = |header, body| events.push_back(Event::Frame { peer, header, body });
        if connection.read(self.frame_bytes_max, &mut sink)? == ReadOutcome::Closed {
            self.peers[rank].connection = None;
            self.events.push_back(Event::Disconnected { peer });
        }
        Ok(())
    }

    /// Builds the poll set, with each entry's source.
    fn poll_set<'a>(&'a self, interest: &Interest<'_>) -> (Vec<PollFd<'a>>, Vec<Source>) {
        let mut fds = Vec::with_capacity(2 + self.handshakes.len() + self.peers.len());
        let mut sources = Vec::with_capacity(fds.capacity());
        let mut add = |fd: PollFd<'a>, source| {
            fds.push(fd);
            sources.push(source);
        };
        let writable = |wanted| if wanted { PollFlags::OUT } else { PollFlags::empty() };
        let launcher = PollFlags::IN | writable(self.launcher.wants_to_write());
        add(PollFd::from_borrowed_fd(self.launcher.as_fd(), launcher), Source::Launcher);
        add(PollFd::new(&self.listener, PollFlags::IN), Source::Listener);
        for (index, handshake) in self.handshakes.iter().enumerate() {
            let flags = PollFlags::IN | writable(!handshake.outbox.is_empty());
            add(PollFd::new(&handshake.fd, flags), Source::Handshake(index));
        }
        for (rank, peer) in self.peers.iter().enumerate() {
            let Some(connection) = &peer.connection else { continue };
            let read = if interest.reads(rank as u32) { PollFlags::IN } else { PollFlags::empty() };
            let flags = read | writable(interest.writes(rank as u32) || connection.wants_to_write());
            add(PollFd::from_borrowed_fd(connection.as_fd(), flags), Source::Peer(rank));
        }
        (fds, sources)
    }
}

impl Handshake {
    /// Sends the rest of this side's greeting; returns `false` if the connection has failed.
    fn write(&mut self) -> bool {
        while !self.outbox.is_empty() {
            match rustix::net::send(&self.fd, &self.outbox, rustix::net::SendFlags::NOSIGNAL) {
                Ok(count) => drop(self.outbox.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => break,
                Err(_) => return false,
            }
        }
        true
    }
}

impl Transport for LocalTransport {
    fn poll(&mut self, interest: &Interest<'_>) -> Result<(), TransportError> {
        // Don't wait while events are queued.
        let timeout = if self.events.is_empty() { interest.timeout } else { Some(Duration::ZERO) }.map(timespec);
        let (mut fds, sources) = self.poll_set(interest);
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(()),
            Ok(_) => {}
            Err(errno) => return Err(TransportError::Io { action: "poll", source: errno.into() }),
        }
        let ready: Vec<_> = fds.iter().zip(sources).map(|(fd, source)| (fd.revents(), source)).collect();
        let mut handshakes_ready = vec![false; self.handshakes.len()];
        for (flags, source) in ready {
            if flags.is_empty() {
                continue;
            }
            let readable = flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
            match source {
                Source::Launcher => self.launcher.poll(&mut self.events)?,
                Source::Listener => self.accept()?,
                Source::Handshake(index) => handshakes_ready[index] = true,
                Source::Peer(rank) => {
                    if let Some(connection) = &mut self.peers[rank].connection {
                        connection.flush()?;
                    }
                    // A dead peer is read even if reads are paused: else poll would report its hangup for ever.
                    if readable {
                        self.read_peer(rank)?;
                    }
                }
            }
        }
        handshakes_ready.resize(self.handshakes.len(), true); // those just accepted
        for (handshake, ready) in std::mem::take(&mut self.handshakes).into_iter().zip(handshakes_ready) {
            let kept = if ready { self.advance_handshake(handshake)? } else { Some(handshake) };
            self.handshakes.extend(kept);
        }
        Ok(())
    }

    fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn is_connected(&self, peer: u32) -> bool {
        self.peers[peer as usize].connection.is_some()
    }

    fn greet(&mut self, peer: u32, incarnation: u32, hello: &[u8]) -> Result<(), TransportError> {
        let greeting =
            Greeting { rank: self.rank, incarnation: self.incarnation, hello: Bytes::copy_from_slice(hello) };
        let peer = &mut self.peers[peer as usize];
        match &mut peer.connection {
            Some(connection) if peer.incarnation == incarnation => connection.greet(&greeting.encode()),
            _ => Ok(()),
        }
    }

    fn disconnect(&mut self, peer: u32) {
        self.peers[peer as usize].connection = None;
    }

    fn has_room(&self, peer: u32) -> bool {
        self.peers[peer as usize].connection.as_ref().is_none_or(|connection| !connection.wants_to_write())
    }

    fn send_control(&mut self, peer: u32, header: &WireHeader, body: &[&[u8]]) -> Result<(), TransportError> {
        match &mut self.peers[peer as usize].connection {
            Some(connection) => connection.send_control(header, body),
            None => Ok(()),
        }
    }

    fn send_record(
        &mut self,
        peer: u32,
        header: &WireHeader,
        payload: &[u8],
        offset: usize,
    ) -> Result<usize, TransportError> {
        match &mut self.peers[peer as usize].connection {
            Some(connection) => connection.send_record(header, payload, offset),
            None => Ok(0),
        }
    }

    fn report(&mut self, report: Report) -> Result<(), TransportError> {
        self.launcher.report(report)
    }
}

fn unix_socket() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}
