//! Job description: program, settings, outcome.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::file::{self, ProfileError};
use crate::{RANKS_MAX, VERSION};

/// Table name marking a checkpoint taken by `counterfoil run` from a log that its rank left in shared memory.
pub const TAKEN_OVER: &str = "counterfoil-run/taken-over";

/// File name in a job directory.
pub const FILE: &str = "job.json";

/// A job setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Option name, for example `keep`.
    pub name: String,
    /// Option value.
    pub value: String,
    /// Source of the value: an option, the environment, a file, the default.
    pub source: String,
}

/// A job, as `counterfoil run` describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Format version, [`VERSION`].
    pub version: u32,
    /// Program and arguments.
    pub program: Vec<String>,
    /// MPI name and version.
    pub mpi: String,
    /// All settings, defaults included.
    pub settings: Vec<Setting>,
    /// mpirun's run time in seconds; `None` while it runs, or if its end was not observed.
    pub wall_s: Option<f64>,
    /// Exit code; `None` in the same cases.
    pub exit_code: Option<u8>,
    /// True if the job was interrupted: mpirun ended because `counterfoil run` received a signal.
    #[serde(default)]
    pub interrupted: bool,
    /// Number of ranks that initialised MPI; `None` in the same cases as the exit code.
    #[serde(default)]
    pub ranks: Option<u32>,
    /// Reasons why ranks logged nothing, each with these ranks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_logged: Vec<String>,
}

impl Job {
    /// Returns a setting's value.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|setting| setting.name == name).map(|setting| setting.value.as_str())
    }

    /// Returns the path to the file in a job directory.
    pub fn path(dir: &Path) -> PathBuf {
        dir.join(FILE)
    }

    /// Writes the file into a job directory.
    ///
    /// # Errors
    /// [`ProfileError::Write`].
    pub fn write(&self, dir: &Path) -> Result<(), ProfileError> {
        file::write(&Job::path(dir), self)
    }

    /// Reads the file; `None` if it doesn't exist.
    ///
    /// # Errors
    /// [`ProfileError::Read`] and [`ProfileError::Damaged`].
    pub fn read(dir: &Path) -> Result<Option<Job>, ProfileError> {
        let path = Job::path(dir);
        let job: Job = match file::read(&path) {
            Err(ProfileError::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let why = match job.ranks {
            _ if job.version != VERSION => format!("its version is {}, this program reads {VERSION}", job.version),
            Some(ranks) if ranks > RANKS_MAX => {
                format!("it has {ranks} ranks, at most {RANKS_MAX} are supported")
            }
            _ => return Ok(Some(job)),
        };
        Err(ProfileError::Damaged { path, why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_the_newer_fields_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let text = r#"{"version":1,"program":["a"],"mpi":"x","settings":[],"wall_s":1.0,"exit_code":0}"#;
        std::fs::write(Job::path(dir.path()), text).unwrap();
        let job = Job::read(dir.path()).unwrap().unwrap();
        assert_eq!((job.interrupted, job.ranks, job.not_logged), (false, None, Vec::new()));
    }

    #[test]
    fn a_job_is_read_as_it_was_written_and_may_be_absent() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Job::read(dir.path()).unwrap(), None);
        let keep = Setting { name: "keep".to_owned(), value: "all".to_owned(), source: "--keep".to_owned() };
        let job = Job {
            version: VERSION,
            program: vec!["./a".to_owned(), "<b>".to_owned()],
            mpi: "Open MPI 5.0.0".to_owned(),
            settings: vec![keep],
            wall_s: Some(1.5),
            exit_code: None,
            interrupted: false,
            ranks: None,
            not_logged: vec!["nothing was logged, because of rank 0: no room".to_owned()],
        };
        job.write(dir.path()).unwrap();
        assert_eq!(Job::read(dir.path()).unwrap(), Some(job.clone()));
        assert_eq!((job.setting("keep"), job.setting("tier")), (Some("all"), None));
        Job { ranks: Some(RANKS_MAX + 1), ..job.clone() }.write(dir.path()).unwrap();
        assert!(Job::read(dir.path()).unwrap_err().to_string().contains("16385 ranks"));
        Job { version: 9, ..job }.write(dir.path()).unwrap();
        assert!(Job::read(dir.path()).unwrap_err().to_string().contains("its version is 9"));
    }
}
