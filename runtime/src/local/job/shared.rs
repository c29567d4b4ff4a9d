//! Directories of a job without a launcher, shared by its processes on one host.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use counterfoil_log_core::{PrivateFileError, join_private_dir, open_private_file, share_private_file};

use super::{CHECKPOINTS_FILE, CHECKPOINTS_SUFFIX, JobError, JobPaths, LOCK_FILE, NAME_PREFIX, fresh_name};

/// Longest user-given job name, in bytes.
pub const JOB_NAME_BYTES_MAX: usize = 40;
/// Replaces the launcher's process id in the directory names of a user-named job.
const NAMED: &str = "job";
/// Record of a named job, among its checkpoints.
const RECORD_FILE: &str = "job";
/// Lock file of a rank's store.
const STORE_LOCK_FILE: &str = "lock";

/// One host's directories for a job without a launcher, shared by the job's processes on that host.
///
/// `counterfoil clean` leaves them alone while one of these processes lives. The last one removes them.
#[derive(Debug)]
pub struct SharedJobDirectory {
    memory: SharedDirectory,
    checkpoints: SharedDirectory,
    paths: JobPaths,
    /// The last process removes them.
    are_removed: bool,
}

impl SharedJobDirectory {
    /// Returns a name for a new job, with which all its processes call [`join`](Self::join).
    pub fn new_name() -> String {
        fresh_name()
    }

    /// Returns the directory name for a user-named job.
    ///
    /// The directories outlive a job that fails, and `counterfoil clean` removes them only by this name.
    ///
    /// # Errors
    /// [`JobError::Name`].
    pub fn directory_name(job: &str) -> Result<String, JobError> {
        let is_first = |byte: &u8| byte.is_ascii_alphanumeric();
        let is_valid = job.as_bytes().first().is_some_and(is_first)
            && job.len() <= JOB_NAME_BYTES_MAX
            && job.bytes().all(|byte| is_first(&byte) || b".-_".contains(&byte));
        match is_valid {
            true => Ok(format!("{NAME_PREFIX}{}-{NAMED}-{job}", rustix::process::geteuid().as_raw())),
            false => Err(JobError::Name { name: job.to_owned() }),
        }
    }

    /// Makes a job's directories in `shm_root` and `checkpoint_root`, or joins the processes that have made them.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn join(name: &str, shm_root: &Path, checkpoint_root: &Path) -> Result<SharedJobDirectory, JobError> {
        let paths = JobPaths { directory: shm_root.join(name) };
        let memory = SharedDirectory::join(&paths.directory)?;
        let checkpoints = SharedDirectory::join(&checkpoint_root.join(format!("{name}{CHECKPOINTS_SUFFIX}")))?;
        if !paths.directory.join(CHECKPOINTS_FILE).exists() {
            paths.write_checkpoints(&checkpoints.path)?;
        }
        for sub in [paths.logs(), paths.traces()] {
            join_private_dir(&sub)?;
        }
        Ok(SharedJobDirectory { memory, checkpoints, paths, are_removed: true })
    }

    /// Returns the directory of rank logs kept by a job below `root`, whoever has run it; `None` if there is none.
    pub fn kept_logs(root: &Path, job: &str) -> Option<PathBuf> {
        let end = format!("-{NAMED}-{job}");
        let is_of_job = |name: &str| name.starts_with(NAME_PREFIX) && name.ends_with(&end);
        let mut entries = fs::read_dir(root).ok()?.flatten();
        let directory = entries.find(|entry| entry.file_name().to_str().is_some_and(is_of_job))?.path();
        Some(JobPaths { directory }.logs()).filter(|logs| logs.is_dir())
    }

    /// Returns the paths in the directory in memory.
    pub fn paths(&self) -> &JobPaths {
        &self.paths
    }

    /// Returns the directory on disk for checkpoints.
    pub fn checkpoints(&self) -> &Path {
        &self.checkpoints.path
    }

    /// Returns `true` while a process holds a rank's log or store.
    ///
    /// A dead process's locks are released as it exits, and on a network file system when the server finds it dead.
    pub fn is_in_use(&self, rank: u32) -> bool {
        let store = self.checkpoints.path.join(format!("rank-{rank}")).join(STORE_LOCK_FILE);
        let [log, local] = self.logs_of(rank);
        [log, local, store]
            .iter()
            .any(|file| matches!(open_private_file(file), Err(PrivateFileError::OwnerAlive { .. })))
    }

    /// Marks a rank in both directories as having its files there.
    ///
    /// `host`: its process's host.
    ///
    /// # Errors
    /// [`JobError::Io`].
    pub fn mark_rank(&self, rank: u32, host: &str) -> Result<(), JobError> {
        for directory in [self.paths.directory(), self.checkpoints()] {
            let mark = directory.join(mark_of(rank));
            fs::write(&mark, host).map_err(JobError::io("write", &mark))?;
        }
        Ok(())
    }

    /// Returns a directory without a rank's mark: the checkpoints', or with `in_memory` either.
    pub fn unmarked(&self, rank: u32, in_memory: bool) -> Option<&Path> {
        let memory = in_memory.then(|| self.paths.directory());
        memory.into_iter().chain([self.checkpoints()]).find(|directory| !directory.join(mark_of(rank)).exists())
    }

    /// Marks the takeover of a rank, with files on a disk shared by hosts, by a process on `host`.
    ///
    /// Files left by an earlier process of the rank in this host's memory are removed if the last process was on
    /// another host: they are older than those on the disk.
    ///
    /// # Errors
    /// [`JobError::Io`].
    pub fn take_over(&self, rank: u32, host: &str) -> Result<(), JobError> {
        let mark = self.checkpoints().join(mark_of(rank));
        if read_existing(&mark)?.as_deref() == Some(host.as_bytes()) {
            return Ok(());
        }
        for file in self.logs_of(rank) {
            remove_existing(&file).map_err(JobError::io("remove", &file))?;
        }
        self.write_durably(mark_of(rank), host.as_bytes(), rank)
    }

    /// Returns a rank's log files in shared memory.
    fn logs_of(&self, rank: u32) -> [PathBuf; 2] {
        ["log", "local"].map(|name| self.paths.logs().join(format!("{name}.{rank}")))
    }

    /// Begins a job with this checkpoint directory.
    ///
    /// If this host has logs from a job begun with another directory, returns that one.
    ///
    /// # Errors
    /// [`JobError::Io`].
    pub fn claim_checkpoints(&self) -> Result<Option<PathBuf>, JobError> {
        let pointer = self.paths.directory().join(CHECKPOINTS_FILE);
        let first = fs::read(&pointer).map_err(JobError::io("read", &pointer))?;
        if first == self.checkpoints().as_os_str().as_bytes() {
            return Ok(None);
        }
        let logs = self.paths.logs();
        if fs::read_dir(&logs).map_err(JobError::io("list", &logs))?.next().is_some() {
            return Ok(Some(PathBuf::from(OsString::from_vec(first))));
        }
        self.paths.write_checkpoints(self.checkpoints())?;
        Ok(None)
    }

    /// Returns the path of the job's record.
    pub fn record_path(&self) -> PathBuf {
        self.checkpoints().join(RECORD_FILE)
    }

    /// Returns the job's record, if one was written.
    ///
    /// # Errors
    /// [`JobError::Io`].
    pub fn read_record(&self) -> Result<Option<Vec<u8>>, JobError> {
        read_existing(&self.record_path())
    }

    /// Replaces the job's record.
    ///
    /// The record is durable, and so are the rank marks, when this returns. `process`: a number unique among the job's
    /// processes.
    ///
    /// # Errors
    /// [`JobError::Io`].
    pub fn write_record(&self, process: u32, record: &[u8]) -> Result<(), JobError> {
        self.write_durably(RECORD_FILE.to_owned(), record, process)
    }

    /// Replaces a file among the checkpoints.
    fn write_durably(&self, name: String, contents: &[u8], process: u32) -> Result<(), JobError> {
        let (path, new) = (self.checkpoints().join(&name), self.checkpoints().join(format!("{name}.{process}")));
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(contents)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(self.checkpoints())?.sync_all()
        });
        written.map_err(JobError::io("write", &path))
    }

    /// Keeps the directories when this process leaves the job.
    ///
    /// All its processes are to call this.
    pub fn keep_files(&mut self) {
        self.are_removed = false;
    }

    /// Leaves the job.
    ///
    /// A host's last process removes its directories; `counterfoil clean` removes the rest.
    pub fn leave(self) {
        if !self.are_removed {
            return;
        }
        for directory in [self.memory, self.checkpoints] {
            if let Err(error) = directory.leave() {
                tracing::warn!(%error, "a job directory could not be removed; `counterfoil clean` removes it");
            }
        }
    }
}

/// A directory used by several processes.
#[derive(Debug)]
struct SharedDirectory {
    path: PathBuf,
    /// Locked for as long as this process uses the directory.
    lock: File,
}

impl SharedDirectory {
    fn join(path: &Path) -> Result<SharedDirectory, JobError> {
        join_private_dir(path)?;
        Ok(SharedDirectory { path: path.to_owned(), lock: share_private_file(&path.join(LOCK_FILE))? })
    }

    fn leave(self) -> Result<(), JobError> {
        let SharedDirectory { path, lock } = self;
        let lock_path = path.join(LOCK_FILE);
        drop(lock);
        let lock = match open_private_file(&lock_path) {
            Ok(lock) => lock,
            Err(PrivateFileError::OwnerAlive { .. }) => return Ok(()),
            // Another process was faster.
            Err(PrivateFileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let removed = remove_contents(&path).and_then(|()| {
            // Closed first: a network file system renames an open file that is removed.
            drop(lock);
            fs::remove_file(&lock_path)?;
            fs::remove_dir(&path)
        });
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(JobError::io("remove", &path)),
        }
    }
}

/// Returns the name of a rank's mark.
fn mark_of(rank: u32) -> String {
    format!("has-rank-{rank}")
}

/// Removes everything in a job's directory but its lock file; last its record, which marks the job's end.
fn remove_contents(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else if entry.file_name() != LOCK_FILE && entry.file_name() != RECORD_FILE {
            fs::remove_file(entry.path())?;
        }
    }
    remove_existing(&directory.join(RECORD_FILE))
}

/// Removes a file, if there is one.
fn remove_existing(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Reads a file, if there is one.
fn read_existing(path: &Path) -> Result<Option<Vec<u8>>, JobError> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(JobError::io("read", path)),
    }
}

#[cfg(test)]
mod tests {
    use counterfoil_log_core::{create_private_dir, create_private_file};

    use super::super::parse_name;
    use super::*;

    #[test]
    fn shared_directories_are_gone_after_the_last_process() {
        let root = tempfile::tempdir().unwrap();
        let name = SharedJobDirectory::new_name();
        let join = || SharedJobDirectory::join(&name, root.path(), root.path()).unwrap();
        let (first, second) = (join(), join());
        assert_eq!((first.paths().logs(), first.checkpoints()), (second.paths().logs(), second.checkpoints()));
        assert_eq!(crate::local::clean(&[root.path().to_owned()]).unwrap().live.len(), 2);
        first.leave();
        assert!(second.paths().logs().exists() && second.checkpoints().exists());
        second.leave();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn directories_that_are_kept_stay() {
        let root = tempfile::tempdir().unwrap();
        let name = SharedJobDirectory::directory_name("heat").unwrap();
        let kept = || SharedJobDirectory::kept_logs(root.path(), "heat");
        assert_eq!(kept(), None);
        let mut job = SharedJobDirectory::join(&name, root.path(), root.path()).unwrap();
        job.keep_files();
        let logs = job.paths().logs();
        job.leave();
        assert_eq!(kept(), Some(logs));
        assert_eq!(SharedJobDirectory::kept_logs(root.path(), "eat"), None);
        // Nobody uses them: another job may.
        SharedJobDirectory::join(&name, root.path(), root.path()).unwrap().leave();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_rank_is_in_use_while_its_log_or_its_store_is_locked() {
        let root = tempfile::tempdir().unwrap();
        let job = SharedJobDirectory::join(&SharedJobDirectory::new_name(), root.path(), root.path()).unwrap();
        assert!(!job.is_in_use(3));
        create_private_dir(&job.checkpoints().join("rank-3")).unwrap();
        for path in [job.paths().logs().join("log.3"), job.checkpoints().join("rank-3").join(STORE_LOCK_FILE)] {
            let owner = create_private_file(&path).unwrap();
            assert!(job.is_in_use(3) && !job.is_in_use(2), "{}", path.display());
            drop(owner);
            assert!(!job.is_in_use(3), "{}", path.display());
        }
        job.leave();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_named_job_has_a_record_and_marks() {
        let root = tempfile::tempdir().unwrap();
        let (memory, disk) = (root.path().join("memory"), root.path().join("disk"));
        for root in [&memory, &disk] {
            fs::create_dir(root).unwrap();
        }
        let name = SharedJobDirectory::directory_name("heat-2.0_a").unwrap();
        let job = SharedJobDirectory::join(&name, &memory, &disk).unwrap();
        assert_eq!(job.read_record().unwrap(), None);
        job.mark_rank(3, "a").unwrap();
        job.write_record(0, b"first").unwrap();
        job.write_record(1, b"second").unwrap();
        assert_eq!(job.read_record().unwrap().as_deref(), Some(&b"second"[..]));
        assert_eq!((job.unmarked(3, true), job.unmarked(3, false)), (None, None));
        assert_eq!(job.unmarked(2, true), Some(job.paths().directory()));
        assert_eq!(job.unmarked(2, false), Some(job.checkpoints()));
        // A restarted host.
        fs::remove_file(job.paths().directory().join(mark_of(3))).unwrap();
        assert_eq!((job.unmarked(3, true), job.unmarked(3, false)), (Some(job.paths().directory()), None));
        job.leave();
        assert_eq!([&memory, &disk].map(|root| fs::read_dir(root).unwrap().count()), [0, 0]);
    }

    #[test]
    fn logs_of_a_rank_that_was_on_another_host_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let name = SharedJobDirectory::directory_name("heat").unwrap();
        let job = SharedJobDirectory::join(&name, root.path(), root.path()).unwrap();
        job.take_over(1, "a").unwrap();
        let left = || {
            for file in job.logs_of(1).iter().chain(&job.logs_of(2)) {
                fs::write(file, "x").unwrap();
            }
        };
        left();
        job.take_over(1, "a").unwrap();
        assert!(job.logs_of(1).iter().all(|file| file.exists()));
        // The rank goes to another host and comes back.
        for host in ["b", "a"] {
            job.take_over(1, host).unwrap();
            assert!(
                job.logs_of(1).iter().all(|file| !file.exists()) && job.logs_of(2).iter().all(|file| file.exists())
            );
            left();
        }
    }

    #[test]
    fn a_job_with_logs_keeps_its_directory_of_checkpoints() {
        let roots = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let join = |disk: usize| SharedJobDirectory::join("job", roots[0].path(), roots[disk].path()).unwrap();
        let (first, other) = (join(0), join(1));
        for job in [&first, &other, &first] {
            assert_eq!(job.claim_checkpoints().unwrap(), None);
        }
        fs::write(&first.logs_of(0)[0], "x").unwrap();
        assert_eq!(first.claim_checkpoints().unwrap(), None);
        assert_eq!(other.claim_checkpoints().unwrap().as_deref(), Some(first.checkpoints()));
    }

    #[test]
    fn names_of_jobs_are_short_and_no_paths() {
        for name in ["a", "7", "heat-2.0_a", &"x".repeat(JOB_NAME_BYTES_MAX)] {
            let directory = SharedJobDirectory::directory_name(name).unwrap();
            assert_eq!(parse_name(&directory), None);
        }
        for name in ["", ".", "..", "-a", "a/b", "a b", "\u{e4}", &"x".repeat(JOB_NAME_BYTES_MAX + 1)] {
            assert!(matches!(SharedJobDirectory::directory_name(name), Err(JobError::Name { .. })), "{name}");
        }
    }
}
