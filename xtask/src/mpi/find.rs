//! The MPI to build with: the one that was asked for, the one that is there, or the one from PyPI.

use std::ffi::OsStr;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::MpiError;
use super::pypi;

/// Names an MPI where the option doesn't.
const VARIABLE: &str = "COUNTERFOIL_MPI";

/// Debian's names for the wrapper: the second is there also where another MPI is the system's.
const DEBIAN: [&str; 2] = ["/usr/bin/mpicc.openmpi", "/usr/bin/mpicc"];

/// An Open MPI that is installed, with compiler wrapper and launcher.
#[derive(Debug, Clone)]
pub(crate) struct Mpi {
    /// `wheel`, `debian`, or something that tells this one apart: it is part of a folder's name.
    pub(crate) name: String,
    /// As in `5.0.11`.
    pub(crate) version: String,
    /// The compiler's wrapper.
    pub(crate) mpicc: PathBuf,
    /// The launcher.
    pub(crate) mpirun: PathBuf,
    /// Where its libraries are.
    pub(crate) libraries: PathBuf,
}

impl fmt::Display for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Open MPI {} ({}, {})", self.version, self.name, self.mpicc.display())
    }
}

impl Mpi {
    /// The MPI that `asked` names, or the environment, or `PATH`; else that of PyPI, installed below `folder`.
    pub(super) fn find(asked: Option<&str>, folder: &Path) -> Result<Self, MpiError> {
        let variable = std::env::var(VARIABLE).ok().filter(|value| !value.is_empty());
        match (asked, variable) {
            (Some(asked), _) => Self::named(asked, "--mpi", folder),
            (None, Some(asked)) => Self::named(&asked, VARIABLE, folder),
            (None, None) => match in_path(std::env::var_os("PATH").as_deref(), "mpicc") {
                // One that doesn't serve is no reason to give up: nobody asked for it.
                Some(mpicc) => Self::open(&mpicc).or_else(|_| Self::of_pypi(folder)),
                None => Self::of_pypi(folder),
            },
        }
    }

    /// What one asks for to get this one: `wheel`, `debian`, or the folder that it is in.
    pub(crate) fn asked(&self) -> PathBuf {
        match self.name.as_str() {
            "wheel" | "debian" => PathBuf::from(&self.name),
            _ => self.mpicc.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_owned(),
        }
    }

    fn named(asked: &str, asked_by: &'static str, folder: &Path) -> Result<Self, MpiError> {
        match asked {
            "wheel" => Self::of_pypi(folder),
            "debian" => {
                let mpicc = DEBIAN.iter().map(Path::new).find(|path| path.exists()).ok_or(MpiError::NoDebian)?;
                Ok(Self { name: "debian".to_owned(), ..Self::open(mpicc)? })
            }
            prefix => {
                let mpicc = Path::new(prefix).join("bin/mpicc");
                if !mpicc.exists() {
                    return Err(MpiError::NotThere { prefix: prefix.into(), asked_by });
                }
                Self::open(&mpicc)
            }
        }
    }

    fn of_pypi(folder: &Path) -> Result<Self, MpiError> {
        let prefix = pypi::open_mpi(folder)?;
        Ok(Self { name: "wheel".to_owned(), ..Self::open(&prefix.join("bin/mpicc"))? })
    }

    /// Asks a wrapper what it is.
    fn open(mpicc: &Path) -> Result<Self, MpiError> {
        let said = show(mpicc, "version")?;
        let unsuitable = || MpiError::Unsuitable { mpicc: mpicc.to_owned(), found: first_line(&said) };
        let version = version_in(&said).ok_or_else(unsuitable)?;
        let libraries = show(mpicc, "libdirs")?;
        let libraries = libraries.split_whitespace().next().ok_or_else(unsuitable)?;
        let bin = mpicc.parent().unwrap_or(Path::new("/"));
        // Where a system has several MPIs, each wrapper's name has its MPI's at the end, and so has the launcher's.
        let suffix = mpicc.extension().and_then(OsStr::to_str).map_or(String::new(), |suffix| format!(".{suffix}"));
        let mpirun = bin.join(format!("mpirun{suffix}"));
        if !mpirun.exists() {
            return Err(MpiError::NoLauncher { mpicc: mpicc.to_owned() });
        }
        let name = if DEBIAN.iter().any(|known| Path::new(known) == mpicc) {
            "debian".to_owned()
        } else {
            let mut hasher = DefaultHasher::new();
            mpicc.hash(&mut hasher);
            format!("{version}-{:08x}", hasher.finish() as u32)
        };
        Ok(Self { name, version, mpicc: mpicc.to_owned(), mpirun, libraries: libraries.into() })
    }

    /// Ways for the bytes between two ranks of one machine, and the layers of Open MPI that go them.
    pub(super) fn transports(&self) -> [(&'static str, &'static str); 2] {
        let shared_memory = if self.version.starts_with("4.") { "self,vader" } else { "self,sm" };
        [("shared memory", shared_memory), ("tcp", "self,tcp")]
    }

    /// Lets root use this MPI's launcher (in a container there is nobody else), and lets it start more ranks than there are
    /// cores; and tells tests where it is.
    pub(crate) fn environment(&self, command: &mut Command) {
        for name in ["OMPI", "PRTE"] {
            command.env(format!("{name}_ALLOW_RUN_AS_ROOT"), "1");
            command.env(format!("{name}_ALLOW_RUN_AS_ROOT_CONFIRM"), "1");
        }
        // Of version 4, and of version 5.
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        command.env("PRTE_MCA_rmaps_default_mapping_policy", ":OVERSUBSCRIBE");
        command.env("COUNTERFOIL_MPIRUN", &self.mpirun);
    }

    /// `mpirun -n RANKS`, to be given options and a program. It may use more ranks than there are cores.
    pub(crate) fn mpirun(&self, ranks: u32) -> Command {
        let mut command = Command::new(&self.mpirun);
        self.environment(&mut command);
        command.args(["-n", &ranks.to_string()]);
        command
    }
}

/// What `mpicc --showme:TOPIC` prints.
fn show(mpicc: &Path, topic: &str) -> Result<String, MpiError> {
    let output = Command::new(mpicc)
        .arg(format!("--showme:{topic}"))
        .output()
        .map_err(|source| MpiError::Wrapper { mpicc: mpicc.to_owned(), source })?;
    // Debian's says its version on stderr.
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

/// The version in `mpicc: Open MPI 5.0.11 (Language: C)`, if it is one that the project works with.
fn version_in(said: &str) -> Option<String> {
    let version = said.split("Open MPI ").nth(1)?.split_whitespace().next()?;
    let major: u32 = version.split('.').next()?.parse().ok()?;
    (4..=5).contains(&major).then(|| version.to_owned())
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or("something that says nothing").to_owned()
}

fn in_path(path: Option<&OsStr>, program: &str) -> Option<PathBuf> {
    std::env::split_paths(path?).map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A folder with a wrapper that says `version`, and with a launcher if it is to have one.
    fn installation(name: &str, version: &str, launcher: bool) -> PathBuf {
        let prefix = std::env::temp_dir().join(format!("counterfoil-xtask-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&prefix);
        fs::create_dir_all(prefix.join("bin")).unwrap();
        let script = format!("#!/bin/sh\ncase $1 in *version) echo '{version}';; *) echo /opt/lib /opt/more;; esac\n");
        // By another process: one that another test starts meanwhile would inherit a file that is written here, and what is open
        // for writing can't be run.
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

    fn named(prefix: &Path) -> Result<Mpi, MpiError> {
        let found = Mpi::named(prefix.to_str().unwrap(), "--mpi", Path::new("/nonexistent"));
        let _ = fs::remove_dir_all(prefix);
        found
    }

    #[test]
    fn an_installation_says_its_version_and_where_its_libraries_are() {
        let prefix = installation("good", "mpicc: Open MPI 5.0.11 (Language: C)", true);
        let mpi = named(&prefix).unwrap();
        assert_eq!((mpi.version.as_str(), mpi.libraries.as_path()), ("5.0.11", Path::new("/opt/lib")));
        assert_eq!(mpi.mpirun, prefix.join("bin/mpirun"));
        assert_eq!(mpi.transports()[0], ("shared memory", "self,sm"));
        assert!(mpi.mpirun(3).get_args().eq(["-n", "3"]));
    }

    #[test]
    fn what_is_not_there_or_not_suitable_is_told_apart() {
        let none = Path::new("/nonexistent/mpi");
        assert!(matches!(named(none), Err(MpiError::NotThere { .. })));
        for (name, version) in
            [("old", "mpicc: Open MPI 3.1.0 (Language: C)"), ("other", "mpicc for MPICH version 4.2")]
        {
            let prefix = installation(name, version, true);
            assert!(matches!(named(&prefix), Err(MpiError::Unsuitable { .. })), "{version}");
        }
        let prefix = installation("half", "mpicc: Open MPI 4.1.4 (Language: C)", false);
        assert!(matches!(named(&prefix), Err(MpiError::NoLauncher { .. })));
    }

    #[test]
    fn a_program_is_looked_for_in_the_path() {
        assert_eq!(in_path(Some(OsStr::new("/nonexistent:/bin")), "sh"), Some("/bin/sh".into()));
        assert_eq!(in_path(Some(OsStr::new("/nonexistent")), "sh"), None);
        assert_eq!(in_path(None, "sh"), None);
    }
}
