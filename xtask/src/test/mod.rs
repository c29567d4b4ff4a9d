//! `cargo xtask test`: every check in order. A check that fails is counted and the rest still runs.

mod cpu_time;
mod crate_roots;
mod step;
mod summary;
mod toolchain;

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use clap::Args;

use self::step::{Finished, Verdict};
use self::summary::{Counts, FuzzTests};
use crate::mpi::{Choice, Toolkit, preload};
use crate::table::Table;
use crate::workspace::{RELEASE_BUILD, TaskError, Workspace};

/// The package whose tests run the fuzz bodies over their corpora.
const FUZZ_PACKAGE: &str = "counterfoil-fuzz";

/// The second architecture that the code is checked for: weaker memory ordering than x86-64.
const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// How many preemptions a loom model explores, unless the environment says otherwise.
const LOOM_MAX_PREEMPTIONS: &str = "3";

/// Arguments of cargo.
const DOCUMENTATION: [&str; 3] = ["doc", "--workspace", "--no-deps"];

/// What to check.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Leave out the loom models, the shuttle model, the optimised build and what needs an MPI
    #[arg(long)]
    quick: bool,
}

/// Runs the checks; true if nothing failed.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let mut suite = Suite::new(workspace);
    suite.command("format", workspace.cargo(["fmt", "--all", "--check"]));
    suite.check("unsafe code only where it is allowed", crate_roots::check);
    suite.command("lints", lints(workspace));
    if options.quick {
        suite.left_out("optimised build");
    } else {
        suite.command("optimised build", workspace.cargo(RELEASE_BUILD));
    }
    let over_mpi = if options.quick { None } else { suite.ready_for_mpi() };
    suite.tests_and_fuzz_bodies(over_mpi.as_ref());
    suite.tests("doc tests", workspace.cargo(["test", "--workspace", "--doc", "--no-fail-fast"]));
    suite.command("documentation", documentation(workspace.cargo(DOCUMENTATION)));
    suite.check_for_aarch64();
    if options.quick {
        suite.left_out("loom models");
        suite.left_out("shuttle model");
    } else {
        suite.tests("loom models", loom_models(workspace));
        suite.tests("shuttle model", shuttle_model(workspace));
    }
    match &over_mpi {
        Some(OverMpi { toolkit, .. }) => suite.over_mpi(toolkit),
        None if options.quick => suite.left_out("tests over MPI"),
        // Counted as failed already.
        None => {}
    }
    Ok(suite.conclude())
}

fn lints(workspace: &Workspace) -> Command {
    workspace.cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

/// [`DOCUMENTATION`] by this cargo.
fn documentation(mut command: Command) -> Command {
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}

fn loom_models(workspace: &Workspace) -> Command {
    let mut command = models(workspace, "loom", "--cfg counterfoil_loom");
    if std::env::var_os("LOOM_MAX_PREEMPTIONS").is_none() {
        command.env("LOOM_MAX_PREEMPTIONS", LOOM_MAX_PREEMPTIONS);
    }
    command
}

fn shuttle_model(workspace: &Workspace) -> Command {
    models(workspace, "shuttle", "--cfg counterfoil_loom --cfg counterfoil_shuttle")
}

/// The models of one kind have their own target folder: other flags would rebuild everything twice a run.
fn models(workspace: &Workspace, kind: &str, flags: &str) -> Command {
    let mut command = workspace.cargo(["test", "--release", "--package", "counterfoil-log-core"]);
    command.args(["--lib", "--target-dir"]).arg(workspace.target().join(kind)).arg(kind);
    command.env("RUSTFLAGS", flags);
    command
}

/// Unit, property, integration and fuzz-corpus tests. Benches are compiled by the lints only.
fn all_tests(workspace: &Workspace, nextest: bool) -> Command {
    if nextest {
        // Levels are given so that the environment cannot hide the lines that are counted.
        workspace.cargo([
            "nextest",
            "run",
            "--workspace",
            "--no-fail-fast",
            "--status-level=pass",
            "--final-status-level=fail",
        ])
    } else {
        workspace.cargo(["test", "--workspace", "--lib", "--bins", "--tests", "--examples", "--no-fail-fast"])
    }
}

/// What tests over MPI need.
struct OverMpi {
    toolkit: Toolkit,
    /// The library that stands between a program and its MPI.
    library: PathBuf,
}

/// The checks made so far.
struct Suite<'a> {
    workspace: &'a Workspace,
    finished: Vec<Finished>,
}

impl<'a> Suite<'a> {
    fn new(workspace: &'a Workspace) -> Self {
        Self { workspace, finished: Vec::new() }
    }

    /// A command whose success counts as one.
    fn command(&mut self, title: &'static str, command: Command) {
        self.timed(title, |_| step::run(command).verdict());
    }

    /// A command that runs tests, each of which counts; returns what it printed.
    fn tests(&mut self, title: &'static str, command: Command) -> Vec<String> {
        let mut lines = Vec::new();
        self.timed(title, |_| {
            let ran = step::run(command);
            let counts = summary::count(ran.success, &ran.lines);
            lines = ran.lines;
            Verdict::Counted(counts)
        });
        lines
    }

    /// The fuzz bodies are tests of a package: this only makes sure that they were among them.
    fn tests_and_fuzz_bodies(&mut self, over_mpi: Option<&OverMpi>) {
        let nextest = toolchain::has_nextest(self.workspace);
        if !nextest {
            println!("\ncargo-nextest is not installed: `cargo test` runs the tests instead");
        }
        let mut tests = all_tests(self.workspace, nextest);
        if let Some(OverMpi { toolkit, library }) = over_mpi {
            tests.env("COUNTERFOIL_MPI", toolkit.mpi.asked()).env("COUNTERFOIL_MPI_LIBRARY", library);
            tests.env("MPICC", &toolkit.mpi.mpicc);
        }
        let lines = self.tests("tests", tests);
        self.check("fuzz bodies ran over their corpora", |workspace| {
            let ran = FuzzTests::count(FUZZ_PACKAGE, &lines);
            let inputs = toolchain::count_files(&workspace.root().join("fuzz").join("corpus"));
            println!("{ran} (counted above), {inputs} committed inputs");
            if ran.passed > 0 && inputs > 0 {
                Ok(())
            } else {
                Err("no fuzz body was seen to pass, or there is no committed input".to_owned())
            }
        });
    }

    fn check_for_aarch64(&mut self) {
        let title = "check for aarch64";
        if toolchain::has_std(self.workspace, AARCH64) {
            let arguments = ["check", "--workspace", "--target", AARCH64];
            self.command(title, self.workspace.cargo(arguments));
        } else {
            self.timed(title, |_| {
                Verdict::NotRun(format!(
                    "the standard library for {AARCH64} is not installed \
                     (`rustup target add {AARCH64}`): NOT checked"
                ))
            });
        }
    }

    /// Finds an MPI, or installs one into the target folder, and builds the library that `counterfoil run` puts before it.
    fn ready_for_mpi(&mut self) -> Option<OverMpi> {
        let mut ready = None;
        self.check("an MPI, and the library for it", |workspace| {
            let toolkit = Toolkit::ready(workspace, &Choice::default()).map_err(|error| error.to_string())?;
            println!("{}", toolkit.mpi);
            let library = preload::build(workspace, &toolkit).map_err(|error| error.to_string())?;
            ready = Some(OverMpi { toolkit, library });
            Ok(())
        });
        ready
    }

    /// What needs an MPI is a workspace of its own.
    fn over_mpi(&mut self, toolkit: &Toolkit) {
        let cargo = |arguments: &[&str]| {
            let mut command = toolkit.cargo(self.workspace);
            command.args(arguments);
            command
        };
        let format = cargo(&["fmt", "--all", "--check"]);
        let lints = cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
        // One job at a time: ranks of two would take each other's processors, and they don't wait, they look.
        let tests = cargo(&["test", "--workspace", "--no-fail-fast", "--", "--test-threads", "1"]);
        self.command("format of mpi/", format);
        self.command("lints of mpi/", lints);
        self.command("documentation of mpi/", documentation(cargo(&DOCUMENTATION)));
        self.tests("tests over MPI", tests);
    }

    /// A check of this program's own, which counts as one.
    fn check(&mut self, title: &'static str, check: impl FnOnce(&Workspace) -> Result<(), String>) {
        self.timed(title, |workspace| match check(workspace) {
            Ok(()) => Verdict::Counted(Counts::PASSED),
            Err(reason) => {
                println!("{reason}");
                Verdict::Counted(Counts::FAILED)
            }
        });
    }

    fn left_out(&mut self, title: &'static str) {
        self.timed(title, |_| Verdict::NotRun("left out by --quick".to_owned()));
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

    /// Prints the table and, as the last line, the totals; true if nothing failed.
    fn conclude(self) -> bool {
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
        println!("\n{table}");
        for (title, reason) in not_run {
            println!("not run: {title}: {reason}");
        }
        println!("{total}");
        total.failed == 0
    }
}
