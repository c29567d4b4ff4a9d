//! Hashes the sources of everything exchanged between a job's processes, so programs built from different ones refuse
//! each other.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::{fs, io};

use xxhash_rust::xxh3::Xxh3;

/// Crates with types exchanged by a job's processes. Outside this workspace, where versions tell builds apart, only the
/// first is there.
const CRATES: [&str; 6] = ["workloads", "runtime", "protocols", "ack-piggyback", "gc", "log-core"];

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut hash = Xxh3::new();
    for folder in CRATES.map(|name| root.join(name).join("src")).iter().filter(|folder| folder.is_dir()) {
        println!("cargo::rerun-if-changed={}", folder.display());
        for path in files(folder)? {
            hash.update(path.strip_prefix(&root).unwrap_or(&path).as_os_str().as_encoded_bytes());
            hash.update(&fs::read(&path)?);
        }
    }
    println!("cargo::rustc-env=COUNTERFOIL_SOURCES={:016x}", hash.digest());
    Ok(())
}

/// Returns the files in a folder and below, ordered by path.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(self::files(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
