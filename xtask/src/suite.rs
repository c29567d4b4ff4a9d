//! Runs checks in order, shows their output, and counts and times them.
//!
//! A failed check does not stop the rest.

mod comment_width;
mod cpu_time;
mod crate_roots;
mod files;
pub(crate) mod links;
mod step;
mod summary;
mod untested;

use std::process::Command;
use std::time::Instant;

use self::step::{Finished, Verdict};
use self::summary::Counts;
pub(crate) use self::summary::FuzzTests;
use self::untested::Notes;
use crate::table::Table;
use crate::workspace::Workspace;

/// The checks made so far.
pub(crate) struct Suite<'a> {
    workspace: &'a Workspace,
    finished: Vec<Finished>,
    /// Cases not tested by passed tests, with their check's title.
    untested: Vec<(&'static str, String)>,
}

impl<'a> Suite<'a> {
    pub(crate) fn new(workspace: &'a Workspace) -> Self {
        Self { workspace, finished: Vec::new(), untested: Vec::new() }
    }

    /// Runs a command counted as one check.
    ///
    /// Returns `true` if it succeeded.
    pub(crate) fn command(&mut self, title: &'static str, command: Command) -> bool {
        let mut is_success = false;
        self.timed(title, |_| {
            let ran = step::run(command);
            is_success = ran.success;
            ran.verdict()
        });
        is_success
    }

    /// Runs a test command, counting each test.
    ///
    /// Returns its output.
    pub(crate) fn tests(&mut self, title: &'static str, command: Command) -> Vec<String> {
        self.count(title, command, summary::count)
    }

    /// Runs a test command that may have no tests.
    pub(crate) fn tests_if_any(&mut self, title: &'static str, command: Command) {
        self.count(title, command, summary::count_if_any);
    }

    fn count(
        &mut self,
        title: &'static str,
        mut command: Command,
        count: impl FnOnce(bool, &[String]) -> Counts,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        let notes = Notes::begin(&mut command, self.workspace.target());
        self.timed(title, |_| {
            let ran = step::run(command);
            let counts = count(ran.success, &ran.lines);
            lines = ran.lines;
            Verdict::Counted(counts)
        });
        self.untested.extend(notes.take().into_iter().map(|what| (title, what)));
        lines
    }

    /// Makes one of this program's own checks, counted as one.
    pub(crate) fn check(&mut self, title: &'static str, check: impl FnOnce(&Workspace) -> Result<(), String>) {
        self.timed(title, |workspace| match check(workspace) {
            Ok(()) => Verdict::Counted(Counts::PASSED),
            Err(reason) => {
                println!("{reason}");
                Verdict::Counted(Counts::FAILED)
            }
        });
    }

    /// Checks that only crates allowed to contain unsafe code do.
    pub(crate) fn crate_roots(&mut self) {
        self.check("unsafe code only where it is allowed", crate_roots::check);
    }

    /// Checks that no comment exceeds the code's maximum width.
    pub(crate) fn comment_width(&mut self) {
        self.check("width of comments", comment_width::check);
    }

    /// Checks the documentation's links.
    pub(crate) fn links(&mut self) {
        self.check("links of the documentation", links::check);
    }

    /// Records a skipped check with the reason.
    pub(crate) fn not_run(&mut self, title: &'static str, why: impl Into<String>) {
        self.timed(title, |_| Verdict::NotRun(why.into()));
    }

    fn timed(&mut self, title: &'static str, check: impl FnOnce(&Workspace) -> Verdict) {
        println!("\n=== {title} ===");
        let (start, cpu_before) = (Instant::now(), cpu_time::of_children());
        let verdict = check(self.workspace);
        let cpu = cpu_before.zip(cpu_time::of_children()).map(|(before, after)| after.saturating_sub(before));
        let finished = Finished { title, verdict, elapsed: start.elapsed(), cpu };
        println!("--- {title}: {finished}");
        self.finished.push(finished);
    }

    /// Prints the table and, as the last line, the totals.
    ///
    /// Returns `true` if nothing failed.
    pub(crate) fn conclude(self) -> bool {
        let mut table = Table::new(["check", "seconds", "CPU seconds", "passed", "failed", ""]);
        let mut total = Counts::default();
        let mut not_run = Vec::new();
        for finished in &self.finished {
            let seconds = format!("{:.1}", finished.elapsed.as_secs_f64());
            let cpu = finished.cpu.map_or(String::new(), |cpu| format!("{:.1}", cpu.as_secs_f64()));
            match &finished.verdict {
                Verdict::Counted(counts) => {
                    total += *counts;
                    let mark = if counts.failed > 0 { "<-- FAILED" } else { "" };
                    table.row([
                        finished.title,
                        &seconds,
                        &cpu,
                        &counts.passed.to_string(),
                        &counts.failed.to_string(),
                        mark,
                    ]);
                }
                Verdict::NotRun(reason) => {
                    table.row([finished.title, &seconds, &cpu, "", "", "not run"]);
                    not_run.push((finished.title, reason));
                }
            }
        }
        let elapsed: f64 = self.finished.iter().map(|finished| finished.elapsed.as_secs_f64()).sum();
        println!("\n{table}");
        for (title, reason) in not_run {
            println!("not run: {title}: {reason}");
        }
        for (title, what) in &self.untested {
            println!("not tested: {title}: {what}");
        }
        println!("{elapsed:.0} s in all");
        println!("{total}");
        total.failed == 0
    }
}
