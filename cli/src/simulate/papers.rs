//! Subcommands that reproduce tables and figures of the papers with this project's state machines.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use super::{figure_8, scale, table_1};
use crate::Failure;

/// A table or figure to reproduce.
#[derive(Debug, Subcommand)]
pub(crate) enum PaperCommand {
    #[command(name = "table-1")]
    Table1(table_1::Table1Arguments),
    #[command(name = "figure-8")]
    Figure8(figure_8::Figure8Arguments),
    Scale(scale::ScaleArguments),
}

impl PaperCommand {
    pub(super) fn json(&self) -> bool {
        match self {
            PaperCommand::Table1(arguments) => arguments.json,
            PaperCommand::Figure8(arguments) => arguments.json,
            PaperCommand::Scale(arguments) => arguments.json,
        }
    }

    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        match self {
            PaperCommand::Table1(arguments) => table_1::run(arguments),
            PaperCommand::Figure8(arguments) => figure_8::run(arguments),
            PaperCommand::Scale(arguments) => scale::run(arguments),
        }
    }
}

/// Parser for the default arguments of `simulate table-1`.
#[derive(Debug, Parser)]
struct Table1 {
    #[command(flatten)]
    arguments: table_1::Table1Arguments,
}

/// Runs `simulate table-1` with its defaults, for `simulate --table-1`.
pub(super) fn table_1(json: bool) -> Result<ExitCode, Failure> {
    let mut defaults = Table1::try_parse_from(["table-1"]).map_err(Failure::usage)?;
    defaults.arguments.json = json;
    table_1::run(&defaults.arguments)
}
