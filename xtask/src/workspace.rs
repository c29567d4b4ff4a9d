//! What `cargo metadata` says of the workspace, and how a task starts cargo.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use thiserror::Error;

/// Why a task could not do its work. A check that fails is no error: it is a task's result.
#[derive(Debug, Error)]
pub(crate) enum TaskError {
    /// A program could not be started at all.
    #[error("cannot run `{program}`: {source}")]
    Start { program: String, source: io::Error },
    /// A program that a task depends on ended with an error; it has said why on stderr.
    #[error("`{program}` failed")]
    Failed { program: String },
    /// A program printed something other than what it is documented to print.
    #[error("cannot understand the output of `{program}`: {reason}")]
    Output { program: String, reason: String },
    /// A file or folder of the task's own could not be read or written.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// No crate has this name.
    #[error("no crate is named `{name}`; there are: {known}")]
    NoPackage { name: String, known: String },
    /// A program of somebody else's that isn't there.
    #[error("{} isn't there: {advice}", path.display())]
    Missing { path: PathBuf, advice: &'static str },
    /// There is no MPI to build with.
    #[error(transparent)]
    Mpi(#[from] crate::mpi::MpiError),
}

impl TaskError {
    /// For `map_err` after a file operation on `path`.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

/// A root file of a crate: a library, a program, an integration test, a bench or an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CrateRoot {
    /// The folder of the package, relative to the workspace (`""` for the facade).
    pub(crate) folder: PathBuf,
    /// The root file, absolute.
    pub(crate) file: PathBuf,
}

/// A package of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// True if others can depend on it.
    pub(crate) has_library: bool,
}

/// The workspace that this program belongs to.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
    packages: Vec<Package>,
    crate_roots: Vec<CrateRoot>,
    /// Names of integration tests.
    test_programs: BTreeSet<String>,
}

impl Workspace {
    /// Asks cargo; works from any folder of the workspace.
    pub(crate) fn load() -> Result<Self, TaskError> {
        let mut command = Command::new(cargo());
        command
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .current_dir(own_folder())
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
        let root = PathBuf::from(text(metadata, "workspace_root")?);
        let target = PathBuf::from(text(metadata, "target_directory")?);
        let (mut packages, mut crate_roots, mut test_programs) = (Vec::new(), Vec::new(), BTreeSet::new());
        for package in list(metadata, "packages")? {
            let manifest = PathBuf::from(text(package, "manifest_path")?);
            let folder = manifest
                .parent()
                .and_then(|folder| folder.strip_prefix(&root).ok())
                .ok_or("a package outside the workspace")?
                .to_owned();
            let mut has_library = false;
            for crate_ in list(package, "targets")? {
                let kinds = list(crate_, "kind")?;
                has_library |= kinds.iter().any(|kind| kind == "lib");
                if kinds.iter().any(|kind| kind == "test") {
                    test_programs.insert(text(crate_, "name")?.to_owned());
                }
                crate_roots.push(CrateRoot { folder: folder.clone(), file: PathBuf::from(text(crate_, "src_path")?) });
            }
            packages.push(Package { name: text(package, "name")?.to_owned(), has_library });
        }
        Ok(Self { root, target, packages, crate_roots, test_programs })
    }

    /// The workspace's folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where builds go, as `CARGO_TARGET_DIR` and cargo's configuration say.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// The packages, without those of `mpi/`.
    pub(crate) fn packages(&self) -> &[Package] {
        &self.packages
    }

    /// The names of integration tests, each once.
    pub(crate) fn test_programs(&self) -> impl Iterator<Item = &str> {
        self.test_programs.iter().map(String::as_str)
    }

    /// The root file of each crate of each package.
    pub(crate) fn crate_roots(&self) -> &[CrateRoot] {
        &self.crate_roots
    }

    /// `cargo ARGUMENTS`, to be run in the workspace's folder.
    pub(crate) fn cargo<I>(&self, arguments: I) -> Command
    where
        I: IntoIterator,
        I::Item: AsRef<std::ffi::OsStr>,
    {
        let mut command = Command::new(cargo());
        command.args(arguments).current_dir(&self.root);
        command
    }

    /// Builds the `counterfoil` program with optimisation; returns where it is.
    pub(crate) fn build_release(&self) -> Result<PathBuf, TaskError> {
        run_to_end(&mut self.cargo(RELEASE_BUILD))?;
        Ok(self.target.join("release").join(PROGRAM))
    }
}

/// The arguments of the cargo command that builds the program as users run it.
pub(crate) const RELEASE_BUILD: [&str; 4] = ["build", "--release", "--package", "counterfoil-cli"];

/// The program's file name.
const PROGRAM: &str = "counterfoil";

/// Runs a command that shares this program's output, and waits for its success.
pub(crate) fn run_to_end(command: &mut Command) -> Result<(), TaskError> {
    let program = command_line(command);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(TaskError::Failed { program }),
        Err(source) => Err(TaskError::Start { program, source }),
    }
}

/// The JSON that a command prints, which has to end well. What it says on standard error is seen.
pub(crate) fn report_of(command: &mut Command) -> Result<Value, TaskError> {
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

/// The command as one would type it (also what changed in its environment).
pub(crate) fn command_line(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", name.to_string_lossy(), quoted(&value.to_string_lossy())));
        }
    }
    // cargo is started by its full path; the reader types its name.
    if command.get_program() == cargo() {
        words.push("cargo".to_owned());
    } else {
        words.push(quoted(&command.get_program().to_string_lossy()));
    }
    words.extend(command.get_args().map(|word| quoted(&word.to_string_lossy())));
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:@,+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The cargo that started this program, so that tools of one version are used throughout.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// The folder of this package: as cargo says at run time, since a checkout may have moved.
fn own_folder() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
}

fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str, String> {
    value[field].as_str().ok_or_else(|| format!("no text in `{field}`"))
}

fn list<'a>(value: &'a Value, field: &str) -> Result<&'a [Value], String> {
    value[field].as_array().map(Vec::as_slice).ok_or_else(|| format!("no list in `{field}`"))
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
        let libraries = workspace.packages().iter().map(|package| (package.name.as_str(), package.has_library));
        assert!(libraries.eq([("counterfoil", true), ("cli", false)]));
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
