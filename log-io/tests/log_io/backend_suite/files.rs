//! File properties.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};

use counterfoil_log_io::{BackendChoice, PAGE_BYTES};

use super::{PAGE, TestDir, backend, is_all, read, write};

pub(crate) fn a_new_file_is_preallocated_zeros(choice: BackendChoice) {
    let place = TestDir::new();
    let mut backend = backend(&place.path(), choice);
    let file = backend.create("segment-1", 1 << 20).unwrap();
    assert_eq!(backend.len(file).unwrap(), 1 << 20);
    assert!(place.blocks_bytes("segment-1") >= 1 << 20);
    assert!(is_all(&read(&mut *backend, "segment-1", 0, 1 << 20), 0));
    let metadata = std::fs::metadata(place.path().join("segment-1")).unwrap();
    assert_eq!(metadata.mode() & 0o7777, 0o600);
    assert_eq!(backend.create("segment-1", 4096).unwrap_err().kind(), ErrorKind::AlreadyExists);
    // The refusal didn't change the file.
    let again = backend.open("segment-1").unwrap();
    assert_eq!(backend.len(again).unwrap(), 1 << 20);
    let empty = backend.create("checkpoint-1", 0).unwrap();
    assert_eq!(backend.len(empty).unwrap(), 0);
    let reader = backend.reader("checkpoint-1").unwrap();
    assert!(reader.is_empty().unwrap());
    let beyond = reader.read_at(i64::MAX as u64 - 4, &mut [0; 50]).unwrap_err();
    assert!(beyond.to_string().contains("beyond what a file can hold"), "{beyond}");
    write(&mut *backend, empty, 0, 2, 9);
    backend.sync(empty).unwrap();
    assert_eq!(backend.len(empty).unwrap(), 2 * PAGE);
    assert!(!reader.is_empty().unwrap());
    assert_eq!(backend.not_files().unwrap(), []);
}

pub(crate) fn only_plain_names_are_valid(choice: BackendChoice) {
    let place = TestDir::new();
    let mut backend = backend(&place.path(), choice);
    for name in ["", "..", "../elsewhere", "a/b", "/etc/passwd", ".hidden", "lock"] {
        assert_eq!(backend.create(name, 4096).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
        assert_eq!(backend.open(name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
        assert_eq!(backend.remove(name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
        assert_eq!(backend.reader(name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
    }
    assert_eq!(backend.list().unwrap(), [""; 0]);
}

pub(crate) fn a_punched_hole_frees_its_space(choice: BackendChoice) {
    let place = TestDir::new();
    let mut backend = backend(&place.path(), choice);
    let file = backend.create("segment-1", 1 << 20).unwrap();
    for at in (0..1 << 20).step_by(64 << 10) {
        write(&mut *backend, file, at, 16, 7);
    }
    // Not flushed: the punch waits for the writes in its range.
    backend.punch(file, 64 << 10, 512 << 10).unwrap();
    backend.sync(file).unwrap();
    assert!(place.blocks_bytes("segment-1") <= (1 << 20) - (512 << 10) + (16 << 10));
    assert_eq!(backend.len(file).unwrap(), 1 << 20);
    let bytes = read(&mut *backend, "segment-1", 0, 1 << 20);
    assert!(is_all(&bytes[..64 << 10], 7) && is_all(&bytes[64 << 10..576 << 10], 0) && is_all(&bytes[576 << 10..], 7));
    write(&mut *backend, file, 128 << 10, 1, 8);
    backend.sync(file).unwrap();
    assert!(is_all(&read(&mut *backend, "segment-1", 128 << 10, PAGE_BYTES), 8));
}

pub(crate) fn a_file_is_truncated(choice: BackendChoice) {
    let place = TestDir::new();
    let mut backend = backend(&place.path(), choice);
    let file = backend.create("segment-1", 1 << 20).unwrap();
    write(&mut *backend, file, 0, 2, 7);
    backend.truncate(file, 5000).unwrap();
    assert_eq!(backend.len(file).unwrap(), 5000);
    let reader = backend.reader("segment-1").unwrap();
    assert_eq!((reader.len().unwrap(), reader.is_empty().unwrap()), (5000, false));
    let mut bytes = vec![0; 5000];
    reader.read_at(0, &mut bytes).unwrap();
    assert!(is_all(&bytes, 7));
    for (at, len) in [(0, 5001), (4096, 905), (5000, 1), (1 << 30, 4096), (u64::MAX - 5, 4096)] {
        let mut bytes = vec![0; len];
        let kind = reader.read_at(at, &mut bytes).unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::InvalidInput), "{len} bytes at {at}: {kind}");
    }
}

pub(crate) fn a_removed_file_is_gone(choice: BackendChoice) {
    let place = TestDir::new();
    let mut backend = backend(&place.path(), choice);
    let before = backend.available().unwrap();
    assert!(before > 0);
    let file = backend.create("segment-1", 4096).unwrap();
    backend.remove("segment-1").unwrap();
    backend.sync_dir().unwrap();
    assert_eq!(backend.remove("segment-1").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(backend.open("segment-1").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(backend.reader("segment-1").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(backend.list().unwrap(), [""; 0]);
    // An open file can still be written.
    write(&mut *backend, file, 0, 1, 7);
    backend.flush().unwrap();
}

pub(crate) fn the_probe_leaves_no_file(choice: BackendChoice) {
    let place = TestDir::new();
    drop(backend(&place.path(), choice));
    // As left by a process that ended during the probe.
    let probe = File::create_new(place.path().join("probe")).unwrap();
    probe.write_all_at(b"half", 0).unwrap();
    assert_eq!(backend(&place.path(), choice).list().unwrap(), [""; 0]);
}
