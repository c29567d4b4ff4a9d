//! A simulated disk, with power cuts and faults.

mod backend;
mod file;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use counterfoil_log_io::{Buffer, FileId, PAGE_BYTES};

use crate::random::Random;
use file::File;

/// An in-memory disk that loses any subset of the unsynced bytes in a power cut.
///
/// Clones are handles to the same disk. [`crash`](Self::crash) returns another disk, drawn at random from the possible
/// states after a power cut, and doesn't change this one. The other disk has any subset of the bytes in each write
/// since the last sync of its file, and any subset of the creations and removals since the last directory sync. A file
/// created and never synced has any length up to its initial one; preallocated bytes never written read as zeros.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    disk: Arc<Mutex<Disk>>,
    buffer_bytes: usize,
}

/// A fault in one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails with EIO.
    ///
    /// A write has no effect, and the next flush fails.
    Error,
    /// A write stops after this many bytes, and the next flush fails; any other operation fails with EIO.
    Short(usize),
    /// The power is cut: this operation and all later ones fail without an effect.
    PowerOff,
}

/// Syncs reported as done and skipped by the disk.
///
/// The power-cut tests must detect such a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkippedSync {
    /// File syncs, for names with this prefix.
    Files(&'static str),
    /// Directory syncs: creations and removals.
    Directory,
}

/// The state of a disk.
///
/// Clones share pages.
#[derive(Clone, Debug, Default)]
struct Disk {
    /// Files by number, removed ones too.
    files: Vec<File>,
    /// The directory as it reads now; `durable_names` is the synced one.
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    changed_names: Vec<NameChange>,
    /// A write error, for the next flush.
    failed: Option<io::ErrorKind>,
    /// Number of changing operations so far, and the pending faults.
    operations: u64,
    faults: BTreeMap<u64, Fault>,
    is_off: bool,
    /// Maximum bytes in all files.
    capacity: u64,
    skipped_sync: Option<SkippedSync>,
    /// The disk before each operation since `record_history`.
    history: Option<Vec<Disk>>,
    free_buffers: Buffers,
}

/// Buffers to reuse.
///
/// A copy of a disk starts without any.
#[derive(Debug, Default)]
struct Buffers(Vec<Buffer>);

impl Clone for Buffers {
    fn clone(&self) -> Buffers {
        Buffers::default()
    }
}

#[derive(Clone, Debug)]
enum NameChange {
    Created(String, usize),
    Removed(String),
}

impl SimulatedDisk {
    /// Creates an empty disk with unlimited capacity; `buffer_bytes`, its largest single write, is rounded up to
    /// 4,096-byte pages.
    pub fn new(buffer_bytes: usize) -> SimulatedDisk {
        SimulatedDisk::from_state(Disk { capacity: u64::MAX, ..Disk::default() }, buffer_bytes)
    }

    fn from_state(disk: Disk, buffer_bytes: usize) -> SimulatedDisk {
        SimulatedDisk { disk: Arc::new(Mutex::new(disk)), buffer_bytes: buffer_bytes.next_multiple_of(PAGE_BYTES) }
    }

    /// Locks the state.
    ///
    /// A poisoned lock isn't an error: no operation is interrupted halfway.
    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the disk after a power cut now.
    #[must_use]
    pub fn crash(&self, random: Random<'_>) -> SimulatedDisk {
        let left = self.lock().crash(random);
        SimulatedDisk::from_state(left, self.buffer_bytes)
    }

    /// Starts to record the disk before each changing operation.
    pub fn record_history(&self) {
        self.lock().history = Some(Vec::new());
    }

    /// Returns the disk before each operation since [`record_history`](Self::record_history), and stops recording.
    pub fn take_history(&self) -> Vec<SimulatedDisk> {
        let history = self.lock().history.take().unwrap_or_default();
        history.into_iter().map(|disk| SimulatedDisk::from_state(disk, self.buffer_bytes)).collect()
    }

    /// Returns the number of changing operations so far: creations, removals, writes, syncs, punches, truncations.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Injects a fault into the changing operation with this number, counted from 0.
    pub fn fail_at(&self, operation: u64, fault: Fault) {
        self.lock().faults.insert(operation, fault);
    }

    /// Limits the total bytes in all files.
    ///
    /// Creating a file beyond the limit fails with ENOSPC.
    pub fn set_capacity(&self, bytes: u64) {
        self.lock().capacity = bytes;
    }

    /// Makes the disk report these syncs as done without making them.
    pub fn skip_sync(&self, skipped: SkippedSync) {
        self.lock().skipped_sync = Some(skipped);
    }

    /// Returns all file names.
    pub fn names(&self) -> Vec<String> {
        self.lock().names.keys().cloned().collect()
    }

    /// Returns the bytes in a file.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let disk = self.lock();
        let file = &disk.files[*disk.names.get(name)?];
        let mut bytes = vec![0; file.len() as usize];
        file.read(0, &mut bytes).then_some(bytes)
    }

    /// Replaces the bytes of a file, or creates it, durably: to damage it, or to bring it from elsewhere.
    pub fn set_bytes(&self, name: &str, bytes: &[u8]) {
        let mut disk = self.lock();
        disk.files.push(File::durable(bytes));
        let number = disk.files.len() - 1;
        disk.names.insert(name.to_owned(), number);
        disk.durable_names.insert(name.to_owned(), number);
    }

    /// Returns a copy of the disk with its unsynced changes and pending faults, and without its history.
    #[must_use]
    pub fn copy(&self) -> SimulatedDisk {
        let mut disk = self.lock().clone();
        disk.history = None;
        SimulatedDisk::from_state(disk, self.buffer_bytes)
    }
}

impl Disk {
    /// Counts a changing operation, records the history, and returns the operation's fault.
    fn operation(&mut self) -> io::Result<Option<Fault>> {
        if self.is_off {
            return Err(io::Error::other("the power is off"));
        }
        if let Some(mut history) = self.history.take() {
            history.push(self.clone());
            self.history = Some(history);
        }
        let fault = self.faults.remove(&self.operations);
        self.operations += 1;
        if fault == Some(Fault::PowerOff) {
            self.is_off = true;
            return Err(io::Error::other("the power is off"));
        }
        Ok(fault)
    }

    /// Counts an operation that fails as a whole with any fault.
    fn simple_operation(&mut self) -> io::Result<()> {
        match self.operation()? {
            None => Ok(()),
            Some(_) => Err(eio()),
        }
    }

    fn used(&self) -> u64 {
        self.names.values().map(|&number| self.files[number].allocated()).sum()
    }

    fn file(&mut self, file: FileId) -> io::Result<&mut File> {
        self.files.get_mut(file.0 as usize).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
    }

    fn crash(&self, random: Random<'_>) -> Disk {
        let mut left = self.durable_names.clone();
        for change in &self.changed_names {
            if random() & 1 == 0 {
                continue;
            }
            match change {
                NameChange::Created(name, number) => left.insert(name.clone(), *number),
                NameChange::Removed(name) => left.remove(name),
            };
        }
        let mut disk = Disk { capacity: self.capacity, skipped_sync: self.skipped_sync, ..Disk::default() };
        for (name, number) in left {
            disk.files.push(self.files[number].crash(random));
            disk.names.insert(name, disk.files.len() - 1);
        }
        disk.durable_names = disk.names.clone();
        disk
    }
}

fn eio() -> io::Error {
    // EIO is 5 on every Linux.
    io::Error::from_raw_os_error(5)
}
