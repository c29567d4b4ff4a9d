//! libclang, with which bindgen reads `mpi.h`: the system's, or PyPI's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::MpiError;
use super::pypi;

/// Folders in which distributions put it, or whose subfolders have it in `lib`.
const FOLDERS: [&str; 6] = [
    "/usr/lib/llvm-*/lib",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
];

/// What bindgen has to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Libclang {
    /// Where `libclang.so` is; `None` where bindgen finds it by itself.
    folder: Option<PathBuf>,
    /// A folder with the compiler's own headers (`stddef.h`), which PyPI's libclang lacks.
    headers: Option<PathBuf>,
}

impl Libclang {
    /// Looks for the system's; else installs PyPI's below `folder`.
    pub(super) fn find(folder: &Path) -> Result<Self, MpiError> {
        if std::env::var_os("LIBCLANG_PATH").is_some() || FOLDERS.iter().any(|folder| has_libclang(folder)) {
            return Ok(Self { folder: None, headers: None });
        }
        Ok(Self { folder: Some(pypi::libclang(folder)?), headers: compiler_headers() })
    }

    pub(super) fn environment(&self, command: &mut Command) {
        if let Some(folder) = &self.folder {
            command.env("LIBCLANG_PATH", folder);
        }
        if let Some(headers) = &self.headers {
            let given = std::env::var("BINDGEN_EXTRA_CLANG_ARGS").unwrap_or_default();
            command.env("BINDGEN_EXTRA_CLANG_ARGS", format!("{given} -I{}", headers.display()).trim_start());
        }
    }
}

/// Whether a folder, or one of those that `*` at its end stands for, has the library that bindgen loads.
fn has_libclang(folder: &str) -> bool {
    let Some((before, behind)) = folder.split_once('*') else { return lists_libclang(Path::new(folder)) };
    let (parent, start) = before.rsplit_once('/').unwrap_or(("", before));
    let Ok(entries) = fs::read_dir(parent) else { return false };
    entries.flatten().any(|entry| {
        let fits = entry.file_name().to_string_lossy().starts_with(start);
        fits && lists_libclang(&entry.path().join(behind.trim_start_matches('/')))
    })
}

/// `libclang.so`, `libclang.so.1`, `libclang-14.so`: but not `libclang-cpp.so`.
fn lists_libclang(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| is_libclang(&entry.file_name().to_string_lossy()))
}

fn is_libclang(file: &str) -> bool {
    file.strip_prefix("libclang").is_some_and(|rest| {
        rest.starts_with(".so") || (rest.starts_with('-') && rest[1..].starts_with(|c: char| c.is_ascii_digit()))
    })
}

/// Those of the C compiler that is there; `None` where there is none, and bindgen says what it lacks.
fn compiler_headers() -> Option<PathBuf> {
    let output = Command::new("cc").arg("-print-file-name=include").output().ok()?;
    let folder = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    folder.join("stddef.h").exists().then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_interface_is_told_from_the_other_libraries() {
        for good in ["libclang.so", "libclang.so.1", "libclang-14.so.1", "libclang-18.so"] {
            assert!(is_libclang(good), "{good}");
        }
        for bad in ["libclang-cpp.so.14", "libclangAST.a", "libLLVM-14.so", "libclang"] {
            assert!(!is_libclang(bad), "{bad}");
        }
    }

    #[test]
    fn bindgen_is_told_what_it_would_not_find() {
        let mut command = Command::new("true");
        let libclang = Libclang { folder: Some("/opt/clang".into()), headers: Some("/opt/include".into()) };
        libclang.environment(&mut command);
        let told: Vec<_> =
            command.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?))).collect();
        assert!(told.contains(&("LIBCLANG_PATH", "/opt/clang")), "{told:?}");
        assert!(
            told.iter().any(|(name, value)| *name == "BINDGEN_EXTRA_CLANG_ARGS" && value.ends_with("-I/opt/include"))
        );
    }
}
