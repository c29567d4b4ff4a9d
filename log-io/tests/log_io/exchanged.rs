//! Exchanged files: an opening refuses each file not referenced by the manifest or a checkpoint.

use counterfoil_log_io::{Access, Store, StoreError, StoreOptions, Tail, repair, scan};
use counterfoil_test_support::SimulatedDisk;
use crc32c::crc32c;

use crate::small_store::{
    KEPT_ENTRY, RECORDS, append, build, create, image, kept_entries, options, read_all, seal_slot,
};

const PAGE: usize = 4096;
const SEGMENT: &str = "segment-00000001";
const CHECKPOINT: &str = "checkpoint-00000002";

/// Returns the file, offset and text of the damage for a refused opening.
fn refusal(disk: &SimulatedDisk, options: StoreOptions) -> (String, u64, &'static str) {
    match Store::open(Box::new(disk.clone()), options, Access::ReadOnly) {
        Err(StoreError::Damaged { file, offset, what }) => (file, offset, what),
        other => panic!("{:?}", other.map(|(_, image)| image)),
    }
}

/// Stores the checksum of `bytes[..at]` at `at`, and returns it.
fn set_crc(bytes: &mut [u8], at: usize) -> u32 {
    let crc = crc32c(&bytes[..at]);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// Changes the entries of the kept checkpoints in both slots of the manifest.
fn change_kept(disk: &SimulatedDisk, change: impl Fn(&mut [u8])) {
    let mut manifest = disk.bytes("manifest").unwrap();
    for slot in manifest.chunks_exact_mut(PAGE) {
        change(kept_entries(slot));
        seal_slot(slot);
    }
    disk.set_bytes("manifest", &manifest);
}

/// Header and blocks have the same generation, and everything else matches the store.
#[test]
fn a_segment_of_another_generation_is_not_the_one_that_the_checkpoint_refers_to() {
    let disk = SimulatedDisk::new(PAGE);
    build(&disk, options(), &RECORDS);
    let mut bytes = disk.bytes(SEGMENT).unwrap();
    let pages = bytes.chunks_exact_mut(PAGE).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0));
    // The header, and two one-page blocks.
    for (page, bytes) in pages {
        let (generation, crc) = if page == 0 { (32, 60) } else { (8, 92) };
        bytes[generation] ^= 1;
        set_crc(bytes, crc);
    }
    disk.set_bytes(SEGMENT, &bytes);
    let what = "it isn't the segment that the checkpoint refers to";
    assert_eq!(refusal(&disk, options()), (SEGMENT.to_owned(), 32, what));
    let report = scan(&mut disk.clone(), &mut |_, _| {}).unwrap();
    assert!(!report.is_whole() && report.segments[0].tail == Tail::Damaged { at: 0 }, "{report:?}");
    assert_eq!(report.segments[0].session, Err(what.to_owned()));
    // The repaired store can be opened.
    repair(&mut disk.clone(), false).unwrap();
    assert!(scan(&mut disk.clone(), &mut |_, _| {}).unwrap().is_whole());
    drop(Store::open(Box::new(disk.clone()), options(), Access::ReadOnly).unwrap());
}

#[test]
fn a_checkpoint_of_another_store_or_rank_is_refused() {
    let disk = SimulatedDisk::new(PAGE);
    build(&disk, options(), &RECORDS);
    // Store, rank and rank count in the checkpoint's header.
    for offset in [16, 32, 36] {
        let other = disk.copy();
        let mut checkpoint = other.bytes(CHECKPOINT).unwrap();
        checkpoint[offset] ^= 4;
        let crc = set_crc(&mut checkpoint, 148);
        other.set_bytes(CHECKPOINT, &checkpoint);
        change_kept(&other, |entry| entry[16..20].copy_from_slice(&crc.to_le_bytes()));
        let what = "it isn't one of this store, or out of order";
        assert_eq!(refusal(&other, options()), (CHECKPOINT.to_owned(), 0, what), "offset {offset}");
    }
    read_all(&disk, options()).unwrap();
}

#[test]
fn checkpoints_out_of_order_are_refused() {
    let two = StoreOptions { checkpoints_kept: 2, ..options() };
    let disk = SimulatedDisk::new(PAGE);
    let mut store = create(&disk, two.clone());
    let blocks = append(&mut store, 1..3, 3000).unwrap();
    store.checkpoint(&image(1, &blocks[..1])).unwrap();
    store.checkpoint(&image(2, &blocks)).unwrap();
    drop(store);
    change_kept(&disk, |entries| entries.rotate_left(KEPT_ENTRY));
    let what = "it isn't one of this store, or out of order";
    assert_eq!(refusal(&disk, two.clone()), (CHECKPOINT.to_owned(), 0, what));
    change_kept(&disk, |entries| entries.rotate_left(KEPT_ENTRY));
    read_all(&disk, two).unwrap();
}
