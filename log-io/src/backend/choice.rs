//! Backend selection, and its reasons.

use std::fmt;
use std::io;

use crate::BackendKind;
#[cfg(doc)]
use crate::PAGE_BYTES;

/// The write method.
///
/// Reads use an io_uring with any choice if the kernel permits one, unless its write trial failed.
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

/// Backend options.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackendOptions {
    /// The write method.
    pub choice: BackendChoice,
    /// Number of buffers, 1 to 1024.
    ///
    /// Buffers not being filled can be in flight.
    pub buffers: usize,
    /// Buffer size in bytes, the limit for a single write: a multiple of [`PAGE_BYTES`], at most 16 MiB.
    pub buffer_bytes: usize,
}

impl Default for BackendOptions {
    /// Returns [`BackendChoice::Auto`], 10 buffers with 256 KiB each: 8 writes in flight, one buffer being filled, and
    /// one complete.
    fn default() -> BackendOptions {
        BackendOptions { choice: BackendChoice::Auto, buffers: 10, buffer_bytes: 256 * 1024 }
    }
}

impl From<BackendChoice> for BackendOptions {
    fn from(choice: BackendChoice) -> BackendOptions {
        BackendOptions { choice, ..BackendOptions::default() }
    }
}

/// Probe result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Probe {
    /// The backend in use.
    pub kind: BackendKind,
    /// The reason why it isn't io_uring.
    pub fallback_reason: Option<String>,
    /// Number of buffers registered with the kernel: fewer than requested if the process's limit on locked memory is
    /// too low.
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

/// An error probing io_uring.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The program was built without the feature `io-uring`.
    #[error("this program was built without io_uring (feature `io-uring`)")]
    NotBuilt,
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
        /// The process's locked memory limit in bytes.
        limit: Option<u64>,
    },
    /// No space for the trial file.
    #[error("no space left for a trial write: {0}")]
    DiskFull(#[source] io::Error),
    /// The ring was set up, but a trial step failed.
    #[error("a ring was set up, but {step} fails: {source}")]
    Trial {
        /// The step.
        step: &'static str,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// Another ring setup error.
    #[error("setting up a ring: {0}")]
    Setup(#[source] io::Error),
}

fn bytes(limit: Option<u64>) -> String {
    limit.map_or_else(|| "any amount of memory".to_owned(), |limit| format!("{limit} bytes"))
}
