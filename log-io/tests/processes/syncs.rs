//! The real backends sync everything that the simulated disk is asked to sync.
//!
//! The power-cut tests show, on a simulated disk, that a store asks for enough syncs. These tests show that a real
//! backend asks the kernel for each of them: the same calls run on both, and the lists of syncs are compared.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use counterfoil_log_core::{Epoch, Rank, Record, Ssn};
use counterfoil_log_io::{
    Access, BackendChoice, BackendKind, Block, Buffer, CheckpointImage, Directory, DirectoryAccess, DirectoryError,
    FileId, LOCAL, LaneImage, LocalImage, ProbeError, ReadAt, RecordSource, StorageBackend, Store, StoreOptions,
};
use counterfoil_test_support::{SimulatedDisk, child, note_untested};

use crate::backend_suite::TestDir;
use crate::traced::{self, Sync};

const PEER: Rank = Rank(2);

/// A workload's environment.
trait Place {
    /// Opens the directory for writing; creates it the first time.
    fn backend(&mut self) -> Box<dyn StorageBackend>;

    /// Marks the beginning of a step in the list of syncs.
    fn step(&mut self, name: &str);
}

/// Creates a store and uses it, through every syncing call.
fn workload(place: &mut dyn Place) {
    place.step("a new directory");
    let backend = place.backend();
    place.step("a new store");
    let mut store = Store::create(backend, options()).unwrap();
    let mut blocks = Vec::new();

    place.step("appended and flushed blocks");
    append(&mut store, 1..=7, &mut blocks);
    store.flush().unwrap();
    place.step("synced blocks");
    store.sync().unwrap();
    place.step("nothing to sync");
    store.sync().unwrap();

    place.step("synced local log");
    append_local(&mut store, 1);
    store.sync().unwrap();
    place.step("checkpoint");
    append(&mut store, 8..=12, &mut blocks);
    checkpoint(&mut store, 2, &blocks);
    place.step("checkpoint without new blocks");
    checkpoint(&mut store, 3, &blocks);
    place.step("checkpoint that replaces another");
    append(&mut store, 13..=14, &mut blocks);
    checkpoint(&mut store, 4, &blocks);
    place.step("raised floor");
    store.raise_floors(&[(PEER, Ssn(3))]).unwrap();
    place.step("discarded earlier checkpoints");
    store.discard_before(Epoch(4)).unwrap();
    place.step("discarded later checkpoints");
    append(&mut store, 15..=16, &mut blocks);
    checkpoint(&mut store, 5, &blocks);
    place.step("discarded last checkpoint");
    let image = store.discard_beyond(Epoch(4)).unwrap().unwrap();
    assert_eq!(image.epoch, Epoch(4));

    place.step("local log after the checkpoint");
    append_local(&mut store, 2);
    store.sync().unwrap();
    append_local(&mut store, 3);
    drop(store);
    place.step("reopened directory");
    let backend = place.backend();
    place.step("recovery");
    let (mut store, image) = Store::open(backend, options(), Access::ReadWrite).unwrap();
    let image = image.unwrap();
    assert_eq!((image.epoch, image.local.len()), (Epoch(4), 2));
    place.step("checkpoint after the recovery");
    let mut blocks = image.lanes[0].blocks.clone();
    append(&mut store, 15..=20, &mut blocks);
    checkpoint(&mut store, 5, &blocks);
}

/// Small segments, so that several have unsynced blocks at a time.
fn options() -> StoreOptions {
    StoreOptions {
        segment_bytes: 16 << 10,
        block_bytes: 4 << 10,
        disk_bytes_max: 1 << 20,
        reserve_bytes: 4 << 10,
        checkpoints_kept: 2,
        seed: Some(7),
        ..StoreOptions::new(Rank(1), 3)
    }
}

/// Appends a block for each SSN.
fn append(store: &mut Store, ssns: std::ops::RangeInclusive<u64>, blocks: &mut Vec<Block>) {
    let body = [7; 3000];
    store.append(PEER, &mut Same { ssns, body: &body }, blocks).unwrap();
}

/// Records with the same body.
struct Same<'a> {
    ssns: std::ops::RangeInclusive<u64>,
    body: &'a [u8],
}

impl RecordSource for Same<'_> {
    fn next(&mut self) -> Option<Record<'_>> {
        Record::new(Ssn(self.ssns.next()?), self.body, 0)
    }
}

fn append_local(store: &mut Store, ssn: u64) {
    let entry = LocalImage { ssn: Ssn(ssn), kind: 3, key: ssn, bytes: b"an entry".to_vec() };
    store.append(LOCAL, &mut LocalImage::source(&[entry]), &mut Vec::new()).unwrap();
}

fn checkpoint(store: &mut Store, epoch: u32, blocks: &[Block]) {
    let next = blocks.last().unwrap().last.next();
    let (acked, covered, runs) = (Ssn::ZERO, Ssn::ZERO, Vec::new());
    let lane = LaneImage { peer: PEER, next, acked, covered, runs, blocks: blocks.to_vec() };
    let image = CheckpointImage { epoch: Epoch(epoch), lanes: vec![lane], ..Default::default() };
    store.checkpoint(&image).unwrap();
}

/// The store directory's name in its parent.
const DIRECTORY: &str = "rank-0";

/// A real backend, in a traced process.
struct Real {
    path: PathBuf,
    choice: BackendChoice,
}

impl Place for Real {
    fn backend(&mut self) -> Box<dyn StorageBackend> {
        let opened = match self.path.exists() {
            false => Directory::create(&self.path, self.choice),
            true => Directory::open(&self.path, self.choice, DirectoryAccess::ReadWrite),
        };
        opened.unwrap().0
    }

    /// Syncs a file with this name.
    fn step(&mut self, name: &str) {
        File::create(self.path.with_file_name(name)).unwrap().sync_all().unwrap();
    }
}

/// The simulated disk, and the syncs required from a real backend in its place.
#[derive(Debug)]
struct Model {
    disk: SimulatedDisk,
    choice: BackendChoice,
    /// Their paths are relative to the parent directory.
    syncs: Arc<Mutex<Vec<Sync>>>,
}

impl Model {
    fn new(choice: BackendChoice) -> Model {
        Model { disk: SimulatedDisk::new(256 << 10), choice, syncs: Arc::default() }
    }
}

impl Place for Model {
    fn backend(&mut self) -> Box<dyn StorageBackend> {
        let by = match self.choice {
            BackendChoice::IoUring => "FSYNC",
            _ => "fdatasync",
        };
        let backend = Asked { disk: self.disk.clone(), by, files: BTreeMap::new(), syncs: self.syncs.clone() };
        // The entry of a created directory, and a ring trial: not backend calls.
        if self.disk.names().is_empty() {
            backend.asked("fsync", "");
        }
        if self.choice == BackendChoice::IoUring {
            backend.asked(by, &format!("{DIRECTORY}/probe"));
        }
        Box::new(backend)
    }

    fn step(&mut self, name: &str) {
        self.syncs.lock().unwrap().push(Sync { by: "fsync", path: name.into() });
    }
}

/// Notes the syncs requested from a backend.
#[derive(Debug)]
struct Asked {
    disk: SimulatedDisk,
    /// The real backend's file sync.
    by: &'static str,
    /// Names of opened files.
    files: BTreeMap<u32, String>,
    syncs: Arc<Mutex<Vec<Sync>>>,
}

impl Asked {
    fn asked(&self, by: &'static str, path: &str) {
        self.syncs.lock().unwrap().push(Sync { by, path: path.into() });
    }

    fn opened(&mut self, name: &str, file: io::Result<FileId>) -> io::Result<FileId> {
        let file = file?;
        self.files.insert(file.0, format!("{DIRECTORY}/{name}"));
        Ok(file)
    }
}

impl StorageBackend for Asked {
    fn kind(&self) -> BackendKind {
        self.disk.kind()
    }
    fn buffer_bytes(&self) -> usize {
        self.disk.buffer_bytes()
    }
    fn list(&mut self) -> io::Result<Vec<String>> {
        self.disk.list()
    }
    fn create(&mut self, name: &str, bytes: u64) -> io::Result<FileId> {
        let file = self.disk.create(name, bytes);
        self.opened(name, file)
    }
    fn open(&mut self, name: &str) -> io::Result<FileId> {
        let file = self.disk.open(name);
        self.opened(name, file)
    }
    fn len(&mut self, file: FileId) -> io::Result<u64> {
        self.disk.len(file)
    }
    fn close(&mut self, file: FileId) {
        self.disk.close(file);
    }
    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }
    fn buffer(&mut self) -> io::Result<Buffer> {
        self.disk.buffer()
    }
    fn write(&mut self, file: FileId, at: u64, buffer: Buffer) -> io::Result<()> {
        self.disk.write(file, at, buffer)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.disk.flush()
    }
    fn sync(&mut self, file: FileId) -> io::Result<()> {
        self.asked(self.by, &self.files[&file.0]);
        self.disk.sync(file)
    }
    fn sync_dir(&mut self) -> io::Result<()> {
        self.asked("fsync", DIRECTORY);
        self.disk.sync_dir()
    }
    fn punch(&mut self, file: FileId, at: u64, len: u64) -> io::Result<()> {
        self.disk.punch(file, at, len)
    }
    fn truncate(&mut self, file: FileId, len: u64) -> io::Result<()> {
        self.disk.truncate(file, len)
    }
    fn available(&mut self) -> io::Result<u64> {
        self.disk.available()
    }
    fn reader(&mut self, name: &str) -> io::Result<Arc<dyn ReadAt>> {
        self.disk.reader(name)
    }
}

#[test]
fn pwrite_syncs_what_the_simulated_disk_is_asked_to_sync() {
    compare(BackendChoice::Pwrite);
}

/// Compares nothing only if the kernel has no io_uring, doesn't permit one, or doesn't list its requests.
#[test]
fn io_uring_syncs_what_the_simulated_disk_is_asked_to_sync() {
    use ProbeError::{Missing, Refused};
    match Directory::create(&TestDir::new().path(), BackendChoice::IoUring) {
        Err(DirectoryError::Probe { source: reason @ (Missing | Refused { .. }), .. }) => {
            note_untested(&format!("the syncs of the io_uring backend: {reason}"));
        }
        trial => {
            drop(trial.unwrap());
            if !traced::lists_requests() {
                note_untested("the syncs of the io_uring backend: that needs Linux 5.16");
                return;
            }
            compare(BackendChoice::IoUring);
        }
    }
}

fn compare(choice: BackendChoice) {
    let mut model = Model::new(choice);
    workload(&mut model);
    let asked = std::mem::take(&mut *model.syncs.lock().unwrap());
    // The workload syncs the parent, the directory, and each file kind.
    for name in ["", "rank-0", "rank-0/manifest", "rank-0/segment-00000001", "rank-0/checkpoint-00000006"] {
        assert!(asked.iter().any(|sync| sync.path == Path::new(name)), "{name}: {asked:#?}");
    }

    let place = TestDir::new();
    let parent = place.path().parent().unwrap().canonicalize().unwrap();
    let Some(mut made) = traced::syncs_of("syncs::a_workload", &format!("{choice:?} {}", parent.display())) else {
        note_untested(&format!("the syncs of the {choice:?} backend: no process can be traced here"));
        return;
    };
    for sync in &mut made {
        sync.path = sync.path.strip_prefix(&parent).map(Path::to_owned).unwrap_or_else(|_| sync.path.clone());
    }
    let Some(at) = (0..asked.len().max(made.len())).find(|&at| asked.get(at) != made.get(at)) else { return };
    let before: Vec<String> = asked[..at].iter().map(|sync| format!("{} {}", sync.by, sync.path.display())).collect();
    panic!(
        "{choice:?}: asked for {:?}, made {:?}, after {before:#?}\n{} asked for, {} made",
        asked.get(at),
        made.get(at),
        asked.len(),
        made.len()
    );
}

#[test]
#[ignore = "run by `pwrite_syncs_what_the_simulated_disk_is_asked_to_sync` and the test of io_uring"]
fn a_workload() {
    let argument = child::argument();
    let (choice, parent) = argument.split_once(' ').unwrap();
    let choice = if choice == "IoUring" { BackendChoice::IoUring } else { BackendChoice::Pwrite };
    traced::begin();
    workload(&mut Real { path: Path::new(parent).join(DIRECTORY), choice });
}
