//! Transport of the runtime between the ranks of an MPI job.
//!
//! It moves the same frames as the transport between local processes, under the same endpoint and protocols. A frame is one message
//! [wire header | payload]; a peer's hello is a message with another tag. Both travel on a duplicate of the world, on which MPI keeps
//! the order between two ranks. Messages to and from the job's coordinator, rank 0 (`coordinator.rs`), travel on a second duplicate.
//!
//! Failures are not handled: all ranks exist from the beginning, in their first incarnation, and each greets all others. If a rank is
//! lost, MPI ends the job.

mod peer;

use std::collections::VecDeque;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use counterfoil_ack_piggyback::WireHeader;
use counterfoil_runtime::RankSettings;
use counterfoil_runtime::transport::{Event, Interest, Report, Transport, TransportError};

use crate::comm::{Comm, Matched};
use crate::coordinator::{Coordinator, CoordinatorError, FromCoordinator, JobResult, ToCoordinator};
use crate::error::MpiError;
use peer::{IN_FLIGHT_BYTES_MAX, Peer};

/// Tag of a frame.
const FRAME: i32 = 0;
/// Tag of a peer's first message.
const HELLO: i32 = 1;
/// Tag of a sender's last message.
const END: i32 = 2;
/// Tag of a message to or from the coordinator.
const COORDINATOR: i32 = 3;

/// Limit of the control frames that may wait for one peer, in bytes.
const CONTROL_BYTES_MAX: usize = 8 << 20;
/// Limit of the messages that one poll takes.
const MESSAGES_PER_POLL: usize = 64;
/// Consecutive idle polls after which the thread yields the processor.
const IDLE_POLLS_BEFORE_YIELD: u32 = 200;
/// Consecutive idle polls after which the thread sleeps between polls.
const IDLE_POLLS_BEFORE_SLEEP: u32 = 2_000;
/// Length of such a sleep.
const NAP: Duration = Duration::from_micros(50);

/// Connection of one rank with its peers and with the coordinator on rank 0.
#[derive(Debug)]
pub struct MpiTransport {
    rank: u32,
    frames: Comm,
    reports: Comm,
    peers: Vec<Peer>,
    /// Sends to the coordinator or, on rank 0, from it.
    coordinator_sends: Peer,
    /// `Some` on rank 0.
    coordinator: Option<Coordinator>,
    /// Number of `END` messages received on `reports`: from each rank on rank 0, from rank 0 on the others.
    coordinator_ends: u32,
    events: VecDeque<Event>,
    frame_bytes_max: usize,
    checkpoints_reported: u64,
}

impl MpiTransport {
    /// Creates a transport over two duplicates of `world`. Collective over `world`.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn new(world: &Comm, settings: &RankSettings) -> Result<MpiTransport, MpiError> {
        let (rank, ranks) = (world.rank()?, world.size()?);
        Ok(MpiTransport {
            rank,
            frames: world.dup()?,
            reports: world.dup()?,
            peers: (0..ranks).map(|_| Peer::default()).collect(),
            coordinator_sends: Peer::default(),
            coordinator: (rank == 0).then(|| Coordinator::new(settings)),
            coordinator_ends: 0,
            events: VecDeque::new(),
            frame_bytes_max: settings.log_bytes_max,
            checkpoints_reported: 0,
        })
    }

    /// Sends `hello` to `peer` before any other message. Every rank calls it once for every other rank.
    ///
    /// # Errors
    /// [`TransportError`].
    pub fn send_hello(&mut self, peer: u32, hello: &[u8]) -> Result<(), TransportError> {
        let sending = self.frames.isend(hello.to_vec(), peer, HELLO).map_err(failed)?;
        self.peers[peer as usize].push(sending);
        Ok(())
    }

    /// Ends the traffic: returns after this rank has received everything that was sent to it and its own sends are complete. All ranks
    /// call it when their endpoint has finished. Returns the job's outcome on rank 0, `None` on the others.
    ///
    /// # Errors
    /// [`TransportError`].
    pub fn close(&mut self) -> Result<Option<JobResult>, TransportError> {
        let ranks = self.peers.len() as u32;
        let others: Vec<u32> = (0..ranks).filter(|peer| *peer != self.rank).collect();
        for &peer in &others {
            let sending = self.frames.isend(Vec::new(), peer, END).map_err(failed)?;
            self.peers[peer as usize].push(sending);
        }
        let ends_expected = if self.rank == 0 { ranks - 1 } else { 1 };
        if self.rank != 0 {
            self.send_coordinator_end(&[0])?;
        }
        let mut coordinator_open = self.rank == 0;
        let rank = self.rank as usize;
        let mut idle = Idle::default();
        loop {
            let mut progressed = self.advance()?;
            progressed |= self.poll_coordinator()?;
            while let Some(message) = self.frames.improbe(None, None).map_err(failed)? {
                self.handle_message(message)?;
                progressed = true;
            }
            // A rank's last report may lead to an order, so rank 0 sends its end after it has received the others'.
            if coordinator_open && self.coordinator_ends == ends_expected {
                coordinator_open = false;
                self.send_coordinator_end(&others)?;
            }
            // Only acknowledgements are left, of messages that every rank has.
            self.events.clear();
            let peers_ended = self.peers.iter().enumerate().all(|(peer, state)| peer == rank || state.has_ended);
            let all_sent =
                self.coordinator_sends.sending.is_empty() && self.peers.iter().all(|peer| peer.sending.is_empty());
            if peers_ended && self.coordinator_ends == ends_expected && !coordinator_open && all_sent {
                return Ok(self.coordinator.take().map(Coordinator::into_result));
            }
            idle.after_poll(progressed);
        }
    }

    /// Tells these ranks that this was the last message to, or from, the coordinator.
    fn send_coordinator_end(&mut self, to: &[u32]) -> Result<(), TransportError> {
        for &peer in to {
            self.coordinator_sends.push(self.reports.isend(Vec::new(), peer, END).map_err(failed)?);
        }
        Ok(())
    }

    /// Tests the sends in flight; returns `true` if some are complete.
    fn advance(&mut self) -> Result<bool, TransportError> {
        let mut progressed = self.coordinator_sends.advance().map_err(failed)?;
        for peer in &mut self.peers {
            progressed |= peer.advance().map_err(failed)?;
        }
        Ok(progressed)
    }

    /// Receives what has arrived from the peers in `read`, up to the limit of one poll.
    fn poll_peers(&mut self, read: &[bool]) -> Result<(), TransportError> {
        let all = read.iter().enumerate().all(|(peer, read)| *read || peer == self.rank as usize);
        for _ in 0..MESSAGES_PER_POLL {
            let message = if all {
                self.frames.improbe(None, None).map_err(failed)?
            } else {
                let mut found = None;
                for peer in (0..read.len()).filter(|peer| read[*peer] && *peer != self.rank as usize) {
                    found = self.frames.improbe(Some(peer as u32), None).map_err(failed)?;
                    if found.is_some() {
                        break;
                    }
                }
                found
            };
            let Some(message) = message else { return Ok(()) };
            self.handle_message(message)?;
        }
        Ok(())
    }

    fn handle_message(&mut self, message: Matched) -> Result<(), TransportError> {
        let (peer, tag, len) = (message.source, message.tag, message.len);
        if tag == FRAME && len > self.frame_bytes_max.saturating_add(WireHeader::LEN) {
            return Err(TransportError::FrameTooLong { peer, len: len as u64, max: self.frame_bytes_max });
        }
        let bytes = Bytes::from(message.receive().map_err(failed)?);
        match tag {
            HELLO => {
                self.peers[peer as usize].is_met = true;
                self.events.push_back(Event::Connected { peer, incarnation: 0, hello: bytes, answer: false });
            }
            END => self.peers[peer as usize].has_ended = true,
            _ => {
                let (header, body) =
                    WireHeader::split(&bytes).map_err(|source| TransportError::Header { peer, source })?;
                if header.payload_len() != body.len() as u64 {
                    return Err(TransportError::FrameTooLong { peer, len: header.payload_len(), max: body.len() });
                }
                let header = *header;
                self.events.push_back(Event::Frame { peer, header, body: bytes.slice(WireHeader::LEN..) });
            }
        }
        Ok(())
    }

    /// Receives what has arrived for the coordinator, or from it; returns `true` if something has.
    fn poll_coordinator(&mut self) -> Result<bool, TransportError> {
        let mut progressed = false;
        while let Some(message) = self.reports.improbe(None, None).map_err(failed)? {
            let (from, tag) = (message.source, message.tag);
            let bytes = message.receive().map_err(failed)?;
            progressed = true;
            if tag == END {
                self.coordinator_ends += 1;
            } else if self.coordinator.is_some() {
                self.handle_report(from, &bytes)?;
            } else {
                self.handle_order(FromCoordinator::decode(&bytes).map_err(malformed)?);
            }
        }
        Ok(progressed)
    }

    fn send_to_coordinator(&mut self, message: &ToCoordinator) -> Result<(), TransportError> {
        let bytes = message.encode().map_err(malformed)?;
        if self.coordinator.is_some() {
            return self.handle_report(0, &bytes);
        }
        self.coordinator_sends.push(self.reports.isend(bytes, 0, COORDINATOR).map_err(failed)?);
        Ok(())
    }

    /// Passes a rank's message to the coordinator, on rank 0, and sends its answers.
    fn handle_report(&mut self, from: u32, bytes: &[u8]) -> Result<(), TransportError> {
        let Some(coordinator) = &mut self.coordinator else { return Ok(()) };
        coordinator.handle_message(from, ToCoordinator::decode(bytes).map_err(malformed)?).map_err(malformed)?;
        while let Some((to, order)) = self.coordinator.as_mut().and_then(Coordinator::poll_message) {
            if to == 0 {
                self.handle_order(order);
            } else {
                let bytes = order.encode().map_err(malformed)?;
                self.coordinator_sends.push(self.reports.isend(bytes, to, COORDINATOR).map_err(failed)?);
            }
        }
        Ok(())
    }

    fn handle_order(&mut self, order: FromCoordinator) {
        self.events.push_back(match order {
            FromCoordinator::Order { body } => Event::Order { body },
            FromCoordinator::Finish => Event::Finish,
        });
    }

    /// Returns `true` if a peer in `write` can take another frame.
    fn can_write(&self, write: &[bool]) -> bool {
        self.peers.iter().zip(write).any(|(peer, write)| *write && peer.has_room())
    }
}

impl Transport for MpiTransport {
    fn poll(&mut self, interest: &Interest<'_>) -> Result<(), TransportError> {
        let begun = Instant::now();
        let mut idle = Idle::default();
        loop {
            let progressed = self.advance()?;
            self.poll_coordinator()?;
            self.poll_peers(interest.read)?;
            let is_due = interest.timeout.is_some_and(|timeout| begun.elapsed() >= timeout);
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
        self.peers[peer as usize].is_met
    }

    fn greet(&mut self, _: u32, _: u32, _: &[u8]) -> Result<(), TransportError> {
        // No peer waits for an answer: every rank has greeted every other by `send_hello`.
        Ok(())
    }

    fn disconnect(&mut self, peer: u32) {
        self.peers[peer as usize].is_met = false;
    }

    fn send_control(&mut self, peer: u32, header: &WireHeader, body: &[u8]) -> Result<(), TransportError> {
        let state = &mut self.peers[peer as usize];
        if !state.is_met {
            return Ok(());
        }
        state.push(self.frames.isend(frame(header, body), peer, FRAME).map_err(failed)?);
        if state.bytes > IN_FLIGHT_BYTES_MAX + CONTROL_BYTES_MAX + self.frame_bytes_max {
            return Err(TransportError::NotRead { peer, len: state.bytes, max: CONTROL_BYTES_MAX });
        }
        Ok(())
    }

    /// Sends the whole frame or nothing: MPI has no partial messages.
    fn send(&mut self, peer: u32, header: &WireHeader, payload: &[u8], offset: usize) -> Result<usize, TransportError> {
        debug_assert_eq!(offset, 0, "a frame that was taken at all was taken whole");
        let state = &mut self.peers[peer as usize];
        if !state.is_met {
            return Ok(0);
        }
        if !state.has_room() {
            state.advance().map_err(failed)?;
            if !state.has_room() {
                return Ok(0);
            }
        }
        let frame = frame(header, payload);
        let len = frame.len();
        state.push(self.frames.isend(frame, peer, FRAME).map_err(failed)?);
        Ok(len)
    }

    fn report(&mut self, report: Report) -> Result<(), TransportError> {
        match report {
            Report::Iteration { tally, .. } if tally.checkpoints != self.checkpoints_reported => {
                self.checkpoints_reported = tally.checkpoints;
                self.send_to_coordinator(&ToCoordinator::Checkpoints { taken: tally.checkpoints })
            }
            // Over MPI nothing watches the iterations, and no rank is replaced.
            Report::Iteration { .. } | Report::Restored { .. } | Report::ReplayComplete | Report::CaughtUp => Ok(()),
            Report::ToCoordinator { body } => self.send_to_coordinator(&ToCoordinator::Control { body }),
            Report::Done { outcome, tally } => self.send_to_coordinator(&ToCoordinator::Done { outcome, tally }),
            Report::RollingBack { epoch, .. } => Err(TransportError::Io {
                action: "go back",
                source: io::Error::other(format!(
                    "rank {} would go back to epoch {epoch}: over MPI no rank is replaced",
                    self.rank
                )),
            }),
            Report::Failed { error } => {
                // The other ranks would wait for this one for ever.
                tracing::error!(rank = self.rank, error, "the program has failed: the job ends");
                self.frames.abort(1);
                Ok(())
            }
        }
    }
}

/// Number of consecutive polls without progress.
#[derive(Debug, Default)]
struct Idle(u32);

impl Idle {
    /// Spins, yields or sleeps, by the number of idle polls: there may be more ranks than processors.
    fn after_poll(&mut self, progressed: bool) {
        self.0 = if progressed { 0 } else { self.0.saturating_add(1) };
        match self.0 {
            0..IDLE_POLLS_BEFORE_YIELD => std::hint::spin_loop(),
            IDLE_POLLS_BEFORE_YIELD..IDLE_POLLS_BEFORE_SLEEP => thread::yield_now(),
            _ => thread::sleep(NAP),
        }
    }
}

fn frame(header: &WireHeader, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(WireHeader::LEN + payload.len());
    frame.extend_from_slice(header.as_bytes());
    frame.extend_from_slice(payload);
    frame
}

fn failed(error: MpiError) -> TransportError {
    TransportError::Io { action: "communicate with a peer over MPI", source: io::Error::other(error) }
}

fn malformed(error: CoordinatorError) -> TransportError {
    TransportError::Io { action: "handle a message of the job's coordinator", source: io::Error::other(error) }
}
