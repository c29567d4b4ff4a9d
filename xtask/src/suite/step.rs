//! Runs one check's command, with its output printed and captured.

use std::fmt;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::process::Command;
use std::time::Duration;

use super::summary::Counts;
use crate::workspace::command_line;

/// A completed check.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) title: &'static str,
    pub(super) verdict: Verdict,
    pub(super) elapsed: Duration,
    /// CPU time of all processes started by the check; `None` if the system does not report it.
    pub(super) cpu: Option<Duration>,
}

/// Check result.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Test counts.
    ///
    /// A check that does not run tests counts as one.
    Counted(Counts),
    /// The check was skipped, for this reason.
    NotRun(String),
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict {
            Verdict::Counted(counts) => write!(f, "{counts}")?,
            Verdict::NotRun(reason) => write!(f, "not run: {reason}")?,
        }
        write!(f, " ({:.1} s", self.elapsed.as_secs_f64())?;
        if let Some(cpu) = self.cpu {
            write!(f, ", {:.1} s of CPU time", cpu.as_secs_f64())?;
        }
        f.write_str(")")
    }
}

/// Command result.
#[derive(Debug)]
pub(super) struct CommandResult {
    pub(super) success: bool,
    /// Lines of stdout and stderr in output order, without colours.
    pub(super) lines: Vec<String>,
}

impl CommandResult {
    /// Returns the verdict for a command that counts as one test.
    pub(super) fn verdict(&self) -> Verdict {
        Verdict::Counted(if self.success { Counts::PASSED } else { Counts::FAILED })
    }
}

/// Runs the command to completion.
///
/// A command that cannot be started counts as failed.
pub(super) fn run(mut command: Command) -> CommandResult {
    println!("$ {}", command_line(&command));
    if io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        // cargo omits colours when its output is a pipe.
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut lines = Vec::new();
    match run_and_capture(command, &mut lines) {
        Ok(success) => CommandResult { success, lines },
        Err(error) => {
            println!("cannot start the command: {error}");
            CommandResult { success: false, lines }
        }
    }
}

/// Reads both streams through one pipe: counting the tests in `cargo test` output relies on their order.
fn run_and_capture(mut command: Command, lines: &mut Vec<String>) -> io::Result<bool> {
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // Close the write ends held by the command, or the reader never reaches end of file.
    drop(command);
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        let mut stdout = io::stdout().lock();
        stdout.write_all(&line)?;
        stdout.flush()?;
        lines.push(strip_colours(&String::from_utf8_lossy(&line)));
        line.clear();
    }
    Ok(child.wait()?.success())
}

/// Removes ANSI control sequences: ESC, `[`, parameters and a final letter.
fn strip_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line.trim_end();
    while let Some(start) = rest.find("\u{1b}[") {
        plain.push_str(&rest[..start]);
        let sequence = &rest[start + 2..];
        let end = sequence.find(|c: char| c.is_ascii_alphabetic());
        rest = end.map_or("", |end| &sequence[end + 1..]);
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_streams_are_captured_in_order() {
        let ran = run(shell("echo one; echo two >&2; echo three"));
        assert!(ran.success);
        assert_eq!(ran.lines, ["one", "two", "three"]);
    }

    #[test]
    fn a_command_that_fails_or_cannot_be_started_has_failed() {
        assert!(!run(shell("exit 3")).success);
        assert!(!run(Command::new("/nonexistent/program")).success);
    }

    #[test]
    fn colours_are_removed() {
        assert_eq!(strip_colours("\u{1b}[32;1m     Summary\u{1b}[0m [ 0.1s]\u{1b}[1"), "     Summary [ 0.1s]");
    }
}
