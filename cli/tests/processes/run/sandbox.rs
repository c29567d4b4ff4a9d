//! `counterfoil` runs with a time limit, in a separate directory with compiled programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use counterfoil_test_support::note_untested;
use serde_json::Value;
use tempfile::TempDir;

use crate::output::ProgramOutput;

/// Time limit in seconds.
///
/// No test takes a tenth of it on an idle machine.
const LIMIT: &str = "120";

/// Temporary directory for one test.
pub(crate) struct Sandbox {
    directory: TempDir,
}

/// Returns `true` if there are an MPI, its compiler and the logging library; otherwise prints a message once.
pub(crate) fn mpi_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        let doctor = Command::new(env!("CARGO_BIN_EXE_counterfoil")).args(["doctor", "--json"]).output().unwrap();
        let found: Value = serde_json::from_slice(&doctor.stdout).unwrap();
        let findings = found["findings"].as_array().unwrap();
        // The first MPI is the default.
        let has_library = findings.iter().any(|one| one["what"] == "MPI" && one["library"].is_string());
        let has_compiler = Command::new(compiler()).arg("--version").output().is_ok_and(|output| output.status.success());
        if !(has_library && has_compiler) {
            let what = "`counterfoil run`: there is no MPI with compiler and library (COUNTERFOIL_MPI, COUNTERFOIL_MPI_LIBRARY)";
            note_untested(&format!("{what}: {findings:?}"));
        }
        has_library && has_compiler
    })
}

fn compiler() -> String {
    std::env::var("MPICC").unwrap_or_else(|_| "mpicc".to_owned())
}

impl Sandbox {
    pub(crate) fn new() -> Sandbox {
        let sandbox = Sandbox { directory: tempfile::Builder::new().prefix("cfr").tempdir_in("/tmp").unwrap() };
        // Parent of the job directories.
        fs::create_dir(sandbox.path().join("tmp")).unwrap();
        sandbox
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Compiles a program from source text.
    pub(crate) fn compile(&self, name: &str, text: &str) {
        let source = self.path().join(name).with_extension("c");
        fs::write(&source, text).unwrap();
        self.compile_file(name, &source);
    }

    /// Compiles one of the library's test programs.
    pub(crate) fn compile_known(&self, name: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mpi/preload/tests/c");
        self.compile_file(name, &folder.join(name).with_extension("c"));
    }

    /// Compiles one of the recovery library's test programs.
    pub(crate) fn compile_recovering(&self, name: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mpi/recover/tests/c");
        self.compile_file(name, &folder.join(name).with_extension("c"));
    }

    fn compile_file(&self, name: &str, source: &Path) {
        let mpi = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mpi");
        let headers = ["preload/tests/c", "recover/include"].map(|folder| mpi.join(folder));
        let compiled = Command::new(compiler())
            .args(headers.iter().flat_map(|folder| ["-I".as_ref(), folder.as_os_str()]))
            .arg(source)
            .arg("-o")
            .arg(self.path().join(name))
            .arg("-lpthread")
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    }

    /// Builds a `counterfoil` command with a time limit, in this directory and without settings from the test's own
    /// environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_with(&[], arguments)
    }

    /// Like [`command`](Self::command), with variables set for `counterfoil` only, not for `timeout`.
    pub(crate) fn command_with(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Command {
        let mut command = self.limited();
        command.arg("env").args(variables.iter().map(|(name, value)| format!("{name}={value}")));
        command.arg(env!("CARGO_BIN_EXE_counterfoil")).args(arguments);
        command
    }

    /// Builds a time limit for a command still to be added, in this directory and without settings from the test's own
    /// environment.
    pub(crate) fn limited(&self) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", LIMIT]);
        command.current_dir(self.path()).stdin(Stdio::null()).env("TMPDIR", self.path().join("tmp"));
        for name in ["LOGGING", "KEEP", "ON_FULL", "BUDGET", "TIER", "LOG_DIR", "SUMMARY", "CONFIG"] {
            command.env_remove(format!("COUNTERFOIL_{name}"));
        }
        command
    }

    /// Runs `counterfoil` to its end.
    pub(crate) fn counterfoil(&self, arguments: &[&str]) -> ProgramOutput {
        self.command(arguments).output().unwrap().into()
    }

    /// Returns the remaining job directories.
    pub(crate) fn remaining_jobs(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path().join("tmp")).unwrap();
        let names = entries.map(|entry| entry.unwrap().path());
        // Open MPI keeps its own session directory there.
        names.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("counterfoil-")).collect()
    }
}

impl ProgramOutput {
    /// Parses the JSON object at the end of standard error.
    pub(crate) fn summary(&self) -> Value {
        let line = self.stderr.lines().rev().find(|line| line.starts_with('{'));
        serde_json::from_str(line.unwrap_or_else(|| panic!("no summary: {}", self.stderr))).unwrap()
    }

    /// Checks the exit code, and that standard error contains a text.
    #[track_caller]
    pub(crate) fn assert_exit(&self, code: i32, what: &str) {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert!(self.stderr.contains(what), "{what:?} is not in {}", self.stderr);
    }
}
