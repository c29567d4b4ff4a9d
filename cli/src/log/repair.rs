//! `counterfoil log repair`: makes a damaged store usable again.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use counterfoil_log_io::{BackendChoice, Directory, DirectoryAccess, repair, scan};
use serde_json::json;

use super::StoreArguments;
use super::inspect::foreign_entries;
use super::loss::{loss_text, losses_json, split_losses};
use super::stores::{OpenedStore, Outcome, for_each, merge};
use crate::Failure;

/// Repair a damaged store, giving up what can't be read.
///
/// Prints each step, and the number of records given up in each lane. A damaged checkpoint becomes invalid; a lane
/// begins after its last damaged block. A store without a valid manifest slot can't be repaired, because nothing else
/// names the valid checkpoint: restore the manifest from a copy. Refuses stores held open by a running process.
///
/// The exit code is 0 if the store is sound after the repair; with --dry-run, if it already is.
#[derive(Debug, Args)]
pub(super) struct RepairArguments {
    #[command(flatten)]
    pub(super) store: StoreArguments,
    /// Print the steps without changing anything
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(arguments: &RepairArguments) -> Result<ExitCode, Failure> {
    for_each(&arguments.store, |path| repair_store(path, arguments.dry_run))
}

fn repair_store(path: &Path, dry_run: bool) -> Result<Outcome, Failure> {
    let access = if dry_run { DirectoryAccess::ReadOnly } else { DirectoryAccess::ReadWrite };
    let (backend, _) = Directory::open(path, BackendChoice::Pwrite, access).map_err(Failure::failed)?;
    let mut store = OpenedStore { path: path.to_owned(), backend, in_use: None };
    let repairs = repair(&mut *store.backend, dry_run).map_err(|error| store.failure(&error))?;
    let (steps, losses) = split_losses(repairs);
    // Verify the result instead of trusting the repair.
    let report = scan(&mut *store.backend, &mut |_, _| {}).map_err(|error| store.failure(&error))?;
    let is_sound = report.is_whole();

    let mut lines = vec![store.heading(&report)];
    let word = if dry_run { "would" } else { "done" };
    lines.extend(steps.iter().map(|step| format!("  {word:<5}  {step}")));
    lines.extend(losses.iter().map(|of| format!("  {:<5}  {}", "lost", loss_text(of))));
    lines.extend(foreign_entries(&report).map(|what| format!("  {:<5}  {what}", "note")));
    lines.push(match (steps.is_empty(), dry_run, is_sound) {
        (true, _, true) => "  sound: nothing to repair".to_owned(),
        (false, true, true) => "  already sound; nothing was changed".to_owned(),
        (false, false, true) => "  sound now".to_owned(),
        (_, true, false) => "  damaged; nothing was changed".to_owned(),
        (_, false, false) => "  still damaged: see `counterfoil log verify`".to_owned(),
    });
    let steps: Vec<String> = steps.iter().map(ToString::to_string).collect();
    let json = merge(
        store.json_of(&report),
        json!({
            "dry_run": dry_run, "steps": steps, "given_up": losses_json(&losses), "sound": is_sound,
        }),
    );
    Ok(Outcome { json, text: lines.join("\n"), is_sound })
}
