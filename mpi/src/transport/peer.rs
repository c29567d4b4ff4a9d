//! What is under way to one peer.

use std::collections::VecDeque;

use crate::comm::Sending;
use crate::error::MpiError;

/// Bytes that may be under way to one peer. One frame always may.
pub(super) const UNDER_WAY_BYTES_MAX: usize = 4 << 20;

/// What is between this rank and one peer.
#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) sending: VecDeque<Sending>,
    pub(super) bytes: usize,
    pub(super) is_met: bool,
    /// It has said that nothing comes any more.
    pub(super) has_ended: bool,
}

impl Peer {
    pub(super) fn has_room(&self) -> bool {
        self.bytes < UNDER_WAY_BYTES_MAX
    }

    /// Forgets what has been sent; whether there was something.
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
