//! `counterfoil clean`: removes files left by jobs whose launcher was killed.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use counterfoil_runtime::local::{Cleaned, clean, clean_named, default_checkpoint_root, default_shm_root};
use serde_json::json;

use crate::{Failure, print};

/// Remove files left by jobs whose launcher was killed.
///
/// Looks for this user's job directories in /dev/shm and in the directory for temporary files. Removes a job directory
/// only if its launcher is dead (its lock is free) and no running process mentions it in its environment or arguments,
/// as ranks do. Never touches directories of running jobs or other users, and never follows links.
#[derive(Debug, Args)]
pub(crate) struct CleanArguments {
    /// Also look in this directory, for jobs run with --shm-dir, --checkpoint-dir or --keep-files; a killed job's files
    /// are removed even if --keep-files was to keep them. Repeatable
    #[arg(long, value_name = "DIR")]
    dir: Vec<PathBuf>,
    /// Remove only the job with this name, which could otherwise be resumed: its program uses
    /// `counterfoil_mpi::recovery`. Repeatable
    #[arg(long, value_name = "NAME")]
    job: Vec<String>,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(arguments: &CleanArguments) -> Result<ExitCode, Failure> {
    if let Some(missing) = arguments.dir.iter().find(|dir| !dir.is_dir()) {
        return Err(Failure::refused(format!("--dir: no such directory: {}", missing.display())));
    }
    let mut roots = vec![default_shm_root(), default_checkpoint_root(), std::env::temp_dir()];
    roots.extend(arguments.dir.iter().cloned());
    let cleaned = match &arguments.job[..] {
        [] => clean(&roots).map_err(Failure::failed)?,
        jobs => clean_jobs(jobs, &roots)?,
    };
    if arguments.json {
        print(&as_json(&cleaned).to_string())?;
    } else {
        print_text(&cleaned)?;
    }
    Ok(if cleaned.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Removes the directories of jobs named by the user.
fn clean_jobs(jobs: &[String], roots: &[PathBuf]) -> Result<Cleaned, Failure> {
    let mut all = Cleaned::default();
    for job in jobs {
        let cleaned = clean_named(job, roots).map_err(|error| Failure::usage(format!("--job: {error}")))?;
        all.removed.extend(cleaned.removed);
        all.live.extend(cleaned.live);
        all.in_use.extend(cleaned.in_use);
        all.refused.extend(cleaned.refused);
    }
    Ok(all)
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

fn print_text(cleaned: &Cleaned) -> Result<(), Failure> {
    for path in &cleaned.removed {
        print(&format!("removed {}", path.display()))?;
    }
    for path in &cleaned.live {
        print(&format!("kept {}: its launcher is running", path.display()))?;
    }
    for (path, processes) in &cleaned.in_use {
        let processes = processes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        print(&format!(
            "kept {}: its launcher is dead, but processes of the job are still running: {processes}",
            path.display()
        ))?;
    }
    for (path, why) in &cleaned.refused {
        print(&format!("kept {}: {why}", path.display()))?;
    }
    if [&cleaned.removed, &cleaned.live].iter().all(|paths| paths.is_empty())
        && cleaned.in_use.is_empty()
        && cleaned.refused.is_empty()
    {
        print("nothing to clean")?;
    }
    Ok(())
}
