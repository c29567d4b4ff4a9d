//! Opening a store, which verifies every block, compared with naked reads of the same files.

use std::path::{Path, PathBuf};

use counterfoil_log_core::{Epoch, Ssn};
use counterfoil_log_io::{Access, BackendChoice, CheckpointImage, LaneImage, Store, StoreOptions};

use super::spill::{Memory, PEER, Writer, store_options};
use super::{BACKENDS, Bytes, DEPTH, DiskError, DiskOptions, Floor, Row, Turn, each, interleave, reopen};
use crate::scratch::Scratch;

/// Bytes in a store, in multiples of `turn_bytes`.
const FILLS: u64 = 4;

/// Measures every backend, block and payload.
///
/// The backend also selects a ring or threads for reading the blocks.
///
/// # Errors
/// [`DiskError`].
pub fn run(options: &DiskOptions) -> Result<Vec<Row>, DiskError> {
    each(options, &BACKENDS, one)
}

pub(super) fn one(
    options: &DiskOptions,
    scratch: &Scratch,
    (backend, block, size): (BackendChoice, usize, usize),
) -> Result<Row, DiskError> {
    let [checked, unchecked] = Stored::pair(options, scratch, (backend, block, size))?;
    let mut floor = Floor::new(block, DEPTH)?;
    let files = checked.segments()?;
    let bytes = Bytes { floor: floor.bytes_of(&files), store: checked.bytes };
    let row = interleave(
        options,
        (backend, block, size),
        bytes,
        &mut || floor.read(&files),
        [&mut || checked.open(), &mut || unchecked.open()],
    )?;
    [checked.dir, unchecked.dir].iter().for_each(|dir| scratch.remove(dir));
    Ok(row)
}

/// A closed store with a checkpoint.
#[derive(Debug)]
pub struct Stored {
    dir: PathBuf,
    backend: BackendChoice,
    options: StoreOptions,
    /// Bytes in its blocks.
    bytes: u64,
}

impl Stored {
    /// Creates a store with checksums, and the same without.
    pub(super) fn pair(
        options: &DiskOptions,
        scratch: &Scratch,
        (backend, block, size): (BackendChoice, usize, usize),
    ) -> Result<[Stored; 2], DiskError> {
        let create = |checksums| Stored::create(scratch, (backend, block), checksums, (size, options.turn_bytes));
        Ok([create(true)?, create(false)?])
    }

    /// Writes a store with four times `turn_bytes` in `size`-byte messages, all in one lane.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn create(
        scratch: &Scratch,
        (backend, block): (BackendChoice, usize),
        checksums: bool,
        (size, turn_bytes): (usize, u64),
    ) -> Result<Stored, DiskError> {
        let options = StoreOptions { checksums, ..store_options(block) };
        let mut writer = Writer::create(scratch, (backend, block), checksums)?;
        for _ in 0..FILLS {
            let next = writer.blocks.last().map_or(Ssn::FIRST, |block| block.last.next());
            writer.spill(&Memory::filled(size, turn_bytes, next)?)?;
        }
        let bytes = writer.written();
        let last = writer.blocks.last().map_or(Ssn::ZERO, |block| block.last);
        let lane = LaneImage {
            peer: PEER,
            next: last.next(),
            acked: Ssn::ZERO,
            covered: Ssn::ZERO,
            runs: Vec::new(),
            blocks: std::mem::take(&mut writer.blocks),
        };
        let image = CheckpointImage { epoch: Epoch(1), lanes: vec![lane], ..CheckpointImage::default() };
        writer.store.checkpoint(&image)?;
        let stored = Stored { dir: writer.close(), backend, options, bytes };
        // The first opening truncates the last segment after its last block.
        stored.open()?;
        Ok(stored)
    }

    /// Returns the parent of the store's directory `rank-0`.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the bytes in its blocks.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Times opening the store for writing, which reads and verifies every block.
    ///
    /// Closing it is not timed.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn open(&self) -> Result<Turn, DiskError> {
        let mut opened = None;
        let turn = Turn::of(|| {
            let backend = reopen(&self.dir, self.backend, self.options.block_bytes)?;
            opened = Some(Store::open(backend, self.options.clone(), Access::ReadWrite)?);
            Ok::<_, DiskError>(())
        })?;
        drop(opened);
        Ok(turn)
    }

    /// Returns the paths of its segments, and their lengths in bytes.
    ///
    /// # Errors
    /// [`DiskError::Floor`].
    pub fn segments(&self) -> Result<Vec<(PathBuf, u64)>, DiskError> {
        let failed = super::failed("list the segments in", &self.dir);
        let list = || {
            let mut files = Vec::new();
            for entry in std::fs::read_dir(self.dir.join("rank-0"))? {
                let entry = entry?;
                if entry.file_name().to_string_lossy().starts_with("segment-") {
                    files.push((entry.path(), entry.metadata()?.len()));
                }
            }
            files.sort();
            Ok(files)
        };
        list().map_err(failed)
    }
}
