//! Finding and opening stores.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use counterfoil_log_io::{
    BackendChoice, Directory, DirectoryAccess, DirectoryError, ManifestReport, Report, StorageBackend, StoreError,
    StoreView, scan,
};
use counterfoil_profile::Job;
use counterfoil_settings::recover::JobDescription;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::StoreArguments;
use crate::report::OF_RECOVER;
use crate::{Failure, print};

/// Maximum number of scans for a changing store.
const SCANS_MAX: u32 = 10;
const CHANGING: &str = "new checkpoints invalidated every scan, so the result is uncertain: try again, or wait until the store's process \
                        has ended";

/// Stores found in a directory.
pub(super) struct StoreSet {
    pub(super) dirs: Vec<PathBuf>,
    /// True if the directory contains stores, false if it is one.
    pub(super) is_job: bool,
}

/// Result of a command on one store.
pub(super) struct Outcome {
    pub(super) json: Value,
    pub(super) text: String,
    pub(super) is_sound: bool,
}

/// Calls `look` with each store in `arguments.dir` and prints the results and errors.
pub(super) fn for_each(
    arguments: &StoreArguments,
    look: impl FnMut(&Path) -> Result<Outcome, Failure>,
) -> Result<ExitCode, Failure> {
    for_each_in(arguments, &find(&arguments.dir)?, look)
}

/// Like [`for_each`], with the given stores.
pub(super) fn for_each_in(
    arguments: &StoreArguments,
    stores: &StoreSet,
    mut look: impl FnMut(&Path) -> Result<Outcome, Failure>,
) -> Result<ExitCode, Failure> {
    let mut values = Vec::new();
    let mut are_sound = true;
    for dir in &stores.dirs {
        match look(dir) {
            Ok(outcome) => {
                are_sound &= outcome.is_sound;
                if arguments.json {
                    values.push(outcome.json);
                } else {
                    print(&outcome.text)?;
                }
            }
            Err(failure) if stores.is_job => {
                // Continue with the other ranks' stores.
                are_sound = false;
                eprintln!("error: {failure}");
                values.push(json!({ "dir": dir, "error": failure.to_string() }));
            }
            Err(failure) => return Err(failure),
        }
    }
    if arguments.json {
        let value = if stores.is_job { Some(Value::Array(values)) } else { values.pop() };
        print(&value.unwrap_or_default().to_string())?;
    }
    Ok(if are_sound { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Finds the store at `dir`, or the ranks' stores in it.
pub(super) fn find(dir: &Path) -> Result<StoreSet, Failure> {
    let entries = fs::read_dir(dir).map_err(|error| {
        Failure::failed(format!(
            "{}: {error}; expected a rank's store, or a directory with rank-0, rank-1 and so on",
            dir.display()
        ))
    })?;
    let mut ranks = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| Failure::failed(format!("{}: {error}", dir.display())))?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if name == "manifest" || name.starts_with("segment-") || name.starts_with("checkpoint-") {
            return Ok(StoreSet { dirs: vec![dir.to_owned()], is_job: false });
        }
        if let Some(rank) = name.strip_prefix("rank-").and_then(|rank| rank.parse::<u32>().ok()) {
            ranks.push((rank, entry.path()));
        }
    }
    if ranks.is_empty() {
        let what = match Job::read(dir) {
            _ if dir.join(JobDescription::FILE).exists() => format!("contains {OF_RECOVER}"),
            Ok(None) => {
                "contains no store: expected a rank's store, or a directory with rank-0, rank-1 and so on".to_owned()
            }
            Ok(Some(job)) if !job.not_logged.is_empty() => {
                format!("is a job's directory: {}", job.not_logged.join("; "))
            }
            Ok(Some(_)) | Err(_) => "is a job's directory, but no rank left a log in it".to_owned(),
        };
        return Err(Failure::failed(format!("{} {what}", dir.display())));
    }
    ranks.sort_unstable();
    Ok(StoreSet { dirs: ranks.into_iter().map(|(_, path)| path).collect(), is_job: true })
}

/// A store opened for reading.
pub(super) struct OpenedStore {
    pub(super) path: PathBuf,
    pub(super) backend: Box<dyn StorageBackend>,
    /// Set if a running process has the store open and may be writing.
    pub(super) in_use: Option<InUse>,
}

/// Files not referenced by any checkpoint.
pub(super) struct UnreferencedFiles {
    pub(super) left_over: Vec<String>,
    /// Files possibly begun recently by the store's running process.
    pub(super) being_written: Vec<String>,
}

/// Process holding a store open.
#[derive(Clone, Copy, Debug)]
pub(super) struct InUse {
    /// Process id, if known.
    pid: Option<u32>,
}

impl InUse {
    fn by(self) -> String {
        self.pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    }
}

impl OpenedStore {
    /// Opens a store for reading, even if a running process has it open.
    pub(super) fn new(path: &Path) -> Result<OpenedStore, Failure> {
        let open = |access| Directory::open(path, BackendChoice::Pwrite, access).map(|(backend, _)| backend);
        let (backend, in_use) = match open(DirectoryAccess::ReadOnly) {
            Ok(backend) => (backend, None),
            Err(DirectoryError::Locked { pid, .. }) => {
                (open(DirectoryAccess::Inspect).map_err(Failure::failed)?, Some(InUse { pid }))
            }
            Err(error) => return Err(Failure::failed(error)),
        };
        Ok(OpenedStore { path: path.to_owned(), backend, in_use })
    }

    /// Opens the store again with the same access.
    pub(super) fn reopen(&self) -> Result<Box<dyn StorageBackend>, Failure> {
        let access = if self.in_use.is_some() { DirectoryAccess::Inspect } else { DirectoryAccess::ReadOnly };
        let opened = Directory::open(&self.path, BackendChoice::Pwrite, access);
        opened.map(|(backend, _)| backend).map_err(Failure::failed)
    }

    /// Scans the whole store, with a progress bar on a terminal.
    ///
    /// Blocks freed by a running process during the scan look damaged; such a scan is repeated.
    pub(super) fn scan(&mut self) -> Result<Report, Failure> {
        let bar = progress_bar(&self.path);
        let mut scans = 1;
        let result = loop {
            let before = self.sequence();
            let report = scan(&mut *self.backend, &mut |done, total| {
                bar.set_length(total);
                bar.set_position(done);
            });
            // Files can disappear at any time, but a checkpoint's block only after a manifest change.
            let is_certain = match &report {
                Ok(report) => report.is_whole() || before == self.sequence(),
                Err(_) => false,
            };
            if is_certain || self.in_use.is_none() {
                break report.map_err(|error| self.failure(&error));
            }
            if scans == SCANS_MAX {
                break Err(match report {
                    Err(error) => self.failure(&error),
                    Ok(_) => Failure::failed(format!("{}: {CHANGING}", self.path.display())),
                });
            }
            scans += 1;
        };
        bar.finish_and_clear();
        result
    }

    /// Returns the manifest's sequence number.
    fn sequence(&mut self) -> Option<u64> {
        StoreView::new(&mut *self.backend).ok()?.manifest().map(|manifest| manifest.sequence)
    }

    /// Returns the error if the manifest has no valid slot.
    pub(super) fn without_manifest(&mut self) -> Option<StoreError> {
        StoreView::new(&mut *self.backend).err()
    }

    /// Returns the unreferenced files: those to be removed by the next opening for writing unless needed and, for a
    /// store in use, those possibly begun recently by its process.
    pub(super) fn unreferenced_files(&self, report: &Report) -> UnreferencedFiles {
        let session = report.manifest.as_ref().map(|manifest| manifest.session);
        let is_older = |file: &String| {
            let segment = report.segments.iter().find(|segment| segment.file == *file);
            segment.is_some_and(|segment| segment.session.as_ref().ok() < session.as_ref())
        };
        let (left_over, being_written) =
            report.left_over.iter().cloned().partition(|file| self.in_use.is_none() || is_older(file));
        UnreferencedFiles { left_over, being_written }
    }

    /// Adds the store's path to an error, and the process holding it open.
    pub(super) fn failure(&mut self, error: &StoreError) -> Failure {
        let what = match (error, self.in_use) {
            (error, Some(in_use)) => format!("{error} ({} has the store open: try again)", in_use.by()),
            (StoreError::Missing, None) => self.why_missing().to_owned(),
            (error, None) => error.to_string(),
        };
        Failure::failed(format!("{}: {what}", self.path.display()))
    }

    fn why_missing(&mut self) -> &'static str {
        let names = self.backend.list().unwrap_or_default();
        let has_manifest = names.iter().any(|name| name == "manifest");
        if !has_manifest && names.iter().any(|name| name.starts_with("segment-") || name.starts_with("checkpoint-")) {
            "the manifest is missing, and without it no checkpoint is known to be valid: restore it from a copy, or remove the \
             directory"
        } else if has_manifest {
            "no store: its creation was not completed; opening it for writing creates a new one"
        } else {
            "no store"
        }
    }

    /// Formats every report's first lines: owner, path, and the process holding the store open.
    pub(super) fn heading(&self, report: &Report) -> String {
        self.heading_of(&owner(report.manifest.as_ref()))
    }

    /// Like [`heading`](Self::heading), with a known owner.
    pub(super) fn heading_of(&self, owner: &str) -> String {
        let mut text = format!("{owner}: {}", self.path.display());
        if let Some(in_use) = self.in_use {
            text += &format!("\n  in use by {}: data being written may look torn", in_use.by());
        }
        text
    }

    /// Returns every JSON object's first fields.
    pub(super) fn json(&self, rank: Option<u32>, ranks: Option<u32>) -> Value {
        json!({
            "dir": self.path,
            "rank": rank,
            "ranks": ranks,
            "in_use": self.in_use.is_some(),
            "process": self.in_use.and_then(|in_use| in_use.pid),
        })
    }

    /// Like [`json`](Self::json), for a report.
    pub(super) fn json_of(&self, report: &Report) -> Value {
        let of = report.manifest.as_ref();
        self.json(of.map(|of| of.rank.0), of.map(|of| of.ranks))
    }
}

/// Names the rank owning a store.
pub(super) fn owner(manifest: Option<&ManifestReport>) -> String {
    let unknown = || "a store without a valid manifest".to_owned();
    manifest.map_or_else(unknown, |of| format!("{} of {}", of.rank, of.ranks))
}

/// Adds fields to a JSON object.
pub(super) fn merge(mut object: Value, fields: Value) -> Value {
    if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
        object.extend(fields);
    }
    object
}

/// Creates a progress bar on standard error; hidden if not a terminal.
pub(super) fn progress_bar(path: &Path) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bar:32.cyan/blue} {bytes}/{total_bytes} {bytes_per_sec}");
    let bar = ProgressBar::new(0).with_message(path.display().to_string());
    match style {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

/// Formats, for example, "1 block" or "2 blocks".
pub(super) fn count(number: usize, noun: &str) -> String {
    let plural = match noun.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{noun}s"),
    };
    if number == 1 { format!("1 {noun}") } else { format!("{number} {plural}") }
}
