//! Temporary directory for a task's files.

use std::path::{Path, PathBuf};

use crate::workspace::TaskError;

/// A private directory, removed on drop.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Creates the directory in shared memory, if the machine has it.
    ///
    /// `name` must be unique within the process.
    pub(crate) fn create(name: &str) -> Result<Scratch, TaskError> {
        let shared_memory = PathBuf::from("/dev/shm");
        Scratch::create_in(if shared_memory.is_dir() { shared_memory } else { std::env::temp_dir() }, name)
    }

    /// Creates the directory on disk, in `parent`.
    pub(crate) fn on_disk(parent: &Path, name: &str) -> Result<Scratch, TaskError> {
        Scratch::create_in(parent.to_owned(), name)
    }

    fn create_in(parent: PathBuf, name: &str) -> Result<Scratch, TaskError> {
        use std::os::unix::fs::DirBuilderExt;
        let path = parent.join(format!("counterfoil-{name}-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(TaskError::file(&path))?;
        Ok(Scratch(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}
