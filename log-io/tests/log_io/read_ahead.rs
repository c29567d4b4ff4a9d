//! Read-ahead returns the same bytes and errors as reading.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use counterfoil_log_io::{
    BackendChoice, BackendKind, Buffer, Directory, Extent, PAGE_BYTES, ReadAhead, ReadAheadOptions, ReadAt,
};
use proptest::prelude::*;

const FILE_PAGES: usize = 64;

fn byte(file: usize, at: u64) -> u8 {
    (at / 64 * 31 + at + file as u64 * 101) as u8
}

/// The read engines: a ring, or threads.
const WAYS: [BackendKind; 2] = [BackendKind::IoUring, BackendKind::Pwrite];

/// A file not readable by a ring.
#[derive(Debug)]
struct WithoutDescriptor(Arc<dyn ReadAt>);

impl ReadAt for WithoutDescriptor {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_at(at, into)
    }
}

/// Creates three files of whole pages with the backend `choice`, to be read by the engine `kind`.
fn files(kind: BackendKind, choice: BackendChoice) -> (tempfile::TempDir, Vec<Arc<dyn ReadAt>>) {
    let keep = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = keep.path().join("rank-0");
    let (mut backend, _) = Directory::create(&path, choice).unwrap();
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
    let reader = |name| match (kind, backend.reader(name).unwrap()) {
        (BackendKind::IoUring, reader) => reader,
        (_, reader) => Arc::new(WithoutDescriptor(reader)),
    };
    (keep, names.into_iter().map(reader).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn extents_come_whole_and_in_order_with_each_error_in_its_place(
        way in 0..4_usize,
        places in prop::collection::vec((0..3_usize, 0..FILE_PAGES + 4, 0..6_usize, 0..10_u8), 0..60),
        in_flight in 1..5_usize,
        read_pages in 0..20_usize,
        taken in 0..80_usize,
        swaps in any::<u64>(),
    ) {
        let kind = WAYS[way % 2];
        let choice = if way < 2 { BackendChoice::IoUring } else { BackendChoice::Pwrite };
        let (_keep, files) = files(kind, choice);
        let mut extents = Vec::new();
        let mut where_ = Vec::new();
        let mut next = (0, 0);
        for (file, page, pages, kind) in places {
            // Half the extents are adjacent to the previous one; a few are not whole pages.
            let (file, at) = if kind % 2 == 0 { next } else { (file, (page * PAGE_BYTES) as u64) };
            let len = pages * PAGE_BYTES + if kind == 9 { 100 } else { 0 };
            next = (file, at + len as u64);
            extents.push(Extent { file: Arc::clone(&files[file]), at, len });
            where_.push((file, at, len));
        }
        let options = ReadAheadOptions { in_flight, read_bytes: read_pages * PAGE_BYTES };
        let mut ahead = ReadAhead::new(extents, options).unwrap();
        prop_assert!(ahead.kind() == kind || where_.is_empty());
        let mut into = Buffer::new(0);
        for (index, (file, at, len)) in where_.iter().copied().enumerate().take(taken) {
            let (found, bytes) = if swaps & 1 << (index % 64) == 0 {
                ahead.next().unwrap()
            } else {
                let (found, read) = ahead.next_into(&mut into).unwrap();
                // Padded with zeros to a whole page.
                (found, read.map(|()| &into.as_slice()[..len]))
            };
            prop_assert_eq!(found, index);
            let past_the_end = at + len as u64 > (FILE_PAGES * PAGE_BYTES) as u64;
            match bytes {
                Ok(bytes) => {
                    prop_assert!(!past_the_end || len == 0);
                    prop_assert_eq!(bytes.len(), len);
                    prop_assert!(bytes.iter().zip(at..).all(|(b, at)| *b == byte(file, at)));
                }
                // An extent inside the file may fail only if it is read together with others.
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

/// A file that delays reads until `wanted` of them are in progress.
#[derive(Debug)]
struct Rendezvous {
    wanted: usize,
    now: Mutex<usize>,
    changed: Condvar,
    most: AtomicUsize,
}

impl ReadAt for Rendezvous {
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
        let rendezvous =
            Rendezvous { wanted: threads, now: Mutex::new(0), changed: Condvar::new(), most: AtomicUsize::new(0) };
        let file = Arc::new(rendezvous);
        // Not adjacent, so each is read separately.
        let extent = |index: u64| Extent { file: file.clone(), at: index * (1 << 20), len: 4096 };
        let options = ReadAheadOptions { in_flight: threads, read_bytes: 4096 };
        let mut ahead = ReadAhead::new((0..50).map(extent).collect(), options).unwrap();
        let mut count = 0;
        while let Some((_, bytes)) = ahead.next() {
            assert!(bytes.unwrap().iter().all(|byte| *byte == 7));
            count += 1;
        }
        assert_eq!((count, file.most.load(Ordering::Relaxed)), (50, threads));
    }
}

/// A file that gives the ring another file's descriptor.
#[derive(Debug)]
struct WrongDescriptor {
    file: Arc<dyn ReadAt>,
    descriptor: File,
}

impl ReadAt for WrongDescriptor {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_at(at, into)
    }

    fn for_ring(&self) -> Option<BorrowedFd<'_>> {
        Some(self.descriptor.as_fd())
    }
}

#[test]
fn a_short_or_failed_read_of_a_ring_is_repeated() {
    let (keep, files) = files(BackendKind::IoUring, BackendChoice::IoUring);
    let path = keep.path().join("other");
    // A descriptor for writing only: EBADF. A shorter file: the first read is short, and later ones return nothing.
    let for_writing = File::create(&path).unwrap();
    for_writing.set_len(3 * PAGE_BYTES as u64 + 100).unwrap();
    let shorter = File::open(&path).unwrap();
    std::fs::write(&path, vec![0; 3 * PAGE_BYTES + 100]).unwrap();
    for descriptor in [for_writing, shorter] {
        let file = Arc::new(WrongDescriptor { file: Arc::clone(&files[1]), descriptor });
        let extent = |index: u64| Extent { file: file.clone(), at: index * 2 * PAGE_BYTES as u64, len: 2 * PAGE_BYTES };
        let options = ReadAheadOptions { in_flight: 3, read_bytes: PAGE_BYTES };
        let mut ahead = ReadAhead::new((1..20).map(extent).collect(), options).unwrap();
        assert_eq!(ahead.kind(), BackendKind::IoUring);
        for index in 1..20 {
            let (_, bytes) = ahead.next().unwrap();
            assert!(bytes.unwrap().iter().zip(index * 2 * PAGE_BYTES as u64..).all(|(b, at)| *b == byte(1, at)));
        }
    }
}

#[test]
fn one_file_without_a_descriptor_is_enough_for_threads() {
    let (_keep, files) = files(BackendKind::IoUring, BackendChoice::IoUring);
    let rendezvous = Rendezvous { wanted: 1, now: Mutex::new(0), changed: Condvar::new(), most: AtomicUsize::new(0) };
    let extents = vec![
        Extent { file: Arc::clone(&files[0]), at: 0, len: PAGE_BYTES },
        Extent { file: Arc::new(rendezvous), at: 0, len: PAGE_BYTES },
    ];
    let mut ahead = ReadAhead::new(extents, ReadAheadOptions::default()).unwrap();
    assert_eq!(ahead.kind(), BackendKind::Pwrite);
    assert!(ahead.next().unwrap().1.unwrap().iter().zip(0..).all(|(b, at)| *b == byte(0, at)));
    assert!(ahead.next().unwrap().1.unwrap().iter().all(|b| *b == 7));
    assert!(ahead.next().is_none());
}
