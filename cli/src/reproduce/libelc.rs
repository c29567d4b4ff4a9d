//! Tables 5 to 22 and 24 to 26 of Zhao 2005: what Event Logging and Message Tagging cost while nothing fails.

mod paper;

use std::process::ExitCode;

use clap::Args;
use counterfoil_runtime::Rule;
use counterfoil_workloads::costs::{Mode, Program, Subject};
use counterfoil_workloads::{Workload, by_name};

use super::costs::{CostArguments, Description, Row};
use crate::Failure;
use paper::PaperTable;

/// Number of checkpoints of a run, as in most of the paper's tables (section 5.1).
const CHECKPOINTS: u64 = 4;

/// Measure what libELC's two methods cost over MPI while nothing fails, compared with tables 5 to 22 and 24 to 26 of Zhao 2005.
///
/// Each of the paper's programs runs on plain MPI (the paper's source mode), under event-logging without checkpoints (protocol mode) and with
/// four (checkpoint mode); matmul under event-logging and message-tagging. Runs alternate inside one job; a ratio is the length of a run by
/// the mean length of the two runs on plain MPI next to it. The paper's number is the one that it prints; the one that follows from the runs
/// in its table is added where it differs. Requires `cargo xtask mpi`.
#[derive(Debug, Args)]
pub(crate) struct LibelcArguments {
    #[command(flatten)]
    pub(super) costs: CostArguments,
    /// Problem size: S, W or A
    #[arg(long, default_value = "A")]
    class: String,
}

/// A program of the paper.
struct Experiment {
    workload: &'static str,
    /// Modes, with their names.
    modes: [(&'static str, Mode); 2],
    tables: &'static [PaperTable],
}

/// Returns the paper's programs. `iterations`: those of a workload.
fn experiments(iterations: impl Fn(&str) -> Result<u64, Failure>) -> Result<Vec<Experiment>, Failure> {
    let all: [(_, &'static [PaperTable]); 4] = [
        ("gauss", &paper::GAUSS),
        ("laplace", &paper::LAPLACE),
        ("neurons", &paper::NEURONS),
        ("disks", &paper::DISKS),
    ];
    let of_modes = |(workload, tables)| {
        let checkpoint_every = Some((iterations(workload)? / CHECKPOINTS).max(1));
        let with_checkpoints = Mode { rule: Rule::EventLogging, checkpoint_every };
        let modes = [("event logging", Rule::EventLogging.into()), ("the same, four checkpoints", with_checkpoints)];
        Ok(Experiment { workload, modes, tables })
    };
    let mut experiments: Vec<Experiment> = all.into_iter().map(of_modes).collect::<Result<_, Failure>>()?;
    experiments.push(Experiment {
        workload: "matmul",
        modes: [("event logging", Rule::EventLogging.into()), ("message tagging", Rule::MessageTagging.into())],
        tables: &paper::MATMUL,
    });
    Ok(experiments)
}

/// Returns the paper's ratios of a mode, 0 or 1.
fn ratios(tables: &[PaperTable], mode: usize) -> String {
    let one = |table: &PaperTable| {
        let printed = format!("{:.3}", table.printed(mode));
        if table.follows(mode) { printed } else { format!("{printed} (runs: {:.3})", table.of_runs(mode)) }
    };
    let numbers: Vec<String> = tables.iter().map(|table| table.number.to_string()).collect();
    let ratios: Vec<String> = tables.iter().map(one).collect();
    format!("{}; tables {}", ratios.join(", "), numbers.join(", "))
}

pub(crate) fn run(arguments: &LibelcArguments) -> Result<ExitCode, Failure> {
    let (costs, ranks) = (&arguments.costs, arguments.costs.ranks());
    let class = arguments.class.parse().map_err(Failure::usage)?;
    let workload = |name: &str| -> Result<Box<dyn Workload>, Failure> {
        let workload = by_name(name, class).map_err(Failure::usage)?;
        workload.validate(ranks).map_err(Failure::usage)?;
        Ok(workload)
    };
    let experiments = experiments(|name| Ok(workload(name)?.iterations(0, ranks).at_least))?;
    let build = costs.build()?;
    let subject = |experiment: &Experiment| Subject {
        program: Program::Workload { name: experiment.workload.to_owned(), class: class.to_string() },
        modes: experiment.modes.iter().map(|(_, mode)| Some(*mode)).collect(),
    };
    let measured = costs.measure(&build, ranks, ("libELC", &[]), experiments.iter().map(subject).collect())?;
    let mut rows = Vec::new();
    for (experiment, measured) in experiments.iter().zip(&measured) {
        for (place, ((name, _), measured)) in experiment.modes.iter().zip(measured).enumerate() {
            rows.push(Row::new(*name, experiment.workload, Some(ratios(experiment.tables, place)), measured));
        }
    }
    let title = format!("class {class} on {ranks} ranks, {}", build.version);
    let problems = experiments.iter().map(|experiment| {
        let problems: Vec<&str> = experiment.tables.iter().map(|table| table.problem).collect();
        format!("{}: {}", experiment.workload, problems.join("; "))
    });
    let note = format!(
        "The paper's are ratios to its source mode, with MPICH 1.2.6 and LAM 7.0.4 over 100 Mbit/s Ethernet. {}.",
        problems.collect::<Vec<_>>().join(". ")
    );
    let what = Description {
        paper: "Tables 5 to 22 and 24 to 26 of Zhao 2005",
        title: &title,
        mode: "mode",
        group: "program",
        note: &note,
    };
    costs.report(&what, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_four_checkpoints_or_two_rules() {
        let experiments = experiments(|_| Ok(50)).unwrap_or_default();
        assert_eq!(experiments.len(), 5);
        let every: Vec<_> = experiments.iter().map(|of| of.modes[1].1.checkpoint_every).collect();
        assert_eq!(every, [Some(12), Some(12), Some(12), Some(12), None]);
    }

    #[test]
    fn ratios_of_the_runs_are_added_where_they_differ() {
        assert_eq!(ratios(&paper::LAPLACE, 0), "1.044 (runs: 1.071), 1.036, 1.012; tables 9, 11, 12");
    }
}
