//! State of the connection to one peer.

use std::collections::VecDeque;

use counterfoil_mpi_core::comm::Sending;
use counterfoil_mpi_core::error::MpiError;

use crate::transport::buffers::Buffers;

/// Limit of the bytes in flight to one peer. A single frame may exceed it. More would leave the cache before the peer
/// reads them: with 4 MiB, broadcasts of 32 KiB over shared memory took a fifth more.
pub(super) const IN_FLIGHT_BYTES_MAX: usize = 512 << 10;

/// Number of frames to a peer of which one, the last, is sent in synchronous mode.
///
/// Short sends are complete before they are received, so the bytes in flight don't bound them. A peer that dies while
/// thousands of them are on their way takes the memory of MPI's transport that holds them along: over shared memory the
/// survivors then can't send any more.
const FRAMES_PER_SYNCHRONOUS: usize = 32;
/// Limit of the sends to a peer that aren't known to be complete, in order: at most twice as many frames are
/// unreceived.
const SENDING_MAX: usize = 2 * FRAMES_PER_SYNCHRONOUS;

/// Connection between this rank and one peer: between an incarnation of each.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// Newest incarnation that is known.
    pub(super) incarnation: u32,
    /// Incarnation to which this rank's hello was sent.
    pub(super) greeted: Option<u32>,
    /// True after the hello of `incarnation` to this rank's incarnation has arrived.
    pub(super) is_connected: bool,
    /// Sends in flight, oldest first.
    pub(super) sending: VecDeque<Sending>,
    /// Sum of the lengths in `sending`.
    pub(super) bytes: usize,
    /// Frames since the last one in synchronous mode.
    frames: usize,
}

impl Peer {
    pub(super) fn has_room(&self) -> bool {
        self.is_connected && self.bytes < IN_FLIGHT_BYTES_MAX && self.sending.len() < SENDING_MAX
    }

    /// Counts a frame that is about to be sent. Returns `true` if it is to be sent in synchronous mode.
    pub(super) fn count_frame(&mut self) -> bool {
        self.frames = (self.frames + 1) % FRAMES_PER_SYNCHRONOUS;
        self.frames == 0
    }

    /// Removes completed sends from the front and gives their memory back; returns `true` if there were any.
    pub(super) fn advance(&mut self, buffers: &Buffers) -> Result<bool, MpiError> {
        let mut moved = false;
        while let Some(first) = self.sending.front_mut() {
            if !first.test()? {
                break;
            }
            self.bytes -= first.len();
            if let Some(bytes) = self.sending.pop_front().and_then(Sending::into_bytes) {
                buffers.give_back(bytes);
            }
            moved = true;
        }
        Ok(moved)
    }

    pub(super) fn push(&mut self, sending: Sending) {
        self.bytes += sending.len();
        self.sending.push_back(sending);
    }

    /// Ends the connection. Returns `true` if there was one.
    pub(super) fn disconnect(&mut self) -> bool {
        self.greeted = None;
        std::mem::take(&mut self.is_connected)
    }

    /// Drops the sends in flight on a communicator that is no longer used, or to a dead peer.
    pub(super) fn abandon_sends(&mut self) {
        self.sending.drain(..).for_each(Sending::abandon);
        self.bytes = 0;
    }
}
