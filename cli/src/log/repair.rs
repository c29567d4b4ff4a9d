//! `counterfoil log repair`: a store that can be opened again, with what is left of it.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use counterfoil::store::{BackendChoice, Directory, DirectoryAccess, repair, scan};
use serde_json::json;

use super::Place;
use super::given_up::{given_up_json, given_up_text, split};
use super::inspect::in_the_way;
use super::stores::{Opened, Outcome, for_each, with};
use crate::Failure;

/// Make a damaged store one that can be opened, with what is left of it.
///
/// Says each step, and how many records of which lanes are given up. What can't be read is: a damaged checkpoint doesn't count
/// any more, and a lane begins behind its last damaged block. A store whose manifest has no whole slot can't be repaired, because
/// nothing else says which checkpoint counts: restore that file from a copy. Refuses a store that a living process has open.
/// Exit code 0 where the store is sound afterwards; with --dry-run, where it is sound as it is.
#[derive(Debug, Args)]
pub(super) struct RepairArguments {
    #[command(flatten)]
    pub(super) place: Place,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(arguments: &RepairArguments) -> Result<ExitCode, Failure> {
    for_each(&arguments.place, |path| repair_store(path, arguments.dry_run))
}

fn repair_store(path: &Path, dry_run: bool) -> Result<Outcome, Failure> {
    let access = if dry_run { DirectoryAccess::ReadOnly } else { DirectoryAccess::ReadWrite };
    let (backend, _) = Directory::open(path, BackendChoice::Pwrite, access).map_err(Failure::failed)?;
    let mut store = Opened { path: path.to_owned(), backend, in_use: None };
    let repairs = repair(&mut *store.backend, dry_run).map_err(|error| store.failure(&error))?;
    let (steps, given_up) = split(repairs);
    // Believed when it is seen.
    let report = scan(&mut *store.backend, &mut |_, _| {}).map_err(|error| store.failure(&error))?;
    let is_sound = report.is_whole();

    let mut lines = vec![store.heading(&report)];
    let word = if dry_run { "would" } else { "done" };
    lines.extend(steps.iter().map(|step| format!("  {word:<5}  {step}")));
    lines.extend(given_up.iter().map(|of| format!("  {:<5}  {}", "lost", given_up_text(of))));
    lines.extend(in_the_way(&report).map(|what| format!("  {:<5}  {what}", "note")));
    lines.push(match (steps.is_empty(), dry_run, is_sound) {
        (true, _, true) => "  sound: nothing to repair".to_owned(),
        (false, true, true) => "  sound as it is; nothing was changed".to_owned(),
        (false, false, true) => "  sound now".to_owned(),
        (_, true, false) => "  damaged; nothing was changed".to_owned(),
        (_, false, false) => "  still damaged: see `counterfoil log verify`".to_owned(),
    });
    let steps: Vec<String> = steps.iter().map(ToString::to_string).collect();
    let json = with(
        store.json_of(&report),
        json!({
            "dry_run": dry_run, "steps": steps, "given_up": given_up_json(&given_up), "sound": is_sound,
        }),
    );
    Ok(Outcome { json, text: lines.join("\n"), is_sound })
}
