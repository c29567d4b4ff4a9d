//! Figure 7 of Guermouche 2011: what the rules cost while nothing fails, over MPI.

mod picture;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::{Args, ValueEnum};
use counterfoil_runtime::Rule;
use counterfoil_workloads::costs::{Measured, Plan};
use counterfoil_workloads::{Class, by_name};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::demo::TierName;
use crate::mpi_build::Build;
use crate::table::Table;
use crate::{Failure, print};

/// Measure what the protocols cost over MPI while nothing fails, compared with Figure 7 of Guermouche et al. 2011.
///
/// Runs of a workload under each protocol alternate with runs on plain MPI, inside one job; a ratio is the length of a run by the mean
/// length of the two runs on plain MPI next to it. No checkpoint is taken, so what a protocol keeps it keeps to the end. The last line is
/// plain MPI against itself. Requires `cargo xtask mpi`.
#[derive(Debug, Args)]
pub(crate) struct Figure7Arguments {
    /// MPI to run over: wheel, debian, mpich, or an installation prefix for which `cargo xtask mpi` was run [default: the build in
    /// COUNTERFOIL_MPI_BUILD, else the first one next to this program]
    #[arg(long)]
    mpi: Option<String>,
    /// Program: cg, ft, laplace, gauss, neurons, matmul, disks, ring or master-worker
    #[arg(long, default_value = "cg")]
    workload: String,
    /// Problem size: S, W or A
    #[arg(long, default_value = "A")]
    class: String,
    /// Number of ranks [default: as many as there are processors, rounded down to a power of two, from 2 to 16]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    ranks: Option<u32>,
    /// Runs under each protocol
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Storage of the log
    #[arg(long, value_enum, default_value = "process-crash-safe")]
    tier: TierName,
    /// Transports of the MPI, comma-separated
    #[arg(long, value_enum, value_delimiter = ',', default_value = "shared-memory,tcp")]
    transport: Vec<Transport>,
    /// Draw the ratios into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print a JSON array with one object per protocol and transport
    #[arg(long)]
    pub(crate) json: bool,
}

/// Transport of the MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    /// What the MPI chooses: shared memory within a host
    SharedMemory,
    /// TCP, also within a host
    Tcp,
}

impl Transport {
    fn name(self) -> &'static str {
        match self {
            Transport::SharedMemory => "shared memory",
            Transport::Tcp => "TCP",
        }
    }

    /// Returns the options of `mpirun`.
    fn options(self) -> &'static [&'static str] {
        match self {
            Transport::SharedMemory => &[],
            Transport::Tcp => &["--mca", "btl", "tcp,self"],
        }
    }
}

/// A protocol in the table.
#[derive(Clone, Copy, Debug)]
struct Series {
    name: &'static str,
    rule: Option<Rule>,
    /// Corresponding result of the paper (section V.D): three NAS kernels on 45 nodes with Myrinet, in MPICH2.
    paper: Option<&'static str>,
}

/// Returns the protocols in the order of the table.
fn series(ranks: u32) -> [Series; 5] {
    let clusters = |clusters| Some(Rule::SendDeterministic { clusters });
    [
        Series { name: "send-deterministic, 1 cluster: no message kept", rule: clusters(1), paper: Some("1.00") },
        Series { name: "send-deterministic, a cluster for each rank", rule: clusters(ranks), paper: None },
        Series { name: "sender-based: all messages kept", rule: Some(Rule::SenderBased), paper: Some("below 1.05") },
        Series { name: "pessimistic: the same, and the receive order", rule: Some(Rule::Pessimistic), paper: None },
        Series { name: "plain MPI against itself", rule: None, paper: None },
    ]
}

/// Ratios of one protocol over one transport.
#[derive(Debug)]
struct Row {
    series: Series,
    transport: Transport,
    /// Ascending.
    ratios: Vec<f64>,
    seconds: f64,
}

impl Row {
    fn new(series: Series, transport: Transport, measured: &Measured) -> Row {
        let sorted = |values: &[f64]| {
            let mut values = values.to_vec();
            values.sort_by(f64::total_cmp);
            values
        };
        Row { series, transport, ratios: sorted(&measured.ratios), seconds: quantile(&sorted(&measured.seconds), 0.5) }
    }

    fn quantile(&self, share: f64) -> f64 {
        quantile(&self.ratios, share)
    }

    fn to_json(&self) -> Value {
        json!({
            "protocol": self.series.name,
            "transport": self.transport.name(),
            "ratio": self.quantile(0.5),
            "ratio_lower_quartile": self.quantile(0.25),
            "ratio_upper_quartile": self.quantile(0.75),
            "ratios": self.ratios,
            "seconds": self.seconds,
            "paper": self.series.paper,
        })
    }
}

/// Returns the value below which this share of the ascending values lies.
fn quantile(ascending: &[f64], share: f64) -> f64 {
    let at = (ascending.len().saturating_sub(1) as f64 * share).round() as usize;
    ascending.get(at).copied().unwrap_or(f64::NAN)
}

pub(crate) fn run(arguments: &Figure7Arguments) -> Result<ExitCode, Failure> {
    let ranks = arguments.ranks.unwrap_or_else(default_ranks);
    let class: Class = arguments.class.parse().map_err(Failure::usage)?;
    let workload = by_name(&arguments.workload, class).map_err(Failure::usage)?;
    workload.validate(ranks).map_err(Failure::usage)?;
    if !workload.deterministic() {
        let why = format!("the sends of {} depend on its receive order: use cg or ring", workload.name());
        return Err(Failure::usage(why));
    }
    let build = Build::find(arguments.mpi.as_deref()).map_err(Failure::failed)?;
    let series = series(ranks);
    let plan = Plan {
        workload: arguments.workload.clone(),
        class: arguments.class.clone(),
        rounds: arguments.rounds,
        tier: arguments.tier.into(),
        rules: series.iter().map(|series| series.rule).collect(),
    };
    let encoded = serde_json::to_string(&plan).map_err(Failure::failed)?;
    let mut rows = Vec::new();
    for transport in &arguments.transport {
        let command = build.costs(ranks, transport.options(), &encoded).map_err(Failure::failed)?;
        let bar = progress_bar(arguments, *transport);
        let measured = measure(command, &bar);
        bar.finish_and_clear();
        rows.extend(series.iter().zip(measured?.iter()).map(|(series, of)| Row::new(*series, *transport, of)));
    }
    let title = format!("{} of class {} on {ranks} ranks, {}", workload.name(), workload.class(), build.version);
    if let Some(file) = &arguments.svg {
        draw(file, &title, &rows)?;
    }
    if arguments.json {
        print(&Value::Array(rows.iter().map(Row::to_json).collect()).to_string())?;
    } else {
        print(&report(&title, arguments.rounds, &rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn default_ranks() -> u32 {
    let processors = std::thread::available_parallelism().map_or(2, |processors| processors.get() as u32);
    let processors = processors.clamp(2, 16);
    1 << processors.ilog2()
}

fn progress_bar(arguments: &Figure7Arguments, transport: Transport) -> ProgressBar {
    if arguments.json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(arguments.rounds.into()).with_message(transport.name());
    if let Ok(style) = ProgressStyle::with_template("{msg} {bar:32.cyan/blue} {pos}/{len} rounds, {eta} left") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// Line of output of rank 0.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Round(u64),
    Measured(Vec<Measured>),
}

/// Runs a job and returns what it has measured.
fn measure(mut command: Command, bar: &ProgressBar) -> Result<Vec<Measured>, Failure> {
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
            // A message of mpirun.
            Err(_) => {}
        }
    }
    let mut errors = String::new();
    if let Some(mut stderr) = job.stderr.take() {
        // What isn't text is nobody's message.
        let _ = stderr.read_to_string(&mut errors);
    }
    let status = job.wait().map_err(Failure::failed)?;
    measured.ok_or_else(|| Failure::failed(format!("the job failed ({status}): {}", errors.trim_end())))
}

fn draw(file: &Path, title: &str, rows: &[Row]) -> Result<(), Failure> {
    let svg = picture::draw(title, rows).map_err(Failure::failed)?;
    std::fs::write(file, svg).map_err(|error| Failure::failed(format!("cannot write {}: {error}", file.display())))
}

/// Formats a line per protocol and transport.
fn report(title: &str, rounds: u32, rows: &[Row]) -> String {
    let mut table = Table::new(&["<protocol", "<transport", "ratio", "quartiles", "seconds", "<paper"]);
    for row in rows {
        table.row([
            row.series.name.to_owned(),
            row.transport.name().to_owned(),
            format!("{:.3}", row.quantile(0.5)),
            format!("{:.3} to {:.3}", row.quantile(0.25), row.quantile(0.75)),
            format!("{:.3}", row.seconds),
            row.series.paper.unwrap_or("-").to_owned(),
        ]);
    }
    format!(
        "Figure 7 of Guermouche et al. 2011: {title}\n\n{table}\n\n\
         Time by that on plain MPI, medians of {rounds} runs in one job. The paper's are of NAS BT, CG and SP on 45 nodes."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let measured = Measured { rule: None, seconds: vec![3.0, 1.0, 2.0], ratios: vec![1.2, 1.0, 1.1] };
        series(2).iter().map(|series| Row::new(*series, Transport::Tcp, &measured)).collect()
    }

    #[test]
    fn a_row_has_the_median_and_the_quartiles() {
        let rows = rows();
        assert_eq!([0.0, 0.5, 1.0].map(|share| rows[0].quantile(share)), [1.0, 1.1, 1.2]);
        assert_eq!(rows[0].seconds, 2.0);
        let text = report("cg", 3, &rows);
        assert!(text.contains("TCP        1.100"), "{text}");
        assert!(text.contains("below 1.05"), "{text}");
    }

    #[test]
    fn the_picture_names_every_protocol() {
        let svg = picture::draw("cg", &rows()).unwrap();
        for series in series(2) {
            let name = series.name.split(':').next().unwrap();
            assert!(svg.contains(name.split(',').next().unwrap()), "{name}");
        }
    }

    #[test]
    fn lines_of_the_job_are_parsed() {
        assert!(matches!(serde_json::from_str(r#"{"round":3}"#), Ok(Line::Round(3))));
        let line = r#"{"measured":[{"rule":null,"seconds":[1.0],"ratios":[1.0]}]}"#;
        assert!(matches!(serde_json::from_str(line), Ok(Line::Measured(all)) if all.len() == 1));
    }

    #[test]
    fn ranks_are_a_power_of_two() {
        assert!(default_ranks().is_power_of_two());
    }
}
