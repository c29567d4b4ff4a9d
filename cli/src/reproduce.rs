//! `counterfoil reproduce`: tables and figures of the papers, measured with this project's code, next to the paper's
//! numbers.

mod c3_bits;
mod cof;
mod cof_detection;
mod costs;
mod figure_7;
mod figure_8;
mod libelc;
mod libelc_interval;
mod scenarios;
mod table_1;
mod ulml_figures;
mod ulml_table_1;
mod ulml_table_2;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::{Failure, print};

/// Repeat the papers' measurements, and print the paper's numbers next to ours.
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
    LibelcInterval(libelc_interval::LibelcIntervalArguments),
    #[command(name = "c3-bits")]
    C3Bits(c3_bits::C3BitsArguments),
    #[command(name = "ulml-table-1")]
    UlmlTable1(ulml_table_1::UlmlTable1Arguments),
    #[command(name = "ulml-table-2")]
    UlmlTable2(ulml_table_2::UlmlTable2Arguments),
    UlmlFigures(ulml_figures::UlmlFiguresArguments),
    Cof(cof::CofArguments),
    CofDetection(cof_detection::CofDetectionArguments),
    All(AllArguments),
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
            PaperCommand::LibelcInterval(arguments) => arguments.json,
            PaperCommand::C3Bits(arguments) => arguments.costs.json,
            PaperCommand::UlmlTable1(arguments) => arguments.costs.json,
            PaperCommand::UlmlTable2(arguments) => arguments.json,
            PaperCommand::UlmlFigures(arguments) => arguments.costs.json,
            PaperCommand::Cof(arguments) => arguments.json,
            PaperCommand::CofDetection(arguments) => arguments.json,
            PaperCommand::All(arguments) => arguments.json,
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
        PaperCommand::LibelcInterval(arguments) => libelc_interval::run(arguments),
        PaperCommand::C3Bits(arguments) => c3_bits::run(arguments),
        PaperCommand::UlmlTable1(arguments) => ulml_table_1::run(arguments),
        PaperCommand::UlmlTable2(arguments) => ulml_table_2::run(arguments),
        PaperCommand::UlmlFigures(arguments) => ulml_figures::run(arguments),
        PaperCommand::Cof(arguments) => cof::run(arguments),
        PaperCommand::CofDetection(arguments) => cof_detection::run(arguments),
        PaperCommand::All(arguments) => run_all(arguments),
    }
}

/// Reproduce every table and figure, one after the other, with its defaults. Requires `cargo xtask mpi`, and twenty
/// minutes.
#[derive(Debug, Args)]
struct AllArguments {
    /// Directory for the pictures; created if missing
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Print for each a line with its JSON
    #[arg(long)]
    json: bool,
}

/// Parser for a `reproduce` command with its own arguments.
#[derive(Debug, Parser)]
struct Reproduce {
    #[command(flatten)]
    arguments: ReproduceArguments,
}

/// Returns the command lines of all measurements, with their defaults and their pictures in `dir`.
fn command_lines(dir: &Path) -> Vec<Vec<OsString>> {
    let reproduce = Reproduce::command();
    let measurements = reproduce.get_subcommands().filter(|command| !["all", "help"].contains(&command.get_name()));
    let line = |command: &clap::Command| {
        let has = |option: &str| command.get_arguments().any(|argument| argument.get_id() == option);
        let mut words: Vec<OsString> = vec!["reproduce".into(), command.get_name().into()];
        if has("svg") {
            words.extend(["--svg".into(), dir.join(command.get_name()).with_extension("svg").into()]);
        }
        if has("dir") {
            words.extend(["--dir".into(), dir.into()]);
        }
        words
    };
    measurements.map(line).collect()
}

fn run_all(arguments: &AllArguments) -> Result<ExitCode, Failure> {
    std::fs::create_dir_all(&arguments.dir)
        .map_err(|error| Failure::failed(format!("--dir {}: {error}", arguments.dir.display())))?;
    for mut words in command_lines(&arguments.dir) {
        words.extend(arguments.json.then(|| "--json".into()));
        run(&Reproduce::try_parse_from(words).map_err(Failure::usage)?.arguments)?;
        if !arguments.json {
            print("")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `reproduce table-1` with its defaults, for `simulate --table-1`.
pub(crate) fn table_1(json: bool) -> Result<ExitCode, Failure> {
    let words = ["reproduce", "table-1"].into_iter().chain(json.then_some("--json"));
    run(&Reproduce::try_parse_from(words).map_err(Failure::usage)?.arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measurement_has_defaults() {
        let lines = command_lines(Path::new("pictures"));
        assert!(
            lines.len() >= 11 && lines.iter().any(|line| line.contains(&"pictures/libelc.svg".into())),
            "{lines:?}"
        );
        for line in lines {
            let parsed = Reproduce::try_parse_from(line.iter().cloned().chain(["--json".into()]));
            assert!(parsed.is_ok_and(|reproduce| reproduce.arguments.wants_json()), "{line:?}");
        }
    }
}
