//! Shared-memory files of a log.

use std::path::{Path, PathBuf};

use counterfoil_log_core::Rank;

/// Returns the path of the lanes' file.
pub(crate) fn lanes_path(dir: &Path, rank: Rank) -> PathBuf {
    dir.join(format!("log.{}", rank.0))
}

/// Returns the path of the local log's file.
pub(crate) fn local_path(dir: &Path, rank: Rank) -> PathBuf {
    dir.join(format!("local.{}", rank.0))
}
