//! What was run, and how.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::VERSION;
use crate::file::{self, ProfileError};

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
}

impl Job {
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
        if job.version == VERSION {
            return Ok(Some(job));
        }
        let why = format!("its version is {}, this program reads {VERSION}", job.version);
        Err(ProfileError::Damaged { path, why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        };
        job.write(dir.path()).unwrap();
        assert_eq!(Job::read(dir.path()).unwrap(), Some(job.clone()));
        Job { version: 9, ..job }.write(dir.path()).unwrap();
        assert!(Job::read(dir.path()).unwrap_err().to_string().contains("its version is 9"));
    }
}
