//! `counterfoil check`: choices of a job's ranks, found by replaying all of them.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use counterfoil_runtime::history::{self, Event};
use counterfoil_runtime::races::{self, Choice, Races};
use counterfoil_settings::recover::{JobDescription, ReplayEnd, Replayed, read_report};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::replay::{MpiOptions, Rank, calls_in, preloaded, progress_line};
use crate::run::launch::library_path;
use crate::table::Table;
use crate::{Failure, print};

/// Find the receives from any source that could have taken another message, in the logs kept by `counterfoil run
/// --recover --log-dir`.
///
/// Runs the program again for each rank, alone and in this directory, and compares the ranks' actions: a receive had a
/// choice if another rank's message fits, was not taken before, and was not sent because of what the receive took. The
/// exit code is 0 with or without choices, and 2 if a rank can't be replayed. The logs stay as they are.
#[derive(Debug, Args)]
#[command(override_usage = "counterfoil check [OPTIONS] LOGS [-- PROGRAM [ARGUMENTS]]")]
pub(crate) struct CheckArguments {
    /// Print all choices; otherwise the first ten of each rank
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    mpi: MpiOptions,
    /// Print a JSON object, with all choices
    #[arg(long)]
    pub(crate) json: bool,
    /// Don't show the progress line (shown on terminals only)
    #[arg(long)]
    no_progress: bool,
    /// The directory with the job's logs
    #[arg(value_name = "LOGS")]
    logs: PathBuf,
    /// The program and its arguments [default: the job's]
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Choices printed per rank without --all.
const PRINTED: usize = 10;

/// Printed results.
struct Report {
    races: Races,
    /// For each rank, how its replay ended if not with the program.
    ends: Vec<Option<String>>,
    prints_all: bool,
}

pub(crate) fn run(arguments: &CheckArguments) -> Result<ExitCode, Failure> {
    let first = Rank::find(&arguments.logs, 0)?;
    let (mpi, library) = arguments.mpi.find()?;
    let mut program = arguments.program.clone();
    if program.is_empty() {
        program = first.job.program.iter().map(OsString::from).collect();
    }
    let words: Vec<_> = program.iter().map(|word| word.to_string_lossy()).collect();
    eprintln!("counterfoil: runs `{}` for each rank", words.join(" "));
    if let Some(note) = first.note(&program, &mpi) {
        eprintln!("counterfoil: {note}");
    }
    let folder = tempfile::tempdir().map_err(|error| Failure::failed(format!("a temporary directory: {error}")))?;
    let ranks = first.job.settings.ranks;
    let line = progress_line("rank", u64::from(ranks), !arguments.no_progress);
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let registered = signal_hook::flag::register(signal, Arc::clone(&interrupted));
        registered.map_err(|error| Failure::failed(format!("cannot handle signal {signal}: {error}")))?;
    }
    let (mut histories, mut ends) = (Vec::new(), Vec::new());
    for rank in 0..ranks {
        let mut command = preloaded(&program, &library);
        command.envs(library_path(&mpi));
        let replayed = replay(command, &arguments.logs, rank, folder.path());
        if interrupted.load(Ordering::Relaxed) {
            return Err(Failure::failed("interrupted"));
        }
        let (history, end) = replayed?;
        histories.push(history);
        ends.push(end);
        line.inc(1);
    }
    line.finish_and_clear();
    let report = Report { races: races::find(&histories), ends, prints_all: arguments.all };
    if arguments.json {
        print(&report.to_json(&first.job).to_string())?;
    } else {
        print(&report.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Replays a rank; returns what it did, and how its replay ended.
fn replay(
    mut command: Command,
    logs: &Path,
    rank: u32,
    folder: &Path,
) -> Result<(Vec<Event>, Option<String>), Failure> {
    let mut replayed = Rank::find(logs, rank)?;
    let (history, reports) = (folder.join(format!("{rank}.history")), folder.join(rank.to_string()));
    std::fs::create_dir(&reports).map_err(|error| Failure::failed(format!("{}: {error}", reports.display())))?;
    replayed.settings.history = Some(history.clone());
    command.envs(replayed.variables(&reports));
    let program = command.get_program().to_string_lossy().into_owned();
    // The program repeats its output from the job.
    let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output();
    let ended = ended.map_err(|error| Failure::failed(format!("cannot run {program}: {error}")))?;
    let report: Option<Replayed> = read_report(&reports.join(Replayed::FILE));
    let end = match report {
        Some(Replayed { end: ReplayEnd::Same, .. }) => None,
        Some(Replayed { end: end @ (ReplayEnd::Differs | ReplayEnd::Failed), calls, call, why, .. }) => {
            let what = if end == ReplayEnd::Differs { "does something else" } else { "can't be replayed" };
            return Err(Failure::refused(format!("rank {rank} {what} in call {calls}, {call}: {why}")));
        }
        Some(Replayed { end: ReplayEnd::Aborted, calls, call, .. }) => {
            Some(format!("has ended the job after call {calls}, {call}"))
        }
        Some(Replayed { calls, call, .. }) => Some(format!("up to call {calls}, {call}")),
        // It died in the job too.
        None if ended.status.signal().is_some() && history.is_file() => {
            let calls = calls_in(&reports, rank).unwrap_or_default();
            Some(format!("died by a signal after call {calls}"))
        }
        None => {
            let said = String::from_utf8_lossy(&ended.stderr);
            let last = said.lines().last().unwrap_or_default();
            return Err(Failure::refused(format!(
                "rank {rank} can't be replayed: {program}: {}: {last}",
                ended.status
            )));
        }
    };
    Ok((history::read(&history).map_err(Failure::failed)?, end))
}

impl Report {
    fn to_json(&self, job: &JobDescription) -> serde_json::Value {
        let ranks =
            self.races.counts.iter().zip(&self.ends).map(|(counts, end)| json!({ "counts": counts, "end": end }));
        json!({
            "program": job.program,
            "mpi": job.mpi,
            "ranks": ranks.collect::<Vec<_>>(),
            "choices": self.races.choices,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(&[
            "rank",
            "from any source",
            "with a choice",
            "polls found",
            "runs of empty polls",
            "<replayed",
        ]);
        for (rank, (counts, end)) in self.races.counts.iter().zip(&self.ends).enumerate() {
            let figures = [counts.wildcards, counts.with_choice, counts.polls_found, counts.polls_without];
            let [wildcards, with_choice, found, without] = figures.map(|figure| figure.to_string());
            let end = end.clone().unwrap_or_else(|| "to its end".to_owned());
            table.row([rank.to_string(), wildcards, with_choice, found, without, end]);
        }
        write!(f, "{table}")?;
        for rank in 0..self.races.counts.len() as u32 {
            let of_rank: Vec<&Choice> = self.races.choices.iter().filter(|choice| choice.rank == rank).collect();
            let printed = if self.prints_all { of_rank.len() } else { of_rank.len().min(PRINTED) };
            for Choice { rank, place, taken, others } in &of_rank[..printed] {
                let others: Vec<String> = others.iter().map(u32::to_string).collect();
                write!(f, "\nrank {rank}, call {}, {}: ", place.call, place.name)?;
                write!(f, "took the message of rank {taken}, and could have taken one of rank {}", others.join(", "))?;
            }
            if printed < of_rank.len() {
                write!(f, "\nrank {rank}: {} more; --all prints them", of_rank.len() - printed)?;
            }
        }
        match self.races.choices.len() {
            0 => write!(f, "\nno receive from any source could have taken another message"),
            _ => write!(f, "\n`counterfoil replay --rank R --until CALL` stops there"),
        }
    }
}
