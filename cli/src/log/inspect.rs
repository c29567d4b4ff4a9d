//! `counterfoil log inspect`: prints a store's contents.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use counterfoil_log_io::{
    BackendChoice, BackendKind, Directory, DirectoryAccess, Report, SegmentReport, SlotState, Tail,
};
use indicatif::BinaryBytes;
use serde_json::{Value, json};

use super::StoreArguments;
use super::stores::{OpenedStore, Outcome, UnreferencedFiles, for_each, merge};
use crate::Failure;
use crate::table::Table;

/// Show a store's contents: manifest, checkpoints, segments, and left-over files.
///
/// The exit code is 1 if a store is damaged; `verify` explains the damage.
#[derive(Debug, Args)]
pub(super) struct InspectArguments {
    #[command(flatten)]
    pub(super) store: StoreArguments,
    /// Report the backend, io_uring or pwrite, that would write the store's files, and why. This writes: it opens the
    /// store like its owner, creates a small file and removes it
    #[arg(long)]
    probe: bool,
}

pub(super) fn run(arguments: &InspectArguments) -> Result<ExitCode, Failure> {
    for_each(&arguments.store, |path| inspect(path, arguments.probe))
}

fn inspect(path: &Path, with_probe: bool) -> Result<Outcome, Failure> {
    let mut store = OpenedStore::new(path)?;
    let report = store.scan()?;
    let unreferenced = store.unreferenced_files(&report);
    let mut text = format!("{}\n{}", store.heading(&report), as_text(&report, &unreferenced));
    let mut json = merge(store.json_of(&report), as_json(&report, &unreferenced));
    // Release the lock; the probe needs it exclusively.
    drop(store);
    if with_probe {
        let (line, value) = probe(path);
        text += &format!("\n  backend      {line}");
        json = merge(json, json!({ "backend": value }));
    }
    Ok(Outcome { json, text, is_sound: report.is_whole() })
}

/// Determines the backend that would write the store's files.
fn probe(path: &Path) -> (String, Value) {
    match Directory::open(path, BackendChoice::Auto, DirectoryAccess::ReadWrite) {
        Ok((_, probe)) => {
            let kind = match probe.kind {
                BackendKind::IoUring => "io_uring",
                BackendKind::Pwrite => "pwrite",
                BackendKind::Simulated => "simulated",
            };
            let value =
                json!({ "kind": kind, "registered_buffers": probe.registered, "why_not": probe.fallback_reason });
            (probe.to_string(), value)
        }
        Err(error) => (format!("unknown: {error}"), json!({ "error": error.to_string() })),
    }
}

fn as_text(report: &Report, unreferenced: &UnreferencedFiles) -> String {
    let mut lines = Vec::new();
    let [first, second] = report.slots.map(slot);
    match &report.manifest {
        Some(manifest) => {
            let (sequence, session) = (manifest.sequence, manifest.session);
            lines.push(format!("  manifest     change {sequence}, session {session}; slots: {first}, {second}"));
            if !manifest.floors.is_empty() {
                let floors = manifest.floors.iter().map(|(lane, ssn)| format!("{lane} up to {ssn}"));
                lines.push(format!("  collected    {}", floors.collect::<Vec<_>>().join(", ")));
            }
        }
        None => lines.push(format!("  manifest     unreadable; slots: {first}, {second}")),
    }
    if report.manifest.is_none() {
        lines.push("  checkpoints  unknown: no valid manifest slot".to_owned());
    } else if report.checkpoints.is_empty() {
        lines.push("  checkpoints  none".to_owned());
    } else {
        lines.push("  checkpoints".to_owned());
        lines.push(checkpoints(report).to_string());
    }
    if report.segments.is_empty() {
        lines.push("  segments     none".to_owned());
    } else {
        lines.push("  segments (referenced: by a valid checkpoint)".to_owned());
        lines.push(segments(report).to_string());
    }
    if report.blocks_left_out > 0 {
        lines.push(format!("  not shown    {} more blocks, all unreferenced", report.blocks_left_out));
    }
    if !unreferenced.being_written.is_empty() {
        lines.push(format!(
            "  in use       {} (not yet referenced by a checkpoint)",
            unreferenced.being_written.join(", ")
        ));
    }
    if !unreferenced.left_over.is_empty() {
        lines.push(format!(
            "  left over    {} (removed when the store is next opened for writing, if not needed)",
            unreferenced.left_over.join(", ")
        ));
    }
    lines.extend(foreign_entries(report).map(|what| format!("  foreign      {what}")));
    lines.join("\n")
}

fn checkpoints(report: &Report) -> Table {
    let mut table = Table::new(&["epoch", "<file", "bytes", "lanes", "blocks", "local entries", "<state"]);
    for checkpoint in &report.checkpoints {
        let (epoch, file) = (checkpoint.epoch.0.to_string(), checkpoint.file.clone());
        let size = BinaryBytes(checkpoint.bytes).to_string();
        let none = || "-".to_owned();
        table.row(match &checkpoint.contents {
            Ok((lanes, blocks, local)) => {
                [epoch, file, size, lanes.to_string(), blocks.to_string(), local.to_string(), "intact".to_owned()]
            }
            Err(what) => [epoch, file, size, none(), none(), none(), format!("damaged: {what}")],
        });
    }
    table
}

fn segments(report: &Report) -> Table {
    let headings = ["<file", "session", "bytes", "blocks", "referenced", "unreferenced", "<state"];
    let mut table = Table::new(&headings);
    for segment in &report.segments {
        let (referenced, unreferenced) = split(segment);
        let (session, state) = match &segment.session {
            Ok(session) => (session.to_string(), tail_text(segment.tail)),
            Err(what) => ("-".to_owned(), format!("{}: {what}", tail_text(segment.tail))),
        };
        table.row([
            segment.file.clone(),
            session,
            BinaryBytes(segment.bytes).to_string(),
            segment.blocks.len().to_string(),
            BinaryBytes(referenced).to_string(),
            BinaryBytes(unreferenced).to_string(),
            state,
        ]);
    }
    table
}

/// Returns the disk bytes of a segment's referenced and unreferenced blocks.
fn split(segment: &SegmentReport) -> (u64, u64) {
    let sum = |is_referenced: bool| {
        let blocks = segment.blocks.iter().filter(|of| of.is_referenced == is_referenced);
        blocks.map(|of| of.block.disk_bytes).sum()
    };
    (sum(true), sum(false))
}

/// Describes directory entries named like the store's files but not regular files.
pub(super) fn foreign_entries(report: &Report) -> impl Iterator<Item = String> {
    report.not_files.iter().map(|(name, what)| {
        format!("{name} is {what}, ignored: the store can't be opened for writing until it is moved away")
    })
}

pub(super) fn tail_text(tail: Tail) -> String {
    match tail {
        Tail::Clean => "clean".to_owned(),
        Tail::Torn { at } => format!("torn at byte {at}"),
        Tail::Damaged { at } => format!("damaged at byte {at}"),
    }
}

pub(super) fn slot(state: SlotState) -> String {
    match state {
        SlotState::Valid { sequence } => format!("valid ({sequence})"),
        SlotState::Empty => "empty".to_owned(),
        SlotState::Version(version) => format!("of version {version}"),
        SlotState::Damaged => "damaged".to_owned(),
    }
}

fn as_json(report: &Report, unreferenced: &UnreferencedFiles) -> Value {
    let checkpoints = report.checkpoints.iter().map(|checkpoint| {
        let (contents, damage) = match &checkpoint.contents {
            Ok((lanes, blocks, local)) => (json!({ "lanes": lanes, "blocks": blocks, "local_entries": local }), None),
            Err(what) => (Value::Null, Some(what)),
        };
        json!({
            "epoch": checkpoint.epoch.0, "file": checkpoint.file, "bytes": checkpoint.bytes, "contents": contents,
            "damage": damage,
        })
    });
    let segments = report.segments.iter().map(|segment| {
        let (referenced, unreferenced) = split(segment);
        let (tail, at) = match segment.tail {
            Tail::Clean => ("clean", None),
            Tail::Torn { at } => ("torn", Some(at)),
            Tail::Damaged { at } => ("damaged", Some(at)),
        };
        json!({
            "file": segment.file, "bytes": segment.bytes, "session": segment.session.as_ref().ok(),
            "damage": segment.session.as_ref().err(), "blocks": segment.blocks.len(), "referenced_bytes": referenced,
            "unreferenced_bytes": unreferenced, "covered": segment.covered, "end": segment.end, "tail": tail,
            "tail_at": at,
        })
    });
    let manifest = report.manifest.as_ref().map(|manifest| {
        let floors = manifest.floors.iter().map(|(lane, ssn)| json!({ "lane": lane.0, "ssn": ssn.0 }));
        json!({ "sequence": manifest.sequence, "session": manifest.session, "floors": floors.collect::<Vec<_>>() })
    });
    let not_files = report.not_files.iter().map(|(name, what)| json!({ "name": name, "what": what }));
    json!({
        "sound": report.is_whole(),
        "slots": report.slots.map(slot),
        "manifest": manifest,
        "checkpoints": checkpoints.collect::<Vec<_>>(),
        "segments": segments.collect::<Vec<_>>(),
        "blocks_not_counted": report.blocks_left_out,
        "left_over": unreferenced.left_over,
        "being_written": unreferenced.being_written,
        "not_files": not_files.collect::<Vec<_>>(),
    })
}
