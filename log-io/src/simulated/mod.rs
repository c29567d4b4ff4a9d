//! A disk in memory that forgets like one.

mod backend;
mod file;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Buffer, FileId, PAGE_BYTES};
use file::File;

/// A disk in memory that loses any subset of what wasn't synced, for tests and simulations.
///
/// Clones are handles to the same disk. What a power cut leaves is another disk: [`crash`](Self::crash) makes one, by
/// chance, and leaves this one as it is. Of each write since the last sync of its file it keeps any subset of the bytes; of
/// the creations and removals since the last sync of the directory, each by itself. A file that was created and never synced
/// has any length up to the one that it was given; what was preallocated and never written reads as zeros.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    disk: Arc<Mutex<Disk>>,
    buffer_bytes: usize,
}

/// What is to go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails with EIO. A write has no effect and says so when it is flushed.
    Error,
    /// A write stops after this many bytes, and says so when it is flushed; any other operation fails with EIO.
    Short(usize),
    /// The power is cut: neither this operation nor any later one has an effect, and all fail.
    PowerOff,
}

/// What doesn't get durable although the disk says so. A store on such a disk must be found out by its tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsynced {
    /// Files whose names begin like this.
    Files(&'static str),
    /// Creations and removals.
    Directory,
}

/// Files by number. Clones share pages.
#[derive(Clone, Debug, Default)]
struct Disk {
    /// `None` where nothing refers to it any more.
    files: Vec<File>,
    /// As everybody sees it, and as it is durable.
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    changed_names: Vec<NameChange>,
    /// A write that failed, for the next flush.
    failed: Option<io::ErrorKind>,
    /// Operations so far that change something, and what happens at which.
    operations: u64,
    faults: BTreeMap<u64, Fault>,
    is_off: bool,
    /// Bytes that all files may have together.
    capacity: u64,
    unsynced: Option<Unsynced>,
    /// What the disk was like before each operation since it was asked to remember.
    history: Option<Vec<Disk>>,
    free_buffers: Buffers,
}

/// Buffers to be used again. A copy of a disk has none.
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
    /// An empty disk without a limit, whose largest single write has `buffer_bytes` bytes, a multiple of 4,096.
    pub fn new(buffer_bytes: usize) -> SimulatedDisk {
        SimulatedDisk::of(Disk { capacity: u64::MAX, ..Disk::default() }, buffer_bytes)
    }

    fn of(disk: Disk, buffer_bytes: usize) -> SimulatedDisk {
        SimulatedDisk { disk: Arc::new(Mutex::new(disk)), buffer_bytes: buffer_bytes.next_multiple_of(PAGE_BYTES) }
    }

    /// What a thread that panicked left is still a disk: nothing is ever half done.
    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk that a power cut would leave now. `chance` is a source of random numbers.
    #[must_use]
    pub fn crash(&self, chance: &mut dyn FnMut() -> u64) -> SimulatedDisk {
        let left = self.lock().crash(chance);
        SimulatedDisk::of(left, self.buffer_bytes)
    }

    /// From now on, remembers what the disk was like before each operation that changes something.
    pub fn remember(&self) {
        self.lock().history = Some(Vec::new());
    }

    /// What the disk was like before each operation since [`remember`](Self::remember), and stops remembering.
    pub fn take_history(&self) -> Vec<SimulatedDisk> {
        let history = self.lock().history.take().unwrap_or_default();
        history.into_iter().map(|disk| SimulatedDisk::of(disk, self.buffer_bytes)).collect()
    }

    /// Operations so far that change something: creations, removals, writes, syncs, punches, truncations.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Lets the operation with this number, counted from 0 since the disk was made, go wrong.
    pub fn fail_at(&self, operation: u64, fault: Fault) {
        self.lock().faults.insert(operation, fault);
    }

    /// Limits the bytes of all files together. Creating a file beyond that fails with ENOSPC.
    pub fn set_capacity(&self, bytes: u64) {
        self.lock().capacity = bytes;
    }

    /// Lets something not get durable although the disk says so.
    pub fn lie(&self, unsynced: Unsynced) {
        self.lock().unsynced = Some(unsynced);
    }

    /// The names of all files.
    pub fn names(&self) -> Vec<String> {
        self.lock().names.keys().cloned().collect()
    }

    /// The bytes of a file.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let disk = self.lock();
        let file = &disk.files[*disk.names.get(name)?];
        let mut bytes = vec![0; file.len() as usize];
        file.read(0, &mut bytes).then_some(bytes)
    }

    /// Replaces the bytes of a file, or makes one, durably: damage, or a file from elsewhere.
    pub fn set_bytes(&self, name: &str, bytes: &[u8]) {
        let mut disk = self.lock();
        disk.files.push(File::durable(bytes));
        let number = disk.files.len() - 1;
        disk.names.insert(name.to_owned(), number);
        disk.durable_names.insert(name.to_owned(), number);
    }

    /// Another disk with the same files, all of it durable.
    #[must_use]
    pub fn copy(&self) -> SimulatedDisk {
        let mut disk = self.lock().clone();
        disk.history = None;
        SimulatedDisk::of(disk, self.buffer_bytes)
    }
}

impl Disk {
    /// Counts an operation; what is to go wrong with it.
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

    /// An operation that works or doesn't.
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

    fn crash(&self, chance: &mut dyn FnMut() -> u64) -> Disk {
        let mut left = self.durable_names.clone();
        for change in &self.changed_names {
            if chance() & 1 == 0 {
                continue;
            }
            match change {
                NameChange::Created(name, number) => left.insert(name.clone(), *number),
                NameChange::Removed(name) => left.remove(name),
            };
        }
        let mut disk = Disk { capacity: self.capacity, unsynced: self.unsynced, ..Disk::default() };
        for (name, number) in left {
            disk.files.push(self.files[number].crash(chance));
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
