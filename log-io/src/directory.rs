//! A rank's private directory, and the claim to it.
//!
//! The directory has mode 0700, its files 0600; they are reached relative to one descriptor of the directory and never
//! through a link. Who owns it holds a lock on its file `lock`, which the kernel gives up when the process ends, however
//! it ends.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use counterfoil_log_core::{
    PrivateFileError, check_private_dir, check_readable_dir, create_private_dir, create_private_file, open_private_file,
};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::probe::{self, BackendOptions, Probe, ProbeError};
use crate::{PAGE_BYTES, StorageBackend};

/// How long an owner waits for those who only read.
const READERS_WAIT: Duration = Duration::from_secs(30);
/// Between two attempts.
const READERS_PAUSE: Duration = Duration::from_millis(10);

/// Name of the file that the owner of a directory holds a lock on. It has the owner's process id, to be told to others.
pub(crate) const LOCK_FILE: &str = "lock";

/// What a directory is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DirectoryAccess {
    /// To write: alone. The file `lock` is created where it is missing. Who only reads is waited for, half a minute at the most.
    ReadWrite,
    /// To read, while nobody writes. Nothing is created or changed, so a full or read-only file system will do.
    ReadOnly,
    /// To look at what may be changing: no lock is asked for. What is read may be half of what is being written.
    Look,
}

/// Why a directory can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// It isn't ours, or isn't private, or can't be opened.
    #[error(transparent)]
    Private(#[from] PrivateFileError),
    /// The system refuses something.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A living process has it.
    #[error("{} is in use by {}: wait until it has ended, or end it", path.display(), owner(*pid))]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process that wrote its id there, where one can be read.
        pid: Option<u32>,
    },
    /// io_uring was insisted on.
    #[error("io_uring was asked for and can't be used in {}: {source}; ask for `auto` or `pwrite`", path.display())]
    Probe {
        /// The directory.
        path: PathBuf,
        /// Why not.
        #[source]
        source: ProbeError,
    },
    /// The buffers asked for can't be.
    #[error(
        "{buffers} buffers of {buffer_bytes} bytes: 1 to 1024 of them, each a multiple of {PAGE_BYTES} up to 16 MiB"
    )]
    Options {
        /// How many.
        buffers: usize,
        /// How large, in bytes.
        buffer_bytes: usize,
    },
}

fn owner(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// A private directory that was opened, with the claim to it.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    fd: OwnedFd,
    access: DirectoryAccess,
    /// Holds the lock while it lives.
    _lock: Option<File>,
}

impl Directory {
    /// Opens `path` to write, after having created it durably where nothing of this name exists.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn create(
        path: &Path,
        options: impl Into<BackendOptions>,
    ) -> Result<(Box<dyn StorageBackend>, Probe), DirectoryError> {
        match create_private_dir(path) {
            Ok(()) => sync_parent(path)?,
            Err(PrivateFileError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
        Self::open(path, options, DirectoryAccess::ReadWrite)
    }

    /// Opens `path`. To write, it finds out what its files can be written with; otherwise what is returned only reads.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn open(
        path: &Path,
        options: impl Into<BackendOptions>,
        access: DirectoryAccess,
    ) -> Result<(Box<dyn StorageBackend>, Probe), DirectoryError> {
        let options = options.into();
        options.validate()?;
        probe::backend(Self::claim(path, access)?, &options)
    }

    fn claim(path: &Path, access: DirectoryAccess) -> Result<Directory, DirectoryError> {
        match access {
            DirectoryAccess::ReadWrite => check_private_dir(path)?,
            DirectoryAccess::ReadOnly | DirectoryAccess::Look => check_readable_dir(path)?,
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(failed("opening", path))?;
        let lock_path = path.join(LOCK_FILE);
        let lock = match access {
            DirectoryAccess::ReadWrite => Some(lock_after_readers(path, &lock_path, &fd)?),
            DirectoryAccess::ReadOnly => lock_shared(path, &lock_path, &fd)?,
            DirectoryAccess::Look => None,
        };
        if let Some(lock) = &lock {
            // The lock's path was looked up anew: it has to be the one in the directory that was opened, and still there.
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it was opened for.
    pub fn access(&self) -> DirectoryAccess {
        self.access
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}

/// Locks the directory for its owner. Readers are waited for: a look at a store mustn't keep a rank's replacement from it.
fn lock_after_readers(directory: &Path, path: &Path, fd: &OwnedFd) -> Result<File, DirectoryError> {
    let since = Instant::now();
    loop {
        match lock_alone(directory, path) {
            Err(DirectoryError::Locked { .. }) if since.elapsed() < READERS_WAIT => {
                // An owner isn't waited for: beside one, there is no shared lock.
                lock_shared(directory, path, fd)?;
                std::thread::sleep(READERS_PAUSE);
            }
            locked => return locked,
        }
    }
}

/// Opens the lock file, creating it where it is missing, and says whose it is from now on.
fn lock_alone(directory: &Path, path: &Path) -> Result<File, DirectoryError> {
    let not_found = |error: &PrivateFileError| matches!(error, PrivateFileError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound);
    let locked = match open_private_file(path) {
        // Where another process creates it in this moment, that process has it.
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
            // Only a hint to whoever finds it locked: on a full disk there is none.
            let _ = file.write_all_at(format!("{:>10}\n", std::process::id()).as_bytes(), 0);
            Ok(file)
        }
        Err(PrivateFileError::OwnerAlive { .. }) => {
            Err(DirectoryError::Locked { path: directory.to_owned(), pid: read_pid(path) })
        }
        Err(error) => Err(error.into()),
    }
}

/// Locks the lock file against writers without writing to it; readers don't disturb each other.
fn lock_shared(directory: &Path, path: &Path, fd: &OwnedFd) -> Result<Option<File>, DirectoryError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match rustix::fs::openat(fd, LOCK_FILE, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        // Who would own it would have a lock file.
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(failed("opening", path)(errno)),
    };
    check_ours(&file, DirectoryAccess::ReadOnly).map_err(|source| DirectoryError::Io {
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
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let mut text = [0; 10];
    file.read_exact_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text).ok()?.trim().parse().ok()
}

/// Makes it durable that `path` is in its parent.
fn sync_parent(path: &Path) -> Result<(), DirectoryError> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(parent, flags, Mode::empty()).map_err(failed("opening", parent))?;
    rustix::fs::fsync(fd).map_err(failed("syncing", parent))
}

/// Refuses what isn't a regular file, or which another user owns or may open. Root may read another user's.
pub(crate) fn check_ours(file: impl std::os::fd::AsFd, access: DirectoryAccess) -> io::Result<()> {
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

fn failed(action: &'static str, path: &Path) -> impl FnOnce(Errno) -> DirectoryError {
    move |errno| DirectoryError::Io { action, path: path.to_owned(), source: errno.into() }
}
