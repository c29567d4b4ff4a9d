//! `counterfoil log verify`: whether a store is sound.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use counterfoil::store::{GivenUp, Repair, Report, SlotState, Tail, repair};
use serde_json::{Value, json};

use super::Place;
use super::beside::{Beside, Compared, with_absent};
use super::given_up::{given_up_json, given_up_text, split};
use super::inspect::{in_the_way, slot, tail_text};
use super::stores::{LeftOver, Opened, Outcome, bytes, count, each, find, with};
use crate::Failure;

/// Read and check every checkpoint and every block; say what is damaged, what is lost with it, and what to do.
///
/// Exit code 0 where every store is sound: it can be opened to write, and all that a checkpoint refers to is whole. Writes that were
/// cut off by a power cut, behind what a checkpoint refers to, are no damage. Exit code 1 otherwise.
///
/// In the directory of `counterfoil run --log-dir` each store is compared with what job.json and the rank's profile say, too. A rank that
/// logged messages which its store hasn't (the disk was full), or that ended without MPI_Finalize and left no checkpoint, has a log that
/// is incomplete: exit code 1. Of records that no checkpoint refers to, `dump --all` shows those that are whole.
#[derive(Debug, Args)]
pub(super) struct VerifyArguments {
    #[command(flatten)]
    pub(super) place: Place,
}

pub(super) fn run(arguments: &VerifyArguments) -> Result<ExitCode, Failure> {
    let dir = &arguments.place.dir;
    each(&arguments.place, &with_absent(dir, find(dir))?, verify)
}

fn verify(path: &Path) -> Result<Outcome, Failure> {
    let beside = Beside::of(path);
    if path.symlink_metadata().is_err() {
        return Ok(absent(path, &beside));
    }
    let mut store = Opened::new(path)?;
    let report = store.scan()?;
    let is_whole = report.is_whole();
    let can_be_opened = is_whole && report.not_files.is_empty();
    let damage = damage(&report);
    let Compared { missing, notes: told } = beside.compare(&mut store);
    let is_sound = can_be_opened && missing.is_empty();
    let mut notes = notes(&report, &store.left_over(&report));
    notes.extend(told);
    notes.extend(beside.unread.iter().map(|error| format!("not compared: {error}")));
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
    let (size, checked) = (bytes(referenced_bytes), read + report.blocks_left_out);
    lines.push(match report.checkpoints.len() {
        0 if report.manifest.is_some() && checked > 0 => format!("  blocks       {checked} checked, of no checkpoint"),
        _ => format!("  blocks       {checked} checked, {referenced} of them ({size}) referenced"),
    });
    lines.extend(notes.iter().map(|note| format!("  note         {note}")));
    lines.extend(missing.iter().map(|what| format!("  missing      {what}")));
    lines.extend(damage.iter().map(|what| format!("  damaged      {what}")));
    lines.extend(lost.iter().map(|what| format!("  lost         {what}")));
    lines.extend(given_up.iter().map(|what| format!("  lost         {}", given_up_text(what))));
    lines.extend(advice.iter().map(|what| format!("  to do        {what}")));
    lines.push(format!("  {}", verdict(is_whole, can_be_opened, is_sound)));

    let fields = json!({
        "sound": is_sound, "missing": missing, "checkpoints": report.checkpoints.len(), "checkpoints_whole": whole,
        "blocks": read + report.blocks_left_out, "referenced_blocks": referenced, "referenced_bytes": referenced_bytes,
        "notes": notes, "damage": damage, "lost": lost, "given_up": given_up_json(&given_up),
        "advice": advice,
    });
    let json: Value = with(store.json_of(&report), fields);
    Ok(Outcome { json, text: lines.join("\n"), is_sound })
}

/// A rank of the job that has no store.
fn absent(path: &Path, beside: &Beside) -> Outcome {
    let why = beside.without_store();
    let text = format!("{}: there is no store\n  missing      {why}\n  {INCOMPLETE}", path.display());
    Outcome { json: json!({ "dir": path, "sound": false, "missing": [why] }), text, is_sound: false }
}

const INCOMPLETE: &str = "INCOMPLETE: what is there is whole, and more was logged";

fn verdict(is_whole: bool, can_be_opened: bool, is_sound: bool) -> &'static str {
    match (is_whole, can_be_opened, is_sound) {
        (true, true, true) => "sound",
        (true, true, false) => INCOMPLETE,
        (true, false, _) => "IN THE WAY: all of it is whole, and it can be opened to read, but not to write",
        (false, ..) => "DAMAGED: the store can't be opened as it is",
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
        let files = count(left_over.left_over.len(), "file");
        notes.push(match report.checkpoints.len() {
            0 if report.manifest.is_some() => {
                format!("{files} of no checkpoint: `counterfoil log dump --all` shows the records; opening the store to write removes them")
            }
            _ => format!("{files} left over, that no checkpoint refers to; opening the store to write removes what it doesn't need"),
        });
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
