//! `counterfoil log inspect`: what is in a store.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use counterfoil::store::{
    BackendChoice, BackendKind, Directory, DirectoryAccess, Report, SegmentReport, SlotState, Tail,
};
use serde_json::{Value, json};

use super::Place;
use super::stores::{LeftOver, Opened, Outcome, bytes, for_each, with};
use crate::Failure;
use crate::table::Table;

/// Show what a store has: manifest, checkpoints, segments, and what is left over.
///
/// Exit code 1 where a store is damaged; `verify` says what that means.
#[derive(Debug, Args)]
pub(super) struct InspectArguments {
    #[command(flatten)]
    pub(super) place: Place,
    /// Find out what the store's files would be written with, io_uring or pwrite, and why. Writes: it opens the store as
    /// its owner would, writes a small file and removes it
    #[arg(long)]
    probe: bool,
}

pub(super) fn run(arguments: &InspectArguments) -> Result<ExitCode, Failure> {
    for_each(&arguments.place, |path| inspect(path, arguments.probe))
}

fn inspect(path: &Path, with_probe: bool) -> Result<Outcome, Failure> {
    let mut store = Opened::new(path)?;
    let report = store.scan()?;
    let left_over = store.left_over(&report);
    let mut text = format!("{}\n{}", store.heading(&report), as_text(&report, &left_over));
    let mut json = with(store.json_of(&report), as_json(&report, &left_over));
    // The lock is given up: the probe takes it alone.
    drop(store);
    if with_probe {
        let (line, value) = probe(path);
        text += &format!("\n  backend      {line}");
        json = with(json, json!({ "backend": value }));
    }
    Ok(Outcome { json, text, is_sound: report.is_whole() })
}

/// What the files would be written with.
fn probe(path: &Path) -> (String, Value) {
    match Directory::open(path, BackendChoice::Auto, DirectoryAccess::ReadWrite) {
        Ok((_, probe)) => {
            let kind = match probe.kind {
                BackendKind::IoUring => "io_uring",
                BackendKind::Pwrite => "pwrite",
                BackendKind::Simulated => "simulated",
            };
            let value = json!({ "kind": kind, "registered_buffers": probe.registered, "why_not": probe.why_not });
            (probe.to_string(), value)
        }
        Err(error) => (format!("not known: {error}"), json!({ "error": error.to_string() })),
    }
}

fn as_text(report: &Report, left_over: &LeftOver) -> String {
    let mut lines = Vec::new();
    let [first, second] = report.slots.map(slot);
    match &report.manifest {
        Some(manifest) => {
            let (sequence, session) = (manifest.sequence, manifest.session);
            lines.push(format!("  manifest     change {sequence}, session {session}; slots: {first}, {second}"));
            if !manifest.floors.is_empty() {
                let floors = manifest.floors.iter().map(|(lane, ssn)| format!("{lane} up to {ssn}"));
                lines.push(format!("  not needed   {}", floors.collect::<Vec<_>>().join(", ")));
            }
        }
        None => lines.push(format!("  manifest     can't be read; slots: {first}, {second}")),
    }
    if report.manifest.is_none() {
        lines.push("  checkpoints  not known: nothing says which of them count".to_owned());
    } else if report.checkpoints.is_empty() {
        lines.push("  checkpoints  none".to_owned());
    } else {
        lines.push("  checkpoints".to_owned());
        lines.push(checkpoints(report).to_string());
    }
    if report.segments.is_empty() {
        lines.push("  segments     none".to_owned());
    } else {
        lines.push("  segments (referenced: by a checkpoint that counts)".to_owned());
        lines.push(segments(report).to_string());
    }
    if report.blocks_left_out > 0 {
        lines.push(format!("  not counted  {} more blocks, none of them referenced", report.blocks_left_out));
    }
    if !left_over.being_written.is_empty() {
        lines.push(format!("  in use       {} (no checkpoint refers to it yet)", left_over.being_written.join(", ")));
    }
    if !left_over.left_over.is_empty() {
        lines.push(format!(
            "  left over    {} (the next opening removes what it doesn't need)",
            left_over.left_over.join(", ")
        ));
    }
    lines.extend(in_the_way(report).map(|what| format!("  in the way   {what}")));
    lines.join("\n")
}

fn checkpoints(report: &Report) -> Table {
    let mut table = Table::new(&["epoch", "<file", "bytes", "lanes", "blocks", "local entries", "<state"]);
    for checkpoint in &report.checkpoints {
        let (epoch, file) = (checkpoint.epoch.0.to_string(), checkpoint.file.clone());
        let size = bytes(checkpoint.bytes);
        let none = || "-".to_owned();
        table.row(match &checkpoint.contents {
            Ok((lanes, blocks, local)) => {
                [epoch, file, size, lanes.to_string(), blocks.to_string(), local.to_string(), "whole".to_owned()]
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
            bytes(segment.bytes),
            segment.blocks.len().to_string(),
            bytes(referenced),
            bytes(unreferenced),
            state,
        ]);
    }
    table
}

/// Bytes on disk of a segment's blocks: those that checkpoints refer to, and the others.
fn split(segment: &SegmentReport) -> (u64, u64) {
    let sum = |is_referenced: bool| {
        let blocks = segment.blocks.iter().filter(|of| of.is_referenced == is_referenced);
        blocks.map(|of| of.block.disk_bytes).sum()
    };
    (sum(true), sum(false))
}

/// What has the name of one of the store's files and is none.
pub(super) fn in_the_way(report: &Report) -> impl Iterator<Item = String> {
    report.not_files.iter().map(|(name, what)| {
        format!("{name} is {what} and was passed over: move it away, or nobody can open the store to write")
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
        SlotState::Valid { sequence } => format!("whole ({sequence})"),
        SlotState::Empty => "empty".to_owned(),
        SlotState::Version(version) => format!("of version {version}"),
        SlotState::Damaged => "damaged".to_owned(),
    }
}

fn as_json(report: &Report, left_over: &LeftOver) -> Value {
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
        "left_over": left_over.left_over,
        "being_written": left_over.being_written,
        "not_files": not_files.collect::<Vec<_>>(),
    })
}
