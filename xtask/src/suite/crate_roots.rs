//! Unsafe code is allowed in five folders; the compiler forbids it in every other crate.

use std::fs;
use std::path::Path;

use crate::workspace::{CrateRoot, Workspace};

/// The folders whose work cannot be done without: raw memory, io_uring (also the one that benchmarks compare with), and two C
/// interfaces.
const UNSAFE_ALLOWED: [&str; 5] = ["log-core", "log-io", "benches/naked-ring", "mpi", "capi"];

/// What every other crate's root file must say.
const FORBID: &str = "#![forbid(unsafe_code)]";

/// Every crate root (also of tests, benches and examples) outside those folders forbids unsafe code.
pub(super) fn check(workspace: &Workspace) -> Result<(), String> {
    let mut checked = 0;
    let mut missing = Vec::new();
    for root in workspace.crate_roots().iter().filter(|root| !may_be_unsafe(root)) {
        let shown = root.file.strip_prefix(workspace.root()).unwrap_or(&root.file);
        let text = fs::read_to_string(&root.file).map_err(|error| format!("{}: {error}", shown.display()))?;
        checked += 1;
        if !forbids_unsafe_code(&text) {
            missing.push(format!("{}: no `{FORBID}`", shown.display()));
        }
    }
    println!("{checked} crate roots outside {}", UNSAFE_ALLOWED.join(", "));
    if missing.is_empty() { Ok(()) } else { Err(missing.join("\n")) }
}

fn may_be_unsafe(root: &CrateRoot) -> bool {
    UNSAFE_ALLOWED.iter().any(|folder| root.folder.starts_with(Path::new(folder)))
}

/// As a line of its own: in a comment it would have no effect.
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
    fn only_these_folders_may_hold_unsafe_code() {
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
