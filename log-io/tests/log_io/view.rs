//! Store views, for reading without opening.

use counterfoil_log_core::{Epoch, Rank, Ssn};
use counterfoil_log_io::{
    Access, Block, BlockBuffer, CheckpointImage, Store, StoreError, StoreOptions, StoreView, scan,
};
use counterfoil_test_support::SimulatedDisk;

use crate::many_segments::One;
use crate::small_store::{OwnedRecords, RECORDS, append, body, build, create, entry, image, options, owned};

/// Returns SSN and body for each record in a block, from the view.
fn read(view: &mut StoreView<'_>, block: &Block) -> Result<OwnedRecords, StoreError> {
    let mut buffer = BlockBuffer::default();
    view.read(block, &mut buffer)?;
    Ok(buffer.records().map(|record| (record.ssn().0, record.wire().to_vec())).collect())
}

#[test]
fn a_view_has_what_the_manifest_and_its_checkpoints_have() {
    let disk = SimulatedDisk::new(4096);
    let right = build(&disk, options(), &RECORDS);
    let mut backend = disk.clone();
    let report = scan(&mut backend, &mut |_, _| {}).unwrap();
    let mut view = StoreView::new(&mut backend).unwrap();
    assert_eq!(view.manifest(), report.manifest);
    assert_eq!(view.checkpoints(), [Epoch(2)]);
    // The program's own bytes and later local log entries are left out.
    let expected = CheckpointImage { application: Vec::new(), local: vec![entry(1)], ..right.clone() };
    assert_eq!(view.image(Epoch(2)).unwrap(), expected);
    for epoch in [1, 3] {
        assert!(matches!(view.image(Epoch(epoch)), Err(StoreError::NoCheckpoint { epoch: Epoch(of) }) if of == epoch));
    }
    assert_eq!(read(&mut view, &right.lanes[0].blocks[0]).unwrap(), owned(&RECORDS));

    let mut blocks_alone = StoreView::of_blocks(&mut backend);
    assert_eq!((blocks_alone.manifest(), blocks_alone.checkpoints()), (None, vec![]));
    assert!(matches!(blocks_alone.image(Epoch(2)), Err(StoreError::NoCheckpoint { .. })));
    assert_eq!(read(&mut blocks_alone, &right.lanes[0].blocks[0]).unwrap(), owned(&RECORDS));
    assert!(matches!(StoreView::new(&mut SimulatedDisk::new(4096)), Err(StoreError::Missing)));
}

#[test]
fn a_view_reads_blocks_of_several_segments_in_any_order() {
    let disk = SimulatedDisk::new(4096);
    let mut store = create(&disk, options());
    let blocks = append(&mut store, 1..9, 3000).unwrap();
    store.checkpoint(&image(1, &blocks)).unwrap();
    store.raise_floors(&[(Rank(0), Ssn(2))]).unwrap();
    drop(store);
    assert!(blocks.last().unwrap().segment > blocks[0].segment + 1, "three segments");

    let mut backend = disk.clone();
    let mut view = StoreView::new(&mut backend).unwrap();
    let image = view.image(Epoch(1)).unwrap();
    assert_eq!((image.lanes[0].covered, &image.lanes[0].blocks[..]), (Ssn(2), &blocks[2..]));
    for index in [7, 2, 3, 6, 4, 7] {
        let ssn = index as u64 + 1;
        assert_eq!(read(&mut view, &blocks[index]).unwrap(), [(ssn, body(ssn, 3000))], "block {index}");
    }
    let another = Block { last: Ssn(100), ..blocks[3] };
    assert!(matches!(read(&mut view, &another), Err(StoreError::Damaged { .. })));
    // A failed read leaves nothing from the previous block.
    let mut buffer = BlockBuffer::default();
    view.read(&blocks[4], &mut buffer).unwrap();
    assert!(view.read(&Block { segment: 77, ..blocks[4] }, &mut buffer).is_err());
    assert_eq!(buffer.records().count(), 0);
}

#[test]
fn a_record_larger_than_any_block_is_verified_in_a_scan_and_can_be_read() {
    let body: Vec<u8> = (0..(17 << 20) + 13).map(|at: u32| (at % 251) as u8).collect();
    for checksums in [true, false] {
        let disk = SimulatedDisk::new(4096);
        let options = StoreOptions { checksums, disk_bytes_max: 64 << 20, ..options() };
        let mut store = create(&disk, options.clone());
        let mut blocks = Vec::new();
        store.append(Rank(0), &mut One(Some((Ssn(1), &body))), &mut blocks).unwrap();
        store.sync().unwrap();
        drop(store);
        let [block] = blocks[..] else { panic!("it isn't one block") };
        let name = format!("segment-{:08}", block.segment);
        let damages = |disk: &SimulatedDisk| {
            let report = scan(&mut disk.clone(), &mut |done, total| assert!(done <= total)).unwrap();
            let segment = report.segments.into_iter().find(|segment| segment.file == name).unwrap();
            assert!(segment.blocks.iter().all(|of| of.block == block && !of.is_referenced), "{:?}", segment.blocks);
            segment.blocks.iter().map(|of| of.damage).collect::<Vec<_>>()
        };
        assert_eq!(damages(&disk), [None]);
        let read = |disk: &SimulatedDisk| read(&mut StoreView::of_blocks(&mut disk.clone()), &block);
        assert!(read(&disk).unwrap() == [(1, body.clone())]);

        let right = disk.bytes(&name).unwrap();
        for at in [block.at as usize + 96, block.at as usize + (9 << 20), block.at as usize + 95 + (17 << 20)] {
            let mut bytes = right.clone();
            bytes[at] ^= 1;
            disk.set_bytes(&name, &bytes);
            let damage = checksums.then_some("the block's checksum is wrong");
            assert_eq!(damages(&disk), [damage], "byte {at}");
        }
        // A damaged header isn't a block.
        let mut bytes = right.clone();
        bytes[block.at as usize + 9] ^= 1;
        disk.set_bytes(&name, &bytes);
        assert_eq!(damages(&disk), []);
        // A file ending within the block has none: its header names more bytes than present.
        disk.set_bytes(&name, &right[..12 << 20]);
        assert_eq!(damages(&disk), []);
        let opened = Store::open(Box::new(disk.clone()), options, Access::ReadOnly);
        assert!(opened.is_ok_and(|(_, image)| image.is_none()), "no checkpoint needs it");
    }
}
