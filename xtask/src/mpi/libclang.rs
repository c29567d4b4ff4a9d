//! Search for libclang, which bindgen needs to read `mpi.h`: the system's, or else PyPI's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::MpiError;
use super::pypi;

/// Distributions' library directories.
///
/// `*` matches the rest of a directory name.
const SYSTEM_DIRS: [&str; 6] = [
    "/usr/lib/llvm-*/lib",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
];

/// bindgen settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Libclang {
    /// Directory containing `libclang.so`; `None` if bindgen finds it.
    folder: Option<PathBuf>,
    /// Compiler header directory (`stddef.h`), which PyPI's libclang lacks.
    headers: Option<PathBuf>,
}

impl Libclang {
    /// Finds the system's libclang, or installs PyPI's below `folder`.
    pub(super) fn find(folder: &Path) -> Result<Self, MpiError> {
        if std::env::var_os("LIBCLANG_PATH").is_some() || SYSTEM_DIRS.iter().any(|pattern| matches_libclang(pattern)) {
            return Ok(Self { folder: None, headers: None });
        }
        Ok(Self { folder: Some(pypi::libclang(folder)?), headers: compiler_headers() })
    }

    /// Sets the environment for a command that may run bindgen.
    pub(super) fn set_environment(&self, command: &mut Command) {
        if let Some(folder) = &self.folder {
            command.env("LIBCLANG_PATH", folder);
        }
        if let Some(headers) = &self.headers {
            let given = std::env::var("BINDGEN_EXTRA_CLANG_ARGS").unwrap_or_default();
            command.env("BINDGEN_EXTRA_CLANG_ARGS", format!("{given} -I{}", headers.display()).trim_start());
        }
    }
}

/// Returns `true` if a directory matching the pattern contains libclang.
fn matches_libclang(pattern: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return contains_libclang(Path::new(pattern)) };
    let (parent, prefix) = before.rsplit_once('/').unwrap_or(("", before));
    let Ok(entries) = fs::read_dir(parent) else { return false };
    entries.flatten().any(|entry| {
        let is_match = entry.file_name().to_string_lossy().starts_with(prefix);
        is_match && contains_libclang(&entry.path().join(after.trim_start_matches('/')))
    })
}

/// Returns `true` if the directory contains libclang.
fn contains_libclang(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| is_libclang(&entry.file_name().to_string_lossy()))
}

/// Accepts `libclang.so`, `libclang.so.1` and `libclang-14.so`, but not `libclang-cpp.so`.
fn is_libclang(file: &str) -> bool {
    file.strip_prefix("libclang").is_some_and(|rest| {
        rest.starts_with(".so") || (rest.starts_with('-') && rest[1..].starts_with(|c: char| c.is_ascii_digit()))
    })
}

/// Returns the C compiler's header directory.
///
/// Without a compiler, bindgen reports the missing headers.
fn compiler_headers() -> Option<PathBuf> {
    let output = Command::new("cc").arg("-print-file-name=include").output().ok()?;
    let folder = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    folder.join("stddef.h").exists().then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_libraries_of_clang_are_rejected() {
        for good in ["libclang.so", "libclang.so.1", "libclang-14.so.1", "libclang-18.so"] {
            assert!(is_libclang(good), "{good}");
        }
        for bad in ["libclang-cpp.so.14", "libclangAST.a", "libLLVM-14.so", "libclang"] {
            assert!(!is_libclang(bad), "{bad}");
        }
    }

    #[test]
    fn bindgen_receives_the_paths_of_libclang_and_headers() {
        let mut command = Command::new("true");
        let libclang = Libclang { folder: Some("/opt/clang".into()), headers: Some("/opt/include".into()) };
        libclang.set_environment(&mut command);
        let variables: Vec<_> =
            command.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?))).collect();
        assert!(variables.contains(&("LIBCLANG_PATH", "/opt/clang")), "{variables:?}");
        assert!(
            variables
                .iter()
                .any(|(name, value)| *name == "BINDGEN_EXTRA_CLANG_ARGS" && value.ends_with("-I/opt/include"))
        );
    }
}
