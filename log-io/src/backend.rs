//! The storage backend: disk operations for a store.

pub(crate) mod buffer;
pub(crate) mod buffer_pool;
pub(crate) mod choice;
pub(crate) mod directory;
pub(crate) mod file_reader;
pub(crate) mod files;
#[cfg(test)]
pub(crate) mod memory_file;
pub(crate) mod open;
pub(crate) mod pieces;
pub(crate) mod preallocate;
#[cfg(feature = "io-uring")]
pub(crate) mod probe;
pub(crate) mod pwrite;
#[cfg(feature = "io-uring")]
pub(crate) mod ring;
pub(crate) mod transfer;
#[cfg(feature = "io-uring")]
pub(crate) mod uring;
pub(crate) mod vectored_write;

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use counterfoil_log_core::ChunkImage;

use crate::Buffer;

/// Identifies an open [`StorageBackend`] file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub u32);

/// The kind of a storage backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BackendKind {
    /// io_uring with registered buffers; O_DIRECT where the file system supports it.
    IoUring,
    /// pwrite; O_DIRECT where the file system supports it.
    Pwrite,
    /// A simulated disk in memory, for tests.
    Simulated,
}

/// A directory of files on stable storage, written by one thread.
///
/// Nothing is durable before [`sync`](Self::sync) (a file's bytes) or [`sync_dir`](Self::sync_dir) (creations and
/// removals) has returned: of the changes after the last sync, a power cut keeps any subset, byte by byte.
pub trait StorageBackend: Send + fmt::Debug {
    /// Returns the kind of this backend.
    fn kind(&self) -> BackendKind;

    /// Returns the capacity of each [`Buffer`] in bytes, a multiple of [`PAGE_BYTES`](crate::PAGE_BYTES).
    ///
    /// Limits a single write.
    fn buffer_bytes(&self) -> usize;

    /// Returns all file names.
    ///
    /// # Errors
    /// The operating system's.
    fn list(&mut self) -> io::Result<Vec<String>>;

    /// Returns the names in the directory that aren't regular files, each with its type ("a symbolic link").
    ///
    /// Doesn't open them.
    ///
    /// # Errors
    /// The operating system's.
    fn not_files(&mut self) -> io::Result<Vec<(String, &'static str)>> {
        Ok(Vec::new())
    }

    /// Returns the directory's path, if it has one.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Creates a private file of `bytes` zeros, preallocated on disk.
    ///
    /// # Errors
    /// The name exists; no space. No file is left then.
    fn create(&mut self, name: &str, bytes: u64) -> io::Result<FileId>;

    /// Opens a file.
    ///
    /// # Errors
    /// The file doesn't exist, or isn't this user's private file.
    fn open(&mut self, name: &str) -> io::Result<FileId>;

    /// Returns the file length in bytes.
    ///
    /// # Errors
    /// The operating system's.
    fn len(&mut self, file: FileId) -> io::Result<u64>;

    /// Closes a file.
    ///
    /// Writes in flight still complete; their errors are reported by [`flush`](Self::flush).
    fn close(&mut self, file: FileId);

    /// Removes a file.
    ///
    /// # Errors
    /// Operating system errors; [`io::ErrorKind::NotFound`] if the file doesn't exist.
    fn remove(&mut self, name: &str) -> io::Result<()>;

    /// Returns an empty buffer.
    ///
    /// Waits for a write in flight if all buffers are in use.
    ///
    /// # Errors
    /// Operating system errors from this wait.
    fn buffer(&mut self) -> io::Result<Buffer>;

    /// Starts to write `buffer` at offset `at`.
    ///
    /// Both `at` and the buffer's length are multiples of [`PAGE_BYTES`](crate::PAGE_BYTES). The buffer is reused when
    /// the write completes.
    ///
    /// # Errors
    /// Operating system errors; an error from the write itself may be reported only by [`flush`](Self::flush).
    fn write(&mut self, file: FileId, at: u64, buffer: Buffer) -> io::Result<()>;

    /// Returns an empty buffer, at least a page, for the header of a [`write_chunks`](Self::write_chunks).
    ///
    /// Waits while too many of these writes are in flight. The default implementation returns a
    /// [`buffer`](Self::buffer).
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    fn header_buffer(&mut self) -> io::Result<Buffer> {
        self.buffer()
    }

    /// Starts to write `header` and, right after it, the chunks in order, at offset `at`; see [`write`](Self::write).
    ///
    /// The chunks' memory stays pinned until the write completes; the default implementation copies it into buffers.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn write_chunks(&mut self, file: FileId, mut at: u64, header: Buffer, chunks: Vec<ChunkImage>) -> io::Result<()> {
        let header_bytes = header.len() as u64;
        self.write(file, at, header)?;
        at += header_bytes;
        for chunk in &chunks {
            let mut done = 0;
            while done < chunk.len() {
                let mut buffer = self.buffer()?;
                let len = buffer.capacity().min(chunk.len() - done);
                chunk.copy_to(done, &mut buffer.bytes_mut()[..len]);
                buffer.set_len(len);
                self.write(file, at, buffer)?;
                (at, done) = (at + len as u64, done + len);
            }
        }
        Ok(())
    }

    /// Waits until every started write is complete, in its full length.
    ///
    /// # Errors
    /// Error of the first failed write.
    fn flush(&mut self) -> io::Result<()>;

    /// Flushes, and makes the file's bytes and length durable.
    ///
    /// # Errors
    /// The operating system's. Unsynced bytes may then be lost or not, and no later sync can tell.
    fn sync(&mut self, file: FileId) -> io::Result<()>;

    /// Makes creations and removals durable.
    ///
    /// # Errors
    /// The operating system's.
    fn sync_dir(&mut self) -> io::Result<()>;

    /// Punches a hole at `[at, at + len)`; it reads as zeros afterwards.
    ///
    /// Both are multiples of [`PAGE_BYTES`](crate::PAGE_BYTES).
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] if the file system can't.
    fn punch(&mut self, file: FileId, at: u64, len: u64) -> io::Result<()>;

    /// Truncates a file to `len` bytes.
    ///
    /// # Errors
    /// The operating system's.
    fn truncate(&mut self, file: FileId, len: u64) -> io::Result<()>;

    /// Returns the free bytes in the file system.
    ///
    /// # Errors
    /// The operating system's.
    fn available(&mut self) -> io::Result<u64>;

    /// Opens a file for reading from any thread, also while it is written.
    ///
    /// A reader sees flushed bytes.
    ///
    /// # Errors
    /// The file doesn't exist.
    fn reader(&mut self, name: &str) -> io::Result<Arc<dyn ReadAt>>;
}

/// Positioned reads from any thread.
pub trait ReadAt: Send + Sync + fmt::Debug {
    /// Returns the file length in bytes.
    ///
    /// # Errors
    /// The operating system's.
    fn len(&self) -> io::Result<u64>;

    /// Returns `true` if the file is empty.
    ///
    /// # Errors
    /// The operating system's.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `into` with the bytes from offset `at` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the file ends before; the operating system's.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Returns the file's descriptor if an io_uring may read its whole pages into page-aligned memory.
    ///
    /// The descriptor stays the same while the file is open. `None`, the default, allows only
    /// [`read_at`](Self::read_at).
    fn for_ring(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
