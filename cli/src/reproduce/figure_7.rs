//! Figure 7 of Guermouche 2011: failure-free costs of the rules over MPI.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use counterfoil_protocols::{pessimistic, send_deterministic, sender_based};
use counterfoil_runtime::Rule;
use counterfoil_workloads::NAMES;
use counterfoil_workloads::costs::{Mode, Program, Subject};

use super::costs::{CostArguments, Description, PLAIN_MPI, Row, workload};
use crate::Failure;

/// Measure the protocols' failure-free costs over MPI, compared with Figure 7 of Guermouche et al. 2011.
///
/// Runs of a workload under each protocol alternate with runs on plain MPI, inside one job; a ratio is a run's length
/// divided by the mean length of the two neighbouring runs on plain MPI. No checkpoint is taken, so protocols keep
/// their messages to the end. The last line is plain MPI against itself. Requires `cargo xtask mpi`.
#[derive(Debug, Args)]
pub(crate) struct Figure7Arguments {
    #[command(flatten)]
    pub(super) costs: CostArguments,
    #[arg(long, default_value = NAMES[0], help = format!("Program: {}", NAMES.join(", ")))]
    workload: String,
    /// Problem size: S, W or A
    #[arg(long, default_value = "A")]
    class: String,
    /// MPI transports, comma-separated
    #[arg(long, value_enum, value_delimiter = ',', default_value = "shared-memory,tcp")]
    transport: Vec<Transport>,
}

/// MPI transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    /// The MPI's choice: shared memory within a host
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

    /// Returns the `mpirun` options.
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
    /// Corresponding result in the paper (section V.D): three NAS kernels on 45 nodes with Myrinet, in MPICH2.
    paper: Option<&'static str>,
}

/// Returns the protocols in table order.
fn series(ranks: u32) -> [Series; 5] {
    let clusters = |clusters| Some(send_deterministic::RULE.with_clusters(clusters));
    [
        Series { name: "send-deterministic, 1 cluster: no message kept", rule: clusters(1), paper: Some("1.00") },
        Series { name: "send-deterministic, a cluster for each rank", rule: clusters(ranks), paper: None },
        Series { name: "sender-based: all messages kept", rule: Some(sender_based::RULE), paper: Some("below 1.05") },
        Series { name: "pessimistic: the same, and the receive order", rule: Some(pessimistic::RULE), paper: None },
        Series { name: "plain MPI against itself", rule: None, paper: None },
    ]
}

pub(crate) fn run(arguments: &Figure7Arguments) -> Result<ExitCode, Failure> {
    let (costs, ranks) = (&arguments.costs, arguments.costs.ranks());
    let workload = workload(&arguments.workload, &arguments.class, ranks)?;
    if !workload.deterministic() {
        let why = format!(
            "the sends of {} depend on its receive order: use another workload, such as cg or ring",
            workload.name()
        );
        return Err(Failure::usage(why));
    }
    let build = costs.build()?;
    let series = series(ranks);
    let modes = series.iter().map(|series| series.rule.map(Mode::from)).collect();
    let subject = Subject { program: Program::of(workload.as_ref()), modes };
    let mut rows = Vec::new();
    for transport in &arguments.transport {
        let measured = costs.measure(&build, ranks, (transport.name(), transport.options()), vec![subject.clone()])?;
        let measured = measured.into_iter().flatten();
        rows.extend(
            series
                .iter()
                .zip(measured)
                .map(|(series, of)| Row::new(series.name, transport.name(), series.paper.map(str::to_owned), &of)),
        );
    }
    let title = format!("{} of class {} on {ranks} ranks, {}", workload.name(), workload.class(), build.version);
    let what = Description {
        paper: "Figure 7 of Guermouche et al. 2011",
        title: &title,
        mode: "protocol",
        group: "transport",
        by: PLAIN_MPI,
        note: "The paper's are of NAS BT, CG and SP on 45 nodes.",
    };
    costs.report(&what, &rows)
}
