//! Table 1 of Liu 2014: log entries left by an allreduce on its ranks, as messages and as results.

use std::process::ExitCode;

use clap::Args;
use counterfoil_protocols::{sender_based, user_level};
use counterfoil_workloads::costs::{Call, Logged, Measured, Program, Subject};
use serde_json::{Value, json};

use super::costs::{CostArguments, Row, duration};
use crate::table::Table;
use crate::{Failure, print};

/// Number of calls in the shorter run.
///
/// The longer one has twice as many; the difference is logged by the calls alone.
const CALLS: u64 = 200;
/// Default number of ranks: with two, both levels log the same number.
const RANKS: u32 = 4;
/// Bytes before a result in the local log: its length.
const RESULT_PREFIX: u64 = 8;

/// Count the log entries left by an allreduce, as messages at library level and as results at user level, compared with
/// table 1 of Liu et al. 2014.
///
/// The paper's allreduce cuts its items into parts. The one here does so from 8 KiB on; fewer bytes are sent whole, by
/// each of 2^k ranks to k others. The times are per call, with ratios to plain MPI. Requires `cargo xtask mpi`.
#[derive(Debug, Args)]
pub(crate) struct UlmlTable1Arguments {
    #[command(flatten)]
    pub(super) costs: CostArguments,
    /// Bytes per rank
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(8..=32768))]
    bytes: u64,
}

/// Log entries left by one call on all ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PerCall {
    entries: f64,
    /// Bytes per entry.
    bytes: f64,
}

impl PerCall {
    /// Takes the difference between two runs.
    ///
    /// `count`: a run's entries and bytes.
    fn of(shorter: &Logged, longer: &Logged, count: impl Fn(&Logged) -> (u64, u64)) -> PerCall {
        let ((fewer, fewer_bytes), (more, more_bytes)) = (count(shorter), count(longer));
        let (entries, bytes) = (more.saturating_sub(fewer), more_bytes.saturating_sub(fewer_bytes));
        PerCall { entries: entries as f64 / CALLS as f64, bytes: bytes as f64 / entries.max(1) as f64 }
    }
}

/// A message logging level.
struct Level {
    name: &'static str,
    /// The paper's number of log entries, and bytes of the largest.
    paper: PerCall,
    measured: PerCall,
    /// Time ratios, and time per call.
    row: Row,
}

impl Level {
    fn to_json(&self) -> Value {
        json!({
            "level": self.name,
            "paper": {"entries": self.paper.entries, "bytes_max": self.paper.bytes},
            "entries": self.measured.entries,
            "bytes": self.measured.bytes,
            "ratio": self.row.quantile(0.5),
            "ratio_lower_quartile": self.row.quantile(0.25),
            "ratio_upper_quartile": self.row.quantile(0.75),
            "seconds": self.row.seconds,
        })
    }
}

/// Compares the levels.
///
/// `runs`: each level's shorter and longer run.
fn levels(ranks: u32, bytes: u64, runs: [(&Measured, &Measured); 2]) -> [Level; 2] {
    let [library, user] = runs;
    let (p, x) = (f64::from(ranks), bytes as f64);
    let row = |measured: &Measured| Row::new("", "", None, measured).per_call(2 * CALLS);
    [
        Level {
            name: "library level: messages (sender-based)",
            paper: PerCall { entries: 2.0 * (p - 1.0), bytes: 2.0 * (p - 1.0) / p * x },
            measured: PerCall::of(&library.0.logged, &library.1.logged, |of| (of.messages, of.message_bytes)),
            row: row(library.1),
        },
        Level {
            name: "user level: results (user-level)",
            paper: PerCall { entries: p, bytes: x },
            measured: PerCall::of(&user.0.logged, &user.1.logged, |of| {
                (of.entries, of.entry_bytes - RESULT_PREFIX * of.entries)
            }),
            row: row(user.1),
        },
    ]
}

pub(crate) fn run(arguments: &UlmlTable1Arguments) -> Result<ExitCode, Failure> {
    let (costs, bytes) = (&arguments.costs, arguments.bytes);
    let ranks = costs.ranks.unwrap_or(RANKS);
    let build = costs.build()?;
    let subject = |calls| Subject {
        program: Program::Calls { call: Call::Allreduce, bytes: bytes as usize, calls },
        modes: vec![Some(sender_based::RULE.into()), Some(user_level::RULE.into())],
    };
    let subjects = vec![subject(CALLS), subject(2 * CALLS)];
    let measured = costs.measure(&build, ranks, ("ULML", &[]), subjects)?;
    let [[library, user], [library_longer, user_longer]] = &measured.iter().map(Vec::as_slice).collect::<Vec<_>>()[..]
    else {
        return Err(Failure::failed("the job measured something else"));
    };
    let levels = levels(ranks, bytes, [(library, library_longer), (user, user_longer)]);
    if costs.json {
        print(&Value::Array(levels.iter().map(Level::to_json).collect()).to_string())?;
    } else {
        let title = format!("an allreduce of {bytes} bytes on {ranks} ranks, {}", build.version);
        print(&report(&title, costs.rounds, &levels))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn report(title: &str, rounds: u32, levels: &[Level]) -> String {
    let headings = ["<level", "entries", "paper", "bytes of one", "paper's largest", "time", "ratio", "quartiles"];
    let mut table = Table::new(&headings);
    for level in levels {
        table.row([
            level.name.to_owned(),
            format!("{:.2}", level.measured.entries),
            format!("{:.0}", level.paper.entries),
            format!("{:.0}", level.measured.bytes),
            format!("{:.0}", level.paper.bytes),
            duration(level.row.seconds),
            format!("{:.3}", level.row.quantile(0.5)),
            level.row.quartiles(),
        ]);
    }
    format!(
        "Table 1 of Liu et al. 2014: {title}\n\n{table}\n\n\
         Entries are those of all ranks for a call. Time by that on plain MPI, medians of {rounds} runs of {} calls in one job.",
        2 * CALLS
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(calls: u64, messages: u64, entries: u64) -> Measured {
        let logged = Logged {
            messages: messages * calls + 12,
            message_bytes: messages * calls * 1024,
            entries: entries * calls + 8,
            entry_bytes: entries * calls * 1032 + 64,
        };
        Measured { logged, seconds: vec![0.004], ratios: vec![1.5], ..Measured::default() }
    }

    #[test]
    fn what_the_calls_alone_have_logged_is_compared_with_the_formulas() {
        let library = [measured(CALLS, 6, 0), measured(2 * CALLS, 6, 0)];
        let user = [measured(CALLS, 0, 4), measured(2 * CALLS, 0, 4)];
        let levels = levels(4, 1024, [(&library[0], &library[1]), (&user[0], &user[1])]);
        assert_eq!(levels[0].measured, PerCall { entries: 6.0, bytes: 1024.0 });
        assert_eq!(levels[1].measured, levels[1].paper);
        assert_eq!((levels[0].paper.entries, levels[0].paper.bytes), (6.0, 1536.0));
        let text = report("4 ranks", 1, &levels);
        assert!(text.contains("10.00 us  1.500"), "{text}");
        assert_eq!(levels[1].to_json()["entries"], 4.0);
    }
}
