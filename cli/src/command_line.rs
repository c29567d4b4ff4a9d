//! Command line preprocessing and reports of the argument parser's errors.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::{Failure, JsonErrors, run};

/// Rewrites the command line for the argument parser.
pub(crate) fn prepare(line: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut line = run::wrap_mpirun_options(line);
    // The parser knows `help`, but not `help --help`.
    let asks_for_help = |word: &OsString| word == "--help" || word == "-h";
    if line.get(1).is_some_and(|word| word == "help") && line.get(2).is_some_and(asks_for_help) {
        line.remove(2);
    }
    line
}

/// Prints the parser's message (an error, or the requested help) and returns the exit code.
pub(crate) fn report_parse_error(error: &clap::Error, line: &[OsString]) -> ExitCode {
    // A failed write can't be reported anywhere.
    let _ = error.print();
    if error.use_stderr() {
        let is_run = line.get(1).is_some_and(|word| word == "run");
        let mut own = line.iter().take_while(|word| *word != "--");
        if is_run && error.kind() == ErrorKind::MissingRequiredArgument && own.clone().count() == line.len() {
            eprintln!("\n  tip: put the program after `--`, as in: counterfoil run -n 2 -- ./program ARGUMENTS");
        }
        if own.any(|word| word == "--json") {
            let target = if is_run { JsonErrors::StandardError } else { JsonErrors::StandardOutput };
            Failure::usage(reason(&error.render().to_string())).print_json(target);
        }
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Extracts an error's first paragraph: the reason, without usage and tips.
fn reason(message: &str) -> String {
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let paragraph = message.split("\n\n").next().unwrap_or_default();
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_of_help_prints_the_help() {
        let prepare = |line: &str| prepare(line.split(' ').map(OsString::from)).join(" ".as_ref());
        assert_eq!(prepare("counterfoil help --help"), "counterfoil help");
        assert_eq!(prepare("counterfoil help run"), "counterfoil help run");
    }

    #[test]
    fn a_reason_is_one_line() {
        let message =
            "error: the following were not provided:\n  <PROGRAM>\n\nUsage: x\n\nFor more information, try '--help'.";
        assert_eq!(reason(message), "the following were not provided: <PROGRAM>");
    }
}
