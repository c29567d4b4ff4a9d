//! Files of a log in shared memory.

use std::path::{Path, PathBuf};

use counterfoil_log_core::Rank;

/// Returns the file of the lanes.
pub(crate) fn lanes_path(dir: &Path, rank: Rank) -> PathBuf {
    dir.join(format!("log.{}", rank.0))
}

/// Returns the file of the local log.
pub(crate) fn local_path(dir: &Path, rank: Rank) -> PathBuf {
    dir.join(format!("local.{}", rank.0))
}
