//! Search for the interposition libraries.

use std::path::{Path, PathBuf};

use counterfoil_mpi_discovery::layout::{self, LIBRARY, RECOVERY_LIBRARY};
use counterfoil_mpi_discovery::{Implementation, MPICH, WHEEL};

use super::mpi::{Mpi, target_folders};

/// Search error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LibraryError {
    #[error("{} not found: --mpi-library, or COUNTERFOIL_MPI_LIBRARY, must be the path of {file}", path.display())]
    NotFound { path: PathBuf, file: &'static str },
    #[error("{} can't be preloaded: the loader treats spaces and colons as separators; move the file", path.display())]
    Unloadable { path: PathBuf },
    #[error("messages are logged over an Open MPI; with {mpi}, a program can be run with --recover")]
    RecoveryOnly { mpi: String },
    #[error(
        "{file} is not built for {mpi}: build it with `cargo xtask preload --mpi {mpi_option}`, or set \
         COUNTERFOIL_MPI_LIBRARY to its path; searched {searched}"
    )]
    NotBuilt { file: &'static str, mpi: String, mpi_option: String, searched: String },
}

/// Returns the given logging library, or the one built for this MPI: next to this program, or in the folders of `cargo
/// xtask preload`.
pub(crate) fn find(named: Option<&Path>, mpi: &Mpi) -> Result<PathBuf, LibraryError> {
    if mpi.implementation == Implementation::Mpich {
        return Err(LibraryError::RecoveryOnly { mpi: mpi.to_string() });
    }
    find_file(LIBRARY, named, mpi)
}

/// Returns the recovery library as [`find`] returns the logging library.
///
/// It is next to that one if its path is given.
pub(crate) fn find_recovery(named: Option<&Path>, mpi: &Mpi) -> Result<PathBuf, LibraryError> {
    let beside = named.map(|path| path.with_file_name(RECOVERY_LIBRARY));
    find_file(RECOVERY_LIBRARY, beside.as_deref(), mpi)
}

fn find_file(file: &'static str, named: Option<&Path>, mpi: &Mpi) -> Result<PathBuf, LibraryError> {
    if let Some(path) = named {
        // Ranks may start in another working directory.
        let path = path.canonicalize().map_err(|_| LibraryError::NotFound { path: path.to_owned(), file })?;
        return loadable(path);
    }
    let program = std::env::current_exe().ok();
    let adjacent = program.as_deref().and_then(Path::parent).map(|folder| folder.join("mpi").join(&mpi.name));
    let built = target_folders().into_iter().map(|folder| layout::preload(&folder, &mpi.name));
    let folders: Vec<PathBuf> = adjacent.into_iter().chain(built).collect();
    let found = folders.iter().find_map(|folder| folder.join(file).canonicalize().ok());
    let found = found.ok_or_else(|| {
        let prefix = mpi.mpirun.parent().and_then(Path::parent).map(|prefix| prefix.display().to_string());
        let is_named = [WHEEL, MPICH, "debian"].contains(&mpi.name.as_str());
        LibraryError::NotBuilt {
            file,
            mpi: mpi.to_string(),
            mpi_option: if is_named { mpi.name.clone() } else { prefix.unwrap_or_default() },
            searched: folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", "),
        }
    })?;
    loadable(found)
}

fn loadable(path: PathBuf) -> Result<PathBuf, LibraryError> {
    let is_split = path.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b' ' | b':'));
    if is_split { Err(LibraryError::Unloadable { path }) } else { Ok(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_must_exist_at_a_path_that_the_loader_accepts() {
        let mpi = Mpi::example();
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(LIBRARY);
        assert!(matches!(find(Some(&path), &mpi), Err(LibraryError::NotFound { .. })));
        std::fs::write(&path, "").unwrap();
        assert_eq!(find(Some(&path), &mpi).unwrap(), path.canonicalize().unwrap());
        let spaced = place.path().join("with space");
        std::fs::write(&spaced, "").unwrap();
        assert!(matches!(find(Some(&spaced), &mpi), Err(LibraryError::Unloadable { .. })));
        let not_built = find(None, &mpi).unwrap_err().to_string();
        assert!(not_built.contains("cargo xtask preload --mpi /opt/x`"), "{not_built}");
    }
}
