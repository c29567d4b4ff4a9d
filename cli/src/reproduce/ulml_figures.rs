//! Figures 6 and 7 of Liu 2014: failure-free costs of user-level message logging.

use std::process::ExitCode;

use clap::Args;
use counterfoil_protocols::{pessimistic, sender_based, user_level};
use counterfoil_runtime::Rule;
use counterfoil_workloads::costs::{Mode, Program, Subject};

use super::costs::{CostArguments, Description, PLAIN_MPI, Row, workload};
use crate::Failure;

/// Measure the failure-free costs of user-level message logging over MPI, compared with figures 6 (CG) and 7 (FT) of
/// Liu et al. 2014.
///
/// Runs under each protocol alternate with runs on plain MPI, inside one job; a ratio is a run's length divided by the
/// mean length of the two neighbouring runs on plain MPI. No checkpoint is taken. Requires `cargo xtask mpi`.
#[derive(Debug, Args)]
pub(crate) struct UlmlFiguresArguments {
    #[command(flatten)]
    pub(super) costs: CostArguments,
    /// Problem size: S, W or A
    #[arg(long, default_value = "A")]
    class: String,
}

/// Workloads, with their figure numbers.
const WORKLOADS: [(&str, u32); 2] = [("cg", 6), ("ft", 7)];

/// A protocol in the figures, with the paper's results (section 4.2).
struct Series {
    name: &'static str,
    rule: Option<Rule>,
    paper: [Option<&'static str>; 2],
}

const SERIES: [Series; 4] = [
    Series {
        name: "user-level",
        rule: Some(user_level::RULE),
        paper: [Some("ULML: below 1.05"), Some("ULML: close to the error of measurement")],
    },
    Series {
        name: "sender-based",
        rule: Some(sender_based::RULE),
        paper: [Some("O2P (optimistic): below 1.05"), Some("O2P (optimistic): at most 1.06")],
    },
    Series { name: "pessimistic", rule: Some(pessimistic::RULE), paper: [Some("at most 1.17"), None] },
    Series { name: "plain MPI against itself", rule: None, paper: [None, None] },
];

pub(crate) fn run(arguments: &UlmlFiguresArguments) -> Result<ExitCode, Failure> {
    let (costs, ranks) = (&arguments.costs, arguments.costs.ranks());
    let subject = |(name, _)| -> Result<Subject, Failure> {
        let program = Program::of(workload(name, &arguments.class, ranks)?.as_ref());
        Ok(Subject { program, modes: SERIES.iter().map(|series| series.rule.map(Mode::from)).collect() })
    };
    let subjects = WORKLOADS.into_iter().map(subject).collect::<Result<_, _>>()?;
    let build = costs.build()?;
    let measured = costs.measure(&build, ranks, ("ULML", &[]), subjects)?;
    let mut rows = Vec::new();
    for (place, ((name, figure), measured)) in WORKLOADS.iter().zip(&measured).enumerate() {
        let group = format!("{name} (figure {figure})");
        rows.extend(
            SERIES
                .iter()
                .zip(measured)
                .map(|(series, of)| Row::new(series.name, group.clone(), series.paper[place].map(str::to_owned), of)),
        );
    }
    let title = format!("class {} on {ranks} ranks, {}", arguments.class, build.version);
    let what = Description {
        paper: "Figures 6 and 7 of Liu et al. 2014",
        title: &title,
        mode: "protocol",
        group: "program",
        by: PLAIN_MPI,
        note: "The paper's are of class C on 16 to 512 cores of Tianhe-1A.",
    };
    costs.report(&what, &rows)
}
