//! Files in the workspace.

use std::fs;
use std::path::{Path, PathBuf};

/// Directories without project sources.
const SKIPPED: [&str; 2] = ["target", ".git"];

/// Adds the tree's files with this extension, skipping directories without sources.
pub(super) fn find_files(folder: &Path, extension: &str, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        if entry.file_type().map_err(failed)?.is_dir() {
            if !SKIPPED.iter().any(|skipped| entry.file_name() == *skipped) {
                find_files(&path, extension, files)?;
            }
        } else if path.extension().is_some_and(|of| of == extension) {
            files.push(path);
        }
    }
    Ok(())
}
