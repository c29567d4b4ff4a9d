//! Reading blocks on any thread, while the store is written.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::format::names::segment_name;
use crate::{Block, BlockBuffer, ReadAt, StoreError};

/// A store's block reader, for any thread.
///
/// Clones share the open segments.
#[derive(Clone, Debug)]
pub struct StoreReader {
    segments: Arc<RwLock<BTreeMap<u32, OpenSegment>>>,
}

/// A segment open for reading.
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

    /// Returns an open segment, which must exist.
    pub(crate) fn segment(&self, segment: u32) -> Result<OpenSegment, StoreError> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let open = segments.get(&segment).cloned();
        open.ok_or_else(|| StoreError::damaged(&segment_name(segment), 0, "the store has no such segment"))
    }

    /// Reads a block, verifies header, checksum and records, and checks that it is `block`.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Io`]. `into` holds no records then.
    pub fn read(&self, block: &Block, into: &mut BlockBuffer) -> Result<(), StoreError> {
        let open = self.segment(block.segment)?;
        let name = segment_name(block.segment);
        into.read(&*open.file, &name, open.generation, (block.segment, block.at, block.disk_bytes))?;
        into.check_identity(block, &name)
    }
}
