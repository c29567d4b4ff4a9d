//! Tables and figures of the papers, from what the project's own state machines do.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use super::{figure_8, scale, table_1};
use crate::Failure;

/// What can be redrawn.
#[derive(Debug, Subcommand)]
pub(crate) enum Redraw {
    #[command(name = "table-1")]
    Table1(table_1::Table1Arguments),
    #[command(name = "figure-8")]
    Figure8(figure_8::Figure8Arguments),
    Scale(scale::ScaleArguments),
}

impl Redraw {
    pub(super) fn json(&self) -> bool {
        match self {
            Redraw::Table1(arguments) => arguments.json,
            Redraw::Figure8(arguments) => arguments.json,
            Redraw::Scale(arguments) => arguments.json,
        }
    }

    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        match self {
            Redraw::Table1(arguments) => table_1::run(arguments),
            Redraw::Figure8(arguments) => figure_8::run(arguments),
            Redraw::Scale(arguments) => scale::run(arguments),
        }
    }
}

/// `simulate table-1` with the defaults.
#[derive(Debug, Parser)]
struct Table1 {
    #[command(flatten)]
    arguments: table_1::Table1Arguments,
}

/// What `simulate --table-1` does: as `simulate table-1`, without its options.
pub(super) fn table_1(json: bool) -> Result<ExitCode, Failure> {
    let mut defaults = Table1::try_parse_from(["table-1"]).map_err(Failure::usage)?;
    defaults.arguments.json = json;
    table_1::run(&defaults.arguments)
}
