//! `counterfoil clean`: removes what launchers that were killed left behind.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use counterfoil_runtime::local::{Cleaned, clean, default_checkpoint_root, default_shm_root};
use serde_json::json;

use crate::{Failure, print};

/// Remove the files of jobs whose launcher was killed.
///
/// Looks for job directories of this user in /dev/shm and where temporary files go. A job directory is removed only if
/// its launcher is dead (its lock is free), and no process that lives has it in its environment or among its arguments, as ranks
/// have; those of living jobs and of other users are never touched, and links are never followed.
#[derive(Debug, Args)]
pub(crate) struct CleanArguments {
    /// Look in this directory, too (repeatable): where a job was run with --shm-dir, --checkpoint-dir or, for a
    /// job whose launcher was killed, --keep-files (what it was to keep is removed, too)
    #[arg(long, value_name = "DIR")]
    dir: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(arguments: &CleanArguments) -> Result<ExitCode, Failure> {
    if let Some(missing) = arguments.dir.iter().find(|dir| !dir.is_dir()) {
        return Err(Failure::refused(format!("--dir: there is no directory {}", missing.display())));
    }
    let mut roots = vec![default_shm_root(), default_checkpoint_root(), std::env::temp_dir()];
    roots.extend(arguments.dir.iter().cloned());
    let cleaned = clean(&roots).map_err(Failure::failed)?;
    if arguments.json {
        print(&as_json(&cleaned).to_string())?;
    } else {
        tell(&cleaned)?;
    }
    Ok(if cleaned.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn as_json(cleaned: &Cleaned) -> serde_json::Value {
    let refused = cleaned.refused.iter().map(|(path, why)| json!({ "path": path, "reason": why.to_string() }));
    let in_use = cleaned.in_use.iter().map(|(path, processes)| json!({ "path": path, "processes": processes }));
    json!({
        "removed": cleaned.removed,
        "live": cleaned.live,
        "in_use": in_use.collect::<Vec<_>>(),
        "refused": refused.collect::<Vec<_>>(),
    })
}

fn tell(cleaned: &Cleaned) -> Result<(), Failure> {
    for path in &cleaned.removed {
        print(&format!("removed {}", path.display()))?;
    }
    for path in &cleaned.live {
        print(&format!("left {}: its launcher is alive", path.display()))?;
    }
    for (path, processes) in &cleaned.in_use {
        let processes = processes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        print(&format!(
            "left {}: its launcher is dead, and processes of the job live on: {processes}",
            path.display()
        ))?;
    }
    for (path, why) in &cleaned.refused {
        print(&format!("left {}: {why}", path.display()))?;
    }
    if [&cleaned.removed, &cleaned.live].iter().all(|paths| paths.is_empty())
        && cleaned.in_use.is_empty()
        && cleaned.refused.is_empty()
    {
        print("nothing to clean")?;
    }
    Ok(())
}
