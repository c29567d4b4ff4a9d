//! Reading ahead changes nothing about what is read.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use counterfoil_log_io::{
    BackendChoice, Directory, DirectoryAccess, Extent, PAGE_BYTES, ReadAhead, ReadAheadOptions, ReadAt,
};
use proptest::prelude::*;

const FILE_PAGES: usize = 64;

fn byte(file: usize, at: u64) -> u8 {
    (at / 64 * 31 + at + file as u64 * 101) as u8
}

/// Three files of pages, on the disk.
fn files() -> (tempfile::TempDir, Vec<Arc<dyn ReadAt>>) {
    let keep = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = keep.path().join("rank-0");
    let (mut backend, _) = Directory::create(&path, BackendChoice::Pwrite).unwrap();
    let names = ["segment-1", "segment-2", "segment-3"];
    for (index, name) in names.into_iter().enumerate() {
        let file = backend.create(name, 0).unwrap();
        let mut buffer = backend.buffer().unwrap();
        let bytes = &mut buffer.bytes_mut()[..FILE_PAGES * PAGE_BYTES];
        bytes.iter_mut().enumerate().for_each(|(at, b)| *b = byte(index, at as u64));
        buffer.set_len(FILE_PAGES * PAGE_BYTES);
        backend.write(file, 0, buffer).unwrap();
        backend.sync(file).unwrap();
    }
    drop(backend);
    let (mut backend, _) = Directory::open(&path, BackendChoice::Auto, DirectoryAccess::ReadOnly).unwrap();
    let readers = names.into_iter().map(|name| backend.reader(name).unwrap()).collect();
    (keep, readers)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn extents_come_in_their_order_whole_and_each_failure_in_its_place(
        places in prop::collection::vec((0..3_usize, 0..FILE_PAGES + 4, 0..6_usize, 0..10_u8), 0..60),
        threads in 1..5_usize,
        read_pages in 0..20_usize,
        taken in 0..80_usize,
    ) {
        let (_keep, files) = files();
        let mut extents = Vec::new();
        let mut where_ = Vec::new();
        let mut next = (0, 0);
        for (file, page, pages, kind) in places {
            // Half of them are neighbours of the one before; a few are not whole pages.
            let (file, at) = if kind % 2 == 0 { next } else { (file, (page * PAGE_BYTES) as u64) };
            let len = pages * PAGE_BYTES + if kind == 9 { 100 } else { 0 };
            next = (file, at + len as u64);
            extents.push(Extent { file: Arc::clone(&files[file]), at, len });
            where_.push((file, at, len));
        }
        let options = ReadAheadOptions { threads, read_bytes: read_pages * PAGE_BYTES };
        let mut ahead = ReadAhead::new(extents, options).unwrap();
        for (index, (file, at, len)) in where_.iter().copied().enumerate().take(taken) {
            let (found, bytes) = ahead.next().unwrap();
            prop_assert_eq!(found, index);
            let past_the_end = at + len as u64 > (FILE_PAGES * PAGE_BYTES) as u64;
            match bytes {
                Ok(bytes) => {
                    prop_assert!(!past_the_end || len == 0);
                    prop_assert_eq!(bytes.len(), len);
                    prop_assert!(bytes.iter().zip(at..).all(|(b, at)| *b == byte(file, at)));
                }
                // Only one that is read together with others may fail for their sake.
                Err(error) => {
                    prop_assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
                    prop_assert!(past_the_end || read_pages > 0);
                }
            }
        }
        if taken >= where_.len() {
            prop_assert!(ahead.next().is_none());
            prop_assert!(ahead.next().is_none());
        }
    }
}

/// A file whose reads wait until `wanted` of them are being made.
#[derive(Debug)]
struct Meeting {
    wanted: usize,
    now: Mutex<usize>,
    changed: Condvar,
    most: AtomicUsize,
}

impl ReadAt for Meeting {
    fn len(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn read_at(&self, _at: u64, into: &mut [u8]) -> io::Result<()> {
        let mut now = self.now.lock().unwrap();
        *now += 1;
        self.most.fetch_max(*now, Ordering::Relaxed);
        self.changed.notify_all();
        while self.most.load(Ordering::Relaxed) < self.wanted {
            let (again, waited) = self.changed.wait_timeout(now, Duration::from_secs(20)).unwrap();
            now = again;
            if waited.timed_out() {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        *now -= 1;
        into.fill(7);
        Ok(())
    }
}

#[test]
fn as_many_reads_are_in_flight_as_there_are_threads() {
    for threads in [1, 2, 3] {
        let meeting =
            Meeting { wanted: threads, now: Mutex::new(0), changed: Condvar::new(), most: AtomicUsize::new(0) };
        let file = Arc::new(meeting);
        // No neighbours, so that each is a read of its own.
        let extent = |index: u64| Extent { file: file.clone(), at: index * (1 << 20), len: 4096 };
        let options = ReadAheadOptions { threads, read_bytes: 4096 };
        let mut ahead = ReadAhead::new((0..50).map(extent).collect(), options).unwrap();
        let mut count = 0;
        while let Some((_, bytes)) = ahead.next() {
            assert!(bytes.unwrap().iter().all(|byte| *byte == 7));
            count += 1;
        }
        assert_eq!((count, file.most.load(Ordering::Relaxed)), (50, threads));
    }
}
