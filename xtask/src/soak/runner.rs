//! Runs MPI programs natively and under `counterfoil run --recover`, with comparable outcomes.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::mpi::Toolkit;
use crate::workspace::{TaskError, command_line};

/// Seconds for a launcher to end its ranks after the time limit.
const END_S: &str = "10";
/// Exit codes of a run ended by `timeout`, and of one killed by it.
const TIMED_OUT: [i32; 2] = [124, 137];

/// Comparable run outcome: ranks print in any order, and times differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) code: Option<i32>,
    pub(super) lines: Vec<String>,
}

impl Outcome {
    pub(super) fn of(output: &Output) -> Outcome {
        let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(without_times).collect();
        lines.sort();
        Outcome { code: output.status.code(), lines }
    }

    /// Keeps `part` of each line that contains it, and nothing else.
    pub(super) fn with_lines(mut self, part: &str) -> Outcome {
        self.lines.retain(|line| line.contains(part));
        self.lines.fill(part.to_owned());
        self
    }

    /// Describes the outcome in a table cell.
    pub(super) fn words(&self) -> String {
        match self.code {
            Some(code) if TIMED_OUT.contains(&code) => "ended by the time limit".to_owned(),
            Some(code) => format!("exit {code}, {} lines", self.lines.len()),
            None => "ended by a signal".to_owned(),
        }
    }
}

/// Replaces each time in a line by a dash.
///
/// A time is a number with a point, followed by a unit.
fn without_times(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let is_unit = |word: &str| ["s", "ms", "us", "ns"].contains(&word.trim_end_matches([',', ';', '.', ')']));
    let is_time = |place: usize| {
        let number = words[place].trim_start_matches('(');
        number.contains('.') && number.parse::<f64>().is_ok() && words.get(place + 1).is_some_and(|word| is_unit(word))
    };
    let kept = (0..words.len()).map(|place| if is_time(place) { "-" } else { words[place] });
    kept.collect::<Vec<_>>().join(" ")
}

/// Runs programs with an MPI.
pub(super) struct Runner<'a> {
    pub(super) toolkit: &'a Toolkit,
    /// The `counterfoil` program.
    pub(super) counterfoil: &'a Path,
    /// Directory for programs and temporary files, also the programs' working directory.
    pub(super) scratch: &'a Path,
    /// Seconds after which a run is killed.
    pub(super) timeout_s: u32,
}

impl<'a> Runner<'a> {
    /// Returns the same runner for programs in another directory.
    pub(super) fn within<'b>(&self, scratch: &'b Path) -> Runner<'b>
    where
        'a: 'b,
    {
        Runner { scratch, ..*self }
    }

    /// Compiles a program; returns `false` on failure.
    pub(super) fn compile(&self, source: &Path, name: &str, includes: &Path) -> Result<bool, TaskError> {
        let mut command = Command::new(&self.toolkit.mpi.mpicc);
        command.args(["-O1", "-w", "-I"]).arg(includes).arg(source);
        command.arg("-o").arg(self.scratch.join(name)).args(["-lpthread", "-lm"]);
        if source.extension().is_some_and(|extension| extension == "cpp") {
            command.args(["-DOMPI_SKIP_MPICXX", "-lstdc++"]);
        }
        Ok(output(&mut command)?.status.success())
    }

    /// Runs a program natively; `program` is its command line as words.
    pub(super) fn run_alone(&self, ranks: u32, program: &[OsString]) -> Result<Outcome, TaskError> {
        let mut command = self.limited(&self.toolkit.mpi.mpirun);
        command.args(["-n", &ranks.to_string()]).args(program);
        Ok(Outcome::of(&output(&mut command)?))
    }

    /// Runs a program under `counterfoil run --recover` with these options; `program` is its command line as words.
    pub(super) fn run_recovered(
        &self,
        ranks: u32,
        options: &[OsString],
        program: &[OsString],
    ) -> Result<Output, TaskError> {
        let mut command = self.limited(self.counterfoil);
        command.args(["run", "--no-progress", "--json", "--recover", "-n", &ranks.to_string(), "--mpi"]);
        command.arg(self.toolkit.mpi.selector()).args(options).arg("--").args(program);
        output(&mut command)
    }

    /// Sets the MPI's variables and the folder in which mpi4py looks for it.
    pub(super) fn set_environment(&self, command: &mut Command) {
        self.toolkit.mpi.set_environment(command);
        command.env("LD_LIBRARY_PATH", &self.toolkit.mpi.library_dir);
    }

    /// Returns a command to be killed after the time limit.
    pub(super) fn limited(&self, program: &Path) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", END_S, &self.timeout_s.to_string()]).arg(program);
        self.set_environment(&mut command);
        // Sessions left by killed launchers in a shared directory can prevent a start.
        command.env("TMPDIR", self.scratch).current_dir(self.scratch);
        command
    }
}

/// Returns the last line containing a JSON object; null if there is none.
pub(crate) fn json_of(stderr: &str) -> Value {
    let line = stderr.lines().rev().find(|line| line.starts_with('{'));
    line.and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default()
}

pub(super) fn output(command: &mut Command) -> Result<Output, TaskError> {
    let program = command_line(command);
    command.stdin(std::process::Stdio::null()).output().map_err(|source| TaskError::Start { program, source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn times_are_no_difference_and_other_numbers_are() {
        assert_eq!(without_times("N 200: 0.004 s"), "N 200: - s");
        assert_eq!(without_times("(1.5 ms, 2.5) x 3 s"), "- ms, 2.5) x 3 s");
        assert_eq!(without_times("sum 0.25 of rank 1"), "sum 0.25 of rank 1");
    }

    #[test]
    fn outcomes_differ_by_code_and_lines_and_not_by_the_order_of_the_ranks() {
        let outcome = |code: i32, stdout: &str| {
            Outcome::of(&Output { status: ExitStatus::from_raw(code << 8), stdout: stdout.into(), stderr: Vec::new() })
        };
        assert_eq!(outcome(0, "rank 1\nrank 0\n"), outcome(0, "rank 0\nrank 1\n"));
        assert_ne!(outcome(0, "rank 0\n"), outcome(0, "rank 0\nrank 0\n"));
        assert_ne!(outcome(0, ""), outcome(1, ""));
        assert_eq!(
            (&*outcome(3, "a\nb").words(), &*outcome(TIMED_OUT[0], "").words()),
            ("exit 3, 2 lines", "ended by the time limit")
        );
    }
}
