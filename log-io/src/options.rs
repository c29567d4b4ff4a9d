//! Limits of a store.

use counterfoil_log_core::Rank;

use crate::{PAGE_BYTES, StoreError};

const PAGE: u64 = PAGE_BYTES as u64;
/// The most checkpoints that a manifest has room for.
pub(crate) const CHECKPOINTS_KEPT_MAX: usize = 64;
/// The largest block that `block_bytes` allows.
pub(crate) const BLOCK_BYTES_MAX: usize = 16 << 20;

/// Limits of a store, and what it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Whose store it is.
    pub rank: Rank,
    /// Ranks of the job; at most 2^20.
    pub ranks: u32,
    /// The most bytes on disk: segments, checkpoint files and what the store itself needs. Default: 4 GiB.
    ///
    /// A store that is open has a file descriptor for each segment: 256 of them at the defaults (4 GiB in segments of 16 MiB),
    /// and more where most of the segments were given back to the disk but for a few blocks each. With a larger disk go
    /// larger segments, or more open files for the process (`ulimit -n`); where there are not enough, it is
    /// [`StoreError::TooManyFiles`].
    pub disk_bytes_max: u64,
    /// Bytes of a segment, a multiple of 4,096 between 8 KiB and 1 GiB. A record that fits in none gets one of its own.
    /// Default: 16 MiB.
    pub segment_bytes: u64,
    /// The most bytes of a block, a multiple of 4,096 between 4 KiB and 16 MiB, less than a segment; the backend's largest
    /// single write is a limit, too. A record that doesn't fit gets a block of its own. Default: 256 KiB.
    /// A block of chunks that are written from where they lie in memory may be an eighth larger, and has a page beside for
    /// their table; a chunk that is larger has one of its own.
    pub block_bytes: usize,
    /// Whether blocks are compressed (lz4) where that saves an eighth. Default: no.
    pub compress: bool,
    /// Bytes that are given up when the disk is too full for a checkpoint file, so that one can be taken and things can be
    /// freed; a multiple of 4,096, 0 for none. Opening a store needs no room.
    /// Default: 1 MiB.
    pub reserve_bytes: u64,
    /// How many checkpoints are kept: 1 to 64. Default: 1.
    pub checkpoints_kept: usize,
    /// Whether blocks have checksums. Only a benchmark does without.
    #[doc(hidden)]
    pub checksums: bool,
    /// Where the numbers that tell stores and segments apart come from; `None` is chance. A test sets it, so that it writes
    /// the same bytes each time.
    #[doc(hidden)]
    pub seed: Option<u64>,
}

impl StoreOptions {
    /// The defaults for a rank of a job of `ranks`.
    pub fn new(rank: Rank, ranks: u32) -> StoreOptions {
        StoreOptions {
            rank,
            ranks,
            disk_bytes_max: 4 << 30,
            segment_bytes: 16 << 20,
            block_bytes: 256 << 10,
            compress: false,
            reserve_bytes: 1 << 20,
            checkpoints_kept: 1,
            checksums: true,
            seed: None,
        }
    }

    /// Checks that the limits make sense together.
    ///
    /// # Errors
    /// [`StoreError::Options`].
    pub fn validate(&self) -> Result<(), StoreError> {
        let refuse = |what: String| Err(StoreError::Options(what));
        if self.ranks > 1 << 20 || self.rank.0 >= self.ranks {
            return refuse(format!("{} of {} ranks: ranks are numbered from 0 to 2^20 - 1", self.rank, self.ranks));
        }
        if !self.segment_bytes.is_multiple_of(PAGE) || !(2 * PAGE..=1 << 30).contains(&self.segment_bytes) {
            return refuse(format!("segment_bytes is {}, not a multiple of 4096 up to 1 GiB", self.segment_bytes));
        }
        let block = self.block_bytes as u64;
        if !block.is_multiple_of(PAGE) || !(PAGE..=BLOCK_BYTES_MAX as u64).contains(&block) {
            return refuse(format!("block_bytes is {block}, not a multiple of 4096 up to 16 MiB"));
        }
        if block > self.segment_bytes - PAGE {
            return refuse(format!("block_bytes is {block}, and a segment has room for {}", self.segment_bytes - PAGE));
        }
        if !self.reserve_bytes.is_multiple_of(PAGE) {
            return refuse(format!("reserve_bytes is {}, not a multiple of 4096", self.reserve_bytes));
        }
        if self.disk_bytes_max < self.segment_bytes + self.reserve_bytes {
            let least = self.segment_bytes + self.reserve_bytes;
            let max = self.disk_bytes_max;
            return refuse(format!("disk_bytes_max is {max}, less than a segment and the reserve: at least {least}"));
        }
        if !(1..=CHECKPOINTS_KEPT_MAX).contains(&self.checkpoints_kept) {
            return refuse(format!("checkpoints_kept is {}, not 1 to {CHECKPOINTS_KEPT_MAX}", self.checkpoints_kept));
        }
        Ok(())
    }
}

/// What a store is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everything.
    ReadWrite,
    /// Nothing is written: works on a full disk, and leaves evidence as it is.
    ReadOnly,
}
