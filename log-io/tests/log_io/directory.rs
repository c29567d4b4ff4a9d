//! Directory ownership and locking.

use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use counterfoil_log_core::{PrivateFileError, create_private_dir};
use counterfoil_log_io::{
    BackendChoice, BackendKind, BackendOptions, Directory, DirectoryAccess, DirectoryError, PAGE_BYTES, StorageBackend,
};
use rustix::fs::{FileType, Mode};

fn place() -> (tempfile::TempDir, PathBuf) {
    let keep = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = keep.path().join("rank-0");
    (keep, path)
}

fn open(path: &Path, access: DirectoryAccess) -> Result<Box<dyn StorageBackend>, DirectoryError> {
    Directory::open(path, BackendChoice::Auto, access).map(|(backend, _)| backend)
}

fn create(path: &Path) -> Box<dyn StorageBackend> {
    Directory::create(path, BackendChoice::Auto).unwrap().0
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn one_process_writes_and_others_get_its_id() {
    let (_keep, path) = place();
    let owner = create(&path);
    for access in [DirectoryAccess::ReadWrite, DirectoryAccess::ReadOnly] {
        let error = open(&path, access).unwrap_err();
        assert!(matches!(&error, DirectoryError::Locked { pid: Some(pid), .. } if *pid == std::process::id()));
        assert!(error.to_string().contains(&format!("is in use by process {}", std::process::id())), "{error}");
    }
    assert!(matches!(Directory::create(&path, BackendChoice::Auto), Err(DirectoryError::Locked { .. })));
    drop(owner);
    drop(open(&path, DirectoryAccess::ReadWrite).unwrap());
    create(&path);
}

#[test]
fn a_writer_waits_for_readers_and_readers_share() {
    let (_keep, path) = place();
    drop(create(&path));
    let one = open(&path, DirectoryAccess::ReadOnly).unwrap();
    let other = open(&path, DirectoryAccess::ReadOnly).unwrap();
    let (opened, opening) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| opened.send(open(&path, DirectoryAccess::ReadWrite).is_ok()));
        opening.recv_timeout(Duration::from_millis(200)).unwrap_err();
        drop(one);
        opening.recv_timeout(Duration::from_millis(200)).unwrap_err();
        drop(other);
        assert!(opening.recv().unwrap());
    });
}

#[test]
fn an_inspection_needs_no_lock_and_blocks_no_writer() {
    let (_keep, path) = place();
    let mut owner = create(&path);
    owner.create("segment-1", 4096).unwrap();
    let mut inspecting = open(&path, DirectoryAccess::Inspect).unwrap();
    assert_eq!(inspecting.list().unwrap(), ["segment-1"]);
    drop(owner);
    // A later writer isn't kept out.
    open(&path, DirectoryAccess::ReadWrite).unwrap();
}

#[test]
fn reading_changes_nothing() {
    let (_keep, path) = place();
    let mut writing = create(&path);
    writing.create("segment-1", 4096).unwrap();
    drop(writing);
    std::fs::remove_file(path.join("lock")).unwrap();
    // Not even the directory's modification time changes.
    let before = std::fs::metadata(&path).unwrap();
    for access in [DirectoryAccess::ReadOnly, DirectoryAccess::Inspect] {
        let (mut backend, probe) = Directory::open(&path, BackendChoice::IoUring, access).unwrap();
        assert_eq!(probe.kind, BackendKind::Pwrite);
        assert_eq!(probe.to_string(), "pwrite (the directory was opened for reading only)");
        let file = backend.open("segment-1").unwrap();
        let mut buffer = backend.buffer().unwrap();
        buffer.set_len(PAGE_BYTES);
        let refusals = [
            backend.write(file, 0, buffer),
            backend.create("segment-2", 4096).map(drop),
            backend.remove("segment-1"),
            backend.sync(file),
            backend.sync_dir(),
            backend.punch(file, 0, 4096),
            backend.truncate(file, 0),
        ];
        for refusal in refusals {
            assert_eq!(refusal.unwrap_err().kind(), ErrorKind::PermissionDenied);
        }
        let mut bytes = [1; 4096];
        backend.reader("segment-1").unwrap().read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 4096]);
        assert_eq!(backend.list().unwrap(), ["segment-1"]);
    }
    let after = std::fs::metadata(&path).unwrap();
    assert_eq!((before.mtime(), before.mtime_nsec()), (after.mtime(), after.mtime_nsec()));
}

#[test]
fn a_directory_that_is_accessible_to_others_or_a_link_is_refused() {
    let (keep, path) = place();
    drop(create(&path));
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
    let link = keep.path().join("link");
    symlink(&path, &link).unwrap();
    set_mode(&path, 0o755);
    for access in [DirectoryAccess::ReadWrite, DirectoryAccess::ReadOnly, DirectoryAccess::Inspect] {
        let refused = open(&path, access);
        assert!(matches!(refused, Err(DirectoryError::Private(PrivateFileError::NotPrivate { mode: 0o755, .. }))));
        let refused = open(&link, access);
        assert!(matches!(refused, Err(DirectoryError::Private(PrivateFileError::WrongKind { .. }))));
        let missing = open(&keep.path().join("missing"), access);
        assert!(matches!(missing, Err(DirectoryError::Private(PrivateFileError::Io { .. }))));
    }
    assert!(Directory::create(&path, BackendChoice::Auto).is_err());
}

#[test]
fn a_directory_that_cannot_be_created_is_refused_for_that() {
    let (keep, _) = place();
    std::fs::write(keep.path().join("file"), "").unwrap();
    let created = Directory::create(&keep.path().join("file/rank-0"), BackendChoice::Auto);
    assert!(matches!(created, Err(DirectoryError::Private(PrivateFileError::Io { .. }))));
}

#[test]
fn a_lock_that_is_accessible_to_others_or_a_link_is_refused() {
    let (keep, path) = place();
    drop(create(&path));
    let lock = path.join("lock");
    set_mode(&lock, 0o644);
    for access in [DirectoryAccess::ReadWrite, DirectoryAccess::ReadOnly] {
        assert!(open(&path, access).is_err(), "{access:?}");
    }
    std::fs::rename(&lock, keep.path().join("elsewhere")).unwrap();
    set_mode(&keep.path().join("elsewhere"), 0o600);
    symlink(keep.path().join("elsewhere"), &lock).unwrap();
    for access in [DirectoryAccess::ReadWrite, DirectoryAccess::ReadOnly] {
        assert!(open(&path, access).is_err(), "{access:?}");
    }
}

#[test]
fn a_file_that_is_not_private_is_refused() {
    let (keep, path) = place();
    let mut backend = create(&path);
    let target = keep.path().join("target");
    std::fs::write(&target, "not ours").unwrap();
    set_mode(&target, 0o600);
    symlink(&target, path.join("linked")).unwrap();
    backend.create("open-to-others", 4096).unwrap();
    set_mode(&path.join("open-to-others"), 0o640);
    create_private_dir(&path.join("directory")).unwrap();
    // Opening a pipe with a closed other end must not wait.
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path.join("pipe"), FileType::Fifo, mode, 0).unwrap();
    for name in ["linked", "open-to-others", "directory", "pipe"] {
        assert!(backend.open(name).is_err(), "{name}");
        assert!(backend.reader(name).is_err(), "{name}");
        assert_eq!(backend.create(name, 4096).unwrap_err().kind(), ErrorKind::AlreadyExists, "{name}");
    }
    // Only root can change a file's owner; for other users there is no foreign file to test with.
    backend.create("foreign", 4096).unwrap();
    if std::os::unix::fs::chown(path.join("foreign"), Some(12345), None).is_ok() {
        assert_eq!(backend.open("foreign").unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(backend.reader("foreign").unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
    assert_eq!(std::fs::read(&target).unwrap(), b"not ours");
}

#[test]
fn buffers_out_of_bounds_are_refused() {
    let (_keep, path) = place();
    for (buffers, buffer_bytes) in [(0, 4096), (1025, 4096), (8, 0), (8, 4097), (8, 32 << 20)] {
        let mut options = BackendOptions::default();
        (options.buffers, options.buffer_bytes) = (buffers, buffer_bytes);
        assert!(matches!(Directory::create(&path, options), Err(DirectoryError::Options { .. })));
    }
    let mut options = BackendOptions::default();
    (options.buffers, options.buffer_bytes) = (1, 4096);
    let (mut backend, probe) = Directory::create(&path, options).unwrap();
    assert_eq!(backend.buffer_bytes(), 4096);
    assert_eq!(probe.registered, usize::from(probe.kind == BackendKind::IoUring));
    let file = backend.create("segment-1", 1 << 20).unwrap();
    for at in (0..1 << 20).step_by(4096) {
        let mut buffer = backend.buffer().unwrap();
        buffer.set_len(1);
        backend.write(file, at, buffer).unwrap();
    }
    backend.sync(file).unwrap();
}

#[test]
fn the_removal_of_a_store_leaves_what_is_not_its_own_and_ends_with_the_manifest() {
    let (_keep, path) = place();
    let mut backend = create(&path);
    assert_eq!(backend.path(), Some(&*path));
    let names = ["segment-00000001", "checkpoint-00000002", "reserve", "manifest", "a-note"];
    for name in names {
        backend.create(name, 4096).unwrap();
    }
    assert!(matches!(Directory::remove_store(&path), Err(DirectoryError::Locked { .. })));
    drop(backend);
    std::fs::write(path.join("probe"), "").unwrap();
    // An unremovable segment stops the removal, and the manifest stays.
    std::fs::create_dir(path.join("segment-00000099")).unwrap();
    let error = Directory::remove_store(&path).unwrap_err();
    assert!(error.to_string().contains("segment-00000099"), "{error}");
    assert!(path.join("manifest").exists());
    std::fs::remove_dir(path.join("segment-00000099")).unwrap();
    Directory::remove_store(&path).unwrap();
    let left: Vec<_> = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["a-note"]);
    std::fs::remove_file(path.join("a-note")).unwrap();
    Directory::remove_store(&path).unwrap();
    assert!(!path.exists());
}
