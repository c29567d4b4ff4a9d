//! The runtime's transport between the ranks of an MPI job.
//!
//! It moves the same frames as the transport between local processes, under the same endpoint and protocols. A frame is
//! one message [wire header | payload] on a communicator with all processes, kept in order between two processes by
//! MPI. Reports and orders go over a socket to the launcher.
//!
//! A connection is between an incarnation of this rank and one of a peer. It is established by two hellos, each with
//! the sender's incarnation and the receiver's as known to the sender: a hello for another incarnation only tells its
//! receiver to send a new one. Frames arriving without a connection are dropped. This is enough, because needed
//! messages are sent again from the log.
//!
//! After a process failure ([`Membership`]) a dead rank has another process. Only connections with this rank begin
//! again; connections between survivors go on, on the same communicator.

mod buffers;
mod idle;
mod launcher;
mod notice;
mod peer;
mod ranks;
mod repair;
mod spare;
mod supervisor;

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use bytes::Bytes;
use counterfoil_ack_piggyback::WireHeader;
use counterfoil_mpi_core::comm::{Matched, Sending};
use counterfoil_mpi_core::error::MpiError;
use counterfoil_mpi_core::ulfm::Meeting;
use counterfoil_protocols::api::Coordinator;
use counterfoil_runtime::local::{LauncherConnection, RecoveryClock, RecoveryTimes, Welcome};
use counterfoil_runtime::transport::{Event, Interest, Report, Transport, TransportError};

use crate::membership::{Membership, MembershipError};
use buffers::Buffers;
use idle::Idle;
use peer::{IN_FLIGHT_BYTES_MAX, Peer};
use ranks::Ranks;
use repair::unrepaired;
use supervisor::Supervisor;

pub use spare::SpareProcess;
pub(crate) use spare::wait_without_launcher;

/// Tag of a frame.
const FRAME: i32 = 0;
/// Tag of a hello: sender's incarnation u32, receiver's incarnation u32, the protocol's hello.
const HELLO: i32 = 1;
/// Tag of a message to a spare, without a launcher: the vote's number, u32.
const VOTE: i32 = 2;
/// Tag of an empty credit message: the sender has taken `FRAMES_PER_CREDIT` frames from the receiver.
const CREDIT: i32 = 3;
/// Bytes of a hello before the protocol's.
const HELLO_LEN: usize = 8;

/// Limit of control frames queued for one peer, in bytes.
const CONTROL_BYTES_MAX: usize = 12 << 20;
/// Limit of messages per poll, unless it waits for one: the awaited one is handled first.
const MESSAGES_PER_POLL: usize = 64;
/// Message bytes after which a poll takes no further message: more would leave the cache before their use.
const BYTES_PER_POLL: usize = 16 << 10;
/// Polls per system call for launcher messages.
const POLLS_PER_LAUNCHER_POLL: u32 = 64;

/// One rank's connections to its peers and its launcher.
#[derive(Debug)]
pub struct MpiTransport {
    rank: u32,
    incarnation: u32,
    supervisor: Box<dyn Supervisor>,
    membership: Membership,
    peers: Vec<Peer>,
    events: VecDeque<Event>,
    /// Frame memory.
    buffers: Buffers,
    /// Messages calling spares to a vote, without a launcher.
    sent_to_spares: Vec<Sending>,
    frame_bytes_max: usize,
    /// True if the launcher's orders report lost ranks, since MPI doesn't.
    restarts_job: bool,
    /// First MPI error under such a rule, and its time.
    failure: Option<(Instant, TransportError)>,
    /// Polls since the last supervisor poll.
    polls: u32,
    /// True if the others have ended the job before this rank was done.
    came_too_late: bool,
    /// Steps of this process in replacing another one, in a job without a launcher.
    recovery: Option<RecoveryClock>,
}

impl MpiTransport {
    /// Makes this process its rank in `membership`: tells the launcher, and returns the transport and the launcher's
    /// welcome.
    ///
    /// Returns `None` if the job has ended, after all processes have met.
    ///
    /// # Errors
    /// [`TransportError`].
    pub fn join(
        launcher: LauncherConnection,
        membership: Membership,
    ) -> Result<Option<(MpiTransport, Welcome)>, TransportError> {
        let mut transport = MpiTransport::new(|_| Box::new(launcher), membership)?;
        match transport.rejoin()? {
            Some(welcome) => Ok(Some((transport, welcome))),
            None => transport.close().map(|()| None),
        }
    }

    /// Makes this process its rank in `membership` in a job without a launcher: the ranks agree among themselves on the
    /// job's end.
    ///
    /// Frames are limited to `frame_bytes_max` bytes. `coordinator` is the rule's, and runs in rank 0's process: it is
    /// lost with this process.
    ///
    /// # Errors
    /// [`TransportError`].
    pub fn without_launcher(
        membership: Membership,
        frame_bytes_max: usize,
        coordinator: Option<Box<dyn Coordinator>>,
    ) -> Result<MpiTransport, TransportError> {
        let ranks = membership.ranks();
        let mut transport = MpiTransport::new(|rank| Box::new(Ranks::new(rank, ranks, coordinator)), membership)?;
        transport.incarnation = transport.membership.incarnation_of(transport.rank);
        if transport.incarnation > 0 {
            // A restarted job has repaired nothing.
            let repair = transport.membership.last_repair();
            let noticed = repair.map_or_else(Instant::now, |(begun, _)| begun);
            let joined = repair.map(|(_, ended)| ended);
            transport.recovery = Some(RecoveryClock { joined, ..RecoveryClock::new(None, noticed) });
        }
        transport.frame_bytes_max = frame_bytes_max;
        transport.announce_peers();
        Ok(transport)
    }

    /// Makes this process its rank; `supervise` makes the rank's supervisor.
    fn new(
        supervise: impl FnOnce(u32) -> Box<dyn Supervisor>,
        membership: Membership,
    ) -> Result<MpiTransport, TransportError> {
        let (ranks, rank) = (membership.ranks(), membership.rank());
        let no_rank =
            || TransportError::Io { action: "become a rank", source: io::Error::other(MembershipError::NoRank) };
        let rank = rank.ok_or_else(no_rank)?;
        Ok(MpiTransport {
            rank,
            incarnation: 0,
            supervisor: supervise(rank),
            membership,
            peers: (0..ranks).map(|_| Peer::default()).collect(),
            events: VecDeque::new(),
            buffers: Buffers::default(),
            sent_to_spares: Vec::new(),
            frame_bytes_max: 0,
            restarts_job: false,
            failure: None,
            polls: 0,
            came_too_late: false,
            recovery: None,
        })
    }

    /// Returns the rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Notes that the rank has its log.
    pub(crate) fn note_started(&mut self) {
        if let Some(clock) = &mut self.recovery {
            clock.started = Some(Instant::now());
        }
    }

    /// Returns the step durations so far of this process's replacement of another one, in a job without a launcher.
    pub fn recovery_times(&self) -> RecoveryTimes {
        self.recovery.as_ref().map(RecoveryClock::times).unwrap_or_default()
    }

    /// Returns the number of times the rank was replaced.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Returns `true` if the other ranks have ended a job without a launcher before this one was done: this process has
    /// replaced a rank that died after being done.
    pub(crate) fn came_too_late(&self) -> bool {
        self.came_too_late
    }

    /// Begins the rank's next execution, after a rollback, in this process.
    ///
    /// Returns `None` if the job has ended.
    ///
    /// # Errors
    /// [`TransportError::Launcher`]; without a launcher, ranks can't roll back.
    pub fn rejoin(&mut self) -> Result<Option<Welcome>, TransportError> {
        let Some(welcome) = self.supervisor.join(self.rank)? else { return Ok(None) };
        self.incarnation = welcome.incarnation();
        self.frame_bytes_max = welcome.settings().log_bytes_max;
        self.restarts_job = welcome.settings().rule.properties.restarts_job;
        self.events.clear();
        self.peers.iter_mut().for_each(|peer| _ = peer.disconnect());
        self.announce_peers();
        Ok(Some(welcome))
    }

    /// Ends the traffic: returns after all processes of the job, spares included, have called it.
    ///
    /// The rank's endpoint has finished.
    ///
    /// # Errors
    /// [`TransportError`].
    pub fn close(mut self) -> Result<(), TransportError> {
        let mut idle = Idle::default();
        let mut meeting: Option<Meeting> = None;
        loop {
            let (progressed, has_failure) = match self.drain() {
                Ok(progressed) => (progressed, false),
                Err(error) if error.is_process_failure() => (true, true),
                Err(error) => return Err(failed(error)),
            };
            let has_failure = has_failure || self.membership.has_failure().map_err(failed)?;
            // Nobody needs the dead process, but one that has not come here yet needs this one for a repair.
            let dead = self.membership.serve_repair(has_failure).map_err(failed)?;
            dead.into_iter().for_each(|rank| self.peers[rank as usize].abandon_sends());
            if meeting.is_none() && self.peers.iter().all(|peer| peer.sending.is_empty()) {
                meeting = Some(self.membership.meet().map_err(failed)?);
            }
            if let Some(meeting) = &mut meeting
                && meeting.poll().map_err(failed)?.is_some()
            {
                self.membership.all().universe().note_met();
                return Ok(());
            }
            check_aborted(&self.membership)?;
            idle.after_poll(progressed);
        }
    }

    /// Receives and drops arrived messages; returns `true` if there was progress.
    fn drain(&mut self) -> Result<bool, MpiError> {
        let mut progressed = self.advance(None)?;
        for comm in [self.membership.all(), self.membership.job()] {
            while let Some(message) = comm.improbe(None, None)? {
                message.receive()?;
                progressed = true;
            }
        }
        Ok(progressed)
    }

    /// Adds an event for every peer ready to be greeted.
    fn announce_peers(&mut self) {
        for (peer, state) in (0..).zip(&self.peers).filter(|(peer, _)| *peer != self.rank) {
            self.events.push_back(Event::Reachable { peer, incarnation: state.incarnation });
        }
    }

    /// Tests the sends in flight, and takes credits from peers not in `read`; returns `true` if there were some.
    ///
    /// Other peers' credits come with their frames.
    fn advance(&mut self, read: Option<&[bool]>) -> Result<bool, MpiError> {
        let mut progressed = false;
        for (rank, peer) in (0..).zip(&mut self.peers) {
            progressed |= peer.advance(&self.buffers)?;
            if read.is_some_and(|read| !read[rank as usize])
                && peer.expects_credit()
                && let Some(credit) =
                    self.membership.all().improbe(Some(self.membership.process_of(rank)), Some(CREDIT))?
            {
                credit.receive()?;
                peer.handle_credit();
                progressed = true;
            }
        }
        Ok(progressed)
    }

    /// Returns an arrived message from a peer in `read`.
    fn next_message(&self, read: Option<&[bool]>) -> Result<Option<Matched>, MpiError> {
        let Some(read) = read else { return self.membership.all().improbe(None, None) };
        let is_other = |peer: usize| peer != self.rank as usize;
        // A new process's hello comes first; frames sent before it is connected are dropped.
        let is_read = |peer: usize| read[peer] || !self.peers[peer].is_connected;
        if (0..read.len()).all(|peer| is_read(peer) || !is_other(peer)) {
            return self.membership.all().improbe(None, None);
        }
        for peer in (0..read.len()).filter(|peer| is_read(*peer) && is_other(*peer)) {
            let found = self.membership.all().improbe(Some(self.membership.process_of(peer as u32)), None)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Completes sends, and receives up to `messages_max` arrived messages; returns `true` if there was progress.
    fn poll_peers(&mut self, read: Option<&[bool]>, messages_max: usize) -> Result<bool, TransportError> {
        if self.has_failed()? {
            return Ok(false);
        }
        let advanced = self.advance(read);
        let Some(mut progressed) = self.or_repair(advanced)? else { return Ok(true) };
        let mut bytes_left = BYTES_PER_POLL;
        for _ in 0..messages_max {
            let message = self.next_message(read);
            let Some(Some(message)) = self.or_repair(message)? else { break };
            let (process, tag, len) = (message.source, message.tag, message.len);
            // From a dead process: nobody needs it.
            let Some(peer) = self.membership.rank_of(process) else {
                let received = message.receive();
                self.or_repair(received)?;
                continue;
            };
            if tag == FRAME && len > self.frame_bytes_max.saturating_add(WireHeader::LEN) {
                return Err(TransportError::FrameTooLong { peer, len: len as u64, max: self.frame_bytes_max });
            }
            let buffer = self.buffers.take(len);
            let (supervisor, events) = (&mut self.supervisor, &mut self.events);
            let restarts_job = self.restarts_job;
            // An order means a lost rank, perhaps the sender. An error is found again by the next poll.
            let received = message.receive_unless(buffer, || {
                restarts_job && {
                    let polled = supervisor.poll(events);
                    polled.is_err() || events.iter().any(|event| matches!(event, Event::Order { .. }))
                }
            });
            let Some(received) = self.or_repair(received)? else { break };
            let Some(bytes) = received else { return Ok(true) };
            self.handle_message(peer, tag, self.buffers.share(bytes))?;
            progressed = true;
            bytes_left = bytes_left.saturating_sub(len);
            if bytes_left == 0 {
                break;
            }
        }
        Ok(progressed)
    }

    fn handle_message(&mut self, peer: u32, tag: i32, bytes: Bytes) -> Result<(), TransportError> {
        if tag == HELLO {
            return self.handle_hello(peer, &bytes);
        }
        if tag == CREDIT {
            self.peers[peer as usize].handle_credit();
            return Ok(());
        }
        if tag == FRAME && self.peers[peer as usize].count_taken() {
            self.post(peer, CREDIT, Vec::new())?;
        }
        if !self.peers[peer as usize].is_connected {
            return Ok(());
        }
        let (header, body) = WireHeader::split(&bytes).map_err(|source| TransportError::Header { peer, source })?;
        if header.payload_len() != body.len() as u64 {
            return Err(TransportError::FrameTooLong { peer, len: header.payload_len(), max: body.len() });
        }
        let header = *header;
        self.events.push_back(Event::Frame { peer, header, body: bytes.slice(WireHeader::LEN..) });
        Ok(())
    }

    fn handle_hello(&mut self, peer: u32, bytes: &Bytes) -> Result<(), TransportError> {
        let Some((from, to)) = split_hello(bytes) else {
            return Err(TransportError::Io {
                action: "read a peer's hello",
                source: io::Error::other(format!("rank {peer} sent {} bytes", bytes.len())),
            });
        };
        let state = &mut self.peers[peer as usize];
        if from < state.incarnation {
            return Ok(());
        }
        if from > state.incarnation {
            state.incarnation = from;
            if state.disconnect() {
                self.events.push_back(Event::Disconnected { peer });
            }
        }
        let state = &mut self.peers[peer as usize];
        let has_greeted = state.greeted == Some(from);
        if to == self.incarnation {
            state.is_connected = true;
            let hello = bytes.slice(HELLO_LEN..);
            self.events.push_back(Event::Connected { peer, incarnation: from, hello, answer: !has_greeted });
        } else if !has_greeted {
            self.events.push_back(Event::Reachable { peer, incarnation: from });
        }
        Ok(())
    }

    /// Returns `true` if a peer in `write` can take another frame.
    fn can_write(&self, write: Option<&[bool]>) -> bool {
        write.is_some_and(|write| self.peers.iter().zip(write).any(|(peer, write)| *write && peer.has_room()))
    }

    /// Makes a frame from a header and the payload's parts.
    fn frame(&self, header: &WireHeader, payload: &[&[u8]]) -> Vec<u8> {
        let len: usize = payload.iter().map(|part| part.len()).sum();
        let mut frame = self.buffers.take(WireHeader::LEN + len);
        frame.extend_from_slice(header.as_bytes());
        payload.iter().for_each(|part| frame.extend_from_slice(part));
        frame
    }

    /// Sends a message; after a repair, it is lost.
    fn post(&mut self, peer: u32, tag: i32, message: Vec<u8>) -> Result<bool, TransportError> {
        let (all, process) = (self.membership.all(), self.membership.process_of(peer));
        let sending = all.isend(message, process, tag);
        let Some(mut sending) = self.or_repair(sending)? else { return Ok(false) };
        if tag == FRAME {
            self.peers[peer as usize].count_sent();
        }
        // A short message is complete at once.
        let tested = sending.test();
        match sending.into_bytes() {
            Ok(bytes) => self.buffers.give_back(bytes),
            Err(sending) => self.peers[peer as usize].push(sending),
        }
        Ok(self.or_repair(tested)?.is_some())
    }
}

impl Transport for MpiTransport {
    fn poll(&mut self, interest: &Interest<'_>) -> Result<(), TransportError> {
        let messages_max = if interest.timeout.is_none() { 1 } else { MESSAGES_PER_POLL };
        // A poll that doesn't wait, or waits without limit, reads no clock.
        let is_single = interest.timeout.is_some_and(|timeout| timeout.is_zero());
        let limit = interest.timeout.filter(|_| !is_single).map(|timeout| (Instant::now(), timeout));
        let mut idle = Idle::default();
        loop {
            let progressed = self.poll_peers(interest.read, messages_max)?;
            self.polls += 1;
            if self.polls >= POLLS_PER_LAUNCHER_POLL {
                self.polls = 0;
                check_aborted(&self.membership)?;
                self.poll_supervisor()?;
                // A failed process not read by this rank.
                if self.membership.has_failure().map_err(failed)? {
                    self.repair()?;
                }
            }
            let is_due = is_single || limit.is_some_and(|(begun, timeout)| begun.elapsed() >= timeout);
            if !self.events.is_empty() || self.can_write(interest.write) || is_due {
                return Ok(());
            }
            idle.after_poll(progressed);
        }
    }

    fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn is_connected(&self, peer: u32) -> bool {
        self.peers[peer as usize].is_connected
    }

    fn greet(&mut self, peer: u32, incarnation: u32, hello: &[u8]) -> Result<(), TransportError> {
        let state = &mut self.peers[peer as usize];
        if state.incarnation != incarnation || state.greeted == Some(incarnation) {
            return Ok(());
        }
        state.greeted = Some(incarnation);
        let message = [&self.incarnation.to_le_bytes(), &incarnation.to_le_bytes(), hello].concat();
        self.post(peer, HELLO, message).map(drop)
    }

    fn disconnect(&mut self, peer: u32) {
        self.peers[peer as usize].is_connected = false;
    }

    fn has_room(&self, peer: u32) -> bool {
        self.peers[peer as usize].has_room()
    }

    fn send_control(&mut self, peer: u32, header: &WireHeader, body: &[&[u8]]) -> Result<(), TransportError> {
        if self.peers[peer as usize].is_connected && self.post(peer, FRAME, self.frame(header, body))? {
            let len = self.peers[peer as usize].bytes;
            if len > IN_FLIGHT_BYTES_MAX + CONTROL_BYTES_MAX + self.frame_bytes_max {
                return Err(TransportError::NotRead { peer, len, max: CONTROL_BYTES_MAX });
            }
        }
        Ok(())
    }

    /// Sends the whole frame or nothing: MPI has no partial messages.
    fn send_record(
        &mut self,
        peer: u32,
        header: &WireHeader,
        payload: &[u8],
        offset: usize,
    ) -> Result<usize, TransportError> {
        debug_assert_eq!(offset, 0, "a frame that was taken at all was taken whole");
        let state = &mut self.peers[peer as usize];
        if !state.has_room() {
            let advanced = state.advance(&self.buffers);
            self.or_repair(advanced)?;
            if !self.peers[peer as usize].has_room() {
                return Ok(0);
            }
        }
        let frame = self.frame(header, &[payload]);
        let len = frame.len();
        Ok(if self.post(peer, FRAME, frame)? { len } else { 0 })
    }

    fn report(&mut self, report: Report) -> Result<(), TransportError> {
        if let Some(clock) = &mut self.recovery {
            match report {
                Report::ReplayComplete => clock.replayed = Some(Instant::now()),
                Report::CaughtUp => clock.caught_up = Some(Instant::now()),
                _ => {}
            }
        }
        self.supervisor.handle_report(report, &mut self.events)?;
        self.post_notices()
    }
}

/// Returns the sender's and the receiver's incarnations.
fn split_hello(bytes: &[u8]) -> Option<(u32, u32)> {
    let (from, rest) = bytes.split_first_chunk::<4>()?;
    let (to, _) = rest.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*from), u32::from_le_bytes(*to)))
}

/// Returns an error if another process has ended the job, or if it has lost its launcher.
fn check_aborted(membership: &Membership) -> Result<(), TransportError> {
    membership.check_goes_on().map_err(unrepaired)
}

fn failed(error: MpiError) -> TransportError {
    TransportError::Io { action: "communicate with a peer over MPI", source: io::Error::other(error) }
}
