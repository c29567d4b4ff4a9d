//! The open file limit.

use counterfoil_log_io::{Access, DirectoryAccess, Store, StoreError, scan};
use counterfoil_test_support::{child, open_files};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use std::fs::File;

use counterfoil_log_core::{Epoch, Rank, Ssn};
use counterfoil_log_io::{BackendChoice, Block, CheckpointImage, Directory, LaneImage};

use crate::many_segments::{One, SEGMENTS, backend, build, many, place};

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

#[test]
fn a_passing_lack_of_descriptors_is_refused_and_the_store_goes_on() {
    child::run("open_files::with_descriptors_that_come_and_go", "limit");
}

/// Opens files until the process has only `left` descriptors left.
fn use_up(left: usize) -> Vec<File> {
    let mut files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    files.truncate(files.len() - left);
    files
}

#[test]
#[ignore = "run by `a_passing_lack_of_descriptors_is_refused_and_the_store_goes_on`"]
fn with_descriptors_that_come_and_go() {
    assert_eq!(child::argument(), "limit");
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), maximum }).unwrap();
    for choice in [BackendChoice::Pwrite, BackendChoice::Auto] {
        let (_keep, path) = place();
        let (disk, _) = Directory::create(&path, choice).unwrap();
        let mut store = Store::create(disk, many()).unwrap();
        let body = vec![7; 3000];
        let (mut blocks, mut refused) = (Vec::<Block>::new(), 0);
        let image = |epoch: u32, blocks: &[Block]| {
            let (next, none) = (blocks.last().map_or(Ssn::FIRST, |block| block.last.next()), Ssn::ZERO);
            let lane = LaneImage {
                peer: Rank(2),
                next,
                acked: none,
                covered: none,
                runs: Vec::new(),
                blocks: blocks.to_vec(),
            };
            CheckpointImage { epoch: Epoch(epoch), lanes: vec![lane], ..Default::default() }
        };
        for number in 1..=12 {
            // Each record needs a segment: two descriptors.
            let mut append = |store: &mut Store| {
                store.append(Rank(2), &mut One(Some((Ssn(number), &body))), &mut blocks)?;
                store.flush()
            };
            let files = std::fs::read_dir(&path).unwrap().count();
            let busy = use_up(number as usize % 4);
            let appended = append(&mut store);
            drop(busy);
            if let Err(error) = appended {
                assert!(matches!(error, StoreError::TooManyFiles { limit: 200, .. }), "{error}");
                refused += 1;
                assert_eq!(std::fs::read_dir(&path).unwrap().count(), files, "the segment is left");
                append(&mut store).unwrap();
            }
            let busy = use_up(number as usize % 4);
            let taken = store.checkpoint(&image(number as u32, &blocks));
            drop(busy);
            if let Err(error) = taken {
                assert!(matches!(error, StoreError::TooManyFiles { .. }), "{error}");
                refused += 1;
                store.checkpoint(&image(number as u32, &blocks)).unwrap();
            }
        }
        assert!(refused >= 6, "{refused}");
        // Files are closed when they are full and synced, or removed.
        let open = open_files(&path);
        assert!(open.iter().all(|file| !file.name.ends_with("(deleted)")), "{open:?}");
        let written = open.iter().filter(|file| file.is_written && file.name.starts_with("segment-")).count();
        assert_eq!(written, 1, "{open:?}");
        drop(store);
        assert_eq!(open_files(&path), []);
        let disk = backend(&path, DirectoryAccess::ReadWrite);
        let (_, image) = Store::open(disk, many(), Access::ReadWrite).unwrap();
        assert_eq!(image.unwrap().lanes[0].blocks.len(), 12);
    }
}
