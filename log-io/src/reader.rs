//! Reading blocks back, on any thread, beside the writer.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::segment::segment_name;
use crate::{Block, BlockBuffer, ReadAt, StoreError};

/// Reads a store's blocks; can be cloned and sent to other threads.
#[derive(Clone, Debug)]
pub struct StoreReader {
    segments: Arc<RwLock<BTreeMap<u32, OpenSegment>>>,
}

/// A segment to be read.
#[derive(Clone, Debug)]
pub(crate) struct OpenSegment {
    pub(crate) file: Arc<dyn ReadAt>,
    pub(crate) generation: u64,
}

impl StoreReader {
    pub(crate) fn new() -> StoreReader {
        StoreReader { segments: Arc::default() }
    }

    pub(crate) fn insert(&self, segment: u32, open: OpenSegment) {
        self.segments.write().unwrap_or_else(PoisonError::into_inner).insert(segment, open);
    }

    pub(crate) fn remove(&self, segment: u32) {
        self.segments.write().unwrap_or_else(PoisonError::into_inner).remove(&segment);
    }

    /// The segment that a block is in.
    pub(crate) fn segment(&self, segment: u32) -> Result<OpenSegment, StoreError> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let open = segments.get(&segment).cloned();
        open.ok_or_else(|| StoreError::damaged(&segment_name(segment), 0, "the store has no such segment"))
    }

    /// Reads a block, and verifies it: header, checksum, records, and that it is the block that `block` says.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Io`]. `into` holds no records then.
    pub fn read(&self, block: &Block, into: &mut BlockBuffer) -> Result<(), StoreError> {
        let open = self.segment(block.segment)?;
        let name = segment_name(block.segment);
        into.read(&*open.file, &name, open.generation, (block.segment, block.at, block.disk_bytes))?;
        into.check_is(block, &name)
    }
}
