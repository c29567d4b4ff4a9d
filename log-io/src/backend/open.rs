//! Directory opening, with a backend that works there.

use std::io;
use std::path::Path;

use counterfoil_log_core::{PrivateFileError, create_private_dir};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::backend::choice::{BackendChoice, BackendOptions, Probe};
use crate::backend::directory::{Directory, DirectoryAccess, DirectoryError, failed};
use crate::backend::files::Files;
#[cfg(feature = "io-uring")]
use crate::backend::probe::ring as probe_ring;
use crate::backend::pwrite::Pwrite;
use crate::format::names::PROBE_FILE;
use crate::{BackendKind, PAGE_BYTES, StorageBackend};

impl Directory {
    /// Opens `path` for writing.
    ///
    /// Creates it first if the name doesn't exist, and makes its entry durable: its creator may not have done so.
    ///
    /// # Errors
    /// [`DirectoryError`], also if the parent directory can't be opened or synced.
    pub fn create(
        path: &Path,
        options: impl Into<BackendOptions>,
    ) -> Result<(Box<dyn StorageBackend>, Probe), DirectoryError> {
        match create_private_dir(path) {
            Ok(()) => {}
            Err(PrivateFileError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
        sync_parent(path)?;
        Self::open(path, options, DirectoryAccess::ReadWrite)
    }

    /// Opens `path`.
    ///
    /// For writing, probes the write methods available here; otherwise the backend is read-only.
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub fn open(
        path: &Path,
        options: impl Into<BackendOptions>,
        access: DirectoryAccess,
    ) -> Result<(Box<dyn StorageBackend>, Probe), DirectoryError> {
        let options = options.into();
        validate(&options)?;
        backend(Self::claim(path, access)?, &options)
    }
}

/// Removes a trial file left by a process that ended during its probe.
fn remove_old_trial(directory: &Directory) -> Result<(), DirectoryError> {
    match rustix::fs::unlinkat(directory.fd(), PROBE_FILE, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => {
            let path = directory.path().join(PROBE_FILE);
            Err(DirectoryError::Io { action: "removing an old trial file", path, source: errno.into() })
        }
    }
}

/// Opens a directory's files for writing through a ring: never in this build.
#[cfg(not(feature = "io-uring"))]
fn probe_ring(
    directory: Directory,
    _: (usize, usize),
) -> Result<(Files<Pwrite>, usize), (Directory, crate::ProbeError)> {
    Err((directory, crate::ProbeError::NotBuilt))
}

/// Checks the buffer number and size.
fn validate(&BackendOptions { buffers, buffer_bytes, .. }: &BackendOptions) -> Result<(), DirectoryError> {
    let pages = (PAGE_BYTES..=16 << 20).contains(&buffer_bytes) && buffer_bytes.is_multiple_of(PAGE_BYTES);
    if pages && (1..=1024).contains(&buffers) {
        return Ok(());
    }
    Err(DirectoryError::Options { buffers, buffer_bytes })
}

/// Chooses and returns the backend of a directory.
fn backend(directory: Directory, options: &BackendOptions) -> Result<(Box<dyn StorageBackend>, Probe), DirectoryError> {
    let &BackendOptions { choice, buffers, buffer_bytes } = options;
    let pwrite = |directory, fallback_reason, ring_failed| {
        let files = Files::new(directory, Pwrite::new(buffers, buffer_bytes));
        let files = if ring_failed { files.without_ring() } else { files };
        let probe = Probe { kind: BackendKind::Pwrite, fallback_reason, registered: 0 };
        Ok((Box::new(files) as Box<dyn StorageBackend>, probe))
    };
    if directory.access() != DirectoryAccess::ReadWrite {
        return pwrite(directory, Some("the directory was opened for reading only".to_owned()), false);
    }
    remove_old_trial(&directory)?;
    if choice == BackendChoice::Pwrite {
        return pwrite(directory, None, false);
    }
    match probe_ring(directory, (buffers, buffer_bytes)) {
        Ok((files, registered)) => {
            Ok((Box::new(files), Probe { kind: BackendKind::IoUring, fallback_reason: None, registered }))
        }
        Err((directory, source)) if choice == BackendChoice::IoUring => {
            Err(DirectoryError::Probe { path: directory.path().to_owned(), source })
        }
        Err((directory, error)) => pwrite(directory, Some(error.to_string()), true),
    }
}

/// Makes the entry for `path` in its parent directory durable.
fn sync_parent(path: &Path) -> Result<(), DirectoryError> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    // It may be a link.
    let fd = rustix::fs::open(parent, OFlags::DIRECTORY.union(OFlags::CLOEXEC), Mode::empty())
        .map_err(failed("opening", parent))?;
    rustix::fs::fsync(fd).map_err(failed("syncing", parent))
}
