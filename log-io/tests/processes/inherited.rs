//! Inheritance from a directory's owner to its child processes, and dependence on its working directory.

use std::path::Path;
use std::process::Command;

use counterfoil_log_io::{BackendChoice, Directory, DirectoryAccess};
use counterfoil_test_support::child;

#[test]
fn a_program_that_the_owner_starts_inherits_neither_the_lock_nor_a_file() {
    let keep = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = keep.path().join("rank-0");
    let (mut owner, _) = Directory::create(&path, BackendChoice::Auto).unwrap();
    owner.create("segment-1", 4096).unwrap();
    owner.open("segment-1").unwrap();
    let _reader = owner.reader("segment-1").unwrap();
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let files = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    // One closed meanwhile by the new program isn't the owner's.
    let files: Vec<_> = files.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()).collect();
    drop(owner);
    let opened = Directory::open(&path, BackendChoice::Auto, DirectoryAccess::ReadWrite);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!files.is_empty() && !files.iter().any(|file| file.starts_with(&path)), "{files:?}");
    opened.unwrap();
}

#[test]
fn a_path_may_be_a_name_in_the_working_directory() {
    child::run("inherited::with_a_working_directory", "name");
}

#[test]
#[ignore = "run by `a_path_may_be_a_name_in_the_working_directory`"]
fn with_a_working_directory() {
    assert_eq!(child::argument(), "name");
    let keep = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::env::set_current_dir(keep.path()).unwrap();
    drop(Directory::create(Path::new("rank-0"), BackendChoice::Auto).unwrap());
    assert!(keep.path().join("rank-0/lock").exists());
}
