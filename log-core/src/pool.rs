//! The chunk pool: prefaulted blocks, reused last in first out, under one byte budget.
//!
//! In steady state a lane giving back a chunk soon takes the same one again, so the log stays in the cache. A block
//! never used, or with its memory returned to the system, is committed (a system call, and a page fault for each page)
//! only when the log grows; never on the path of an append within its chunk.

mod commit;
mod free_list;

use crate::arena::Arena;
use crate::chunk::{BlockRef, CHUNK_HEADER, ChunkState, write_state};
use crate::geometry::Geometry;
use crate::lane::LaneShared;
use crate::nouns::Rank;
use crate::options::PoolOptions;
use crate::record::{BODY_BYTES_MAX, PREFIX_BYTES_MAX, RECORD_ALIGN, footprint};
use crate::sync::{Arc, AtomicU32, AtomicUsize, CountedArc, CountedWeak, Mutex, Ordering};
use free_list::{FreeList, Stack};

/// Prefaulted chunks for each lane beginning with an ordinary chunk.
const WHOLE_START_CHUNKS: usize = 8;

impl PoolOptions {
    /// Returns the least `memory_bytes_max` for ever claiming a record of `prefix` + `payload` bytes under the other
    /// options; `None` if no budget is enough.
    pub fn memory_bytes_for(&self, prefix: usize, payload: usize) -> Option<usize> {
        let body = prefix.checked_add(payload)?;
        if prefix > PREFIX_BYTES_MAX || body > BODY_BYTES_MAX {
            return None;
        }
        Geometry::memory_bytes_for(CHUNK_HEADER + footprint(body) + RECORD_ALIGN, self.chunk_bytes)
    }
}

/// Report on a used-up memory budget: the bytes requested, and the lanes holding the memory.
///
/// Nothing was changed; the same call succeeds once enough bytes are released, collected or truncated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backpressure {
    /// Bytes in the requested block.
    pub requested_bytes: usize,
    /// Bytes in use by lanes.
    pub used_bytes: usize,
    /// The budget in bytes.
    pub max_bytes: usize,
    /// Bytes held by each lane, largest first: its peer has not acknowledged them, or has no checkpoint covering them.
    pub holders: Vec<(Rank, usize)>,
}

impl std::fmt::Display for Backpressure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Backpressure { requested_bytes, used_bytes, max_bytes, .. } = self;
        write!(f, "the log is full: {requested_bytes} bytes needed, {used_bytes} of {max_bytes} in use")?;
        for (peer, bytes) in self.holders.iter().take(3) {
            write!(f, ", {bytes} held for {peer}")?;
        }
        Ok(())
    }
}

/// Error of an allocation from the pool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// The budget is used up.
    #[error("{0}")]
    Full(Box<Backpressure>),
    /// The record is larger than any chunk can be under this budget.
    #[error(
        "a record of {bytes} bytes can never fit: the largest chunk under this budget is {max} bytes; raise memory_bytes_max"
    )]
    TooLarge {
        /// Bytes in the chunk needed.
        bytes: usize,
        /// Bytes in the largest chunk.
        max: usize,
    },
    /// The system has no memory left, although the budget has: lower the budget, or free the memory file system.
    #[error("no memory for a chunk of {bytes} bytes: {source}; is the memory file system (/dev/shm) full?")]
    NoMemory {
        /// Bytes in the chunk.
        bytes: usize,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

/// Memory blocks for one log's lanes, shared by their writers.
#[derive(Debug)]
pub struct Pool {
    pub(crate) arena: Arena,
    pub(crate) geometry: Geometry,
    pub(crate) options: PoolOptions,
    lists: Vec<FreeList>,
    /// Committed memory in bytes, in use or warm.
    ///
    /// Above the budget by one smallest block at most ([`Pool::take_in_place`]).
    resident: AtomicUsize,
    /// Bytes in use by lanes.
    used: AtomicUsize,
    /// Bytes committed by claims.
    committed_late: AtomicUsize,
    /// Class of the last large-record block committed by a claim; 0 if there was none.
    large_class: AtomicUsize,
    /// Lanes still allowed to begin with an ordinary chunk.
    whole_starts: AtomicUsize,
    /// Existing lanes; only for reports.
    lanes: Mutex<Vec<CountedWeak<LaneShared>>>,
}

impl Pool {
    /// Makes a pool over `arena`, made for this geometry.
    pub(crate) fn over(arena: Arena, geometry: Geometry, options: PoolOptions) -> Arc<Pool> {
        let lists = geometry
            .classes
            .iter()
            .map(|class| FreeList {
                warm: Stack::new(),
                cold: Stack::new(),
                fresh: AtomicU32::new(0),
                links: (0..class.blocks).map(|_| AtomicU32::new(0)).collect(),
            })
            .collect();
        let whole_starts = AtomicUsize::new(options.prefault_bytes / options.chunk_bytes / WHOLE_START_CHUNKS);
        Arc::new(Pool {
            arena,
            geometry,
            options,
            lists,
            resident: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            committed_late: AtomicUsize::new(0),
            large_class: AtomicUsize::new(0),
            whole_starts,
            lanes: Mutex::new(Vec::new()),
        })
    }

    /// Takes a block from the smallest class holding `bytes`.
    pub(crate) fn take_for(&self, bytes: usize) -> Result<BlockRef, AllocError> {
        let largest = self.geometry.classes.last().map_or(0, |class| class.bytes);
        let class = self.geometry.class_for(bytes).ok_or(AllocError::TooLarge { bytes, max: largest })?;
        self.take(class)
    }

    /// Takes a block from this class, a warm one if there is any.
    pub(crate) fn take(&self, class: usize) -> Result<BlockRef, AllocError> {
        self.take_within(class, self.options.memory_bytes_max)
    }

    /// Takes a block from the smallest class in place of a larger one about to be freed: one such block may be in use
    /// beyond the budget.
    ///
    /// Otherwise lanes could never give up a current chunk when current chunks take the whole budget.
    pub(crate) fn take_in_place(&self) -> Result<BlockRef, AllocError> {
        self.take_within(0, self.options.memory_bytes_max + self.geometry.classes[0].bytes)
    }

    /// Takes a block from this class while at most `resident_max` bytes are resident.
    fn take_within(&self, class: usize, resident_max: usize) -> Result<BlockRef, AllocError> {
        let list = &self.lists[class];
        let bytes = self.geometry.classes[class].bytes;
        if let Some(index) = list.warm.pop(&list.links) {
            self.used.fetch_add(bytes, Ordering::Relaxed);
            return Ok(self.block(class, index));
        }
        self.charge(bytes, resident_max)?;
        let block = self.commit_new(class)?.ok_or_else(|| self.full(bytes))?;
        if class > self.geometry.chunk_class {
            self.large_class.store(class, Ordering::Relaxed);
        }
        self.committed_late.fetch_add(bytes, Ordering::Relaxed);
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Ok(block)
    }

    /// Pushes a block onto its class's warm stack, the source of the next chunk.
    pub(crate) fn give_back(&self, block: BlockRef) {
        self.used.fetch_sub(self.block_bytes(block), Ordering::Relaxed);
        self.add_warm(block);
    }

    /// Pushes an unused block onto its class's warm stack.
    fn add_warm(&self, block: BlockRef) {
        write_state(&self.arena, block.at(), ChunkState::Free);
        let list = &self.lists[block.class()];
        list.warm.push(&list.links, self.index(block));
    }

    /// Counts the blocks found in use by a recovery, and lists all others as cold.
    #[cfg(not(counterfoil_loom))]
    pub(crate) fn adopt(&self, blocks: &[BlockRef]) {
        for &block in blocks {
            let bytes = self.block_bytes(block);
            self.used.fetch_add(bytes, Ordering::Relaxed);
            self.resident.fetch_add(bytes, Ordering::Relaxed);
            let fresh = &self.lists[block.class()].fresh;
            fresh.fetch_max(self.index(block) + 1, Ordering::Relaxed);
        }
        for (class, list) in self.lists.iter().enumerate() {
            let mut known = vec![false; list.fresh.load(Ordering::Relaxed) as usize];
            for block in blocks.iter().filter(|block| block.class() == class) {
                known[self.index(*block) as usize] = true;
            }
            for (index, _) in known.iter().enumerate().filter(|(_, known)| !**known).rev() {
                list.cold.push(&list.links, index as u32);
            }
        }
    }

    /// Returns a block's size in bytes.
    pub(crate) fn block_bytes(&self, block: BlockRef) -> usize {
        self.geometry.classes[block.class()].bytes
    }

    /// Returns the bytes currently used by lanes.
    pub fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the committed memory in bytes, in use or kept for reuse.
    pub fn resident_bytes(&self) -> usize {
        self.resident.load(Ordering::Relaxed)
    }

    /// Returns the committed memory not used by a lane, in bytes.
    #[inline]
    pub fn spare_bytes(&self) -> usize {
        self.resident_bytes().saturating_sub(self.used_bytes())
    }

    /// Returns the bytes committed by claims: neither prefaulted nor committed ahead.
    pub fn late_commit_bytes(&self) -> usize {
        self.committed_late.load(Ordering::Relaxed)
    }

    /// Returns the pool's options.
    pub fn options(&self) -> &PoolOptions {
        &self.options
    }

    /// Returns `true` if committed records outlive the process.
    pub fn survives_process(&self) -> bool {
        self.arena.survives_process()
    }

    /// Adds a new lane.
    ///
    /// Returns the class of its first chunk.
    pub(crate) fn register(&self, lane: &CountedArc<LaneShared>) -> usize {
        // Called once for each lane, never on the message path.
        let mut lanes = self.lanes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        lanes.retain(|lane| lane.strong_count() > 0);
        lanes.push(CountedArc::downgrade(lane));
        drop(lanes);
        let one = |left: usize| left.checked_sub(1);
        let is_whole = self.whole_starts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one).is_ok();
        if is_whole { self.geometry.chunk_class } else { 0 }
    }

    fn block(&self, class: usize, index: u32) -> BlockRef {
        let class_info = &self.geometry.classes[class];
        BlockRef::new(class_info.region + index as usize * class_info.bytes, class)
    }

    fn index(&self, block: BlockRef) -> u32 {
        let class = &self.geometry.classes[block.class()];
        ((block.at() - class.region) / class.bytes) as u32
    }

    fn take_fresh(&self, class: usize) -> Option<u32> {
        let blocks = self.geometry.classes[class].blocks as u32;
        self.lists[class]
            .fresh
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |fresh| (fresh < blocks).then_some(fresh + 1))
            .ok()
    }

    /// Returns warm blocks' memory to the system until no more than the budget is resident.
    pub(crate) fn discard_excess(&self) {
        while self.resident_bytes() > self.options.memory_bytes_max && self.discard_one_warm() {}
    }

    /// Counts `bytes` as resident; returns warm blocks' memory to the system if `resident_max` is exceeded otherwise.
    fn charge(&self, bytes: usize, resident_max: usize) -> Result<(), AllocError> {
        while !self.try_reserve(bytes, resident_max) {
            if !self.discard_one_warm() {
                return Err(self.full(bytes));
            }
        }
        Ok(())
    }

    /// Counts `bytes` as resident if no more than `resident_max` are then.
    fn try_reserve(&self, bytes: usize, resident_max: usize) -> bool {
        self.resident
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |resident| {
                (resident + bytes <= resident_max).then_some(resident + bytes)
            })
            .is_ok()
    }

    /// Returns one warm block's memory to the system, from the largest class with one; `true` if there was one.
    fn discard_one_warm(&self) -> bool {
        for class in (0..self.lists.len()).rev() {
            let list = &self.lists[class];
            if let Some(index) = list.warm.pop(&list.links) {
                let block = self.block(class, index);
                let bytes = self.geometry.classes[class].bytes;
                if self.arena.discard(block.at(), bytes).is_ok() {
                    list.cold.push(&list.links, index);
                    self.resident.fetch_sub(bytes, Ordering::Relaxed);
                    return true;
                }
                list.warm.push(&list.links, index);
                return false;
            }
        }
        false
    }

    fn full(&self, requested_bytes: usize) -> AllocError {
        let lanes: Vec<_> = {
            let lanes = self.lanes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            lanes.iter().filter_map(CountedWeak::upgrade).collect()
        };
        let mut holders: Vec<(Rank, usize)> =
            lanes.iter().map(|lane| (lane.peer(), lane.held_bytes())).filter(|(_, bytes)| *bytes > 0).collect();
        holders.sort_by_key(|&(peer, bytes)| (std::cmp::Reverse(bytes), peer));
        AllocError::Full(Box::new(Backpressure {
            requested_bytes,
            used_bytes: self.used_bytes(),
            max_bytes: self.options.memory_bytes_max,
            holders,
        }))
    }
}

#[cfg(not(counterfoil_loom))]
#[cfg(test)]
mod tests;
