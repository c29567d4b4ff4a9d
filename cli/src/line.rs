//! The command line as a whole: before the argument parser has it, and where that refuses it.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::{Failure, Object, run};

/// The line as the parser is to see it.
pub(crate) fn read(line: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut line = run::carry(line);
    // The parser knows `help` alone.
    let asks_for_help = |word: &OsString| word == "--help" || word == "-h";
    if line.get(1).is_some_and(|word| word == "help") && line.get(2).is_some_and(asks_for_help) {
        line.remove(2);
    }
    line
}

/// Says what the parser said: help that was asked for, or why it can't be.
pub(crate) fn refuse(error: &clap::Error, line: &[OsString]) -> ExitCode {
    // Nothing changes if nobody reads it.
    let _ = error.print();
    if error.use_stderr() {
        let is_run = line.get(1).is_some_and(|word| word == "run");
        let mut ours = line.iter().take_while(|word| *word != "--");
        if is_run && error.kind() == ErrorKind::MissingRequiredArgument && ours.clone().count() == line.len() {
            eprintln!(
                "\n  tip: what is run stands behind `--`, as in: counterfoil run -n 2 -- ./program its arguments"
            );
        }
        if ours.any(|word| word == "--json") {
            let object = if is_run { Object::StandardError } else { Object::StandardOutput };
            Failure::usage(reason(&error.render().to_string())).print_object(object);
        }
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Why, without the usage and the tips behind it.
fn reason(said: &str) -> String {
    let said = said.strip_prefix("error: ").unwrap_or(said);
    let paragraph = said.split("\n\n").next().unwrap_or_default();
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_of_help_is_help() {
        let read = |line: &str| read(line.split(' ').map(OsString::from)).join(" ".as_ref());
        assert_eq!(read("counterfoil help --help"), "counterfoil help");
        assert_eq!(read("counterfoil help run"), "counterfoil help run");
    }

    #[test]
    fn a_reason_is_one_line() {
        let said =
            "error: the following were not provided:\n  <PROGRAM>\n\nUsage: x\n\nFor more information, try '--help'.";
        assert_eq!(reason(said), "the following were not provided: <PROGRAM>");
    }
}
