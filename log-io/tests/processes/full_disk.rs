//! A full 20 MB disk.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use counterfoil_log_core::{Rank, Ssn};
use counterfoil_log_io::{
    BackendChoice, BackendKind, Directory, DirectoryAccess, StorageBackend, Store, StoreError, StoreOptions,
};
use counterfoil_test_support::child;

use crate::many_segments::{One, many};

const MIB: u64 = 1 << 20;

#[test]
fn a_full_disk_is_an_error_and_writes_work_again_with_free_space() {
    child::run_on_a_small_disk("full_disk::on_a_disk_of_20_mb", Path::new(env!("CARGO_TARGET_TMPDIR")));
}

#[test]
#[ignore = "run by `a_full_disk_is_an_error_and_writes_work_again_with_free_space`"]
fn on_a_disk_of_20_mb() {
    let disk = PathBuf::from(child::argument());
    for choice in [BackendChoice::IoUring, BackendChoice::Pwrite] {
        let path = disk.join(format!("{choice:?}"));
        let (mut backend, _) = Directory::create(&path, choice).unwrap();
        files_until_it_is_full(&mut *backend);
        a_hole_on_a_full_disk_cannot_be_written(&mut *backend);
        drop(backend);
        opened_while_it_is_full(&path);
        std::fs::remove_dir_all(&path).unwrap();
        dead_blocks_make_room(&path, choice);
        std::fs::remove_dir_all(&path).unwrap();
    }
}

/// Fills the disk with files, among them a 1 MiB `segment-1`.
fn files_until_it_is_full(backend: &mut dyn StorageBackend) {
    let mut segments = 0;
    let error = loop {
        match backend.create(&format!("segment-{segments}"), 4 * MIB) {
            Ok(file) => backend.close(file),
            Err(error) => break error,
        }
        segments += 1;
    };
    assert_eq!((segments, error.kind()), (4, ErrorKind::StorageFull));
    assert_eq!(backend.list().unwrap(), ["segment-0", "segment-1", "segment-2", "segment-3"]);
    // The failed creation holds no space.
    assert!(backend.available().unwrap() >= 3 * MIB);
    backend.remove("segment-1").unwrap();
    let file = backend.create("segment-1", MIB).unwrap();
    backend.close(file);
    for (name, bytes) in [("rest-a", MIB), ("rest-b", 64 << 10), ("rest-c", 4096)] {
        for index in 0.. {
            match backend.create(&format!("{name}-{index}"), bytes) {
                Ok(file) => backend.close(file),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::StorageFull);
                    break;
                }
            }
        }
    }
    assert_eq!(backend.available().unwrap(), 0);
}

fn a_hole_on_a_full_disk_cannot_be_written(backend: &mut dyn StorageBackend) {
    let file = backend.open("segment-1").unwrap();
    let write = |backend: &mut dyn StorageBackend, fill| {
        let mut buffer = backend.buffer().unwrap();
        buffer.bytes_mut()[..64 << 10].fill(fill);
        buffer.set_len(64 << 10);
        backend.write(file, 0, buffer).unwrap();
        backend.flush()
    };
    // Allocated bytes can be written on a full disk.
    write(backend, 1).unwrap();
    backend.punch(file, 0, 64 << 10).unwrap();
    let filler = backend.create("filler", 64 << 10).unwrap();
    let error = write(backend, 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    backend.close(filler);
    backend.remove("filler").unwrap();
    write(backend, 3).unwrap();
    backend.sync(file).unwrap();
    let mut bytes = vec![0; 64 << 10];
    backend.reader("segment-1").unwrap().read_at(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 3));
}

fn opened_while_it_is_full(path: &Path) {
    for access in [DirectoryAccess::ReadOnly, DirectoryAccess::Inspect] {
        let (mut backend, _) = Directory::open(path, BackendChoice::Auto, access).unwrap();
        let mut bytes = vec![0; 64 << 10];
        backend.reader("segment-1").unwrap().read_at(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 3));
    }
    // Without free space there can be no trial write.
    let error = Directory::open(path, BackendChoice::IoUring, DirectoryAccess::ReadWrite).unwrap_err();
    assert!(error.to_string().contains("no space left for a trial write"), "{error}");
    let (mut backend, probe) = Directory::open(path, BackendChoice::Auto, DirectoryAccess::ReadWrite).unwrap();
    assert_eq!(probe.kind, BackendKind::Pwrite);
    assert!(probe.fallback_reason.unwrap().contains("no space left"));
    backend.remove("segment-0").unwrap();
    drop(backend);
    let (_, probe) = Directory::open(path, BackendChoice::Auto, DirectoryAccess::ReadWrite).unwrap();
    assert_eq!(probe.kind, BackendKind::IoUring);
}

/// A store punches blocks in mostly live segments only if it needs their space.
fn dead_blocks_make_room(path: &Path, choice: BackendChoice) {
    let (disk, _) = Directory::create(path, choice).unwrap();
    let sizes = StoreOptions { segment_bytes: 2 * MIB, block_bytes: 256 << 10, reserve_bytes: 0, ..many() };
    let mut store = Store::create(disk, sizes).unwrap();
    let body = vec![7; 255 << 10];
    let mut blocks = Vec::new();
    // Seven blocks in each of five segments; two are dead.
    for ssn in 1..=35 {
        store.append(Rank(0), &mut One(Some((Ssn(ssn), &body))), &mut blocks).unwrap();
    }
    store.flush().unwrap();
    let (dead, _): (Vec<_>, Vec<_>) = blocks.iter().copied().partition(|block| block.first.0 % 7 < 2);
    let filler = path.with_extension("filler");
    let (mut other, _) = Directory::create(&filler, choice).unwrap();
    let mut index = 0;
    let error = loop {
        match other.create(&format!("filler-{index}"), 64 << 10) {
            Ok(file) => other.close(file),
            Err(error) => break error,
        }
        index += 1;
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    let mut more = Vec::new();
    let refused = store.append(Rank(0), &mut One(Some((Ssn(36), &body))), &mut more);
    assert!(matches!(refused, Err(StoreError::DiskFull { .. })), "{refused:?}");
    store.free(&dead);
    let before = store.usage();
    assert_eq!(before.dead_bytes, 10 * (256 << 10), "{before:?}");
    store.append(Rank(0), &mut One(Some((Ssn(36), &body))), &mut more).unwrap();
    let usage = store.usage();
    assert_eq!((usage.dead_bytes, usage.segments), (0, before.segments + 1), "{usage:?}");
    drop((store, other));
    std::fs::remove_dir_all(&filler).unwrap();
}
