//! `cargo xtask test`: every check that a change has to pass, or a part of them.

mod packages;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use self::packages::Packages;
use crate::check;
use crate::mpi::{Choice, Toolkit, preload};
use crate::suite::{FuzzTests, Suite};
use crate::toolchain;
use crate::workspace::{RELEASE_BUILD, TaskError, Workspace};

/// The package whose tests run the fuzz bodies over their corpora.
const FUZZ_PACKAGE: &str = "counterfoil-fuzz";

/// Test programs that start processes; `--quick` leaves them out.
const PROCESS_TESTS: [&str; 2] = ["interrupts", "processes"];

/// A crate of the root workspace whose tests run jobs under an MPI with the interposition library.
const RUNS_JOBS: &str = "counterfoil-cli";

/// Scales random campaigns: crate `counterfoil-campaign`.
const CAMPAIGN: (&str, &str) = ("COUNTERFOIL_CAMPAIGN_PERCENT", "10");

/// The second architecture that the code is checked for: weaker memory ordering than x86-64.
const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// Preemptions that a loom model explores, unless the environment says otherwise.
const LOOM_MAX_PREEMPTIONS: &str = "3";

const DOCUMENTATION: [&str; 3] = ["doc", "--workspace", "--no-deps"];

const NEXTEST: [&str; 5] = [
    "nextest",
    "run",
    "--no-fail-fast",
    // Levels are given so that the environment cannot hide the lines that are counted.
    "--status-level=pass",
    "--final-status-level=fail",
];

/// Which tests to run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run random campaigns at a tenth of their length; leave out tests that start processes, the models, the optimised build,
    /// and what needs an MPI
    #[arg(long)]
    quick: bool,
    /// Run only the tests of these crates: `log-core` or `counterfoil-log-core`
    #[arg(short, long = "package", value_name = "CRATE")]
    packages: Vec<String>,
}

/// Runs the checks. Returns `true` if nothing failed.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let suite = Suite::new(workspace);
    let has_nextest = toolchain::has_nextest(workspace);
    if !has_nextest {
        println!("cargo-nextest is not installed: `cargo test` runs the tests instead, MPI jobs one at a time");
    }
    let mut run = Run { workspace, suite, has_nextest, is_quick: options.quick };
    if !options.packages.is_empty() {
        run.some(&Packages::find(workspace, &options.packages)?);
    } else if options.quick {
        run.quick();
    } else {
        run.all();
    }
    Ok(run.suite.conclude())
}

/// A run of the tests.
struct Run<'a> {
    workspace: &'a Workspace,
    suite: Suite<'a>,
    has_nextest: bool,
    is_quick: bool,
}

impl Run<'_> {
    fn all(&mut self) {
        check::root(&mut self.suite, self.workspace);
        self.suite.command("optimised build", self.workspace.cargo(RELEASE_BUILD));
        let toolkit = self.find_mpi();
        let library = toolkit.as_ref().and_then(|toolkit| self.build_library(toolkit));
        self.tests_and_fuzz_bodies(toolkit.as_ref().zip(library));
        self.suite.tests("doc tests", self.doc_tests(&["--workspace"]));
        self.suite.command("documentation", documentation(self.workspace.cargo(DOCUMENTATION)));
        self.check_for_aarch64();
        self.suite.tests("loom models", self.loom_models());
        self.suite.tests("shuttle model", self.shuttle_model());
        // Without an MPI its preparation has failed, and was counted.
        if let Some(toolkit) = toolkit {
            check::over_mpi(&mut self.suite, self.workspace, &toolkit);
            self.suite.command("documentation of mpi/", documentation(toolkit.cargo(self.workspace, DOCUMENTATION)));
            self.over_mpi(&toolkit, &["--workspace"]);
        }
    }

    fn quick(&mut self) {
        check::root(&mut self.suite, self.workspace);
        self.tests_and_fuzz_bodies(None);
        self.suite.tests("doc tests", self.doc_tests(&["--workspace"]));
        self.suite.command("documentation", documentation(self.workspace.cargo(DOCUMENTATION)));
        for title in ["optimised build", "loom models", "shuttle model", "tests over MPI"] {
            self.suite.not_run(title, "left out by --quick");
        }
    }

    /// Runs the tests of some crates.
    fn some(&mut self, packages: &Packages) {
        let runs_jobs = !self.is_quick && packages.root.iter().any(|package| package == RUNS_JOBS);
        let toolkit = if runs_jobs || !packages.over_mpi.is_empty() { self.find_mpi() } else { None };
        if !packages.root.is_empty() {
            let arguments = packages::arguments(&packages.root);
            let mut tests = self.root_tests(&arguments, false);
            if let Some(toolkit) = toolkit.as_ref().filter(|_| runs_jobs)
                && let Some(library) = self.build_library(toolkit)
            {
                name_mpi(&mut tests, toolkit, &library);
            }
            self.suite.tests("tests", tests);
            if packages.has_docs {
                self.suite.tests_if_any("doc tests", self.doc_tests(&arguments));
            }
        }
        if let Some(toolkit) = toolkit.filter(|_| !packages.over_mpi.is_empty()) {
            self.over_mpi(&toolkit, &packages::arguments(&packages.over_mpi));
        }
    }

    /// Returns the command that runs unit, property, integration and fuzz-corpus tests of these packages. (Benchmarks are compiled
    /// by the lints only.)
    fn root_tests(&self, packages: &[&str], without_processes: bool) -> Command {
        let mut command = if self.has_nextest {
            let mut command = self.workspace.cargo(NEXTEST);
            if without_processes {
                let binaries = PROCESS_TESTS.map(|name| format!("binary(={name})")).join(" | ");
                command.args(["--filterset", &format!("not ({binaries})")]);
            }
            command
        } else {
            let mut command = self.workspace.cargo(["test", "--lib", "--bins", "--examples", "--no-fail-fast"]);
            if without_processes {
                for name in self.workspace.test_programs().filter(|name| !PROCESS_TESTS.contains(name)) {
                    command.args(["--test", name]);
                }
            } else {
                command.arg("--tests");
            }
            command
        };
        command.args(packages);
        if self.is_quick {
            command.env(CAMPAIGN.0, CAMPAIGN.1);
        }
        command
    }

    /// Runs all tests of the root workspace. The fuzz bodies are tests of a package: they must be among them.
    fn tests_and_fuzz_bodies(&mut self, over_mpi: Option<(&Toolkit, PathBuf)>) {
        let mut tests = self.root_tests(&["--workspace"], self.is_quick);
        if let Some((toolkit, library)) = over_mpi {
            name_mpi(&mut tests, toolkit, &library);
        }
        let lines = self.suite.tests("tests", tests);
        self.suite.check("fuzz bodies ran over their corpora", |workspace| {
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

    fn doc_tests(&self, packages: &[&str]) -> Command {
        let mut command = self.workspace.cargo(["test", "--doc", "--no-fail-fast"]);
        command.args(packages);
        command
    }

    fn check_for_aarch64(&mut self) {
        let title = "check for aarch64";
        if toolchain::has_std(self.workspace, AARCH64) {
            let arguments = ["check", "--workspace", "--target", AARCH64];
            self.suite.command(title, self.workspace.cargo(arguments));
        } else {
            let why = format!(
                "the standard library for {AARCH64} is not installed (`rustup target add {AARCH64}`): NOT checked"
            );
            self.suite.not_run(title, why);
        }
    }

    fn loom_models(&self) -> Command {
        let mut command = self.models("loom", "--cfg counterfoil_loom");
        if std::env::var_os("LOOM_MAX_PREEMPTIONS").is_none() {
            command.env("LOOM_MAX_PREEMPTIONS", LOOM_MAX_PREEMPTIONS);
        }
        command
    }

    fn shuttle_model(&self) -> Command {
        self.models("shuttle", "--cfg counterfoil_loom --cfg counterfoil_shuttle")
    }

    /// Returns the command that runs the models of one kind. They have a target folder of their own, since the flags differ.
    fn models(&self, kind: &str, flags: &str) -> Command {
        let mut command = self.workspace.cargo(["test", "--profile", "models", "--package", "counterfoil-log-core"]);
        command.args(["--lib", "--target-dir"]).arg(self.workspace.target().join("models")).arg(kind);
        command.env("RUSTFLAGS", flags);
        command
    }

    /// Finds an MPI, or installs one into the target folder.
    fn find_mpi(&mut self) -> Option<Toolkit> {
        let mut found = None;
        self.suite.check("an MPI", |workspace| {
            let toolkit = Toolkit::find_or_install(workspace, &Choice::default()).map_err(|error| error.to_string())?;
            println!("{}", toolkit.mpi);
            found = Some(toolkit);
            Ok(())
        });
        found
    }

    /// Builds the interposition library.
    fn build_library(&mut self, toolkit: &Toolkit) -> Option<PathBuf> {
        let mut built = None;
        self.suite.check("the interposition library", |workspace| {
            built = Some(preload::build(workspace, toolkit).map_err(|error| error.to_string())?);
            Ok(())
        });
        built
    }

    /// Runs the tests of packages in `mpi/`.
    fn over_mpi(&mut self, toolkit: &Toolkit, packages: &[&str]) {
        let command = |arguments: &[&str]| {
            let mut command = toolkit.cargo(self.workspace, arguments);
            command.args(packages);
            command
        };
        if self.has_nextest {
            let (tests, docs) = (command(&NEXTEST), command(&["test", "--doc", "--no-fail-fast"]));
            self.suite.tests("tests over MPI", tests);
            self.suite.tests("doc tests of mpi/", docs);
        } else {
            let mut tests = command(&["test", "--no-fail-fast"]);
            // Threads of one test program share its processor time; jobs of two would share their ranks' as well.
            tests.args(["--", "--test-threads", "1"]);
            self.suite.tests("tests over MPI", tests);
        }
    }
}

/// Tells tests of the root workspace which MPI and which interposition library to use.
fn name_mpi(tests: &mut Command, toolkit: &Toolkit, library: &Path) {
    tests.env("COUNTERFOIL_MPI", toolkit.mpi.selector()).env("COUNTERFOIL_MPI_LIBRARY", library);
    tests.env("MPICC", &toolkit.mpi.mpicc);
}

/// Returns the command with warnings of rustdoc as errors.
fn documentation(mut command: Command) -> Command {
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}
