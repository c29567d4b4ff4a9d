//! `counterfoil demo`: runs a program, kills some ranks, and checks that the answer is still right.

mod options;
mod report;
mod view;

use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use counterfoil::{Options, Rank, create_private_dir};
use counterfoil_ack_piggyback::WireHeader;
use counterfoil_protocols::api::Repetition;
use counterfoil_runtime::local::{Interrupts, JobOptions, JobReport, LaunchError, launch};
use counterfoil_runtime::{RankSettings, Rule};
use counterfoil_workloads::Workload;

use crate::mpi_build::Build;
use crate::{Failure, print, rank};
pub(crate) use options::{DemoArguments, tiers};
use options::{check_iterations, check_kills};
use report::{DemoReport, Runs};
use view::View;

pub(crate) fn run(arguments: &DemoArguments) -> Result<ExitCode, Failure> {
    let workload = arguments.workload().map_err(Failure::usage)?;
    let seed = arguments.seed.unwrap_or_else(seed_from_clock);
    let job = job_options(arguments, workload.as_ref(), seed)?;
    let build = arguments.mpi.as_ref().map(|requested| Build::find(requested.as_deref()));
    let build = build.transpose().map_err(Failure::failed)?;
    let interrupts = Interrupts::install().map_err(Failure::failed)?;

    let kept = arguments.keep_files.as_deref().map(KeepDirectory::create).transpose()?;

    // Baseline: the same job without failures.
    let failure_free = JobOptions {
        kills: Vec::new(),
        power_cuts: Vec::new(),
        coordinator_losses: Vec::new(),
        keep_stores: None,
        ..job.clone()
    };
    let mut view = View::new(arguments.json, "reference run without kills", &job, workload.as_ref());
    let reference = launch(&failure_free, Some(&interrupts), &mut view).map_err(Failure::failed);
    view.finish();
    let reference = reference?;

    // Baseline for the cost of recording the receive order: the same job without recording.
    let plain = match job.settings.rule.properties.repeats {
        Repetition::SendsAndReceives => {
            let settings = RankSettings { rule: Rule::default(), ..job.settings.clone() };
            let title = format!("{} run without kills", settings.rule.name);
            let plain = JobOptions { settings, ..failure_free };
            let mut view = View::new(arguments.json, &title, &plain, workload.as_ref());
            let report = launch(&plain, Some(&interrupts), &mut view).map_err(Failure::failed);
            view.finish();
            Some(report?)
        }
        _ => None,
    };

    let has_no_kills = job.kills.is_empty() && job.power_cuts.is_empty() && job.coordinator_losses.is_empty();
    let title = match &build {
        Some(build) => format!("run over {}", build.version),
        None if has_no_kills => "second run without kills".to_owned(),
        None => "run with kills".to_owned(),
    };
    let spares = arguments.spares.unwrap_or(job.kills.len() as u32);
    let tested = match &build {
        Some(build) => build.job(&job, spares, arguments.ulfm).map_err(Failure::failed)?,
        None => job.clone(),
    };
    let mut view = View::new(arguments.json, &title, &job, workload.as_ref());
    let run = launch(&tested, Some(&interrupts), &mut view).map_err(Failure::failed);
    view.finish();
    let run: JobReport = run.inspect_err(|_| eprintln!("seed {seed}"))?;

    drop(kept);
    let mut report = DemoReport::new(
        &job,
        workload.as_ref(),
        Runs { run: &run, reference: &reference, plain: plain.as_ref() },
        seed,
    )
    .map_err(Failure::failed)?;
    report.mpi = build.map(|build| build.version);
    print(&if arguments.json { report.to_json() } else { report.to_text() })?;
    let problems = report.problems();
    for problem in &problems {
        eprintln!("error: {problem}");
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Directory given by `--keep-files`; removed on drop if still empty.
struct KeepDirectory<'a>(&'a Path);

impl KeepDirectory<'_> {
    fn create(path: &Path) -> Result<KeepDirectory<'_>, Failure> {
        match create_private_dir(path) {
            Ok(()) => Ok(KeepDirectory(path)),
            Err(_) if path.exists() => Err(Failure::refused(format!(
                "--keep-files: {} already exists: remove it, or choose another directory",
                path.display()
            ))),
            Err(error) => Err(Failure::failed(format!("--keep-files: {error}"))),
        }
    }
}

impl Drop for KeepDirectory<'_> {
    fn drop(&mut self) {
        // Fails, as intended, if the directory isn't empty.
        let _ = std::fs::remove_dir(self.0);
    }
}

fn job_options(arguments: &DemoArguments, workload: &dyn Workload, seed: u64) -> Result<JobOptions, Failure> {
    let mut job = rank::job(workload, arguments.ranks, arguments.checkpoint_every())?;
    job.settings = arguments.settings();
    // Messages from two starts of a job have nothing in common for the oracle to compare.
    job.settings.trace = !job.settings.rule.properties.restarts_job;
    arguments.check(workload).map_err(Failure::usage)?;
    job.kills = arguments.kills();
    job.power_cuts.clone_from(&arguments.power_cuts);
    job.coordinator_losses.clone_from(&arguments.initiator_losses);
    job.seed = seed;
    if let Some(directory) = &arguments.shm_dir {
        job.shm_root.clone_from(directory);
    }
    if let Some(directory) = arguments.checkpoint_dir.as_ref().or(arguments.keep_files.as_ref()) {
        job.checkpoint_root.clone_from(directory);
    }
    job.keep_stores.clone_from(&arguments.keep_files);
    job.wall_max = Some(arguments.time_limit());
    job.validate().map_err(|error| match error {
        LaunchError::NoSuchRank { .. } => Failure::usage(format!("--{error}")),
        error => Failure::usage(error),
    })?;
    workload.validate(arguments.ranks).map_err(Failure::usage)?;
    // First, because its error names a sufficient budget.
    check_budget(workload, &job.settings).map_err(Failure::usage)?;
    job.settings.validate().map_err(|error| {
        let option = if error.option == "store" { "--disk-budget" } else { "--budget" };
        Failure::usage(format!("{option}: {error}"))
    })?;
    check_kills(&job.kills).map_err(Failure::usage)?;
    check_iterations(workload, arguments.ranks, &job.kills, &job.power_cuts).map_err(Failure::usage)?;
    Ok(job)
}

/// Checks that the log can hold the largest message, to avoid a failure in the middle of the run.
fn check_budget(workload: &dyn Workload, settings: &RankSettings) -> Result<(), String> {
    let (name, budget) = (workload.name(), settings.log_bytes_max);
    let message = workload.message_bytes_max(settings.ranks);
    // The minimum depends only on options left at their defaults by a rank's log.
    let options = Options::new(Rank(0), settings.ranks);
    match options.memory_bytes_for(WireHeader::LEN, message) {
        Some(least) if least <= budget => Ok(()),
        Some(least) => Err(format!(
            "--budget {budget}: the largest message of {name} is {message} bytes, which requires a log of at least {least} bytes"
        )),
        None => Err(format!("the largest message of {name} is {message} bytes, which no log can hold")),
    }
}

fn seed_from_clock() -> u64 {
    // Nanoseconds since 1970 fit for five centuries.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
