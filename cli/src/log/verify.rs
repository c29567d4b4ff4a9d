//! `counterfoil log verify`: checks a store's integrity.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use counterfoil_log_io::{Loss, Repair, Report, SlotState, Tail, repair};
use indicatif::BinaryBytes;
use serde_json::{Value, json};

use super::StoreArguments;
use super::expected::{Comparison, Expected, with_missing_ranks};
use super::inspect::{foreign_entries, slot, tail_text};
use super::loss::{loss_text, losses_json, split_losses};
use super::stores::{OpenedStore, Outcome, UnreferencedFiles, count, find, for_each_in, merge};
use crate::Failure;

/// Check every checkpoint and every block; report damage, lost records and remedies.
///
/// The exit code is 0 if every store is sound: it can be opened for writing, and everything referenced by a checkpoint
/// is intact. Torn writes after that are not damage. Otherwise the exit code is 1.
///
/// In a directory from `counterfoil run --log-dir`, each store is also compared with job.json and the rank's profile. A
/// log is incomplete, with exit code 1, if the store lacks messages logged by its rank (the disk was full), or if the
/// rank ended without MPI_Finalize and left no checkpoint. `dump --all` prints intact records not referenced by any
/// checkpoint.
#[derive(Debug, Args)]
pub(super) struct VerifyArguments {
    #[command(flatten)]
    pub(super) store: StoreArguments,
}

pub(super) fn run(arguments: &VerifyArguments) -> Result<ExitCode, Failure> {
    let dir = &arguments.store.dir;
    for_each_in(&arguments.store, &with_missing_ranks(dir, find(dir))?, verify)
}

fn verify(path: &Path) -> Result<Outcome, Failure> {
    let expected = Expected::read(path);
    if path.symlink_metadata().is_err() {
        return Ok(missing_store(path, &expected));
    }
    let mut store = OpenedStore::new(path)?;
    let report = store.scan()?;
    let is_whole = report.is_whole();
    let can_be_opened = is_whole && report.not_files.is_empty();
    let damage = damage(&report);
    let Comparison { missing, notes: compared } = expected.compare(&mut store);
    let is_sound = can_be_opened && missing.is_empty();
    let mut notes = notes(&report, &store.unreferenced_files(&report));
    notes.extend(compared);
    notes.extend(expected.errors.iter().map(|error| format!("not compared: {error}")));
    let (lost, losses) = if is_whole { (Vec::new(), Vec::new()) } else { lost(&mut store, &report) };
    let advice = if is_whole { None } else { Some(advice(&report, path)) };
    let (referenced, referenced_bytes) = referenced(&report);
    let read: u64 = report.segments.iter().map(|segment| segment.blocks.len() as u64).sum();
    let whole = report.checkpoints.iter().filter(|checkpoint| checkpoint.contents.is_ok()).count();

    let mut lines = vec![store.heading(&report)];
    lines.push(match report.manifest {
        Some(_) => format!("  checkpoints  {whole} of {} intact", report.checkpoints.len()),
        None => "  checkpoints  unknown: no valid manifest slot".to_owned(),
    });
    let (size, checked) = (BinaryBytes(referenced_bytes), read + report.blocks_left_out);
    lines.push(match report.checkpoints.len() {
        0 if report.manifest.is_some() && checked > 0 => {
            format!("  blocks       {checked} checked, none referenced by a checkpoint")
        }
        _ => format!("  blocks       {checked} checked, {referenced} of them ({size}) referenced"),
    });
    lines.extend(notes.iter().map(|note| format!("  note         {note}")));
    lines.extend(missing.iter().map(|what| format!("  missing      {what}")));
    lines.extend(damage.iter().map(|what| format!("  damaged      {what}")));
    lines.extend(lost.iter().map(|what| format!("  lost         {what}")));
    lines.extend(losses.iter().map(|what| format!("  lost         {}", loss_text(what))));
    lines.extend(advice.iter().map(|what| format!("  advice       {what}")));
    lines.push(match store.in_use {
        Some(_) if is_sound => "  sound so far; the process that has it open writes the rest".to_owned(),
        _ => format!("  {}", verdict(is_whole, can_be_opened, is_sound)),
    });

    let fields = json!({
        "sound": is_sound, "missing": missing, "checkpoints": report.checkpoints.len(), "checkpoints_whole": whole,
        "blocks": read + report.blocks_left_out, "referenced_blocks": referenced, "referenced_bytes": referenced_bytes,
        "notes": notes, "damage": damage, "lost": lost, "given_up": losses_json(&losses),
        "advice": advice,
    });
    let json: Value = merge(store.json_of(&report), fields);
    Ok(Outcome { json, text: lines.join("\n"), is_sound })
}

/// Reports a rank without a store.
fn missing_store(path: &Path, expected: &Expected) -> Outcome {
    let why = expected.missing_store_reason();
    let text = format!("{}: no store\n  missing      {why}\n  {INCOMPLETE}", path.display());
    Outcome { json: json!({ "dir": path, "sound": false, "missing": [why] }), text, is_sound: false }
}

const INCOMPLETE: &str = "INCOMPLETE: what remains is intact, but the rank logged more";

fn verdict(is_whole: bool, can_be_opened: bool, is_sound: bool) -> &'static str {
    match (is_whole, can_be_opened, is_sound) {
        (true, true, true) => "sound",
        (true, true, false) => INCOMPLETE,
        (true, false, _) => "BLOCKED: the store is intact, but can't be opened for writing",
        (false, ..) => "DAMAGED: the store can't be opened as it is",
    }
}

fn referenced(report: &Report) -> (usize, u64) {
    let blocks = report.segments.iter().flat_map(|segment| &segment.blocks).filter(|block| block.is_referenced);
    blocks.fold((0, 0), |(count, bytes), of| (count + 1, bytes + of.block.disk_bytes))
}

/// Describes the damage preventing the store from being opened.
fn damage(report: &Report) -> Vec<String> {
    let mut damage = Vec::new();
    if report.manifest.is_none() {
        let [first, second] = report.slots.map(slot);
        damage.push(format!("manifest: neither slot can be read ({first}, {second})"));
    }
    for checkpoint in &report.checkpoints {
        if let Err(what) = &checkpoint.contents {
            damage.push(format!("checkpoint at the start of {}: {what}", checkpoint.epoch));
        }
    }
    for segment in &report.segments {
        for of in segment.blocks.iter().filter(|of| of.is_referenced) {
            if let Some(what) = of.damage {
                damage.push(format!("{} at byte {}: {what}", segment.file, of.block.at));
            }
        }
    }
    damage
}

/// Describes irregularities without loss.
fn notes(report: &Report, unreferenced: &UnreferencedFiles) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(manifest) = &report.manifest {
        let sequence = manifest.sequence;
        for (index, state) in report.slots.into_iter().enumerate() {
            if state != (SlotState::Valid { sequence }) {
                notes.push(format!("manifest: slot {index} is {}; the other one is used", slot(state)));
            }
        }
    }
    for segment in report.segments.iter().filter(|segment| matches!(segment.tail, Tail::Torn { .. })) {
        notes.push(format!(
            "{} is {}, after everything that checkpoints refer to",
            segment.file,
            tail_text(segment.tail)
        ));
    }
    if !unreferenced.left_over.is_empty() {
        let files = count(unreferenced.left_over.len(), "file");
        notes.push(match report.checkpoints.len() {
            0 if report.manifest.is_some() => {
                format!("{files} without a checkpoint: `counterfoil log dump --all` shows the records; opening the store for writing removes them")
            }
            _ => format!("{files} left over, not referenced by a checkpoint; opening the store for writing removes what it doesn't need"),
        });
    }
    notes.extend(foreign_entries(report));
    notes
}

/// Returns what a repair would have to give up, in words and per lane.
fn lost(store: &mut OpenedStore, report: &Report) -> (Vec<String>, Vec<Loss>) {
    if report.manifest.is_none() {
        return (vec!["every checkpoint, unless the manifest is restored".to_owned()], Vec::new());
    }
    match repair(&mut *store.backend, true) {
        Ok(repairs) => {
            let (steps, losses) = split_losses(repairs);
            let costs = |repair: &&Repair| !matches!(repair, Repair::Slot { .. } | Repair::Tail { .. });
            (steps.iter().filter(costs).map(ToString::to_string).collect(), losses)
        }
        Err(error) => (vec![format!("unknown: {error}")], Vec::new()),
    }
}

fn advice(report: &Report, path: &Path) -> String {
    let path = path.display();
    if report.manifest.is_none() {
        if report.slots.iter().any(|slot| matches!(slot, SlotState::Version(_))) {
            return "use the version of counterfoil that wrote the store".to_owned();
        }
        return format!(
            "restore {path}/manifest from a copy: without it no checkpoint is known to be valid, and no repair is possible. Without a copy, \
             `counterfoil log dump --all {path}` shows the records that can still be read; then remove the directory and start over"
        );
    }
    format!(
        "keep a copy (`cp -a`), end the process that has the store open, then run `counterfoil log repair {path}`, which keeps what is \
         left"
    )
}
