//! `cargo xtask soak miri`: runs log-core's tests under Miri, which detects data races and other undefined behaviour.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use clap::Args;

use crate::toolchain::has_nextest;
use crate::workspace::{TaskError, Workspace, command_line};

/// Test modules using threads, repeated under other schedules.
const THREADED_TESTS: [&str; 2] = ["images_while_sealing::", "stress::"];
/// Flags for all runs: tests read the clock and create temporary directories.
const MIRIFLAGS: &str = "-Zmiri-disable-isolation";

/// Options for `cargo xtask soak miri`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Name of a rustup toolchain with Miri
    #[arg(long, default_value = "nightly")]
    toolchain: String,
    /// Schedules per test that uses threads
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    schedules: u32,
}

/// Runs the tests.
///
/// Returns `true` if none failed.
///
/// # Errors
/// [`TaskError::Missing`] if rustup has no such toolchain with Miri.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let has_miri = cargo_miri(workspace, options, ["--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !has_miri.is_ok_and(|status| status.success()) {
        return Err(TaskError::Missing {
            path: format!("Miri of the toolchain {}", options.toolchain).into(),
            advice: "`rustup toolchain install nightly --component miri,rust-src` installs it",
        });
    }
    // nextest runs tests in parallel; cargo runs them one after another, since Miri has one thread.
    let run: &[&str] = if has_nextest(workspace) { &["nextest", "run"] } else { &["test"] };
    let tests = |selected: &[&str]| {
        cargo_miri(workspace, options, run.iter().chain(&["--package", "counterfoil-log-core"]).chain(selected))
    };
    let mut commands = vec![tests(&["--lib", "--tests"])];
    commands[0].env("MIRIFLAGS", MIRIFLAGS);
    for seed in 1..options.schedules {
        let mut command = tests(&["--test", "log_core", "--", THREADED_TESTS[0], THREADED_TESTS[1]]);
        command.env("MIRIFLAGS", format!("{MIRIFLAGS} -Zmiri-seed={seed}"));
        commands.push(command);
    }
    let mut failed = 0;
    for command in &mut commands {
        let line = command_line(command);
        eprintln!("{line}");
        let status = command.status().map_err(|source| TaskError::Start { program: line.clone(), source })?;
        if !status.success() {
            eprintln!("FAILED: {line}");
            failed += 1;
        }
    }
    println!("{} runs under Miri, {failed} failed", commands.len());
    Ok(failed == 0)
}

/// Returns the command `cargo miri ARGUMENTS` for the selected toolchain, without the variables of this program's own
/// toolchain.
fn cargo_miri<A: AsRef<OsStr>>(
    workspace: &Workspace,
    options: &Options,
    arguments: impl IntoIterator<Item = A>,
) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", &options.toolchain, "cargo", "miri"]).args(arguments).current_dir(workspace.root());
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("RUSTC").env_remove("CARGO");
    command
}
