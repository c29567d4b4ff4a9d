//! Outcomes that the program left to MPI: what a repetition has to be told.

use counterfoil::Keep;

use super::Session;
use crate::say::say;

/// Entries of the local log that are outcomes.
const KIND: u8 = 1;

/// An outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// A receive that any message could have ended: whose it was.
    Receive { source: u32, tag: i32 },
    /// A probe that any message could have ended: whose it was.
    Probe { source: u32, tag: i32 },
    /// One of several requests ended: its place in the array.
    Ended { index: u32 },
}

impl Choice {
    /// As it stands in the local log: kind, numbers, and how often the answer was no before.
    fn encode(self, misses: u32) -> [u8; 13] {
        let (kind, one, other) = match self {
            Choice::Receive { source, tag } => (0, source, tag),
            Choice::Probe { source, tag } => (1, source, tag),
            Choice::Ended { index } => (2, index, 0),
        };
        let mut bytes = [kind; 13];
        bytes[1..5].copy_from_slice(&one.to_le_bytes());
        bytes[5..9].copy_from_slice(&other.to_le_bytes());
        bytes[9..13].copy_from_slice(&misses.to_le_bytes());
        bytes
    }
}

impl Session {
    /// Records an outcome, if anybody can be replayed.
    pub(crate) fn decide(&mut self, choice: Choice) {
        let misses = std::mem::take(&mut self.misses);
        if !self.is_on() || self.settings.keep == Keep::Acked || self.is_local_full {
            return;
        }
        let key = self.ledger.determinants;
        let Some(log) = &mut self.log else { return };
        match log.local().append(KIND, key, &choice.encode(misses)) {
            Ok(()) => self.ledger.decided(),
            Err(error) => {
                self.is_local_full = true;
                say(format_args!("outcomes of wildcards are recorded no more: {error}"));
            }
        }
    }

    /// The program asked, and the answer was no.
    pub(crate) fn missed(&mut self) {
        self.misses = self.misses.saturating_add(1);
        self.moves += 1;
    }
}
