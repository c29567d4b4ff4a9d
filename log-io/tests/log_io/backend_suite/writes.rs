//! Write properties.

use std::io::ErrorKind;

use counterfoil_log_io::{BackendChoice, Buffer, Directory, DirectoryAccess, PAGE_BYTES};
use counterfoil_test_support::random::split_mix;

use super::{PAGE, TestDir, backend, is_all, read, write};

pub(crate) fn writes_at_any_page_are_read_back(choice: BackendChoice) {
    let place = TestDir::new();
    let mut backend = backend(&place.path(), choice);
    let mut random = split_mix(7);
    let mut below = |bound: u64| random() % bound;
    let pages_max = (backend.buffer_bytes() / PAGE_BYTES) as u64;
    let mut expected = [vec![0; 4 << 20], vec![0; 4 << 20]];
    let files = ["segment-1", "segment-2"].map(|name| backend.create(name, 4 << 20).unwrap());
    for _ in 0..200 {
        let (which, pages) = (below(2) as usize, 1 + below(pages_max));
        let page = below((4 << 20) / PAGE - pages);
        let (from, to) = ((page * PAGE) as usize, ((page + pages) * PAGE) as usize);
        let fill = 1 + below(255) as u8;
        // Overlapping writes in flight have no order.
        if expected[which][from..to].iter().any(|byte| *byte != 0) {
            backend.flush().unwrap();
        }
        expected[which][from..to].fill(fill);
        write(&mut *backend, files[which], page * PAGE, pages as usize, fill);
    }
    backend.sync(files[0]).unwrap();
    backend.sync(files[1]).unwrap();
    backend.sync_dir().unwrap();
    drop(backend);

    let (mut backend, _) = Directory::open(&place.path(), choice, DirectoryAccess::ReadOnly).unwrap();
    assert_eq!(backend.list().unwrap(), ["segment-1", "segment-2"]);
    for (name, expected) in ["segment-1", "segment-2"].into_iter().zip(&expected) {
        assert!(read(&mut *backend, name, 0, 4 << 20) == *expected);
        for _ in 0..50 {
            let at = below(4 << 20) as usize;
            let len = below(((4 << 20) - at) as u64 + 1) as usize;
            assert!(read(&mut *backend, name, at as u64, len) == expected[at..at + len], "{len} bytes at {at}");
        }
    }
}

pub(crate) fn only_whole_pages_of_open_files_are_written(choice: BackendChoice) {
    let place = TestDir::new();
    let mut backend = backend(&place.path(), choice);
    let file = backend.create("segment-1", 1 << 20).unwrap();
    for at in [1, 512, PAGE + 8, u64::MAX - PAGE + 1] {
        let mut buffer = backend.buffer().unwrap();
        buffer.set_len(1);
        assert_eq!(backend.write(file, at, buffer).unwrap_err().kind(), ErrorKind::InvalidInput, "{at}");
        assert_eq!(backend.punch(file, at, PAGE).unwrap_err().kind(), ErrorKind::InvalidInput, "{at}");
    }
    backend.close(file);
    let buffer = backend.buffer().unwrap();
    assert_eq!(backend.write(file, 0, buffer).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(backend.sync(file).unwrap_err().kind(), ErrorKind::InvalidInput);
    backend.flush().unwrap();
}

pub(crate) fn a_file_may_be_closed_before_its_writes_complete(choice: BackendChoice) {
    let place = TestDir::new();
    let mut backend = backend(&place.path(), choice);
    for round in 0..20_u8 {
        let file = backend.create(&format!("segment-{round}"), 2 << 20).unwrap();
        for at in (0..2 << 20).step_by(256 << 10) {
            write(&mut *backend, file, at, 64, round + 1);
        }
        backend.close(file);
    }
    backend.flush().unwrap();
    for round in 0..20_u8 {
        let bytes = read(&mut *backend, &format!("segment-{round}"), 0, 2 << 20);
        assert!(is_all(&bytes, round + 1), "{round}");
    }
}

pub(crate) fn a_failed_write_is_reported_once_and_affects_no_other(choice: BackendChoice) {
    let place = TestDir::new();
    let mut backend = backend(&place.path(), choice);
    let file = backend.create("segment-1", 1 << 20).unwrap();
    write(&mut *backend, file, 0, 16, 1);
    // No file system in use supports such large files.
    write(&mut *backend, file, 1 << 62, 16, 2);
    for at in (64 << 10..1 << 20).step_by(64 << 10) {
        write(&mut *backend, file, at, 16, 1);
    }
    let error = backend.flush().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{error}");
    assert!(error.to_string().contains(&format!("segment-1: writing 65536 bytes at {}", 1_u64 << 62)), "{error}");
    backend.flush().unwrap();
    assert!(is_all(&read(&mut *backend, "segment-1", 0, 1 << 20), 1));

    write(&mut *backend, file, 1 << 62, 16, 2);
    assert_eq!(backend.sync(file).unwrap_err().kind(), ErrorKind::FileTooLarge);
    backend.sync(file).unwrap();
}

pub(crate) fn buffers_may_be_dropped_held_or_allocated_elsewhere(choice: BackendChoice) {
    let place = TestDir::new();
    let mut backend = backend(&place.path(), choice);
    let file = backend.create("segment-1", 8 << 20).unwrap();
    // More than the backend has; some are dropped.
    let mut held: Vec<Buffer> = (0..24).map(|_| backend.buffer().unwrap()).collect();
    held.truncate(20);
    held.drain(..5);
    held.push(Buffer::new(64 << 10).with_slot(0));
    held.push(Buffer::new(64 << 10).with_slot(60_000));
    let written = held.len() as u64;
    for (index, mut buffer) in held.into_iter().enumerate() {
        buffer.bytes_mut()[..64 << 10].fill(index as u8 + 1);
        buffer.set_len(64 << 10);
        backend.write(file, index as u64 * (64 << 10), buffer).unwrap();
    }
    for index in written..100 {
        write(&mut *backend, file, index * (64 << 10), 16, index as u8 + 1);
    }
    backend.flush().unwrap();
    for index in 0..100_u64 {
        let bytes = read(&mut *backend, "segment-1", index * (64 << 10), 64 << 10);
        assert!(is_all(&bytes, index as u8 + 1), "{index}");
    }
}

pub(crate) fn writes_in_flight_complete_when_the_backend_is_dropped(choice: BackendChoice) {
    let place = TestDir::new();
    let mut writing = backend(&place.path(), choice);
    let file = writing.create("segment-1", 2 << 20).unwrap();
    for at in (0..2 << 20).step_by(256 << 10) {
        write(&mut *writing, file, at, 64, 7);
    }
    drop(writing);
    assert!(is_all(&read(&mut *backend(&place.path(), choice), "segment-1", 0, 2 << 20), 7));
}

pub(crate) fn another_thread_may_continue(choice: BackendChoice) {
    let place = TestDir::new();
    let mut backend = backend(&place.path(), choice);
    let file = backend.create("segment-1", 16 << 20).unwrap();
    for eighth in 0..8_u64 {
        // Each thread ends with writes in flight.
        backend = std::thread::spawn(move || {
            for write_ in 0..8 {
                write(&mut *backend, file, (eighth * 8 + write_) * (256 << 10), 64, eighth as u8 + 1);
            }
            backend
        })
        .join()
        .unwrap();
    }
    backend.sync(file).unwrap();
    for eighth in 0..8_u64 {
        assert!(is_all(&read(&mut *backend, "segment-1", eighth * (2 << 20), 2 << 20), eighth as u8 + 1));
    }
}

pub(crate) fn a_reader_sees_flushed_bytes(choice: BackendChoice) {
    let place = TestDir::new();
    let mut backend = backend(&place.path(), choice);
    let file = backend.create("segment-1", 16 << 20).unwrap();
    let reader = backend.reader("segment-1").unwrap();
    for at in (0..16 << 20).step_by(256 << 10) {
        // Before the write it reads zeros, into unaligned memory.
        let mut bytes = vec![1; 10_000];
        reader.read_at(at, &mut bytes).unwrap();
        assert!(is_all(&bytes, 0));
        write(&mut *backend, file, at, 64, 7);
        backend.flush().unwrap();
        let mut aligned = Buffer::new(256 << 10);
        reader.read_at(at, aligned.bytes_mut()).unwrap();
        assert!(is_all(aligned.bytes_mut(), 7));
        reader.read_at(at, &mut bytes).unwrap();
        assert!(is_all(&bytes, 7));
    }
    backend.remove("segment-1").unwrap();
    backend.close(file);
    // A reader outlives the file's name and its writer.
    drop(backend);
    let mut bytes = vec![0; 10_000];
    reader.read_at(123, &mut bytes).unwrap();
    assert!(is_all(&bytes, 7));
}
