//! A store's limits, a full disk, and a failing disk.

use counterfoil_log_core::{Epoch, Rank, Record, Ssn};
use counterfoil_log_io::{
    Access, Block, BlockBuffer, BlockCursor, CheckpointImage, LOCAL, LaneSource, LocalImage, RecordSource, Store,
    StoreError, StoreOptions, scan,
};
use counterfoil_test_support::{Fault, SimulatedDisk};

use crate::small_chunks::{blocks_of_64_kib, lane_of};
use crate::small_store::{Bodies, RECORDS, append, build, create, entry, image, options, owned, read_all};

#[test]
fn records_of_any_length_are_read_back() {
    for compress in [false, true] {
        let disk = SimulatedDisk::new(8192);
        let mut store = create(&disk, StoreOptions { compress, block_bytes: 8192, ..options() });
        let mut blocks = Vec::new();
        for (first, len) in [(1, 2), (4, 100), (7, 4000), (10, 7000), (13, 9000), (16, 60_000)] {
            blocks.extend(append(&mut store, first..first + 3, len).unwrap());
        }
        store.flush().unwrap();
        let mut cursor = BlockCursor::new(store.reader(), blocks);
        let (mut buffer, mut ssn) = (BlockBuffer::default(), 0);
        while cursor.next(&mut buffer).unwrap() {
            for record in buffer.records() {
                ssn += 1;
                assert_eq!(record.ssn(), Ssn(ssn));
                assert!(record.wire().iter().enumerate().all(|(at, &byte)| byte == (at as u64 * 31 + ssn) as u8));
            }
        }
        assert_eq!(ssn, 18);
    }
}

#[test]
fn many_blocks_are_read_ahead_and_a_damaged_one_is_identified() {
    let disk = SimulatedDisk::new(64 << 10);
    let options = StoreOptions { segment_bytes: 1 << 20, block_bytes: 64 << 10, disk_bytes_max: 8 << 20, ..options() };
    let mut store = create(&disk, options);
    let blocks = append(&mut store, 1..41, 60_000).unwrap();
    store.checkpoint(&image(1, &blocks)).unwrap();
    let mut cursor = BlockCursor::new(store.reader(), blocks.clone());
    let mut buffer = BlockBuffer::default();
    for block in &blocks {
        assert!(cursor.next(&mut buffer).unwrap());
        assert_eq!(buffer.records().next().unwrap().ssn(), block.first);
    }
    assert!(!cursor.next(&mut buffer).unwrap());
    let damaged = blocks[17];
    let file = format!("segment-{:08}", damaged.segment);
    let mut bytes = disk.bytes(&file).unwrap();
    bytes[damaged.at as usize + 5000] ^= 1;
    disk.set_bytes(&file, &bytes);
    let opened = Store::open(Box::new(disk), store.options().clone(), Access::ReadOnly);
    let Err(StoreError::Damaged { file: found, offset, .. }) = opened else { panic!("it can be opened") };
    assert_eq!((found, offset), (file, damaged.at));
}

#[test]
fn the_budget_is_kept_and_its_error_has_the_numbers() {
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, StoreOptions { disk_bytes_max: 64 << 10, ..options() });
    let mut kept = Vec::new();
    let mut next = 1;
    let refused = loop {
        match append(&mut store, next..next + 1, 3000) {
            Ok(blocks) => kept.extend(blocks),
            Err(error) => break error,
        }
        next += 1;
    };
    assert!(matches!(refused, StoreError::Budget { needed: 16_384, max: 65_536, .. }), "{refused}");
    assert!(store.usage().disk_bytes <= 64 << 10);
    // Freed space can be used again: the segments are removed.
    store.free(&kept[..6]);
    assert_eq!(append(&mut store, next..next + 3, 3000).unwrap().len(), 3);
    store.checkpoint(&image(1, &kept[6..])).unwrap();
}

#[test]
fn dead_blocks_are_punched_and_dead_segments_removed() {
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, options());
    let blocks = append(&mut store, 1..8, 3000).unwrap();
    let before = store.usage();
    assert_eq!((before.segments, before.live_bytes, before.dead_bytes), (3, 7 * 4096, 0));
    // Two of three blocks in the first segment: they are punched, and the segment stays.
    store.free(&blocks[..2]);
    let after = store.usage();
    assert_eq!((after.segments, after.disk_bytes), (3, before.disk_bytes - 8192));
    let bytes = disk.bytes("segment-00000001").unwrap();
    assert!(bytes[4096..12_288].iter().all(|&byte| byte == 0) && bytes[12_288..].iter().any(|&byte| byte != 0));
    store.free(&blocks[2..3]);
    assert_eq!(store.usage().segments, 2);
    assert!(!disk.names().contains(&"segment-00000001".to_owned()));
    // Freeing again has no effect.
    store.free(&blocks[..3]);
    assert_eq!(store.usage().live_bytes, 4 * 4096);
}

#[test]
fn blocks_of_a_checkpoint_stay_until_a_floor_is_raised() {
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, options());
    let blocks = append(&mut store, 1..7, 3000).unwrap();
    store.checkpoint(&image(1, &blocks)).unwrap();
    append(&mut store, 7..8, 3000).unwrap();
    store.free(&blocks[..3]);
    assert_eq!(store.usage().live_bytes, 7 * 4096);
    store.raise_floors(&[(Rank(0), Ssn(3))]).unwrap();
    assert_eq!(store.usage().live_bytes, 4 * 4096);
    drop(store);
    let (store, found) = Store::open(Box::new(disk.clone()), options(), Access::ReadWrite).unwrap();
    let found = found.unwrap();
    assert_eq!((found.lanes[0].covered, found.lanes[0].blocks.as_slice()), (Ssn(3), &blocks[3..]));
    assert_eq!(store.image(Epoch(1)).unwrap(), found);
    assert!(store.usage().disk_bytes < 16 * 4096, "the unreferenced segment still exists");
}

/// The floor rises while a checkpoint is being prepared: its image still has the blocks freed by the store.
#[test]
fn a_checkpoint_may_name_blocks_that_a_floor_freed() {
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, options());
    let blocks = append(&mut store, 1..7, 3000).unwrap();
    store.checkpoint(&image(1, &blocks)).unwrap();
    store.free(&blocks[..3]);
    store.raise_floors(&[(Rank(0), Ssn(3))]).unwrap();
    store.checkpoint(&image(2, &blocks)).unwrap();
    drop(store);
    let (store, found) = Store::open(Box::new(disk.clone()), options(), Access::ReadOnly).unwrap();
    let found = found.unwrap();
    assert_eq!((found.epoch, found.lanes[0].covered, &found.lanes[0].blocks[..]), (Epoch(2), Ssn(3), &blocks[3..]));
    assert_eq!(store.usage().live_bytes, 3 * 4096);
}

/// A floor already covered by a checkpoint changes nothing in the lane.
#[test]
fn a_floor_that_a_checkpoint_has_reached_removes_no_block_from_it() {
    let disk = SimulatedDisk::new(4096);
    let options = StoreOptions { checkpoints_kept: 2, ..options() };
    let floors = |disk: &SimulatedDisk| scan(&mut disk.clone(), &mut |_, _| {}).unwrap().manifest.unwrap().floors;
    let mut store = create(&disk, options.clone());
    let blocks = append(&mut store, 1..7, 3000).unwrap();
    store.checkpoint(&image(1, &blocks)).unwrap();
    store.raise_floors(&[(Rank(0), Ssn(3))]).unwrap();
    let mut newest = image(2, &blocks[2..]);
    newest.lanes[0].covered = Ssn(3);
    store.checkpoint(&newest).unwrap();
    assert_eq!(floors(&disk), [(Rank(0), Ssn(3))], "the older checkpoint covers less");
    drop(store);
    let (mut store, found) = Store::open(Box::new(disk.clone()), options, Access::ReadWrite).unwrap();
    assert_eq!(found.as_ref(), Some(&newest));
    assert_eq!(store.usage().live_bytes, 4 * 4096);
    store.discard_before(Epoch(2)).unwrap();
    assert_eq!(floors(&disk), []);
}

#[test]
fn on_a_full_disk_the_reserve_makes_space_for_a_checkpoint() {
    let disk = SimulatedDisk::new(4096);
    let options = StoreOptions { reserve_bytes: 16 << 10, ..options() };
    let mut store = create(&disk, options);
    let blocks = append(&mut store, 1..7, 3000).unwrap();
    disk.set_capacity(disk.names().iter().map(|name| disk.bytes(name).unwrap().len() as u64).sum());
    let refused = append(&mut store, 7..8, 3000);
    assert!(matches!(refused, Err(StoreError::DiskFull { needed: 16_384, available: 0, .. })), "{refused:?}");
    store.checkpoint(&image(1, &blocks[3..])).unwrap();
    assert!(!disk.names().contains(&"reserve".to_owned()));
    // Opening needs no free space; with free space it recreates the reserve.
    drop(store);
    let open = || Store::open(Box::new(disk.clone()), crate::small_store::options(), Access::ReadWrite).unwrap();
    open();
    disk.set_capacity(u64::MAX);
    let (mut store, _) = open();
    assert!(disk.names().contains(&"reserve".to_owned()));
    append(&mut store, 7..8, 3000).unwrap();
}

#[test]
fn a_reserve_is_not_made_again_beyond_the_budget() {
    let disk = SimulatedDisk::new(4096);
    // Two slots, two two-page checkpoints, and three segments, or two segments and the reserve.
    let options = StoreOptions { reserve_bytes: 16 << 10, disk_bytes_max: 76 << 10, ..options() };
    let mut store = create(&disk, options);
    let blocks = append(&mut store, 1..4, 3000).unwrap();
    disk.set_capacity(disk.names().iter().map(|name| disk.bytes(name).unwrap().len() as u64).sum());
    store.checkpoint(&image(1, &blocks)).unwrap();
    assert!(!disk.names().contains(&"reserve".to_owned()), "the checkpoint took its place");
    disk.set_capacity(u64::MAX);
    let more = append(&mut store, 4..10, 3000).unwrap();
    store.checkpoint(&image(2, &[&blocks[..], &more].concat())).unwrap();
    assert!(!disk.names().contains(&"reserve".to_owned()), "{:?}", store.usage());
    // With the second segment gone there is room for it.
    store.free(&more[..3]);
    store.checkpoint(&image(3, &[&blocks[..], &more[3..]].concat())).unwrap();
    assert!(disk.names().contains(&"reserve".to_owned()), "{:?}", store.usage());
    assert!(store.usage().disk_bytes <= 76 << 10);
}

#[test]
fn the_manifest_has_its_whole_length_before_it_is_written() {
    let disk = SimulatedDisk::new(4096);
    disk.record_history();
    drop(create(&disk, options()));
    let lengths: Vec<usize> =
        disk.take_history().iter().filter_map(|disk| Some(disk.bytes("manifest")?.len())).collect();
    assert!(!lengths.is_empty() && lengths.iter().all(|len| *len == 8192), "{lengths:?}");
}

#[test]
fn after_a_failed_write_the_store_is_read_only() {
    for fault in [Fault::Error, Fault::Short(100)] {
        let disk = SimulatedDisk::new(4096);
        let mut store = create(&disk, options());
        let blocks = append(&mut store, 1..3, 3000).unwrap();
        store.sync().unwrap();
        disk.fail_at(disk.operations(), fault);
        append(&mut store, 3..4, 3000).unwrap();
        let failed = store.flush().unwrap_err();
        assert!(matches!(failed, StoreError::Failed { .. }), "{failed}");
        let operations = disk.operations();
        for result in [
            append(&mut store, 4..5, 10).map(drop),
            store.flush(),
            store.sync(),
            store.checkpoint(&image(1, &blocks)),
            store.raise_floors(&[(Rank(0), Ssn(1))]),
            store.discard_beyond(Epoch(0)).map(drop),
        ] {
            assert!(matches!(result, Err(StoreError::Failed { .. })), "{result:?}");
        }
        store.free(&blocks);
        assert_eq!(disk.operations(), operations);
        let mut buffer = BlockBuffer::default();
        store.reader().read(&blocks[1], &mut buffer).unwrap();
        assert_eq!(buffer.records().count(), 1);
    }
}

#[test]
fn only_its_own_rank_can_open_a_store() {
    let disk = SimulatedDisk::new(4096);
    assert!(matches!(read_all(&disk, options()), Err(StoreError::Missing)));
    build(&disk, options(), &RECORDS);
    let other = StoreOptions { rank: Rank(0), ..options() };
    assert!(matches!(read_all(&disk, other), Err(StoreError::OtherRank { rank: 1, ranks: 3 })));
    let more = StoreOptions { ranks: 4, ..options() };
    assert!(matches!(read_all(&disk, more), Err(StoreError::OtherRank { rank: 1, ranks: 3 })));
    let created = Store::create(Box::new(disk.clone()), options());
    assert!(matches!(created, Err(StoreError::Exists { .. })));
}

#[test]
fn reading_does_not_change_a_store() {
    let disk = SimulatedDisk::new(4096);
    let right = build(&disk, options(), &RECORDS);
    let operations = disk.operations();
    let (mut store, image) = Store::open(Box::new(disk.clone()), options(), Access::ReadOnly).unwrap();
    assert_eq!(image, Some(right));
    assert!(matches!(append(&mut store, 1..2, 10), Err(StoreError::ReadOnly)));
    assert!(matches!(store.discard_beyond(Epoch(0)), Err(StoreError::ReadOnly)));
    store.free(&store.image(Epoch(2)).unwrap().lanes[0].blocks);
    assert_eq!(disk.operations(), operations);
}

#[test]
fn misuse_is_refused() {
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, options());
    let mut none = Vec::new();
    let falling: [(u64, &[u8]); 2] = [(2, b"p1"), (2, b"p2")];
    let refused = store.append(Rank(0), &mut Bodies(falling.iter()), &mut none);
    assert!(matches!(refused, Err(StoreError::Record { ssn: Ssn(2), .. })), "{refused:?}");
    let refused = store.append(LOCAL, &mut Bodies(RECORDS.iter()), &mut none);
    assert!(matches!(refused, Err(StoreError::Record { lane: LOCAL, .. })), "{refused:?}");
    store.append(LOCAL, &mut LocalImage::source(&[entry(5)]), &mut none).unwrap();
    let refused = store.append(LOCAL, &mut LocalImage::source(&[entry(5)]), &mut none);
    assert!(matches!(refused, Err(StoreError::Record { ssn: Ssn(5), .. })), "{refused:?}");
    let blocks = append(&mut store, 1..2, 10).unwrap();
    assert!(matches!(store.checkpoint(&image(0, &blocks)), Err(StoreError::Epoch { .. })));
    store.checkpoint(&image(2, &blocks)).unwrap();
    assert!(matches!(store.checkpoint(&image(2, &blocks)), Err(StoreError::Epoch { newest: Epoch(2), .. })));
    assert!(matches!(store.image(Epoch(1)), Err(StoreError::NoCheckpoint { .. })));
    let nowhere = Block { at: blocks[0].at + 4096, ..blocks[0] };
    assert!(matches!(store.checkpoint(&image(3, &[nowhere])), Err(StoreError::NoBlock { .. })));
    assert!(matches!(store.raise_floors(&[(Rank(3), Ssn(1))]), Err(StoreError::Options(_))));
    let odd = StoreOptions { block_bytes: 5000, ..options() };
    assert!(matches!(Store::create(Box::new(SimulatedDisk::new(4096)), odd), Err(StoreError::Options(_))));
}

#[test]
fn entries_of_the_local_log_stay_until_a_checkpoint_includes_them() {
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, options());
    let mut blocks = Vec::new();
    let entries = [entry(1), entry(2), entry(3)];
    store.append(LOCAL, &mut LocalImage::source(&entries), &mut blocks).unwrap();
    append(&mut store, 1..8, 3000).unwrap();
    store.sync().unwrap();
    store.free(&blocks);
    let left = disk.crash(&mut || 0);
    let (_, image) = Store::open(Box::new(left), options(), Access::ReadOnly).unwrap();
    assert_eq!(image, Some(CheckpointImage { local: entries.to_vec(), ..CheckpointImage::default() }));
    let live = store.usage().live_bytes;
    store.checkpoint(&CheckpointImage { epoch: Epoch(1), ..CheckpointImage::default() }).unwrap();
    assert_eq!(store.usage().live_bytes, live - 4096);
}

#[test]
fn an_entry_that_a_checkpoint_includes_is_not_read_from_its_block_again() {
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, options());
    // Both in the block written after the checkpoint that has the first of them.
    let entries = [entry(1), entry(2)];
    store.checkpoint(&CheckpointImage { epoch: Epoch(1), local: entries[..1].to_vec(), ..Default::default() }).unwrap();
    store.append(LOCAL, &mut LocalImage::source(&entries), &mut Vec::new()).unwrap();
    store.sync().unwrap();
    drop(store);
    let (_, image) = Store::open(Box::new(disk.clone()), options(), Access::ReadOnly).unwrap();
    assert_eq!(image.unwrap().local, entries);
}

/// An entry's record in another lane: only the lane shows that it isn't an entry.
#[test]
fn a_record_of_a_lane_is_no_entry_of_the_local_log() {
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, options());
    let entries = [entry(1), entry(2)];
    store.append(Rank(2), &mut LocalImage::source(&entries), &mut Vec::new()).unwrap();
    store.sync().unwrap();
    drop(store);
    let open = || Store::open(Box::new(disk.clone()), options(), Access::ReadWrite).unwrap();
    assert_eq!(open().1, None);
    let (mut store, _) = open();
    store.append(LOCAL, &mut LocalImage::source(&entries[1..]), &mut Vec::new()).unwrap();
    store.sync().unwrap();
    drop(store);
    assert_eq!(open().1.unwrap().local, entries[1..]);
}

#[test]
fn blocks_without_checksums_are_read_back() {
    let disk = SimulatedDisk::new(4096);
    let without = StoreOptions { checksums: false, ..options() };
    let right = build(&disk, without, &RECORDS);
    assert_eq!(read_all(&disk, options()).unwrap(), (right, owned(&RECORDS)));
}

#[test]
fn a_checkpoint_that_a_reader_would_refuse_is_not_written() {
    let disk = SimulatedDisk::new(8192);
    let mut store = create(&disk, options());
    let blocks = append(&mut store, 1..4, 100).unwrap();
    store.checkpoint(&image(1, &blocks)).unwrap();
    let names = disk.names();
    let wrong: [fn(&mut CheckpointImage); 5] = [
        |image| image.lanes[0].next = Ssn::ZERO,
        |image| image.lanes[0].acked = image.lanes[0].next,
        |image| image.lanes[0].covered = Ssn::MAX,
        |image| image.lanes[0].blocks[0].first = Ssn::ZERO,
        |image| image.local = vec![entry(2), entry(2)],
    ];
    for change in wrong {
        let mut image = image(2, &blocks);
        change(&mut image);
        assert!(matches!(store.checkpoint(&image), Err(StoreError::Image { epoch: Epoch(2) })));
        assert_eq!(disk.names(), names);
    }
    store.checkpoint(&image(2, &blocks)).unwrap();
    assert_eq!(read_all(&disk, options()).unwrap().0.epoch, Epoch(2));
}

#[test]
fn the_number_of_a_session_whose_manifest_was_lost_is_not_used_again() {
    let disk = SimulatedDisk::new(8192);
    drop(create(&disk, options()));
    let manifest = disk.bytes("manifest").unwrap();
    let session = || {
        let (mut store, _) = Store::open(Box::new(disk.clone()), options(), Access::ReadWrite).unwrap();
        store.append(LOCAL, &mut LocalImage::source(&[entry(1)]), &mut Vec::new()).unwrap();
        store.sync().unwrap();
        drop(store);
        let report = scan(&mut disk.clone(), &mut |_, _| {}).unwrap();
        report.segments.last().unwrap().session.clone().unwrap()
    };
    assert_eq!(session(), 2);
    disk.set_bytes("manifest", &manifest);
    assert_eq!(session(), 3);
}

#[test]
fn two_stores_have_different_numbers() {
    let stores = [(); 2].map(|()| {
        let disk = SimulatedDisk::new(8192);
        drop(create(&disk, StoreOptions { seed: None, ..options() }));
        disk.bytes("manifest").unwrap()
    });
    assert!(stores[0] != stores[1]);
}

#[test]
fn a_segment_of_another_store_is_named_so() {
    let [disk, other] = [7, 8].map(|seed| {
        let disk = SimulatedDisk::new(4096);
        build(&disk, StoreOptions { seed: Some(seed), ..options() }, &RECORDS);
        disk
    });
    disk.set_bytes("segment-00000001", &other.bytes("segment-00000001").unwrap());
    let error = read_all(&disk, options()).unwrap_err().to_string();
    assert!(error.contains("the segment is one of another store"), "{error}");
}

#[test]
fn an_error_of_the_disk_is_not_taken_for_a_full_one() {
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, options());
    disk.fail_at(disk.operations(), Fault::Error);
    let refused = append(&mut store, 1..2, 100);
    assert!(matches!(refused, Err(StoreError::Io { .. })), "{refused:?}");
}

#[test]
fn a_segment_has_a_header_and_one_page_of_blocks_at_least() {
    let with = |segment_bytes| {
        let small = StoreOptions { segment_bytes, block_bytes: 4096, reserve_bytes: 0, ..options() };
        small.validate()
    };
    assert!(with(8192).is_ok());
    assert!(matches!(with(4096), Err(StoreError::Options(what)) if what.starts_with("segment_bytes is 4096")));
}

#[test]
fn records_without_a_body_are_read_back() {
    struct Empty(std::ops::RangeInclusive<u64>);
    impl RecordSource for Empty {
        fn next(&mut self) -> Option<Record<'_>> {
            Record::new(Ssn(self.0.next()?), &[], 0)
        }
    }
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, options());
    let mut blocks = Vec::new();
    store.append(Rank(0), &mut Empty(1..=3), &mut blocks).unwrap();
    store.checkpoint(&image(1, &blocks)).unwrap();
    drop(store);
    assert_eq!(read_all(&disk, options()).unwrap().1, [(1, vec![]), (2, vec![]), (3, vec![])]);
}

#[test]
fn chunks_are_copied_where_blocks_are_compressed_and_written_without_checksums_where_there_are_none() {
    let lane = lane_of(40);
    for (options, is_small) in [
        (StoreOptions { compress: true, ..blocks_of_64_kib() }, true),
        (StoreOptions { checksums: false, ..blocks_of_64_kib() }, false),
    ] {
        let disk = SimulatedDisk::new(64 << 10);
        let mut store = create(&disk, options.clone());
        let mut blocks = Vec::new();
        let mut source = LaneSource::new(lane.cursor(Ssn::FIRST).unwrap(), Ssn::MAX);
        store.append(Rank(0), &mut source, &mut blocks).unwrap();
        store.checkpoint(&image(1, &blocks)).unwrap();
        drop(store);
        let bytes: u64 = blocks.iter().map(|block| block.disk_bytes).sum();
        assert_eq!(bytes < 8 << 10, is_small, "{blocks:?}");
        let records = read_all(&disk, options).unwrap().1;
        assert!(records.iter().map(|(ssn, wire)| (*ssn, wire.len())).eq((1..=40).map(|ssn| (ssn, 1000))));
    }
}
