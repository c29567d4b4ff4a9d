//! Runs one check's command, shows all that it prints, and keeps it for counting.

use std::fmt;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::process::Command;
use std::time::Duration;

use super::summary::Counts;
use crate::workspace::command_line;

/// A check that has ended.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) title: &'static str,
    pub(super) verdict: Verdict,
    pub(super) elapsed: Duration,
    /// CPU time of all processes that the check started; `None` where the system does not tell it.
    pub(super) cpu: Option<Duration>,
}

/// What a check found.
#[derive(Debug)]
pub(super) enum Verdict {
    /// So many tests, or one for a check that is not made of tests.
    Counted(Counts),
    /// Neither passed nor failed, and why.
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

/// A command that has ended.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) success: bool,
    /// Both streams in the order in which they were written, without colours.
    pub(super) lines: Vec<String>,
}

impl Ran {
    /// For a command that counts as one.
    pub(super) fn verdict(&self) -> Verdict {
        Verdict::Counted(if self.success { Counts::PASSED } else { Counts::FAILED })
    }
}

/// Runs the command to its end. One that cannot be started has failed, and says why.
pub(super) fn run(mut command: Command) -> Ran {
    println!("$ {}", command_line(&command));
    if io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        // The output goes through a pipe, where cargo would leave colours out.
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut lines = Vec::new();
    match run_and_keep(command, &mut lines) {
        Ok(success) => Ran { success, lines },
        Err(error) => {
            println!("cannot run it: {error}");
            Ran { success: false, lines }
        }
    }
}

/// One pipe for both streams keeps their order, which the counting of `cargo test` relies on.
fn run_and_keep(mut command: Command, lines: &mut Vec<String>) -> io::Result<bool> {
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // The command holds the pipe's writing ends: with them open, reading would never end.
    drop(command);
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        let mut stdout = io::stdout().lock();
        stdout.write_all(&line)?;
        stdout.flush()?;
        lines.push(without_colours(&String::from_utf8_lossy(&line)));
        line.clear();
    }
    Ok(child.wait()?.success())
}

/// Drops ANSI control sequences: ESC, `[`, parameters, one final letter.
fn without_colours(line: &str) -> String {
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
    fn both_streams_are_kept_in_order() {
        let ran = run(shell("echo one; echo two >&2; echo three"));
        assert!(ran.success);
        assert_eq!(ran.lines, ["one", "two", "three"]);
    }

    #[test]
    fn a_failing_command_and_one_that_does_not_exist_have_failed() {
        assert!(!run(shell("exit 3")).success);
        assert!(!run(Command::new("/nonexistent/program")).success);
    }

    #[test]
    fn colours_are_dropped() {
        assert_eq!(without_colours("\u{1b}[32;1m     Summary\u{1b}[0m [ 0.1s]\u{1b}[1"), "     Summary [ 0.1s]");
    }
}
