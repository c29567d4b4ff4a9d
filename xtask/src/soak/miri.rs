//! `cargo xtask soak miri`: log-core's tests under Miri, which finds data races and other undefined behaviour.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use clap::Args;

use crate::workspace::{TaskError, Workspace, command_line};

/// Modules of tests with threads, which are repeated under other schedules.
const THREADED_TESTS: [&str; 2] = ["images_while_sealing::", "stress::"];
/// Tests draw seeds from the clock and make temporary folders.
const MIRIFLAGS: &str = "-Zmiri-disable-isolation";

/// Which Miri, and how many schedules.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Toolchain that has Miri, as rustup names it
    #[arg(long, default_value = "nightly")]
    toolchain: String,
    /// Schedules of each test that has threads
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    schedules: u32,
}

/// Runs the tests; true if none failed.
///
/// # Errors
/// [`TaskError::Missing`] where rustup has no such toolchain with Miri.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let has_miri = rustup(workspace, options, ["--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !has_miri.is_ok_and(|status| status.success()) {
        return Err(TaskError::Missing {
            path: format!("Miri of the toolchain {}", options.toolchain).into(),
            advice: "`rustup toolchain install nightly --component miri,rust-src` installs it",
        });
    }
    let package = ["test", "--package", "counterfoil-log-core"];
    let mut commands = vec![rustup(workspace, options, package.into_iter().chain(["--lib", "--tests"]))];
    commands[0].env("MIRIFLAGS", MIRIFLAGS);
    for seed in 1..options.schedules {
        let tests = ["--test", "log_core", "--"].into_iter().chain(THREADED_TESTS);
        let mut command = rustup(workspace, options, package.into_iter().chain(tests));
        command.env("MIRIFLAGS", format!("{MIRIFLAGS} -Zmiri-seed={seed}"));
        commands.push(command);
    }
    let mut wrong = 0;
    for command in &mut commands {
        let line = command_line(command);
        eprintln!("{line}");
        let status = command.status().map_err(|source| TaskError::Start { program: line.clone(), source })?;
        if !status.success() {
            eprintln!("WRONG: {line}");
            wrong += 1;
        }
    }
    println!("{} runs under Miri, {wrong} wrong", commands.len());
    Ok(wrong == 0)
}

/// `cargo miri ARGUMENTS` of the toolchain asked for, and not of the one that runs this program.
fn rustup<A: AsRef<OsStr>>(
    workspace: &Workspace,
    options: &Options,
    arguments: impl IntoIterator<Item = A>,
) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", &options.toolchain, "cargo", "miri"]).args(arguments).current_dir(workspace.root());
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("RUSTC").env_remove("CARGO");
    command
}
