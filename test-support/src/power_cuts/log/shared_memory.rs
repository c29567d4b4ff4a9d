//! Shared memory of the local log: a folder emptied by a power cut and not by the end of a process.

use std::path::{Path, PathBuf};

use counterfoil::create_private_dir;
use counterfoil_log_core::{LocalLog, Ssn};
use tempfile::TempDir;

use super::LocalEntry;
use crate::power_cuts::{Explored, Mismatch};

/// The folder of a log's process, and its model.
#[derive(Debug)]
pub(super) struct SharedMemory {
    folder: TempDir,
    /// Local log entries present since the last power cut, discarded ones included.
    written: Vec<LocalEntry>,
}

impl SharedMemory {
    pub(super) fn new() -> SharedMemory {
        // In memory where the system has such a file system: each power cut makes a file.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let memory = SharedMemory { folder: folder.expect("a temporary folder"), written: Vec::new() };
        empty(&memory.dir());
        memory
    }

    /// Returns the folder of the log's process.
    pub(super) fn dir(&self) -> PathBuf {
        self.folder.path().join("process")
    }

    /// Returns an empty folder, for a recovery after a power cut.
    pub(super) fn empty_dir(&self) -> PathBuf {
        let dir = self.folder.path().join("after-a-power-cut");
        empty(&dir);
        dir
    }

    /// Loses everything to a power cut.
    pub(super) fn lose(&mut self) {
        self.written.clear();
        empty(&self.dir());
    }

    /// Records the entries appended by the process.
    pub(super) fn note(&mut self, local: &[LocalEntry]) {
        let last = self.written.last().map_or(Ssn::ZERO, |(ssn, _)| *ssn);
        self.written.extend(local.iter().filter(|(ssn, _)| *ssn > last).cloned());
    }

    /// Compares a recovered local log with `local`, the entries from the ended process, and with `on_disk`, the entries
    /// in the store, which restores them after a power cut.
    ///
    /// None is missing, and discarded ones may be there again. Returns the entries found.
    pub(super) fn check(
        &mut self,
        local: &[LocalEntry],
        on_disk: &[LocalEntry],
        found: &LocalLog,
        explored: &mut Explored,
    ) -> Result<Vec<LocalEntry>, Mismatch> {
        let is_lost = self.written.is_empty();
        self.note(on_disk);
        let must = if is_lost { on_disk } else { local };
        let durable = on_disk.last().map_or(Ssn::ZERO, |(ssn, _)| *ssn);
        explored.unsynced_entries += must.iter().filter(|(ssn, _)| *ssn > durable).count() as u64;
        let entries = found.entries_after(Ssn::ZERO);
        if self.written.ends_with(&entries) && entries.ends_with(must) {
            return Ok(entries);
        }
        Err(Mismatch(format!("shared memory has {} entries of the local log, not {}", entries.len(), must.len())))
    }
}

/// Creates an empty private folder in place of the existing one.
fn empty(dir: &Path) {
    if dir.exists() {
        std::fs::remove_dir_all(dir).expect("a folder of this test");
    }
    create_private_dir(dir).expect("a private folder");
}
