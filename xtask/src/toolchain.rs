//! Detects optional tools, standard libraries and the committed corpora.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::workspace::Workspace;

/// Returns `true` if `cargo nextest` is installed.
pub(crate) fn has_nextest(workspace: &Workspace) -> bool {
    has_subcommand(workspace, "nextest")
}

/// Returns `true` if cargo has a subcommand that doesn't come with it.
pub(crate) fn has_subcommand(workspace: &Workspace, name: &str) -> bool {
    workspace
        .cargo([name, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Returns `true` if the compiler's sysroot contains the standard library for `target`.
///
/// Looks for the library file, since rustup, distributions and manual installations share its location.
pub(crate) fn has_std(workspace: &Workspace, target: &str) -> bool {
    sysroot(workspace).is_some_and(|sysroot| {
        let libraries = sysroot.join("lib/rustlib").join(target).join("lib");
        fs::read_dir(libraries).is_ok_and(|mut entries| {
            entries.any(|entry| entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("libstd-")))
        })
    })
}

fn sysroot(workspace: &Workspace) -> Option<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--print", "sysroot"])
        .current_dir(workspace.root())
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let path = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(path.trim()))
}

/// Counts the files below `folder`: 0 if it does not exist.
///
/// Symbolic links are not followed.
pub(crate) fn count_files(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => count_files(&entry.path()),
            Ok(kind) if kind.is_file() => 1,
            _ => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_installed_target_has_a_standard_library() {
        let workspace = Workspace::load().unwrap();
        let output = Command::new("rustc").arg("-vV").output().unwrap();
        let version = String::from_utf8(output.stdout).unwrap();
        let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
        assert!(has_std(&workspace, host));
        assert!(!has_std(&workspace, "pdp11-unknown-none"));
    }

    #[test]
    fn files_in_subfolders_are_counted() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (all, sources) = (count_files(own), count_files(&own.join("src")));
        assert!(all > sources && sources > 0, "{all} > {sources} > 0");
        assert_eq!(count_files(&own.join("no-such-folder")), 0);
    }
}
