//! Failures of the store's thread and its store.

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use counterfoil_ack_piggyback::Ack;
use counterfoil_log_core::{Epoch, LaneWriter, Phase, Pool, PoolOptions, Rank, Ssn};
use counterfoil_log_io::{BackendKind, Buffer, FileId, ReadAt, StorageBackend, Store, StoreError};
use counterfoil_test_support::{Fault, SimulatedDisk};

use super::pace::thread_cpu;
use super::{DiskIndex, Spiller, Write};
use crate::{AppendError, CheckpointError, Contents, Log, Options, StoreOptions, Tier};

/// A disk with writes that panic while the flag is set, and take processor time.
#[derive(Debug)]
struct Panicking(SimulatedDisk, Arc<AtomicBool>, Duration);

impl StorageBackend for Panicking {
    fn kind(&self) -> BackendKind {
        self.0.kind()
    }
    fn buffer_bytes(&self) -> usize {
        self.0.buffer_bytes()
    }
    fn list(&mut self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn create(&mut self, name: &str, bytes: u64) -> io::Result<FileId> {
        self.0.create(name, bytes)
    }
    fn open(&mut self, name: &str) -> io::Result<FileId> {
        self.0.open(name)
    }
    fn len(&mut self, file: FileId) -> io::Result<u64> {
        self.0.len(file)
    }
    fn close(&mut self, file: FileId) {
        self.0.close(file);
    }
    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn buffer(&mut self) -> io::Result<Buffer> {
        self.0.buffer()
    }
    fn write(&mut self, file: FileId, at: u64, buffer: Buffer) -> io::Result<()> {
        assert!(!self.1.load(Ordering::Relaxed), "injected bug");
        let start = thread_cpu();
        while thread_cpu() - start < self.2 {}
        self.0.write(file, at, buffer)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
    fn sync(&mut self, file: FileId) -> io::Result<()> {
        self.0.sync(file)
    }
    fn sync_dir(&mut self) -> io::Result<()> {
        self.0.sync_dir()
    }
    fn punch(&mut self, file: FileId, at: u64, len: u64) -> io::Result<()> {
        self.0.punch(file, at, len)
    }
    fn truncate(&mut self, file: FileId, len: u64) -> io::Result<()> {
        self.0.truncate(file, len)
    }
    fn available(&mut self) -> io::Result<u64> {
        self.0.available()
    }
    fn reader(&mut self, name: &str) -> io::Result<Arc<dyn ReadAt>> {
        self.0.reader(name)
    }
}

/// Returns a log with a store's thread, panicking in writes while the flag is set.
fn log() -> (Log, Arc<AtomicBool>) {
    paced_log(100, Duration::ZERO)
}

/// Returns the same with a core share for the thread, and a processor time per write.
fn paced_log(cpu_percent: u8, write_cpu: Duration) -> (Log, Arc<AtomicBool>) {
    let mut options = Options::new(Rank(0), 2);
    options.tier = Tier::NodeLocal;
    (options.memory_bytes_max, options.chunk_bytes, options.prefault_bytes) = (256 << 10, 4 << 10, 0);
    options.store =
        Some(StoreOptions { segment_bytes: 1 << 20, block_bytes: 16 << 10, ..StoreOptions::new(Path::new("")) });
    let panics = Arc::new(AtomicBool::new(false));
    let disk = Panicking(SimulatedDisk::new(16 << 10), panics.clone(), write_cpu);
    let store = Store::create(Box::new(disk), options.store.as_ref().unwrap().for_rank(&options, None)).unwrap();
    let spiller = Spiller::new(store, DiskIndex::new(2), "a thread".to_owned(), Some(cpu_percent)).unwrap();
    (Log::create_with(options, Some(spiller)).unwrap(), panics)
}

fn append(log: &mut Log) -> Result<Ssn, AppendError> {
    let ssn = log.claim(Rank(1), 0, 1000).map_err(|refused| *refused)?.commit();
    log.acknowledge(Rank(1), Ack { ssn, epoch: Epoch::FIRST }, Phase(0)).unwrap();
    Ok(ssn)
}

fn is_gone(result: Result<(), CheckpointError>) -> bool {
    matches!(result, Err(CheckpointError::Store(error)) if matches!(*error, StoreError::WriterEnded))
}

#[test]
fn calls_return_an_error_after_the_stores_thread_panicked() {
    let (mut log, panics) = log();
    for _ in 0..1000 {
        append(&mut log).unwrap();
    }
    log.checkpoint(Epoch(2), Contents::default()).unwrap();
    panics.store(true, Ordering::Relaxed);
    append(&mut log).unwrap();
    assert!(is_gone(log.checkpoint(Epoch(3), Contents::default())));
    log.local().append(1, 1, b"an entry").unwrap();
    assert!(is_gone(log.sync_local()));
    assert!(is_gone(log.discard_checkpoints_beyond(Epoch(1))));
    let refused = (0..1000).find_map(|_| append(&mut log).err()).unwrap();
    let AppendError::DiskRefused(refused) = refused else { panic!("{refused}") };
    assert!(matches!(*refused.source, StoreError::WriterEnded), "{refused}");
    // Written records can still be read, and a lane truncated.
    let mut cursor = log.cursor(Rank(1), Ssn::FIRST).unwrap();
    let next = log.next_ssn(Rank(1));
    for ssn in 1..next.0 {
        assert_eq!(cursor.read().unwrap().unwrap().ssn(), Ssn(ssn));
    }
    drop(cursor);
    log.truncate(Rank(1), Ssn(500)).unwrap();
    assert_eq!(log.next_ssn(Rank(1)), Ssn(501));
}

/// Counts wakes.
#[derive(Default)]
struct Wakes(AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn tasks_are_woken_when_the_stores_thread_panics() {
    let (mut log, panics) = log();
    for _ in 0..100 {
        append(&mut log).unwrap();
    }
    panics.store(true, Ordering::Relaxed);
    let (of_room, of_checkpoint) = (Arc::<Wakes>::default(), Arc::<Wakes>::default());
    log.budget.wake_after_write(&Waker::from(of_room.clone()));
    let mut pending = std::pin::pin!(log.begin_checkpoint(Epoch(2), Contents::default()).unwrap());
    let waker = Waker::from(of_checkpoint.clone());
    let mut context = Context::from_waker(&waker);
    let start = std::time::Instant::now();
    let result = loop {
        // The same task waits once, however often it polls.
        match pending.as_mut().poll(&mut context) {
            Poll::Ready(result) => break result,
            Poll::Pending => std::thread::yield_now(),
        }
        assert!(start.elapsed().as_secs() < 60);
    };
    assert!(is_gone(result.map(drop)));
    assert!(of_checkpoint.0.load(Ordering::Relaxed) <= 1);
    while of_room.0.load(Ordering::Relaxed) == 0 {
        assert!(start.elapsed().as_secs() < 60, "the task that waits for room wasn't woken");
        std::thread::yield_now();
    }
}

#[test]
fn a_claim_that_waits_for_room_does_not_wait_for_the_rests_of_the_stores_thread() {
    // Each write would be followed by a one-second rest.
    let (mut log, _) = paced_log(1, Duration::from_millis(10));
    let start = std::time::Instant::now();
    for _ in 0..1000 {
        append(&mut log).unwrap();
    }
    let spilled = log.stats().spilled_bytes;
    assert!(spilled > 40 * (16 << 10), "{spilled}");
    log.checkpoint(Epoch(2), Contents::default()).unwrap();
    drop(log);
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}

#[test]
fn a_log_can_be_dropped_with_writes_in_flight() {
    for after in [0, 1, 100, 400] {
        let (mut log, panics) = log();
        for number in 0..800 {
            if number == 400 + after {
                panics.store(after == 100, Ordering::Relaxed);
            }
            if append(&mut log).is_err() {
                break;
            }
        }
        let pending = log.begin_checkpoint(Epoch(2), Contents::default());
        let cursor = log.cursor(Rank(1), Ssn::FIRST).unwrap();
        drop(log);
        // The checkpoint succeeds or fails, but never blocks for ever.
        assert_eq!(pending.unwrap().wait().is_ok(), after != 100);
        drop(cursor);
    }
}

#[test]
fn a_write_after_a_refused_one_of_its_lane_reports_the_refusal() {
    let disk = SimulatedDisk::new(16 << 10);
    let options =
        counterfoil_log_io::StoreOptions { block_bytes: 4 << 10, ..counterfoil_log_io::StoreOptions::new(Rank(0), 2) };
    let store = Store::create(Box::new(disk.clone()), options).unwrap();
    let mut spiller = Spiller::new(store, DiskIndex::new(2), "inline".to_owned(), None).unwrap();
    let pool = Pool::volatile(PoolOptions::default()).unwrap();
    let lanes = [0, 1].map(|peer| {
        let mut lane = LaneWriter::new(pool.clone(), Rank(peer));
        for _ in 0..20 {
            lane.claim(0, 100).unwrap().commit();
        }
        lane
    });
    let mut write = |lane: usize, after: u64, upto: u64| {
        let cursor = lanes[lane].cursor(Ssn(after + 1)).unwrap();
        spiller.enqueue_write(Write { lane: Rank(lane as u32), after: Ssn(after), cursor, upto: Ssn(upto) });
        spiller.poll().unwrap().result
    };
    // The segment can't be created: a passing fault, survived by the store.
    disk.fail_at(disk.operations(), Fault::Error);
    assert!(matches!(*write(1, 0, 10).unwrap_err(), StoreError::Io { .. }));
    write(0, 0, 10).unwrap();
    let refused = write(1, 10, 20).unwrap_err();
    assert!(matches!(*refused, StoreError::Io { .. }), "{refused}");
    write(1, 0, 20).unwrap();
}
