//! The second transport of the runtime: ranks are those of an MPI job.
//!
//! It moves the same frames as the one between local processes, under the same endpoint and protocols. A frame is one message
//! [wire header | payload]; what a peer says first is a message with another tag. Both go over a communicator of their own, on
//! which MPI keeps the order between two ranks. What is for or from the launcher goes over a second one, to rank 0 and back
//! (`desk.rs`).
//!
//! Without failures: all ranks are there from the beginning, in their first incarnation, and each greets all others. That a
//! rank is lost is not noticed here; MPI ends the job then.

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
use crate::desk::{Desk, DeskError, FromDesk, JobResult, ToDesk};
use crate::error::MpiError;
use peer::{Peer, UNDER_WAY_BYTES_MAX};

/// Tags: a frame; a peer's first words; nothing comes after this.
const FRAME: i32 = 0;
const HELLO: i32 = 1;
const END: i32 = 2;
/// A message to or from rank 0 as the launcher.
const DESK: i32 = 3;

/// Control frames that may wait for one peer, in bytes.
const CONTROL_BYTES_MAX: usize = 8 << 20;
/// Messages that one look brings at most.
const MESSAGES_PER_LOOK: usize = 64;
/// Looks that bring nothing, after which the processor is offered to others; as many again, and the thread sleeps in between.
const IDLE_LOOKS: u32 = 200;
/// How long it sleeps then.
const NAP: Duration = Duration::from_micros(50);

/// Connects one rank with its peers and, through rank 0, with what stands for a launcher.
#[derive(Debug)]
pub struct MpiTransport {
    rank: u32,
    frames: Comm,
    reports: Comm,
    peers: Vec<Peer>,
    /// What goes to rank 0, or from it, as the launcher.
    to_desk: Peer,
    /// On rank 0.
    desk: Option<Desk>,
    /// The ranks whose reports, or rank 0's orders, have ended.
    desk_ended: u32,
    events: VecDeque<Event>,
    frame_bytes_max: usize,
    checkpoints_reported: u64,
}

impl MpiTransport {
    /// A transport over two duplicates of `world`. All ranks call it.
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
            to_desk: Peer::default(),
            desk: (rank == 0).then(|| Desk::new(settings)),
            desk_ended: 0,
            events: VecDeque::new(),
            frame_bytes_max: settings.log_bytes_max,
            checkpoints_reported: 0,
        })
    }

    /// Says `hello` to `peer`, before anything else. To be called for every other rank at the start.
    ///
    /// # Errors
    /// [`TransportError`].
    pub fn call(&mut self, peer: u32, hello: &[u8]) -> Result<(), TransportError> {
        let sending = self.frames.isend(hello.to_vec(), peer, HELLO).map_err(failed)?;
        self.peers[peer as usize].push(sending);
        Ok(())
    }

    /// Ends the traffic: returns when everything that was sent to this rank was taken, and what it has sent has gone. To be
    /// called by all ranks when the endpoint has finished. Rank 0 gets what all ranks came to.
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
        let desk_partners = if self.rank == 0 { ranks - 1 } else { 1 };
        if self.rank != 0 {
            self.end_desk(&[0])?;
        }
        let mut desk_open = self.rank == 0;
        let rank = self.rank as usize;
        let mut idle = Idle::default();
        loop {
            let mut moved = self.advance()?;
            moved |= self.look_at_desk()?;
            while let Some(message) = self.frames.improbe(None, None).map_err(failed)? {
                self.take(message)?;
                moved = true;
            }
            // A last report may bring an order, so rank 0 ends when the others have.
            if desk_open && self.desk_ended == desk_partners {
                desk_open = false;
                self.end_desk(&others)?;
            }
            // Acknowledgements of what everybody has: nobody needs them any more.
            self.events.clear();
            let peers_ended = self.peers.iter().enumerate().all(|(peer, state)| peer == rank || state.has_ended);
            let nothing_under_way =
                self.to_desk.sending.is_empty() && self.peers.iter().all(|peer| peer.sending.is_empty());
            if peers_ended && self.desk_ended == desk_partners && !desk_open && nothing_under_way {
                return Ok(self.desk.take().map(Desk::into_result));
            }
            idle.after(moved);
        }
    }

    /// Says to these that nothing comes any more from rank 0 as the launcher, or for it.
    fn end_desk(&mut self, to: &[u32]) -> Result<(), TransportError> {
        for &peer in to {
            self.to_desk.push(self.reports.isend(Vec::new(), peer, END).map_err(failed)?);
        }
        Ok(())
    }

    /// Lets what is under way go on; whether some of it is done.
    fn advance(&mut self) -> Result<bool, TransportError> {
        let mut moved = self.to_desk.advance().map_err(failed)?;
        for peer in &mut self.peers {
            moved |= peer.advance().map_err(failed)?;
        }
        Ok(moved)
    }

    /// Takes what has come from the peers that are read.
    fn look_at_peers(&mut self, read: &[bool]) -> Result<(), TransportError> {
        let all = read.iter().enumerate().all(|(peer, read)| *read || peer == self.rank as usize);
        for _ in 0..MESSAGES_PER_LOOK {
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
            self.take(message)?;
        }
        Ok(())
    }

    fn take(&mut self, message: Matched) -> Result<(), TransportError> {
        let (peer, tag, len) = (message.source, message.tag, message.len);
        if tag == FRAME && len > self.frame_bytes_max.saturating_add(WireHeader::LEN) {
            return Err(TransportError::FrameTooLong { peer, len: len as u64, max: self.frame_bytes_max });
        }
        let bytes = Bytes::from(message.receive().map_err(failed)?);
        match tag {
            HELLO => {
                self.peers[peer as usize].is_met = true;
                self.events.push_back(Event::Met { peer, incarnation: 0, hello: bytes, answer: false });
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

    /// Takes what has come for the launcher, or from it; whether something has.
    fn look_at_desk(&mut self) -> Result<bool, TransportError> {
        let mut moved = false;
        while let Some(message) = self.reports.improbe(None, None).map_err(failed)? {
            let (from, tag) = (message.source, message.tag);
            let bytes = message.receive().map_err(failed)?;
            moved = true;
            if tag == END {
                self.desk_ended += 1;
            } else if self.desk.is_some() {
                self.hear_report(from, &bytes)?;
            } else {
                self.hear_order(FromDesk::decode(&bytes).map_err(malformed)?);
            }
        }
        Ok(moved)
    }

    fn tell_desk(&mut self, message: &ToDesk) -> Result<(), TransportError> {
        let bytes = message.encode().map_err(malformed)?;
        if self.desk.is_some() {
            return self.hear_report(0, &bytes);
        }
        self.to_desk.push(self.reports.isend(bytes, 0, DESK).map_err(failed)?);
        Ok(())
    }

    /// As the launcher: a rank has said something.
    fn hear_report(&mut self, from: u32, bytes: &[u8]) -> Result<(), TransportError> {
        let Some(desk) = &mut self.desk else { return Ok(()) };
        desk.hear(from, ToDesk::decode(bytes).map_err(malformed)?).map_err(malformed)?;
        while let Some((to, order)) = self.desk.as_mut().and_then(Desk::poll_order) {
            if to == 0 {
                self.hear_order(order);
            } else {
                let bytes = order.encode().map_err(malformed)?;
                self.to_desk.push(self.reports.isend(bytes, to, DESK).map_err(failed)?);
            }
        }
        Ok(())
    }

    fn hear_order(&mut self, order: FromDesk) {
        self.events.push_back(match order {
            FromDesk::Order { body } => Event::Order { body },
            FromDesk::Finish => Event::Finish,
        });
    }

    /// Whether something can be sent that waits.
    fn can_write(&self, write: &[bool]) -> bool {
        self.peers.iter().zip(write).any(|(peer, write)| *write && peer.has_room())
    }
}

impl Transport for MpiTransport {
    fn poll(&mut self, interest: &Interest<'_>) -> Result<(), TransportError> {
        let begun = Instant::now();
        let mut idle = Idle::default();
        loop {
            let moved = self.advance()?;
            self.look_at_desk()?;
            self.look_at_peers(interest.read)?;
            let is_due = interest.timeout.is_some_and(|timeout| begun.elapsed() >= timeout);
            if !self.events.is_empty() || self.can_write(interest.write) || is_due {
                return Ok(());
            }
            idle.after(moved);
        }
    }

    fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn is_connected(&self, peer: u32) -> bool {
        self.peers[peer as usize].is_met
    }

    fn greet(&mut self, _: u32, _: u32, _: &[u8]) -> Result<(), TransportError> {
        // Nobody waits for an answer: everybody has greeted everybody, by `call`.
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
        if state.bytes > UNDER_WAY_BYTES_MAX + CONTROL_BYTES_MAX + self.frame_bytes_max {
            return Err(TransportError::NotRead { peer, len: state.bytes, max: CONTROL_BYTES_MAX });
        }
        Ok(())
    }

    /// All or nothing: MPI has no half messages.
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
                self.tell_desk(&ToDesk::Checkpoints { taken: tally.checkpoints })
            }
            // Nobody watches the iterations, and nobody is replaced.
            Report::Iteration { .. } | Report::Restored { .. } | Report::ReplayComplete | Report::CaughtUp => Ok(()),
            Report::ToCoordinator { body } => self.tell_desk(&ToDesk::Coordinator { body }),
            Report::Done { outcome, tally } => self.tell_desk(&ToDesk::Done { outcome, tally }),
            Report::GoingBack { epoch, .. } => Err(TransportError::Io {
                action: "go back",
                source: io::Error::other(format!(
                    "rank {} would go back to epoch {epoch}: over MPI nobody is replaced",
                    self.rank
                )),
            }),
            Report::Failed { error } => {
                // The others would wait for this rank for ever.
                tracing::error!(rank = self.rank, error, "the program has failed: the job ends");
                self.frames.abort(1);
                Ok(())
            }
        }
    }
}

/// How often there was nothing to do.
#[derive(Debug, Default)]
struct Idle(u32);

impl Idle {
    /// Waits a little, the longer nothing has moved the longer: there may be more ranks than processors.
    fn after(&mut self, moved: bool) {
        self.0 = if moved { 0 } else { self.0.saturating_add(1) };
        match self.0 {
            0..IDLE_LOOKS => std::hint::spin_loop(),
            IDLE_LOOKS..2_000 => thread::yield_now(),
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
    TransportError::Io { action: "reach a peer by MPI", source: io::Error::other(error) }
}

fn malformed(error: DeskError) -> TransportError {
    TransportError::Io { action: "understand a rank as the launcher", source: io::Error::other(error) }
}
