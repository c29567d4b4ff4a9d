//! Images taken by other threads as soon as the writer has sealed the chunk: none of their bytes changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use counterfoil_log_core::{
    AllocError, AppendError, ChunkImage, Cursor, Disposition, LaneWriter, Pool, PoolOptions, Rank, Ssn, record_in_image,
};

/// Miri takes a second for a few records.
const RECORDS: u64 = if cfg!(miri) { 80 } else { 100_000 };
const READERS: usize = 2;
const CHUNK_BYTES: usize = 16 << 10;

/// Returns the payload length of record `ssn`.
///
/// About eight records fill a chunk, and chunks end at any offset in a page.
fn len(ssn: u64) -> usize {
    1200 + (ssn * 167 % 1200) as usize
}

fn byte(ssn: u64) -> u8 {
    (ssn * 131) as u8
}

/// Returns `true` if the record's chunk will have an image: the first chunk is too small, and the last is never sealed.
fn in_image(ssn: u64) -> bool {
    (3..=RECORDS - 20).contains(&ssn)
}

/// Checks every record in an image, and that a copy of the image and a later one, in pieces, are equal after the
/// header.
fn check(image: &ChunkImage, mut next: u64) -> u64 {
    let (mut once, mut again) = (vec![0; image.len()], vec![0; image.len()]);
    image.copy_to(0, &mut once);
    let mut at = 0;
    while let Some((record, after)) = record_in_image(image.records(), at) {
        let record = record.unwrap();
        assert_eq!(record.ssn(), Ssn(next));
        assert!(record.payload() == vec![byte(next); len(next)], "{} isn't what was sent", record.ssn());
        (at, next) = (after, next + 1);
    }
    assert_eq!((at, next), (image.records().len(), image.last().0 + 1));
    thread::yield_now();
    for (index, piece) in again.chunks_mut(1000).enumerate() {
        image.copy_to(index * 1000, piece);
    }
    let after_header = ChunkImage::RECORDS_AT..;
    assert!(once[after_header.clone()] == again[after_header], "the image up to {} has changed", image.last());
    next
}

/// Reads the lane to its end, in images if possible; returns the number of images.
fn read(mut cursor: Cursor, read_upto: &AtomicU64) -> usize {
    let (mut next, mut images) = (1, 0);
    while next <= RECORDS {
        if let Some(image) = cursor.read_chunk(Ssn::MAX, CHUNK_BYTES) {
            next = check(&image, next);
            images += 1;
        } else if !in_image(next) && cursor.read().is_some() {
            next += 1;
        } else {
            thread::yield_now();
        }
        read_upto.store(next - 1, Ordering::Relaxed);
    }
    images
}

/// Appends all records, and releases what every reader has read when the budget is used up.
fn write(lane: &mut LaneWriter, read_upto: &[AtomicU64]) {
    while lane.next_ssn().0 <= RECORDS {
        let ssn = lane.next_ssn().0;
        match lane.reserve(0, len(ssn)) {
            Ok(()) => {
                let mut claim = lane.claim(0, len(ssn)).unwrap();
                claim.payload_mut().fill(byte(ssn));
                claim.commit();
            }
            Err(AppendError::Alloc(AllocError::Full(_))) => {
                let upto = read_upto.iter().map(|upto| upto.load(Ordering::Relaxed)).min().unwrap();
                lane.acknowledge(Ssn(upto), Disposition::Release).unwrap();
                lane.return_spares();
                thread::yield_now();
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn no_byte_of_an_image_changes_while_the_lane_goes_on() {
    let options = PoolOptions {
        memory_bytes_max: 16 * CHUNK_BYTES,
        chunk_bytes: CHUNK_BYTES,
        prefault_bytes: 0,
        cursors_max: READERS,
    };
    let mut lane = LaneWriter::new(Pool::volatile(options).unwrap(), Rank(1));
    let read_upto: Arc<[AtomicU64]> = (0..READERS).map(|_| AtomicU64::new(0)).collect();
    let readers: Vec<_> = (0..READERS)
        .map(|index| {
            let (cursor, read_upto) = (lane.reader().open(Ssn::FIRST).unwrap(), read_upto.clone());
            thread::spawn(move || read(cursor, &read_upto[index]))
        })
        .collect();
    write(&mut lane, &read_upto);
    for reader in readers {
        let images = reader.join().unwrap();
        assert!(images as u64 > RECORDS / 20, "only {images} images");
    }
}
