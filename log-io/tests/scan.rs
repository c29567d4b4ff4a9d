//! Looking at stores, and repairing them.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a failed step of a test's setting is a failed test")]

mod small_chunks;
mod small_store;

use counterfoil_log_core::{Disposition, Epoch, Phase, Rank, Run, Ssn};
use counterfoil_log_io::{
    Access, Bound, CheckpointImage, LOCAL, LaneImage, LocalImage, Repair, Report, SimulatedDisk, SlotState, Store,
    StoreError, Tail, repair, scan,
};
use small_chunks::{build_of_chunks, options_of_chunks, records_of_chunks};
use small_store::{Bodies, RECORDS, build, entry, options, owned, read_all};

const SEGMENT: &str = "segment-00000001";
const CHECKPOINT: &str = "checkpoint-00000002";

fn look(disk: &SimulatedDisk) -> Report {
    scan(&mut disk.clone(), &mut |_, _| {}).unwrap()
}

fn files(disk: &SimulatedDisk) -> Vec<(String, Vec<u8>)> {
    disk.names().into_iter().map(|name| (name.clone(), disk.bytes(&name).unwrap())).collect()
}

fn damage(disk: &SimulatedDisk, file: &str, at: usize) {
    let mut bytes = disk.bytes(file).unwrap();
    bytes[at] ^= 0x10;
    disk.set_bytes(file, &bytes);
}

/// What a repair says that it would do is what it does, and saying it changes nothing.
fn repaired(disk: &SimulatedDisk) -> Vec<Repair> {
    let before = files(disk);
    let said = repair(&mut disk.clone(), true).unwrap();
    assert!(files(disk) == before, "a dry run changes files");
    let done = repair(&mut disk.clone(), false).unwrap();
    assert_eq!(said, done);
    assert_eq!(repair(&mut disk.clone(), false).unwrap(), [], "there is something left to be repaired");
    assert!(look(disk).is_whole());
    done
}

#[test]
fn a_whole_store_is_clean() {
    let disk = SimulatedDisk::new(4096);
    build(&disk, options(), &RECORDS);
    let report = look(&disk);
    assert!(report.is_whole());
    assert_eq!(report.slots, [SlotState::Valid { sequence: 2 }; 2]);
    assert_eq!(report.manifest.as_ref().map(|manifest| (manifest.rank, manifest.ranks)), Some((Rank(1), 3)));
    assert_eq!(report.checkpoints[0].contents, Ok((1, 1, 1)));
    let segment = &report.segments[0];
    assert_eq!((segment.tail, segment.covered, segment.end), (Tail::Clean, 8192, 12_288));
    let blocks: Vec<_> = segment.blocks.iter().map(|of| (of.block.lane, of.block.last, of.is_referenced)).collect();
    assert_eq!(blocks, [(Rank(2), Ssn(4), true), (LOCAL, Ssn(2), false)]);
    assert_eq!(repaired(&disk), []);
}

#[test]
fn a_write_that_was_cut_off_is_torn_and_its_repair_loses_nothing() {
    let disk = SimulatedDisk::new(4096);
    let right = build(&disk, options(), &RECORDS);
    let mut bytes = disk.bytes(SEGMENT).unwrap();
    bytes[12_288 + 700] = 1;
    disk.set_bytes(SEGMENT, &bytes);
    assert_eq!(look(&disk).segments[0].tail, Tail::Torn { at: 12_288 });
    assert!(look(&disk).is_whole(), "a torn tail keeps nobody from opening the store");
    assert_eq!(repaired(&disk), [Repair::Tail { file: SEGMENT.to_owned(), at: 12_288, len: 12_288 }]);
    assert_eq!(look(&disk).segments[0].tail, Tail::Clean);
    assert_eq!(read_all(&disk, options()).unwrap(), (right, owned(&RECORDS)));
}

#[test]
fn whole_blocks_behind_a_torn_one_are_left_alone() {
    let disk = SimulatedDisk::new(4096);
    build(&disk, options(), &RECORDS);
    // The block of the local log is damaged; another one stands behind it.
    let (mut store, _) = Store::open(Box::new(disk.clone()), options(), Access::ReadWrite).unwrap();
    store.append(Rank(0), &mut Bodies(RECORDS[..1].iter()), &mut Vec::new()).unwrap();
    store.append(LOCAL, &mut LocalImage::source(&[entry(3)]), &mut Vec::new()).unwrap();
    store.sync().unwrap();
    let newest = "segment-00000003";
    damage(&disk, newest, 4096 + 100);
    let [Repair::Tail { file, at, len }] = &repaired(&disk)[..] else { panic!("it isn't one torn tail") };
    assert_eq!((file.as_str(), *at, *len), (newest, 4096, 12_288));
    let (_, image) = Store::open(Box::new(disk.clone()), options(), Access::ReadOnly).unwrap();
    assert_eq!(image.unwrap().local, [entry(1), entry(2), entry(3)]);
}

#[test]
fn a_block_that_is_damaged_inside_is_refused_and_its_repair_says_what_is_lost() {
    let disk = SimulatedDisk::new(4096);
    let right = build(&disk, options(), &RECORDS);
    damage(&disk, SEGMENT, 4096 + 120);
    assert_eq!(look(&disk).segments[0].tail, Tail::Damaged { at: 4096 });
    let Err(StoreError::Damaged { file, offset, .. }) = read_all(&disk, options()) else { panic!("it can be opened") };
    assert_eq!((file.as_str(), offset), (SEGMENT, 4096));
    let repairs = repaired(&disk);
    let [Repair::Block { block, .. }, Repair::Lane { lane: Rank(2), upto: Ssn(4), .. }, Repair::GivenUp(given_up)] =
        &repairs[..]
    else {
        panic!("{repairs:?}")
    };
    // One of the three was released: nobody needed it.
    let sum = (given_up.lane, given_up.records, given_up.blocks, given_up.bytes, given_up.bound);
    assert_eq!(sum, (Rank(2), 3, 1, block.raw_bytes, Bound::AtMost));
    assert_eq!((block.first, block.last), (Ssn(1), Ssn(4)));
    let (image, records) = read_all(&disk, options()).unwrap();
    assert_eq!(records, []);
    assert_eq!((image.lanes[0].covered, image.lanes[0].next), (Ssn(4), Ssn(5)));
    assert_eq!((image.local, image.application), (right.local, right.application));
    let (store, _) = Store::open(Box::new(disk.clone()), options(), Access::ReadWrite).unwrap();
    assert_eq!(store.checkpoints(), [right.epoch]);
}

#[test]
fn a_segment_that_is_gone_is_damage() {
    let disk = SimulatedDisk::new(4096);
    build(&disk, options(), &RECORDS);
    disk.set_bytes(SEGMENT, &[]);
    assert_eq!(look(&disk).segments[0].tail, Tail::Damaged { at: 0 });
    assert!(matches!(read_all(&disk, options()), Err(StoreError::Damaged { .. })));
    assert!(matches!(repaired(&disk)[..], [Repair::Block { .. }, Repair::Lane { .. }, Repair::GivenUp(_)]));
    read_all(&disk, options()).unwrap();
}

#[test]
fn a_checkpoint_that_is_damaged_does_not_count_any_more() {
    let disk = SimulatedDisk::new(4096);
    build(&disk, options(), &RECORDS);
    damage(&disk, CHECKPOINT, 4096);
    assert!(look(&disk).checkpoints[0].contents.is_err());
    assert!(look(&disk).left_over.is_empty(), "the checkpoint that can't be read may refer to it");
    assert!(matches!(read_all(&disk, options()), Err(StoreError::Damaged { .. })));
    let repairs = repaired(&disk);
    let [Repair::Checkpoint { .. }, Repair::LocalLog, Repair::GivenUp(lane), Repair::GivenUp(local)] = &repairs[..]
    else {
        panic!("{repairs:?}")
    };
    assert_eq!((lane.lane, lane.records, lane.blocks, lane.bound), (Rank(2), 3, 1, Bound::AtMost));
    assert_eq!((local.lane, local.records, local.blocks, local.bound), (LOCAL, 1, 1, Bound::AtMost));
    let (mut store, image) = Store::open(Box::new(disk.clone()), options(), Access::ReadWrite).unwrap();
    assert_eq!(image, None);
    store.append(Rank(2), &mut Bodies(RECORDS.iter()), &mut Vec::new()).unwrap();
    store.sync().unwrap();
}

#[test]
fn a_slot_that_is_damaged_is_written_again() {
    for slot in 0..2 {
        let disk = SimulatedDisk::new(4096);
        let right = build(&disk, options(), &RECORDS);
        damage(&disk, "manifest", slot * 4096 + 30);
        assert_eq!(look(&disk).slots[slot], SlotState::Damaged);
        assert_eq!(read_all(&disk, options()).unwrap().0, right);
        assert_eq!(repaired(&disk), [Repair::Slot { slot }]);
        assert_eq!(read_all(&disk, options()).unwrap().0, right);
    }
}

#[test]
fn without_a_manifest_nothing_says_what_counts() {
    let disk = SimulatedDisk::new(4096);
    build(&disk, options(), &RECORDS);
    damage(&disk, "manifest", 30);
    damage(&disk, "manifest", 4096 + 30);
    let report = look(&disk);
    assert!(!report.is_whole());
    assert_eq!(report.segments[0].blocks.len(), 2, "the blocks can still be looked at");
    assert!(matches!(repair(&mut disk.clone(), false), Err(StoreError::Damaged { .. })));
    let created = Store::create(Box::new(disk.clone()), options());
    assert!(matches!(created, Err(StoreError::Exists { .. })), "{created:?}");
}

#[test]
fn records_that_were_all_needed_are_counted_exactly_and_what_was_covered_is_not() {
    let disk = SimulatedDisk::new(4096);
    let mut store = Store::create(Box::new(disk.clone()), options()).unwrap();
    let mut blocks = Vec::new();
    let body = vec![7; 1500];
    let records: Vec<(u64, &[u8])> = (1..=6).map(|ssn| (ssn, &body[..])).collect();
    store.append(Rank(2), &mut Bodies(records.iter()), &mut blocks).unwrap();
    assert_eq!(blocks.iter().map(|block| (block.first, block.last)).collect::<Vec<_>>().len(), 3);
    let retained = Disposition::Retain { epoch: Epoch(1), phase: Phase(0) };
    let runs = vec![Run { first: Ssn(1), last: Ssn(5), disposition: retained }];
    let lane = LaneImage { peer: Rank(2), next: Ssn(7), acked: Ssn(5), covered: Ssn(0), runs, blocks: blocks.clone() };
    let image = CheckpointImage { epoch: Epoch(2), lanes: vec![lane], ..CheckpointImage::default() };
    store.checkpoint(&image).unwrap();
    drop(store);
    damage(&disk, SEGMENT, blocks[1].at as usize + 200);
    let repairs = repaired(&disk);
    let Some(Repair::GivenUp(given_up)) = repairs.last() else { panic!("{repairs:?}") };
    // The block before the damaged one is whole, and can't be replayed without a gap.
    let sum = (given_up.records, given_up.blocks, given_up.bytes, given_up.bound);
    assert_eq!(sum, (4, 2, blocks[0].raw_bytes + blocks[1].raw_bytes, Bound::Exact));
}

#[test]
fn a_chunk_is_a_block_like_any_other() {
    let disk = SimulatedDisk::new(4096);
    let right = build_of_chunks(&disk);
    let report = look(&disk);
    assert!(report.is_whole());
    let blocks: Vec<_> = report.segments[0].blocks.iter().map(|of| (of.block.records, of.block.disk_bytes)).collect();
    // A page for the table, and two of the chunk.
    assert_eq!(blocks, [(3, 3 * 4096), (1, 4096), (1, 4096)]);
    assert_eq!(repaired(&disk), []);
    // What isn't part of its records may be anything.
    for at in [8192, 8192 + 111, 4096 + 96 + 32, 4096 + 4095, 8192 + 8191] {
        damage(&disk, SEGMENT, at);
        assert!(look(&disk).is_whole(), "byte {at}");
        assert_eq!(read_all(&disk, options_of_chunks()).unwrap(), (right.clone(), records_of_chunks()));
    }
    damage(&disk, SEGMENT, 8192 + 112 + 3000);
    assert_eq!(look(&disk).segments[0].tail, Tail::Damaged { at: 4096 });
    let repairs = repaired(&disk);
    let [Repair::Block { block, .. }, .., Repair::GivenUp(given_up)] = &repairs[..] else { panic!("{repairs:?}") };
    let sum = (given_up.records, given_up.blocks, given_up.bytes, given_up.bound);
    assert_eq!(sum, (3, 1, block.raw_bytes, Bound::AtMost));
    let (_, records) = read_all(&disk, options_of_chunks()).unwrap();
    assert_eq!(records, records_of_chunks()[3..]);
}

#[test]
fn a_power_cut_that_took_a_page_of_a_chunk_is_a_torn_end() {
    for page in 1..4 {
        let disk = SimulatedDisk::new(4096);
        let right = build(&disk, options_of_chunks(), &RECORDS);
        // A chunk as it is behind the checkpoint, but for one page that never got there.
        let other = SimulatedDisk::new(4096);
        build_of_chunks(&other);
        let mut bytes = disk.bytes(SEGMENT).unwrap();
        let chunk = other.bytes(SEGMENT).unwrap()[4096..4 * 4096].to_vec();
        // Its place is another one: the first page alone wouldn't make it a block.
        bytes[12_288..][..chunk.len()].copy_from_slice(&chunk);
        bytes[12_288 + (page - 1) * 4096..][..4096].fill(0);
        disk.set_bytes(SEGMENT, &bytes);
        let from = if page == 1 { 16_384 } else { 12_288 };
        assert_eq!(look(&disk).segments[0].tail, Tail::Torn { at: from });
        assert!(matches!(&repaired(&disk)[..], [Repair::Tail { .. }]));
        assert_eq!(read_all(&disk, options_of_chunks()).unwrap(), (right, owned(&RECORDS)));
    }
}

#[test]
fn zeros_are_no_manifest_where_there_are_segments_and_no_store_where_there_are_none() {
    let disk = SimulatedDisk::new(4096);
    build(&disk, options(), &RECORDS);
    let manifest = disk.bytes("manifest").unwrap();
    for zeros in [vec![0; manifest.len()], Vec::new()] {
        disk.set_bytes("manifest", &zeros);
        let report = look(&disk);
        assert!(report.manifest.is_none() && report.left_over.is_empty());
        assert!(matches!(repair(&mut disk.clone(), true), Err(StoreError::Damaged { .. })));
        assert!(matches!(read_all(&disk, options()), Err(StoreError::Damaged { .. })));
        let opened = Store::open_or_create(Box::new(disk.clone()), options());
        assert!(matches!(opened, Err(StoreError::Damaged { .. })), "{opened:?}");
    }
    let disk = SimulatedDisk::new(4096);
    drop(Store::create(Box::new(disk.clone()), options()).unwrap());
    disk.set_bytes("manifest", &vec![0; manifest.len()]);
    assert!(matches!(scan(&mut disk.clone(), &mut |_, _| {}), Err(StoreError::Missing)));
    assert!(matches!(repair(&mut disk.clone(), false), Err(StoreError::Missing)));
    Store::open_or_create(Box::new(disk.clone()), options()).unwrap();
}

#[test]
fn a_bit_that_flips_in_the_version_is_damage_and_a_version_with_a_right_checksum_is_one() {
    let disk = SimulatedDisk::new(4096);
    build(&disk, options(), &RECORDS);
    let right = disk.bytes("manifest").unwrap();
    for slot in 0..2 {
        damage(&disk, "manifest", slot * 4096 + 8);
    }
    assert_eq!(look(&disk).slots, [SlotState::Damaged; 2]);
    let error = read_all(&disk, options()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(!error.to_string().contains("newer") && error.to_string().contains("restore"), "{error}");
    // A slot of a newer program: 80 bytes of header with the checksum of the rest at the end, then one kept checkpoint.
    let mut newer = right.clone();
    for slot in newer.chunks_mut(4096) {
        slot[8] = 9;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&slot[..76]), &slot[80..104]);
        slot[76..80].copy_from_slice(&crc.to_le_bytes());
    }
    disk.set_bytes("manifest", &newer);
    assert_eq!(look(&disk).slots, [SlotState::Version(9); 2]);
    assert!(matches!(read_all(&disk, options()), Err(StoreError::Version { found: 9, .. })));
    assert!(matches!(repair(&mut disk.clone(), true), Err(StoreError::Version { found: 9, .. })));
}
