//! `cargo xtask soak programs`: runs a folder's MPI programs with and without a library, and compares their output and
//! exit status.
//!
//! With `--recover`, ranks are killed and replaced meanwhile.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clap::Args;
use serde_json::json;

use super::random::SplitMix64;
use super::runner::{Outcome, Runner, json_of, output};
use super::{RUNS_PER_PROGRESS_LINE, show_progress};
use crate::mpi::scratch::Scratch;
use crate::mpi::{Choice, Toolkit, preload};
use crate::table::Table;
use crate::workspace::{TaskError, Workspace};

/// Maximum runs without the library to compare a result with: it may depend on time in the MPI itself.
const NATIVE_RUNS_MAX: u32 = 10;
/// Options for `cargo xtask soak programs`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    choice: Choice,
    /// Folder with programs, a file of C, C++ or Python each
    folder: PathBuf,
    /// File with a line for each run: program, number of ranks, arguments. A program without one runs without arguments
    #[arg(long, value_name = "FILE")]
    runs: Option<PathBuf>,
    /// Number of ranks for programs without a line in --runs
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
    /// Run the programs under `counterfoil run --recover` in place of logging them
    #[arg(long)]
    recover: bool,
    /// With --recover: runs of each program in which a rank is killed before one of its calls
    #[arg(long, default_value_t = 3, requires = "recover")]
    kills: u32,
    /// With --recover: keep each run's logs, and replay each of its ranks alone
    #[arg(long, requires = "recover")]
    replay: bool,
    /// With --recover: seed for ranks and calls
    #[arg(long, default_value_t = 1, requires = "recover")]
    seed: u64,
    /// Python with an mpi4py for the MPI, for the programs in Python
    #[arg(long, value_name = "FILE", default_value = "python3")]
    python: PathBuf,
    /// Seconds after which a run is killed
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    timeout_s: u32,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// A program run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    program: String,
    ranks: u32,
    arguments: Vec<String>,
}

impl Run {
    /// Parses a line of the file; `None` for an empty line or a comment.
    fn parse(line: &str) -> Option<Result<Run, String>> {
        let mut words = line.split_whitespace();
        let program = words.next().filter(|program| !program.starts_with('#'))?.to_owned();
        let ranks = words.next().and_then(|ranks| ranks.parse().ok()).filter(|&ranks| ranks > 0);
        let arguments = words.map(str::to_owned).collect();
        Some(match ranks {
            Some(ranks) => Ok(Run { program, ranks, arguments }),
            None => Err(format!("{line:?}: a line is PROGRAM RANKS [ARGUMENTS]")),
        })
    }
}

/// Results of a run in all ways.
#[derive(Debug)]
struct Compared {
    run: Run,
    native: String,
    /// Difference found, by way.
    differences: BTreeMap<String, String>,
    /// Call unsupported by recovery.
    refused: Option<String>,
}

/// Runs the programs.
///
/// Returns `true` if none differed.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let find = if options.recover { Toolkit::find_or_install_any } else { Toolkit::find_or_install };
    let toolkit = find(workspace, &options.choice)?;
    preload::build(workspace, &toolkit)?;
    let counterfoil = workspace.build_release()?;
    // Launchers create sockets below it, and socket paths must be short.
    let scratch = Scratch::on_disk(&std::env::temp_dir(), "programs")?;
    let runner =
        Runner { toolkit: &toolkit, counterfoil: &counterfoil, scratch: scratch.path(), timeout_s: options.timeout_s };
    let (compared, not_run) = Programs { runner, options }.run_all()?;
    let failed = compared.iter().filter(|compared| !compared.differences.is_empty()).count();
    if options.json {
        let rows = compared.iter().map(|Compared { run, native, differences, refused }| {
            json!({
                "program": run.program, "ranks": run.ranks, "arguments": run.arguments, "native": native,
                "differences": differences, "refused": refused
            })
        });
        let rows: Vec<_> = rows.collect();
        println!(
            "{}",
            json!({ "mpi": toolkit.mpi.to_string(), "passed": failed == 0, "runs": rows, "not_run": not_run })
        );
        return Ok(failed == 0);
    }
    let mut table = Table::new(["program", "ranks", "arguments", "alone", "under the library"]);
    for Compared { run, native, differences, refused } in &compared {
        let found: Vec<String> = differences.iter().map(|(way, what)| format!("{way}: {what}")).collect();
        let found = match refused {
            Some(call) => format!("refused: {call}"),
            None if found.is_empty() => "same".to_owned(),
            None => found.join("; "),
        };
        table.row([run.program.clone(), run.ranks.to_string(), run.arguments.join(" "), native.clone(), found]);
    }
    println!("\n{table}");
    if !not_run.is_empty() {
        println!("not run, since this MPI, or the Python, lacks what they use: {}", not_run.join(", "));
    }
    println!("{}: {} runs, {failed} differ", toolkit.mpi, compared.len());
    Ok(failed == 0)
}

/// Context for all runs.
struct Programs<'a> {
    runner: Runner<'a>,
    options: &'a Options,
}

impl Programs<'_> {
    /// Compiles and runs everything.
    ///
    /// Returns the comparisons, and the programs that can't be run.
    fn run_all(&self) -> Result<(Vec<Compared>, Vec<String>), TaskError> {
        let folder = &self.options.folder;
        let entries = fs::read_dir(folder).map_err(TaskError::file(folder))?;
        let mut sources: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        sources.retain(|path| has_extension(path, &["c", "cpp", "py"]));
        sources.sort();
        let (mut runs, mut not_run) = (Vec::new(), Vec::new());
        let listed = self.listed()?;
        let is_there = |name: &str| sources.iter().any(|source| source.file_stem().is_some_and(|stem| stem == name));
        let missing =
            listed.iter().find(|run| !is_there(&run.program)).map(|run| format!("there is no program {}", run.program));
        let wrong = if sources.is_empty() { Some("there is no file of C, C++ or Python".to_owned()) } else { missing };
        if let Some(wrong) = wrong {
            return Err(TaskError::File { path: folder.clone(), source: std::io::Error::other(wrong) });
        }
        for source in &sources {
            let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if !self.prepare(source, &name)? {
                not_run.push(name);
                continue;
            }
            let before = runs.len();
            runs.extend(listed.iter().filter(|run| run.program == name).cloned());
            if runs.len() == before {
                runs.push(Run { program: name, ranks: self.options.ranks, arguments: Vec::new() });
            }
        }
        let mut compared = Vec::new();
        for (number, run) in (1_u64..).zip(&runs) {
            compared.push(self.compare(run)?);
            let differ = compared.iter().filter(|compared: &&Compared| !compared.differences.is_empty()).count();
            let line = format!("{number} of {} runs, {differ} differ; last: {}", runs.len(), run.program);
            show_progress(&line, number == runs.len() as u64, number.is_multiple_of(RUNS_PER_PROGRESS_LINE));
        }
        Ok((compared, not_run))
    }

    /// Reads the runs file.
    fn listed(&self) -> Result<Vec<Run>, TaskError> {
        let Some(file) = &self.options.runs else { return Ok(Vec::new()) };
        let text = fs::read_to_string(file).map_err(TaskError::file(file))?;
        let runs: Result<Vec<Run>, String> = text.lines().filter_map(Run::parse).collect();
        runs.map_err(|error| TaskError::File { path: file.clone(), source: std::io::Error::other(error) })
    }

    /// Compiles a program, or looks for mpi4py for one in Python; returns `false` if it can't be run.
    fn prepare(&self, source: &Path, name: &str) -> Result<bool, TaskError> {
        if has_extension(source, &["py"]) {
            let mut command = Command::new(&self.options.python);
            self.runner.set_environment(&mut command);
            return Ok(output(command.args(["-c", "from mpi4py import MPI"]))?.status.success());
        }
        self.runner.compile(source, name, &self.options.folder)
    }

    /// Returns a program's command line as words.
    fn words(&self, run: &Run) -> Vec<OsString> {
        let script = self.options.folder.join(format!("{}.py", run.program));
        let mut words: Vec<OsString> = match script.exists() {
            true => vec![self.options.python.clone().into(), script.into()],
            false => vec![self.runner.scratch.join(&run.program).into()],
        };
        words.extend(run.arguments.iter().map(OsString::from));
        words
    }

    /// Runs a program in each way.
    fn compare(&self, run: &Run) -> Result<Compared, TaskError> {
        if self.options.recover {
            return self.compare_recovered(run);
        }
        let mut natives = vec![self.run_alone(run)?];
        let mut differences = BTreeMap::new();
        for (way, keep) in [("--keep acked", "acked"), ("--keep all", "all")] {
            let log = self.runner.scratch.join("log");
            let output = self.run_logged(run, keep, (keep == "all").then_some(&log))?;
            let outcome = Outcome::of(&output);
            while !natives.contains(&outcome) && natives.len() < NATIVE_RUNS_MAX as usize {
                natives.push(self.run_alone(run)?);
            }
            let stderr = String::from_utf8_lossy(&output.stderr);
            let found = if !natives.contains(&outcome) {
                Some(format!("{}, {:?}", outcome.words(), outcome.lines))
            } else if let Some(line) = stderr.lines().find(|line| line.contains("nothing more is logged")) {
                Some(line.to_owned())
            } else if keep == "all" && outcome.code == Some(0) {
                self.verify(&log)?
            } else {
                None
            };
            if let Some(found) = found {
                differences.insert(way.to_owned(), found);
            }
            if log.exists() {
                fs::remove_dir_all(&log).map_err(TaskError::file(&log))?;
            }
        }
        Ok(Compared { run: run.clone(), native: natives[0].words(), differences, refused: None })
    }

    /// Runs a program under the recovery library, first without failures and then with a killed rank each time.
    fn compare_recovered(&self, run: &Run) -> Result<Compared, TaskError> {
        let mut natives = vec![self.run_alone(run)?];
        let mut compared =
            Compared { run: run.clone(), native: natives[0].words(), differences: BTreeMap::new(), refused: None };
        let seed = run.program.bytes().fold(self.options.seed, |seed, byte| seed.wrapping_mul(31) + u64::from(byte));
        let (mut random, mut calls) = (SplitMix64::new(seed), Vec::new());
        for number in 0..=self.options.kills {
            let kill = (number > 0).then(|| draw_kill(&calls, &mut random)).flatten();
            if number > 0 && kill.is_none() {
                break;
            }
            let logs = self.options.replay.then(|| self.runner.scratch.join("kept"));
            let output = self.run_recovered(run, kill.as_deref(), logs.as_deref())?;
            let (outcome, stderr) = (Outcome::of(&output), String::from_utf8_lossy(&output.stderr));
            let way = kill.map_or("--recover".to_owned(), |kill| format!("--kill {kill}"));
            let replayed = logs.as_ref().map(|logs| self.replay(run, logs, outcome.code == Some(0))).transpose()?;
            if let Some(logs) = logs.filter(|logs| logs.exists()) {
                fs::remove_dir_all(&logs).map_err(TaskError::file(&logs))?;
            }
            if let Some(call) = stderr.lines().find_map(refused_call) {
                compared.refused = Some(call.to_owned());
                break;
            }
            while !natives.contains(&outcome) && natives.len() < NATIVE_RUNS_MAX as usize {
                natives.push(self.run_alone(run)?);
            }
            if !natives.contains(&outcome) {
                let last = stderr.lines().rfind(|line| line.starts_with("counterfoil: rank")).unwrap_or_default();
                compared.differences.insert(way, format!("{}, {:?} {last}", outcome.words(), outcome.lines));
                break;
            }
            if let Some(found) = replayed.flatten() {
                compared.differences.insert(format!("{way}, replay"), found);
                break;
            }
            if number == 0 {
                calls = calls_of(&stderr);
            }
        }
        Ok(compared)
    }

    /// Replays each rank of a run.
    ///
    /// Returns a rank's deviation. A rank of a failed job may end anywhere.
    fn replay(&self, run: &Run, logs: &Path, has_succeeded: bool) -> Result<Option<String>, TaskError> {
        for rank in 0..run.ranks {
            let mut command = self.runner.limited(self.runner.counterfoil);
            command.args(["replay", "--json", "--rank", &rank.to_string(), "--mpi"]);
            command.arg(self.runner.toolkit.mpi.selector()).arg(logs).arg("--");
            let output = output(command.args(self.words(run)))?;
            let stderr = String::from_utf8_lossy(&output.stderr);
            let outcome = json_of(&stderr);
            let replayed = &outcome["replayed"];
            let is_right = match replayed["end"].as_str() {
                Some("same") => true,
                Some("aborted" | "died" | "record-ends") => !has_succeeded,
                _ => false,
            };
            if !is_right {
                let last = stderr.lines().next_back().unwrap_or_default();
                let found = if replayed.is_null() { last.to_owned() } else { replayed.to_string() };
                return Ok(Some(format!("rank {rank}: {}: {found}", output.status)));
            }
        }
        Ok(None)
    }

    fn run_recovered(&self, run: &Run, kill: Option<&str>, logs: Option<&Path>) -> Result<Output, TaskError> {
        let mut options: Vec<OsString> = Vec::new();
        options.extend(kill.into_iter().flat_map(|kill| ["--kill".into(), kill.into()]));
        options.extend(logs.into_iter().flat_map(|logs| ["--log-dir".into(), logs.into()]));
        self.runner.run_recovered(run.ranks, &options, &self.words(run))
    }

    fn run_alone(&self, run: &Run) -> Result<Outcome, TaskError> {
        self.runner.run_alone(run.ranks, &self.words(run))
    }

    fn run_logged(&self, run: &Run, keep: &str, log: Option<&PathBuf>) -> Result<Output, TaskError> {
        let mut command = self.runner.limited(self.runner.counterfoil);
        command.args(["run", "--no-progress", "--keep", keep, "-n", &run.ranks.to_string(), "--mpi"]);
        command.arg(self.runner.toolkit.mpi.selector());
        if let Some(log) = log {
            command.arg("--log-dir").arg(log);
        }
        command.arg("--");
        output(command.args(self.words(run)))
    }

    /// Verifies a log; returns the problem found.
    fn verify(&self, log: &Path) -> Result<Option<String>, TaskError> {
        let verified = output(Command::new(self.runner.counterfoil).args(["log", "verify"]).arg(log))?;
        let text = String::from_utf8_lossy(&verified.stderr).into_owned() + &String::from_utf8_lossy(&verified.stdout);
        let last = text.lines().rfind(|line| !line.is_empty()).unwrap_or_default();
        Ok((!verified.status.success()).then(|| format!("log verify: {last}")))
    }
}

/// Returns each rank's number of calls, from a run's summary.
fn calls_of(stderr: &str) -> Vec<u64> {
    let summary = json_of(stderr);
    let ranks = summary["ranks"].as_array().into_iter().flatten();
    ranks.filter_map(|rank| rank["calls"].as_u64()).collect()
}

/// Draws a rank and one of its calls, as the argument of `--kill`; `None` if no calls are known.
fn draw_kill(calls: &[u64], random: &mut SplitMix64) -> Option<String> {
    let last = u32::try_from(calls.len()).ok()?.checked_sub(1)?;
    let rank = random.in_range(0, last);
    let call = random.in_range(1, u32::try_from(calls[rank as usize]).unwrap_or(u32::MAX).max(1));
    Some(format!("{rank}@{call}"))
}

/// Returns the call refused in a line from the recovery library.
fn refused_call(line: &str) -> Option<&str> {
    line.split_once(" is not available to a program that recovers")?.0.rsplit(' ').next()
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|extension| extensions.iter().any(|of| extension == *of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_program_its_ranks_and_its_arguments() {
        let run = |ranks, arguments: &[&str]| {
            let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
            Some(Ok(Run { program: "ring".to_owned(), ranks, arguments }))
        };
        assert_eq!(Run::parse("ring 4"), run(4, &[]));
        assert_eq!(Run::parse("  ring 2 -v  7 "), run(2, &["-v", "7"]));
        assert_eq!((Run::parse(""), Run::parse("# ring 4")), (None, None));
        for wrong in ["ring", "ring four", "ring 0"] {
            assert!(Run::parse(wrong).is_some_and(|parsed| parsed.is_err()), "{wrong}");
        }
    }
}
