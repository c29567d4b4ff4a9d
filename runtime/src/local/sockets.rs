//! The transport between processes of one machine: Unix stream sockets and poll(2).
//!
//! Who connects to whom: a newcomer connects to everyone whom the launcher welcomed before it and who lives; later ones
//! connect to it. So each pair has exactly one caller, also when several ranks are replaced at the same time. If the
//! one called has died meanwhile the call fails, and its replacement will call.
//!
//! Each side first sends a greeting: magic u32, rank u32, incarnation u32, length u32 and the protocol's hello. The side
//! that was called greets only after it has heard the caller, so nothing that it says is older than the connection.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bytes::Bytes;
use counterfoil_ack_piggyback::WireHeader;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};

use super::connection::{Connection, ReadOutcome};
use super::control::{Control, ToLauncher, ToRank};
use super::greeting::{Greeting, GreetingReader};
use super::job::JobPaths;
use crate::transport::{Event, Interest, Report, Transport, TransportError};

/// A connection on which the other side has not greeted yet.
#[derive(Debug)]
struct Stranger {
    fd: OwnedFd,
    greeting: GreetingReader,
    /// Whom we called; `None` if we were called.
    called: Option<(u32, u32)>,
    /// What of our own greeting the connection has not taken yet.
    outbox: Vec<u8>,
}

#[derive(Debug, Default)]
struct Peer {
    /// The newest incarnation that has been met or called.
    incarnation: u32,
    connection: Option<Connection>,
}

/// What each entry of the poll set is.
#[derive(Clone, Copy)]
enum Source {
    Launcher,
    Listener,
    Stranger(usize),
    Peer(usize),
}

/// Connects one rank with its peers and its launcher.
#[derive(Debug)]
pub struct LocalTransport {
    rank: u32,
    incarnation: u32,
    paths: JobPaths,
    launcher: Control,
    listener: OwnedFd,
    strangers: Vec<Stranger>,
    peers: Vec<Peer>,
    events: VecDeque<Event>,
    frame_bytes_max: usize,
}

impl LocalTransport {
    /// Binds the socket at which this incarnation of `rank` listens.
    pub(super) fn listen(paths: &JobPaths, rank: u32, incarnation: u32) -> Result<OwnedFd, TransportError> {
        let path = paths.rank_socket(rank, incarnation);
        let failed = |errno: Errno| TransportError::Listen { path: path.clone(), source: errno.into() };
        let listener = unix_socket().map_err(failed)?;
        // Fails if something is there: the name is this incarnation's alone.
        bind(&listener, &SocketAddrUnix::new(&path).map_err(failed)?).map_err(failed)?;
        // As many as the system allows (it caps this): everybody may call at once.
        listen(&listener, i32::MAX).map_err(failed)?;
        Ok(listener)
    }

    /// A transport without peers. `frame_bytes_max`: the longest payload that a peer may send.
    ///
    /// What the launcher said right after its welcome may be read already, and is heard here.
    pub(super) fn new(
        (rank, incarnation): (u32, u32),
        ranks: u32,
        paths: JobPaths,
        launcher: Control,
        listener: OwnedFd,
        frame_bytes_max: usize,
    ) -> Result<LocalTransport, TransportError> {
        let peers = (0..ranks).map(|_| Peer::default()).collect();
        let (strangers, events) = (Vec::new(), VecDeque::new());
        let mut transport =
            LocalTransport { rank, incarnation, paths, launcher, listener, strangers, peers, events, frame_bytes_max };
        transport.read_launcher()?;
        Ok(transport)
    }

    /// Calls an incarnation of a peer and says `hello`. That nobody answers is no error.
    ///
    /// # Errors
    /// [`TransportError::Io`].
    pub fn call(&mut self, peer: u32, incarnation: u32, hello: &[u8]) -> Result<(), TransportError> {
        let failed = |errno: Errno| TransportError::Io { action: "call a peer", source: errno.into() };
        let fd = unix_socket().map_err(failed)?;
        let address = SocketAddrUnix::new(self.paths.rank_socket(peer, incarnation)).map_err(failed)?;
        loop {
            match connect(&fd, &address) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                // Its queue is full: it is alive and will come to accept.
                Err(Errno::AGAIN) => std::thread::sleep(Duration::from_millis(1)),
                // Dead: its replacement will call.
                Err(Errno::CONNREFUSED | Errno::NOENT) => return Ok(()),
                Err(errno) => return Err(failed(errno)),
            }
        }
        let outbox = Greeting { rank: self.rank, incarnation: self.incarnation, hello: hello.to_vec().into() }.encode();
        let called = Some((peer, incarnation));
        self.strangers.push(Stranger { fd, greeting: GreetingReader::default(), called, outbox });
        Ok(())
    }

    fn read_launcher(&mut self) -> Result<(), TransportError> {
        while let Some(message) = self.launcher.receive::<ToRank>().map_err(TransportError::Launcher)? {
            match message {
                ToRank::Order { body } => self.events.push_back(Event::Order { body }),
                ToRank::Resume => self.events.push_back(Event::Resume),
                ToRank::Finish => self.events.push_back(Event::Finish),
                // Only the first message is a welcome, and `join` has read it.
                ToRank::Welcome(_) => tracing::warn!("a second welcome is ignored"),
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<(), TransportError> {
        loop {
            match accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(fd) => {
                    let greeting = GreetingReader::default();
                    self.strangers.push(Stranger { fd, greeting, called: None, outbox: Vec::new() });
                    // Everybody may be replaced while nobody greets; more than that is nobody of this job.
                    if self.strangers.len() > 2 * self.peers.len() + 16 {
                        self.strangers.remove(0);
                    }
                }
                Err(Errno::WOULDBLOCK) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Err(TransportError::Io { action: "accept a peer", source: errno.into() }),
            }
        }
    }

    /// Goes on greeting. Gives the connection back as long as it is one of a stranger.
    fn hear_stranger(&mut self, mut stranger: Stranger) -> Result<Option<Stranger>, TransportError> {
        if !stranger.write() {
            return Ok(None);
        }
        let greeting = match stranger.greeting.read(&stranger.fd) {
            Ok(None) => return Ok(Some(stranger)),
            Ok(Some(greeting)) => greeting,
            Err(error) => {
                tracing::debug!(%error, "a connection is given up before it was greeted");
                return Ok(None);
            }
        };
        let Some(peer) = self.peers.get_mut(greeting.rank as usize) else { return Ok(None) };
        let expected = stranger.called.is_none_or(|called| called == (greeting.rank, greeting.incarnation));
        if !expected || greeting.rank == self.rank || greeting.incarnation < peer.incarnation {
            tracing::debug!(
                rank = greeting.rank,
                incarnation = greeting.incarnation,
                "nobody lives at this connection"
            );
            return Ok(None);
        }
        if peer.connection.take().is_some() {
            self.events.push_back(Event::Lost { peer: greeting.rank });
        }
        peer.incarnation = greeting.incarnation;
        self.events.push_back(Event::Met {
            peer: greeting.rank,
            incarnation: greeting.incarnation,
            hello: greeting.hello,
            answer: stranger.called.is_none(),
        });
        let mut connection = Connection::new(greeting.rank, stranger.fd, stranger.greeting.into_rest());
        let events = &mut self.events;
        let mut sink = |header, body| events.push_back(Event::Frame { peer: greeting.rank, header, body });
        connection.cut(self.frame_bytes_max, &mut sink)?;
        if stranger.called.is_some() {
            connection.greet(&stranger.outbox)?;
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
            self.events.push_back(Event::Lost { peer });
        }
        Ok(())
    }

    /// What to poll for, and what each entry is.
    fn poll_set<'a>(&'a self, interest: &Interest<'_>) -> (Vec<PollFd<'a>>, Vec<Source>) {
        let mut fds = Vec::with_capacity(2 + self.strangers.len() + self.peers.len());
        let mut sources = Vec::with_capacity(fds.capacity());
        let mut add = |fd: PollFd<'a>, source| {
            fds.push(fd);
            sources.push(source);
        };
        let writable = |wanted| if wanted { PollFlags::OUT } else { PollFlags::empty() };
        let launcher = PollFlags::IN | writable(self.launcher.wants_to_write());
        add(PollFd::from_borrowed_fd(self.launcher.as_fd(), launcher), Source::Launcher);
        add(PollFd::new(&self.listener, PollFlags::IN), Source::Listener);
        for (index, stranger) in self.strangers.iter().enumerate() {
            let flags = PollFlags::IN | writable(!stranger.outbox.is_empty());
            add(PollFd::new(&stranger.fd, flags), Source::Stranger(index));
        }
        for (rank, peer) in self.peers.iter().enumerate() {
            let Some(connection) = &peer.connection else { continue };
            let read = if interest.read[rank] { PollFlags::IN } else { PollFlags::empty() };
            let flags = read | writable(interest.write[rank] || connection.wants_to_write());
            add(PollFd::from_borrowed_fd(connection.as_fd(), flags), Source::Peer(rank));
        }
        (fds, sources)
    }
}

impl Stranger {
    /// Sends what is left of our greeting; `false` if nobody is there.
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
        // What has happened already is not waited for.
        let timeout = if self.events.is_empty() { interest.timeout } else { Some(Duration::ZERO) }.map(timespec);
        let (mut fds, sources) = self.poll_set(interest);
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(()),
            Ok(_) => {}
            Err(errno) => return Err(TransportError::Io { action: "poll", source: errno.into() }),
        }
        let ready: Vec<_> = fds.iter().zip(sources).map(|(fd, source)| (fd.revents(), source)).collect();
        let mut strangers_ready = vec![false; self.strangers.len()];
        for (flags, source) in ready {
            if flags.is_empty() {
                continue;
            }
            let readable = flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
            match source {
                Source::Launcher => {
                    self.launcher.flush().map_err(TransportError::Launcher)?;
                    self.read_launcher()?;
                }
                Source::Listener => self.accept()?,
                Source::Stranger(index) => strangers_ready[index] = true,
                Source::Peer(rank) => {
                    if let Some(connection) = &mut self.peers[rank].connection {
                        connection.flush()?;
                    }
                    // A peer that isn't read is read when it has died: only so its end is seen, and not polled for ever.
                    if readable {
                        self.read_peer(rank)?;
                    }
                }
            }
        }
        strangers_ready.resize(self.strangers.len(), true); // those just accepted
        for (stranger, ready) in std::mem::take(&mut self.strangers).into_iter().zip(strangers_ready) {
            let kept = if ready { self.hear_stranger(stranger)? } else { Some(stranger) };
            self.strangers.extend(kept);
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

    fn send_control(&mut self, peer: u32, header: &WireHeader, body: &[u8]) -> Result<(), TransportError> {
        match &mut self.peers[peer as usize].connection {
            Some(connection) => connection.send_control(header, body),
            None => Ok(()),
        }
    }

    fn send(&mut self, peer: u32, header: &WireHeader, payload: &[u8], offset: usize) -> Result<usize, TransportError> {
        match &mut self.peers[peer as usize].connection {
            Some(connection) => connection.send(header, payload, offset),
            None => Ok(0),
        }
    }

    fn report(&mut self, report: Report) -> Result<(), TransportError> {
        let message = match report {
            Report::Iteration { n, tally } => ToLauncher::Iteration { n, tally },
            Report::Restored { epoch } => ToLauncher::Restored { epoch },
            Report::ReplayComplete => ToLauncher::ReplayComplete,
            Report::CaughtUp => ToLauncher::CaughtUp,
            Report::ToCoordinator { body } => ToLauncher::ToCoordinator { body },
            Report::GoingBack { epoch, tally } => ToLauncher::GoingBack { epoch, tally },
            Report::Done { outcome, tally } => ToLauncher::Done { outcome, tally },
            Report::Failed { error } => ToLauncher::Failed { error },
        };
        self.launcher.send(&message).map_err(TransportError::Launcher)
    }
}

fn unix_socket() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

/// A duration as poll wants it.
pub(super) fn timespec(duration: Duration) -> Timespec {
    let tv_sec = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: i64::from(duration.subsec_nanos()) }
}
