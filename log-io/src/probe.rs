//! The probe for io_uring when a directory is opened.

use std::fmt;
use std::io;

use rustix::fs::AtFlags;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::directory::{Directory, DirectoryAccess, DirectoryError};
use crate::files::Files;
use crate::pwrite::Pwrite;
use crate::uring::Uring;
use crate::{BackendKind, PAGE_BYTES, StorageBackend};

/// Name of the trial file, which exists only during the probe. One that is found was left by a process that ended during it.
pub(crate) const PROBE_FILE: &str = "probe";

/// Setting that permits rings: 0 to all processes, 1 to a group and the administrator, 2 to none.
const SYSCTL: &str = "/proc/sys/kernel/io_uring_disabled";

/// The way of writing. Reads use an io_uring with any choice if the kernel permits one, unless its trial for writing failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BackendChoice {
    /// io_uring if it works, otherwise pwrite.
    #[default]
    Auto,
    /// io_uring, or an error.
    IoUring,
    /// pwrite.
    Pwrite,
}

/// Options of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackendOptions {
    /// The way of writing.
    pub choice: BackendChoice,
    /// Number of buffers, 1 to 1024. Those that aren't being filled can be in flight.
    pub buffers: usize,
    /// Bytes of each, the limit of a single write: a multiple of [`PAGE_BYTES`], at most 16 MiB.
    pub buffer_bytes: usize,
}

impl Default for BackendOptions {
    /// Returns [`BackendChoice::Auto`], 10 buffers of 256 KiB: 8 writes in flight, one buffer being filled, and one complete.
    fn default() -> BackendOptions {
        BackendOptions { choice: BackendChoice::Auto, buffers: 10, buffer_bytes: 256 * 1024 }
    }
}

impl From<BackendChoice> for BackendOptions {
    fn from(choice: BackendChoice) -> BackendOptions {
        BackendOptions { choice, ..BackendOptions::default() }
    }
}

impl BackendOptions {
    pub(crate) fn validate(&self) -> Result<(), DirectoryError> {
        let &BackendOptions { buffers, buffer_bytes, .. } = self;
        let pages = (PAGE_BYTES..=16 << 20).contains(&buffer_bytes) && buffer_bytes.is_multiple_of(PAGE_BYTES);
        if pages && (1..=1024).contains(&buffers) {
            return Ok(());
        }
        Err(DirectoryError::Options { buffers, buffer_bytes })
    }
}

/// Result of the probe.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Probe {
    /// The backend in use.
    pub kind: BackendKind,
    /// The reason why it isn't io_uring.
    pub fallback_reason: Option<String>,
    /// Number of buffers registered with the kernel: fewer than requested if the process may lock too little memory.
    pub registered: usize,
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.kind, &self.fallback_reason) {
            (BackendKind::IoUring, _) => write!(f, "io_uring, {} registered buffers", self.registered),
            (BackendKind::Pwrite, Some(why)) => write!(f, "pwrite ({why})"),
            (BackendKind::Pwrite, None) => f.write_str("pwrite"),
            (BackendKind::Simulated, _) => f.write_str("simulated"),
        }
    }
}

/// An error of the probe for io_uring.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The kernel is too old, or was built without io_uring.
    #[error("this kernel has no io_uring (ENOSYS)")]
    Missing,
    /// io_uring is not permitted.
    #[error("io_uring is not permitted ({errno}): {by}")]
    Refused {
        /// `EPERM` or `EACCES`.
        errno: &'static str,
        /// The likely cause.
        by: String,
    },
    /// There is no memory for the ring.
    #[error("no memory for a ring (ENOMEM): this process may lock {}; raise `ulimit -l`", bytes(*.limit))]
    Memory {
        /// The process's limit of locked memory in bytes.
        limit: Option<u64>,
    },
    /// No space for the trial file.
    #[error("no space left for a trial write: {0}")]
    DiskFull(#[source] io::Error),
    /// A ring was set up, but a step of the trial failed.
    #[error("a ring was set up, but {step} fails: {source}")]
    Trial {
        /// The step.
        step: &'static str,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// Another error of setting up a ring.
    #[error("setting up a ring: {0}")]
    Setup(#[source] io::Error),
}

fn bytes(limit: Option<u64>) -> String {
    limit.map_or_else(|| "any amount of memory".to_owned(), |limit| format!("{limit} bytes"))
}

/// Chooses and returns the backend of a directory.
pub(crate) fn backend(
    directory: Directory,
    options: &BackendOptions,
) -> Result<(Box<dyn StorageBackend>, Probe), DirectoryError> {
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
    let (directory, error) = match Uring::new(buffers, buffer_bytes) {
        Ok(ring) => {
            let registered = ring.registered();
            let mut files = Files::new(directory, ring);
            match trial(&mut files) {
                Ok(()) => {
                    let probe = Probe { kind: BackendKind::IoUring, fallback_reason: None, registered };
                    return Ok((Box::new(files), probe));
                }
                Err(error) => (files.into_directory(), error),
            }
        }
        Err(error) => (directory, setup_error(error)),
    };
    if choice == BackendChoice::IoUring {
        return Err(DirectoryError::Probe { path: directory.path().to_owned(), source: error });
    }
    pwrite(directory, Some(error.to_string()), true)
}

fn remove_old_trial(directory: &Directory) -> Result<(), DirectoryError> {
    match rustix::fs::unlinkat(directory.fd(), PROBE_FILE, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => {
            let path = directory.path().join(PROBE_FILE);
            Err(DirectoryError::Io { action: "removing an old trial file", path, source: errno.into() })
        }
    }
}

/// Writes a page through the ring, syncs it, and reads it back.
fn trial(files: &mut Files<Uring>) -> Result<(), ProbeError> {
    let failed = |step| move |source| ProbeError::Trial { step, source };
    let full = |error: &io::Error| matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let file = files.create(PROBE_FILE, PAGE_BYTES as u64).map_err(|error| match full(&error) {
        true => ProbeError::DiskFull(error),
        false => failed("creating a trial file")(error),
    })?;
    let mut written = || {
        let mut buffer = files.buffer().map_err(failed("a buffer"))?;
        buffer.bytes_mut()[..PAGE_BYTES].fill(0xc5);
        buffer.set_len(PAGE_BYTES);
        files.write(file, 0, buffer).map_err(failed("beginning a write"))?;
        files.flush().map_err(failed("a write"))?;
        files.sync(file).map_err(failed("a sync"))?;
        let mut back = vec![0; PAGE_BYTES];
        let reader = files.reader(PROBE_FILE).map_err(failed("opening what was written"))?;
        reader.read_at(0, &mut back).map_err(failed("reading what was written"))?;
        if back.iter().any(|byte| *byte != 0xc5) {
            return Err(failed("a write")(io::Error::other("other bytes are read than were written")));
        }
        Ok(())
    };
    let written = written();
    files.close(file);
    let removed = files.remove(PROBE_FILE).map_err(failed("removing the trial file"));
    written.and(removed)
}

/// Converts the error of setting up a ring.
fn setup_error(error: io::Error) -> ProbeError {
    match Errno::from_io_error(&error) {
        Some(Errno::NOSYS) => ProbeError::Missing,
        Some(Errno::PERM) => ProbeError::Refused { errno: "EPERM", by: refused_by() },
        Some(Errno::ACCESS) => ProbeError::Refused { errno: "EACCES", by: refused_by() },
        Some(Errno::NOMEM) => ProbeError::Memory { limit: getrlimit(Resource::Memlock).current },
        _ => ProbeError::Setup(error),
    }
}

fn refused_by() -> String {
    let disabled = std::fs::read_to_string(SYSCTL).ok().and_then(|text| text.trim().parse::<u32>().ok());
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let seccomp = status.lines().find_map(|line| line.strip_prefix("Seccomp:")).is_some_and(|mode| mode.trim() == "2");
    match (disabled, seccomp) {
        (Some(value @ 1..), _) => format!("{SYSCTL} is {value}; 0 would permit it"),
        (_, true) => "by a seccomp filter, as container runtimes install one".to_owned(),
        _ => format!("neither by {SYSCTL} nor by a seccomp filter; perhaps by a security module"),
    }
}
