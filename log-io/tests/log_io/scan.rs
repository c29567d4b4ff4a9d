//! Store scan and repair.

use counterfoil_log_core::{Disposition, Epoch, LaneWriter, Phase, Pool, PoolOptions, Rank, Run, Ssn};
use counterfoil_log_io::{
    Access, Bound, CheckpointImage, LOCAL, LaneImage, LaneSource, LocalImage, Repair, Report, SlotState,
    StorageBackend, Store, StoreError, StoreOptions, Tail, repair, scan,
};
use counterfoil_test_support::SimulatedDisk;

use crate::small_chunks::{build_of_chunks, options_of_chunks, records_of_chunks};
use crate::small_store::{Bodies, RECORDS, append, body, build, entry, image, options, owned, read_all, seal_slot};

const SEGMENT: &str = "segment-00000001";
const CHECKPOINT: &str = "checkpoint-00000002";

fn inspect(disk: &SimulatedDisk) -> Report {
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

/// Repairs a store.
///
/// Checks that a dry run returns the same steps and changes nothing, and the result is whole.
fn repaired(disk: &SimulatedDisk) -> Vec<Repair> {
    let before = files(disk);
    let planned = repair(&mut disk.clone(), true).unwrap();
    assert!(files(disk) == before, "a dry run changes files");
    let done = repair(&mut disk.clone(), false).unwrap();
    assert_eq!(planned, done);
    assert_eq!(repair(&mut disk.clone(), false).unwrap(), [], "something is left to be repaired");
    assert!(inspect(disk).is_whole());
    done
}

#[test]
fn a_whole_store_is_clean() {
    let disk = SimulatedDisk::new(4096);
    build(&disk, options(), &RECORDS);
    let report = inspect(&disk);
    assert!(report.is_whole());
    assert_eq!((report.not_files.len(), report.blocks_left_out), (0, 0));
    assert_eq!(StorageBackend::not_files(&mut disk.clone()).unwrap(), []);
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
fn a_torn_tail_is_repaired_without_a_loss() {
    let disk = SimulatedDisk::new(4096);
    let right = build(&disk, options(), &RECORDS);
    let mut bytes = disk.bytes(SEGMENT).unwrap();
    bytes[12_288 + 700] = 1;
    disk.set_bytes(SEGMENT, &bytes);
    assert_eq!(inspect(&disk).segments[0].tail, Tail::Torn { at: 12_288 });
    assert!(inspect(&disk).is_whole(), "a store with a torn tail can be opened");
    assert_eq!(repaired(&disk), [Repair::Tail { file: SEGMENT.to_owned(), at: 12_288, len: 12_288 }]);
    assert_eq!(inspect(&disk).segments[0].tail, Tail::Clean);
    assert_eq!(read_all(&disk, options()).unwrap(), (right, owned(&RECORDS)));
}

#[test]
fn whole_blocks_after_a_torn_one_are_kept() {
    let disk = SimulatedDisk::new(4096);
    build(&disk, options(), &RECORDS);
    // The first block in the segment is damaged; a local log block follows it.
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
fn a_damaged_block_is_refused_and_its_repair_reports_the_loss() {
    let disk = SimulatedDisk::new(4096);
    let right = build(&disk, options(), &RECORDS);
    damage(&disk, SEGMENT, 4096 + 120);
    assert_eq!(inspect(&disk).segments[0].tail, Tail::Damaged { at: 4096 });
    let Err(StoreError::Damaged { file, offset, .. }) = read_all(&disk, options()) else { panic!("it can be opened") };
    assert_eq!((file.as_str(), offset), (SEGMENT, 4096));
    let repairs = repaired(&disk);
    let [Repair::Block { block, .. }, Repair::Lane { lane: Rank(2), upto: Ssn(4), .. }, Repair::Loss(loss)] =
        &repairs[..]
    else {
        panic!("{repairs:?}")
    };
    // One of the three was released: no recovery needs it.
    let sum = (loss.lane, loss.records, loss.blocks, loss.bytes, loss.bound);
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
fn a_repair_on_a_full_disk_says_so_and_can_be_repeated() {
    let disk = SimulatedDisk::new(4096);
    build(&disk, options(), &RECORDS);
    damage(&disk, SEGMENT, 4096 + 120);
    disk.set_capacity(disk.names().iter().map(|name| disk.bytes(name).unwrap().len() as u64).sum());
    let refused = repair(&mut disk.clone(), false);
    assert!(matches!(refused, Err(StoreError::DiskFull { needed: 8192, available: 0, .. })), "{refused:?}");
    disk.set_capacity(u64::MAX);
    assert!(matches!(repaired(&disk)[..], [Repair::Block { .. }, Repair::Lane { .. }, Repair::Loss(_)]));
}

#[test]
fn a_missing_segment_is_damage() {
    let disk = SimulatedDisk::new(4096);
    build(&disk, options(), &RECORDS);
    disk.set_bytes(SEGMENT, &[]);
    assert_eq!(inspect(&disk).segments[0].tail, Tail::Damaged { at: 0 });
    assert!(matches!(read_all(&disk, options()), Err(StoreError::Damaged { .. })));
    assert!(matches!(repaired(&disk)[..], [Repair::Block { .. }, Repair::Lane { .. }, Repair::Loss(_)]));
    read_all(&disk, options()).unwrap();
}

#[test]
fn a_damaged_checkpoint_becomes_invalid() {
    let disk = SimulatedDisk::new(4096);
    build(&disk, options(), &RECORDS);
    damage(&disk, CHECKPOINT, 4096);
    let finding = inspect(&disk).checkpoints[0].contents.clone().unwrap_err();
    assert!(finding.starts_with("checkpoint-00000002 at byte ") && !finding.contains("counterfoil log"), "{finding}");
    assert!(inspect(&disk).left_over.is_empty(), "the checkpoint that can't be read may refer to it");
    assert!(matches!(read_all(&disk, options()), Err(StoreError::Damaged { .. })));
    let repairs = repaired(&disk);
    let [Repair::Checkpoint { .. }, Repair::LocalLog, Repair::Loss(lane), Repair::Loss(local)] = &repairs[..] else {
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
fn a_block_that_is_damaged_too_is_not_among_the_records_of_a_lost_checkpoint() {
    let disk = SimulatedDisk::new(4096);
    build(&disk, options(), &RECORDS);
    damage(&disk, CHECKPOINT, 4096);
    damage(&disk, SEGMENT, 4096 + 120);
    let session = inspect(&disk).manifest.unwrap().session;
    let repairs = repaired(&disk);
    let losses: Vec<_> =
        repairs.iter().filter_map(|step| if let Repair::Loss(loss) = step { Some(loss) } else { None }).collect();
    assert_eq!(losses.iter().map(|loss| (loss.lane, loss.records)).collect::<Vec<_>>(), [(LOCAL, 1)]);
    assert_eq!(inspect(&disk).manifest.unwrap().session, session + 1);
}

#[test]
fn a_damaged_slot_is_rewritten() {
    for slot in 0..2 {
        let disk = SimulatedDisk::new(4096);
        let right = build(&disk, options(), &RECORDS);
        damage(&disk, "manifest", slot * 4096 + 30);
        assert_eq!(inspect(&disk).slots[slot], SlotState::Damaged);
        assert_eq!(read_all(&disk, options()).unwrap().0, right);
        assert_eq!(repaired(&disk), [Repair::Slot { slot }]);
        assert_eq!(read_all(&disk, options()).unwrap().0, right);
    }
}

#[test]
fn without_a_manifest_no_checkpoint_is_valid() {
    let disk = SimulatedDisk::new(4096);
    build(&disk, options(), &RECORDS);
    damage(&disk, "manifest", 30);
    damage(&disk, "manifest", 4096 + 30);
    let report = inspect(&disk);
    assert!(!report.is_whole());
    assert_eq!(report.segments[0].blocks.len(), 2, "the blocks can still be read");
    assert!(matches!(repair(&mut disk.clone(), false), Err(StoreError::Damaged { .. })));
    let created = Store::create(Box::new(disk.clone()), options());
    assert!(matches!(created, Err(StoreError::Exists { .. })), "{created:?}");
}

#[test]
fn lost_records_are_counted_exactly_if_all_were_needed() {
    let disk = SimulatedDisk::new(4096);
    let mut store = Store::create(Box::new(disk.clone()), options()).unwrap();
    let mut blocks = Vec::new();
    let body = vec![7; 1500];
    let records: Vec<(u64, &[u8])> = (1..=6).map(|ssn| (ssn, &body[..])).collect();
    store.append(Rank(2), &mut Bodies(records.iter()), &mut blocks).unwrap();
    assert_eq!(blocks.iter().map(|block| (block.first, block.last)).collect::<Vec<_>>().len(), 3);
    let retained = Disposition::Retain { epoch: Epoch(1), phase: Phase(0) };
    // The first run ends with the first record of the first block.
    let run = |first, last| Run { first: Ssn(first), last: Ssn(last), disposition: retained };
    let runs = vec![run(1, 1), run(2, 5)];
    let lane = LaneImage { peer: Rank(2), next: Ssn(7), acked: Ssn(5), covered: Ssn(0), runs, blocks: blocks.clone() };
    let image = CheckpointImage { epoch: Epoch(2), lanes: vec![lane], ..CheckpointImage::default() };
    store.checkpoint(&image).unwrap();
    drop(store);
    damage(&disk, SEGMENT, blocks[1].at as usize + 200);
    let repairs = repaired(&disk);
    let Some(Repair::Loss(loss)) = repairs.last() else { panic!("{repairs:?}") };
    // The block before the damaged one is whole, but can't be replayed without a gap.
    let sum = (loss.records, loss.blocks, loss.bytes, loss.bound);
    assert_eq!(sum, (4, 2, blocks[0].raw_bytes + blocks[1].raw_bytes, Bound::Exact));
    // The checkpoint still refers to the last one.
    assert_eq!(inspect(&disk).segments[0].covered, blocks[2].at + blocks[2].disk_bytes);
    assert_eq!(read_all(&disk, options()).unwrap().1, owned(&records[4..]));
}

#[test]
fn a_repair_changes_no_other_segment_than_that_of_the_lost_block() {
    let disk = SimulatedDisk::new(4096);
    let mut store = Store::create(Box::new(disk.clone()), options()).unwrap();
    // Three one-page blocks in each segment.
    let blocks = append(&mut store, 1..7, 3000).unwrap();
    assert_eq!(blocks.iter().map(|block| block.segment).collect::<Vec<_>>(), [1, 1, 1, 2, 2, 2]);
    store.checkpoint(&image(1, &blocks)).unwrap();
    drop(store);
    damage(&disk, "segment-00000002", blocks[4].at as usize + 200);
    let before = disk.bytes(SEGMENT).unwrap();
    repaired(&disk);
    assert!(disk.bytes(SEGMENT).unwrap() == before);
    assert_eq!(read_all(&disk, options()).unwrap().1, [(6, body(6, 3000))]);
}

#[test]
fn each_rewritten_checkpoint_has_a_new_number_and_names_the_segments_that_are_left() {
    let disk = SimulatedDisk::new(4096);
    let options = StoreOptions { checkpoints_kept: 2, ..options() };
    let mut store = Store::create(Box::new(disk.clone()), options).unwrap();
    // Three one-page blocks in each of three segments.
    let blocks = append(&mut store, 1..10, 3000).unwrap();
    store.checkpoint(&image(1, &blocks[..8])).unwrap();
    store.checkpoint(&image(2, &blocks)).unwrap();
    drop(store);
    damage(&disk, SEGMENT, blocks[2].at as usize + 200);
    repaired(&disk);
    // Segment and end of its last block, from the second part of a checkpoint; the header has the length of the first.
    let segments = |checkpoint: &str| {
        let bytes = disk.bytes(checkpoint).unwrap();
        let word = |at: usize| u64::from_le_bytes(bytes[at..][..8].try_into().unwrap());
        let (from, len) = (4096 + word(64) as usize, word(80) as usize);
        (from..from + len).step_by(24).map(|at| (word(at), word(at + 16))).collect::<Vec<_>>()
    };
    // The store has three segments and two checkpoints.
    assert_eq!(segments("checkpoint-00000006"), [(2, 4 * 4096), (3, 3 * 4096)]);
    assert_eq!(segments("checkpoint-00000007"), [(2, 4 * 4096), (3, 4 * 4096)]);
}

/// A block of chunks has a checksum over the records alone, so it is verified as a whole.
#[test]
fn the_largest_block_of_chunks_is_whole_to_a_scan() {
    let pool = PoolOptions { memory_bytes_max: 18 << 20, chunk_bytes: 1 << 20, prefault_bytes: 0, cursors_max: 1 };
    let mut lane = LaneWriter::new(Pool::volatile(pool).unwrap(), Rank(0));
    (0..17).for_each(|_| _ = lane.claim(2, 1_048_000).unwrap().commit());
    let disk = SimulatedDisk::new(4096);
    let (segment_bytes, disk_bytes_max) = (17 << 20, 40 << 20);
    let options = StoreOptions { segment_bytes, block_bytes: 16 << 20, disk_bytes_max, ..options() };
    let mut store = Store::create(Box::new(disk.clone()), options).unwrap();
    let mut blocks = Vec::new();
    store.append(Rank(0), &mut LaneSource::new(lane.cursor(Ssn::FIRST).unwrap(), Ssn(16)), &mut blocks).unwrap();
    store.checkpoint(&image(1, &blocks)).unwrap();
    assert_eq!(blocks.iter().map(|block| block.disk_bytes).collect::<Vec<_>>(), [(16 << 20) + 4096]);
    assert!(inspect(&disk).is_whole());
}

#[test]
fn only_the_newest_checkpoint_takes_the_local_log_with_it() {
    let disk = SimulatedDisk::new(4096);
    let options = StoreOptions { checkpoints_kept: 2, ..options() };
    let mut store = Store::create(Box::new(disk.clone()), options.clone()).unwrap();
    let old = append(&mut store, 1..2, 100).unwrap();
    store.checkpoint(&image(1, &old)).unwrap();
    let new = append(&mut store, 2..3, 100).unwrap();
    store.checkpoint(&image(2, &new)).unwrap();
    store.append(LOCAL, &mut LocalImage::source(&[entry(1)]), &mut Vec::new()).unwrap();
    store.sync().unwrap();
    drop(store);
    let first = disk.names().into_iter().find(|name| name.starts_with("checkpoint")).unwrap();
    damage(&disk, &first, 4096);
    let repairs = repaired(&disk);
    let [Repair::Checkpoint { epoch: Epoch(1), .. }, Repair::Loss(loss)] = &repairs[..] else { panic!("{repairs:?}") };
    assert_eq!((loss.lane, loss.records, loss.bound), (Rank(0), 1, Bound::AtMost));
    assert_eq!(read_all(&disk, options).unwrap().0.local, [entry(1)]);
}

/// A crash while a slot is written must leave the other one.
#[test]
fn a_repair_writes_the_damaged_slot_first() {
    for slot in [0, 1] {
        let disk = SimulatedDisk::new(4096);
        build(&disk, options(), &RECORDS);
        damage(&disk, "manifest", slot * 4096 + 100);
        let before = disk.bytes("manifest").unwrap();
        disk.record_history();
        repair(&mut disk.clone(), false).unwrap();
        let states = disk.take_history().into_iter().filter_map(|disk| disk.bytes("manifest"));
        let changed = states.chain(disk.bytes("manifest")).find(|bytes| *bytes != before).unwrap();
        let good = (1 - slot) * 4096..(2 - slot) * 4096;
        assert!(changed[good.clone()] == before[good], "slot {slot}");
    }
}

/// The segment's block has the place and generation from the other store, and other records.
#[test]
fn a_valid_block_of_other_records_is_damage() {
    let disks = [&RECORDS[..], &RECORDS[..2]].map(|records| {
        let disk = SimulatedDisk::new(4096);
        build(&disk, options(), records);
        disk
    });
    disks[0].set_bytes(SEGMENT, &disks[1].bytes(SEGMENT).unwrap());
    let report = inspect(&disks[0]);
    assert_eq!(report.segments[0].blocks[0].damage, Some("it isn't the block that the checkpoint refers to"));
}

#[test]
fn of_lost_records_only_those_above_the_covered_ssn_count() {
    let disk = SimulatedDisk::new(4096);
    let mut store = Store::create(Box::new(disk.clone()), options()).unwrap();
    let mut blocks = Vec::new();
    let records: Vec<(u64, &[u8])> = (1..=10).map(|ssn| (ssn, &b"p1 a record"[..])).collect();
    store.append(Rank(2), &mut Bodies(records.iter()), &mut blocks).unwrap();
    let runs = Vec::new();
    let lane = LaneImage { peer: Rank(2), next: Ssn(11), acked: Ssn(0), covered: Ssn(3), runs, blocks: blocks.clone() };
    store.checkpoint(&CheckpointImage { epoch: Epoch(1), lanes: vec![lane], ..CheckpointImage::default() }).unwrap();
    drop(store);
    damage(&disk, SEGMENT, blocks[0].at as usize + 200);
    let repairs = repaired(&disk);
    let Some(Repair::Loss(loss)) = repairs.last() else { panic!("{repairs:?}") };
    assert_eq!((loss.records, loss.blocks, loss.bound), (7, 1, Bound::AtMost));
    let bytes = blocks[0].raw_bytes;
    assert_eq!(loss.to_string(), format!("lost from the lane to rank 2: at most 7 records in 1 block, {bytes} bytes"));
}

#[test]
fn the_progress_of_a_scan_rises_from_segment_to_segment_to_the_bytes_of_all() {
    let disk = SimulatedDisk::new(4096);
    let mut store = Store::create(Box::new(disk.clone()), options()).unwrap();
    let body = vec![7; 3000];
    let records: Vec<(u64, &[u8])> = (1..=8).map(|ssn| (ssn, &body[..])).collect();
    store.append(Rank(2), &mut Bodies(records.iter()), &mut Vec::new()).unwrap();
    store.sync().unwrap();
    drop(store);
    let bytes = disk
        .names()
        .into_iter()
        .filter(|name| name.starts_with("segment"))
        .map(|name| disk.bytes(&name).unwrap().len());
    let all: u64 = bytes.map(|bytes| bytes as u64).sum();
    let mut steps = Vec::new();
    scan(&mut disk.clone(), &mut |done, total| steps.push((done, total))).unwrap();
    assert!(steps.iter().all(|(done, total)| *total == all && done <= total), "{steps:?}");
    assert!(steps.is_sorted() && steps.last() == Some(&(all, all)), "{steps:?}");
    // Each block of four pages, and the end of each segment.
    for done in [8192, 12_288, 16_384, 16_384 + 8192, 2 * 16_384 + 8192] {
        assert!(steps.contains(&(done, all)), "{done}: {steps:?}");
    }
}

#[test]
fn a_block_of_chunks_is_scanned_and_repaired_like_any_other() {
    let disk = SimulatedDisk::new(4096);
    let right = build_of_chunks(&disk);
    let report = inspect(&disk);
    assert!(report.is_whole());
    let blocks: Vec<_> = report.segments[0].blocks.iter().map(|of| (of.block.records, of.block.disk_bytes)).collect();
    // One page for the table, and two for the chunk.
    assert_eq!(blocks, [(3, 3 * 4096), (1, 4096), (1, 4096)]);
    assert_eq!(repaired(&disk), []);
    // Bytes outside the records are arbitrary.
    for at in [8192, 8192 + 111, 4096 + 96 + 32, 4096 + 4095, 8192 + 8191] {
        damage(&disk, SEGMENT, at);
        assert!(inspect(&disk).is_whole(), "byte {at}");
        assert_eq!(read_all(&disk, options_of_chunks()).unwrap(), (right.clone(), records_of_chunks()));
    }
    damage(&disk, SEGMENT, 8192 + 112 + 3000);
    assert_eq!(inspect(&disk).segments[0].tail, Tail::Damaged { at: 4096 });
    let repairs = repaired(&disk);
    let [Repair::Block { block, .. }, .., Repair::Loss(loss)] = &repairs[..] else { panic!("{repairs:?}") };
    let sum = (loss.records, loss.blocks, loss.bytes, loss.bound);
    assert_eq!(sum, (3, 1, block.raw_bytes, Bound::AtMost));
    assert!(disk.bytes(SEGMENT).unwrap()[4096..4 * 4096].iter().all(|byte| *byte == 0), "all pages are punched");
    let (_, records) = read_all(&disk, options_of_chunks()).unwrap();
    assert_eq!(records, records_of_chunks()[3..]);
}

#[test]
fn a_chunk_without_one_of_its_pages_is_a_torn_tail() {
    for page in 1..4 {
        let disk = SimulatedDisk::new(4096);
        let right = build(&disk, options_of_chunks(), &RECORDS);
        // A chunk after the checkpoint, with one page never written.
        let other = SimulatedDisk::new(4096);
        build_of_chunks(&other);
        let mut bytes = disk.bytes(SEGMENT).unwrap();
        let chunk = other.bytes(SEGMENT).unwrap()[4096..4 * 4096].to_vec();
        // It was written for another offset, so its header isn't valid here.
        bytes[12_288..][..chunk.len()].copy_from_slice(&chunk);
        bytes[12_288 + (page - 1) * 4096..][..4096].fill(0);
        disk.set_bytes(SEGMENT, &bytes);
        let from = if page == 1 { 16_384 } else { 12_288 };
        assert_eq!(inspect(&disk).segments[0].tail, Tail::Torn { at: from });
        assert!(matches!(&repaired(&disk)[..], [Repair::Tail { .. }]));
        assert_eq!(read_all(&disk, options_of_chunks()).unwrap(), (right, owned(&RECORDS)));
    }
}

#[test]
fn an_empty_manifest_is_damage_with_segments_and_no_store_without() {
    let disk = SimulatedDisk::new(4096);
    build(&disk, options(), &RECORDS);
    let manifest = disk.bytes("manifest").unwrap();
    for zeros in [vec![0; manifest.len()], Vec::new()] {
        disk.set_bytes("manifest", &zeros);
        let report = inspect(&disk);
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
fn a_bit_flip_in_the_version_is_damage_and_a_version_with_a_valid_checksum_is_not() {
    let disk = SimulatedDisk::new(4096);
    build(&disk, options(), &RECORDS);
    let right = disk.bytes("manifest").unwrap();
    for slot in 0..2 {
        damage(&disk, "manifest", slot * 4096 + 8);
    }
    assert_eq!(inspect(&disk).slots, [SlotState::Damaged; 2]);
    let error = read_all(&disk, options()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(!error.to_string().contains("newer") && error.to_string().contains("restore"), "{error}");
    // Slots of a newer program.
    let mut newer = right.clone();
    for slot in newer.chunks_mut(4096) {
        slot[8] = 9;
        seal_slot(slot);
    }
    disk.set_bytes("manifest", &newer);
    assert_eq!(inspect(&disk).slots, [SlotState::Version(9); 2]);
    assert!(matches!(read_all(&disk, options()), Err(StoreError::Version { found: 9, .. })));
    assert!(matches!(repair(&mut disk.clone(), true), Err(StoreError::Version { found: 9, .. })));
}
