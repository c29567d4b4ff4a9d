//! Reading a store back, with read-ahead.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use counterfoil_log_core::{Epoch, Rank, Record, Ssn};
use counterfoil_log_io::{
    Access, BackendChoice, Block, BlockBuffer, BlockCursor, CheckpointImage, LaneImage, RecordSource, Store,
    StoreError, StoreOptions, StoreReader,
};

use super::{TestDir, backend};

const LANE: Rank = Rank(1);
const BLOCK_BYTES: usize = 256 << 10;
const RECORD_BYTES: usize = 1000;
/// Number of blocks: several times the read-ahead.
const BLOCKS: usize = 24;

fn options() -> StoreOptions {
    StoreOptions { segment_bytes: 2 << 20, block_bytes: BLOCK_BYTES, ..StoreOptions::new(Rank(0), 2) }
}

fn body(ssn: u64) -> impl Iterator<Item = u8> {
    (0..RECORD_BYTES as u64).map(move |at| (at * 7 + at / 256 + ssn * 31) as u8)
}

/// The records `ssn + 1..=last`.
struct Bodies {
    body: Vec<u8>,
    ssn: u64,
    last: u64,
}

impl RecordSource for Bodies {
    fn next(&mut self) -> Option<Record<'_>> {
        if self.ssn == self.last {
            return None;
        }
        self.ssn += 1;
        self.body = body(self.ssn).collect();
        Record::new(Ssn(self.ssn), &self.body, 8)
    }
}

/// Creates and closes a store with a checkpoint of [`BLOCKS`] blocks or a few more.
pub(crate) fn build(path: &Path, choice: BackendChoice) {
    let mut store = Store::create(backend(path, choice), options()).unwrap();
    let mut blocks: Vec<Block> = Vec::new();
    let last = (BLOCKS * BLOCK_BYTES / RECORD_BYTES) as u64;
    store.append(LANE, &mut Bodies { body: Vec::new(), ssn: 0, last }, &mut blocks).unwrap();
    let (next, zero) = (Ssn(last + 1), Ssn::ZERO);
    let lane = LaneImage { peer: LANE, next, acked: zero, covered: zero, runs: Vec::new(), blocks };
    let image = CheckpointImage { epoch: Epoch(1), lanes: vec![lane], ..CheckpointImage::default() };
    store.checkpoint(&image).unwrap();
}

/// Opens the store, which verifies every block.
///
/// Returns its reader and its blocks.
pub(crate) fn open(path: &Path, choice: BackendChoice) -> Result<(StoreReader, Vec<Block>), StoreError> {
    let (store, image) = Store::open(backend(path, choice), options(), Access::ReadWrite)?;
    let blocks = image.unwrap().lanes.remove(0).blocks;
    assert!(blocks.len() >= BLOCKS);
    Ok((store.reader(), blocks))
}

/// Returns `true` if exactly the block's records were read, as they were written.
pub(crate) fn is_right(block: &Block, read: &BlockBuffer) -> bool {
    let mut ssns = block.first.0..=block.last.0;
    let right = read
        .records()
        .all(|record| ssns.next() == Some(record.ssn().0) && record.wire().iter().copied().eq(body(record.ssn().0)));
    right && ssns.next().is_none()
}

fn file_of(path: &Path, block: &Block) -> std::fs::File {
    let name = path.join(format!("segment-{:08}", block.segment));
    OpenOptions::new().read(true).write(true).open(name).unwrap()
}

fn flip(path: &Path, block: &Block, at: u64) {
    let file = file_of(path, block);
    let mut byte = [0];
    file.read_exact_at(&mut byte, block.at + at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], block.at + at).unwrap();
    file.sync_all().unwrap();
}

fn is_damage(error: &StoreError, of: &Block) -> bool {
    let name = format!("segment-{:08}", of.segment);
    matches!(error, StoreError::Damaged { file, offset, .. } if *file == name && *offset == of.at)
}

/// Reads all blocks, and checks that exactly the `bad` ones are damaged.
pub(crate) fn read_all(reader: StoreReader, blocks: &[Block], bad: std::ops::Range<usize>) {
    let mut cursor = BlockCursor::new(reader, blocks.to_vec());
    read_rest(&mut cursor, blocks, 0, bad);
}

/// Reads the rest as [`read_all`] does, with a cursor at the block `from`.
pub(crate) fn read_rest(cursor: &mut BlockCursor, blocks: &[Block], from: usize, bad: std::ops::Range<usize>) {
    let mut buffer = BlockBuffer::default();
    for (index, block) in blocks.iter().enumerate().skip(from) {
        match cursor.next(&mut buffer) {
            Ok(more) => assert!(more && !bad.contains(&index) && is_right(block, &buffer), "block {index}"),
            Err(error) => {
                assert!(bad.contains(&index) && is_damage(&error, block), "block {index}: {error}");
                assert!(buffer.records().next().is_none());
            }
        }
    }
    assert!(!cursor.next(&mut buffer).unwrap());
}

pub(crate) fn a_store_is_recovered_and_its_damage_detected(choice: BackendChoice) {
    let place = TestDir::new();
    build(&place.path(), choice);
    let (reader, blocks) = open(&place.path(), choice).unwrap();
    read_all(reader.clone(), &blocks, 0..0);
    let bad = BLOCKS / 2;
    flip(&place.path(), &blocks[bad], 5000);
    read_all(reader.clone(), &blocks, bad..bad + 1);
    let error = open(&place.path(), choice).unwrap_err();
    assert!(is_damage(&error, &blocks[bad]), "{error}");
    flip(&place.path(), &blocks[bad], 5000);
    // Damage in the header.
    flip(&place.path(), &blocks[bad], 20);
    read_all(reader, &blocks, bad..bad + 1);
    assert!(is_damage(&open(&place.path(), choice).unwrap_err(), &blocks[bad]));
}

pub(crate) fn a_short_or_missing_segment_affects_no_other(choice: BackendChoice) {
    let place = TestDir::new();
    build(&place.path(), choice);
    let (reader, blocks) = open(&place.path(), choice).unwrap();
    // The cursor has started to read the first blocks, and continues.
    let mut cursor = BlockCursor::new(reader.clone(), blocks.clone());
    let cut = blocks.iter().rposition(|block| block.segment == blocks[BLOCKS - 4].segment).unwrap();
    let until = blocks[cut].at + blocks[cut].disk_bytes / 2;
    file_of(&place.path(), &blocks[cut]).set_len(until).unwrap();
    read_rest(&mut cursor, &blocks, 0, cut..cut + 1);
    // The damage exists before the cursor is created.
    read_all(reader.clone(), &blocks, cut..cut + 1);
    let error = open(&place.path(), choice).unwrap_err();
    assert!(is_damage(&error, &blocks[cut]), "{error}");
    std::fs::remove_file(place.path().join(format!("segment-{:08}", blocks[cut].segment))).unwrap();
    // A reader with the segment open reads the rest.
    read_all(reader, &blocks, cut..cut + 1);
    let error = open(&place.path(), choice).unwrap_err();
    assert!(error.to_string().contains("it isn't there"), "{error}");
}
