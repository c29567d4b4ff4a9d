//! `cargo xtask test`: every check required for a change, or part of them.

mod packages;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use counterfoil_mpi_discovery::layout::LIBRARY;

use self::packages::Packages;
use crate::check;
use crate::install;
use crate::mpi::{BUILT, Choice, Toolkit, select_all};
use crate::suite::{FuzzTests, Suite};
use crate::toolchain;
use crate::workspace::{TaskError, Workspace};

/// Package whose tests run the fuzz bodies over their corpora.
const FUZZ_PACKAGE: &str = "counterfoil-fuzz";

/// Test programs that start processes; `--quick` leaves them out. nextest's profile `quick` has the same list.
const PROCESS_TESTS: [&str; 2] = ["interrupts", "processes"];

/// A crate that needs no MPI, but whose tests run jobs with the interposition library if there is one.
const RUNS_JOBS: &str = "counterfoil-cli";

/// Variable that scales random campaigns, unless the environment sets it: crate `counterfoil-campaign`.
const CAMPAIGN: &str = "COUNTERFOIL_CAMPAIGN_PERCENT";
/// Campaign length in percent, without and with `--quick`.
///
/// At full length campaigns take two minutes more.
const CAMPAIGN_PERCENT: &str = "25";
const CAMPAIGN_PERCENT_QUICK: &str = "10";

/// Concurrent tests for every two cores: a third of their time is waiting, and over MPI half.
const TESTS_PER_TWO_CORES: usize = 3;
const TESTS_OVER_MPI_PER_TWO_CORES: usize = 4;

/// Second architecture to check: weaker memory ordering than x86-64.
const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// Preemptions explored by a loom model, unless set in the environment.
const LOOM_MAX_PREEMPTIONS: &str = "3";

/// nextest arguments.
///
/// Levels are given so that the environment cannot hide the counted lines.
const NEXTEST: [&str; 4] = ["nextest", "run", "--status-level=pass", "--final-status-level=fail"];

const DOC_TESTS: [&str; 3] = ["test", "--doc", "--no-fail-fast"];

/// Options for `cargo xtask test`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run random campaigns at a tenth of their length; leave out the models and tests that start processes or need an
    /// MPI
    #[arg(long)]
    quick: bool,
    /// Run only the tests of these crates: `log-core` or `counterfoil-log-core`
    #[arg(short, long = "package", value_name = "CRATE")]
    packages: Vec<String>,
}

/// Runs the checks.
///
/// Returns `true` if nothing failed.
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

/// A test run.
struct Run<'a> {
    workspace: &'a Workspace,
    suite: Suite<'a>,
    has_nextest: bool,
    is_quick: bool,
}

impl Run<'_> {
    /// Makes all checks.
    ///
    /// Each kind of build covers all packages at once, so that a crate is compiled once for it. Without an MPI, the
    /// failed search has been counted, and the crates that need one are left out.
    fn all(&mut self) {
        check::sources(&mut self.suite, self.workspace);
        let toolkit = self.find_mpi();
        let toolkit = toolkit.as_ref();
        check::lints(&mut self.suite, self.workspace, toolkit);
        let built = toolkit.and_then(|toolkit| self.build_library(toolkit));
        self.tests_and_fuzz_bodies(toolkit, built.as_deref());
        if let Some(toolkit) = toolkit {
            self.tests_over_mpi(toolkit, built.as_deref());
        }
        self.documentation(toolkit);
        self.check_for_aarch64();
        self.suite.tests("loom models", self.loom_models());
        self.suite.tests("shuttle model", self.shuttle_model());
    }

    fn quick(&mut self) {
        check::sources(&mut self.suite, self.workspace);
        check::lints(&mut self.suite, self.workspace, None);
        self.tests_and_fuzz_bodies(None, None);
        self.documentation(None);
        for title in ["loom models", "shuttle model", "tests over MPI"] {
            self.suite.not_run(title, "left out by --quick");
        }
    }

    /// Runs the selected crates' tests.
    fn some(&mut self, packages: &Packages) {
        let runs_jobs = !self.is_quick && packages.root.iter().any(|package| package == RUNS_JOBS);
        let toolkit = if runs_jobs || !packages.over_mpi.is_empty() { self.find_mpi() } else { None };
        let built = toolkit.as_ref().and_then(|toolkit| self.build_library(toolkit));
        if !packages.root.is_empty() {
            let mut tests = self.test_command();
            packages::select(&mut tests, &packages.root);
            if let (Some(toolkit), Some(built), true) = (&toolkit, &built, runs_jobs) {
                name_mpi(&mut tests, toolkit, built);
            }
            self.suite.tests("tests", tests);
            if packages.has_docs {
                let mut tests = self.workspace.cargo(DOC_TESTS);
                packages::select(&mut tests, &packages.root);
                self.suite.tests_if_any("doc tests", tests);
            }
        }
        if let Some(toolkit) = toolkit.filter(|_| !packages.over_mpi.is_empty()) {
            let mut tests = self.test_command();
            packages::select(&mut tests, &packages.over_mpi);
            toolkit.include(&mut tests);
            self.run_over_mpi(tests, built.as_deref());
        }
    }

    /// Returns the command that runs unit, property, integration and fuzz-corpus tests. Its packages are still to be
    /// selected. (Benchmarks are compiled by the lints only.)
    fn test_command(&self) -> Command {
        let mut command = if self.has_nextest {
            let mut command = self.workspace.cargo(NEXTEST);
            if self.is_quick {
                command.args(["--profile", "quick"]);
            }
            command
        } else {
            let mut command = self.workspace.cargo(["test", "--lib", "--bins", "--examples", "--no-fail-fast"]);
            if self.is_quick {
                for name in self.workspace.test_programs().filter(|name| !PROCESS_TESTS.contains(name)) {
                    command.args(["--test", name]);
                }
            } else {
                command.arg("--tests");
            }
            command
        };
        if self.is_quick {
            command.env(CAMPAIGN, CAMPAIGN_PERCENT_QUICK);
        } else if std::env::var_os(CAMPAIGN).is_none() {
            command.env(CAMPAIGN, CAMPAIGN_PERCENT);
        }
        command
    }

    /// Runs all packages' tests except those over MPI.
    ///
    /// The fuzz bodies are a package's tests and must be among them.
    fn tests_and_fuzz_bodies(&mut self, toolkit: Option<&Toolkit>, built: Option<&Path>) {
        let mut tests = self.test_command();
        match toolkit.filter(|_| self.has_nextest) {
            // All test programs are built at once, and the MPI crates take their turn afterwards.
            Some(toolkit) => {
                select_all(&mut tests, self.workspace, Some(toolkit));
                tests.args(["--filterset", &format!("not ({})", self.over_mpi())]);
            }
            None => select_all(&mut tests, self.workspace, None),
        }
        if let (Some(toolkit), Some(built)) = (toolkit, built) {
            name_mpi(&mut tests, toolkit, built);
        }
        if self.has_nextest {
            tests.args(["--test-threads", &at_once(TESTS_PER_TWO_CORES)]);
        }
        let lines = self.suite.tests("tests", tests);
        self.suite.check("C interface: installation", |workspace| {
            let target = toolkit.map_or(workspace.target(), |toolkit| toolkit.target_of_checks(workspace));
            let left_out = install::try_out(workspace, target)?;
            left_out.iter().for_each(|what| println!("not tried: {what}"));
            Ok(())
        });
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

    /// Runs the MPI crates' tests.
    fn tests_over_mpi(&mut self, toolkit: &Toolkit, built: Option<&Path>) {
        let mut tests = self.test_command();
        if self.has_nextest {
            select_all(&mut tests, self.workspace, Some(toolkit));
            tests.args(["--filterset", &self.over_mpi()]);
        } else {
            for package in self.workspace.packages().iter().filter(|package| package.is_over_mpi) {
                tests.args(["--package", &package.name]);
            }
            toolkit.include(&mut tests);
        }
        self.run_over_mpi(tests, built);
    }

    fn run_over_mpi(&mut self, mut tests: Command, built: Option<&Path>) {
        if let Some(built) = built {
            tests.env(BUILT, built);
        }
        if self.has_nextest {
            tests.args(["--test-threads", &at_once(TESTS_OVER_MPI_PER_TWO_CORES)]);
        } else {
            // Threads of one test program share its processor time; jobs of two would share their ranks' as well.
            tests.args(["--", "--test-threads", "1"]);
        }
        self.suite.tests("tests over MPI", tests);
    }

    /// Returns nextest's filter for the MPI crates.
    fn over_mpi(&self) -> String {
        let packages = self.workspace.packages().iter().filter(|package| package.is_over_mpi);
        packages.map(|package| format!("package(={})", package.name)).collect::<Vec<_>>().join(" | ")
    }

    /// Runs the documentation's examples, and checks for its warnings.
    fn documentation(&mut self, toolkit: Option<&Toolkit>) {
        let mut tests = self.workspace.cargo(DOC_TESTS);
        select_all(&mut tests, self.workspace, toolkit);
        self.suite.tests("doc tests", tests);
        let mut documentation = self.workspace.cargo(["doc", "--no-deps"]);
        select_all(&mut documentation, self.workspace, toolkit);
        documentation.env("RUSTDOCFLAGS", "-D warnings");
        self.suite.command("documentation", documentation);
    }

    fn check_for_aarch64(&mut self) {
        let title = "check for aarch64";
        if toolchain::has_std(self.workspace, AARCH64) {
            let mut command = self.workspace.cargo(["check", "--target", AARCH64]);
            select_all(&mut command, self.workspace, None);
            self.suite.command(title, command);
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

    /// Returns the command that runs one kind of models.
    ///
    /// They have a target folder of their own, since the flags differ.
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

    /// Builds the interposition library and the examples, with the profile and features of the crates used by the
    /// tests.
    ///
    /// Returns the output directory.
    fn build_library(&mut self, toolkit: &Toolkit) -> Option<PathBuf> {
        let mut build = self.workspace.cargo(["build", "--profile", "test", "--lib", "--examples"]);
        select_all(&mut build, self.workspace, Some(toolkit));
        let is_built = self.suite.command("the interposition library", build);
        is_built.then(|| toolkit.target_of_checks(self.workspace).join("debug"))
    }
}

/// Returns the number of concurrent tests, given the number for every two cores.
fn at_once(per_two_cores: usize) -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (cores * per_two_cores).div_ceil(2).to_string()
}

/// Selects the MPI and interposition library for tests of crates without MPI.
fn name_mpi(tests: &mut Command, toolkit: &Toolkit, built: &Path) {
    match toolkit.python() {
        Ok(python) => {
            tests.env("COUNTERFOIL_PYTHON", python);
        }
        // Tests of Python programs report themselves as not run.
        Err(error) => println!("{error}"),
    }
    tests.env("COUNTERFOIL_MPI", toolkit.mpi.selector()).env("COUNTERFOIL_MPI_LIBRARY", built.join(LIBRARY));
    tests.env("MPICC", &toolkit.mpi.mpicc);
}
