//! A small store on a simulated disk, with the same bytes each time.

use counterfoil_log_core::{Disposition, Epoch, Phase, Rank, Record, Run, Ssn};
use counterfoil_log_io::{
    Access, Block, BlockBuffer, CheckpointImage, LOCAL, LaneImage, LocalImage, RecordSource, Store, StoreError,
    StoreOptions,
};
use counterfoil_test_support::SimulatedDisk;
use crc32c::{crc32c, crc32c_append};

/// Records with two-byte prefixes.
pub(crate) struct Bodies<'a>(pub(crate) std::slice::Iter<'a, (u64, &'a [u8])>);

impl RecordSource for Bodies<'_> {
    fn next(&mut self) -> Option<Record<'_>> {
        let (ssn, wire) = self.0.next()?;
        Record::new(Ssn(*ssn), wire, 2)
    }
}

pub(crate) fn options() -> StoreOptions {
    StoreOptions {
        segment_bytes: 16 << 10,
        block_bytes: 4 << 10,
        disk_bytes_max: 1 << 20,
        reserve_bytes: 4 << 10,
        seed: Some(7),
        ..StoreOptions::new(Rank(1), 3)
    }
}

pub(crate) const RECORDS: [(u64, &[u8]); 3] =
    [(1, b"p1first record"), (2, b"p2"), (4, b"p3the third record, of fourth SSN")];

pub(crate) fn entry(ssn: u64) -> LocalImage {
    LocalImage { ssn: Ssn(ssn), kind: 3, key: 40 + ssn, bytes: format!("entry {ssn}").into_bytes() }
}

/// Size in bytes of a manifest slot's header, which ends in its checksum, and of a kept checkpoint's entry after it.
const SLOT_HEADER: usize = 80;
pub(crate) const KEPT_ENTRY: usize = 24;

/// Returns the entries of the kept checkpoints in a manifest slot.
pub(crate) fn kept_entries(slot: &mut [u8]) -> &mut [u8] {
    let kept = slot[64] as usize;
    &mut slot[SLOT_HEADER..][..kept * KEPT_ENTRY]
}

/// Computes the checksum of a changed slot.
pub(crate) fn seal_slot(slot: &mut [u8]) {
    let header = crc32c(&slot[..SLOT_HEADER - 4]);
    let crc = crc32c_append(header, kept_entries(slot));
    slot[SLOT_HEADER - 4..SLOT_HEADER].copy_from_slice(&crc.to_le_bytes());
}

/// Builds a store with a checkpoint of these records and a local log entry; another entry is synced after it.
pub(crate) fn build(disk: &SimulatedDisk, options: StoreOptions, records: &[(u64, &[u8])]) -> CheckpointImage {
    build_from(disk, options, &mut Bodies(records.iter()), records.last().unwrap().0)
}

/// Builds a store as [`build`] does, with these records up to the SSN `last`.
pub(crate) fn build_from(
    disk: &SimulatedDisk,
    options: StoreOptions,
    source: &mut dyn RecordSource,
    last: u64,
) -> CheckpointImage {
    let mut store = Store::create(Box::new(disk.clone()), options).unwrap();
    let mut blocks: Vec<Block> = Vec::new();
    store.append(Rank(2), source, &mut blocks).unwrap();
    let retained = Disposition::Retain { epoch: Epoch(1), phase: Phase(2) };
    let lane = LaneImage {
        peer: Rank(2),
        next: Ssn(last + 1),
        acked: Ssn(2),
        covered: Ssn(0),
        runs: vec![
            Run { first: Ssn(1), last: Ssn(1), disposition: Disposition::Release },
            Run { first: Ssn(2), last: Ssn(2), disposition: retained },
        ],
        blocks,
    };
    let mut image = CheckpointImage {
        epoch: Epoch(2),
        lanes: vec![lane],
        local: vec![entry(1)],
        tables: vec![("windows".to_owned(), b"a table".to_vec())],
        application: b"the program's own bytes".to_vec(),
    };
    store.checkpoint(&image).unwrap();
    store.append(LOCAL, &mut LocalImage::source(&[entry(2)]), &mut Vec::new()).unwrap();
    store.sync().unwrap();
    image.local.push(entry(2));
    image
}

/// Creates a store of its own.
pub(crate) fn create(disk: &SimulatedDisk, options: StoreOptions) -> Store {
    Store::create(Box::new(disk.clone()), options).unwrap()
}

/// Returns the body of a record appended by [`append`].
pub(crate) fn body(ssn: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u64 * 31 + ssn) as u8).collect()
}

/// Appends `len`-byte records to lane 0; long records get a block each.
pub(crate) fn append(store: &mut Store, ssns: std::ops::Range<u64>, len: usize) -> Result<Vec<Block>, StoreError> {
    let bodies: Vec<(u64, Vec<u8>)> = ssns.map(|ssn| (ssn, body(ssn, len))).collect();
    let records: Vec<(u64, &[u8])> = bodies.iter().map(|(ssn, body)| (*ssn, body.as_slice())).collect();
    let mut blocks = Vec::new();
    store.append(Rank(0), &mut Bodies(records.iter()), &mut blocks).map(|()| blocks)
}

/// Returns a checkpoint for lane 0 with these blocks.
pub(crate) fn image(epoch: u32, blocks: &[Block]) -> CheckpointImage {
    let next = blocks.last().map_or(Ssn::FIRST, |block| block.last.next());
    let (peer, covered) = (Rank(0), Ssn::ZERO);
    let lane = LaneImage { peer, next, acked: Ssn::ZERO, covered, runs: Vec::new(), blocks: blocks.to_vec() };
    CheckpointImage { epoch: Epoch(epoch), lanes: vec![lane], ..CheckpointImage::default() }
}

/// SSN and body of each record.
pub(crate) type OwnedRecords = Vec<(u64, Vec<u8>)>;

/// Opens a store for reading, and reads all its contents.
pub(crate) fn read_all(
    disk: &SimulatedDisk,
    options: StoreOptions,
) -> Result<(CheckpointImage, OwnedRecords), StoreError> {
    let (store, image) = Store::open(Box::new(disk.clone()), options, Access::ReadOnly)?;
    let image = image.unwrap_or_default();
    let mut records = Vec::new();
    let mut buffer = BlockBuffer::default();
    for block in image.lanes.iter().flat_map(|lane| &lane.blocks) {
        store.reader().read(block, &mut buffer)?;
        records.extend(buffer.records().map(|record| (record.ssn().0, record.wire().to_vec())));
    }
    Ok((image, records))
}

pub(crate) fn owned(records: &[(u64, &[u8])]) -> OwnedRecords {
    records.iter().map(|(ssn, wire)| (*ssn, wire.to_vec())).collect()
}
