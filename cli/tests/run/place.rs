//! A directory of one test, programs that are compiled there, and runs that are killed where they don't end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

use crate::ended::Ended;

/// Seconds. Nothing here takes a tenth of it on an idle machine.
const LIMIT: &str = "120";

/// A test's own directory.
pub(crate) struct Place {
    directory: TempDir,
}

/// Whether there are an MPI, its compiler, and the library that logs; said once where there aren't.
pub(crate) fn is_there() -> bool {
    static IS_THERE: OnceLock<bool> = OnceLock::new();
    *IS_THERE.get_or_init(|| {
        let doctor = Command::new(env!("CARGO_BIN_EXE_counterfoil")).args(["doctor", "--json"]).output().unwrap();
        let found: Value = serde_json::from_slice(&doctor.stdout).unwrap();
        let findings = found["findings"].as_array().unwrap();
        // What is chosen where nothing is asked for is the first.
        let has_library = findings.iter().any(|one| one["what"] == "MPI" && one["library"].is_string());
        let has_compiler = Command::new(compiler()).arg("--version").output().is_ok_and(|output| output.status.success());
        if !(has_library && has_compiler) {
            eprintln!("NOT TESTED: there is no MPI with compiler and library (COUNTERFOIL_MPI, COUNTERFOIL_MPI_LIBRARY): {findings:?}");
        }
        has_library && has_compiler
    })
}

fn compiler() -> String {
    std::env::var("MPICC").unwrap_or_else(|_| "mpicc".to_owned())
}

impl Place {
    pub(crate) fn new() -> Place {
        let place = Place { directory: tempfile::Builder::new().prefix("cfr").tempdir_in("/tmp").unwrap() };
        // Where the job's own directories go.
        fs::create_dir(place.path().join("tmp")).unwrap();
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Compiles a program.
    pub(crate) fn compile(&self, name: &str, text: &str) {
        let source = self.path().join(name).with_extension("c");
        fs::write(&source, text).unwrap();
        self.compile_file(name, &source);
    }

    /// Compiles one of the programs of the library's own tests.
    pub(crate) fn compile_known(&self, name: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mpi/preload/tests/c");
        self.compile_file(name, &folder.join(name).with_extension("c"));
    }

    fn compile_file(&self, name: &str, source: &Path) {
        let compiled = Command::new(compiler())
            .arg(source)
            .arg("-o")
            .arg(self.path().join(name))
            .arg("-lpthread")
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    }

    /// The command, in this place, killed at the limit. Nothing of this process's settings reaches it.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_with(&[], arguments)
    }

    /// The same, with variables that `timeout` doesn't see.
    pub(crate) fn command_with(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", LIMIT, "env"]);
        command.args(variables.iter().map(|(name, value)| format!("{name}={value}")));
        command.arg(env!("CARGO_BIN_EXE_counterfoil")).args(arguments);
        command.current_dir(self.path()).stdin(Stdio::null()).env("TMPDIR", self.path().join("tmp"));
        for name in ["PROTOCOL", "LOGGING", "KEEP", "ON_FULL", "BUDGET", "TIER", "LOG_DIR", "SUMMARY", "CONFIG"] {
            command.env_remove(format!("COUNTERFOIL_{name}"));
        }
        command
    }

    /// Runs it to its end.
    pub(crate) fn counterfoil(&self, arguments: &[&str]) -> Ended {
        self.command(arguments).output().unwrap().into()
    }

    /// What is in the directory for temporary files.
    pub(crate) fn left_behind(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path().join("tmp")).unwrap();
        let names = entries.map(|entry| entry.unwrap().path());
        // Open MPI keeps its own directory of sessions.
        names.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("counterfoil-")).collect()
    }
}

impl Ended {
    /// The object that stands at the end of standard error.
    pub(crate) fn account(&self) -> Value {
        let line = self.stderr.lines().rev().find(|line| line.starts_with('{'));
        serde_json::from_str(line.unwrap_or_else(|| panic!("no account: {}", self.stderr))).unwrap()
    }

    /// Whether it ended with a code and said something.
    #[track_caller]
    pub(crate) fn says(&self, code: i32, what: &str) {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert!(self.stderr.contains(what), "{what:?} is not in {}", self.stderr);
    }
}
