//! Private directories of one job.
//!
//! A job has two: one in memory (`/dev/shm`) for sockets, shared-memory logs and traces, one on disk for checkpoints.
//! Compute nodes have several users, so both are created exclusively with mode 0700 and never reached through a link;
//! one owned by another user is refused. Each has a file `launcher.lock`, locked by the launcher while it is alive:
//! [`clean`](super::clean()) takes the lock to prove it dead, and doesn't rely on a process id.

mod owned;
mod shared;

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use counterfoil_log_core::{PrivateFileError, check_private_dir};

pub use owned::JobDirectory;
pub use shared::{JOB_NAME_BYTES_MAX, SharedJobDirectory};

/// Longest path for binding a Unix socket, in bytes (`sun_path` less its terminating zero).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

const NAME_PREFIX: &str = "counterfoil-";
pub(super) const LOCK_FILE: &str = "launcher.lock";
/// Suffix of a checkpoint directory's name, after its job's name.
pub(super) const CHECKPOINTS_SUFFIX: &str = "-checkpoints";
/// File with the checkpoint directory's path, so that `clean` finds it anywhere.
pub(super) const CHECKPOINTS_FILE: &str = "checkpoints";

/// Reason why a job directory cannot be made, opened or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// A system call failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// Failed action.
        action: &'static str,
        /// Object of the action.
        path: PathBuf,
        /// Operating system error.
        source: io::Error,
    },
    /// A directory cannot be made, or is not private to this user: neither used nor removed.
    #[error(transparent)]
    Private(#[from] PrivateFileError),
    /// Socket paths in this directory would be too long.
    #[error(
        "the socket path {} has {len} bytes and the limit is {SOCKET_PATH_BYTES_MAX}: \
         choose a shorter directory (--shm-dir)",
        path.display()
    )]
    PathTooLong {
        /// Longest socket path.
        path: PathBuf,
        /// Path length in bytes.
        len: usize,
    },
    /// The name is not a valid job name.
    #[error(
        "{name:?} is no name of a job: use 1 to {JOB_NAME_BYTES_MAX} letters, digits, dots, hyphens and underscores, beginning with a letter or \
         a digit"
    )]
    Name {
        /// The name.
        name: String,
    },
}

impl JobError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JobError + use<> {
        let path = path.to_owned();
        move |source| JobError::Io { action, path, source }
    }
}

/// Returns the default parent of job directories in memory: `/dev/shm`, or else the directory for temporary files.
pub fn default_shm_root() -> PathBuf {
    let shm = Path::new("/dev/shm");
    if rustix::fs::access(shm, rustix::fs::Access::WRITE_OK).is_ok() { shm.to_owned() } else { std::env::temp_dir() }
}

/// Returns the default parent of checkpoint directories: `$TMPDIR`, or else `/tmp`.
pub fn default_checkpoint_root() -> PathBuf {
    std::env::temp_dir()
}

/// Paths inside a job directory.
///
/// Creates and removes nothing.
#[derive(Clone, Debug)]
pub struct JobPaths {
    directory: PathBuf,
}

impl JobPaths {
    /// Checks that `directory` is private to this user, and returns the paths in it.
    ///
    /// # Errors
    /// [`JobError::Private`].
    pub fn open(directory: &Path) -> Result<JobPaths, JobError> {
        check_private_dir(directory)?;
        Ok(JobPaths { directory: directory.to_owned() })
    }

    /// Records the checkpoint directory's path for `counterfoil clean`.
    fn write_checkpoints(&self, checkpoints: &Path) -> Result<(), JobError> {
        let pointer = self.directory.join(CHECKPOINTS_FILE);
        fs::write(&pointer, checkpoints.as_os_str().as_encoded_bytes()).map_err(JobError::io("write", &pointer))
    }

    /// Returns the directory itself.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the launcher's socket.
    pub fn launcher_socket(&self) -> PathBuf {
        self.directory.join("launcher")
    }

    /// Returns the socket on which a rank's incarnation listens for its peers.
    pub fn rank_socket(&self, rank: u32, incarnation: u32) -> PathBuf {
        self.directory.join(format!("r{rank}.{incarnation}"))
    }

    /// Returns the directory for shared-memory logs.
    pub fn logs(&self) -> PathBuf {
        self.directory.join("logs")
    }

    /// Returns the directory for traces.
    pub fn traces(&self) -> PathBuf {
        self.directory.join("traces")
    }

    /// Returns the file with standard error from the process manager and its processes.
    pub fn manager_standard_error(&self) -> PathBuf {
        self.directory.join("manager")
    }

    /// Returns the directory for the process manager's temporary files.
    ///
    /// A killed manager leaves its session there: in a directory shared by all jobs, another manager with the same
    /// process id would find it.
    pub fn manager_temporary(&self) -> PathBuf {
        self.directory.join("mpirun")
    }

    /// Returns the file with standard error from a rank's incarnation.
    pub fn standard_error(&self, rank: u32, incarnation: u32) -> PathBuf {
        self.directory.join(format!("e{rank}.{incarnation}"))
    }
}

/// `counterfoil-<uid>-<pid>-<random hex>`.
fn fresh_name() -> String {
    let user = rustix::process::geteuid().as_raw();
    let pid = std::process::id();
    // The hasher's keys come from the operating system's random numbers.
    let random = RandomState::new().build_hasher().finish();
    format!("{NAME_PREFIX}{user}-{pid}-{random:016x}")
}

/// Parses the user id and the launcher's process id from a job directory's name; `None` for other names.
pub(super) fn parse_name(name: &str) -> Option<(u32, u32)> {
    let rest = name.strip_prefix(NAME_PREFIX)?;
    let rest = rest.strip_suffix(CHECKPOINTS_SUFFIX).unwrap_or(rest);
    let mut parts = rest.split('-');
    let user = parts.next()?.parse().ok()?;
    let pid = parts.next()?.parse().ok()?;
    let random = parts.next()?;
    let well_formed = random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    (well_formed && parts.next().is_none()).then_some((user, pid))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use counterfoil_log_core::create_private_dir;

    use super::*;

    #[test]
    fn links_and_open_directories_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let open = root.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(matches!(
            JobPaths::open(&open),
            Err(JobError::Private(PrivateFileError::NotPrivate { mode: 0o750, .. }))
        ));
        let private = root.path().join("private");
        create_private_dir(&private).unwrap();
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&private, &link).unwrap();
        assert!(matches!(JobPaths::open(&link), Err(JobError::Private(PrivateFileError::WrongKind { .. }))));
    }

    #[test]
    fn names_are_recognised_and_others_are_not() {
        let name = fresh_name();
        let ours = (rustix::process::geteuid().as_raw(), std::process::id());
        assert_eq!(parse_name(&name), Some(ours));
        assert_eq!(parse_name(&format!("{name}-checkpoints")), Some(ours));
        for other in ["counterfoil", "counterfoil-1-2", "counterfoil-1-2-zz", "counterfoil-1-2-0123456789abcdef-x"] {
            assert_eq!(parse_name(other), None, "{other}");
        }
    }
}
