//! Writing records as blocks and making them durable, against naked writes.

use std::path::PathBuf;

use counterfoil_log_core::{Lanes, Pool, PoolOptions, Rank, Ssn};
use counterfoil_log_io::naked::writes_in_flight;
use counterfoil_log_io::{BackendChoice, Block, LaneSource, Store, StoreOptions};

use super::{BACKENDS, Bytes, DiskError, DiskOptions, Floor, Row, Turn, directory, each, interleave, no_memory};
use crate::scratch::Scratch;

/// Payloads that are measured, in bytes.
pub const SIZES: [usize; 2] = [1 << 10, 16 << 10];
/// The lane that is written.
pub const PEER: Rank = Rank(1);
/// What the wire header takes.
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
    let mut checked = Writer::create(scratch, (backend, block), true)?;
    let mut unchecked = Writer::create(scratch, (backend, block), false)?;
    let mut floor = Floor::new(block, writes_in_flight(block))?;
    let file = checked.dir.join("naked");
    checked.spill(&memory)?;
    let bytes = Bytes { floor: options.turn_bytes, store: checked.written() };
    checked.forget();
    let row = interleave(
        options,
        (backend, block, size),
        bytes,
        [&mut || floor.write(&file, options.turn_bytes), &mut || checked.turn(&memory), &mut || {
            unchecked.turn(&memory)
        }],
    )?;
    [checked.close(), unchecked.close()].iter().for_each(|dir| scratch.remove(dir));
    Ok(row)
}

/// The options of a store with blocks of this size.
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
    /// Records of `size` bytes of payload behind a prefix, from `first` on, that take about `bytes` on the disk.
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

    /// All of it.
    fn source(&self) -> Result<LaneSource, DiskError> {
        let lane = self.lanes.get(PEER).ok_or_else(|| no_memory("no such lane"))?;
        Ok(LaneSource::new(lane.cursor(self.first).map_err(no_memory)?, Ssn::MAX))
    }
}

/// Bytes that differ from record to record, and that don't compress to nothing.
pub(crate) fn fill(body: &mut [u8], number: u64) {
    let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for bytes in body.chunks_mut(8) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
}

/// A store that is written again and again.
#[derive(Debug)]
pub struct Writer {
    dir: PathBuf,
    pub(crate) store: Store,
    pub(crate) blocks: Vec<Block>,
}

impl Writer {
    /// With an empty store in a directory of its own, with checksums or without.
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

    /// Closes the store; says where it is.
    pub(crate) fn close(self) -> PathBuf {
        self.dir
    }

    /// The measured loop: every record of the lane as blocks, durable at the end. What was written the last time is
    /// given up before, untimed.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn turn(&mut self, memory: &Memory) -> Result<Turn, DiskError> {
        let turn = Turn::of(|| self.spill(memory))?;
        self.forget();
        Ok(turn)
    }

    /// Writes the lane behind what was written before, durably.
    pub(crate) fn spill(&mut self, memory: &Memory) -> Result<(), DiskError> {
        self.store.append(PEER, &mut memory.source()?, &mut self.blocks)?;
        Ok(self.store.sync()?)
    }

    pub(crate) fn written(&self) -> u64 {
        self.blocks.iter().map(|block| block.disk_bytes).sum()
    }

    /// Frees what was written.
    pub(crate) fn forget(&mut self) {
        self.store.free(&self.blocks);
        self.blocks.clear();
    }
}
