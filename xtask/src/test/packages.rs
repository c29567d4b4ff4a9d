//! Crate selection by `cargo xtask test -p`.

use std::process::Command;

use crate::workspace::{TaskError, Workspace};

/// The selected crates.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Packages {
    /// Crates that need no MPI.
    pub(super) root: Vec<String>,
    pub(super) over_mpi: Vec<String>,
    /// A package without MPI has a library, and so may have doc tests.
    pub(super) has_docs: bool,
}

impl Packages {
    /// Finds crates by name, with or without `counterfoil-`.
    ///
    /// # Errors
    /// [`TaskError::NoPackage`] with the names that exist.
    pub(super) fn find(workspace: &Workspace, names: &[String]) -> Result<Packages, TaskError> {
        let mut found = Packages::default();
        for name in names {
            let Some(package) = workspace.package(name) else {
                let known = workspace.packages().iter().map(|package| package.name.trim_start_matches("counterfoil-"));
                let known = known.collect::<Vec<_>>().join(", ");
                return Err(TaskError::NoPackage { name: name.clone(), known });
            };
            if package.is_over_mpi {
                found.over_mpi.push(package.name.clone());
            } else {
                found.root.push(package.name.clone());
                found.has_docs |= package.library.is_some();
            }
        }
        Ok(found)
    }
}

/// Makes a cargo command select these packages.
pub(super) fn select(command: &mut Command, packages: &[String]) {
    command.args(packages.iter().flat_map(|package| ["--package", package]));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(names: &[&str]) -> Result<Packages, TaskError> {
        Packages::find(&Workspace::load().unwrap(), &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn crates_are_found_by_both_names_with_and_without_mpi() {
        let found = find(&["log-core", "counterfoil", "counterfoil-gc", "mpi-preload", "mpi", "mpi-logger"]).unwrap();
        assert_eq!(found.root, ["counterfoil-log-core", "counterfoil", "counterfoil-gc", "counterfoil-mpi-logger"]);
        assert_eq!(found.over_mpi, ["counterfoil-mpi-preload", "counterfoil-mpi"]);
        assert!(found.has_docs && !find(&["cli"]).unwrap().has_docs);
    }

    #[test]
    fn an_unknown_crate_is_refused_with_the_known_ones() {
        let error = find(&["log-cora"]).unwrap_err().to_string();
        assert!(error.contains("log-cora") && error.contains("log-core, ") && error.contains("mpi-preload"), "{error}");
    }
}
