//! The store: a rank's private directory with segments, checkpoint files and a manifest.
//!
//! The durability order (a power cut keeps any subset of the unsynced bytes):
//!
//! 1. Blocks are written; every write has completed in full; each written segment is synced; the directory is synced if
//!    a segment is new. Now the blocks are durable.
//! 2. The checkpoint file is created, written and synced; the directory is synced.
//! 3. The manifest changes: slot 0 is written, synced; slot 1 is written, synced.
//! 4. Only now older checkpoint files are removed, and blocks without other references are freed.

mod append;
mod append_chunks;
mod barrier;
pub(crate) mod lane_source;
pub(crate) mod listing;
mod open;
mod prefetch;
mod space;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;

use counterfoil_log_core::{Epoch, Rank, Ssn};

use crate::backend::pieces::write_pieces;
use crate::format::checkpoint_file::{self, Application, Written};
use crate::format::manifest::{KeptCheckpoint, Manifest, slot_bytes};
use crate::format::names::{MANIFEST, RESERVE, checkpoint_name, file_number, segment_name};
use crate::format::segment::{Segment, SegmentHeader};
use crate::format::{FILE_NUMBER_MAX, FIRST_BLOCK};
use crate::read::reader::OpenSegment;
use crate::{
    Access, Block, Buffer, CheckpointImage, FileId, PAGE_BYTES, ReadAt, StorageBackend, StoreError, StoreOptions,
    StoreReader,
};

pub use space::DiskUsage;

/// A rank's store, with one writer.
///
/// After a failed write or sync it writes nothing more ([`StoreError::Failed`]), because the disk's state is unknown
/// until the store is opened again. Blocks can still be read. A full disk isn't a failure in this sense.
#[derive(Debug)]
pub struct Store {
    backend: Box<dyn StorageBackend>,
    options: StoreOptions,
    access: Access,
    manifest: Manifest,
    manifest_file: Option<FileId>,
    /// The slot to write first in the next manifest change.
    first_slot: usize,
    /// Segments by number.
    segments: BTreeMap<u32, Segment>,
    /// The segment being written.
    active: Option<u32>,
    /// The kept checkpoints, oldest first, as in the manifest.
    kept: Vec<Kept>,
    /// The number of the next file; no file has had it or a higher one.
    next_number: u32,
    /// Seed for random identities.
    seed: u64,
    /// Local log blocks since the newest checkpoint, as (segment, offset), and their last SSN.
    local: Vec<(u32, u64)>,
    local_last: Ssn,
    /// A file was created since the last directory sync.
    is_directory_dirty: bool,
    failed: Option<Arc<StoreError>>,
    reader: StoreReader,
    can_punch: bool,
    reserve_bytes: u64,
    compressed: Vec<u8>,
}

/// A kept checkpoint.
#[derive(Debug)]
struct Kept {
    entry: KeptCheckpoint,
    file: Arc<dyn ReadAt>,
    /// The blocks referenced by it.
    blocks: Vec<Block>,
    /// Covered SSN of each lane, without the raised floors.
    covered: BTreeMap<Rank, Ssn>,
    written: Written,
    session: u64,
}

impl Store {
    /// Creates a rank's store in a directory without one.
    ///
    /// # Errors
    /// [`StoreError::Exists`] if there is one; [`StoreError::Options`], [`StoreError::DiskFull`], [`StoreError::Io`].
    pub fn create(mut backend: Box<dyn StorageBackend>, options: StoreOptions) -> Result<Store, StoreError> {
        options.validate()?;
        let names = listing::files_for(&mut *backend, Access::ReadWrite)?;
        let of_a_store = |name: &&String| file_number(name, "segment").or(file_number(name, "checkpoint")).is_some();
        if let Some(name) = names.iter().find(of_a_store) {
            return Err(StoreError::Exists { file: name.clone() });
        }
        if names.iter().any(|name| name == MANIFEST) {
            let reader = backend.reader(MANIFEST).map_err(StoreError::io("open", MANIFEST))?;
            if !crate::format::manifest::FoundManifest::read(&*reader)?.is_unfinished(&names) {
                return Err(StoreError::Exists { file: MANIFEST.to_owned() });
            }
        }
        // Left by an earlier creation without a complete manifest.
        for name in names.iter().filter(|name| *name == MANIFEST || *name == RESERVE) {
            backend.remove(name).map_err(StoreError::io("remove", name))?;
        }
        let seed = options.seed.unwrap_or_else(random_seed);
        let manifest = Manifest {
            store: mix(seed, 0),
            sequence: 0,
            session: 1,
            tail_session: 1,
            rank: options.rank,
            ranks: options.ranks,
            kept: Vec::new(),
            floors: BTreeMap::new(),
        };
        let mut store = Store::new(backend, options, Access::ReadWrite, manifest, seed);
        store.make_reserve()?;
        let bytes = 2 * slot_bytes(store.options.ranks);
        let file = store.create_file(MANIFEST, bytes)?;
        store.manifest_file = Some(file);
        store.sync_file(file, MANIFEST)?;
        store.commit_manifest(store.manifest.clone())?;
        store.sync_dir()?;
        Ok(store)
    }

    fn new(
        backend: Box<dyn StorageBackend>,
        options: StoreOptions,
        access: Access,
        manifest: Manifest,
        seed: u64,
    ) -> Store {
        Store {
            backend,
            options,
            access,
            manifest,
            manifest_file: None,
            first_slot: 0,
            segments: BTreeMap::new(),
            active: None,
            kept: Vec::new(),
            next_number: 1,
            seed,
            local: Vec::new(),
            local_last: Ssn::ZERO,
            is_directory_dirty: false,
            failed: None,
            reader: StoreReader::new(),
            can_punch: true,
            reserve_bytes: 0,
            compressed: Vec::new(),
        }
    }

    /// Returns the options.
    pub fn options(&self) -> &StoreOptions {
        &self.options
    }

    /// Returns a block reader, for any thread.
    pub fn reader(&self) -> StoreReader {
        self.reader.clone()
    }

    /// Returns the epochs of the kept checkpoints, oldest first.
    pub fn checkpoints(&self) -> Vec<Epoch> {
        self.kept.iter().map(|kept| kept.entry.epoch).collect()
    }

    /// Reads a kept checkpoint, without the blocks at or below a [floor](Self::raise_floors).
    ///
    /// # Errors
    /// [`StoreError::NoCheckpoint`], [`StoreError::Damaged`], [`StoreError::Io`].
    pub fn image(&self, epoch: Epoch) -> Result<CheckpointImage, StoreError> {
        let kept = self.kept.iter().find(|kept| kept.entry.epoch == epoch);
        let kept = kept.ok_or(StoreError::NoCheckpoint { epoch })?;
        let (mut image, _) = checkpoint_file::decode(&*kept.file, &kept.entry, Application::Read)?;
        apply_floors(&mut image, &self.manifest.floors);
        Ok(image)
    }

    fn check_writable(&self) -> Result<(), StoreError> {
        match &self.failed {
            _ if self.access == Access::ReadOnly => Err(StoreError::ReadOnly),
            Some(first) => Err(StoreError::Failed { first: first.clone() }),
            None => Ok(()),
        }
    }

    /// Puts the store into its failed state: nothing more is written.
    ///
    /// Returns the error to report.
    fn fail(&mut self, error: StoreError) -> StoreError {
        let first = match error {
            StoreError::Failed { first } => first,
            error => Arc::new(error),
        };
        let first = self.failed.get_or_insert(first).clone();
        StoreError::Failed { first }
    }

    /// Creates a file.
    ///
    /// A full disk doesn't fail the store.
    fn create_file(&mut self, name: &str, bytes: u64) -> Result<FileId, StoreError> {
        match self.backend.create(name, bytes) {
            Ok(file) => {
                self.is_directory_dirty = true;
                Ok(file)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                Err(StoreError::disk_full(&mut *self.backend, bytes))
            }
            Err(error) => Err(StoreError::io("create", name)(error)),
        }
    }

    fn buffer(&mut self) -> Result<Buffer, StoreError> {
        self.backend.buffer().map_err(StoreError::io("write", "files")).map_err(|error| self.fail(error))
    }

    /// Starts to write the pieces in order from offset `at` on, padded with zeros to a multiple of 4,096.
    fn write_pieces(&mut self, file: FileId, name: &str, at: u64, pieces: &[&[u8]]) -> Result<(), StoreError> {
        let written = write_pieces(&mut *self.backend, file, at, pieces).map_err(StoreError::io("write", name));
        written.map_err(|error| self.fail(error))
    }

    fn begin_write(&mut self, file: FileId, name: &str, at: u64, buffer: Buffer) -> Result<(), StoreError> {
        let begun = self.backend.write(file, at, buffer).map_err(StoreError::io("write", name));
        begun.map_err(|error| self.fail(error))
    }

    fn sync_file(&mut self, file: FileId, name: &str) -> Result<(), StoreError> {
        let synced = self.backend.sync(file).map_err(StoreError::io("sync", name));
        synced.map_err(|error| self.fail(error))
    }

    fn sync_dir(&mut self) -> Result<(), StoreError> {
        let synced = self.backend.sync_dir().map_err(StoreError::io("sync the directory", "."));
        synced.map_err(|error| self.fail(error))?;
        self.is_directory_dirty = false;
        Ok(())
    }

    /// Makes `manifest` the valid one, durably.
    fn commit_manifest(&mut self, mut manifest: Manifest) -> Result<(), StoreError> {
        manifest.sequence = self.manifest.sequence;
        manifest.count_change()?;
        let bytes = manifest.encode();
        let file = match self.manifest_file {
            Some(file) => file,
            None => self.backend.open(MANIFEST).map_err(StoreError::io("open", MANIFEST))?,
        };
        self.manifest_file = Some(file);
        let first = std::mem::take(&mut self.first_slot);
        for slot in [first, 1 - first] {
            self.write_pieces(file, MANIFEST, slot as u64 * slot_bytes(manifest.ranks), &[&bytes])?;
            self.sync_file(file, MANIFEST)?;
        }
        self.manifest = manifest;
        Ok(())
    }

    fn take_number(&mut self) -> Result<u32, StoreError> {
        let number = self.next_number;
        if number >= FILE_NUMBER_MAX {
            return Err(StoreError::NumbersExhausted);
        }
        self.next_number += 1;
        Ok(number)
    }

    /// Closes and removes a file just created.
    fn discard_created(&mut self, file: FileId, name: &str) {
        self.backend.close(file);
        // If this fails, the next opening of the store removes the file.
        let _ = self.backend.remove(name);
    }

    /// Creates a segment with this many bytes, within the budget.
    ///
    /// An error in creating or opening the file doesn't fail the store.
    fn create_segment(&mut self, bytes: u64) -> Result<u32, StoreError> {
        self.check_budget(bytes)?;
        let number = self.take_number()?;
        let name = segment_name(number);
        let file = match self.create_file(&name, bytes) {
            Err(StoreError::DiskFull { .. }) if self.punch_all_dead() => self.create_file(&name, bytes)?,
            created => created?,
        };
        let open = match self.backend.reader(&name) {
            Ok(open) => open,
            // Too few descriptors, perhaps: nothing was written, and the next attempt makes another segment.
            Err(error) => {
                self.discard_created(file, &name);
                return Err(StoreError::io("open", &name)(error));
            }
        };
        let generation = mix(self.seed, u64::from(number) << 32 | (self.manifest.session & 0xffff_ffff));
        let mut segment = Segment::new(generation, self.manifest.session, bytes, FIRST_BLOCK);
        segment.file = Some(file);
        segment.is_dirty = true;
        let of = (self.options.rank, self.options.ranks);
        let header = SegmentHeader::new(number, self.manifest.store, self.manifest.session, generation, bytes, of);
        self.segments.insert(number, segment);
        self.reader.insert(number, OpenSegment { file: open, generation });
        self.write_pieces(file, &name, 0, &[zerocopy::IntoBytes::as_bytes(&header)])?;
        Ok(number)
    }

    fn make_reserve(&mut self) -> Result<(), StoreError> {
        if self.options.reserve_bytes > 0 {
            let file = self.create_file(RESERVE, self.options.reserve_bytes)?;
            self.backend.close(file);
            self.reserve_bytes = self.options.reserve_bytes;
        }
        Ok(())
    }

    fn remove_reserve(&mut self) -> bool {
        let is_removed = self.reserve_bytes > 0 && self.backend.remove(RESERVE).is_ok();
        self.reserve_bytes = if is_removed { 0 } else { self.reserve_bytes };
        is_removed
    }

    /// Recreates a removed reserve if there is space; otherwise the next checkpoint tries again.
    fn make_reserve_if_possible(&mut self) {
        if self.reserve_bytes == 0 && self.check_budget(self.options.reserve_bytes).is_ok() {
            let _ = self.make_reserve();
        }
    }

    fn remove_checkpoint(&mut self, number: u32) {
        // If this fails, the next opening of the store removes the file.
        let _ = self.backend.remove(&checkpoint_name(number));
    }
}

/// Applies raised floors to an image: raises the covered SSN, and removes the blocks up to it.
pub(crate) fn apply_floors(image: &mut CheckpointImage, floors: &BTreeMap<Rank, Ssn>) {
    for lane in &mut image.lanes {
        if let Some(&floor) = floors.get(&lane.peer).filter(|floor| **floor > lane.covered) {
            lane.blocks.retain(|block| block.last > floor);
            lane.covered = floor;
        }
    }
}

/// Returns a random number.
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Hashes `seed` and `of`: results for different `of` look unrelated.
fn mix(seed: u64, of: u64) -> u64 {
    let mut word = seed ^ of.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

const _: () = assert!(FIRST_BLOCK == PAGE_BYTES as u64);
