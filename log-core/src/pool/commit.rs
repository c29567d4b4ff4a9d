//! Memory commitment: at the start, ahead of the writers, and for a claim.

use super::{AllocError, Pool};
use crate::chunk::BlockRef;
use crate::sync::Ordering;

impl Pool {
    /// Commits the first `prefault_bytes` of ordinary chunks.
    pub(crate) fn prefault(&self) -> Result<(), AllocError> {
        let class = self.geometry.chunk_class;
        let mut blocks = Vec::new();
        while (blocks.len() + 1) * self.options.chunk_bytes <= self.options.prefault_bytes {
            blocks.push(self.commit_spare(class)?.ok_or_else(|| self.full(self.options.chunk_bytes))?);
        }
        blocks.into_iter().rev().for_each(|block| self.add_warm(block));
        Ok(())
    }

    /// Commits memory for one more block ahead of the writers, sparing them the page faults: a chunk, or a block as
    /// large as the last large record needed.
    ///
    /// Unlike a claim it never takes memory from other blocks: it returns `false` if `ahead_bytes` are ready, or if the
    /// budget has no room. Any thread may call it.
    ///
    /// # Errors
    /// [`AllocError::NoMemory`].
    pub fn commit_ahead(&self, ahead_bytes: usize) -> Result<bool, AllocError> {
        let Some(class) = self.class_to_commit(ahead_bytes) else { return Ok(false) };
        let block = self.commit_spare(class)?;
        block.into_iter().for_each(|block| self.add_warm(block));
        Ok(block.is_some())
    }

    /// Returns `true` if [`commit_ahead`](Self::commit_ahead) would commit memory now.
    ///
    /// Takes a few loads.
    #[inline]
    pub fn can_commit_ahead(&self, ahead_bytes: usize) -> bool {
        self.class_to_commit(ahead_bytes).is_some()
    }

    /// Returns the class of the next block to commit ahead.
    #[inline]
    fn class_to_commit(&self, ahead_bytes: usize) -> Option<usize> {
        let room = self.options.memory_bytes_max.saturating_sub(self.resident_bytes());
        let large = self.large_class.load(Ordering::Relaxed);
        if large > 0 && self.lists[large].warm.is_empty() && self.geometry.classes[large].bytes <= room {
            return Some(large);
        }
        let has_enough = self.spare_bytes() >= ahead_bytes || self.options.chunk_bytes > room;
        (!has_enough).then_some(self.geometry.chunk_class)
    }

    /// Commits a block not requested by a claim; `None` if the budget has no room.
    fn commit_spare(&self, class: usize) -> Result<Option<BlockRef>, AllocError> {
        let bytes = self.geometry.classes[class].bytes;
        if self.try_reserve(bytes, self.options.memory_bytes_max) { self.commit_new(class) } else { Ok(None) }
    }

    /// Takes a block without memory, its bytes already reserved, and commits it; `None` if there is no such block in
    /// the class.
    ///
    /// The reservation is dropped if there is none, and on an error.
    pub(super) fn commit_new(&self, class: usize) -> Result<Option<BlockRef>, AllocError> {
        let list = &self.lists[class];
        let bytes = self.geometry.classes[class].bytes;
        let Some(index) = list.cold.pop(&list.links).or_else(|| self.take_fresh(class)) else {
            self.resident.fetch_sub(bytes, Ordering::Relaxed);
            return Ok(None);
        };
        let block = self.block(class, index);
        if let Err(source) = self.arena.commit(block.at(), bytes) {
            // Some of its pages may have memory. If they can't be returned, the block keeps them for its next use.
            let _ = self.arena.discard(block.at(), bytes);
            self.resident.fetch_sub(bytes, Ordering::Relaxed);
            list.cold.push(&list.links, index);
            return Err(AllocError::NoMemory { bytes, source });
        }
        Ok(Some(block))
    }
}
