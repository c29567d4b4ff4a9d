//! Failure-free costs of rules over MPI: options, jobs, tables and pictures shared by several papers' measurements.

mod picture;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use counterfoil::Tier;
use counterfoil_workloads::costs::{Measured, Plan, Subject};
use counterfoil_workloads::{Class, Workload, by_name};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::demo::tiers;
use crate::mpi_build::Build;
use crate::sample::{median, quantile, sorted};
use crate::table::Table;
use crate::{Failure, print, write_file};

/// Divisor of most times here.
pub(super) const PLAIN_MPI: &str = "that on plain MPI";

/// Options shared by these measurements.
#[derive(Debug, Args)]
pub(super) struct CostArguments {
    /// MPI to run over: wheel, debian, mpich, or the prefix of an installation prepared with `cargo xtask mpi`
    /// [default: the build in COUNTERFOIL_MPI_BUILD, else the first one next to this program]
    #[arg(long)]
    mpi: Option<String>,
    /// Number of ranks [default: the number of processors (ulml-table-1: 4), rounded down to a power of two,
    /// from 2 to 16]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) ranks: Option<u32>,
    /// Runs in each mode
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: u32,
    /// Log storage
    #[arg(long, value_parser = tiers(), default_value_t = Tier::ProcessCrashSafe)]
    tier: Tier,
    /// Draw the ratios into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print a JSON array with an object per row
    #[arg(long)]
    pub(super) json: bool,
}

impl CostArguments {
    /// Returns the number of ranks.
    pub(super) fn ranks(&self) -> u32 {
        self.ranks.unwrap_or_else(default_ranks)
    }

    /// Finds the MPI.
    pub(super) fn build(&self) -> Result<Build, Failure> {
        Build::find(self.mpi.as_deref()).map_err(Failure::failed)
    }

    /// Runs all subjects in one job with `ranks` ranks; returns each subject's measurements per mode.
    ///
    /// `message`: the job, for the progress bar. `options`: for `mpirun`.
    pub(super) fn measure(
        &self,
        build: &Build,
        ranks: u32,
        (message, options): (&'static str, &[&str]),
        subjects: Vec<Subject>,
    ) -> Result<Vec<Vec<Measured>>, Failure> {
        let rounds = u64::from(self.rounds) * subjects.len() as u64;
        let plan = Plan { subjects, rounds: self.rounds, tier: self.tier };
        let encoded = serde_json::to_string(&plan).map_err(Failure::failed)?;
        let mut command = build.costs(ranks, options, &encoded).map_err(Failure::failed)?;
        // Sessions left in a shared directory by killed process managers can prevent a start.
        let temporary = tempfile::tempdir().map_err(Failure::failed)?;
        command.env("TMPDIR", temporary.path());
        let bar = progress_bar(self.json, message, rounds, "rounds");
        let measured = run(command, &bar);
        bar.finish_and_clear();
        measured
    }

    /// Prints the rows, and draws them if requested.
    pub(super) fn report(&self, what: &Description<'_>, rows: &[Row]) -> Result<ExitCode, Failure> {
        let heading = format!("Cost while nothing fails: {}", what.title);
        report((self.svg.as_deref(), self.json), (&heading, self.rounds), what, rows)
    }
}

/// Prints rows, as JSON or as a table, and draws them into a file if requested.
///
/// `heading`: the picture's.
pub(super) fn report(
    (svg, json): (Option<&Path>, bool),
    (heading, rounds): (&str, u32),
    what: &Description<'_>,
    rows: &[Row],
) -> Result<ExitCode, Failure> {
    if let Some(file) = svg {
        let picture = picture::draw(heading, what.by, rows).map_err(Failure::failed)?;
        write_file(file, &picture)?;
    }
    if json {
        print(&Value::Array(rows.iter().map(|row| row.to_json(what)).collect()).to_string())?;
    } else {
        print(&what.text(rounds, rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a progress bar for `len` runs or rounds; hidden for JSON.
pub(super) fn progress_bar(json: bool, message: &'static str, len: u64, unit: &str) -> ProgressBar {
    if json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(len).with_message(message);
    let template = format!("{{msg}} {{bar:32.cyan/blue}} {{pos}}/{{len}} {unit}, {{eta}} left");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// Returns a workload for this many ranks.
pub(super) fn workload(name: &str, class: &str, ranks: u32) -> Result<Box<dyn Workload>, Failure> {
    let class: Class = class.parse().map_err(Failure::usage)?;
    let workload = by_name(name, class).map_err(Failure::usage)?;
    workload.validate(ranks).map_err(Failure::usage)?;
    Ok(workload)
}

fn default_ranks() -> u32 {
    let processors = std::thread::available_parallelism().map_or(2, |processors| processors.get() as u32);
    let processors = processors.clamp(2, 16);
    1 << processors.ilog2()
}

/// Report texts.
#[derive(Debug)]
pub(super) struct Description<'a> {
    /// Table or figure in the paper.
    pub(super) paper: &'a str,
    /// Description of the runs here.
    pub(super) title: &'a str,
    /// Distinction between the rows in a group.
    pub(super) mode: &'static str,
    /// Distinction between the groups.
    pub(super) group: &'static str,
    /// Divisor of the times.
    pub(super) by: &'static str,
    /// Meaning of the paper's numbers.
    pub(super) note: &'a str,
}

impl Description<'_> {
    /// Formats a line for each row.
    fn text(&self, rounds: u32, rows: &[Row]) -> String {
        let (mode, group) = (format!("<{}", self.mode), format!("<{}", self.group));
        let mut table = Table::new(&[&mode, &group, "ratio", "quartiles", "time", "<paper"]);
        for row in rows {
            table.row([
                row.name.clone(),
                row.group.clone(),
                format!("{:.3}", row.quantile(0.5)),
                row.quartiles(),
                duration(row.seconds),
                row.paper.clone().unwrap_or_else(|| "-".to_owned()),
            ]);
        }
        format!(
            "{}: {}\n\n{table}\n\nTime by {}, medians of {rounds} runs. {}",
            self.paper, self.title, self.by, self.note
        )
    }
}

/// Ratios for one mode in one group.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) group: String,
    /// Corresponding result in the paper.
    pub(super) paper: Option<String>,
    /// Further results, for JSON.
    pub(super) details: Option<Value>,
    /// Ascending.
    ratios: Vec<f64>,
    /// Median.
    pub(super) seconds: f64,
}

impl Row {
    pub(super) fn new(
        name: impl Into<String>,
        group: impl Into<String>,
        paper: Option<String>,
        measured: &Measured,
    ) -> Row {
        let (ratios, seconds) = (sorted(measured.ratios.clone()), median(measured.seconds.clone()));
        Row { name: name.into(), group: group.into(), paper, details: None, ratios, seconds }
    }

    /// Divides the time by the number of calls in a run.
    pub(super) fn per_call(mut self, calls: u64) -> Row {
        self.seconds /= calls as f64;
        self
    }

    pub(super) fn quantile(&self, share: f64) -> f64 {
        quantile(&self.ratios, share)
    }

    /// Formats the quartiles of the ratios.
    pub(super) fn quartiles(&self) -> String {
        format!("{:.3} to {:.3}", self.quantile(0.25), self.quantile(0.75))
    }

    fn to_json(&self, what: &Description<'_>) -> Value {
        json!({
            what.mode: self.name,
            what.group: self.group,
            "ratio": self.quantile(0.5),
            "ratio_lower_quartile": self.quantile(0.25),
            "ratio_upper_quartile": self.quantile(0.75),
            "ratios": self.ratios,
            "seconds": self.seconds,
            "paper": self.paper,
            "details": self.details,
        })
    }
}

/// Formats a time with three digits or more.
pub(super) fn duration(seconds: f64) -> String {
    match seconds {
        ..1e-3 => format!("{:.2} us", seconds * 1e6),
        1e-3..1.0 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

/// A line of rank 0's output.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Round(u64),
    Measured(Vec<Vec<Measured>>),
}

/// Runs a job and returns its measurements.
fn run(mut command: Command, bar: &ProgressBar) -> Result<Vec<Vec<Measured>>, Failure> {
    let mut job = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::failed(format!("cannot start mpirun: {error}")))?;
    let mut measured = None;
    for line in job.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        match serde_json::from_str(&line.map_err(Failure::failed)?) {
            Ok(Line::Round(round)) => bar.set_position(round),
            Ok(Line::Measured(all)) => measured = Some(all),
            // A message from mpirun.
            Err(_) => {}
        }
    }
    let mut errors = String::new();
    if let Some(mut stderr) = job.stderr.take() {
        // Output that isn't text is no message.
        let _ = stderr.read_to_string(&mut errors);
    }
    let status = job.wait().map_err(Failure::failed)?;
    measured.ok_or_else(|| Failure::failed(format!("the job failed ({status}): {}", errors.trim_end())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let measured = Measured { seconds: vec![3.0, 1.0, 2.0], ratios: vec![1.2, 1.0, 1.1], ..Measured::default() };
        ["all kept", "nothing kept"].map(|name| Row::new(name, "TCP", Some("below 1.05".to_owned()), &measured)).into()
    }

    #[test]
    fn a_row_has_the_median_and_the_quartiles() {
        let rows = rows();
        assert_eq!([0.0, 0.5, 1.0].map(|share| rows[0].quantile(share)), [1.0, 1.1, 1.2]);
        assert_eq!(rows[0].seconds, 2.0);
        let what = Description {
            paper: "Figure 7",
            title: "cg",
            mode: "protocol",
            group: "transport",
            by: PLAIN_MPI,
            note: "On 45 nodes.",
        };
        let text = what.text(3, &rows);
        assert!(text.contains("TCP        1.100"), "{text}");
        assert!(text.contains("below 1.05"), "{text}");
        assert_eq!(rows[0].to_json(&what)["transport"], "TCP");
    }

    #[test]
    fn the_picture_names_every_mode_and_group() {
        let svg = picture::draw("cg", PLAIN_MPI, &rows()).unwrap();
        assert!(["all kept", "nothing kept", "TCP"].iter().all(|name| svg.contains(name)));
    }

    #[test]
    fn lines_of_the_job_are_parsed() {
        assert!(matches!(serde_json::from_str(r#"{"round":3}"#), Ok(Line::Round(3))));
        let line = r#"{"measured":[[{"mode":null,"seconds":[1.0],"ratios":[1.0],"logged":{"messages":0,"message_bytes":0,"entries":0,"entry_bytes":0}}]]}"#;
        assert!(matches!(serde_json::from_str(line), Ok(Line::Measured(all)) if all[0].len() == 1));
    }

    #[test]
    fn ranks_are_a_power_of_two() {
        assert!(default_ranks().is_power_of_two());
    }
}
