//! Figures 3 to 5 of Bland 2013: the cost of checksums in a factorization, and the cost of a lost rank with them.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use counterfoil_protocols::api::Rule;
use counterfoil_protocols::on_failure::{RULE, SHARED_MEMORY_RULE};
use counterfoil_runtime::local::{Interrupts, JobReport, Kill, KillPoint, Observer, Progress, RestartReport, launch};
use counterfoil_workloads::costs::Measured;
use counterfoil_workloads::qr::Shape;
use counterfoil_workloads::{Class, Outcome, by_name};
use serde_json::{Value, json};

use super::costs::{Description, Row, progress_bar, report};
use crate::mpi_build::Build;
use crate::sample::median;
use crate::{Failure, rank};

/// Rows and columns of a block.
const BLOCK: usize = 64;

/// Factor matrices with and without checksums, and with a rank killed half way, and compare with Figures 3 to 5 of
/// Bland et al. 2013.
///
/// For each size, runs without checksums, with each protection, and with a killed rank take turns; a ratio is a
/// factorization's time, from the beginning of its first panel to the beginning of its last, divided by the time
/// without checksums in the same round. A job restart counts. The table also shows the best ratio permitted by the
/// arithmetic, and the run without checksums against itself. On local processes, or over MPI; over Debian's Open MPI 4,
/// with ScaLAPACK's `pdgeqrf` for comparison, where installed.
#[derive(Debug, Args)]
pub(crate) struct CofArguments {
    /// Process grid, ROWSxCOLUMNS
    #[arg(long, default_value = "1x2")]
    grid: String,
    /// Rows and columns of the matrices, comma-separated
    #[arg(long, value_delimiter = ',', default_value = "1024,2048,4096", value_parser = clap::value_parser!(u32).range(256..=65536))]
    size: Vec<u32>,
    /// Runs in each mode
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Run as ranks of an MPI job. MPI is as in `counterfoil demo --mpi`
    #[arg(long, value_name = "MPI", num_args = 0..=1, require_equals = true)]
    mpi: Option<Option<String>>,
    /// Draw the ratios into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print a JSON array with an object per row
    #[arg(long)]
    pub(super) json: bool,
}

/// Way to run a factorization.
#[derive(Clone, Copy)]
struct Mode {
    name: &'static str,
    protection: &'static str,
    /// Corresponding result in the paper.
    paper: Option<&'static str>,
    is_killed: bool,
    rule: Rule,
}

/// Rotating checksums, as they are saved.
const ROTATING: Mode =
    Mode { name: "rotating checksums", protection: "rotating", paper: None, is_killed: false, rule: RULE };

const MODES: [Mode; 8] = [
    Mode { name: "duplicated checksums (the paper's)", protection: "duplicated", paper: Some("1.11"), ..ROTATING },
    ROTATING,
    Mode { name: "rotating, in shared memory", rule: SHARED_MEMORY_RULE, ..ROTATING },
    Mode { name: "sums every 8 iterations", protection: "8", ..ROTATING },
    Mode { name: "rotating, and a rank is killed", paper: Some("1.11"), is_killed: true, ..ROTATING },
    Mode { name: "in shared memory, and a rank is killed", is_killed: true, rule: SHARED_MEMORY_RULE, ..ROTATING },
    Mode { name: "every 8 iterations, and a rank is killed", protection: "8", is_killed: true, ..ROTATING },
    Mode { name: "no checksums, against themselves", protection: "none", ..ROTATING },
];

impl Mode {
    /// Returns the least ratio permitted by the arithmetic on this many process columns.
    fn bound(self, columns: f64) -> f64 {
        match self.protection {
            "duplicated" => (columns + 2.0) / columns,
            "rotating" => columns / (columns - 1.0),
            _ => 1.0,
        }
    }
}

/// Runs in one mode.
#[derive(Default)]
struct Runs {
    measured: Measured,
    restarts: Vec<RestartReport>,
}

pub(crate) fn run(arguments: &CofArguments) -> Result<ExitCode, Failure> {
    let shape = name(&arguments.grid, "none", 1).parse::<Shape>();
    let (rows, columns) = shape
        .ok()
        .and_then(|shape| shape.grid)
        .filter(|(_, columns)| *columns >= 2)
        .ok_or_else(|| Failure::usage("--grid: ROWSxCOLUMNS, with two columns or more, such as 1x2"))?;
    let ranks = rows.saturating_mul(columns).try_into().unwrap_or(u32::MAX);
    let interrupts = Interrupts::install().map_err(Failure::failed)?;
    let build = arguments.mpi.as_ref().map(|requested| Build::find(requested.as_deref()));
    let build = build.transpose().map_err(Failure::failed)?;
    let runs = u64::from(arguments.rounds) * arguments.size.len() as u64 * (1 + MODES.len() as u64);
    let bar = progress_bar(arguments.json, "qr", runs, "runs");
    let (mut table, mut notes) = (Vec::new(), Vec::new());
    for size in &arguments.size {
        let group = format!("n = {size}");
        let once = |mode: &Mode| run_once(arguments, ranks, *size, mode, build.as_ref(), &interrupts);
        let mut all = MODES.map(|_| Runs::default());
        let mut peer = Runs::default();
        for _ in 0..arguments.rounds {
            let (_, plain) = once(&Mode { protection: "none", ..ROTATING })?;
            bar.inc(1);
            if let Some(seconds) = build.as_ref().and_then(|build| scalapack(build, (rows, columns), *size)) {
                peer.measured.seconds.push(seconds);
                peer.measured.ratios.push(seconds / plain);
            }
            for (mode, runs) in MODES.iter().zip(&mut all) {
                let (job, seconds) = once(mode)?;
                runs.measured.seconds.push(seconds);
                runs.measured.ratios.push(seconds / plain);
                runs.restarts.extend(job.restarts);
                bar.inc(1);
            }
        }
        if !peer.measured.ratios.is_empty() {
            table.push(Row::new(SCALAPACK.to_owned(), group.clone(), None, &peer.measured));
        }
        for (mode, runs) in MODES.iter().zip(all) {
            let name = format!("{} (best {:.2})", mode.name, mode.bound(columns as f64));
            let mut row = Row::new(name, group.clone(), mode.paper.map(str::to_owned), &runs.measured);
            if mode.is_killed {
                let steps = steps(&runs.restarts);
                notes.push(note(mode.name, &group, &steps));
                row.details = Some(steps);
            }
            table.push(row);
        }
    }
    bar.finish_and_clear();
    let place = build.map_or("local processes".to_owned(), |build| build.version);
    let note = format!(
        "The paper: 24 x 24 processes, n = 100,000, on a Cray XT5.\n\nThe restart, medians:\n{}",
        notes.join("\n")
    );
    let title = format!("QR in blocks of {BLOCK} on {} {place}", arguments.grid);
    let what = Description {
        paper: "Figures 3 to 5",
        title: &title,
        mode: "factorization",
        group: "matrix",
        by: "that without checksums",
        note: &note,
    };
    // The peer last.
    table.sort_by_key(|row| MODES.iter().position(|mode| row.name.starts_with(mode.name)).unwrap_or(MODES.len()));
    report((arguments.svg.as_deref(), arguments.json), (&title, arguments.rounds), &what, &table)
}

/// Name of the peer's row.
const SCALAPACK: &str = "pdgeqrf of ScaLAPACK";

/// Returns ScaLAPACK's time in seconds; `None` where it isn't installed.
fn scalapack(build: &Build, grid: (usize, usize), size: u32) -> Option<f64> {
    let mut command = build.peer("counterfoil-mpi-pdgeqrf", (grid.0 * grid.1) as u32).ok()?;
    command.args([grid.0, grid.1, size as usize, BLOCK].map(|number| number.to_string()));
    let output = command.output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// Time from the beginning of the first panel to the beginning of the last.
#[derive(Debug, Default)]
struct Span(Option<(Instant, Instant)>);

impl Span {
    fn seconds(&self) -> f64 {
        self.0.map_or(0.0, |(first, last)| (last - first).as_secs_f64())
    }
}

impl Observer for Span {
    fn handle_progress(&mut self, progress: Progress) {
        if let Progress::Iteration { .. } = progress {
            let now = Instant::now();
            self.0.get_or_insert((now, now)).1 = now;
        }
    }
}

/// Runs a factorization, and checks its residuals.
///
/// Returns the report, and the seconds from the beginning of the first panel to the beginning of the last.
fn run_once(
    arguments: &CofArguments,
    ranks: u32,
    size: u32,
    mode: &Mode,
    build: Option<&Build>,
    interrupts: &Interrupts,
) -> Result<(JobReport, f64), Failure> {
    let name = name(&arguments.grid, mode.protection, size);
    let mut span = Span::default();
    let killed = mode.is_killed.then_some(1);
    let report = factorize(&name, ranks, (mode.rule, killed), build, (interrupts, &mut span))?;
    Ok((report, span.seconds()))
}

/// Runs a factorization, optionally with a rank killed half way, and checks its residuals.
pub(super) fn factorize(
    name: &str,
    ranks: u32,
    (rule, killed): (Rule, Option<u32>),
    build: Option<&Build>,
    (interrupts, observer): (&Interrupts, &mut dyn Observer),
) -> Result<JobReport, Failure> {
    let workload = by_name(name, Class::default()).map_err(|error| Failure::usage(format!("--grid: {error}")))?;
    workload.validate(ranks).map_err(|error| Failure::usage(format!("--size: {error}")))?;
    let mut job = rank::job(workload.as_ref(), ranks, None)?;
    job.settings.rule = rule;
    let kill = |rank| Kill { rank, at: KillPoint::Iteration(workload.iterations(rank, ranks).at_least / 2) };
    job.kills = killed.map(kill).into_iter().collect();
    let job = match build {
        Some(build) => build.job(&job, 0, false).map_err(Failure::failed)?,
        None => job,
    };
    let report = launch(&job, Some(interrupts), observer).map_err(Failure::failed)?;
    for outcome in &report.outcomes {
        let outcome: Outcome = postcard::from_bytes(outcome).map_err(Failure::failed)?;
        if outcome.verified != Some(true) {
            return Err(Failure::failed(format!("{name} is wrong: {}", outcome.value)));
        }
    }
    Ok(report)
}

/// Returns a factorization's name.
fn name(grid: &str, protection: &str, size: u32) -> String {
    format!("qr:{grid}:{protection}:{size}x{size}:{BLOCK}")
}

/// Returns the median restart steps, in seconds.
fn steps(restarts: &[RestartReport]) -> Value {
    let of = |step: fn(&RestartReport) -> Option<Duration>| {
        let times: Vec<f64> = restarts.iter().filter_map(step).map(|time| time.as_secs_f64()).collect();
        if times.is_empty() { 0.0 } else { median(times) }
    };
    let bytes: Vec<f64> = restarts.iter().map(|restart| restart.bytes as f64).collect();
    json!({
        "restarts": restarts.len(),
        "bytes": if bytes.is_empty() { 0.0 } else { median(bytes) },
        "save_s": of(|restart| Some(restart.save)),
        "longest_save_s": of(|restart| Some(restart.longest_save)),
        "end_s": of(|restart| Some(restart.end)),
        "start_s": of(|restart| restart.start),
        "rebuild_s": of(|restart| restart.rebuild),
    })
}

/// Formats the restart steps.
fn note(mode: &str, group: &str, steps: &Value) -> String {
    let ms = |step: &str| 1e3 * steps[step].as_f64().unwrap_or_default();
    format!(
        "  {mode}, {group}: noticed and saved {:.1} MB in {:.0} ms (of which a save {:.0} ms), ended {:.0} ms, started {:.0} ms, \
         loaded and rebuilt {:.0} ms",
        steps["bytes"].as_f64().unwrap_or_default() / 1e6,
        ms("save_s"),
        ms("longest_save_s"),
        ms("end_s"),
        ms("start_s"),
        ms("rebuild_s")
    )
}
