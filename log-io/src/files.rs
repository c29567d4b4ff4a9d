//! The files of a directory: everything about them but how they are written.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use counterfoil_log_core::ChunkImage;
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::directory::{Directory, DirectoryAccess, LOCK_FILE, check_ours};
use crate::file_reader::FileReader;
use crate::gathered::Gathered;
use crate::preallocate::{fallocate, preallocate};
use crate::{BackendKind, Buffer, FileId, PAGE_BYTES, ReadAt, StorageBackend};

/// How files are written. Whatever a write needs belongs to the writer until the write is complete.
pub(crate) trait Writer: Send + fmt::Debug {
    fn kind(&self) -> BackendKind;
    fn buffer_bytes(&self) -> usize;
    /// An empty buffer, as [`StorageBackend::buffer`].
    fn buffer(&mut self) -> io::Result<Buffer>;
    /// An empty buffer, as [`StorageBackend::head`].
    fn head(&mut self) -> io::Result<Buffer> {
        self.buffer()
    }
    /// Begins a write; its failure is kept for `flush`.
    fn begin(&mut self, file: &Arc<OpenFile>, at: u64, write: Gathered) -> io::Result<()>;
    /// Waits until no write of this file is in flight; their failures are kept for `flush`.
    fn settle(&mut self, file: &Arc<OpenFile>) -> io::Result<()>;
    /// Waits until no write is in flight, and says which was the first to fail since the last flush.
    fn flush(&mut self) -> io::Result<()>;
    /// Makes a file's bytes and length durable.
    fn sync(&mut self, file: &Arc<OpenFile>) -> io::Result<()>;
}

/// An open file. Writes in flight keep it open.
#[derive(Debug)]
pub(crate) struct OpenFile {
    name: String,
    fd: OwnedFd,
}

impl OpenFile {
    /// `name`: for messages.
    pub(crate) fn new(name: &str, fd: OwnedFd) -> OpenFile {
        OpenFile { name: name.to_owned(), fd }
    }

    /// The error of a write of `len` bytes at `at`, with its place; its kind stays.
    pub(crate) fn write_error(&self, at: u64, len: usize, source: &io::Error) -> io::Error {
        io::Error::new(source.kind(), format!("{}: writing {len} bytes at {at}: {source}", self.name))
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A directory's files, written by `W`.
#[derive(Debug)]
pub(crate) struct Files<W> {
    /// Before the directory: what is in flight is completed before the lock is given up.
    writer: W,
    open: BTreeMap<u32, Arc<OpenFile>>,
    next: u32,
    directory: Directory,
    /// Readers may use an io_uring, however the files are written.
    reads_by_ring: bool,
}

impl<W: Writer> Files<W> {
    pub(crate) fn new(directory: Directory, writer: W) -> Files<W> {
        Files { writer, open: BTreeMap::new(), next: 0, directory, reads_by_ring: true }
    }

    /// Reads without a ring: one was tried, and something about it didn't work.
    pub(crate) fn without_ring(self) -> Files<W> {
        Files { reads_by_ring: false, ..self }
    }

    /// Gives the directory back, to be written in another way. Nothing may be in flight.
    pub(crate) fn into_directory(self) -> Directory {
        self.directory
    }

    fn file(&self, file: FileId) -> io::Result<&Arc<OpenFile>> {
        self.open.get(&file.0).ok_or_else(|| invalid(format!("{file:?} is not open")))
    }

    fn writable(&self) -> io::Result<()> {
        match self.directory.access() {
            DirectoryAccess::ReadWrite => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{} was opened to read only", self.directory.path().display()),
            )),
        }
    }

    fn enter(&mut self, name: &str, fd: OwnedFd) -> io::Result<FileId> {
        let id = self.next;
        self.next = id.checked_add(1).ok_or_else(|| io::Error::other("more than 2^32 files were opened"))?;
        self.open.insert(id, Arc::new(OpenFile::new(name, fd)));
        Ok(FileId(id))
    }
}

impl<W: Writer> StorageBackend for Files<W> {
    fn kind(&self) -> BackendKind {
        self.writer.kind()
    }

    fn buffer_bytes(&self) -> usize {
        self.writer.buffer_bytes()
    }

    /// The lock file is not among them, nor what no file of a store could be called.
    fn list(&mut self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(self.directory.fd())? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && check_name(name).is_ok()
            {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn not_files(&mut self) -> io::Result<Vec<(String, &'static str)>> {
        let mut others = Vec::new();
        for name in self.list()? {
            match not_a_file(&self.directory, &name) {
                Ok(what) => others.extend(what.map(|what| (name, what))),
                // Removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(others)
    }

    fn path(&self) -> Option<&Path> {
        Some(self.directory.path())
    }

    fn create(&mut self, name: &str, bytes: u64) -> io::Result<FileId> {
        check_name(name)?;
        self.writable()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let fd = open_at(&self.directory, name, flags)?;
        let made = preallocate(&fd, bytes).and_then(|()| self.enter(name, fd));
        if made.is_err() {
            // The error that is returned says more than one of the removal, which leaves an unknown file.
            let _ = rustix::fs::unlinkat(self.directory.fd(), name, AtFlags::empty());
        }
        made
    }

    fn open(&mut self, name: &str) -> io::Result<FileId> {
        check_name(name)?;
        let access = match self.writable() {
            Ok(()) => OFlags::RDWR,
            Err(_) => OFlags::RDONLY,
        };
        check_is_file(&self.directory, name)?;
        let fd = open_at(&self.directory, name, access)?;
        check_ours(&fd, self.directory.access())?;
        self.enter(name, fd)
    }

    fn len(&mut self, file: FileId) -> io::Result<u64> {
        length(self.file(file)?.as_fd())
    }

    fn close(&mut self, file: FileId) {
        // A write in flight keeps the file open; its completion is seen by the next flush.
        self.open.remove(&file.0);
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        check_name(name)?;
        self.writable()?;
        Ok(rustix::fs::unlinkat(self.directory.fd(), name, AtFlags::empty())?)
    }

    fn buffer(&mut self) -> io::Result<Buffer> {
        self.writer.buffer()
    }

    fn head(&mut self) -> io::Result<Buffer> {
        self.writer.head()
    }

    fn write(&mut self, file: FileId, at: u64, buffer: Buffer) -> io::Result<()> {
        self.write_chunks(file, at, buffer, Vec::new())
    }

    fn write_chunks(&mut self, file: FileId, at: u64, head: Buffer, chunks: Vec<ChunkImage>) -> io::Result<()> {
        self.writable()?;
        let write = Gathered::new(head, chunks);
        check_pages(at, write.len() as u64)?;
        let file = Arc::clone(self.file(file)?);
        self.writer.begin(&file, at, write)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    fn sync(&mut self, file: FileId) -> io::Result<()> {
        self.writable()?;
        let file = Arc::clone(self.file(file)?);
        self.writer.flush()?;
        let synced = self.writer.sync(&file);
        synced.map_err(|source| io::Error::new(source.kind(), format!("{}: syncing: {source}", file.name)))
    }

    fn sync_dir(&mut self) -> io::Result<()> {
        self.writable()?;
        Ok(rustix::fs::fsync(self.directory.fd())?)
    }

    fn punch(&mut self, file: FileId, at: u64, len: u64) -> io::Result<()> {
        self.writable()?;
        check_pages(at, len)?;
        if len == 0 {
            return Ok(());
        }
        let file = Arc::clone(self.file(file)?);
        self.writer.settle(&file)?;
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len)
    }

    fn truncate(&mut self, file: FileId, len: u64) -> io::Result<()> {
        self.writable()?;
        let file = Arc::clone(self.file(file)?);
        self.writer.settle(&file)?;
        Ok(rustix::fs::ftruncate(&*file, len)?)
    }

    fn available(&mut self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(self.directory.fd())?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn reader(&mut self, name: &str) -> io::Result<Arc<dyn ReadAt>> {
        check_name(name)?;
        check_is_file(&self.directory, name)?;
        let fd = open_at(&self.directory, name, OFlags::RDONLY)?;
        check_ours(&fd, self.directory.access())?;
        Ok(Arc::new(FileReader::new(fd, self.reads_by_ring)?))
    }
}

/// A file of a store: letters, digits, `-`, `_` and `.`, not at the front; at most 64 of them. The lock is none.
fn check_name(name: &str) -> io::Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let good = (1..=64).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain) && name != LOCK_FILE;
    if good { Ok(()) } else { Err(invalid(format!("{name:?} is no name for a file of a store"))) }
}

pub(crate) fn check_pages(at: u64, len: u64) -> io::Result<()> {
    let page = PAGE_BYTES as u64;
    if at.is_multiple_of(page)
        && len.is_multiple_of(page)
        && at.checked_add(len).is_some_and(|end| end <= i64::MAX as u64)
    {
        return Ok(());
    }
    Err(invalid(format!("{len} bytes at {at}: both have to be multiples of {PAGE_BYTES}")))
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// What an entry is that is no file.
fn not_a_file(directory: &Directory, name: &str) -> io::Result<Option<&'static str>> {
    // Not the type that a listing has: some file systems don't know it there.
    let stat = rustix::fs::statat(directory.fd(), name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => None,
        FileType::Symlink => Some("a symbolic link"),
        FileType::Directory => Some("a directory"),
        FileType::Fifo => Some("a named pipe"),
        FileType::Socket => Some("a socket"),
        _ => Some("a device"),
    })
}

/// What is no file isn't opened: to open a pipe or a device may do something. What it is when it was opened is looked at again.
fn check_is_file(directory: &Directory, name: &str) -> io::Result<()> {
    match not_a_file(directory, name)? {
        None => Ok(()),
        Some(what) => Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("it is {what}: refused"))),
    }
}

/// Opens a file with `O_DIRECT` where its file system has it for pages, otherwise without.
fn open_at(directory: &Directory, name: &str, access: OFlags) -> io::Result<OwnedFd> {
    // NONBLOCK: opening what turns out to be a pipe doesn't wait for its other end.
    let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::openat(directory.fd(), name, flags | OFlags::DIRECT, mode) {
        Ok(fd) => {
            if !direct_in_pages(&fd) {
                let flags = rustix::fs::fcntl_getfl(&fd)?;
                rustix::fs::fcntl_setfl(&fd, flags - OFlags::DIRECT)?;
            }
            Ok(fd)
        }
        // The file may have been created before the flag was refused. Nobody else creates files here.
        Err(Errno::INVAL) => Ok(rustix::fs::openat(directory.fd(), name, flags - OFlags::EXCL, mode)?),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether direct transfers of whole pages, from page-aligned memory, are said to be possible; or nothing is said.
fn direct_in_pages(fd: &OwnedFd) -> bool {
    /// `STATX_DIOALIGN`, since Linux 6.1.
    const DIOALIGN: u32 = 0x2000;
    let mask = rustix::fs::StatxFlags::from_bits_retain(DIOALIGN);
    let Ok(stat) = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, mask) else { return true };
    if stat.stx_mask & DIOALIGN == 0 {
        return true;
    }
    let fits = |align: u32| (1..=PAGE_BYTES as u32).contains(&align);
    fits(stat.stx_dio_mem_align) && fits(stat.stx_dio_offset_align)
}

/// Length of a file in bytes.
pub(crate) fn length(fd: impl AsFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(fd)?.st_size.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_files_of_a_store() {
        for name in ["segment-00000001", "manifest", "a", "A_b.c"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let long = "a".repeat(65);
        for name in ["", ".", "..", "../a", "a/b", ".hidden", "a b", "lock", "a\0", "ä", &long] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }
}
