//! What was run, and how.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::file::{self, ProfileError};
use crate::{RANKS_MAX, VERSION};

/// A table of a checkpoint that `counterfoil run` took, of a log that its rank left in shared memory.
pub const TAKEN_OVER: &str = "counterfoil-run/taken-over";

/// The file's name in a job's directory.
pub const FILE: &str = "job.json";

/// A setting of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// As the option is called: `keep`, say.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Where it came from: an option, the environment, a file, the default.
    pub source: String,
}

/// What was run, as `counterfoil run` knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// [`VERSION`].
    pub version: u32,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// The MPI, with its version.
    pub mpi: String,
    /// What was asked for, or is the default.
    pub settings: Vec<Setting>,
    /// From the start of mpirun to its end, in seconds; `None` while it runs, or where nobody saw its end.
    pub wall_s: Option<f64>,
    /// The exit code; `None` likewise.
    pub exit_code: Option<u8>,
    /// Whether somebody interrupted the job: mpirun ended because `counterfoil run` was told to end.
    #[serde(default)]
    pub interrupted: bool,
    /// Ranks that began to use MPI; `None` as for the exit code.
    #[serde(default)]
    pub ranks: Option<u32>,
}

impl Job {
    /// The value of a setting.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|setting| setting.name == name).map(|setting| setting.value.as_str())
    }

    /// The file in a job's directory.
    pub fn path(dir: &Path) -> PathBuf {
        dir.join(FILE)
    }

    /// Writes it into a job's directory.
    ///
    /// # Errors
    /// [`ProfileError::Write`].
    pub fn write(&self, dir: &Path) -> Result<(), ProfileError> {
        file::write(&Job::path(dir), self)
    }

    /// Reads it, if it is there.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn read(dir: &Path) -> Result<Option<Job>, ProfileError> {
        let path = Job::path(dir);
        let job: Job = match file::read(&path) {
            Err(ProfileError::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let why = match job.ranks {
            _ if job.version != VERSION => format!("its version is {}, this program reads {VERSION}", job.version),
            Some(ranks) if ranks > RANKS_MAX => {
                format!("it says that there were {ranks} ranks, with {RANKS_MAX} at most")
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
    fn a_job_of_before_there_were_these_fields_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let text = r#"{"version":1,"program":["a"],"mpi":"x","settings":[],"wall_s":1.0,"exit_code":0}"#;
        std::fs::write(Job::path(dir.path()), text).unwrap();
        let job = Job::read(dir.path()).unwrap().unwrap();
        assert_eq!((job.interrupted, job.ranks), (false, None));
    }

    #[test]
    fn a_job_is_read_as_it_was_written_and_needn_t_be_there() {
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
