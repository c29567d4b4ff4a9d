//! A limit of open files.

use counterfoil_log_io::{Access, DirectoryAccess, Store, StoreError, scan};
use counterfoil_test_support::child;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::many_segments::{SEGMENTS, backend, build, many, place};

#[test]
fn more_segments_than_open_files_are_an_error_with_the_limit() {
    child::run("open_files::with_few_open_files", "limit");
}

#[test]
#[ignore = "run by `more_segments_than_open_files_are_an_error_with_the_limit`"]
fn with_few_open_files() {
    assert_eq!(child::argument(), "limit");
    let (_keep, path) = place();
    build(&path);
    let limit = SEGMENTS as u64;
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum }).unwrap();
    let error = Store::open(backend(&path, DirectoryAccess::ReadWrite), many(), Access::ReadWrite).unwrap_err();
    assert!(matches!(error, StoreError::TooManyFiles { limit: 40, .. }), "{error}");
    assert!(error.to_string().contains("`ulimit -n`"), "{error}");
    // A scan needs only a few open files.
    assert!(scan(&mut *backend(&path, DirectoryAccess::ReadOnly), &mut |_, _| {}).unwrap().is_whole());
    setrlimit(Resource::Nofile, Rlimit { current: Some(2 * limit), maximum }).unwrap();
    Store::open(backend(&path, DirectoryAccess::ReadWrite), many(), Access::ReadWrite).unwrap();
}
