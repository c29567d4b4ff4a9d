//! `counterfoil bench`: what the log costs on this machine.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use counterfoil_benches::instructions::{Stretch, Subject, count};
use counterfoil_benches::{RunOptions, append, release, replay};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{Failure, print};

/// Measure the log, as ratios to a naked copy within one run.
///
/// Floor and log take turns, so that a machine that gets slower or faster meanwhile does so to both; every figure is
/// the median over all turns.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// What to measure
    #[arg(value_enum)]
    what: What,
    /// How many turns each of log and floor takes [default: 31, with --quick 15]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: Option<u32>,
    /// Short turns: a rough answer in a few seconds
    #[arg(long)]
    quick: bool,
    /// For append: count the instructions of one message as well, where valgrind is installed (takes half a minute)
    #[arg(long)]
    instructions: bool,
    /// Print one JSON array, with an object for each measurement
    #[arg(long)]
    json: bool,
    /// Send so many messages and print nothing: what valgrind counts
    #[arg(long, hide = true, value_name = "LOOP")]
    exactly: Option<Stretch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Claim, write, commit and release, against copying the same bytes into a ring
    Append,
    /// Reading records back in order, against copying them
    Replay,
    /// Acknowledging, and freeing what a checkpoint covers, with few and with many records in the same memory
    Release,
}

pub(crate) fn run(arguments: &BenchArguments) -> Result<ExitCode, Failure> {
    if let Some(stretch) = &arguments.exactly {
        stretch.run().map_err(Failure::failed)?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.instructions && arguments.what != What::Append {
        return Err(Failure::usage("--instructions goes with append only"));
    }
    let rows = measure(arguments)?;
    if arguments.instructions && rows.iter().all(|row| row["instructions"].is_null()) {
        eprintln!("note: no instructions were counted: valgrind is missing, or can't run this program");
    }
    if arguments.json {
        print(&Value::Array(rows).to_string());
    } else {
        print(&report(arguments.what, &rows));
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(arguments: &BenchArguments) -> Result<Vec<Value>, Failure> {
    let options = run_options(arguments);
    // Drawn on stderr, and only on a terminal; seldom, because the measured threads want the processors.
    let progress = ProgressBar::new_spinner().with_message("measuring");
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        progress.set_style(style);
    }
    progress.enable_steady_tick(Duration::from_millis(500));
    let rows = match arguments.what {
        What::Append => append::run(&options).map_err(Failure::failed).and_then(as_values).map(|mut rows| {
            count_instructions(&mut rows, arguments.instructions, &progress);
            rows
        }),
        What::Replay => replay::run(&options).map_err(Failure::failed).and_then(as_values),
        What::Release => release::run(&options).map_err(Failure::failed).and_then(as_values),
    };
    progress.finish_and_clear();
    rows
}

fn run_options(arguments: &BenchArguments) -> RunOptions {
    let mut options = RunOptions::default();
    if arguments.quick {
        options = RunOptions { rounds: 15, turn: Duration::from_millis(1) };
    }
    if let Some(rounds) = arguments.rounds {
        options.rounds = rounds as usize;
    }
    options
}

fn as_values<T: Serialize>(rows: Vec<T>) -> Result<Vec<Value>, Failure> {
    rows.iter().map(serde_json::to_value).collect::<Result<_, _>>().map_err(Failure::failed)
}

/// Fills in the fields `instructions` and `floor_instructions`: null where they were not asked for, where valgrind is
/// missing, and in rows of several writers.
fn count_instructions(rows: &mut [Value], wanted: bool, progress: &ProgressBar) {
    let program = std::env::current_exe().ok().filter(|_| wanted);
    let mut floors = BTreeMap::new();
    for row in rows {
        let (mut log, mut floor) = (None, None);
        if let (Some(program), Some(1)) = (&program, row["writers"].as_u64()) {
            let size = row["size"].as_u64().unwrap_or(0) as usize;
            let arguments = ["bench", "append", "--exactly"];
            progress.set_message(format!("counting the instructions of {size} bytes"));
            let subject = Subject::of_row(row["tier"].as_str().unwrap_or(""), row["keep"].as_str().unwrap_or(""));
            log = subject.and_then(|subject| count(program, &arguments, subject, size));
            floor = *floors.entry(size).or_insert_with(|| count(program, &arguments, Subject::Floor, size));
        }
        row["instructions"] = json!(log);
        row["floor_instructions"] = json!(floor);
    }
}

/// What people read: what was measured, the table, and how many of its rows are where they should be.
fn report(what: What, rows: &[Value]) -> String {
    let counted = rows.iter().any(|row| row["instructions"].is_number());
    let mut columns: Vec<(&str, &str)> = match what {
        What::Append => vec![
            ("size", "size"),
            ("writers", "writers"),
            ("tier", "tier"),
            ("keep", "keep"),
            ("ns", "ns"),
            ("floor ns", "floor_ns"),
        ],
        What::Replay => vec![
            ("size", "size"),
            ("log bytes", "log_bytes"),
            ("tier", "tier"),
            ("MB/s", "mb_per_s"),
            ("floor MB/s", "floor_mb_per_s"),
        ],
        What::Release => vec![("what", "op"), ("records", "records_per_op"), ("ns", "ns"), ("floor ns", "floor_ns")],
    };
    columns.extend([("ratio", "ratio"), ("quartiles", QUARTILES), ("aim", AIM)]);
    if counted {
        columns.extend([("instructions", "instructions"), ("floor", "floor_instructions")]);
    }
    let aims: Vec<(f64, Aim)> =
        rows.iter().filter_map(|row| Some((row["ratio"].as_f64()?, Aim::of(what, row)?))).collect();
    let met = aims.iter().filter(|(ratio, aim)| aim.is_met(*ratio)).count();
    let rounds = rows.first().map_or(0, |row| row["rounds"].as_u64().unwrap_or(0));
    format!(
        "{}\n\n{}\n\n{met} of the {} rows with an aim reach it. Medians of {rounds} rounds; the quartiles are the ratio's.",
        explanation(what),
        table(what, rows, &columns),
        aims.len(),
    )
}

fn explanation(what: What) -> &'static str {
    match what {
        What::Append => {
            "append: a message is claimed, written, committed and at last released; time of one message.\n\
             floor:  a header of 16 bytes and a copy of the payload into a ring of 1 MiB, overwritten for ever:\n\
             \x20       no budget, no reader, no acknowledgement. Two writers: two threads with a ring each.\n\
             aim:    1.5 times the floor; two writers 0.9 of the speed of two floors."
        }
        What::Replay => {
            "replay: a cursor goes over the whole lane and copies every payload to a buffer.\n\
             floor:  a copy of the same bytes, message by message, to such a buffer.\n\
             aim:    0.7 of the floor's speed, from 1 KiB on."
        }
        What::Release => {
            "acknowledge: time of one record, where one acknowledgement covers so many; its floor is one store a record.\n\
             advance:     time of freeing one chunk with so many records; its floor is the same with one record.\n\
             aim:         what is freed with 1,000 records in each chunk costs 1.3 times that with one."
        }
    }
}

/// Where a ratio should be.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Aim {
    AtMost(f64),
    AtLeast(f64),
}

impl Aim {
    fn of(what: What, row: &Value) -> Option<Aim> {
        match what {
            What::Append if row["writers"] == 1 => Some(Aim::AtMost(1.5)),
            // 0.9 of the speed, said as a time.
            What::Append => Some(Aim::AtMost(1.0 / 0.9)),
            What::Replay => row["size"].as_u64().filter(|&size| size >= 1024).map(|_| Aim::AtLeast(0.7)),
            // With one record in a chunk it is the floor itself.
            What::Release if row["op"] == "advance" && row["records_per_op"] != 1 => Some(Aim::AtMost(1.3)),
            What::Release => None,
        }
    }

    fn is_met(self, ratio: f64) -> bool {
        match self {
            Aim::AtMost(limit) => ratio <= limit,
            Aim::AtLeast(limit) => ratio >= limit,
        }
    }
}

impl std::fmt::Display for Aim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Aim::AtMost(limit) => write!(f, "<= {limit:.2}"),
            Aim::AtLeast(limit) => write!(f, ">= {limit:.2}"),
        }
    }
}

/// Columns that are made of several fields.
const QUARTILES: &str = "(quartiles)";
const AIM: &str = "(aim)";

/// A table with these columns (heading, field), one line a row: words to the left, numbers to the right.
fn table(what: What, rows: &[Value], columns: &[(&str, &str)]) -> String {
    let head: Vec<String> = columns.iter().map(|&(heading, _)| heading.to_owned()).collect();
    let body = rows.iter().map(|row| columns.iter().map(|&(_, field)| cell(what, row, field)).collect());
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(body).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let is_word = |field: &str| rows.iter().any(|row| row[field].is_string());
    let written = lines.iter().map(|line| {
        let cells = line.iter().zip(columns).zip(&widths).map(|((cell, (_, field)), &width)| {
            if is_word(field) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    written.collect::<Vec<_>>().join("\n")
}

fn cell(what: What, row: &Value, field: &str) -> String {
    match (field, &row[field]) {
        (QUARTILES, _) => format!("{}-{}", cell(what, row, "ratio_p25"), cell(what, row, "ratio_p75")),
        (AIM, _) => Aim::of(what, row).map_or_else(String::new, |aim| aim.to_string()),
        (_, Value::Null) => "-".to_owned(),
        (_, Value::String(text)) => text.clone(),
        (_, Value::Number(number)) if number.is_f64() => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if number < 1000.0 { format!("{number:.2}") } else { format!("{number:.0}") }
        }
        (_, other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(size: u64, tier: &str, writers: u64, ratio: f64) -> Value {
        json!({ "size": size, "tier": tier, "writers": writers, "keep": "acked", "ns": 10.0, "floor_ns": 5.25,
            "ratio": ratio, "ratio_p25": ratio, "ratio_p75": ratio + 1.0, "rounds": 15 })
    }

    #[test]
    fn words_stand_left_and_numbers_right() {
        let rows = [row(64, "volatile", 1, 1.234), row(4096, "x", 1, 2000.0)];
        let columns = [("size", "size"), ("tier", "tier"), ("ratio", "ratio"), ("quartiles", QUARTILES)];
        assert_eq!(
            table(What::Append, &rows, &columns),
            "size  tier      ratio  quartiles\n\
             \x20 64  volatile   1.23  1.23-2.23\n\
             4096  x          2000  2000-2001"
        );
    }

    #[test]
    fn a_report_says_what_the_floor_is_and_how_many_rows_reach_their_aim() {
        let rows = [row(64, "volatile", 1, 1.5), row(64, "volatile", 1, 1.51), row(64, "volatile", 2, 1.2)];
        let report = report(What::Append, &rows);
        assert!(report.contains("floor:") && report.contains("<= 1.50") && report.contains("<= 1.11"), "{report}");
        assert!(report.contains("1 of the 3 rows with an aim reach it. Medians of 15 rounds"), "{report}");
    }

    #[test]
    fn only_some_rows_have_an_aim() {
        let aim = |what, row: Value| Aim::of(what, &row);
        assert_eq!(aim(What::Replay, json!({ "size": 256 })), None);
        assert_eq!(aim(What::Replay, json!({ "size": 1024 })), Some(Aim::AtLeast(0.7)));
        assert_eq!(aim(What::Release, json!({ "op": "acknowledge", "records_per_op": 32 })), None);
        assert_eq!(aim(What::Release, json!({ "op": "advance", "records_per_op": 1 })), None);
        assert_eq!(aim(What::Release, json!({ "op": "advance", "records_per_op": 1000 })), Some(Aim::AtMost(1.3)));
        assert!(Aim::AtLeast(0.7).is_met(0.7) && !Aim::AtLeast(0.7).is_met(0.69));
    }

    #[test]
    fn instructions_that_were_not_asked_for_are_null() {
        let mut rows = [row(64, "volatile", 1, 1.0)];
        count_instructions(&mut rows, false, &ProgressBar::hidden());
        assert!(rows[0]["instructions"].is_null() && rows[0]["floor_instructions"].is_null());
        assert!(rows[0].as_object().is_some_and(|fields| fields.contains_key("instructions")));
    }
}
