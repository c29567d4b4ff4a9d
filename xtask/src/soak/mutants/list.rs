//! Changes proposed by cargo-mutants for a package.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::workspace::{TaskError, Workspace, command_line, json_output};

/// Line and column, both from 1; columns count characters.
pub(super) type Position = (usize, usize);

/// A source change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mutant {
    /// Place and change in words, as printed by cargo-mutants.
    pub(super) name: String,
    /// Path relative to the workspace root.
    pub(super) file: PathBuf,
    pub(super) genre: String,
    /// Start of the text to replace.
    ///
    /// Its end isn't needed: the syntax tree has it.
    pub(super) start: Position,
    /// Text in its place.
    pub(super) replacement: String,
}

impl Mutant {
    fn parse(entry: &Value) -> Option<Mutant> {
        let text = |field: &str| entry[field].as_str().map(str::to_owned);
        let number = |field: &str| usize::try_from(entry["span"]["start"][field].as_u64()?).ok();
        Some(Mutant {
            name: text("name")?,
            file: text("file")?.into(),
            genre: text("genre")?,
            start: (number("line")?, number("column")?),
            replacement: text("replacement")?,
        })
    }
}

/// Lists the changes of `package`, or only those in files matching the pattern.
///
/// # Errors
/// [`TaskError::Missing`] without cargo-mutants.
pub(super) fn list(workspace: &Workspace, package: &str, file: Option<&str>) -> Result<Vec<Mutant>, TaskError> {
    let installed = workspace.cargo(["mutants", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !installed.is_ok_and(|status| status.success()) {
        return Err(TaskError::Missing {
            path: "cargo-mutants".into(),
            advice: "`cargo install cargo-mutants --locked` installs it",
        });
    }
    let mut command: Command = workspace.cargo(["mutants", "--list", "--json", "--package", package]);
    command.args(file.into_iter().flat_map(|pattern| ["--file", pattern]));
    let entries = json_output(&mut command)?;
    let mutants = entries.as_array().and_then(|entries| entries.iter().map(Mutant::parse).collect());
    mutants.ok_or_else(|| TaskError::Output {
        program: command_line(&command),
        reason: "not a list of changes with name, file, genre, span and replacement".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_of_cargo_mutants_is_read() {
        let entry = json!({
            "name": "gc/src/a.rs:3:9: replace + with -", "file": "gc/src/a.rs", "genre": "BinaryOperator",
            "span": { "start": { "line": 3, "column": 9 }, "end": { "line": 3, "column": 10 } }, "replacement": "-",
        });
        let mutant = Mutant::parse(&entry).unwrap();
        assert_eq!((mutant.start, mutant.replacement.as_str()), ((3, 9), "-"));
        assert_eq!(Mutant::parse(&json!({ "name": "x" })), None);
    }
}
