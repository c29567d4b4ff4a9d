//! The table that Bronevetsky et al. don't have: what each way costs to move the two bits of a collective call.

use std::process::ExitCode;

use clap::Args;
use counterfoil_runtime::Rule;
use counterfoil_workloads::costs::{Call, Program, Subject};

use super::costs::{CostArguments, Description, Row};
use crate::Failure;

/// Calls, with their names and the paper's figure of the protocol.
const CALLS: [(Call, &str); 3] = [(Call::Allreduce, "allreduce"), (Call::Reduce, "reduce"), (Call::Bcast, "bcast")];
/// Lengths in bytes.
const LENGTHS: [usize; 6] = [8, 128, 2 << 10, 32 << 10, 256 << 10, 1 << 20];
/// Limits of the number of calls in a run, and of their bytes.
const CALLS_MAX: u64 = 1000;
const CALLS_MIN: u64 = 32;
const BYTES_PER_RUN: u64 = 32 << 20;

/// Measure what C3's two ways to move the bits of collective calls cost over MPI: in an exchange before the call, and on its data.
///
/// Bronevetsky et al. describe both (section 4.2) and have no measurement. A run is some hundred calls of one length, alternating with runs on
/// plain MPI inside one job, whose calls are made of the same messages; a ratio is the length of a run by the mean length of the two runs on
/// plain MPI next to it. No checkpoint is taken. Requires `cargo xtask mpi`.
#[derive(Debug, Args)]
pub(crate) struct C3BitsArguments {
    #[command(flatten)]
    pub(super) costs: CostArguments,
}

pub(crate) fn run(arguments: &C3BitsArguments) -> Result<ExitCode, Failure> {
    let costs = &arguments.costs;
    let build = costs.build()?;
    let ways = [
        ("exchanged", Some(Rule::Coordinated { piggybacked: false }.into())),
        ("on the data", Some(Rule::Coordinated { piggybacked: true }.into())),
        ("plain MPI against itself", None),
    ];
    let cells: Vec<(Call, &str, usize)> =
        CALLS.into_iter().flat_map(|(call, name)| LENGTHS.map(|bytes| (call, name, bytes))).collect();
    let subject = |&(call, _, bytes): &(Call, &str, usize)| Subject {
        program: Program::Calls { call, bytes, calls: calls_of(bytes) },
        modes: ways.iter().map(|(_, mode)| *mode).collect(),
    };
    let measured = costs.measure(&build, "C3's bits", &[], cells.iter().map(subject).collect())?;
    let mut rows = Vec::new();
    for ((_, call, bytes), measured) in cells.iter().zip(&measured) {
        let group = |way: &&str| format!("{call}, {way}");
        rows.extend(
            ways.iter().zip(measured).map(|((way, _), of)| Row::new(length(*bytes), group(way), None, of)),
        );
    }
    let title = format!("{} ranks, {}", costs.ranks(), build.version);
    let what = Description {
        paper: "Cost of C3's bits (Bronevetsky et al., section 4.2)",
        title: &title,
        group: "call",
        note: "The paper has no measurement of it.",
    };
    costs.report(&what, &rows)
}

/// Returns the number of calls in a run.
fn calls_of(bytes: usize) -> u64 {
    (BYTES_PER_RUN / bytes as u64).clamp(CALLS_MIN, CALLS_MAX)
}

fn length(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_go_from_eight_bytes_to_a_mebibyte_and_runs_are_bounded() {
        assert_eq!((length(LENGTHS[0]), length(2048), length(LENGTHS[5])), ("8 B".into(), "2 KiB".into(), "1 MiB".into()));
        assert_eq!([8, 256 << 10, 1 << 20].map(calls_of), [1000, 128, 32]);
    }
}
