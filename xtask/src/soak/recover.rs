//! `cargo xtask soak recover`: kills ranks of unmodified programs under `counterfoil run --recover`, at all kinds of
//! moments, and compares the programs' output with a run without failures.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs};

use clap::Args;
use counterfoil_mpi_discovery::Implementation;
use serde_json::{Value, json};

use super::random::SplitMix64;
use super::runner::{Outcome, Runner, json_of};
use super::{RUNS_PER_PROGRESS_LINE, clear_progress, seed_from_clock, show_progress};
use crate::mpi::scratch::Scratch;
use crate::mpi::{Choice, Toolkit, hpcc, preload};
use crate::table::Table;
use crate::workspace::{TaskError, Workspace};

/// Longest time between a rank's kill and another rank's kill during its repair, in milliseconds.
const REPAIR_MS_MAX: u32 = 60;
/// Time for the ranks to call `MPI_Init`, in milliseconds.
const INIT_MS: u32 = 700;
/// Shortest run with kills at times.
const LONG: Duration = Duration::from_secs(2);
/// Kills in a run with [`Moment::Many`].
const MANY: u32 = 6;

/// Log memory per rank.
const BUDGET: &str = "1GiB";
/// A process's standard output, as a file.
const OUTPUT: &str = "/proc/self/fd/1";

/// Programs to run, except those not installed.
const PROGRAMS: [Source; 15] = [
    Source::of("recover/tests/c/steps.c", 3),
    Source { compared: Some("consistent"), ..Source::of("recover/tests/c/racy.c", 4) },
    Source { arguments: &["200"], ..Source::of("recover/tests/c/overlap.c", 4) },
    Source { arguments: &["12000"], ..Source::of("recover/tests/c/overlap.c", 4) },
    Source::of("recover/tests/c/groups.c", 4),
    Source::of("recover/tests/c/clocks.c", 3),
    Source::of("preload/tests/c/point_to_point.c", 4),
    Source::of("preload/tests/c/collectives.c", 4),
    Source::of("preload/tests/c/communicators.c", 4),
    Source { arguments: &["1"], ..Source::of("preload/tests/c/graphs.c", 4) },
    Source::of("preload/tests/c/streams.c", 3),
    Source { arguments: &["A"], compared: Some("\"is_right\": true"), ..Source::of("benches/cg.c", 4) },
    Source { arguments: &["-u", "64", "-o", OUTPUT], compared: Some(" 0.0"), ..Source::of("/usr/bin/NPopenmpi", 2) },
    Source { compared: Some("Success=1"), hpcc_size: Some(200), ..Source::of(hpcc::FILE, 4) },
    Source { compared: Some("Success=1"), hpcc_size: Some(1000), ..Source::of(hpcc::FILE, 4) },
];

/// Program definition.
#[derive(Clone, Copy)]
struct Source {
    /// Source below `mpi`, or an installed program for Open MPI.
    file: &'static str,
    ranks: u32,
    arguments: &'static [&'static str],
    /// Compared output part, for a program with timing-dependent output.
    compared: Option<&'static str>,
    /// HPCC matrix size.
    hpcc_size: Option<u32>,
}

impl Source {
    const fn of(file: &'static str, ranks: u32) -> Source {
        Source { file, ranks, arguments: &[], compared: None, hpcc_size: None }
    }

    fn is_installed(&self) -> bool {
        self.file.starts_with('/')
    }

    /// Returns `true` if the program can run over this MPI.
    fn is_there(&self, toolkit: &Toolkit) -> bool {
        !self.is_installed()
            || (Path::new(self.file).is_file() && toolkit.mpi.implementation == Implementation::OpenMpi)
    }

    fn name(&self) -> String {
        let stem = Path::new(self.file).file_stem().unwrap_or_default().to_string_lossy();
        let size = self.hpcc_size.map(|size| format!("N={size} "));
        format!("{stem} {}{} on {} ranks", size.unwrap_or_default(), self.arguments.join(" "), self.ranks)
    }
}

/// Options for `cargo xtask soak recover`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    choice: Choice,
    /// Number of planned kills after which the soak ends
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    kills: u64,
    /// Kills of these moments only: call, time, init, finalize, two, repair, again, many
    #[arg(long = "moment", value_name = "MOMENT", value_parser = parse_moment)]
    moments: Vec<Moment>,
    /// Seed for programs, ranks and moments; the same seed gives the same calls [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// Seconds after which a run is killed, and counted as hung
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..))]
    timeout_s: u32,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// Kill moment in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    /// Before one of a rank's calls.
    Call,
    /// At a time.
    Time,
    /// While the ranks call `MPI_Init`.
    Init,
    /// Before `MPI_Finalize`.
    Finalize,
    /// Two ranks at once.
    Two,
    /// Another rank soon after the first.
    Repair,
    /// The replacement, before a call in its replay or later.
    Again,
    /// Several ranks, one after the other.
    Many,
}

impl Moment {
    const ALL: [Moment; 8] = [
        Moment::Call,
        Moment::Time,
        Moment::Init,
        Moment::Finalize,
        Moment::Two,
        Moment::Repair,
        Moment::Again,
        Moment::Many,
    ];

    fn name(self) -> &'static str {
        match self {
            Moment::Call => "call",
            Moment::Time => "time",
            Moment::Init => "init",
            Moment::Finalize => "finalize",
            Moment::Two => "two",
            Moment::Repair => "repair",
            Moment::Again => "again",
            Moment::Many => "many",
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

fn parse_moment(text: &str) -> Result<Moment, String> {
    let found = Moment::ALL.into_iter().find(|moment| moment.name() == text);
    found.ok_or_else(|| format!("must be one of {}", Moment::ALL.map(Moment::name).join(", ")))
}

/// A program with its failure-free run.
struct Program {
    source: Source,
    /// Working directory.
    folder: PathBuf,
    words: Vec<OsString>,
    expected: Outcome,
    /// Number of calls per rank, including `MPI_Finalize`.
    calls: Vec<u64>,
    wall: Duration,
}

impl Program {
    /// Returns `true` if most times of such kills are after `MPI_Init`.
    fn fits(&self, moment: Moment) -> bool {
        let is_timed = matches!(moment, Moment::Time | Moment::Two | Moment::Repair | Moment::Many);
        !is_timed || self.wall >= LONG
    }

    /// Draws a run's `--kill` arguments.
    fn draw(&self, moment: Moment, random: &mut SplitMix64) -> Vec<String> {
        let ranks = self.source.ranks;
        let wall_ms = u32::try_from(self.wall.as_millis()).unwrap_or(u32::MAX).max(1);
        let mut rank = || random.in_range(0, ranks - 1);
        let (first, second) = (rank(), rank());
        let other = if second == first { (first + 1) % ranks } else { second };
        let call_of = |rank: u32, random: &mut SplitMix64| {
            let calls = u32::try_from(self.calls[rank as usize]).unwrap_or(u32::MAX);
            format!("{rank}@{}", random.in_range(1, calls))
        };
        let at = |rank: u32, ms: u32| format!("{rank}@{ms}ms");
        match moment {
            Moment::Call => vec![call_of(first, random)],
            Moment::Time => vec![at(first, random.in_range(0, wall_ms))],
            Moment::Init => vec![at(first, random.in_range(0, INIT_MS))],
            Moment::Finalize => vec![format!("{first}@{}", self.calls[first as usize])],
            Moment::Two => {
                let ms = random.in_range(INIT_MS.min(wall_ms), wall_ms);
                vec![at(first, ms), at(other, ms)]
            }
            Moment::Repair => {
                let ms = random.in_range(INIT_MS.min(wall_ms), wall_ms);
                vec![at(first, ms), at(other, ms + random.in_range(1, REPAIR_MS_MAX))]
            }
            Moment::Again => vec![call_of(first, random), call_of(first, random)],
            Moment::Many => {
                let latest = wall_ms.saturating_mul(2);
                (0..MANY).map(|_| at(random.in_range(0, ranks - 1), random.in_range(0, latest))).collect()
            }
        }
    }

    /// Returns an outcome's compared part.
    fn compared(&self, outcome: Outcome) -> Outcome {
        match self.source.compared {
            Some(part) => outcome.with_lines(part),
            None => outcome,
        }
    }
}

/// Run counts for one moment.
#[derive(Default)]
struct Count {
    runs: u64,
    /// Planned kills; a rank may have ended before its kill.
    planned: u64,
    /// Runs with a replaced process or a restarted job.
    hit: u64,
    replaced: u64,
    restarts: u64,
    failed: u64,
}

/// Runs the soak.
///
/// Returns `true` if no run failed.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let toolkit = Toolkit::find_or_install_any(workspace, &options.choice)?;
    let has_spares = toolkit.mpi.has_ulfm();
    preload::build(workspace, &toolkit)?;
    let counterfoil = workspace.build_release()?;
    // Launchers create sockets below it, and socket paths must be short.
    let scratch = Scratch::on_disk(&std::env::temp_dir(), "recover")?;
    let sources = PROGRAMS.into_iter().filter(|source| source.is_there(&toolkit));
    let folders = (0..).map(|number: u32| scratch.path().join(number.to_string()));
    let runner =
        Runner { toolkit: &toolkit, counterfoil: &counterfoil, scratch: scratch.path(), timeout_s: options.timeout_s };
    let programs = sources.zip(folders).map(|(source, folder)| begin(workspace, &runner.within(&folder), source));
    let programs: Vec<Program> = programs.collect::<Result<_, _>>()?;
    let seed = options.seed.unwrap_or_else(seed_from_clock);
    eprintln!("{} kills of ranks of {} programs, seed {seed}", options.kills, programs.len());
    let moments = if options.moments.is_empty() { Moment::ALL.to_vec() } else { options.moments.clone() };

    let (mut random, mut counts, mut failures) = (SplitMix64::new(seed), BTreeMap::new(), Vec::new());
    let (mut runs, mut planned) = (0, 0);
    while planned < options.kills {
        // A generator per run: its draws do not depend on the previous run.
        let mut random = SplitMix64::new(random.next_u64());
        let moment = moments[runs % moments.len()];
        let fitting: Vec<&Program> = programs.iter().filter(|program| program.fits(moment)).collect();
        let all: Vec<&Program> = programs.iter().collect();
        let program = random.choose(if fitting.is_empty() { &all } else { &fitting });
        let kills = program.draw(moment, &mut random);
        // One run in five has no spare, as have all runs if the MPI ends with its first dead process: the job is
        // started again.
        let spares = if random.in_range(0, 4) == 0 || !has_spares { 0 } else { kills.len() as u32 };
        let count: &mut Count = counts.entry(moment).or_default();
        runs += 1;
        planned += kills.len() as u64;
        (count.runs, count.planned) = (count.runs + 1, count.planned + kills.len() as u64);
        let (summary, problem) = try_once(&runner.within(&program.folder), program, &kills, spares)?;
        let (replaced, restarts) = (replaced(&summary), summary["restarts"].as_u64().unwrap_or_default());
        (count.replaced, count.restarts) = (count.replaced + replaced, count.restarts + restarts);
        count.hit += u64::from(replaced + restarts > 0);
        if let Some(problem) = problem {
            count.failed += 1;
            let kills = kills.join(" --kill ");
            let line = format!("{}, --spares {spares} --kill {kills}: {problem}", program.source.name());
            clear_progress();
            eprintln!("FAILED: {line}");
            failures.push(line);
        }
        let line = format!("{planned} of {} kills, {} runs failed; last: {moment}", options.kills, failures.len());
        show_progress(&line, planned >= options.kills, (runs as u64).is_multiple_of(RUNS_PER_PROGRESS_LINE));
    }
    report(options, &toolkit, seed, &counts, &failures);
    Ok(failures.is_empty())
}

/// Compiles a program in its folder, and runs it without failures: natively, and under the library.
fn begin(workspace: &Workspace, runner: &Runner<'_>, source: Source) -> Result<Program, TaskError> {
    const BINARY: &str = "program";
    let (mpi, folder) = (workspace.root().join("mpi"), runner.scratch.to_owned());
    let file = mpi.join(source.file);
    let refuse = |why: String| TaskError::File { path: file.clone(), source: std::io::Error::other(why) };
    fs::create_dir(&folder).map_err(TaskError::file(&folder))?;
    if let Some(size) = source.hpcc_size {
        hpcc::write_input(&folder, size, (2, source.ranks / 2))?;
        // Links the results file to stdout, so that rank 0's results are printed.
        let output = folder.join(hpcc::OUTPUT);
        symlink(OUTPUT, &output).map_err(TaskError::file(&output))?;
    }
    let binary = if source.is_installed() {
        file.clone()
    } else if runner.compile(&file, BINARY, &mpi.join("preload/tests/c"))? {
        folder.join(BINARY)
    } else {
        return Err(refuse("it can't be compiled".to_owned()));
    };
    let arguments = source.arguments.iter().map(OsString::from);
    let words: Vec<OsString> = [binary.into()].into_iter().chain(arguments).collect();
    let expected = runner.run_alone(source.ranks, &words)?;
    let mut program = Program { source, folder, words, expected, calls: Vec::new(), wall: Duration::ZERO };
    program.expected = program.compared(program.expected.clone());
    if source.compared.is_some() && program.expected.lines.is_empty() {
        return Err(refuse("its output isn't what is compared".to_owned()));
    }
    let (summary, problem) = try_once(runner, &program, &[], 1)?;
    if let Some(problem) = problem {
        return Err(refuse(format!("without kills: {problem}")));
    }
    let calls = summary["ranks"].as_array().into_iter().flatten().filter_map(|rank| rank["calls"].as_u64());
    program.calls = calls.collect();
    program.wall = Duration::from_secs_f64(summary["wall_s"].as_f64().unwrap_or_default());
    Ok(program)
}

/// Runs a program with these kills.
///
/// Returns the command's summary and the failure, if any.
fn try_once(
    runner: &Runner<'_>,
    program: &Program,
    kills: &[String],
    spares: u32,
) -> Result<(Value, Option<String>), TaskError> {
    let output = runner.run_recovered(program.source.ranks, &options_of(kills, spares), &program.words)?;
    let outcome = program.compared(Outcome::of(&output));
    let stderr = String::from_utf8_lossy(&output.stderr);
    let is_right = outcome == program.expected;
    let last = stderr.lines().rfind(|line| line.starts_with("counterfoil: rank")).unwrap_or_default();
    Ok((json_of(&stderr), (!is_right).then(|| format!("{} {last}", outcome.words()))))
}

fn options_of(kills: &[String], spares: u32) -> Vec<OsString> {
    let spares = spares.to_string();
    let kills = kills.iter().flat_map(|kill| ["--kill", kill]);
    ["--budget", BUDGET, "--spares", &spares].into_iter().chain(kills).map(OsString::from).collect()
}

/// Returns the number of replacement processes in a summary.
fn replaced(summary: &Value) -> u64 {
    let ranks = summary["ranks"].as_array().into_iter().flatten();
    let processes = ranks.filter_map(|rank| Some(rank["processes"].as_array()?.len() as u64));
    processes.map(|processes| processes.saturating_sub(1)).sum()
}

fn report(options: &Options, toolkit: &Toolkit, seed: u64, counts: &BTreeMap<Moment, Count>, failures: &[String]) {
    if options.json {
        let moments = counts.iter().map(|(moment, count)| {
            json!({
                "moment": moment.name(), "runs": count.runs, "planned_kills": count.planned, "hit": count.hit,
                "replaced": count.replaced, "restarts": count.restarts, "failed": count.failed
            })
        });
        let moments: Vec<Value> = moments.collect();
        let report = json!({
            "mpi": toolkit.mpi.to_string(), "seed": seed, "passed": failures.is_empty(), "moments": moments,
            "failures": failures
        });
        println!("{report}");
        return;
    }
    let mut table =
        Table::new(["moment", "runs", "planned kills", "runs hit", "processes replaced", "restarts", "failed"]);
    for (moment, count) in counts {
        let figures = [count.runs, count.planned, count.hit, count.replaced, count.restarts, count.failed];
        let cells = std::iter::once(moment.to_string()).chain(figures.iter().map(u64::to_string));
        table.row(cells);
    }
    println!("\n{table}");
    failures.iter().for_each(|failure| println!("{failure}"));
    println!("{}, seed {seed}: {} runs failed", toolkit.mpi, failures.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Program {
        Program {
            source: Source::of("p.c", 3),
            folder: PathBuf::new(),
            words: Vec::new(),
            expected: Outcome::default(),
            calls: vec![10, 20, 30],
            wall: Duration::from_millis(900),
        }
    }

    #[test]
    fn kills_are_of_ranks_that_there_are_and_within_their_calls() {
        let (program, mut random) = (program(), SplitMix64::new(1));
        for moment in Moment::ALL.into_iter().cycle().take(800) {
            let kills = program.draw(moment, &mut random);
            let parsed = kills.iter().map(|kill| kill.split_once('@').unwrap());
            for (rank, when) in parsed {
                let rank: usize = rank.parse().unwrap();
                match when.strip_suffix("ms") {
                    Some(ms) => assert!(ms.parse::<u64>().unwrap() <= 1800, "{kills:?}"),
                    None => assert!((1..=program.calls[rank]).contains(&when.parse().unwrap()), "{kills:?}"),
                }
            }
            let is_several = matches!(moment, Moment::Two | Moment::Repair | Moment::Again | Moment::Many);
            assert_eq!(kills.len() > 1, is_several, "{moment}: {kills:?}");
        }
    }

    #[test]
    fn replaced_processes_are_counted() {
        let summary = json!({ "ranks": [{ "processes": [1, 2, 3] }, { "processes": [4] }] });
        assert_eq!(replaced(&summary), 2);
        assert_eq!(replaced(&Value::Null), 0);
    }
}
