//! `cargo xtask bench`: the criterion benches, then the tables of `counterfoil bench`. `cargo xtask bench mpi`, `applications`,
//! `netpipe` and `spike` measure what needs an MPI.

use std::path::Path;
use std::process::{Command, Stdio};

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::mpi::bench::{applications, netpipe, ping_pong, spike};
use crate::table::Table;
use crate::workspace::{TaskError, Workspace, command_line, run_to_end};

/// The benchmarks of `counterfoil bench`.
const SUBJECTS: [&str; 7] = ["append", "replay", "release", "spill", "recover", "disk-replay", "spilling"];

/// Columns that are shown first, in this order; others follow by name.
const FIRST_COLUMNS: [&str; 9] = ["backend", "block", "size", "writers", "records", "tier", "ns", "floor_ns", "ratio"];

/// Which benchmarks.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    of_mpi: Option<OfMpi>,
    /// Leave out the criterion benches
    #[arg(long)]
    tables_only: bool,
}

/// Benchmarks that run only where they are asked for: they need an MPI.
#[derive(Debug, Subcommand)]
enum OfMpi {
    /// What a message of an unmodified program costs when it is logged: ping-pong, logged and native in turn inside one job
    Mpi {
        #[command(flatten)]
        options: ping_pong::Options,
        /// Print a JSON array of rows in place of tables
        #[arg(long)]
        json: bool,
    },
    /// What whole programs take with and without the library, run after run in turn
    Applications {
        #[command(flatten)]
        options: applications::Options,
        /// Print a JSON array of rows in place of tables
        #[arg(long)]
        json: bool,
    },
    /// What NetPIPE says of messages with and without the library, job after job in turn
    Netpipe {
        #[command(flatten)]
        options: netpipe::Options,
        /// Print a JSON array of rows in place of tables
        #[arg(long)]
        json: bool,
    },
    /// What it costs to log messages of MPI, and to tell which is which
    Spike {
        #[command(flatten)]
        options: spike::Options,
        /// Print a JSON array of rows in place of tables
        #[arg(long)]
        json: bool,
    },
}

/// Runs the benchmarks; true if all of them ran to their end.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    if let Some(of_mpi) = &options.of_mpi {
        let (rows, json) = match of_mpi {
            OfMpi::Mpi { options, json } => (ping_pong::rows(workspace, options)?, json),
            OfMpi::Applications { options, json } => (applications::rows(workspace, options)?, json),
            OfMpi::Netpipe { options, json } => (netpipe::rows(workspace, options)?, json),
            OfMpi::Spike { options, json } => (spike::rows(workspace, options)?, json),
        };
        if *json {
            println!("{}", Value::Array(rows));
        } else {
            println!("{}", table(&rows));
        }
        return Ok(true);
    }
    if !options.tables_only {
        run_to_end(&mut workspace.cargo(["bench", "--package", "counterfoil-benches"]))?;
    }
    let program = workspace.build_release()?;
    for subject in SUBJECTS {
        println!("\n{subject}\n");
        println!("{}", table(&rows(&program, subject)?));
    }
    Ok(true)
}

/// The rows that `counterfoil bench SUBJECT --json` prints.
fn rows(program: &Path, subject: &str) -> Result<Vec<Value>, TaskError> {
    let mut command = Command::new(program);
    command.args(["bench", subject, "--json"]).stderr(Stdio::inherit());
    let output = command.output().map_err(|source| TaskError::Start { program: command_line(&command), source })?;
    if !output.status.success() {
        return Err(TaskError::Failed { program: command_line(&command) });
    }
    rows_in(&String::from_utf8_lossy(&output.stdout))
        .map_err(|reason| TaskError::Output { program: command_line(&command), reason })
}

/// A list of objects, alone or as the field `rows` of an object.
fn rows_in(text: &str) -> Result<Vec<Value>, String> {
    let mut report: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let rows = match report.get_mut("rows") {
        Some(rows) => rows.take(),
        None => report,
    };
    match rows {
        Value::Array(rows) if rows.iter().all(Value::is_object) => Ok(rows),
        _ => Err("neither a list of rows nor an object with one".to_owned()),
    }
}

fn table(rows: &[Value]) -> Table {
    let columns = columns(rows);
    let mut table = Table::new(columns.iter().copied());
    for row in rows {
        table.row(columns.iter().map(|column| cell(&row[*column])));
    }
    table
}

fn columns(rows: &[Value]) -> Vec<&str> {
    let mut columns: Vec<&str> =
        rows.iter().filter_map(Value::as_object).flat_map(|row| row.keys().map(String::as_str)).collect();
    let place = |column: &str| FIRST_COLUMNS.iter().position(|first| *first == column);
    columns.sort_by_key(|column| (place(column).unwrap_or(FIRST_COLUMNS.len()), *column));
    columns.dedup();
    columns
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        // Whole numbers as they are; measured ones to three digits after the point.
        Value::Number(number) => match number.as_f64() {
            Some(measured) if number.is_f64() => format!("{measured:.3}"),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_alone_and_in_an_object() {
        assert_eq!(rows_in(r#"[{"size": 64}]"#).unwrap().len(), 1);
        assert_eq!(rows_in(r#"{"unit": "ns", "rows": [{}, {}]}"#).unwrap().len(), 2);
        for wrong in ["", "{}", "[1]", r#"{"rows": 3}"#, "64 ns"] {
            assert!(rows_in(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn known_columns_come_first_and_the_rest_by_name() {
        let rows = rows_in(
            r#"[{"ratio": 1.25, "zeal": 1, "size": 64, "tier": "volatile"},
                {"ratio": null, "size": 4096, "age": 2}]"#,
        )
        .unwrap();
        assert_eq!(columns(&rows), ["size", "tier", "ratio", "age", "zeal"]);
        assert_eq!(
            table(&rows).to_string(),
            "size  tier      ratio  age  zeal\n\
             ----  --------  -----  ---  ----\n\
             \x20 64  volatile  1.250    -     1\n\
             4096  -             -    2     -\n"
        );
    }
}
