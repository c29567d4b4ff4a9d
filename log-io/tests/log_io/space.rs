//! Disk space accounting and reclaiming.

use std::path::Path;

use counterfoil_log_core::{Epoch, Rank, Ssn};
use counterfoil_log_io::{
    Access, BackendChoice, Block, BlockBuffer, Directory, DiskUsage, LaneSource, StorageBackend, Store, StoreError,
    StoreOptions,
};
use counterfoil_test_support::{Fault, OpenFile, SimulatedDisk, open_files};

use crate::many_segments::place;
use crate::small_chunks::{blocks_of_64_kib, lane_of};
use crate::small_store::{Bodies, RECORDS, append, build, create, image, options, read_all};

const PAGE: u64 = 4096;
const SEGMENT: &str = "segment-00000001";

/// Segments with room for 15 one-page blocks.
fn wide() -> StoreOptions {
    StoreOptions { segment_bytes: 16 * PAGE, reserve_bytes: 0, ..options() }
}

#[test]
fn usage_counts_live_dead_and_all_bytes() {
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, wide());
    let manifest = 2 * PAGE;
    let empty = DiskUsage { disk_bytes: manifest, max_bytes: wide().disk_bytes_max, ..DiskUsage::default() };
    assert_eq!(store.usage(), empty);
    // Two full segments and one block of a third.
    let blocks = append(&mut store, 1..32, 3000).unwrap();
    let before = store.usage();
    assert_eq!((before.segments, before.live_bytes, before.dead_bytes), (3, 31 * PAGE, 0));
    assert_eq!(before.disk_bytes, manifest + 3 * 16 * PAGE);
    // A mostly live segment isn't punched.
    store.free(&[blocks[3], blocks[20], blocks[21]]);
    let dead = DiskUsage { live_bytes: 28 * PAGE, dead_bytes: 3 * PAGE, ..before };
    assert_eq!(store.usage(), dead);
    // Eight of 15 are live: one more would be half the segment's 16 pages.
    store.free(&blocks[4..9]);
    assert_eq!((store.usage().dead_bytes, store.usage().disk_bytes), (8 * PAGE, dead.disk_bytes));
    store.free(&blocks[9..10]);
    let punched = store.usage();
    assert_eq!((punched.live_bytes, punched.dead_bytes), (22 * PAGE, 2 * PAGE), "seven blocks are punched together");
    assert_eq!(punched.disk_bytes, dead.disk_bytes - 7 * PAGE);
    let bytes = disk.bytes(SEGMENT).unwrap();
    let is_zero = |block: &Block| bytes[block.at as usize..][..PAGE as usize].iter().all(|byte| *byte == 0);
    let zeros: Vec<usize> = (0..15).filter(|index| is_zero(&blocks[*index])).collect();
    assert_eq!(zeros, [3, 4, 5, 6, 7, 8, 9]);
    // At least two pages are punched at a time: an eighth of a segment.
    store.free(&blocks[12..13]);
    assert_eq!((store.usage().dead_bytes, store.usage().disk_bytes), (3 * PAGE, punched.disk_bytes));
    store.free(&blocks[11..12]);
    assert_eq!((store.usage().dead_bytes, store.usage().disk_bytes), (2 * PAGE, punched.disk_bytes - 2 * PAGE));
    // A punched segment's file can still be synced.
    store.sync().unwrap();
}

#[test]
fn adjacent_dead_blocks_of_different_lengths_are_punched_together() {
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, StoreOptions { segment_bytes: 32 * PAGE, ..wide() });
    // One-page and two-page blocks, in turn; at least four pages are punched at a time.
    let mut blocks = Vec::new();
    for (ssn, len) in (1..).zip([3000, 5000].into_iter().cycle().take(22)) {
        blocks.extend(append(&mut store, ssn..ssn + 1, len).unwrap());
    }
    blocks.retain(|block| block.segment == 1);
    let before = store.usage();
    // Two thirds are dead, in runs of two pages and one.
    let of_two: Vec<Block> = blocks.iter().copied().filter(|block| block.disk_bytes == 2 * PAGE).collect();
    store.free(&of_two);
    assert_eq!(store.usage().disk_bytes, before.disk_bytes);
    store.free(&blocks[2..3]);
    assert_eq!(store.usage().disk_bytes, before.disk_bytes - 5 * PAGE);
}

#[test]
fn a_store_that_is_only_read_gives_nothing_back() {
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, wide());
    let blocks = append(&mut store, 1..32, 3000).unwrap();
    store.checkpoint(&image(1, &blocks)).unwrap();
    drop(store);
    let before: Vec<_> = disk.names().into_iter().map(|name| (name.clone(), disk.bytes(&name))).collect();
    let (mut store, _) = Store::open(Box::new(disk.clone()), wide(), Access::ReadOnly).unwrap();
    store.free(&blocks);
    drop(store);
    assert!(disk.names().into_iter().map(|name| (name.clone(), disk.bytes(&name))).eq(before));
}

#[test]
fn a_block_of_a_segment_that_was_removed_cannot_be_read() {
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, wide());
    let blocks = append(&mut store, 1..32, 3000).unwrap();
    store.flush().unwrap();
    let mut buffer = BlockBuffer::default();
    store.reader().read(&blocks[3], &mut buffer).unwrap();
    store.free(&blocks[..15]);
    assert_eq!(store.usage().segments, 2);
    assert!(store.reader().read(&blocks[3], &mut buffer).is_err());
}

#[test]
fn the_segment_that_is_appended_to_is_kept_without_a_live_block() {
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, wide());
    let first = append(&mut store, 1..2, 3000).unwrap();
    store.free(&first);
    assert_eq!((store.usage().segments, store.usage().live_bytes), (1, 0));
    let second = append(&mut store, 2..3, 3000).unwrap();
    assert_eq!((second[0].segment, second[0].at), (1, first[0].at + PAGE));
}

/// A rest below a quarter block at the end of a segment stays unused.
#[test]
fn a_small_block_is_not_put_into_the_last_page_of_a_segment() {
    let disk = SimulatedDisk::new(32 << 10);
    // A header, an eight-page block, and one page or two.
    for (pages, segment) in [(10, 2), (11, 1)] {
        let options =
            StoreOptions { segment_bytes: pages * PAGE, block_bytes: 32 << 10, reserve_bytes: 0, ..options() };
        let mut store = create(&disk.copy(), options);
        let large = append(&mut store, 1..2, 30_000).unwrap();
        assert_eq!((large[0].segment, large[0].disk_bytes), (1, 8 * PAGE));
        assert_eq!(append(&mut store, 2..3, 100).unwrap()[0].segment, segment);
    }
}

#[test]
fn a_small_chunk_is_not_put_into_the_last_pages_of_a_segment() {
    // A header, a 15-page block, and four pages or five: a quarter block, and a page for the table.
    for (pages, segment) in [(20, 2), (21, 1)] {
        let disk = SimulatedDisk::new(64 << 10);
        let mut store = create(&disk, StoreOptions { segment_bytes: pages * PAGE, ..blocks_of_64_kib() });
        let large = append(&mut store, 1..2, 60_000).unwrap();
        assert_eq!((large[0].segment, large[0].disk_bytes), (1, 15 * PAGE));
        // The records of the second chunk, which is the first of 8 KiB.
        let lane = lane_of(20);
        let mut source = LaneSource::new(lane.cursor(Ssn(4)).unwrap(), Ssn(10));
        let mut blocks = Vec::new();
        store.append(Rank(0), &mut source, &mut blocks).unwrap();
        let places: Vec<_> = blocks.iter().map(|block| (block.segment, block.records, block.disk_bytes)).collect();
        assert_eq!(places, [(segment, 7, 3 * PAGE)]);
    }
}

#[test]
fn the_blocks_of_a_store_that_was_opened_again_are_live_until_they_are_freed() {
    let disk = SimulatedDisk::new(4096);
    let options = StoreOptions { checkpoints_kept: 2, ..wide() };
    let mut store = create(&disk, options.clone());
    let old = append(&mut store, 1..3, 3000).unwrap();
    store.checkpoint(&image(1, &old)).unwrap();
    let new = append(&mut store, 3..6, 3000).unwrap();
    store.checkpoint(&image(2, &new)).unwrap();
    drop(store);
    let (mut store, _) = Store::open(Box::new(disk.clone()), options, Access::ReadWrite).unwrap();
    assert_eq!(store.usage().live_bytes, 5 * PAGE);
    // The log has only the newest checkpoint's.
    store.discard_before(Epoch(2)).unwrap();
    assert_eq!(store.usage().live_bytes, 3 * PAGE);
    store.checkpoint(&image(3, &[])).unwrap();
    store.discard_before(Epoch(3)).unwrap();
    assert_eq!(store.usage().live_bytes, 3 * PAGE);
    store.free(&new);
    assert_eq!(store.usage().live_bytes, 0);
}

#[test]
fn files_that_no_checkpoint_refers_to_are_removed_when_a_store_is_opened_for_writing() {
    let disk = SimulatedDisk::new(4096);
    build(&disk, options(), &RECORDS);
    let before = disk.names();
    for name in ["segment-00000077", "checkpoint-00000078"] {
        disk.set_bytes(name, &[0; 4096]);
    }
    drop(Store::open(Box::new(disk.clone()), options(), Access::ReadOnly).unwrap());
    assert_eq!(disk.names().len(), before.len() + 2);
    drop(Store::open(Box::new(disk.clone()), options(), Access::ReadWrite).unwrap());
    assert_eq!(disk.names(), before);
}

#[test]
fn dead_blocks_are_punched_when_the_budget_is_used_up() {
    let disk = SimulatedDisk::new(4096);
    // The manifest, and two segments less a page.
    let options = StoreOptions { disk_bytes_max: 33 * PAGE, ..wide() };
    let mut store = create(&disk, options);
    let blocks = append(&mut store, 1..16, 3000).unwrap();
    let mut more = Vec::new();
    let record: [(u64, &[u8]); 1] = [(16, &[7; 3000])];
    let refused = store.append(Rank(0), &mut Bodies(record.iter()), &mut more);
    assert!(matches!(refused, Err(StoreError::Budget { .. })), "{refused:?}");
    store.free(&blocks[5..6]);
    assert_eq!(store.usage().dead_bytes, PAGE, "it isn't punched yet");
    store.append(Rank(0), &mut Bodies(record.iter()), &mut more).unwrap();
    let usage = store.usage();
    assert_eq!((usage.dead_bytes, usage.segments, usage.disk_bytes), (0, 2, 33 * PAGE));
}

#[test]
fn a_checkpoint_that_is_replaced_leaves_no_file_and_frees_its_blocks() {
    for kept in [1, 2] {
        let disk = SimulatedDisk::new(4096);
        let mut store = create(&disk, StoreOptions { checkpoints_kept: kept, ..options() });
        let checkpoints = || disk.names().iter().filter(|name| name.starts_with("checkpoint")).count();
        let mut before = Vec::new();
        for epoch in 1..6 {
            let first = u64::from(epoch) * 10;
            let blocks = append(&mut store, first..first + 3, 3000).unwrap();
            store.free(&before);
            store.checkpoint(&image(epoch, &blocks)).unwrap();
            before = blocks;
            let most = (epoch as usize).min(kept);
            assert_eq!((checkpoints(), store.usage().checkpoints), (most, most), "epoch {epoch}");
            assert_eq!(store.usage().live_bytes, most as u64 * 3 * PAGE, "epoch {epoch}");
        }
        store.discard_before(Epoch(5)).unwrap();
        assert_eq!((checkpoints(), store.usage().live_bytes), (1, 3 * PAGE));
        assert_eq!(store.discard_beyond(Epoch(4)).unwrap(), None);
        assert_eq!((checkpoints(), store.usage().live_bytes, store.usage().segments), (0, 0, 0));
    }
}

#[test]
fn an_old_segment_ends_after_its_last_block_when_the_store_is_opened() {
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, wide());
    let blocks = append(&mut store, 1..4, 3000).unwrap();
    store.checkpoint(&image(1, &blocks)).unwrap();
    drop(store);
    assert_eq!(disk.bytes(SEGMENT).unwrap().len() as u64, 16 * PAGE);
    let (store, _) = Store::open(Box::new(disk.clone()), wide(), Access::ReadOnly).unwrap();
    drop(store);
    assert_eq!(disk.bytes(SEGMENT).unwrap().len() as u64, 16 * PAGE);
    let operations = disk.operations();
    let (store, _) = Store::open(Box::new(disk.clone()), wide(), Access::ReadWrite).unwrap();
    assert_eq!(disk.bytes(SEGMENT).unwrap().len() as u64, 4 * PAGE);
    assert_eq!(store.usage().disk_bytes, 2 * PAGE + 4 * PAGE + disk.bytes("checkpoint-00000002").unwrap().len() as u64);
    drop(store);
    // A segment already ending there isn't truncated again.
    let first = disk.operations() - operations;
    Store::open(Box::new(disk.clone()), wide(), Access::ReadWrite).unwrap();
    assert!(disk.operations() - operations - first < first, "{first}");
}

#[test]
fn a_large_record_has_a_segment_of_its_own_only_if_no_other_holds_it() {
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, options());
    // Three pages after the header in a four-page segment; record header and block header take 120 bytes.
    let most = 3 * 4096 - 120;
    let fits = append(&mut store, 1..2, most).unwrap();
    let small = append(&mut store, 2..3, 100).unwrap();
    let two = append(&mut store, 3..4, most - 4096).unwrap();
    let over = append(&mut store, 4..5, most + 1).unwrap();
    let after = append(&mut store, 5..6, 100).unwrap();
    let segments: Vec<u32> = [fits, small, two, over, after].iter().map(|blocks| blocks[0].segment).collect();
    assert_eq!(segments, [1, 2, 2, 3, 4], "{segments:?}");
    assert_eq!(disk.bytes("segment-00000003").unwrap().len(), 5 * 4096, "as long as the record needs");
    assert!([1, 2, 4].iter().all(|of| disk.bytes(&format!("segment-{of:08}")).unwrap().len() == 4 * 4096));
}

#[test]
fn blocks_are_compressed_if_that_saves_an_eighth() {
    let compressed = StoreOptions { compress: true, block_bytes: 12 << 10, ..options() };
    let disk = SimulatedDisk::new(12 << 10);
    let mut store = create(&disk, compressed.clone());
    let equal = append(&mut store, 1..2, 10_000).unwrap();
    assert_eq!((equal[0].raw_bytes, equal[0].disk_bytes), (10_024, PAGE));
    // As large as a block, with the block's header.
    let full = append(&mut store, 2..3, (12 << 10) - 96 - 24).unwrap();
    assert_eq!((full[0].raw_bytes, full[0].disk_bytes), ((12 << 10) - 96, PAGE));
    // Non-repeating bytes.
    let mut state = 1_u64;
    let body: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(10_000)
    .collect();
    let mut blocks = Vec::new();
    store.append(Rank(0), &mut Bodies([(2, &body[..])].iter()), &mut blocks).unwrap();
    assert_eq!((blocks[0].raw_bytes, blocks[0].disk_bytes), (10_024, 3 * PAGE));
    // A tenth less, which would be a page.
    let wide = StoreOptions { segment_bytes: 64 << 10, block_bytes: 32 << 10, ..compressed };
    let mut store = create(&SimulatedDisk::new(32 << 10), wide);
    let body: Vec<u8> = body.iter().cycle().take(27_000).enumerate().map(|(at, byte)| byte ^ (at >> 7) as u8).collect();
    let body = [&body[..], &[0; 3000]].concat();
    store.append(Rank(0), &mut Bodies([(1, &body[..])].iter()), &mut blocks).unwrap();
    let block = blocks.last().unwrap();
    assert_eq!((block.raw_bytes, block.disk_bytes), (30_024, 8 * PAGE));
}

#[test]
fn a_missing_checkpoint_file_and_a_missing_segment_are_damage() {
    let disk = SimulatedDisk::new(4096);
    build(&disk, options(), &RECORDS);
    let without = disk.copy();
    without.clone().remove("checkpoint-00000002").unwrap();
    let error = read_all(&without, options()).unwrap_err().to_string();
    assert!(error.contains("checkpoint-00000002") && error.contains("it isn't there"), "{error}");
    let without = disk.copy();
    without.clone().remove(SEGMENT).unwrap();
    let error = read_all(&without, options()).unwrap_err().to_string();
    assert!(error.contains(SEGMENT) && error.contains("it isn't there"), "{error}");
}

#[test]
fn a_store_without_any_segment_is_opened_and_not_created_again() {
    let disk = SimulatedDisk::new(4096);
    drop(create(&disk, wide()));
    assert_eq!(disk.names(), ["manifest"]);
    let session = || counterfoil_log_io::scan(&mut disk.clone(), &mut |_, _| {}).unwrap().manifest.unwrap().session;
    assert_eq!(session(), 1);
    let (store, image) = Store::open_or_create(Box::new(disk.clone()), wide()).unwrap();
    assert_eq!((image, store.checkpoints().len(), session()), (None, 0, 2));
}

#[test]
fn chunks_share_a_block_as_far_as_they_fit() {
    let lane = lane_of(200);
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, blocks_of_64_kib());
    let mut blocks = Vec::new();
    store.append(Rank(0), &mut LaneSource::new(lane.cursor(Ssn::FIRST).unwrap(), Ssn::MAX), &mut blocks).unwrap();
    store.flush().unwrap();
    let records: u32 = blocks.iter().map(|block| block.records).sum();
    // Blocks of chunks may be an eighth larger: eight or nine chunks, and a page for their table.
    let most = blocks.iter().map(|block| block.disk_bytes).max().unwrap();
    assert_eq!((most, records), (76 << 10, 200), "{blocks:?}");
    assert!(blocks.len() <= 6, "{blocks:?}");
}

#[test]
fn a_store_that_has_failed_gives_nothing_back() {
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, wide());
    let blocks = append(&mut store, 1..32, 3000).unwrap();
    disk.fail_at(disk.operations(), Fault::Error);
    assert!(store.sync().is_err());
    store.free(&blocks);
    assert_eq!(store.usage().segments, 3);
    assert!(disk.names().contains(&SEGMENT.to_owned()));
}

/// Returns how many segments in `directory` this process has open for writing.
fn written_segments(directory: &Path) -> usize {
    let is_written = |file: &&OpenFile| file.is_written && file.name.starts_with("segment-");
    open_files(directory).iter().filter(is_written).count()
}

#[test]
fn segments_are_open_for_writing_until_they_are_full_and_synced() {
    let (_keep, path) = place();
    let mut store = Store::create(Directory::create(&path, BackendChoice::Pwrite).unwrap().0, wide()).unwrap();
    let blocks = append(&mut store, 1..16, 3000).unwrap();
    store.sync().unwrap();
    append(&mut store, 16..17, 3000).unwrap();
    assert_eq!(written_segments(&path), 1, "a synced segment is closed as soon as it is full");
    append(&mut store, 17..32, 3000).unwrap();
    assert_eq!(written_segments(&path), 2);
    store.sync().unwrap();
    assert_eq!(written_segments(&path), 1, "a full segment is closed as soon as it is synced");
    // Most of a closed segment is punched.
    let before = store.usage().disk_bytes;
    store.free(&blocks[1..12]);
    assert!(store.usage().disk_bytes < before);
    assert_eq!(written_segments(&path), 1);
}

#[test]
fn a_block_has_at_most_as_many_chunks_as_its_table_has_room_for() {
    let disk = SimulatedDisk::new(4096);
    let options = StoreOptions { segment_bytes: 4 << 20, block_bytes: 2 << 20, disk_bytes_max: 16 << 20, ..wide() };
    let mut store = create(&disk, options);
    let lane = lane_of(1600);
    let mut source = LaneSource::new(lane.cursor(Ssn::FIRST).unwrap(), Ssn::MAX);
    let mut blocks = Vec::new();
    store.append(Rank(0), &mut source, &mut blocks).unwrap();
    store.flush().unwrap();
    let (mut buffer, mut records) = (BlockBuffer::default(), 0);
    for block in &blocks {
        store.reader().read(block, &mut buffer).unwrap();
        records += buffer.records().count();
    }
    assert_eq!(records, 1600);
    assert!(blocks.iter().any(|block| block.disk_bytes > 900 << 10), "{blocks:?}");
}
