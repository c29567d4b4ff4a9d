//! Collector input and output: chunk use and decisions.

use counterfoil_log_core::{Epoch, Rank, Ssn};

/// Smallest chunk size in bytes.
///
/// Each lane may hold one such chunk almost empty.
pub const SMALL_CHUNK_BYTES: usize = 4096;

/// Use of a settled chunk: all its records are acknowledged, so each is either released or retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkUse {
    /// Chunk id assigned by the owner, unique within a lane.
    pub chunk: u64,
    /// SSN of the first record.
    pub first: Ssn,
    /// SSN of the last record.
    pub last: Ssn,
    /// Chunk size in bytes.
    pub held_bytes: usize,
    /// Bytes in use: retained records with their headers, and the chunk's own header if it has one.
    /// 0 if every record is released.
    pub used_bytes: usize,
    /// Newest receive epoch among the records; `Epoch(0)` where epochs aren't used.
    pub newest_epoch: Epoch,
}

impl ChunkUse {
    /// Returns the bytes held beyond twice the bytes used.
    pub(crate) fn deficit_bytes(&self) -> usize {
        deficit(self.held_bytes, self.used_bytes)
    }

    /// Returns the bytes held after a relocation, if one is needed.
    ///
    /// A small chunk isn't relocated alone, because no smaller chunk exists.
    pub(crate) fn settled_bytes(&self) -> usize {
        if self.held_bytes > SMALL_CHUNK_BYTES && self.deficit_bytes() > 0 {
            fitting_chunk_bytes(self.used_bytes)
        } else {
            self.held_bytes
        }
    }
}

/// Returns the size of the smallest chunk that fits `used` bytes: sizes double from [`SMALL_CHUNK_BYTES`] on.
///
/// Above the largest ordinary size an owner with finer steps holds less than this, never more.
pub(crate) fn fitting_chunk_bytes(used: usize) -> usize {
    used.max(SMALL_CHUNK_BYTES).checked_next_power_of_two().unwrap_or(used)
}

pub(crate) fn deficit(held: usize, used: usize) -> usize {
    held.saturating_sub(used.saturating_mul(2))
}

/// Action for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the memory bound only holds after decisions are carried out"]
pub enum Decision {
    /// Free the chunk: nothing in it is needed. The collector has already dropped it.
    Free {
        /// The chunk.
        chunk: u64,
    },
    /// Keep the chunk: it is needed, and sufficiently full.
    Keep {
        /// The chunk.
        chunk: u64,
    },
    /// Relocate the chunk: it is needed but mostly empty. Copy its used records into one fresh chunk, free the old one
    /// and report it to [`Collector::relocated`](crate::Collector::relocated).
    ///
    /// The fresh chunk's size is at most the smallest fitting power of two, from [`SMALL_CHUNK_BYTES`] on. It never
    /// exceeds the larger of the old chunks.
    Relocate {
        /// The chunk.
        chunk: u64,
        /// The lane's next chunk, if its used records must follow those of `chunk` in the same fresh chunk.
        next: Option<u64>,
    },
}

/// A lane with a partly covered oldest chunk: see
/// [`Collector::poll_partly_covered`](crate::Collector::poll_partly_covered).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartlyCovered {
    /// The lane.
    pub lane: Rank,
    /// The lane's oldest chunk.
    pub chunk: u64,
    /// The last covered SSN.
    pub floor: Ssn,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relocated_chunk_holds_the_next_power_of_two_from_a_small_chunk_on() {
        for (used, bytes) in [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192), (100_000, 131_072)] {
            assert_eq!(fitting_chunk_bytes(used), bytes, "{used}");
        }
        assert_eq!(fitting_chunk_bytes(usize::MAX), usize::MAX);
    }

    #[test]
    fn a_chunk_is_relocated_if_less_than_half_of_it_is_used() {
        for (held_bytes, used_bytes, settled) in [
            (65_536, 100, 4096),
            (65_536, 32_767, 32_768),
            (65_536, 32_768, 65_536),
            (16_384, 8192, 16_384),
            (8192, 0, 4096),
            (4096, 0, 4096),
        ] {
            let (first, last) = (Ssn(1), Ssn(9));
            let chunk = ChunkUse { chunk: 1, first, last, held_bytes, used_bytes, newest_epoch: Epoch(0) };
            assert_eq!(chunk.settled_bytes(), settled, "{used_bytes} of {held_bytes}");
            assert_eq!(chunk.deficit_bytes(), held_bytes.saturating_sub(2 * used_bytes));
        }
    }
}
