//! State of the connection to one peer.

use std::collections::VecDeque;

use counterfoil_mpi_core::comm::Sending;
use counterfoil_mpi_core::error::MpiError;

use crate::transport::buffers::Buffers;

/// Limit of bytes in flight to one peer.
///
/// A single frame may exceed it. More would leave the cache before the peer reads them: with 4 MiB, 32 KiB broadcasts
/// over shared memory took a fifth longer.
pub(super) const IN_FLIGHT_BYTES_MAX: usize = 512 << 10;

/// Frames from a peer after which a rank reports their receipt with a credit.
///
/// Short sends are complete before they are received, so the bytes in flight don't bound them. If a peer dies with
/// thousands of them in flight, the memory holding them in MPI's transport is lost: over shared memory the survivors
/// then can't send any more. Synchronous sends would bound them, too, but they pass through the queue damaged by a
/// process killed in an append (`counterfoil_mpi_core::watchdog`).
const FRAMES_PER_CREDIT: u32 = 32;
/// Limit of frames sent to a peer and not taken; control frames may exceed it.
const UNTAKEN_MAX: u32 = 2 * FRAMES_PER_CREDIT;

/// Connection between this rank and one peer: between an incarnation of each.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// Newest known incarnation.
    pub(super) incarnation: u32,
    /// Incarnation to which this rank's hello was sent.
    pub(super) greeted: Option<u32>,
    /// True after the hello of `incarnation` to this rank's incarnation has arrived.
    pub(super) is_connected: bool,
    /// Sends in flight, oldest first.
    pub(super) sending: VecDeque<Sending>,
    /// Sum of the lengths in `sending`.
    pub(super) bytes: usize,
    /// Frames sent to the peer's process and not taken, according to its credits.
    untaken: u32,
    /// Frames taken from the peer's process since the last credit.
    taken: u32,
}

impl Peer {
    pub(super) fn has_room(&self) -> bool {
        self.is_connected && self.bytes < IN_FLIGHT_BYTES_MAX && self.untaken < UNTAKEN_MAX
    }

    /// Counts a sent frame.
    pub(super) fn count_sent(&mut self) {
        self.untaken += 1;
    }

    /// Counts a taken frame.
    ///
    /// Returns `true` if a credit is to be sent.
    pub(super) fn count_taken(&mut self) -> bool {
        self.taken = (self.taken + 1) % FRAMES_PER_CREDIT;
        self.taken == 0
    }

    /// Returns `true` if a credit from the peer may be in flight.
    pub(super) fn expects_credit(&self) -> bool {
        self.untaken >= FRAMES_PER_CREDIT
    }

    /// Handles a credit from the peer's process.
    pub(super) fn handle_credit(&mut self) {
        self.untaken = self.untaken.saturating_sub(FRAMES_PER_CREDIT);
    }

    /// Removes completed sends from the front and gives their memory back; returns `true` if there were any.
    pub(super) fn advance(&mut self, buffers: &Buffers) -> Result<bool, MpiError> {
        let mut moved = false;
        while let Some(first) = self.sending.front_mut() {
            if !first.test()? {
                break;
            }
            self.bytes -= first.len();
            if let Some(Ok(bytes)) = self.sending.pop_front().map(Sending::into_bytes) {
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

    /// Ends the connection.
    ///
    /// Returns `true` if there was one.
    pub(super) fn disconnect(&mut self) -> bool {
        self.greeted = None;
        std::mem::take(&mut self.is_connected)
    }

    /// Drops the sends in flight to the peer's dead process.
    pub(super) fn abandon_sends(&mut self) {
        self.sending.drain(..).for_each(Sending::abandon);
        (self.bytes, self.untaken, self.taken) = (0, 0, 0);
    }
}
