//! What the collector is told of a chunk, and what it answers.

use counterfoil_log_core::{Epoch, Rank, Ssn};

/// Size in bytes of the smallest chunk. One of these may be held almost empty in each lane.
pub const SMALL_CHUNK_BYTES: usize = 4096;

/// A chunk all of whose records are acknowledged, so that each of them is either released or retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkUse {
    /// The owner's number for it. Unique among the chunks of a lane.
    pub chunk: u64,
    /// The SSN of its first record.
    pub first: Ssn,
    /// The SSN of its last record.
    pub last: Ssn,
    /// Bytes of memory that it holds.
    pub held_bytes: usize,
    /// Bytes of it that are retained: records with their headers, and the chunk's own header if it has one.
    /// 0 if every record is released.
    pub used_bytes: usize,
    /// The newest epoch in which the receiver received one of its records; `Epoch(0)` where epochs aren't used.
    pub newest_epoch: Epoch,
}

impl ChunkUse {
    /// Bytes held beyond twice the bytes used.
    pub(crate) fn deficit_bytes(&self) -> usize {
        deficit(self.held_bytes, self.used_bytes)
    }

    /// Bytes held once the chunk is moved if it has to be: small chunks aren't moved by themselves, because there
    /// is nothing smaller to move them to.
    pub(crate) fn settled_bytes(&self) -> usize {
        if self.held_bytes > SMALL_CHUNK_BYTES && self.deficit_bytes() > 0 {
            fresh_bytes(self.used_bytes)
        } else {
            self.held_bytes
        }
    }
}

/// The size of the smallest chunk that `used` bytes fit into: sizes double from [`SMALL_CHUNK_BYTES`] on. Above
/// the largest ordinary size an owner that steps more finely holds less than this, never more.
pub(crate) fn fresh_bytes(used: usize) -> usize {
    used.max(SMALL_CHUNK_BYTES).checked_next_power_of_two().unwrap_or(used)
}

pub(crate) fn deficit(held: usize, used: usize) -> usize {
    held.saturating_sub(used.saturating_mul(2))
}

/// What is to be done with a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the bound on memory holds once decisions are carried out"]
pub enum Decision {
    /// Nothing in it is needed: free it. The collector has forgotten it.
    Free {
        /// The chunk.
        chunk: u64,
    },
    /// It is needed, and worth its space.
    Keep {
        /// The chunk.
        chunk: u64,
    },
    /// It is needed but mostly empty: copy what is used into one fresh chunk, free the old one and say so with
    /// [`Collector::relocated`](crate::Collector::relocated).
    ///
    /// The fresh chunk holds at most the smallest power of two of bytes, from [`SMALL_CHUNK_BYTES`] on, that fits.
    /// That is never more than the larger of the old chunks.
    Relocate {
        /// The chunk.
        chunk: u64,
        /// The next chunk of the lane, if what is used of it has to go into the same fresh chunk, after what is
        /// used of `chunk`.
        next: Option<u64>,
    },
}

/// The oldest chunk of a lane is covered in part: see
/// [`Collector::poll_partly_covered`](crate::Collector::poll_partly_covered).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartlyCovered {
    /// The lane.
    pub lane: Rank,
    /// Its oldest chunk.
    pub chunk: u64,
    /// Everything up to here isn't needed any more.
    pub floor: Ssn,
}
