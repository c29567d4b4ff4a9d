//! Builds from `cargo xtask mpi`: an MPI's `mpirun`, and the program run by a job's ranks.
//!
//! This program doesn't link to MPI. In `counterfoil demo --mpi`, the processes connect to it as local processes do.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use counterfoil_mpi_discovery::environment::{AS_ROOT, LIVES_ON, OVERSUBSCRIBED};
use counterfoil_mpi_discovery::layout::{self, BUILD_PREFIX, DESCRIPTION, Description};
use counterfoil_runtime::local::{JobOptions, Processes};

use crate::mpirun;

/// Environment variable naming a build's folder.
pub(crate) const VARIABLE: &str = "COUNTERFOIL_MPI_BUILD";
/// Program for one rank, in a build's folder.
const PROGRAM: &str = "release/counterfoil-mpi-demo";

/// There is no usable build.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MpiBuildError {
    #[error("--ulfm: {version} has no User-Level Failure Mitigation; that of `cargo xtask mpi --mpi wheel` has")]
    NoUlfm { version: String },
    #[error(
        "--mpi: no MPI program found: `cargo xtask mpi` builds it; unless it is next to this program, set {VARIABLE} to the folder that \
         `cargo xtask mpi` prints"
    )]
    NotBuilt,
    #[error("--mpi: {} is not a build of `cargo xtask mpi`: {reason}", folder.display())]
    NoBuild { folder: PathBuf, reason: String },
    #[error("--mpi={requested}: no build for it in {}: `cargo xtask mpi --mpi {requested}` makes one", folder.display())]
    NotRequested { requested: String, folder: PathBuf },
    #[error(
        "--mpi: {} is of another build, `{theirs}`, than this program, `{}`: `cargo xtask mpi --mpi {mpi}` builds it anew, and \
         `cargo build --release` this program",
        program.display(), counterfoil_workloads::BUILD
    )]
    OtherBuild { program: PathBuf, theirs: String, mpi: String },
    #[error("--mpi: cannot start {}: {source}", program.display())]
    Start {
        program: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot find the path of this program: {0}")]
    OwnPath(#[source] std::io::Error),
}

/// A launcher and the program built for its MPI.
#[derive(Debug)]
pub(crate) struct Build {
    program: PathBuf,
    mpirun: PathBuf,
    /// Name and version, such as `Open MPI 5.0.11`.
    pub(crate) version: String,
    /// Processes outlive another one's failure.
    outlives_failures: bool,
}

impl Build {
    /// Finds the build for the requested MPI, else the one named by the environment, else one next to this program.
    ///
    /// # Errors
    /// There is none, or its program was built from other sources than this one.
    pub(crate) fn find(requested: Option<&str>) -> Result<Build, MpiBuildError> {
        let build = match (requested, std::env::var_os(VARIABLE)) {
            (Some(requested), _) => Build::find_requested(requested)?,
            (None, Some(folder)) => Build::open(Path::new(&folder))?,
            (None, None) => Build::all(&Build::folder()?).next().ok_or(MpiBuildError::NotBuilt)?,
        };
        build.check_sources()?;
        Ok(build)
    }

    /// Checks that a rank's program and this one understand each other.
    fn check_sources(&self) -> Result<(), MpiBuildError> {
        let program = &self.program;
        let start = |source| MpiBuildError::Start { program: program.clone(), source };
        let output = Command::new(program).arg("--version").output().map_err(start)?;
        let said = String::from_utf8_lossy(&output.stdout);
        let theirs = said.split_once(' ').map_or(&*said, |(_, version)| version).trim();
        if theirs == counterfoil_workloads::BUILD {
            return Ok(());
        }
        let folder = program.ancestors().nth(2).and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let mpi = folder.strip_prefix(BUILD_PREFIX).unwrap_or("PREFIX").to_owned();
        Err(MpiBuildError::OtherBuild { program: program.clone(), theirs: theirs.to_owned(), mpi })
    }

    /// Returns the folder with the builds next to this program.
    fn folder() -> Result<PathBuf, MpiBuildError> {
        let program = std::env::current_exe().map_err(|_| MpiBuildError::NotBuilt)?;
        let target = program.parent().and_then(Path::parent).ok_or(MpiBuildError::NotBuilt)?;
        Ok(layout::installations(target))
    }

    /// Returns the builds in a folder, by name.
    fn all(folder: &Path) -> impl Iterator<Item = Build> + use<> {
        let mut folders: Vec<PathBuf> =
            fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        folders.sort();
        folders.into_iter().filter_map(|folder| Build::open(&folder).ok())
    }

    /// Finds the build for an MPI by name or installation prefix.
    fn find_requested(requested: &str) -> Result<Build, MpiBuildError> {
        let folder = Build::folder()?;
        let by_name = folder.join(format!("{BUILD_PREFIX}{requested}"));
        if !requested.contains('/') && by_name.join(DESCRIPTION).is_file() {
            return Build::open(&by_name);
        }
        let prefix = fs::canonicalize(requested).ok();
        let is_in = |build: &Build| prefix.as_ref().is_some_and(|prefix| build.mpirun.starts_with(prefix));
        let found = Build::all(&folder).find(is_in);
        found.ok_or_else(|| MpiBuildError::NotRequested { requested: requested.to_owned(), folder })
    }

    fn open(folder: &Path) -> Result<Build, MpiBuildError> {
        let not_a_build = |reason: String| MpiBuildError::NoBuild { folder: folder.to_owned(), reason };
        let text =
            fs::read(folder.join(DESCRIPTION)).map_err(|error| not_a_build(format!("{DESCRIPTION}: {error}")))?;
        let Description { version, mpirun, ulfm } =
            serde_json::from_slice(&text).map_err(|error| not_a_build(format!("{DESCRIPTION}: {error}")))?;
        let program = folder.join(PROGRAM);
        if !program.is_file() {
            return Err(not_a_build(format!("{PROGRAM} is missing")));
        }
        Ok(Build { program, mpirun, version, outlives_failures: ulfm })
    }

    /// Returns a command measuring the rules' costs according to `plan`, in a job with `ranks` ranks.
    ///
    /// Under Open MPI each rank is bound to a core, with its threads, where there are enough processors. The command
    /// dies with this process.
    ///
    /// # Errors
    /// [`MpiBuildError::OwnPath`].
    pub(crate) fn costs(&self, ranks: u32, options: &[&str], plan: &str) -> Result<Command, MpiBuildError> {
        let mut command = mpirun::bound_to_parent(&self.mpirun).map_err(MpiBuildError::OwnPath)?;
        // Left to themselves, two ranks share a core for milliseconds now and then, while another one is idle.
        let has_processors =
            std::thread::available_parallelism().is_ok_and(|processors| ranks as usize <= processors.get());
        if has_processors && self.version.starts_with("Open MPI") {
            command.args(["--bind-to", "core:overload-allowed"]);
        }
        command.args(["-n", &ranks.to_string()]).args(options).arg(&self.program).args(["costs", plan]);
        command.envs(environment());
        Ok(command)
    }

    /// Returns a command running another program from the build, on `ranks` ranks, under Debian's Open MPI 4, the only
    /// one with the libraries loaded by the program.
    ///
    /// # Errors
    /// [`MpiBuildError::NotBuilt`] under another MPI, [`MpiBuildError::OwnPath`].
    pub(crate) fn peer(&self, program: &str, ranks: u32) -> Result<Command, MpiBuildError> {
        if !(self.version.starts_with("Open MPI 4") && self.mpirun.starts_with("/usr")) {
            return Err(MpiBuildError::NotBuilt);
        }
        let mut command = mpirun::bound_to_parent(&self.mpirun).map_err(MpiBuildError::OwnPath)?;
        command.args(["-n", &ranks.to_string()]).arg(self.program.with_file_name(program)).envs(environment());
        Ok(command)
    }

    /// Returns the job with the processes of an MPI job; `spares` of them are spares if failures can be outlived.
    ///
    /// `ulfm`: with User-Level Failure Mitigation, also if the rule needs none.
    pub(crate) fn job(&self, job: &JobOptions, spares: u32, ulfm: bool) -> Result<JobOptions, MpiBuildError> {
        let ranks = job.settings.ranks;
        // Under a rule that restarts the job, no MPI call follows a failure: processes only have to stay alive.
        let restarts = job.settings.rule.properties.restarts_job;
        let outlives_failures = self.outlives_failures && !restarts;
        let spares = if outlives_failures { spares } else { 0 };
        // Dies with this process.
        let bound = mpirun::bound_to_parent(&self.mpirun).map_err(MpiBuildError::OwnPath)?;
        let words = std::iter::once(bound.get_program()).chain(bound.get_args());
        let mut command: Vec<OsString> = words.map(OsString::from).collect();
        if ulfm && !self.outlives_failures {
            return Err(MpiBuildError::NoUlfm { version: self.version.clone() });
        }
        let ulfm = outlives_failures || ulfm;
        if ulfm {
            command.extend(mpirun::OUTLIVES_FAILURES.map(OsString::from));
        }
        if restarts && !ulfm && self.version.starts_with("Open MPI") {
            command.push(mpirun::LIVES_ON.into());
        }
        command.extend(["-n".into(), (ranks + spares).to_string().into(), self.program.clone().into()]);
        command.extend(["job".into(), "--ranks".into(), ranks.to_string().into()]);
        let processes = Processes::Managed { spares, outlive_failures: outlives_failures };
        let mut environment = environment();
        environment.extend(restarts.then(|| (LIVES_ON.0.into(), LIVES_ON.1.into())));
        Ok(JobOptions { command, processes, environment, ..job.clone() })
    }
}

/// Returns variables permitting root and more processes than processors, as the demo's own launcher does.
fn environment() -> Vec<(OsString, OsString)> {
    AS_ROOT.into_iter().chain(OVERSUBSCRIBED).map(|(name, value)| (name.into(), value.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_a_folder_without_a_build_names_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |what: &str| {
            let error = Build::open(folder.path()).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        };
        refused("mpi.json");
        fs::write(folder.path().join(DESCRIPTION), "{}").unwrap();
        refused("version");
        fs::write(folder.path().join(DESCRIPTION), r#"{"version": "Open MPI 5", "mpirun": "/bin/mpirun"}"#).unwrap();
        refused(PROGRAM);
        fs::create_dir(folder.path().join("release")).unwrap();
        fs::write(folder.path().join(PROGRAM), "").unwrap();
        assert_eq!(Build::open(folder.path()).unwrap().mpirun, Path::new("/bin/mpirun"));
    }
}
