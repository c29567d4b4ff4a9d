//! Directories of a job with a launcher, which makes and removes them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use counterfoil_log_core::{create_private_dir, create_private_file};

use super::{CHECKPOINTS_SUFFIX, JobError, JobPaths, LOCK_FILE, SOCKET_PATH_BYTES_MAX, fresh_name};

/// Directories of a job, owned by its launcher: made by [`JobDirectory::create`], removed on drop.
#[derive(Debug)]
pub struct JobDirectory {
    // Dropped in this order: the files first, then the locks that mark them as in use.
    memory: OwnedDirectory,
    checkpoints: OwnedDirectory,
    paths: JobPaths,
}

impl JobDirectory {
    /// Makes a new job's directories in `shm_root` and `checkpoint_root`, and locks them.
    ///
    /// # Errors
    /// [`JobError`]. Leaves no files.
    pub fn create(shm_root: &Path, checkpoint_root: &Path) -> Result<JobDirectory, JobError> {
        let name = fresh_name();
        let directory = shm_root.join(&name);
        // The job's longest socket name.
        let longest = JobPaths { directory: directory.clone() }.rank_socket(u32::MAX, u32::MAX);
        let len = longest.as_os_str().len();
        if len > SOCKET_PATH_BYTES_MAX {
            return Err(JobError::PathTooLong { path: longest, len });
        }
        let memory = OwnedDirectory::create(&directory)?;
        // Both roots may be the same directory, so the names differ.
        let checkpoints = OwnedDirectory::create(&checkpoint_root.join(format!("{name}{CHECKPOINTS_SUFFIX}")))?;
        let paths = JobPaths { directory };
        paths.write_checkpoints(&checkpoints.path)?;
        for sub in [paths.logs(), paths.traces(), paths.manager_temporary()] {
            create_private_dir(&sub)?;
        }
        Ok(JobDirectory { memory, checkpoints, paths })
    }

    /// Returns the paths in the directory in memory.
    pub fn paths(&self) -> &JobPaths {
        &self.paths
    }

    /// Returns the directory on disk for checkpoints.
    pub fn checkpoints(&self) -> &Path {
        &self.checkpoints.path
    }

    /// Discards the ranks' shared-memory logs, like a power cut.
    ///
    /// # Errors
    /// [`JobError`].
    pub(in crate::local) fn discard_logs(&self) -> Result<(), JobError> {
        let logs = self.paths.logs();
        fs::remove_dir_all(&logs).map_err(JobError::io("remove", &logs))?;
        Ok(create_private_dir(&logs)?)
    }

    /// Discards the process manager's standard error output.
    ///
    /// # Errors
    /// [`JobError::Io`].
    pub(in crate::local) fn discard_manager_errors(&self) -> Result<(), JobError> {
        let errors = self.paths.manager_standard_error();
        fs::remove_file(&errors).map_err(JobError::io("remove", &errors))
    }

    /// Moves the ranks' stores to a directory on the same file system.
    ///
    /// # Errors
    /// [`JobError::Io`]. Stores that were not moved are removed with the job.
    pub(in crate::local) fn keep_stores(&self, to: &Path) -> Result<(), JobError> {
        let from = self.checkpoints();
        for entry in fs::read_dir(from).map_err(JobError::io("list", from))? {
            let entry = entry.map_err(JobError::io("list", from))?;
            if entry.file_name() != LOCK_FILE {
                fs::rename(entry.path(), to.join(entry.file_name())).map_err(JobError::io("move", &entry.path()))?;
            }
        }
        Ok(())
    }

    /// Removes both directories, like a drop, and returns errors.
    ///
    /// # Errors
    /// [`JobError::Io`].
    pub fn remove(mut self) -> Result<(), JobError> {
        self.memory.remove()?;
        self.checkpoints.remove()
    }
}

/// Directory locked while it exists.
#[derive(Debug)]
struct OwnedDirectory {
    path: PathBuf,
    removed: bool,
    _lock: Option<File>,
}

impl OwnedDirectory {
    fn create(path: &Path) -> Result<OwnedDirectory, JobError> {
        create_private_dir(path)?;
        // From here on, a drop removes it again.
        let mut owned = OwnedDirectory { path: path.to_owned(), removed: false, _lock: None };
        owned._lock = Some(create_private_file(&path.join(LOCK_FILE))?);
        Ok(owned)
    }

    fn remove(&mut self) -> Result<(), JobError> {
        if self.removed {
            return Ok(());
        }
        fs::remove_dir_all(&self.path).map_err(JobError::io("remove", &self.path))?;
        self.removed = true;
        Ok(())
    }
}

impl Drop for OwnedDirectory {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(%error, "a job directory could not be removed; `counterfoil clean` removes it");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_job_directory_is_private_and_gone_after_drop() {
        let root = tempfile::tempdir().unwrap();
        let job = JobDirectory::create(root.path(), root.path()).unwrap();
        let (memory, disk) = (job.paths().directory().to_owned(), job.checkpoints().to_owned());
        for path in [&memory, &disk, &job.paths().logs(), &job.paths().traces()] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o7777, 0o700);
        }
        JobPaths::open(&memory).unwrap();
        drop(job);
        assert!(!memory.exists() && !disk.exists());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_kept_stores_remain() {
        let root = tempfile::tempdir().unwrap();
        let job = JobDirectory::create(root.path(), root.path()).unwrap();
        create_private_dir(&job.checkpoints().join("rank-0")).unwrap();
        fs::write(job.checkpoints().join("rank-0").join("manifest"), "x").unwrap();
        job.keep_stores(root.path()).unwrap();
        job.remove().unwrap();
        let left: Vec<_> = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["rank-0"]);
        assert_eq!(fs::read(root.path().join("rank-0/manifest")).unwrap(), b"x");
    }

    #[test]
    fn a_failure_half_way_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let missing = root.path().join("missing");
        assert!(matches!(JobDirectory::create(root.path(), &missing), Err(JobError::Private(_))));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_before_anything_is_made() {
        let root = tempfile::tempdir().unwrap();
        let long = root.path().join("x".repeat(90));
        fs::create_dir(&long).unwrap();
        assert!(matches!(JobDirectory::create(&long, root.path()), Err(JobError::PathTooLong { .. })));
        assert_eq!(fs::read_dir(&long).unwrap().count(), 0);
    }
}
