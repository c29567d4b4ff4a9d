//! `counterfoil log verify`: whether a store is sound.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use counterfoil::store::{GivenUp, Repair, Report, SlotState, Tail, repair};
use serde_json::{Value, json};

use super::Place;
use super::given_up::{given_up_json, given_up_text, split};
use super::inspect::{in_the_way, slot, tail_text};
use super::stores::{LeftOver, Opened, Outcome, bytes, count, for_each, with};
use crate::Failure;

/// Read and check every checkpoint and every block; say what is damaged, what is lost with it, and what to do.
///
/// Exit code 0 where every store is sound: it can be opened to write, and all that a checkpoint refers to is whole. Writes that were
/// cut off by a power cut, behind what a checkpoint refers to, are no damage. Exit code 1 otherwise.
#[derive(Debug, Args)]
pub(super) struct VerifyArguments {
    #[command(flatten)]
    pub(super) place: Place,
}

pub(super) fn run(arguments: &VerifyArguments) -> Result<ExitCode, Failure> {
    for_each(&arguments.place, verify)
}

fn verify(path: &Path) -> Result<Outcome, Failure> {
    let mut store = Opened::new(path)?;
    let report = store.scan()?;
    let is_whole = report.is_whole();
    let is_sound = is_whole && report.not_files.is_empty();
    let damage = damage(&report);
    let notes = notes(&report, &store.left_over(&report));
    let (lost, given_up) = if is_whole { (Vec::new(), Vec::new()) } else { lost(&mut store, &report) };
    let advice = if is_whole { None } else { Some(advice(&report, path)) };
    let (referenced, referenced_bytes) = referenced(&report);
    let read: u64 = report.segments.iter().map(|segment| segment.blocks.len() as u64).sum();
    let whole = report.checkpoints.iter().filter(|checkpoint| checkpoint.contents.is_ok()).count();

    let mut lines = vec![store.heading(&report)];
    lines.push(match report.manifest {
        Some(_) => format!("  checkpoints  {whole} of {} whole", report.checkpoints.len()),
        None => "  checkpoints  not known: nothing says which of them count".to_owned(),
    });
    let size = bytes(referenced_bytes);
    lines.push(format!(
        "  blocks       {} checked, {referenced} of them ({size}) referenced",
        read + report.blocks_left_out
    ));
    lines.extend(notes.iter().map(|note| format!("  note         {note}")));
    lines.extend(damage.iter().map(|what| format!("  damaged      {what}")));
    lines.extend(lost.iter().map(|what| format!("  lost         {what}")));
    lines.extend(given_up.iter().map(|what| format!("  lost         {}", given_up_text(what))));
    lines.extend(advice.iter().map(|what| format!("  to do        {what}")));
    lines.push(format!("  {}", verdict(is_whole, is_sound)));

    let fields = json!({
        "sound": is_sound, "checkpoints": report.checkpoints.len(), "checkpoints_whole": whole,
        "blocks": read + report.blocks_left_out, "referenced_blocks": referenced, "referenced_bytes": referenced_bytes,
        "notes": notes, "damage": damage, "lost": lost, "given_up": given_up_json(&given_up),
        "advice": advice,
    });
    let json: Value = with(store.json_of(&report), fields);
    Ok(Outcome { json, text: lines.join("\n"), is_sound })
}

fn verdict(is_whole: bool, is_sound: bool) -> &'static str {
    match (is_whole, is_sound) {
        (true, true) => "sound",
        (true, false) => "IN THE WAY: all of it is whole, and it can be opened to read, but not to write",
        (false, _) => "DAMAGED: the store can't be opened as it is",
    }
}

fn referenced(report: &Report) -> (usize, u64) {
    let blocks = report.segments.iter().flat_map(|segment| &segment.blocks).filter(|block| block.is_referenced);
    blocks.fold((0, 0), |(count, bytes), of| (count + 1, bytes + of.block.disk_bytes))
}

/// Where something is wrong that keeps the store from being opened.
fn damage(report: &Report) -> Vec<String> {
    let mut damage = Vec::new();
    if report.manifest.is_none() {
        let [first, second] = report.slots.map(slot);
        damage.push(format!("manifest: neither slot can be read ({first}, {second})"));
    }
    for checkpoint in &report.checkpoints {
        if let Err(what) = &checkpoint.contents {
            damage.push(format!("checkpoint that begins {}: {what}", checkpoint.epoch));
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

/// What isn't as it was written, and costs nothing.
fn notes(report: &Report, left_over: &LeftOver) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(manifest) = &report.manifest {
        let sequence = manifest.sequence;
        for (index, state) in report.slots.into_iter().enumerate() {
            if state != (SlotState::Valid { sequence }) {
                notes.push(format!("manifest: slot {index} is {}; the other one counts", slot(state)));
            }
        }
    }
    for segment in report.segments.iter().filter(|segment| matches!(segment.tail, Tail::Torn { .. })) {
        notes.push(format!("{} is {}, behind all that checkpoints refer to", segment.file, tail_text(segment.tail)));
    }
    if !left_over.left_over.is_empty() {
        notes.push(format!(
            "{} left over; the next opening removes what it doesn't need",
            count(left_over.left_over.len(), "file")
        ));
    }
    notes.extend(in_the_way(report));
    notes
}

/// What a repair would have to give up, and how much of each lane.
fn lost(store: &mut Opened, report: &Report) -> (Vec<String>, Vec<GivenUp>) {
    if report.manifest.is_none() {
        return (vec!["every checkpoint, unless the manifest comes back".to_owned()], Vec::new());
    }
    match repair(&mut *store.backend, true) {
        Ok(repairs) => {
            let (steps, given_up) = split(repairs);
            let costs = |repair: &&Repair| !matches!(repair, Repair::Slot { .. } | Repair::Tail { .. });
            (steps.iter().filter(costs).map(ToString::to_string).collect(), given_up)
        }
        Err(error) => (vec![format!("not known: {error}")], Vec::new()),
    }
}

fn advice(report: &Report, path: &Path) -> String {
    let path = path.display();
    if report.manifest.is_none() {
        if report.slots.iter().any(|slot| matches!(slot, SlotState::Version(_))) {
            return "use the program that wrote it".to_owned();
        }
        return format!(
            "restore {path}/manifest from a copy: without it nothing says which checkpoint counts, and no repair can know. \
             Where there is no copy, `counterfoil log dump --all {path}` shows the records that can still be read; then remove \
             the directory and begin anew"
        );
    }
    format!(
        "keep a copy (`cp -a`), end the process that has the store open, then `counterfoil log repair {path}`: what is \
         left can be opened again"
    )
}
