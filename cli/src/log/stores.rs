//! Finding the stores that are meant, and reaching their files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use counterfoil::store::{
    BackendChoice, Directory, DirectoryAccess, DirectoryError, ManifestReport, Report, StorageBackend, StoreError,
    StoreView, scan,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::Place;
use crate::{Failure, print};

/// How often a store that changes while it is read is looked at.
const LOOKS_MAX: u32 = 10;
const CHANGING: &str = "checkpoints were taken each time while it was being read, so nothing certain can be said: try again, \
                        or when its process has ended";

/// The stores in a directory.
pub(super) struct Found {
    pub(super) dirs: Vec<PathBuf>,
    /// The directory has stores, and isn't one.
    pub(super) is_job: bool,
}

/// What was found out about one store.
pub(super) struct Outcome {
    pub(super) json: Value,
    pub(super) text: String,
    pub(super) is_sound: bool,
}

/// Does `look` with each store, and prints what comes out, and what fails.
pub(super) fn for_each(
    place: &Place,
    look: impl FnMut(&Path) -> Result<Outcome, Failure>,
) -> Result<ExitCode, Failure> {
    each(place, &find(&place.dir)?, look)
}

/// As [`for_each`], with these stores.
pub(super) fn each(
    place: &Place,
    found: &Found,
    mut look: impl FnMut(&Path) -> Result<Outcome, Failure>,
) -> Result<ExitCode, Failure> {
    let mut values = Vec::new();
    let mut are_sound = true;
    for dir in &found.dirs {
        match look(dir) {
            Ok(outcome) => {
                are_sound &= outcome.is_sound;
                if place.json {
                    values.push(outcome.json);
                } else {
                    print(&outcome.text)?;
                }
            }
            Err(failure) if found.is_job => {
                // The other ranks' stores are of interest all the same.
                are_sound = false;
                eprintln!("error: {failure}");
                values.push(json!({ "dir": dir, "error": failure.to_string() }));
            }
            Err(failure) => return Err(failure),
        }
    }
    if place.json {
        let value = if found.is_job { Some(Value::Array(values)) } else { values.pop() };
        print(&value.unwrap_or_default().to_string())?;
    }
    Ok(if are_sound { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The stores that `dir` is, or has.
pub(super) fn find(dir: &Path) -> Result<Found, Failure> {
    let entries = fs::read_dir(dir).map_err(|error| {
        Failure::failed(format!(
            "{}: {error}; give a rank's store, or the directory with rank-0, rank-1 and so on",
            dir.display()
        ))
    })?;
    let mut ranks = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| Failure::failed(format!("{}: {error}", dir.display())))?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if name == "manifest" || name.starts_with("segment-") || name.starts_with("checkpoint-") {
            return Ok(Found { dirs: vec![dir.to_owned()], is_job: false });
        }
        if let Some(rank) = name.strip_prefix("rank-").and_then(|rank| rank.parse::<u32>().ok()) {
            ranks.push((rank, entry.path()));
        }
    }
    if ranks.is_empty() {
        let what = match dir.join(counterfoil_profile::job::FILE).exists() {
            true => "is a job's directory, and no rank left a log in it",
            false => "has no store: give a rank's store, or the directory with rank-0, rank-1 and so on",
        };
        return Err(Failure::failed(format!("{} {what}", dir.display())));
    }
    ranks.sort_unstable();
    Ok(Found { dirs: ranks.into_iter().map(|(_, path)| path).collect(), is_job: true })
}

/// A store that is read.
pub(super) struct Opened {
    pub(super) path: PathBuf,
    pub(super) backend: Box<dyn StorageBackend>,
    /// A living process has it open, and may be writing.
    pub(super) in_use: Option<InUse>,
}

/// Files to which no checkpoint refers.
pub(super) struct LeftOver {
    pub(super) left_over: Vec<String>,
    pub(super) being_written: Vec<String>,
}

/// By whom a store is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct InUse {
    /// The process, where it could say so.
    pid: Option<u32>,
}

impl InUse {
    fn by(self) -> String {
        self.pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    }
}

impl Opened {
    /// Opens a store to be read, even where a living process has it.
    pub(super) fn new(path: &Path) -> Result<Opened, Failure> {
        let open = |access| Directory::open(path, BackendChoice::Pwrite, access).map(|(backend, _)| backend);
        let (backend, in_use) = match open(DirectoryAccess::ReadOnly) {
            Ok(backend) => (backend, None),
            Err(DirectoryError::Locked { pid, .. }) => {
                (open(DirectoryAccess::Look).map_err(Failure::failed)?, Some(InUse { pid }))
            }
            Err(error) => return Err(Failure::failed(error)),
        };
        Ok(Opened { path: path.to_owned(), backend, in_use })
    }

    /// Opens the store once more, as it was opened.
    pub(super) fn reopen(&self) -> Result<Box<dyn StorageBackend>, Failure> {
        let access = if self.in_use.is_some() { DirectoryAccess::Look } else { DirectoryAccess::ReadOnly };
        let opened = Directory::open(&self.path, BackendChoice::Pwrite, access);
        opened.map(|(backend, _)| backend).map_err(Failure::failed)
    }

    /// Looks at everything that the store has, with a bar on the terminal.
    ///
    /// What a living process frees in between looks damaged: then it is looked at again.
    pub(super) fn scan(&mut self) -> Result<Report, Failure> {
        let bar = progress_bar(&self.path);
        let mut looks = 1;
        let result = loop {
            let before = self.sequence();
            let report = scan(&mut *self.backend, &mut |done, total| {
                bar.set_length(total);
                bar.set_position(done);
            });
            // A file may go at any time; a block that a checkpoint refers to only with a change of the manifest.
            let is_certain = match &report {
                Ok(report) => report.is_whole() || before == self.sequence(),
                Err(_) => false,
            };
            if is_certain || self.in_use.is_none() {
                break report.map_err(|error| self.failure(&error));
            }
            if looks == LOOKS_MAX {
                break Err(match report {
                    Err(error) => self.failure(&error),
                    Ok(_) => Failure::failed(format!("{}: {CHANGING}", self.path.display())),
                });
            }
            looks += 1;
        };
        bar.finish_and_clear();
        result
    }

    /// The number of the manifest's last change.
    fn sequence(&mut self) -> Option<u64> {
        StoreView::new(&mut *self.backend).ok()?.manifest().map(|manifest| manifest.sequence)
    }

    /// Why nothing says which checkpoint counts, where that is so.
    pub(super) fn without_manifest(&mut self) -> Option<StoreError> {
        StoreView::new(&mut *self.backend).err()
    }

    /// The files that nobody refers to: those that the next opening removes where it doesn't need them and, of a store that is
    /// in use, those that its process may have begun just now.
    pub(super) fn left_over(&self, report: &Report) -> LeftOver {
        let session = report.manifest.as_ref().map(|manifest| manifest.session);
        let is_older = |file: &String| {
            let segment = report.segments.iter().find(|segment| segment.file == *file);
            segment.is_some_and(|segment| segment.session.as_ref().ok() < session.as_ref())
        };
        let (left_over, being_written) =
            report.left_over.iter().cloned().partition(|file| self.in_use.is_none() || is_older(file));
        LeftOver { left_over, being_written }
    }

    /// Says which store it is that an error is about, and that somebody is changing it.
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
            "the manifest is missing, and without it nothing says what counts: restore it from a copy, or remove the \
             directory"
        } else if has_manifest {
            "there is no store in it: one was begun, and its creation wasn't finished; opening it to write makes a new one"
        } else {
            "there is no store in it"
        }
    }

    /// The lines that begin every report: which store it is, and who has it.
    pub(super) fn heading(&self, report: &Report) -> String {
        self.heading_of(&whose(report.manifest.as_ref()))
    }

    /// As [`heading`](Self::heading), where it is known whose store it is.
    pub(super) fn heading_of(&self, whose: &str) -> String {
        let mut text = format!("{whose}: {}", self.path.display());
        if let Some(in_use) = self.in_use {
            text += &format!("\n  in use by {}: what it is writing may look torn", in_use.by());
        }
        text
    }

    /// The fields that begin every object.
    pub(super) fn json(&self, rank: Option<u32>, ranks: Option<u32>) -> Value {
        json!({
            "dir": self.path,
            "rank": rank,
            "ranks": ranks,
            "in_use": self.in_use.is_some(),
            "process": self.in_use.and_then(|in_use| in_use.pid),
        })
    }

    /// As [`json`](Self::json), for a report.
    pub(super) fn json_of(&self, report: &Report) -> Value {
        let of = report.manifest.as_ref();
        self.json(of.map(|of| of.rank.0), of.map(|of| of.ranks))
    }
}

/// Whose store it is.
pub(super) fn whose(manifest: Option<&ManifestReport>) -> String {
    let unknown = || "a store without a manifest that can be read".to_owned();
    manifest.map_or_else(unknown, |of| format!("{} of {}", of.rank, of.ranks))
}

/// Adds fields to an object.
pub(super) fn with(mut object: Value, fields: Value) -> Value {
    if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
        object.extend(fields);
    }
    object
}

/// A bar on standard error, where that is a terminal.
pub(super) fn progress_bar(path: &Path) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bar:32.cyan/blue} {bytes}/{total_bytes} {bytes_per_sec}");
    let bar = ProgressBar::new(0).with_message(path.display().to_string());
    match style {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

/// A number of bytes for people.
pub(super) fn bytes(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// "1 block", "2 blocks".
pub(super) fn count(number: usize, noun: &str) -> String {
    let plural = match noun.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{noun}s"),
    };
    if number == 1 { format!("1 {noun}") } else { format!("{number} {plural}") }
}
