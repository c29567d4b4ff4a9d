//! Store limits.

use counterfoil_log_core::Rank;

use crate::format::{BLOCK_BYTES_MAX, CHECKPOINTS_KEPT_MAX};
use crate::{PAGE_BYTES, StoreError};

const PAGE: u64 = PAGE_BYTES as u64;

/// Identity and limits of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// The store's rank.
    pub rank: Rank,
    /// Number of ranks in the job, at most 2^20.
    pub ranks: u32,
    /// Maximum bytes on disk: segments, checkpoint files, manifest and reserve.
    ///
    /// Default: 4 GiB.
    ///
    /// An open store has a file descriptor for each segment: 256 at the defaults (4 GiB in 16 MiB segments), and more
    /// if most segments have only a few live blocks and holes otherwise. A larger disk needs larger segments, or more
    /// open files for the process (`ulimit -n`); too few are [`StoreError::TooManyFiles`].
    pub disk_bytes_max: u64,
    /// Segment size in bytes, a multiple of 4,096 between 8 KiB and 1 GiB.
    ///
    /// A record that doesn't fit gets its own segment. A new segment needs this many free bytes, which leaves room for
    /// checkpoint files: a disk smaller than eight segments needs smaller ones. Default: 16 MiB.
    pub segment_bytes: u64,
    /// Maximum block size in bytes, a multiple of 4,096 between 4 KiB and 16 MiB, less than a segment; the backend's
    /// largest single write is a limit, too.
    ///
    /// A record that doesn't fit gets its own block. Default: 256 KiB. A block with in-place chunks may be an eighth
    /// larger, but has at most 16 MiB of chunks, plus a page for their table; a larger chunk gets its own block.
    pub block_bytes: usize,
    /// Compress blocks (lz4) if this saves at least an eighth.
    ///
    /// Default: no.
    pub compress: bool,
    /// Bytes reserved on disk.
    ///
    /// They are released when the disk is too full for a checkpoint file, because a checkpoint lets other space be
    /// freed; a multiple of 4,096, 0 for none. Opening a store needs no free space. Default: 1 MiB.
    pub reserve_bytes: u64,
    /// Number of checkpoints kept, 1 to 64.
    ///
    /// Default: 1.
    pub checkpoints_kept: usize,
    /// Write block checksums.
    ///
    /// Only a benchmark turns them off.
    #[doc(hidden)]
    pub checksums: bool,
    /// Seed for the random identities of stores and segments; `None` for a random one.
    ///
    /// Set by tests to write the same bytes each time.
    #[doc(hidden)]
    pub seed: Option<u64>,
}

impl StoreOptions {
    /// Returns the defaults for a rank in a job with `ranks` ranks.
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

    /// Checks each limit, and their consistency.
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
            return refuse(format!(
                "block_bytes is {block}, and a segment has space for {}",
                self.segment_bytes - PAGE
            ));
        }
        if !self.reserve_bytes.is_multiple_of(PAGE) {
            return refuse(format!("reserve_bytes is {}, not a multiple of 4096", self.reserve_bytes));
        }
        if self.disk_bytes_max < self.segment_bytes + self.reserve_bytes {
            let least = self.segment_bytes + self.reserve_bytes;
            let max = self.disk_bytes_max;
            return refuse(format!("disk_bytes_max is {max}, less than a segment and the reserve: at least {least}"));
        }
        if self.compress && !crate::format::lz4::IS_BUILT {
            return refuse("compress is set, and this program was built without the feature `lz4`".to_owned());
        }
        if !(1..=CHECKPOINTS_KEPT_MAX).contains(&self.checkpoints_kept) {
            return refuse(format!("checkpoints_kept is {}, not 1 to {CHECKPOINTS_KEPT_MAX}", self.checkpoints_kept));
        }
        Ok(())
    }
}

/// Access to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading and writing.
    ReadWrite,
    /// Reading only: works on a full disk, and preserves a damaged store for analysis.
    ReadOnly,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_must_hold_a_segment_and_the_reserve() {
        let least = StoreOptions { disk_bytes_max: 17 << 20, ..StoreOptions::new(Rank(0), 2) };
        assert!(least.validate().is_ok());
        let less = StoreOptions { disk_bytes_max: least.disk_bytes_max - 1, ..least.clone() };
        let refused = less.validate().unwrap_err().to_string();
        assert!(refused.contains(&format!("at least {}", 17 << 20)), "{refused}");
        let without_reserve = StoreOptions { reserve_bytes: 0, disk_bytes_max: 16 << 20, ..least };
        assert!(without_reserve.validate().is_ok());
    }

    #[test]
    fn sizes_are_whole_pages_within_their_limits() {
        let is_valid = |change: fn(&mut StoreOptions)| {
            let mut options = StoreOptions { disk_bytes_max: 4 << 30, ..StoreOptions::new(Rank(0), 2) };
            change(&mut options);
            options.validate().is_ok()
        };
        assert!(is_valid(|_| ()));
        assert!(is_valid(|options| options.segment_bytes = 1 << 30));
        assert!(!is_valid(|options| options.segment_bytes = (1 << 30) + 4096));
        assert!(!is_valid(|options| options.segment_bytes += 1));
        assert!(is_valid(|options| (options.segment_bytes, options.block_bytes) = (8192, 4096)));
        assert!(!is_valid(|options| (options.segment_bytes, options.block_bytes) = (4096, 4096)));
        assert!(is_valid(|options| (options.segment_bytes, options.block_bytes) = (32 << 20, 16 << 20)));
        assert!(!is_valid(|options| (options.segment_bytes, options.block_bytes) = (32 << 20, (16 << 20) + 4096)));
        assert!(!is_valid(|options| options.block_bytes = 0) && !is_valid(|options| options.block_bytes = 4097));
        assert!(!is_valid(|options| options.reserve_bytes = 1) && is_valid(|options| options.reserve_bytes = 0));
        assert!(
            is_valid(|options| options.checkpoints_kept = 64) && !is_valid(|options| options.checkpoints_kept = 65)
        );
        assert!(!is_valid(|options| options.checkpoints_kept = 0));
        assert!(is_valid(|options| options.ranks = 1 << 20) && !is_valid(|options| options.ranks = (1 << 20) + 1));
        assert!(is_valid(|options| options.rank = Rank(1)) && !is_valid(|options| options.rank = Rank(2)));
    }

    #[test]
    fn a_block_fits_into_a_segment_after_its_header() {
        let options =
            StoreOptions { segment_bytes: 1 << 20, block_bytes: (1 << 20) - 4096, ..StoreOptions::new(Rank(0), 2) };
        assert!(options.validate().is_ok());
        assert!(StoreOptions { block_bytes: 1 << 20, ..options }.validate().is_err());
    }
}
