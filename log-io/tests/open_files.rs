//! What a store makes of its directory's other entries, and of a limit to open files.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod child;

use std::os::unix::fs::symlink;
use std::path::Path;

use counterfoil_log_core::{Epoch, Rank, Record, Ssn};
use counterfoil_log_io::{
    Access, BackendChoice, CheckpointImage, Directory, DirectoryAccess, LaneImage, RecordSource, StorageBackend, Store,
    StoreError, StoreOptions, repair, scan,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Segments of the store.
const SEGMENTS: usize = 40;

/// A store with many segments, each with a record that a checkpoint refers to.
fn build(path: &Path) {
    let (backend, _) = Directory::create(path, BackendChoice::Pwrite).unwrap();
    let mut store = Store::create(backend, many()).unwrap();
    let body = vec![7; 3000];
    let mut blocks = Vec::new();
    for ssn in 1..=SEGMENTS as u64 {
        store.append(Rank(2), &mut One(Some((Ssn(ssn), &body))), &mut blocks).unwrap();
    }
    let lane = LaneImage {
        peer: Rank(2),
        next: Ssn(SEGMENTS as u64 + 1),
        acked: Ssn(0),
        covered: Ssn(0),
        runs: Vec::new(),
        blocks,
    };
    let image = CheckpointImage { epoch: Epoch(2), lanes: vec![lane], ..Default::default() };
    store.checkpoint(&image).unwrap();
}

fn many() -> StoreOptions {
    StoreOptions {
        segment_bytes: 8 << 10,
        block_bytes: 4 << 10,
        reserve_bytes: 4 << 10,
        ..StoreOptions::new(Rank(1), 3)
    }
}

/// One record.
struct One<'a>(Option<(Ssn, &'a [u8])>);

impl RecordSource for One<'_> {
    fn next(&mut self) -> Option<Record<'_>> {
        let (ssn, wire) = self.0.take()?;
        Record::new(ssn, wire, 0)
    }
}

fn backend(path: &Path, access: DirectoryAccess) -> Box<dyn StorageBackend> {
    Directory::open(path, BackendChoice::Pwrite, access).unwrap().0
}

fn place() -> (tempfile::TempDir, std::path::PathBuf) {
    let keep = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = keep.path().join("store");
    (keep, path)
}

#[test]
fn what_has_the_name_of_a_file_and_is_none_is_passed_over_and_is_in_a_writers_way() {
    let (keep, path) = place();
    build(&path);
    let precious = keep.path().join("precious");
    std::fs::write(&precious, "x").unwrap();
    type Make = fn(&Path, &Path);
    let makes: [(&str, &str, Make); 4] = [
        ("segment-00000099", "a symbolic link", |precious, at| symlink(precious, at).unwrap()),
        ("segment-00000099", "a directory", |_, at| std::fs::create_dir(at).unwrap()),
        ("checkpoint-00000099", "a named pipe", |_, at| {
            let made = std::process::Command::new("mkfifo").arg(at).status().unwrap();
            assert!(made.success());
        }),
        ("reserve", "a directory", |_, at| {
            std::fs::remove_file(at).unwrap();
            std::fs::create_dir(at).unwrap();
        }),
    ];
    for (name, what, make) in makes {
        make(&precious, &path.join(name));
        let report = scan(&mut *backend(&path, DirectoryAccess::ReadOnly), &mut |_, _| {}).unwrap();
        assert_eq!(report.not_files, [(name.to_owned(), what)]);
        assert!(report.is_whole() && report.left_over.is_empty() && report.segments.len() == SEGMENTS, "{what}");
        assert_eq!(repair(&mut *backend(&path, DirectoryAccess::ReadWrite), false).unwrap(), []);
        let read = Store::open(backend(&path, DirectoryAccess::ReadOnly), many(), Access::ReadOnly).unwrap();
        assert_eq!(read.1.unwrap().lanes[0].blocks.len(), SEGMENTS);
        drop(read.0);
        for opened in [
            Store::open(backend(&path, DirectoryAccess::ReadWrite), many(), Access::ReadWrite),
            Store::open_or_create(backend(&path, DirectoryAccess::ReadWrite), many()),
        ] {
            let error = opened.unwrap_err();
            assert!(matches!(&error, StoreError::NotAFile { file, .. } if file == name), "{error}");
            assert!(error.to_string().contains(what), "{error}");
        }
        let at = path.join(name);
        if at.is_dir() { std::fs::remove_dir(&at).unwrap() } else { std::fs::remove_file(&at).unwrap() }
    }
    assert_eq!(std::fs::read(&precious).unwrap(), b"x");
    Store::open(backend(&path, DirectoryAccess::ReadWrite), many(), Access::ReadWrite).unwrap();
}

#[test]
fn a_manifest_that_is_a_link_is_named_and_not_followed() {
    let (_keep, path) = place();
    build(&path);
    std::fs::rename(path.join("manifest"), path.join("other")).unwrap();
    symlink("other", path.join("manifest")).unwrap();
    let error = scan(&mut *backend(&path, DirectoryAccess::ReadOnly), &mut |_, _| {}).unwrap_err();
    assert!(matches!(&error, StoreError::NotAFile { file, .. } if file == "manifest"), "{error}");
}

#[test]
fn too_many_segments_for_the_process_are_an_error_that_names_the_limit() {
    child::run("with_few_open_files", "limit");
}

#[test]
#[ignore = "run by `too_many_segments_for_the_process_are_an_error_that_names_the_limit`"]
fn with_few_open_files() {
    assert_eq!(child::told(), "limit");
    let (_keep, path) = place();
    build(&path);
    let limit = SEGMENTS as u64;
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum }).unwrap();
    let error = Store::open(backend(&path, DirectoryAccess::ReadWrite), many(), Access::ReadWrite).unwrap_err();
    assert!(matches!(error, StoreError::TooManyFiles { limit: 40, .. }), "{error}");
    assert!(error.to_string().contains("`ulimit -n`"), "{error}");
    // To look at it, a few files are enough.
    assert!(scan(&mut *backend(&path, DirectoryAccess::ReadOnly), &mut |_, _| {}).unwrap().is_whole());
    setrlimit(Resource::Nofile, Rlimit { current: Some(2 * limit), maximum }).unwrap();
    Store::open(backend(&path, DirectoryAccess::ReadWrite), many(), Access::ReadWrite).unwrap();
}
