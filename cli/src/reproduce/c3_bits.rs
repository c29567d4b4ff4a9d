//! A table missing in Bronevetsky et al.: the cost of each way to move a collective call's two bits.

use std::process::ExitCode;

use clap::Args;
use counterfoil_protocols::{api::Bits, coordinated};
use counterfoil_runtime::Rule;
use counterfoil_workloads::costs::{Call, Mode, Program, Subject};

use super::costs::{CostArguments, Description, PLAIN_MPI, Row, workload};
use crate::{Failure, units};

/// Calls, with their names.
const CALLS: [(Call, &str); 3] = [(Call::Allreduce, "allreduce"), (Call::Reduce, "reduce"), (Call::Bcast, "bcast")];
/// Ways to move the bits.
const WAYS: [(&str, Option<Rule>); 3] = [
    ("exchanged", Some(coordinated::RULE)),
    ("on the data", Some(coordinated::RULE.with_bits(Bits::Piggybacked))),
    ("plain MPI", None),
];
/// Workloads in the second part.
const WORKLOADS: [&str; 6] = ["cg", "ft", "laplace", "gauss", "neurons", "matmul"];
/// Lengths in bytes.
const LENGTHS: [usize; 6] = [8, 128, 2 << 10, 32 << 10, 256 << 10, 1 << 20];
/// Limits for the number of calls in a run, and for their bytes.
const CALLS_MAX: u64 = 1000;
const CALLS_MIN: u64 = 32;
const BYTES_PER_RUN: u64 = 32 << 20;

/// Measure the cost over MPI of C3's two ways to move the bits of collective calls: in an exchange before the call, and
/// on its data.
///
/// Bronevetsky et al. describe both (section 4.2) and have no measurement. A run is some hundred calls of one length,
/// alternating with runs on plain MPI inside one job, with calls made of the same messages; a ratio is a run's length
/// divided by the mean length of the two neighbouring runs on plain MPI; times are per call. Then workloads run in the
/// same way. No checkpoint is taken. Requires `cargo xtask mpi`.
#[derive(Debug, Args)]
pub(crate) struct C3BitsArguments {
    #[command(flatten)]
    pub(super) costs: CostArguments,
    /// Problem size of the workloads: S, W or A
    #[arg(long, default_value = "A")]
    class: String,
}

pub(crate) fn run(arguments: &C3BitsArguments) -> Result<ExitCode, Failure> {
    let (costs, ranks) = (&arguments.costs, arguments.costs.ranks());
    let programs = WORKLOADS.map(|name| Ok(Program::of(workload(name, &arguments.class, ranks)?.as_ref())));
    let programs = programs.into_iter().collect::<Result<Vec<_>, Failure>>()?;
    let build = costs.build()?;
    let subject = |program| Subject { program, modes: WAYS.iter().map(|(_, rule)| rule.map(Mode::from)).collect() };
    let cells = || CALLS.into_iter().flat_map(|(call, name)| LENGTHS.map(|bytes| (call, name, bytes)));
    let calls = cells().map(|(call, _, bytes)| subject(Program::Calls { call, bytes, calls: calls_of(bytes) }));
    let subjects = calls.chain(programs.into_iter().map(subject)).collect();
    let mut measured = costs.measure(&build, ranks, ("C3's bits", &[]), subjects)?.into_iter();
    let mut rows = Vec::new();
    for ((_, call, bytes), measured) in cells().zip(measured.by_ref()) {
        let of_ways = WAYS.iter().zip(&measured);
        rows.extend(of_ways.map(|((way, _), of)| {
            Row::new(format!("{call} of {}", units::bytes(bytes as u64)), *way, None, of).per_call(calls_of(bytes))
        }));
    }
    for (name, measured) in WORKLOADS.iter().zip(measured) {
        rows.extend(WAYS.iter().zip(&measured).map(|((way, _), of)| Row::new(*name, *way, None, of)));
    }
    let title = format!("class {} on {ranks} ranks, {}", arguments.class, build.version);
    let what = Description {
        paper: "Cost of C3's bits (Bronevetsky et al., section 4.2)",
        title: &title,
        mode: "program",
        group: "bits",
        by: PLAIN_MPI,
        note: "The paper has no measurement of it.",
    };
    costs.report(&what, &rows)
}

/// Returns the number of calls in a run.
fn calls_of(bytes: usize) -> u64 {
    (BYTES_PER_RUN / bytes as u64).clamp(CALLS_MIN, CALLS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_go_from_eight_bytes_to_a_mebibyte_and_runs_are_bounded() {
        assert_eq!([LENGTHS[0], 2048, LENGTHS[5]].map(|bytes| units::bytes(bytes as u64)), ["8 B", "2 KiB", "1 MiB"]);
        assert_eq!([8, 256 << 10, 1 << 20].map(calls_of), [1000, 128, 32]);
    }
}
