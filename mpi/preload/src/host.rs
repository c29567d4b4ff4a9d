//! A job's directories on a host other than `counterfoil run`'s.
//!
//! The launcher makes the job's directories on its own host. On another one, the first rank makes them, with a mark;
//! every rank removes its files from them at the end, and the last one removes the directories. The accounts of such
//! ranks travel over MPI.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use counterfoil_settings::RunSettings;

/// Prefix of the launcher's job directory names.
const JOB_PREFIX: &str = "counterfoil-";
/// File in a job directory made by a rank.
const MARK: &str = "made-by-a-rank";

/// A host on which a rank has made the job's directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherHost {
    job: PathBuf,
}

impl OtherHost {
    /// Makes the directories named in the settings, unless the launcher has.
    ///
    /// Returns `None` on the launcher's host, and for settings not from the launcher.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn prepare(settings: &RunSettings) -> io::Result<Option<OtherHost>> {
        let Some(job) = settings.summary_dir.as_deref().and_then(Path::parent) else { return Ok(None) };
        if !job.file_name().is_some_and(|name| name.to_string_lossy().starts_with(JOB_PREFIX)) {
            return Ok(None);
        }
        if !job.exists() {
            make_job(job, settings)?;
        }
        if !job.join(MARK).exists() {
            return Ok(None);
        }
        for dir in settings.spill_dir.iter().chain(&settings.log_dir) {
            make(dir)?;
        }
        Ok(Some(OtherHost { job: job.to_owned() }))
    }

    /// Removes a rank's files, and the directories after the last rank.
    pub(crate) fn leave(&self, settings: &RunSettings, rank: u32) {
        // `counterfoil clean` removes the rest.
        if let Some(dir) = &settings.spill_dir {
            let _ = fs::remove_dir_all(dir.join(format!("rank-{rank}")));
            let _ = fs::remove_dir(dir);
        }
        let dirs = || settings.shm_dir.iter().chain(&settings.summary_dir);
        for dir in dirs() {
            for name in ["log.N", "local.N", "rank-N.live", "rank-N.refused"] {
                let _ = fs::remove_file(dir.join(name.replace('N', &rank.to_string())));
            }
        }
        for dir in dirs() {
            // Fails while another rank has files there.
            if fs::remove_dir(dir).is_err() && dir.exists() {
                return;
            }
        }
        let _ = fs::remove_file(self.job.join(MARK));
        let _ = fs::remove_dir(&self.job);
    }
}

/// Makes a job's directory with its mark, at once: another rank on this host sees both or none.
fn make_job(job: &Path, settings: &RunSettings) -> io::Result<()> {
    let new = job.with_extension(std::process::id().to_string());
    make(&new)?;
    fs::write(new.join(MARK), [])?;
    for dir in settings.shm_dir.iter().chain(&settings.summary_dir) {
        if let Ok(within) = dir.strip_prefix(job) {
            make(&new.join(within))?;
        }
    }
    match fs::rename(&new, job) {
        Ok(()) => Ok(()),
        // Another rank was faster.
        Err(_) if job.exists() => fs::remove_dir_all(&new),
        Err(error) => Err(error),
    }
}

/// Makes a directory for this user alone, and its parents.
fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(root: &Path) -> RunSettings {
        let job = root.join("counterfoil-0-7-a");
        RunSettings {
            shm_dir: Some(job.join("logs")),
            summary_dir: Some(job.join("traces")),
            spill_dir: Some(root.join("spill")),
            ..RunSettings::default()
        }
    }

    #[test]
    fn the_last_rank_removes_what_the_first_has_made() {
        let root = tempfile::tempdir().unwrap();
        let settings = settings(root.path());
        let hosts = [0, 1].map(|_| OtherHost::prepare(&settings).unwrap().unwrap());
        let summaries = settings.summary_dir.clone().unwrap();
        for rank in [0, 1] {
            fs::write(summaries.join(format!("rank-{rank}.live")), []).unwrap();
            fs::write(settings.shm_dir.clone().unwrap().join(format!("log.{rank}")), []).unwrap();
        }
        hosts[0].leave(&settings, 0);
        assert!(summaries.join("rank-1.live").exists() && !summaries.join("rank-0.live").exists());
        hosts[1].leave(&settings, 1);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_launchers_host_and_the_users_own_directories_are_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let settings = settings(root.path());
        make(settings.summary_dir.as_deref().unwrap()).unwrap();
        assert_eq!(OtherHost::prepare(&settings).unwrap(), None);
        let own = RunSettings { summary_dir: Some(root.path().join("mine/summaries")), ..RunSettings::default() };
        assert_eq!(OtherHost::prepare(&own).unwrap(), None);
        assert!(!root.path().join("mine").exists());
    }
}
