//! A private directory for the files of a measurement, removed at its end.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use counterfoil::{OpenError, create_private_dir};

/// A directory for shared-memory files or, on a chosen disk, for stores.
#[derive(Debug)]
pub struct Scratch {
    dir: PathBuf,
    used: Cell<u32>,
}

impl Scratch {
    /// Creates one in `/dev/shm`, or in the temporary directory if there is none.
    ///
    /// # Errors
    /// If the directory can't be created.
    pub fn new() -> Result<Scratch, OpenError> {
        let shm = PathBuf::from("/dev/shm");
        let root = if shm.is_dir() { shm } else { std::env::temp_dir() };
        Scratch::new_in(&root)
    }

    /// Creates one in `root`.
    ///
    /// # Errors
    /// If the directory can't be created.
    pub fn new_in(root: &Path) -> Result<Scratch, OpenError> {
        let unique =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let dir = root.join(format!("counterfoil-bench-{}-{unique:x}", std::process::id()));
        create_private_dir(&dir)?;
        Ok(Scratch { dir, used: Cell::new(0) })
    }

    /// Creates a new directory in it.
    ///
    /// # Errors
    /// If the directory can't be created.
    pub fn fresh_dir(&self) -> Result<PathBuf, OpenError> {
        self.used.set(self.used.get() + 1);
        let dir = self.dir.join(self.used.get().to_string());
        create_private_dir(&dir)?;
        Ok(dir)
    }

    /// Removes a directory created by [`fresh_dir`](Self::fresh_dir).
    pub fn remove(&self, dir: &Path) {
        // Anything left is removed with the whole scratch directory.
        let _ = std::fs::remove_dir_all(dir);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that can't be removed isn't a measurement error.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
