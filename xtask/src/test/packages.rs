//! Selection of crates by `cargo xtask test -p`.

use crate::workspace::{TaskError, Workspace};

/// Crates of the workspace `mpi/`.
const OVER_MPI: [&str; 4] =
    ["counterfoil-mpi", "counterfoil-mpi-benches", "counterfoil-mpi-calls", "counterfoil-mpi-preload"];

/// The selected crates of each workspace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Packages {
    pub(super) root: Vec<String>,
    pub(super) over_mpi: Vec<String>,
    /// A package of the root workspace has a library, and so may have doc tests.
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
            let long = format!("counterfoil-{name}");
            if let Some(package) = workspace.package(name) {
                found.root.push(package.name.clone());
                found.has_docs |= package.library.is_some();
            } else if let Some(package) = OVER_MPI.into_iter().find(|package| package == name || *package == long) {
                found.over_mpi.push(package.to_owned());
            } else {
                let mut known: Vec<&str> = workspace.packages().iter().map(|package| package.name.as_str()).collect();
                known.extend(OVER_MPI);
                let known = known.into_iter().map(|name| name.trim_start_matches("counterfoil-")).collect::<Vec<_>>();
                return Err(TaskError::NoPackage { name: name.clone(), known: known.join(", ") });
            }
        }
        Ok(found)
    }
}

/// Returns cargo's `--package` arguments for these packages.
pub(super) fn arguments(packages: &[String]) -> Vec<&str> {
    packages.iter().flat_map(|package| ["--package", package]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(names: &[&str]) -> Result<Packages, TaskError> {
        Packages::find(&Workspace::load().unwrap(), &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn crates_are_found_by_both_names_in_both_workspaces() {
        let found = find(&["log-core", "counterfoil", "counterfoil-gc", "mpi-preload", "mpi"]).unwrap();
        assert_eq!(found.root, ["counterfoil-log-core", "counterfoil", "counterfoil-gc"]);
        assert_eq!(found.over_mpi, ["counterfoil-mpi-preload", "counterfoil-mpi"]);
        assert_eq!(arguments(&found.over_mpi[1..]), ["--package", "counterfoil-mpi"]);
        assert!(found.has_docs && !find(&["cli"]).unwrap().has_docs);
    }

    #[test]
    fn an_unknown_crate_is_refused_with_the_known_ones() {
        let error = find(&["log-cora"]).unwrap_err().to_string();
        assert!(error.contains("log-cora") && error.contains("log-core, ") && error.contains("mpi-preload"), "{error}");
    }

    #[test]
    fn the_crates_of_mpi_are_the_members_of_its_workspace() {
        let folder = Workspace::load().unwrap().root().join("mpi");
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let members = manifest.lines().find_map(|line| line.strip_prefix("members = [")).unwrap();
        for member in members.trim_end_matches(']').split(", ") {
            assert!(OVER_MPI.contains(&format!("counterfoil-mpi-{}", member.trim_matches('"')).as_str()), "{member}");
        }
        assert_eq!(members.split(", ").count() + 1, OVER_MPI.len());
    }
}
