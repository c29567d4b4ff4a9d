//! `counterfoil reproduce`: tables and figures of the papers, measured with this project's code, the paper's numbers beside them.

mod c3_bits;
mod costs;
mod figure_7;
mod figure_8;
mod libelc;
mod scenarios;
mod table_1;
mod ulml_figures;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::Failure;

/// Measure again what the papers have measured, and print the paper's numbers beside ours.
#[derive(Debug, Args)]
pub(crate) struct ReproduceArguments {
    #[command(subcommand)]
    paper: PaperCommand,
}

/// A table or figure to reproduce.
#[derive(Debug, Subcommand)]
enum PaperCommand {
    #[command(name = "table-1")]
    Table1(table_1::Table1Arguments),
    #[command(name = "figure-1")]
    Figure1(scenarios::Figure1Arguments),
    #[command(name = "figure-2")]
    Figure2(scenarios::Figure2Arguments),
    #[command(name = "figure-7")]
    Figure7(figure_7::Figure7Arguments),
    #[command(name = "figure-8")]
    Figure8(figure_8::Figure8Arguments),
    Libelc(libelc::LibelcArguments),
    #[command(name = "c3-bits")]
    C3Bits(c3_bits::C3BitsArguments),
    UlmlFigures(ulml_figures::UlmlFiguresArguments),
}

impl ReproduceArguments {
    /// Returns `true` if the output is JSON.
    pub(crate) fn wants_json(&self) -> bool {
        match &self.paper {
            PaperCommand::Table1(arguments) => arguments.json,
            PaperCommand::Figure1(arguments) => arguments.wants_json(),
            PaperCommand::Figure2(arguments) => arguments.wants_json(),
            PaperCommand::Figure7(arguments) => arguments.costs.json,
            PaperCommand::Figure8(arguments) => arguments.json,
            PaperCommand::Libelc(arguments) => arguments.costs.json,
            PaperCommand::C3Bits(arguments) => arguments.costs.json,
            PaperCommand::UlmlFigures(arguments) => arguments.costs.json,
        }
    }
}

pub(crate) fn run(arguments: &ReproduceArguments) -> Result<ExitCode, Failure> {
    match &arguments.paper {
        PaperCommand::Table1(arguments) => table_1::run(arguments),
        PaperCommand::Figure1(arguments) => scenarios::figure_1(arguments),
        PaperCommand::Figure2(arguments) => scenarios::figure_2(arguments),
        PaperCommand::Figure7(arguments) => figure_7::run(arguments),
        PaperCommand::Figure8(arguments) => figure_8::run(arguments),
        PaperCommand::Libelc(arguments) => libelc::run(arguments),
        PaperCommand::C3Bits(arguments) => c3_bits::run(arguments),
        PaperCommand::UlmlFigures(arguments) => ulml_figures::run(arguments),
    }
}

/// Parser for the default arguments of `reproduce table-1`.
#[derive(Debug, Parser)]
struct Table1 {
    #[command(flatten)]
    arguments: table_1::Table1Arguments,
}

/// Runs `reproduce table-1` with its defaults, for `simulate --table-1`.
pub(crate) fn table_1(json: bool) -> Result<ExitCode, Failure> {
    let mut defaults = Table1::try_parse_from(["table-1"]).map_err(Failure::usage)?;
    defaults.arguments.json = json;
    table_1::run(&defaults.arguments)
}
