//! Writing records as durable blocks, compared with naked writes.

use std::path::PathBuf;

use counterfoil_log_core::{Lanes, Pool, PoolOptions, Rank, Ssn};
use counterfoil_log_io::{BackendChoice, Block, LaneSource, Store, StoreOptions, chunk_writes_max};

use super::{BACKENDS, Bytes, DiskError, DiskOptions, Floor, Row, Turn, directory, each, interleave, no_memory};
use crate::scratch::Scratch;

/// Measured payloads, in bytes.
pub const SIZES: [usize; 2] = [1 << 10, 16 << 10];
/// The lane's destination.
pub const PEER: Rank = Rank(1);
/// Wire header size in bytes.
const PREFIX_BYTES: usize = 64;

/// Measures every backend, block and payload.
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
    let memory = Memory::filled(size, options.turn_bytes, Ssn::FIRST)?;
    let mut floor = Floor::new(block, chunk_writes_max(block))?;
    let dir = scratch.fresh_dir()?;
    // On new files each time, as the floor is.
    let spill = |checksums| {
        let mut writer = Writer::create(scratch, (backend, block), checksums)?;
        let turn = Turn::of(|| writer.spill(&memory))?;
        let written = writer.written();
        scratch.remove(&writer.close());
        Ok::<_, DiskError>((turn, written))
    };
    let (_, store) = spill(true)?;
    let row = interleave(
        options,
        (backend, block, size),
        Bytes { floor: options.turn_bytes, store },
        &mut || floor.write(&dir.join("naked"), options.turn_bytes),
        [&mut || Ok(spill(true)?.0), &mut || Ok(spill(false)?.0)],
    )?;
    scratch.remove(&dir);
    Ok(row)
}

/// Returns options for a store with this block size.
pub(crate) fn store_options(block: usize) -> StoreOptions {
    StoreOptions { block_bytes: block, ..StoreOptions::new(Rank(0), 2) }
}

/// A lane in memory, full of records.
#[derive(Debug)]
pub struct Memory {
    lanes: Lanes,
    first: Ssn,
}

impl Memory {
    /// Creates a lane with records from `first` on, each with a prefix and `size` payload bytes, taking about `bytes`
    /// on disk.
    ///
    /// # Errors
    /// [`DiskError::Memory`].
    pub fn filled(size: usize, bytes: u64, first: Ssn) -> Result<Memory, DiskError> {
        let options = PoolOptions { memory_bytes_max: 2 * bytes as usize + (4 << 20), ..PoolOptions::default() };
        let mut lanes = Lanes::new(Pool::volatile(options).map_err(no_memory)?, 2);
        let lane = lanes.open(PEER).ok_or_else(|| no_memory("no such lane"))?;
        lane.resume(first, Ssn::ZERO, &[]).map_err(no_memory)?;
        for number in 0..bytes / (PREFIX_BYTES + size) as u64 {
            let mut claim = lane.claim(PREFIX_BYTES, size).map_err(no_memory)?;
            fill(claim.body_mut(), number);
            claim.commit();
        }
        Ok(Memory { lanes, first })
    }

    /// Returns a source for all records.
    fn source(&self) -> Result<LaneSource, DiskError> {
        let lane = self.lanes.get(PEER).ok_or_else(|| no_memory("no such lane"))?;
        Ok(LaneSource::new(lane.cursor(self.first).map_err(no_memory)?, Ssn::MAX))
    }
}

/// Fills a body with hardly compressible bytes depending on `number`.
pub(crate) fn fill(body: &mut [u8], number: u64) {
    let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for bytes in body.chunks_mut(8) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
}

/// A repeatedly written store.
#[derive(Debug)]
pub struct Writer {
    dir: PathBuf,
    pub(crate) store: Store,
    pub(crate) blocks: Vec<Block>,
}

impl Writer {
    /// Creates a writer with an empty store in its own directory, with or without checksums.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn create(
        scratch: &Scratch,
        (backend, block): (BackendChoice, usize),
        checksums: bool,
    ) -> Result<Writer, DiskError> {
        let (dir, backend) = directory(scratch, backend, block)?;
        let store = Store::create(backend, StoreOptions { checksums, ..store_options(block) })?;
        Ok(Writer { dir, store, blocks: Vec::new() })
    }

    /// Closes the store, and returns its parent directory.
    pub(crate) fn close(self) -> PathBuf {
        self.dir
    }

    /// Times the measured loop: writes every record of the lane as blocks and syncs them.
    ///
    /// Frees them afterwards, untimed.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn turn(&mut self, memory: &Memory) -> Result<Turn, DiskError> {
        let turn = Turn::of(|| self.spill(memory))?;
        self.forget();
        Ok(turn)
    }

    /// Appends the lane to the store, durably.
    pub(crate) fn spill(&mut self, memory: &Memory) -> Result<(), DiskError> {
        self.store.append(PEER, &mut memory.source()?, &mut self.blocks)?;
        Ok(self.store.sync()?)
    }

    pub(crate) fn written(&self) -> u64 {
        self.blocks.iter().map(|block| block.disk_bytes).sum()
    }

    /// Frees the written blocks.
    pub(crate) fn forget(&mut self) {
        self.store.free(&self.blocks);
        self.blocks.clear();
    }
}
