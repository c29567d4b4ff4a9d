//! Tables 5 to 22 and 24 to 26 of Zhao 2005: failure-free costs of Event Logging and Message Tagging.

mod paper;

use std::process::ExitCode;

use clap::Args;
use counterfoil_protocols::{event_logging, message_tagging};
use counterfoil_workloads::costs::{Mode, Program, Subject};

use super::costs::{CostArguments, Description, PLAIN_MPI, Row, workload};
use crate::Failure;
use paper::PaperTable;

/// Number of checkpoints in a run, as in most of the paper's tables (section 5.1).
const CHECKPOINTS: u64 = 4;

/// Measure the failure-free costs of libELC's two methods over MPI, compared with tables 5 to 22 and 24 to 26 of Zhao
/// 2005.
///
/// Each of the paper's programs runs on plain MPI (the paper's source mode), under event-logging without checkpoints
/// (protocol mode) and with four (checkpoint mode); matmul under event-logging and message-tagging. Runs alternate
/// inside one job; a ratio is a run's length divided by the mean length of the two neighbouring runs on plain MPI. The
/// paper's number is the printed one; where the runs in its table give another, this is added. Requires `cargo xtask
/// mpi`.
#[derive(Debug, Args)]
pub(crate) struct LibelcArguments {
    #[command(flatten)]
    pub(super) costs: CostArguments,
    /// Problem size: S, W or A
    #[arg(long, default_value = "A")]
    class: String,
}

/// A program from the paper.
struct Experiment {
    workload: &'static str,
    second: Second,
    tables: &'static [PaperTable],
}

/// Mode in addition to event logging without checkpoints.
#[derive(Clone, Copy)]
enum Second {
    Checkpoints,
    MessageTagging,
}

const EXPERIMENTS: [Experiment; 5] = [
    Experiment { workload: "gauss", second: Second::Checkpoints, tables: &paper::GAUSS },
    Experiment { workload: "laplace", second: Second::Checkpoints, tables: &paper::LAPLACE },
    Experiment { workload: "neurons", second: Second::Checkpoints, tables: &paper::NEURONS },
    Experiment { workload: "disks", second: Second::Checkpoints, tables: &paper::DISKS },
    Experiment { workload: "matmul", second: Second::MessageTagging, tables: &paper::MATMUL },
];

impl Experiment {
    /// Returns the modes, with their names.
    ///
    /// `iterations`: the workload's.
    fn modes(&self, iterations: u64) -> [(&'static str, Mode); 2] {
        let checkpoint_every = Some((iterations / CHECKPOINTS).max(1));
        let second = match self.second {
            Second::Checkpoints => ("the same, four checkpoints", Mode { rule: event_logging::RULE, checkpoint_every }),
            Second::MessageTagging => ("message tagging", message_tagging::RULE.into()),
        };
        [("event logging", event_logging::RULE.into()), second]
    }
}

/// Returns the paper's ratios for a mode, 0 or 1.
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
    let (mut subjects, mut names) = (Vec::new(), Vec::new());
    for experiment in &EXPERIMENTS {
        let workload = workload(experiment.workload, &arguments.class, ranks)?;
        let modes = experiment.modes(workload.iterations(0, ranks).at_least);
        let program = Program::of(workload.as_ref());
        subjects.push(Subject { program, modes: modes.iter().map(|(_, mode)| Some(*mode)).collect() });
        names.push(modes.map(|(name, _)| name));
    }
    let build = costs.build()?;
    let measured = costs.measure(&build, ranks, ("libELC", &[]), subjects)?;
    let mut rows = Vec::new();
    for ((experiment, names), measured) in EXPERIMENTS.iter().zip(names).zip(&measured) {
        for (place, (name, measured)) in names.iter().zip(measured).enumerate() {
            rows.push(Row::new(*name, experiment.workload, Some(ratios(experiment.tables, place)), measured));
        }
    }
    let title = format!("class {} on {ranks} ranks, {}", arguments.class, build.version);
    let problems = EXPERIMENTS.iter().map(|experiment| {
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
        by: PLAIN_MPI,
        note: &note,
    };
    costs.report(&what, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_four_checkpoints_or_two_rules() {
        assert_eq!(EXPERIMENTS.len(), 5);
        let every: Vec<_> = EXPERIMENTS.iter().map(|of| of.modes(50)[1].1.checkpoint_every).collect();
        assert_eq!(every, [Some(12), Some(12), Some(12), Some(12), None]);
    }

    #[test]
    fn ratios_of_the_runs_are_added_where_they_differ() {
        assert_eq!(ratios(&paper::LAPLACE, 0), "1.044 (runs: 1.071), 1.036, 1.012; tables 9, 11, 12");
    }
}
