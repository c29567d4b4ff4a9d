//! Checks that every crate outside five directories forbids unsafe code.

use std::fs;
use std::path::Path;

use crate::workspace::{CrateRoot, Workspace};

/// Directories of crates that need unsafe code: raw memory, io_uring (also in a benchmark's baseline) and two C
/// interfaces.
const UNSAFE_ALLOWED: [&str; 5] = ["log-core", "log-io", "benches/naked-ring", "mpi", "capi"];

/// Attribute required in every other crate root.
const FORBID: &str = "#![forbid(unsafe_code)]";

/// Checks the crate roots of libraries, programs, tests, benchmarks and examples.
///
/// # Errors
/// The crate roots without the attribute, one per line.
pub(super) fn check(workspace: &Workspace) -> Result<(), String> {
    let mut checked = 0;
    let mut missing = Vec::new();
    for root in workspace.crate_roots().iter().filter(|root| !may_be_unsafe(root)) {
        let shown = root.file.strip_prefix(workspace.root()).unwrap_or(&root.file);
        let text = fs::read_to_string(&root.file).map_err(|error| format!("{}: {error}", shown.display()))?;
        checked += 1;
        if !forbids_unsafe_code(&text) {
            missing.push(format!("{}: `{FORBID}` is missing", shown.display()));
        }
    }
    println!("checked {checked} crate roots outside {}", UNSAFE_ALLOWED.join(", "));
    if missing.is_empty() { Ok(()) } else { Err(missing.join("\n")) }
}

fn may_be_unsafe(root: &CrateRoot) -> bool {
    UNSAFE_ALLOWED.iter().any(|folder| root.folder.starts_with(Path::new(folder)))
}

/// Requires a line without other text, since a commented attribute has no effect.
fn forbids_unsafe_code(text: &str) -> bool {
    text.lines().any(|line| line.trim() == FORBID)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn root(folder: &str) -> CrateRoot {
        CrateRoot { folder: PathBuf::from(folder), file: PathBuf::new() }
    }

    #[test]
    fn only_the_listed_folders_may_have_unsafe_code() {
        for allowed in ["log-core", "log-io", "mpi", "mpi/preload", "benches/naked-ring", "capi"] {
            assert!(may_be_unsafe(&root(allowed)), "{allowed}");
        }
        for forbidden in ["", "gc", "runtime", "benches", "test-support", "mpirun", "log-core-extras"] {
            assert!(!may_be_unsafe(&root(forbidden)), "{forbidden}");
        }
    }

    #[test]
    fn a_commented_attribute_does_not_count() {
        assert!(forbids_unsafe_code("//! Docs\n#![forbid(unsafe_code)]\nmod a;"));
        assert!(!forbids_unsafe_code("//! Docs\n// #![forbid(unsafe_code)]"));
        assert!(!forbids_unsafe_code("#![deny(unsafe_code)]"));
    }
}
