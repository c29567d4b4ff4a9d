//! Reading the parts of a store without opening it.

use counterfoil_log_core::Epoch;

use super::{ManifestReport, open};
use crate::format::checkpoint_file::{self, Application};
use crate::format::manifest::{FoundManifest, Manifest};
use crate::format::names::{MANIFEST, checkpoint_name, segment_name};
use crate::format::segment::SegmentHeader;
use crate::read::reader::OpenSegment;
use crate::store::listing;
use crate::{Block, BlockBuffer, CheckpointImage, StorageBackend, StoreError};

/// A view for reading checkpoints and blocks one by one, even from a damaged store.
///
/// It changes nothing, and has at most one segment open at a time. Opening a [`Store`](crate::Store) verifies
/// everything first and refuses a damaged one.
#[derive(Debug)]
pub struct StoreView<'a> {
    backend: &'a mut dyn StorageBackend,
    /// `None` in a block-only view.
    manifest: Option<Manifest>,
    segment: Option<(u32, OpenSegment)>,
}

impl<'a> StoreView<'a> {
    /// Creates a view.
    ///
    /// Reads only the manifest.
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::Damaged`], [`StoreError::Version`] if no manifest slot can be read;
    /// [`StoreError::Io`].
    pub fn new(backend: &'a mut dyn StorageBackend) -> Result<StoreView<'a>, StoreError> {
        let (names, _) = listing::list(backend)?;
        if !names.iter().any(|name| name == MANIFEST) {
            return Err(StoreError::Missing);
        }
        let manifest = FoundManifest::read(&*open(backend, MANIFEST)?)?.newest(&names)?;
        Ok(StoreView { backend, manifest: Some(manifest), segment: None })
    }

    /// Creates a block-only view, for a store without a readable manifest: [`read`](Self::read) reads the blocks found
    /// by a [`scan`](crate::scan()).
    pub fn of_blocks(backend: &'a mut dyn StorageBackend) -> StoreView<'a> {
        StoreView { backend, manifest: None, segment: None }
    }

    /// Returns the manifest's contents; `None` in a block-only view.
    pub fn manifest(&self) -> Option<ManifestReport> {
        self.manifest.as_ref().map(ManifestReport::new)
    }

    /// Returns the epochs of the valid checkpoints, oldest first.
    pub fn checkpoints(&self) -> Vec<Epoch> {
        self.manifest.iter().flat_map(|manifest| &manifest.kept).map(|kept| kept.epoch).collect()
    }

    /// Reads a valid checkpoint.
    ///
    /// Verifies the program's own bytes, and leaves them out.
    ///
    /// # Errors
    /// [`StoreError::NoCheckpoint`], [`StoreError::Damaged`], [`StoreError::Version`], [`StoreError::Io`].
    pub fn image(&mut self, epoch: Epoch) -> Result<CheckpointImage, StoreError> {
        let manifest = self.manifest.as_ref().ok_or(StoreError::NoCheckpoint { epoch })?;
        let kept = manifest.kept.iter().find(|kept| kept.epoch == epoch);
        let kept = kept.ok_or(StoreError::NoCheckpoint { epoch })?;
        let file = open(self.backend, &checkpoint_name(kept.number))?;
        let (mut image, _) = checkpoint_file::decode(&*file, kept, Application::Verify)?;
        crate::store::apply_floors(&mut image, &manifest.floors);
        Ok(image)
    }

    /// Reads a block and verifies it, as [`StoreReader::read`](crate::StoreReader::read) does.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Version`], [`StoreError::Io`]. `into` holds no records then.
    pub fn read(&mut self, block: &Block, into: &mut BlockBuffer) -> Result<(), StoreError> {
        into.clear();
        let name = segment_name(block.segment);
        let segment = match self.segment.take() {
            Some((number, segment)) if number == block.segment => segment,
            _ => {
                let file = open(self.backend, &name)?;
                let generation = SegmentHeader::read(&*file, block.segment)?.generation.get();
                OpenSegment { file, generation }
            }
        };
        let place = (block.segment, block.at, block.disk_bytes);
        let read = into.read(&*segment.file, &name, segment.generation, place);
        self.segment = Some((block.segment, segment));
        read?;
        into.check_identity(block, &name)
    }
}
