//! Properties of in-place chunks.

use std::io::ErrorKind;

use counterfoil_log_core::{ChunkImage, Disposition, Epoch, LaneWriter, Phase, Pool, PoolOptions, Rank, Ssn};
use counterfoil_log_io::{
    BackendChoice, BlockBuffer, Buffer, LaneSource, PAGE_BYTES, StorageBackend, Store, StoreError, StoreOptions,
};

use super::{TestDir, backend, is_all, read, write};

const PEER: Rank = Rank(1);

/// Creates a lane with `len`-byte records, each filled with its SSN.
fn lane(records: u64, len: usize) -> LaneWriter {
    let options = PoolOptions { memory_bytes_max: 16 << 20, chunk_bytes: 64 << 10, prefault_bytes: 0, cursors_max: 2 };
    let mut lane = LaneWriter::new(Pool::volatile(options).unwrap(), PEER);
    for ssn in 1..=records {
        let mut claim = lane.claim(8, len - 8).unwrap();
        claim.body_mut().fill(ssn as u8);
        claim.commit();
    }
    lane
}

/// Returns all chunks in the lane that can be written in place.
fn chunks(lane: &LaneWriter) -> Vec<ChunkImage> {
    let mut cursor = lane.cursor(Ssn::FIRST).unwrap();
    let mut chunks = Vec::new();
    loop {
        match cursor.read_chunk(Ssn::MAX, 1 << 20) {
            Some(chunk) => chunks.push(chunk),
            None if cursor.read().is_none() => return chunks,
            None => {}
        }
    }
}

fn copy(chunk: &ChunkImage) -> Vec<u8> {
    let mut bytes = vec![0; chunk.len()];
    chunk.copy_to(0, &mut bytes);
    bytes
}

fn head(backend: &mut dyn StorageBackend, fill: u8) -> Buffer {
    let mut head = backend.header_buffer().unwrap();
    head.bytes_mut()[..PAGE_BYTES].fill(fill);
    head.set_len(PAGE_BYTES);
    head
}

pub(crate) fn chunks_are_written_in_place(choice: BackendChoice) {
    let place = TestDir::new();
    let mut backend = backend(&place.path(), choice);
    let lane = lane(4000, 1000);
    let file = backend.create("segment-1", 16 << 20).unwrap();
    let (mut at, mut expected, mut all) = (0, Vec::new(), chunks(&lane));
    assert!(all.len() > 50);
    // One or several chunks at a time, more writes than may be in flight, and buffer writes between them.
    for count in (0..40).map(|index| [1, 1, 2, 5][index % 4]) {
        let some: Vec<ChunkImage> = all.drain(..count.min(all.len())).collect();
        expected.extend_from_slice(&[7; PAGE_BYTES]);
        some.iter().for_each(|chunk| expected.extend(copy(chunk)));
        let front = head(&mut *backend, 7);
        backend.write_chunks(file, at, front, some).unwrap();
        write(&mut *backend, file, expected.len() as u64, 2, 9);
        expected.extend_from_slice(&[9; 2 * PAGE_BYTES]);
        at = expected.len() as u64;
    }
    backend.sync(file).unwrap();
    assert!(read(&mut *backend, "segment-1", 0, expected.len()) == expected);
}

pub(crate) fn a_chunk_stays_pinned_until_it_is_written_and_no_longer(choice: BackendChoice) {
    let place = TestDir::new();
    let mut backend = backend(&place.path(), choice);
    let mut lane = lane(10_000, 1000);
    let file = backend.create("segment-1", 16 << 20).unwrap();
    let mut expected = Vec::new();
    let mut at = 0;
    for chunk in chunks(&lane) {
        expected.push(copy(&chunk));
        let front = head(&mut *backend, 7);
        let len = (PAGE_BYTES + chunk.len()) as u64;
        backend.write_chunks(file, at, front, vec![chunk]).unwrap();
        at += len;
    }
    // The records are no longer needed, and new ones need the memory.
    lane.acknowledge(Ssn(10_000), Disposition::Retain { epoch: Epoch(1), phase: Phase(0) }).unwrap();
    while let Some(settled) = lane.poll_settled() {
        assert!(lane.free(settled.chunk));
    }
    let mut more = 0;
    let mut append = || {
        lane.return_spares();
        while let Ok(mut claim) = lane.claim(8, 992) {
            claim.body_mut().fill(0xee);
            claim.commit();
            more += 1;
        }
        more
    };
    append();
    backend.flush().unwrap();
    assert!(append() > 15_000, "all of the memory can be used again");
    let mut at = 0;
    for chunk in expected {
        let read = read(&mut *backend, "segment-1", at + PAGE_BYTES as u64, chunk.len());
        // The lane's writer may change the bytes before the records.
        assert!(read[ChunkImage::RECORDS_AT..] == chunk[ChunkImage::RECORDS_AT..]);
        at += (PAGE_BYTES + chunk.len()) as u64;
    }
}

pub(crate) fn a_failed_chunk_write_is_reported_and_unpins_the_chunk(choice: BackendChoice) {
    let place = TestDir::new();
    let mut backend = backend(&place.path(), choice);
    let mut lane = lane(1000, 1000);
    let file = backend.create("segment-1", 1 << 20).unwrap();
    let mut all = chunks(&lane);
    let (one, other) = (all.remove(0), all.remove(0));
    let len = PAGE_BYTES + one.len();
    // No file system in use supports such large files.
    let front = head(&mut *backend, 7);
    backend.write_chunks(file, 1 << 62, front, vec![one]).unwrap();
    write(&mut *backend, file, 0, 16, 1);
    let front = head(&mut *backend, 8);
    backend.write_chunks(file, 64 << 10, front, vec![other]).unwrap();
    let error = backend.flush().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{error}");
    assert!(error.to_string().contains(&format!("segment-1: writing {len} bytes at {}", 1_u64 << 62)), "{error}");
    backend.flush().unwrap();
    assert!(is_all(&read(&mut *backend, "segment-1", 0, 64 << 10), 1));
    assert!(is_all(&read(&mut *backend, "segment-1", 64 << 10, PAGE_BYTES), 8));
    // An offset within a page is refused.
    let front = head(&mut *backend, 7);
    let one = all.remove(0);
    assert_eq!(backend.write_chunks(file, 100, front, vec![one]).unwrap_err().kind(), ErrorKind::InvalidInput);
    drop(all);
    lane.truncate(Ssn(1)).unwrap();
}

pub(crate) fn an_append_refused_in_the_middle_unpins_its_chunks(choice: BackendChoice) {
    let place = TestDir::new();
    let mut lane = lane(8000, 1000);
    // Space for three of the five segments.
    let options = StoreOptions { segment_bytes: 2 << 20, disk_bytes_max: 7 << 20, ..StoreOptions::new(Rank(0), 2) };
    let mut store = Store::create(backend(&place.path(), choice), options).unwrap();
    let mut blocks = Vec::new();
    let cursor = lane.cursor(Ssn::FIRST).unwrap();
    let refused = store.append(PEER, &mut LaneSource::new(cursor, Ssn(8000)), &mut blocks);
    assert!(matches!(refused, Err(StoreError::Budget { .. })), "{refused:?}");
    assert!(blocks.len() > 10);
    // The lane can be truncated without a flush.
    lane.truncate(Ssn(1)).unwrap();
    let mut buffer = BlockBuffer::default();
    for block in &blocks {
        store.reader().read(block, &mut buffer).unwrap();
        assert!(buffer.records().all(|record| is_all(record.wire(), record.ssn().0 as u8)));
    }
}

pub(crate) fn a_lane_written_from_memory_is_read_back(choice: BackendChoice) {
    for len in [100, 1000, 20_000, 100_000, 900_000] {
        let place = TestDir::new();
        let records = (8 << 20) / len as u64;
        let lane = lane(records, len);
        let options = StoreOptions { segment_bytes: 4 << 20, ..StoreOptions::new(Rank(0), 2) };
        let mut store = Store::create(backend(&place.path(), choice), options).unwrap();
        let mut blocks = Vec::new();
        let cursor = lane.cursor(Ssn(3)).unwrap();
        store.append(PEER, &mut LaneSource::new(cursor, Ssn(records - 1)), &mut blocks).unwrap();
        store.flush().unwrap();
        let (mut buffer, mut ssn) = (BlockBuffer::default(), 3);
        for block in &blocks {
            store.reader().read(block, &mut buffer).unwrap();
            for record in buffer.records() {
                assert_eq!((record.ssn(), record.prefix().len(), record.wire().len()), (Ssn(ssn), 8, len));
                assert!(is_all(record.wire(), ssn as u8));
                ssn += 1;
            }
        }
        assert_eq!(ssn, records);
        let bytes: u64 = blocks.iter().map(|block| block.disk_bytes).sum();
        let in_memory = records * (len as u64 + 16).next_multiple_of(16);
        assert!(bytes < in_memory + in_memory / 8, "{len}: {bytes} of {in_memory}");
    }
}
