//! The simulated disk as a storage backend.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use counterfoil_log_io::{BackendKind, Buffer, FileId, PAGE_BYTES, ReadAt, StorageBackend};

use super::file::{Change, File};
use super::{Disk, Fault, NameChange, SimulatedDisk, SkippedSync, eio};

fn not_found() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

/// Refuses a range other than whole pages, as direct I/O does.
fn check_pages(at: u64, len: u64) -> io::Result<()> {
    let page = PAGE_BYTES as u64;
    let is_whole = at.is_multiple_of(page) && len.is_multiple_of(page) && at.checked_add(len).is_some();
    if is_whole { Ok(()) } else { Err(io::Error::from(io::ErrorKind::InvalidInput)) }
}

impl StorageBackend for SimulatedDisk {
    fn kind(&self) -> BackendKind {
        BackendKind::Simulated
    }

    fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    fn list(&mut self) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn create(&mut self, name: &str, bytes: u64) -> io::Result<FileId> {
        let mut disk = self.lock();
        disk.simple_operation()?;
        if disk.names.contains_key(name) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        if disk.used().saturating_add(bytes) > disk.capacity {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        disk.files.push(File::preallocated(bytes));
        let number = disk.files.len() - 1;
        disk.names.insert(name.to_owned(), number);
        disk.changed_names.push(NameChange::Created(name.to_owned(), number));
        Ok(FileId(number as u32))
    }

    fn open(&mut self, name: &str) -> io::Result<FileId> {
        self.lock().names.get(name).map(|&number| FileId(number as u32)).ok_or_else(not_found)
    }

    fn len(&mut self, file: FileId) -> io::Result<u64> {
        Ok(self.lock().file(file)?.len())
    }

    fn close(&mut self, _file: FileId) {}

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut disk = self.lock();
        disk.simple_operation()?;
        disk.names.remove(name).ok_or_else(not_found)?;
        disk.changed_names.push(NameChange::Removed(name.to_owned()));
        Ok(())
    }

    fn buffer(&mut self) -> io::Result<Buffer> {
        let used = self.lock().free_buffers.0.pop();
        Ok(used.unwrap_or_else(|| Buffer::new(self.buffer_bytes)))
    }

    fn write(&mut self, file: FileId, at: u64, buffer: Buffer) -> io::Result<()> {
        check_pages(at, buffer.len() as u64)?;
        let mut disk = self.lock();
        let len = match disk.operation()? {
            None => buffer.len(),
            Some(Fault::Short(len)) => {
                disk.failed = Some(io::ErrorKind::WriteZero);
                len.min(buffer.len())
            }
            Some(_) => {
                disk.failed = Some(io::ErrorKind::Other);
                0
            }
        };
        disk.file(file)?.change(Change::Write(at, buffer.as_slice()[..len].into()));
        disk.free_buffers.0.push(buffer);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut disk = self.lock();
        if disk.is_off {
            return Err(io::Error::other("the power is off"));
        }
        match disk.failed.take() {
            None => Ok(()),
            Some(io::ErrorKind::Other) => Err(eio()),
            Some(kind) => Err(io::Error::from(kind)),
        }
    }

    fn sync(&mut self, file: FileId) -> io::Result<()> {
        self.flush()?;
        let mut disk = self.lock();
        disk.simple_operation()?;
        if let Some(SkippedSync::Files(prefix)) = disk.skipped_sync {
            let number = file.0 as usize;
            if disk.names.iter().any(|(name, &of)| of == number && name.starts_with(prefix)) {
                return Ok(());
            }
        }
        disk.file(file)?.sync();
        Ok(())
    }

    fn sync_dir(&mut self) -> io::Result<()> {
        let mut disk = self.lock();
        disk.simple_operation()?;
        if disk.skipped_sync != Some(SkippedSync::Directory) {
            disk.durable_names = disk.names.clone();
            disk.changed_names.clear();
        }
        Ok(())
    }

    fn punch(&mut self, file: FileId, at: u64, len: u64) -> io::Result<()> {
        check_pages(at, len)?;
        let mut disk = self.lock();
        disk.simple_operation()?;
        disk.file(file)?.change(Change::Punch(at, len));
        Ok(())
    }

    fn truncate(&mut self, file: FileId, len: u64) -> io::Result<()> {
        let mut disk = self.lock();
        disk.simple_operation()?;
        disk.file(file)?.change(Change::Truncate(len));
        Ok(())
    }

    fn available(&mut self) -> io::Result<u64> {
        let disk = self.lock();
        Ok(disk.capacity.saturating_sub(disk.used()))
    }

    fn reader(&mut self, name: &str) -> io::Result<Arc<dyn ReadAt>> {
        let number = self.lock().names.get(name).copied().ok_or_else(not_found)?;
        Ok(Arc::new(Reader { disk: self.disk.clone(), number }))
    }
}

/// A read handle of a file.
#[derive(Debug)]
struct Reader {
    disk: Arc<Mutex<Disk>>,
    number: usize,
}

impl ReadAt for Reader {
    fn len(&self) -> io::Result<u64> {
        let disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(disk.files[self.number].len())
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        let read = disk.files[self.number].read(at, into);
        if read { Ok(()) } else { Err(io::Error::from(io::ErrorKind::UnexpectedEof)) }
    }
}
