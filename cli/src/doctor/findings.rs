//! One thing after the other.

use std::fmt;
use std::path::Path;

use counterfoil::store::{BackendChoice, BackendKind, Directory};
use counterfoil_runtime::local::{JobDirectory, default_shm_root};
use indicatif::BinaryBytes;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::disk;
use crate::run::find_library;
use crate::run::mpi::{Mpi, MpiError};

/// What buffers of a store want to have locked: ten of 256 KiB, and room for others.
const MEMLOCK_BYTES: u64 = 8 << 20;
/// What a few ranks' logs take at the default budget.
const SHM_BYTES: u64 = 1 << 30;
/// A disk below this can't keep up with what one rank sends.
const DISK_BYTES_PER_S: f64 = 100e6;

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// As it should be.
    Good,
    /// It works without, or with less.
    Lacking,
    /// Nothing works without.
    Missing,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    /// One or two words.
    what: &'static str,
    pub(super) state: State,
    /// What there is, for people.
    found: String,
    /// What to do about what lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
    /// What there is, for programs.
    #[serde(flatten)]
    figures: Map<String, Value>,
}

impl Finding {
    fn new(what: &'static str, found: impl Into<String>, figures: Value) -> Finding {
        let figures = if let Value::Object(figures) = figures { figures } else { Map::new() };
        Finding { what, state: State::Good, found: found.into(), advice: None, figures }
    }

    fn but(mut self, state: State, advice: impl Into<String>) -> Finding {
        self.state = state;
        self.advice = Some(advice.into());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.state {
            State::Good => "good",
            State::Lacking => "lacking",
            State::Missing => "missing",
        };
        write!(f, "{:<14} {mark:<8} {}", self.what, self.found)?;
        if let Some(advice) = &self.advice {
            write!(f, "\n{:<14} {:<8} {advice}", "", "->")?;
        }
        Ok(())
    }
}

/// Everything, with a directory in which files are made and removed.
pub(super) fn all(dir: &Path) -> Vec<Finding> {
    let mut findings = mpis();
    findings.extend([io_uring(dir), memlock(), shared_memory(), disk(dir)]);
    findings
}

/// Each MPI that is there, once.
fn mpis() -> Vec<Finding> {
    let mut seen: Vec<Mpi> = Vec::new();
    let mut findings = Vec::new();
    let variable = std::env::var("COUNTERFOIL_MPI").ok().filter(|value| !value.is_empty());
    let named = variable.as_deref().map(|asked| Some((asked, "COUNTERFOIL_MPI")));
    let by_name = ["debian", "wheel"].map(|asked| Some((asked, "--mpi")));
    for asked in named.into_iter().chain([None]).chain(by_name) {
        match Mpi::find(asked) {
            Ok(mpi) if seen.iter().any(|known| known.name == mpi.name) => {}
            Ok(mpi) => {
                findings.push(library(&mpi));
                findings.push(ulfm(&mpi));
                seen.push(mpi);
            }
            // Not every machine has every one.
            Err(MpiError::None { .. } | MpiError::NoDebian { .. } | MpiError::NoWheel { .. }) => {}
            Err(error) => {
                findings
                    .push(Finding::new("MPI", error.to_string(), json!({})).but(State::Lacking, "name another one"));
            }
        }
    }
    if seen.is_empty() {
        let advice = MpiError::none().to_string();
        findings.insert(0, Finding::new("MPI", "none", json!({})).but(State::Missing, advice));
    } else if named.is_none() && Mpi::in_path().is_none() {
        let advice = format!("counterfoil run: {}", MpiError::none());
        findings.push(Finding::new("MPI", "none in PATH", json!({})).but(State::Lacking, advice));
    }
    findings
}

fn library(mpi: &Mpi) -> Finding {
    let named = std::env::var_os("COUNTERFOIL_MPI_LIBRARY").filter(|value| !value.is_empty());
    let found = find_library(named.as_deref().map(Path::new), mpi);
    let figures = json!({
        "name": mpi.name, "version": mpi.version, "mpirun": mpi.mpirun, "library": found.as_ref().ok(),
    });
    let text = format!("{mpi}, {}", mpi.mpirun.display());
    match found {
        Ok(library) => Finding::new("MPI", format!("{text}; library {}", library.display()), figures),
        Err(error) => {
            Finding::new("MPI", format!("{text}; no library",), figures).but(State::Lacking, error.to_string())
        }
    }
}

fn ulfm(mpi: &Mpi) -> Finding {
    let has = mpi.has_ulfm();
    let figures = json!({ "name": mpi.name, "ulfm": has });
    match has {
        Some(true) => Finding::new("ULFM", format!("{mpi} has it (mpirun --with-ft ulfm)"), figures),
        Some(false) => Finding::new("ULFM", format!("{mpi} has none"), figures).but(
            State::Lacking,
            "logging needs none; a program that is to outlive a rank does: Open MPI 5, as `cargo xtask preload --mpi wheel` installs it",
        ),
        None => Finding::new("ULFM", format!("{mpi} doesn't say"), figures)
            .but(State::Lacking, "it has no ompi_info that could be asked; mpirun --with-ft ulfm tells whether it works"),
    }
}

/// In a store's directory of our own, which is removed.
fn io_uring(dir: &Path) -> Finding {
    let failed = |error: String| {
        Finding::new("io_uring", "not known", json!({ "error": error }))
            .but(State::Missing, format!("{error}; give a directory that can be written with --dir"))
    };
    let job = match JobDirectory::create(&default_shm_root(), dir) {
        Ok(job) => job,
        Err(error) => return failed(error.to_string()),
    };
    match Directory::create(&job.checkpoints().join("probe"), BackendChoice::Auto) {
        Ok((_, probe)) => {
            let figures =
                json!({ "io_uring": probe.kind == BackendKind::IoUring, "registered_buffers": probe.registered });
            let finding = Finding::new("io_uring", probe.to_string(), figures);
            if probe.kind == BackendKind::IoUring {
                finding
            } else {
                finding
                    .but(State::Lacking, "what is spilled is written by threads; permit io_uring to use less of a core")
            }
        }
        Err(error) => failed(error.to_string()),
    }
}

fn memlock() -> Finding {
    let limit = getrlimit(Resource::Memlock).current;
    let text = limit.map_or_else(|| "no limit".to_owned(), |limit| BinaryBytes(limit).to_string());
    let finding = Finding::new("locked memory", text, json!({ "memlock_bytes": limit }));
    match limit {
        Some(limit) if limit < MEMLOCK_BYTES => finding.but(
            State::Lacking,
            format!(
                "buffers of the disk want {}: `ulimit -l`, or memlock in /etc/security/limits.conf",
                BinaryBytes(MEMLOCK_BYTES)
            ),
        ),
        _ => finding,
    }
}

fn shared_memory() -> Finding {
    let root = default_shm_root();
    let Ok(status) = rustix::fs::statvfs(&root) else {
        return Finding::new("shared memory", format!("{} can't be looked at", root.display()), json!({}))
            .but(State::Lacking, "the process-crash-safe tier needs /dev/shm");
    };
    let (size, free) = (status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize);
    let text = format!("{} in {}, {} free", BinaryBytes(size), root.display(), BinaryBytes(free));
    let finding = Finding::new("shared memory", text, json!({ "shm_bytes": size, "shm_free_bytes": free }));
    if root != Path::new("/dev/shm") {
        return finding.but(State::Lacking, "/dev/shm can't be written: shared-memory files would be on a disk");
    }
    if free < SHM_BYTES {
        return finding.but(
            State::Lacking,
            "the process-crash-safe tier needs the budget of each rank there: a larger /dev/shm (in a container --shm-size), or a \
             smaller --budget",
        );
    }
    finding
}

fn disk(dir: &Path) -> Finding {
    match disk::rate(dir) {
        Ok(rate) => {
            let how = if rate.is_direct { "past the page cache" } else { "through the page cache, then synced" };
            let text = format!(
                "{}: {:.0} MB/s ({} written {how})",
                dir.display(),
                rate.bytes_per_s / 1e6,
                BinaryBytes(rate.bytes)
            );
            let figures = json!({ "dir": dir, "disk_bytes_per_s": rate.bytes_per_s, "direct": rate.is_direct });
            let finding = Finding::new("disk", text, figures);
            if rate.bytes_per_s < DISK_BYTES_PER_S {
                finding.but(
                    State::Lacking,
                    "what is spilled will hold senders up: another directory (--log-dir, TMPDIR), or a larger --budget",
                )
            } else {
                finding
            }
        }
        Err(error) => Finding::new("disk", format!("{}: {error}", dir.display()), json!({ "dir": dir }))
            .but(State::Missing, "give a directory that can be written with --dir"),
    }
}
