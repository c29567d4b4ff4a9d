//! Determinants: outcomes left to MPI by the program, and needed to repeat it.

use counterfoil::{Keep, LocalLogError, Log};

/// Kind of the determinant entries in the local log.
pub const DETERMINANT_ENTRY: u8 = 1;

/// An outcome not determined by the program's own state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Determinant {
    /// Message taken by a wildcard receive: its source in MPI_COMM_WORLD, and its tag.
    Receive {
        /// Rank in MPI_COMM_WORLD.
        source: u32,
        /// MPI tag.
        tag: i32,
    },
    /// Message found by a wildcard probe.
    Probe {
        /// Rank in MPI_COMM_WORLD.
        source: u32,
        /// MPI tag.
        tag: i32,
    },
    /// Ended request among several: its index in the program's array.
    Completed {
        /// Index from 0.
        index: u32,
    },
}

impl Determinant {
    /// Length of an encoded determinant in bytes.
    pub const LEN: usize = 13;

    /// Encodes the determinant, little-endian: kind (1 byte), two numbers, and the number of failed polls before it (4
    /// bytes each).
    pub fn encode(self, failed_polls: u32) -> [u8; Self::LEN] {
        let (kind, one, other) = match self {
            Determinant::Receive { source, tag } => (0, source, tag),
            Determinant::Probe { source, tag } => (1, source, tag),
            Determinant::Completed { index } => (2, index, 0),
        };
        let mut bytes = [kind; Self::LEN];
        bytes[1..5].copy_from_slice(&one.to_le_bytes());
        bytes[5..9].copy_from_slice(&other.to_le_bytes());
        bytes[9..13].copy_from_slice(&failed_polls.to_le_bytes());
        bytes
    }
}

/// A rank's determinants, in order of occurrence.
#[derive(Debug, Default)]
pub(crate) struct DeterminantLog {
    /// Determinants recorded.
    pub(crate) recorded: u64,
    /// Failed polls (tests, probes).
    pub(crate) failed_polls: u64,
    /// The same, up to the last outcome.
    polls_before: u64,
    /// True once the local log has refused a determinant.
    is_full: bool,
}

impl DeterminantLog {
    /// Makes an empty log after `failed_polls` earlier failed polls.
    pub(crate) fn starting_at(failed_polls: u64) -> DeterminantLog {
        DeterminantLog { failed_polls, polls_before: failed_polls, ..DeterminantLog::default() }
    }

    /// Returns the number of failed polls since the last outcome, and notes another outcome.
    pub(crate) fn skip(&mut self) -> u32 {
        let before = std::mem::replace(&mut self.polls_before, self.failed_polls);
        u32::try_from(self.failed_polls - before).unwrap_or(u32::MAX)
    }

    /// Records a determinant in the local log, unless the rank's records can't be replayed (`Keep::Acked`).
    ///
    /// Returns `true` if recorded.
    ///
    /// # Errors
    /// The local log's refusal, once: after it nothing is recorded.
    pub(crate) fn record(&mut self, log: Option<&mut Log>, determinant: Determinant) -> Result<bool, LocalLogError> {
        let failed_polls = self.skip();
        let Some(log) = log.filter(|log| log.options().keep != Keep::Acked && !self.is_full) else { return Ok(false) };
        match log.local().append(DETERMINANT_ENTRY, self.recorded, &determinant.encode(failed_polls)) {
            Ok(()) => {
                self.recorded += 1;
                Ok(true)
            }
            Err(error) => {
                self.is_full = true;
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_determinant_is_kind_two_numbers_and_failed_polls() {
        let bytes = Determinant::Receive { source: 0x0102_0304, tag: -2 }.encode(5);
        assert_eq!(bytes, [0, 4, 3, 2, 1, 0xfe, 0xff, 0xff, 0xff, 5, 0, 0, 0]);
        assert_eq!(Determinant::Probe { source: 1, tag: 2 }.encode(0), [1, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Determinant::Completed { index: 7 }.encode(1), [2, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    }
}
