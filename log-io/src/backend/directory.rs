//! A rank's private directory, and its lock.
//!
//! The directory has mode 0700, its files 0600; they are opened relative to one directory descriptor and never through
//! a link. The owner process holds a lock on the file `lock`; the kernel releases it when the process ends, however it
//! ends.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use counterfoil_log_core::{
    PrivateFileError, check_private_dir, check_readable_dir, create_private_file, open_private_file,
};
use rustix::fs::{AtFlags, DirEntry, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::PAGE_BYTES;
use crate::backend::choice::ProbeError;
use crate::format::names::{LOCK_FILE, MANIFEST, PROBE_FILE, is_of_a_store};

/// Flags for every opening, here for reading: links aren't followed, child programs don't inherit the file and its
/// lock, and opening a pipe doesn't wait for its other end.
pub(crate) const OPEN: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);
/// Maximum time for an owner to wait for readers.
const READERS_WAIT: Duration = Duration::from_secs(30);
/// Pause between two attempts to lock.
const READERS_PAUSE: Duration = Duration::from_millis(10);

/// Access to a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DirectoryAccess {
    /// Exclusive, for writing.
    ///
    /// Creates the file `lock` if it is missing. Waits up to 30 seconds for readers.
    ReadWrite,
    /// Shared, for reading while no process writes.
    ///
    /// Creates and changes nothing, so it works on a full or read-only file system.
    ReadOnly,
    /// For reading without a lock, also while a process writes.
    ///
    /// A read may see a partial write.
    Inspect,
}

/// An error opening a directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// It belongs to another user, isn't private, or can't be opened.
    #[error(transparent)]
    Private(#[from] PrivateFileError),
    /// An operation failed.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// Its path.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A live process has it open.
    #[error("{} is in use by {}: wait until it has ended, or end it", path.display(), owner(*pid))]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The id in the lock file, if one can be read.
        pid: Option<u32>,
    },
    /// [`BackendChoice::IoUring`](crate::BackendChoice::IoUring) was asked for and can't be used.
    #[error("io_uring was asked for and can't be used in {}: {source}; ask for `auto` or `pwrite`", path.display())]
    Probe {
        /// The directory.
        path: PathBuf,
        /// The reason.
        #[source]
        source: ProbeError,
    },
    /// Buffer number or size out of bounds.
    #[error(
        "{buffers} buffers of {buffer_bytes} bytes: 1 to 1024 of them, each a multiple of {PAGE_BYTES} up to 16 MiB"
    )]
    Options {
        /// Number of buffers.
        buffers: usize,
        /// Buffer size in bytes.
        buffer_bytes: usize,
    },
}

fn owner(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// An open private directory, with its lock.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    fd: OwnedFd,
    access: DirectoryAccess,
    /// Holds the lock.
    _lock: Option<File>,
}

impl Directory {
    /// Removes a store that no process has open: its files, and the directory unless it has other files.
    ///
    /// The removal isn't synced. An interrupted removal can be repeated.
    ///
    /// # Errors
    /// [`DirectoryError`], also for a store in use.
    pub fn remove_store(path: &Path) -> Result<(), DirectoryError> {
        let directory = Self::claim(path, DirectoryAccess::ReadWrite)?;
        let names = rustix::fs::Dir::read_from(&directory.fd).and_then(|entries| {
            let name = |entry: rustix::io::Result<DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
            entries.map(name).collect::<rustix::io::Result<Vec<String>>>()
        });
        let mut names = names.map_err(failed("listing", path))?;
        names.retain(|name| is_of_a_store(name) || name == PROBE_FILE);
        // The manifest goes last: without it, an interrupted removal would leave files not claimed by a store.
        names.sort_unstable_by_key(|name| name == MANIFEST);
        for name in names.iter().map(String::as_str).chain([LOCK_FILE]) {
            let removed = rustix::fs::unlinkat(&directory.fd, name, AtFlags::empty());
            removed.map_err(failed("removing", &path.join(name)))?;
        }
        match rustix::fs::rmdir(path) {
            Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(errno) => Err(failed("removing", path)(errno)),
        }
    }

    /// Opens `path` and locks it for this access.
    pub(crate) fn claim(path: &Path, access: DirectoryAccess) -> Result<Directory, DirectoryError> {
        match access {
            DirectoryAccess::ReadWrite => check_private_dir(path)?,
            DirectoryAccess::ReadOnly | DirectoryAccess::Inspect => check_readable_dir(path)?,
        }
        let fd =
            rustix::fs::open(path, OPEN.union(OFlags::DIRECTORY), Mode::empty()).map_err(failed("opening", path))?;
        let lock_path = path.join(LOCK_FILE);
        let lock = match access {
            DirectoryAccess::ReadWrite => Some(lock_after_readers(path, &lock_path, &fd)?),
            DirectoryAccess::ReadOnly => lock_shared(path, &lock_path, &fd)?,
            DirectoryAccess::Inspect => None,
        };
        if let Some(lock) = &lock {
            // The lock was opened by its path: it must be the file now in the open directory.
            let held = rustix::fs::fstat(lock).map_err(failed("looking at", &lock_path))?;
            let there = rustix::fs::statat(&fd, LOCK_FILE, AtFlags::SYMLINK_NOFOLLOW);
            let there = there.map_err(failed("looking at", &lock_path))?;
            if (held.st_dev, held.st_ino) != (there.st_dev, there.st_ino) {
                let source = io::Error::other("it was replaced while it was being locked");
                return Err(DirectoryError::Io { action: "locking", path: lock_path, source });
            }
        }
        Ok(Directory { path: path.to_owned(), fd, access, _lock: lock })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the access mode.
    pub fn access(&self) -> DirectoryAccess {
        self.access
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}

/// Locks the directory for its owner.
///
/// Waits for readers: inspecting a store must not lock out a rank's replacement.
fn lock_after_readers(directory: &Path, path: &Path, fd: &OwnedFd) -> Result<File, DirectoryError> {
    let since = Instant::now();
    loop {
        match lock_alone(directory, path) {
            Err(DirectoryError::Locked { .. }) if since.elapsed() < READERS_WAIT => {
                // Fails at once if another owner has it: then a shared lock is refused, too.
                lock_shared(directory, path, fd)?;
                std::thread::sleep(READERS_PAUSE);
            }
            locked => return locked,
        }
    }
}

/// Opens the lock file, or creates it, with an exclusive lock, and writes this process's id to it.
fn lock_alone(directory: &Path, path: &Path) -> Result<File, DirectoryError> {
    let not_found = |error: &PrivateFileError| matches!(error, PrivateFileError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound);
    let locked = match open_private_file(path) {
        // Another process may create it at the same moment, and then has the lock.
        Err(error) if not_found(&error) => match create_private_file(path) {
            Err(PrivateFileError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
                open_private_file(path)
            }
            created => created,
        },
        opened => opened,
    };
    match locked {
        Ok(file) => {
            // A hint for the error of other processes: on a full disk it is missing.
            let _ = file.write_all_at(format!("{:>10}\n", std::process::id()).as_bytes(), 0);
            Ok(file)
        }
        Err(PrivateFileError::OwnerAlive { .. }) => {
            Err(DirectoryError::Locked { path: directory.to_owned(), pid: read_pid(path) })
        }
        Err(error) => Err(error.into()),
    }
}

/// Takes a shared lock on the lock file, without writing to it: it keeps out writers, and no readers.
fn lock_shared(directory: &Path, path: &Path, fd: &OwnedFd) -> Result<Option<File>, DirectoryError> {
    let file = match rustix::fs::openat(fd, LOCK_FILE, OPEN, Mode::empty()) {
        Ok(file) => File::from(file),
        // An owner would have created the file.
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(failed("opening", path)(errno)),
    };
    check_owned(&file, DirectoryAccess::ReadOnly).map_err(|source| DirectoryError::Io {
        action: "opening",
        path: path.to_owned(),
        source,
    })?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Err(DirectoryError::Locked { path: directory.to_owned(), pid: read_pid(path) }),
        Err(errno) => Err(failed("locking", path)(errno)),
    }
}

fn read_pid(path: &Path) -> Option<u32> {
    let file = File::from(rustix::fs::open(path, OPEN, Mode::empty()).ok()?);
    let mut text = [0; 10];
    file.read_exact_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text).ok()?.trim().parse().ok()
}

/// Refuses a file that isn't regular, or is owned or accessible by another user.
///
/// Root may read another user's.
pub(crate) fn check_owned(file: impl std::os::fd::AsFd, access: DirectoryAccess) -> io::Result<()> {
    let stat = rustix::fs::fstat(file)?;
    let refused = |what: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return refused("it is not a regular file: refused".to_owned());
    }
    let user = rustix::process::geteuid().as_raw();
    let may_read = access != DirectoryAccess::ReadWrite && rustix::process::geteuid().is_root();
    if stat.st_uid != user && !may_read {
        return refused(format!("it belongs to user {}, not to user {user}: refused", stat.st_uid));
    }
    let mode = stat.st_mode & 0o7777;
    if mode != 0o600 {
        return refused(format!("it has mode {mode:04o}, expected 0600: refused"));
    }
    Ok(())
}

pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(Errno) -> DirectoryError {
    move |errno| DirectoryError::Io { action, path: path.to_owned(), source: errno.into() }
}
