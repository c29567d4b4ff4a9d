//! Outcomes that the program leaves to MPI, as `libcounterfoil_mpi.so` writes them: what a repetition has to be told.

use counterfoil::Keep;

use super::engine::Engine;
use super::error::LoggedError;

/// Entries of the local log that are outcomes.
const OUTCOME: u8 = 1;

/// An outcome.
#[derive(Clone, Copy, Debug)]
pub(super) enum Choice {
    /// A receive that any message could have ended: whose it was.
    Receive { source: u32, tag: i32 },
    /// A probe that any message could have ended: whose it was.
    Probe { source: u32, tag: i32 },
    /// One of several requests ended: its place.
    Ended { index: usize },
}

impl Choice {
    /// Kind, numbers, and how often the answer was no before.
    fn encode(self, misses: u32) -> [u8; 13] {
        let (kind, one, other) = match self {
            Choice::Receive { source, tag } => (0, source, tag),
            Choice::Probe { source, tag } => (1, source, tag),
            Choice::Ended { index } => (2, index as u32, 0),
        };
        let mut bytes = [kind; 13];
        bytes[1..5].copy_from_slice(&one.to_le_bytes());
        bytes[5..9].copy_from_slice(&other.to_le_bytes());
        bytes[9..13].copy_from_slice(&misses.to_le_bytes());
        bytes
    }
}

impl Engine {
    /// Records an outcome, if anybody can be replayed.
    pub(super) fn decide(&mut self, choice: Choice) -> Result<(), LoggedError> {
        self.moves += 1;
        let (key, misses) = (self.account.determinants, std::mem::take(&mut self.misses));
        let log = self.log()?;
        if log.options().keep == Keep::Acked {
            return Ok(());
        }
        // A local log that is full says so where a recovery needs it: what was decided has happened all the same.
        if log.local().append(OUTCOME, key, &choice.encode(misses)).is_ok() {
            self.account.determinants += 1;
        }
        Ok(())
    }

    /// The program asked, and the answer was no.
    pub(super) fn missed(&mut self) {
        self.moves += 1;
        self.misses = self.misses.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_written_as_the_library_under_unmodified_programs_writes_it() {
        let bytes = Choice::Receive { source: 0x0102_0304, tag: -2 }.encode(5);
        assert_eq!(bytes, [0, 4, 3, 2, 1, 0xfe, 0xff, 0xff, 0xff, 5, 0, 0, 0]);
        assert_eq!(Choice::Probe { source: 1, tag: 2 }.encode(0), [1, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Choice::Ended { index: 7 }.encode(1), [2, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    }
}
