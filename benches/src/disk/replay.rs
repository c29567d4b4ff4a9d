//! Reading a lane back from disk, verified, record by record, compared with naked reads from the same files.

use std::hint::black_box;

use counterfoil::{Log, Options, Rank, Ssn, StoreOptions, Tier};
use counterfoil_log_io::BackendChoice;

use super::recover::Stored;
use super::spill::PEER;
use super::{Bytes, DEPTH, DiskError, DiskOptions, Floor, Row, Turn, each, interleave};
use crate::scratch::Scratch;

/// Measures every block and payload.
///
/// # Errors
/// [`DiskError`].
pub fn run(options: &DiskOptions) -> Result<Vec<Row>, DiskError> {
    // The write backend doesn't affect reads.
    each(options, &[BackendChoice::Auto], one)
}

pub(super) fn one(
    options: &DiskOptions,
    scratch: &Scratch,
    (backend, block, size): (BackendChoice, usize, usize),
) -> Result<Row, DiskError> {
    let [checked, unchecked] = Stored::pair(options, scratch, (backend, block, size))?;
    let mut floor = Floor::new(block, DEPTH)?;
    let files = checked.segments()?;
    let (mut checked_log, mut unchecked_log) = (recover(&checked, block)?, recover(&unchecked, block)?);
    let (mut wire, mut other_wire) = (vec![0; size], vec![0; size]);
    let bytes = Bytes { floor: floor.bytes_of(&files), store: checked.bytes() };
    let row = interleave(
        options,
        (backend, block, size),
        bytes,
        &mut || floor.read(&files),
        [&mut || Turn::of(|| replay(&mut checked_log, &mut wire)), &mut || {
            Turn::of(|| replay(&mut unchecked_log, &mut other_wire))
        }],
    )?;
    drop((checked_log, unchecked_log));
    [checked.dir(), unchecked.dir()].iter().for_each(|dir| scratch.remove(dir));
    Ok(row)
}

/// Recovers a log from a store, with all its records on disk.
///
/// # Errors
/// [`DiskError`].
pub fn recover(stored: &Stored, block: usize) -> Result<Log, DiskError> {
    let mut options = Options::new(Rank(0), 2);
    options.tier = Tier::NodeLocal;
    options.store = Some(StoreOptions { block_bytes: block, ..StoreOptions::new(stored.dir()) });
    Ok(Log::recover(options)?.0)
}

/// Runs the measured loop: a cursor over the whole lane, copying every payload to the wire.
///
/// # Errors
/// [`DiskError::Replay`].
pub fn replay(log: &mut Log, wire: &mut [u8]) -> Result<(), DiskError> {
    let mut cursor = log.cursor(PEER, Ssn::FIRST)?;
    while let Some(record) = cursor.read()? {
        wire.copy_from_slice(black_box(record.payload()));
        black_box(&mut *wire);
    }
    Ok(())
}
