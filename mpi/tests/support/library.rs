//! Preloaded C libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a source file in this crate, with the MPI's compiler, into a library `libNAME.so` in a folder; returns its
/// path.
pub(crate) fn library(source: &str, name: &str, folder: &Path) -> PathBuf {
    let (library, source) = (folder.join(format!("lib{name}.so")), Path::new(env!("CARGO_MANIFEST_DIR")).join(source));
    let mut command = Command::new(std::env::var("MPICC").unwrap_or_else(|_| "mpicc".to_owned()));
    command.args(["-O1", "-Wall", "-Wno-stringop-overread", "-shared", "-fPIC", "-o"]).arg(&library);
    let output = command.arg(source).args(["-ldl", "-lpthread"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}
