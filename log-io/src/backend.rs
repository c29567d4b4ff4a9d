//! What a store needs of a disk.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use counterfoil_log_core::ChunkImage;

use crate::Buffer;

/// An open file of a [`StorageBackend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub u32);

/// How a backend reaches its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BackendKind {
    /// io_uring with registered buffers, O_DIRECT where the file system has it.
    IoUring,
    /// pwrite, O_DIRECT where the file system has it.
    Pwrite,
    /// Memory that forgets like a disk.
    Simulated,
}

/// A directory of files on stable storage, as one thread writes it.
///
/// Nothing is durable before [`sync`](Self::sync) (a file's bytes) or [`sync_dir`](Self::sync_dir) (its being there, or
/// not being there) has returned: of what came after, a power cut keeps any subset, byte by byte.
pub trait StorageBackend: Send + fmt::Debug {
    /// How it reaches its files.
    fn kind(&self) -> BackendKind;

    /// Capacity of each [`Buffer`] in bytes, the largest single write: a multiple of [`PAGE_BYTES`](crate::PAGE_BYTES).
    fn buffer_bytes(&self) -> usize;

    /// The names of all files.
    ///
    /// # Errors
    /// What the system says, here and below.
    fn list(&mut self) -> io::Result<Vec<String>>;

    /// Those of the names that are not files but links, directories or pipes, each with what it is. They are not opened for that.
    ///
    /// # Errors
    /// What the system says.
    fn not_files(&mut self) -> io::Result<Vec<(String, &'static str)>> {
        Ok(Vec::new())
    }

    /// The directory, where it has a path.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Creates a private file of `bytes` bytes that read as zeros and have their place on the disk.
    ///
    /// # Errors
    /// A file of this name exists; no space. Nothing is left then.
    fn create(&mut self, name: &str, bytes: u64) -> io::Result<FileId>;

    /// Opens a file.
    ///
    /// # Errors
    /// There is none, or it isn't ours.
    fn open(&mut self, name: &str) -> io::Result<FileId>;

    /// Length of a file in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn len(&mut self, file: FileId) -> io::Result<u64>;

    /// Closes a file; its writes are completed first, and an error of theirs is kept for [`flush`](Self::flush).
    fn close(&mut self, file: FileId);

    /// Removes a file.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::NotFound`] where there is none.
    fn remove(&mut self, name: &str) -> io::Result<()>;

    /// An empty buffer; waits for a write in flight where all are in use.
    ///
    /// # Errors
    /// The system's, of a write that was waited for.
    fn buffer(&mut self) -> io::Result<Buffer>;

    /// Begins to write what `buffer` holds at `at`. Both `at` and the buffer's length are multiples of
    /// [`PAGE_BYTES`](crate::PAGE_BYTES). The buffer goes back to where it came from when the write is complete.
    ///
    /// # Errors
    /// The system's; an error of the write itself may only be seen by [`flush`](Self::flush).
    fn write(&mut self, file: FileId, at: u64, buffer: Buffer) -> io::Result<()>;

    /// An empty buffer of at least a page for the front of a [`write_chunks`](Self::write_chunks); waits where as many of these
    /// are in flight as may be. The default is any [`buffer`](Self::buffer).
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    fn head(&mut self) -> io::Result<Buffer> {
        self.buffer()
    }

    /// Begins to write what `head` holds at `at`, and the chunks one behind the other behind it, as [`write`](Self::write)
    /// does. The memory of the chunks is kept until the write is complete; the default copies it into buffers.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn write_chunks(&mut self, file: FileId, mut at: u64, head: Buffer, chunks: Vec<ChunkImage>) -> io::Result<()> {
        let head_bytes = head.len() as u64;
        self.write(file, at, head)?;
        at += head_bytes;
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

    /// Waits until every write that was begun is complete, in its full length.
    ///
    /// # Errors
    /// The first one of them that failed.
    fn flush(&mut self) -> io::Result<()>;

    /// Flushes, and makes the file's bytes and length durable.
    ///
    /// # Errors
    /// The system's. What was not synced before may or may not be there then, and no later sync can tell.
    fn sync(&mut self, file: FileId) -> io::Result<()>;

    /// Makes creations and removals durable.
    ///
    /// # Errors
    /// What the system says.
    fn sync_dir(&mut self) -> io::Result<()>;

    /// Gives the space of `[at, at + len)` back; it reads as zeros afterwards. Multiples of [`PAGE_BYTES`](crate::PAGE_BYTES).
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where the file system can't.
    fn punch(&mut self, file: FileId, at: u64, len: u64) -> io::Result<()>;

    /// Cuts a file to `len` bytes.
    ///
    /// # Errors
    /// What the system says.
    fn truncate(&mut self, file: FileId, len: u64) -> io::Result<()>;

    /// Bytes that the file system has left.
    ///
    /// # Errors
    /// What the system says.
    fn available(&mut self) -> io::Result<u64>;

    /// Reads a file beside its writer, on any thread. Sees what was flushed.
    ///
    /// # Errors
    /// There is no such file.
    fn reader(&mut self, name: &str) -> io::Result<Arc<dyn ReadAt>>;
}

/// A file to be read at any place, from any thread.
pub trait ReadAt: Send + Sync + fmt::Debug {
    /// Length of the file in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// What the system says.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `into` with the bytes from `at` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] where the file ends before; what the system says.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// The descriptor of the file, the same one as long as it is open, where an io_uring may read whole pages of it into
    /// memory that is aligned to pages. `None`, as the default has it: there is only [`read_at`](Self::read_at).
    fn for_ring(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
