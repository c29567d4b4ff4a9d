//! Unexpected entries in a store's directory.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use counterfoil_log_io::{Access, DirectoryAccess, Store, StoreError, repair, scan};

use crate::many_segments::{SEGMENTS, backend, build, many, place};

#[test]
fn an_entry_that_is_no_regular_file_is_ignored_by_readers_and_refused_by_writers() {
    let (keep, path) = place();
    build(&path);
    let precious = keep.path().join("precious");
    std::fs::write(&precious, "x").unwrap();
    type Make = fn(&Path, &Path);
    let makes: [(&str, &str, Make); 5] = [
        ("segment-00000099", "a symbolic link", |precious, at| symlink(precious, at).unwrap()),
        ("segment-00000099", "a directory", |_, at| std::fs::create_dir(at).unwrap()),
        ("checkpoint-00000099", "a named pipe", |_, at| {
            let made = std::process::Command::new("mkfifo").arg(at).status().unwrap();
            assert!(made.success());
        }),
        ("segment-00000098", "a socket", |_, at| drop(std::os::unix::net::UnixListener::bind(at).unwrap())),
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
fn a_manifest_that_is_a_link_is_refused_and_not_followed() {
    let (_keep, path) = place();
    build(&path);
    std::fs::rename(path.join("manifest"), path.join("other")).unwrap();
    symlink("other", path.join("manifest")).unwrap();
    let error = scan(&mut *backend(&path, DirectoryAccess::ReadOnly), &mut |_, _| {}).unwrap_err();
    assert!(matches!(&error, StoreError::NotAFile { file, .. } if file == "manifest"), "{error}");
}

#[test]
fn a_named_pipe_is_not_even_opened() {
    let (_keep, path) = place();
    build(&path);
    let pipe = path.join("segment-00000099");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let is_open = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Waits for a reader.
        scope.spawn(|| {
            File::options().write(true).open(&pipe).unwrap();
            is_open.store(true, Ordering::SeqCst);
        });
        let mut backend = backend(&path, DirectoryAccess::ReadOnly);
        for _ in 0..50 {
            assert!(backend.reader("segment-00000099").is_err() && backend.open("segment-00000099").is_err());
            std::thread::sleep(Duration::from_millis(1));
        }
        let was_open = is_open.load(Ordering::SeqCst);
        File::open(&pipe).unwrap();
        assert!(!was_open);
    });
}
