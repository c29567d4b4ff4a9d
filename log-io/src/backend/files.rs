//! A directory's files as a storage backend, generic over the write method.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use counterfoil_log_core::ChunkImage;
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::backend::directory::{Directory, DirectoryAccess, OPEN, check_owned};
use crate::backend::file_reader::{FileReader, length};
use crate::backend::preallocate::{fallocate, preallocate};
use crate::backend::vectored_write::VectoredWrite;
use crate::format::names::LOCK_FILE;
use crate::{BackendKind, Buffer, FileId, PAGE_BYTES, ReadAt, StorageBackend};

/// Flags for creating a file.
const NEW: OFlags = OFlags::RDWR.union(OFlags::CREATE).union(OFlags::EXCL);

/// A write method.
///
/// The writer owns everything needed by a write until its completion.
pub(crate) trait Writer: Send + fmt::Debug {
    fn kind(&self) -> BackendKind;
    fn buffer_bytes(&self) -> usize;
    /// Returns an empty buffer; see [`StorageBackend::buffer`].
    fn buffer(&mut self) -> io::Result<Buffer>;
    /// Returns an empty buffer; see [`StorageBackend::header_buffer`].
    fn header_buffer(&mut self) -> io::Result<Buffer> {
        self.buffer()
    }
    /// Starts a write; `flush` reports its failure.
    fn begin(&mut self, file: &Arc<OpenFile>, at: u64, data: VectoredWrite) -> io::Result<()>;
    /// Waits until no write to this file is in flight; `flush` reports their failures.
    fn wait_for_file(&mut self, file: &Arc<OpenFile>) -> io::Result<()>;
    /// Waits until no write is in flight, and returns the first failure since the last flush.
    fn flush(&mut self) -> io::Result<()>;
    /// Makes a file's bytes and length durable.
    fn sync(&mut self, file: &Arc<OpenFile>) -> io::Result<()>;
}

/// An open file.
///
/// Writes in flight keep it open.
#[derive(Debug)]
pub(crate) struct OpenFile {
    name: String,
    fd: OwnedFd,
}

impl OpenFile {
    /// Creates it; `name` is for error messages.
    pub(crate) fn new(name: &str, fd: OwnedFd) -> OpenFile {
        OpenFile { name: name.to_owned(), fd }
    }

    /// Returns the error for a `len`-byte write at `at`: the same kind, with file and offset in its message.
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
    /// Dropped before the directory: writes in flight complete before the lock is released.
    writer: W,
    open: BTreeMap<u32, Arc<OpenFile>>,
    next: u32,
    directory: Directory,
    /// Readers may use an io_uring.
    reads_by_ring: bool,
}

impl<W: Writer> Files<W> {
    pub(crate) fn new(directory: Directory, writer: W) -> Files<W> {
        Files { writer, open: BTreeMap::new(), next: 0, directory, reads_by_ring: true }
    }

    /// Forbids an io_uring for reading, after its trial failed.
    pub(crate) fn without_ring(self) -> Files<W> {
        Files { reads_by_ring: false, ..self }
    }

    /// Returns the directory, for another write method.
    ///
    /// No write may be in flight.
    #[cfg(feature = "io-uring")]
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
                format!("{} was opened for reading only", self.directory.path().display()),
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

    /// Leaves out the lock file and invalid names.
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
                // Removed after it was listed.
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
        let fd = open_at(self.directory.fd(), name, NEW)?;
        let made = preallocate(&fd, bytes).and_then(|()| self.enter(name, fd));
        if made.is_err() {
            // If the removal fails, too, an unknown file is left; the first error is the more useful one.
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
        let fd = open_at(self.directory.fd(), name, access)?;
        check_owned(&fd, self.directory.access())?;
        self.enter(name, fd)
    }

    fn len(&mut self, file: FileId) -> io::Result<u64> {
        length(self.file(file)?.as_fd())
    }

    fn close(&mut self, file: FileId) {
        // A write in flight keeps the file open, and the next flush waits for it.
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

    fn header_buffer(&mut self) -> io::Result<Buffer> {
        self.writer.header_buffer()
    }

    fn write(&mut self, file: FileId, at: u64, buffer: Buffer) -> io::Result<()> {
        self.write_chunks(file, at, buffer, Vec::new())
    }

    fn write_chunks(&mut self, file: FileId, at: u64, header: Buffer, chunks: Vec<ChunkImage>) -> io::Result<()> {
        self.writable()?;
        let write = VectoredWrite::new(header, chunks);
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
        self.writer.wait_for_file(&file)?;
        fallocate(&file, FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE), at, len)
    }

    fn truncate(&mut self, file: FileId, len: u64) -> io::Result<()> {
        self.writable()?;
        let file = Arc::clone(self.file(file)?);
        self.writer.wait_for_file(&file)?;
        Ok(rustix::fs::ftruncate(&*file, len)?)
    }

    fn available(&mut self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(self.directory.fd())?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn reader(&mut self, name: &str) -> io::Result<Arc<dyn ReadAt>> {
        check_name(name)?;
        check_is_file(&self.directory, name)?;
        let fd = open_at(self.directory.fd(), name, OFlags::RDONLY)?;
        check_owned(&fd, self.directory.access())?;
        Ok(Arc::new(FileReader::new(fd, self.reads_by_ring)?))
    }
}

/// Refuses an invalid file name: allowed are up to 64 letters, digits, `-`, `_` and `.`, with no `.` at the front, and
/// not the name of the lock.
fn check_name(name: &str) -> io::Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let good = (1..=64).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain) && name != LOCK_FILE;
    if good { Ok(()) } else { Err(invalid(format!("{name:?} is not a valid name of a file of a store"))) }
}

pub(crate) fn check_pages(at: u64, len: u64) -> io::Result<()> {
    let page = PAGE_BYTES as u64;
    if at.is_multiple_of(page)
        && len.is_multiple_of(page)
        && at.checked_add(len).is_some_and(|end| end <= i64::MAX as u64)
    {
        return Ok(());
    }
    Err(invalid(format!("{len} bytes at {at}: both must be multiples of {PAGE_BYTES}")))
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Returns the type of a non-regular file.
fn not_a_file(directory: &Directory, name: &str) -> io::Result<Option<&'static str>> {
    // The type in a directory listing isn't used: some file systems don't set it.
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

/// Refuses a non-regular file, because opening a pipe or a device may have an effect.
///
/// `check_owned` checks the type again after opening.
fn check_is_file(directory: &Directory, name: &str) -> io::Result<()> {
    match not_a_file(directory, name)? {
        None => Ok(()),
        Some(what) => Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("it is {what}: refused"))),
    }
}

/// Opens a file with `O_DIRECT` if its file system supports it for pages, otherwise without.
fn open_at(directory: impl AsFd, name: &str, access: OFlags) -> io::Result<OwnedFd> {
    let flags = access.union(OPEN);
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::openat(&directory, name, flags.union(OFlags::DIRECT), mode) {
        Ok(fd) => {
            if !direct_in_pages(&fd) {
                let flags = rustix::fs::fcntl_getfl(&fd)?;
                rustix::fs::fcntl_setfl(&fd, flags - OFlags::DIRECT)?;
            }
            Ok(fd)
        }
        // The file may have been created before the flag was refused. No other process creates files here.
        Err(Errno::INVAL) => Ok(rustix::fs::openat(directory, name, flags - OFlags::EXCL, mode)?),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns `false` if, according to the system, direct transfers of whole pages from page-aligned memory are
/// impossible.
fn direct_in_pages(fd: &OwnedFd) -> bool {
    /// `STATX_DIOALIGN`, since Linux 6.1.
    const DIOALIGN: u32 = 0x2000;
    let mask = rustix::fs::StatxFlags::from_bits_retain(DIOALIGN);
    match rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, mask) {
        Ok(stat) if stat.stx_mask & DIOALIGN != 0 => fit_a_page([stat.stx_dio_mem_align, stat.stx_dio_offset_align]),
        _ => true,
    }
}

/// Returns `true` if whole pages meet these alignments in bytes; 0 stands for no direct transfers.
fn fit_a_page(alignments: [u32; 2]) -> bool {
    alignments.iter().all(|align| (1..=PAGE_BYTES as u32).contains(align))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_transfers_need_alignments_of_at_most_a_page() {
        for (alignments, fit) in [
            ([1, 1], true),
            ([4, 512], true),
            ([512, 4096], true),
            ([0, 0], false),
            ([0, 512], false),
            ([512, 0], false),
            ([8192, 512], false),
            ([512, 8192], false),
        ] {
            assert_eq!(fit_a_page(alignments), fit, "{alignments:?}");
        }
    }

    #[test]
    fn direct_transfers_are_used_where_the_file_system_has_them_for_pages() {
        let directory = tempfile::tempdir().expect("a directory");
        let directory = std::fs::File::open(directory.path()).expect("a directory");
        let fd = open_at(&directory, "file", NEW).expect("a file");
        let is_direct = |fd: &OwnedFd| rustix::fs::fcntl_getfl(fd).expect("flags").contains(OFlags::DIRECT);
        let direct = rustix::fs::openat(&directory, "file", OFlags::RDWR | OFlags::DIRECT, Mode::empty());
        let takes_pages = direct.is_ok_and(|direct| {
            let mut page = Buffer::new(PAGE_BYTES);
            page.set_len(PAGE_BYTES);
            rustix::io::pwrite(&direct, page.as_slice(), 0) == Ok(PAGE_BYTES)
        });
        assert_eq!(is_direct(&fd), takes_pages);
    }

    #[test]
    fn files_that_cannot_be_opened_for_direct_transfers_are_opened_without() {
        let directory = std::fs::File::open("/proc/self").expect("a directory");
        let direct = rustix::fs::openat(&directory, "status", OFlags::RDONLY | OFlags::DIRECT, Mode::empty());
        assert_eq!(direct.expect_err("refused by this file system"), Errno::INVAL);
        let fd = open_at(&directory, "status", OFlags::RDONLY).expect("a file");
        assert!(!rustix::fs::fcntl_getfl(&fd).expect("flags").contains(OFlags::DIRECT));
        let error = open_at(&directory, "no such file", OFlags::RDONLY).expect_err("there is none");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn only_plain_names_are_valid() {
        for name in ["segment-00000001", "manifest", "a", "A_b.c"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let long = "a".repeat(65);
        for name in ["", ".", "..", "../a", "a/b", ".hidden", "a b", "lock", "a\0", "ä", &long] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }
}
