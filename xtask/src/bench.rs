//! `cargo xtask bench`: runs the criterion benchmarks and prints the `counterfoil bench` tables.
//!
//! The subcommands `mpi`, `applications`, `operations` and `netpipe` measure MPI programs.

use std::path::Path;
use std::process::{Command, Stdio};

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::mpi::bench::{applications, netpipe, operations, ping_pong};
use crate::table::Table;
use crate::workspace::{TaskError, Workspace, command_line, run_checked};

/// Subjects of `counterfoil bench`.
const SUBJECTS: [&str; 7] = ["append", "replay", "release", "spill", "recover", "disk-replay", "spilling"];

/// Leading table columns, in this order.
///
/// Other columns follow in alphabetical order.
const LEADING_COLUMNS: [&str; 10] =
    ["backend", "block", "operation", "size", "writers", "records", "tier", "ns", "floor_ns", "ratio"];

/// Options for `cargo xtask bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    mpi_bench: Option<MpiBench>,
    /// Skip the criterion benchmarks
    #[arg(long)]
    tables_only: bool,
}

/// Benchmarks that need an MPI, run only on request.
#[derive(Debug, Subcommand)]
enum MpiBench {
    /// Measure the logging library's cost per message: logged and native batches alternate within one job
    Mpi {
        #[command(flatten)]
        options: ping_pong::Options,
        /// Print a JSON array of rows instead of tables
        #[arg(long)]
        json: bool,
    },
    /// Measure whole programs' run time with and without the logging library, in alternating runs
    Applications {
        #[command(flatten)]
        options: applications::Options,
        /// Print a JSON array of rows instead of tables
        #[arg(long)]
        json: bool,
    },
    /// Measure MPI operations natively, under `counterfoil run --recover` and under a floor, in alternating jobs
    Operations {
        #[command(flatten)]
        options: operations::Options,
        /// Print a JSON array of rows instead of tables
        #[arg(long)]
        json: bool,
    },
    /// Measure latency with NetPIPE, with and without the logging library, in alternating jobs
    Netpipe {
        #[command(flatten)]
        options: netpipe::Options,
        /// Print a JSON array of rows instead of tables
        #[arg(long)]
        json: bool,
    },
}

/// Runs the benchmarks.
///
/// Returns `true`, since a failed benchmark is an error.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    if let Some(mpi_bench) = &options.mpi_bench {
        let (rows, json) = match mpi_bench {
            MpiBench::Mpi { options, json } => (ping_pong::rows(workspace, options)?, json),
            MpiBench::Applications { options, json } => (applications::rows(workspace, options)?, json),
            MpiBench::Operations { options, json } => (operations::rows(workspace, options)?, json),
            MpiBench::Netpipe { options, json } => (netpipe::rows(workspace, options)?, json),
        };
        if *json {
            println!("{}", Value::Array(rows));
        } else {
            println!("{}", table(&rows));
        }
        return Ok(true);
    }
    if !options.tables_only {
        run_checked(&mut workspace.cargo(["bench", "--package", "counterfoil-benches"]))?;
    }
    let program = workspace.build_release()?;
    for subject in SUBJECTS {
        println!("\n{subject}\n");
        println!("{}", table(&run_subject(&program, subject)?));
    }
    Ok(true)
}

/// Runs `counterfoil bench SUBJECT --json` and returns its rows.
fn run_subject(program: &Path, subject: &str) -> Result<Vec<Value>, TaskError> {
    let mut command = Command::new(program);
    command.args(["bench", subject, "--json"]).stderr(Stdio::inherit());
    let output = command.output().map_err(|source| TaskError::Start { program: command_line(&command), source })?;
    if !output.status.success() {
        return Err(TaskError::Failed { program: command_line(&command) });
    }
    parse_rows(&String::from_utf8_lossy(&output.stdout))
        .map_err(|reason| TaskError::Output { program: command_line(&command), reason })
}

/// Parses an array of objects, either at the top level or in the field `rows`.
fn parse_rows(text: &str) -> Result<Vec<Value>, String> {
    let mut report: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let rows = match report.get_mut("rows") {
        Some(rows) => rows.take(),
        None => report,
    };
    match rows {
        Value::Array(rows) if rows.iter().all(Value::is_object) => Ok(rows),
        _ => Err("expected an array of objects, or an object with one in `rows`".to_owned()),
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
    let position = |column: &str| LEADING_COLUMNS.iter().position(|leading| *leading == column);
    columns.sort_by_key(|column| (position(column).unwrap_or(LEADING_COLUMNS.len()), *column));
    columns.dedup();
    columns
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        // Measured values have three decimal places.
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
    fn rows_are_parsed_at_the_top_level_and_in_an_object() {
        assert_eq!(parse_rows(r#"[{"size": 64}]"#).unwrap().len(), 1);
        assert_eq!(parse_rows(r#"{"unit": "ns", "rows": [{}, {}]}"#).unwrap().len(), 2);
        for wrong in ["", "{}", "[1]", r#"{"rows": 3}"#, "64 ns"] {
            assert!(parse_rows(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn leading_columns_come_first_and_the_rest_is_sorted_by_name() {
        let rows = parse_rows(
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
