//! Sends in flight to one peer.

use std::collections::VecDeque;

use crate::comm::Sending;
use crate::error::MpiError;

/// Limit of the bytes in flight to one peer. A single frame may exceed it.
pub(super) const IN_FLIGHT_BYTES_MAX: usize = 4 << 20;

/// Connection between this rank and one peer.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// Sends in flight, oldest first.
    pub(super) sending: VecDeque<Sending>,
    /// Sum of the lengths in `sending`.
    pub(super) bytes: usize,
    /// True after the peer's hello has arrived.
    pub(super) is_met: bool,
    /// True after the peer's last message has arrived.
    pub(super) has_ended: bool,
}

impl Peer {
    pub(super) fn has_room(&self) -> bool {
        self.bytes < IN_FLIGHT_BYTES_MAX
    }

    /// Removes completed sends from the front; returns `true` if there were any.
    pub(super) fn advance(&mut self) -> Result<bool, MpiError> {
        let mut moved = false;
        while let Some(first) = self.sending.front_mut() {
            if !first.test()? {
                break;
            }
            self.bytes -= first.len();
            self.sending.pop_front();
            moved = true;
        }
        Ok(moved)
    }

    pub(super) fn push(&mut self, sending: Sending) {
        self.bytes += sending.len();
        self.sending.push_back(sending);
    }
}
