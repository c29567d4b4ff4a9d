//! A private directory for the logs of a measured job.

use std::path::{Path, PathBuf};

use crate::workspace::TaskError;

/// The directory, in shared memory where the machine has it; removed on drop.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes it; `name` tells apart those of one process.
    pub(super) fn create(name: &str) -> Result<Scratch, TaskError> {
        let root = PathBuf::from("/dev/shm");
        Scratch::below(if root.is_dir() { root } else { std::env::temp_dir() }, name)
    }

    /// The same on a disk: below cargo's target folder.
    pub(super) fn on_disk(target: &Path, name: &str) -> Result<Scratch, TaskError> {
        Scratch::below(target.to_owned(), name)
    }

    fn below(root: PathBuf, name: &str) -> Result<Scratch, TaskError> {
        use std::os::unix::fs::DirBuilderExt;
        let path = root.join(format!("counterfoil-{name}-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(TaskError::file(&path))?;
        Ok(Scratch(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} is left behind: {error}", self.0.display());
        }
    }
}
