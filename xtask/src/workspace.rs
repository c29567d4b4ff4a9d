//! The workspace described by `cargo metadata`, and the commands run by tasks.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use thiserror::Error;

/// Error that stops a task.
///
/// A failed check is a result, not an error.
#[derive(Debug, Error)]
pub(crate) enum TaskError {
    /// A program could not be started.
    #[error("cannot run `{program}`: {source}")]
    Start { program: String, source: io::Error },
    /// A program ended with an error, which it printed to stderr.
    #[error("`{program}` failed")]
    Failed { program: String },
    /// A program's output does not have the documented format.
    #[error("cannot understand the output of `{program}`: {reason}")]
    Output { program: String, reason: String },
    /// A file or directory could not be read or written.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// No crate has this name.
    #[error("unknown crate `{name}`; crates: {known}")]
    NoPackage { name: String, known: String },
    /// No protocol has this name.
    #[error("unknown protocol `{name}`; protocols: {known}")]
    Protocol { name: String, known: String },
    /// A third-party program is not installed.
    #[error("{} not found: {advice}", path.display())]
    Missing { path: PathBuf, advice: &'static str },
    /// No MPI is available to build with.
    #[error(transparent)]
    Mpi(#[from] crate::mpi::MpiError),
}

impl TaskError {
    /// Returns a converter for `map_err` after a file operation on `path`.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

/// Root source file for a library, program, integration test, benchmark or example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CrateRoot {
    /// Package directory, relative to the workspace root (`""` for the facade).
    pub(crate) folder: PathBuf,
    /// Absolute file path.
    pub(crate) file: PathBuf,
}

/// A workspace package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Root source file of the package's library, if any, relative to the workspace root.
    pub(crate) library: Option<PathBuf>,
    /// The package needs an MPI to build.
    pub(crate) is_over_mpi: bool,
}

/// Workspace containing this program.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
    packages: Vec<Package>,
    crate_roots: Vec<CrateRoot>,
    /// Integration test names.
    test_programs: BTreeSet<String>,
}

impl Workspace {
    /// Runs `cargo metadata`.
    ///
    /// Works from any directory of the workspace.
    pub(crate) fn load() -> Result<Self, TaskError> {
        let mut command = Command::new(cargo());
        command
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .current_dir(manifest_dir())
            .stderr(std::process::Stdio::inherit());
        let output =
            command.output().map_err(|source| TaskError::Start { program: "cargo metadata".to_owned(), source })?;
        if !output.status.success() {
            return Err(TaskError::Failed { program: "cargo metadata".to_owned() });
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|error| error.to_string())
            .and_then(|metadata| Self::from_metadata(&metadata))
            .map_err(|reason| TaskError::Output { program: "cargo metadata".to_owned(), reason })
    }

    fn from_metadata(metadata: &Value) -> Result<Self, String> {
        let root = PathBuf::from(str_field(metadata, "workspace_root")?);
        let target = PathBuf::from(str_field(metadata, "target_directory")?);
        let (mut packages, mut crate_roots, mut test_programs) = (Vec::new(), Vec::new(), BTreeSet::new());
        for package in array_field(metadata, "packages")? {
            let manifest = PathBuf::from(str_field(package, "manifest_path")?);
            let folder = manifest
                .parent()
                .and_then(|folder| folder.strip_prefix(&root).ok())
                .ok_or("a package is outside the workspace")?
                .to_owned();
            let mut library = None;
            for cargo_target in array_field(package, "targets")? {
                let kinds = array_field(cargo_target, "kind")?;
                let file = PathBuf::from(str_field(cargo_target, "src_path")?);
                if kinds.iter().any(|kind| kind == "lib") {
                    library = file.strip_prefix(&root).ok().map(Path::to_owned);
                }
                if kinds.iter().any(|kind| kind == "test") {
                    test_programs.insert(str_field(cargo_target, "name")?.to_owned());
                }
                crate_roots.push(CrateRoot { folder: folder.clone(), file });
            }
            let is_over_mpi = folder.starts_with("mpi");
            packages.push(Package { name: str_field(package, "name")?.to_owned(), library, is_over_mpi });
        }
        Ok(Self { root, target, packages, crate_roots, test_programs })
    }

    /// Returns the root directory.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the target directory, as set by `CARGO_TARGET_DIR` or cargo's configuration.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Returns the workspace's packages.
    pub(crate) fn packages(&self) -> &[Package] {
        &self.packages
    }

    /// Finds a package by its name, with or without `counterfoil-`.
    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        let long = format!("counterfoil-{name}");
        self.packages.iter().find(|package| package.name == name || package.name == long)
    }

    /// Returns the integration tests' distinct names.
    pub(crate) fn test_programs(&self) -> impl Iterator<Item = &str> {
        self.test_programs.iter().map(String::as_str)
    }

    /// Returns all packages' crate roots.
    pub(crate) fn crate_roots(&self) -> &[CrateRoot] {
        &self.crate_roots
    }

    /// Returns the command `cargo ARGUMENTS`, run in the root directory.
    pub(crate) fn cargo<I>(&self, arguments: I) -> Command
    where
        I: IntoIterator,
        I::Item: AsRef<std::ffi::OsStr>,
    {
        let mut command = Command::new(cargo());
        command.args(arguments).current_dir(&self.root);
        command
    }

    /// Builds the `counterfoil` program in release mode and returns its path.
    pub(crate) fn build_release(&self) -> Result<PathBuf, TaskError> {
        run_checked(&mut self.cargo(RELEASE_BUILD))?;
        Ok(self.target.join("release").join(PROGRAM))
    }
}

/// Arguments of the cargo command that builds the `counterfoil` program in release mode.
pub(crate) const RELEASE_BUILD: [&str; 4] = ["build", "--release", "--package", "counterfoil-cli"];

/// The program's file name.
const PROGRAM: &str = "counterfoil";

/// Runs a command with inherited stdout and stderr.
///
/// Fails unless it exits successfully.
pub(crate) fn run_checked(command: &mut Command) -> Result<(), TaskError> {
    let program = command_line(command);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(TaskError::Failed { program }),
        Err(source) => Err(TaskError::Start { program, source }),
    }
}

/// Runs a command with inherited stderr and parses its stdout as JSON.
///
/// Fails unless it exits successfully.
pub(crate) fn json_output(command: &mut Command) -> Result<Value, TaskError> {
    let program = command_line(command);
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|source| TaskError::Start { program: program.clone(), source })?;
    if !output.status.success() {
        return Err(TaskError::Failed { program });
    }
    serde_json::from_slice(&output.stdout).map_err(|error| TaskError::Output { program, reason: error.to_string() })
}

/// Formats a command and the environment variables it sets for a shell.
pub(crate) fn command_line(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", name.to_string_lossy(), shell_quote(&value.to_string_lossy())));
        }
    }
    // cargo is started by its full path, irrelevant to a reader.
    if command.get_program() == cargo() {
        words.push("cargo".to_owned());
    } else {
        words.push(shell_quote(&command.get_program().to_string_lossy()));
    }
    words.extend(command.get_args().map(|word| shell_quote(&word.to_string_lossy())));
    words.join(" ")
}

fn shell_quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:@,+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Returns the cargo that started this program, so that all commands use one toolchain.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Returns this package's directory.
///
/// The run-time value takes precedence, since the checkout may have moved after the build.
fn manifest_dir() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
}

fn str_field<'a>(value: &'a Value, field: &str) -> Result<&'a str, String> {
    value[field].as_str().ok_or_else(|| format!("`{field}` is not a string"))
}

fn array_field<'a>(value: &'a Value, field: &str) -> Result<&'a [Value], String> {
    value[field].as_array().map(Vec::as_slice).ok_or_else(|| format!("`{field}` is not an array"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_target_of_every_package_is_a_crate_root() {
        let workspace = Workspace::from_metadata(&json!({
            "workspace_root": "/w",
            "target_directory": "/w/target",
            "packages": [
                {"name": "counterfoil", "manifest_path": "/w/Cargo.toml", "targets": [
                    {"name": "counterfoil", "kind": ["lib"], "src_path": "/w/src/lib.rs"},
                    {"name": "kill", "kind": ["test"], "src_path": "/w/tests/kill.rs"}]},
                {"name": "cli", "manifest_path": "/w/cli/Cargo.toml", "targets": [
                    {"name": "cli", "kind": ["bin"], "src_path": "/w/cli/src/main.rs"}]},
                {"name": "calls", "manifest_path": "/w/mpi/calls/Cargo.toml", "targets": []},
                {"name": "mpi-logger", "manifest_path": "/w/mpi-logger/Cargo.toml", "targets": []},
            ],
        }))
        .unwrap();
        let found: Vec<_> = workspace
            .crate_roots()
            .iter()
            .map(|root| (root.folder.to_str().unwrap(), root.file.to_str().unwrap()))
            .collect();
        assert_eq!(found, [("", "/w/src/lib.rs"), ("", "/w/tests/kill.rs"), ("cli", "/w/cli/src/main.rs")]);
        assert!(workspace.test_programs().eq(["kill"]));
        let library = |name: &str| workspace.package(name).and_then(|package| package.library.as_deref());
        assert_eq!((library("counterfoil"), library("cli")), (Some(Path::new("src/lib.rs")), None));
        let over_mpi: Vec<_> = workspace.packages().iter().filter(|package| package.is_over_mpi).collect();
        assert_eq!(over_mpi.iter().map(|package| package.name.as_str()).collect::<Vec<_>>(), ["calls"]);
    }

    #[test]
    fn metadata_without_a_needed_field_is_refused() {
        let error = Workspace::from_metadata(&json!({"workspace_root": "/w"})).unwrap_err();
        assert!(error.contains("target_directory"), "{error}");
    }

    #[test]
    fn a_command_line_can_be_pasted_into_a_shell() {
        let mut command = Command::new("counterfoil");
        command.args(["demo", "--kill", "2@7", "it's", ""]).env("RUSTFLAGS", "--cfg counterfoil_loom");
        assert_eq!(
            command_line(&command),
            r"RUSTFLAGS='--cfg counterfoil_loom' counterfoil demo --kill 2@7 'it'\''s' ''"
        );
    }
}
