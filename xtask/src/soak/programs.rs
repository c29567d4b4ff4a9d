//! `cargo xtask soak programs`: runs the MPI programs of a folder with and without the library under them, and compares what they print and
//! how they end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clap::Args;
use serde_json::json;

use super::{RUNS_PER_PROGRESS_LINE, show_progress};
use crate::mpi::scratch::Scratch;
use crate::mpi::{Choice, Toolkit, preload};
use crate::table::Table;
use crate::workspace::{TaskError, Workspace, command_line};

/// Runs without the library that a result is compared with: it may depend on time in the MPI itself.
const NATIVE_RUNS_MAX: u32 = 10;
/// Seconds that a launcher has to end its ranks after the time limit.
const END_S: &str = "10";
/// Exit codes of a run that `timeout` has ended, and of one that it had to kill.
const TIMED_OUT: [i32; 2] = [124, 137];

/// Options of `cargo xtask soak programs`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    choice: Choice,
    /// Folder with programs, a file of C, C++ or Python each
    folder: PathBuf,
    /// File with a line for each run: program, number of ranks, arguments. A program without one runs without arguments
    #[arg(long, value_name = "FILE")]
    runs: Option<PathBuf>,
    /// Number of ranks of the programs without a line in --runs
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
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

/// A run of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    program: String,
    ranks: u32,
    arguments: Vec<String>,
}

impl Run {
    /// Parses a line of the file; `None` for one that is empty or a comment.
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

/// Outcome of a run, as far as it can be compared: ranks print in any order, and times differ.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    code: Option<i32>,
    lines: Vec<String>,
}

impl Outcome {
    fn of(output: &Output) -> Outcome {
        let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(without_times).collect();
        lines.sort();
        Outcome { code: output.status.code(), lines }
    }

    /// Describes it in a cell of the table.
    fn words(&self) -> String {
        match self.code {
            Some(code) if TIMED_OUT.contains(&code) => "ended by the time limit".to_owned(),
            Some(code) => format!("exit {code}, {} lines", self.lines.len()),
            None => "ended by a signal".to_owned(),
        }
    }
}

/// Returns a line with a dash in place of each time: a number with a point, and a unit after it.
fn without_times(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let is_unit = |word: &str| ["s", "ms", "us", "ns"].contains(&word.trim_end_matches([',', ';', '.', ')']));
    let is_time = |place: usize| {
        let number = words[place].trim_start_matches('(');
        number.contains('.') && number.parse::<f64>().is_ok() && words.get(place + 1).is_some_and(|word| is_unit(word))
    };
    let kept = (0..words.len()).map(|place| if is_time(place) { "-" } else { words[place] });
    kept.collect::<Vec<_>>().join(" ")
}

/// Result of a run in all ways.
#[derive(Debug)]
struct Compared {
    run: Run,
    native: String,
    /// By way: what differed.
    differences: BTreeMap<&'static str, String>,
}

/// Runs the programs. Returns `true` if none differed.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let toolkit = Toolkit::find_or_install(workspace, &options.choice)?;
    preload::build(workspace, &toolkit)?;
    let counterfoil = workspace.build_release()?;
    // Launchers have sockets below, whose paths are short.
    let scratch = Scratch::on_disk(&std::env::temp_dir(), "programs")?;
    let runner = Runner { toolkit: &toolkit, counterfoil, scratch: scratch.path(), options };
    let (compared, not_run) = runner.run_all()?;
    let failed = compared.iter().filter(|compared| !compared.differences.is_empty()).count();
    if options.json {
        let rows = compared.iter().map(|Compared { run, native, differences }| {
            json!({ "program": run.program, "ranks": run.ranks, "arguments": run.arguments, "native": native, "differences": differences })
        });
        let rows: Vec<_> = rows.collect();
        println!(
            "{}",
            json!({ "mpi": toolkit.mpi.to_string(), "passed": failed == 0, "runs": rows, "not_run": not_run })
        );
        return Ok(failed == 0);
    }
    let mut table = Table::new(["program", "ranks", "arguments", "alone", "under the library"]);
    for Compared { run, native, differences } in &compared {
        let found: Vec<String> = differences.iter().map(|(way, what)| format!("{way}: {what}")).collect();
        let found = if found.is_empty() { "same".to_owned() } else { found.join("; ") };
        table.row([run.program.clone(), run.ranks.to_string(), run.arguments.join(" "), native.clone(), found]);
    }
    println!("\n{table}");
    if !not_run.is_empty() {
        println!("not run, since this MPI, or the Python, lacks what they use: {}", not_run.join(", "));
    }
    println!("{}: {} runs, {failed} differ", toolkit.mpi, compared.len());
    Ok(failed == 0)
}

/// Everything that runs need.
struct Runner<'a> {
    toolkit: &'a Toolkit,
    counterfoil: PathBuf,
    scratch: &'a Path,
    options: &'a Options,
}

impl Runner<'_> {
    /// Compiles and runs everything. Returns what was compared, and the programs that can't be run.
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

    /// Reads the file of runs.
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
            self.set_environment(&mut command);
            return Ok(output(command.args(["-c", "from mpi4py import MPI"]))?.status.success());
        }
        let mut command = Command::new(&self.toolkit.mpi.mpicc);
        command.args(["-O1", "-w", "-I"]).arg(&self.options.folder).arg(source).arg("-o").arg(self.scratch.join(name));
        command.args(["-lpthread", "-lm"]);
        if has_extension(source, &["cpp"]) {
            command.args(["-DOMPI_SKIP_MPICXX", "-lstdc++"]);
        }
        Ok(output(&mut command)?.status.success())
    }

    /// Appends the command line of a rank.
    fn add_rank(&self, command: &mut Command, run: &Run) {
        let script = self.options.folder.join(format!("{}.py", run.program));
        if script.exists() {
            command.arg(&self.options.python).arg(script);
        } else {
            command.arg(self.scratch.join(&run.program));
        }
        command.args(&run.arguments);
    }

    /// Runs a program in each way.
    fn compare(&self, run: &Run) -> Result<Compared, TaskError> {
        let mut natives = vec![self.run_alone(run)?];
        let mut differences = BTreeMap::new();
        for (way, keep) in [("--keep acked", "acked"), ("--keep all", "all")] {
            let log = self.scratch.join("log");
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
                differences.insert(way, found);
            }
            if log.exists() {
                fs::remove_dir_all(&log).map_err(TaskError::file(&log))?;
            }
        }
        Ok(Compared { run: run.clone(), native: natives[0].words(), differences })
    }

    fn run_alone(&self, run: &Run) -> Result<Outcome, TaskError> {
        let mut command = self.limited(&self.toolkit.mpi.mpirun);
        command.args(["-n", &run.ranks.to_string()]);
        self.add_rank(&mut command, run);
        Ok(Outcome::of(&output(&mut command)?))
    }

    fn run_logged(&self, run: &Run, keep: &str, log: Option<&PathBuf>) -> Result<Output, TaskError> {
        let mut command = self.limited(&self.counterfoil);
        command.args(["run", "--no-progress", "--keep", keep, "-n", &run.ranks.to_string(), "--mpi"]);
        command.arg(self.toolkit.mpi.selector());
        if let Some(log) = log {
            command.arg("--log-dir").arg(log);
        }
        command.arg("--");
        self.add_rank(&mut command, run);
        output(&mut command)
    }

    /// Verifies a log; returns what is wrong with it.
    fn verify(&self, log: &Path) -> Result<Option<String>, TaskError> {
        let verified = output(Command::new(&self.counterfoil).args(["log", "verify"]).arg(log))?;
        let text = String::from_utf8_lossy(&verified.stderr).into_owned() + &String::from_utf8_lossy(&verified.stdout);
        let last = text.lines().rfind(|line| !line.is_empty()).unwrap_or_default();
        Ok((!verified.status.success()).then(|| format!("log verify: {last}")))
    }

    /// Sets the variables of the MPI, and the folder in which mpi4py looks for it.
    fn set_environment(&self, command: &mut Command) {
        self.toolkit.mpi.set_environment(command);
        command.env("LD_LIBRARY_PATH", &self.toolkit.mpi.library_dir);
    }

    /// Returns a command that is killed after the time limit.
    fn limited(&self, program: &Path) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", END_S, &self.options.timeout_s.to_string()]).arg(program);
        self.set_environment(&mut command);
        // Sessions that killed launchers have left in a shared directory can prevent a start.
        command.env("TMPDIR", self.scratch);
        command
    }
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|extension| extensions.iter().any(|of| extension == *of))
}

fn output(command: &mut Command) -> Result<Output, TaskError> {
    let program = command_line(command);
    command.stdin(std::process::Stdio::null()).output().map_err(|source| TaskError::Start { program, source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

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

    #[test]
    fn times_are_no_difference_and_other_numbers_are() {
        assert_eq!(without_times("N 200: 0.004 s"), "N 200: - s");
        assert_eq!(without_times("(1.5 ms, 2.5) x 3 s"), "- ms, 2.5) x 3 s");
        assert_eq!(without_times("sum 0.25 of rank 1"), "sum 0.25 of rank 1");
    }

    #[test]
    fn outcomes_differ_by_code_and_lines_and_not_by_the_order_of_the_ranks() {
        let outcome = |code: i32, stdout: &str| {
            Outcome::of(&Output { status: ExitStatus::from_raw(code << 8), stdout: stdout.into(), stderr: Vec::new() })
        };
        assert_eq!(outcome(0, "rank 1\nrank 0\n"), outcome(0, "rank 0\nrank 1\n"));
        assert_ne!(outcome(0, "rank 0\n"), outcome(0, "rank 0\nrank 0\n"));
        assert_ne!(outcome(0, ""), outcome(1, ""));
        assert_eq!(
            (&*outcome(3, "a\nb").words(), &*outcome(TIMED_OUT[0], "").words()),
            ("exit 3, 2 lines", "ended by the time limit")
        );
    }
}
