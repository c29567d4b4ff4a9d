//! Removes directories left by killed launchers.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use counterfoil_log_core::{PrivateFileError, check_private_dir, open_private_file};
use rustix::io::Errno;

use super::job::{CHECKPOINTS_FILE, CHECKPOINTS_SUFFIX, JobError, LOCK_FILE, SharedJobDirectory, parse_name};

/// Result of [`clean`].
#[derive(Debug, Default)]
pub struct Cleaned {
    /// Removed job directories of dead launchers.
    pub removed: Vec<PathBuf>,
    /// Job directories of live launchers; untouched.
    pub live: Vec<PathBuf>,
    /// Job directories of dead launchers, with the job's live processes; untouched.
    pub in_use: Vec<(PathBuf, Vec<u32>)>,
    /// Directories with a job's name that were refused or could not be removed, with the reason.
    pub refused: Vec<(PathBuf, JobError)>,
}

/// Removes the job directories of this user's dead launchers directly in one of `roots`, with their checkpoint
/// directories.
///
/// A launcher is dead if its lock can be taken. Never touches a live job's directory, one that occurs in a process's
/// environment or arguments (as for ranks and their launchers), another user's, or anything reached through a link.
///
/// # Errors
/// [`JobError::Io`] if a root cannot be read. Errors in a single directory are in [`Cleaned::refused`].
pub fn clean(roots: &[PathBuf]) -> Result<Cleaned, JobError> {
    let mut cleaned = Cleaned::default();
    let mut roots = roots.to_vec();
    roots.sort();
    roots.dedup();
    for root in &roots {
        let entries = match fs::read_dir(root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            result => result.map_err(JobError::io("read", root))?,
        };
        let mut paths = Vec::new();
        for entry in entries {
            let entry = entry.map_err(JobError::io("read", root))?;
            let named = entry.file_name().to_str().and_then(parse_name);
            if named.is_some_and(|(user, _)| user == rustix::process::geteuid().as_raw()) {
                paths.push(entry.path());
            }
        }
        paths.sort();
        for path in paths {
            clean_job(&path, &mut cleaned);
        }
    }
    Ok(cleaned)
}

/// Removes a user-named job's directories directly in one of `roots`, unless it is running.
///
/// # Errors
/// [`JobError::Name`]. Errors in a single directory are in [`Cleaned::refused`].
pub fn clean_named(job: &str, roots: &[PathBuf]) -> Result<Cleaned, JobError> {
    let name = SharedJobDirectory::directory_name(job)?;
    let mut cleaned = Cleaned::default();
    for path in
        roots.iter().flat_map(|root| ["", CHECKPOINTS_SUFFIX].map(|suffix| root.join(format!("{name}{suffix}"))))
    {
        if path.symlink_metadata().is_ok() {
            clean_job(&path, &mut cleaned);
        }
    }
    Ok(cleaned)
}

fn clean_job(path: &Path, cleaned: &mut Cleaned) {
    if cleaned.removed.iter().any(|done| done == path) {
        return; // a checkpoint directory, removed with its job
    }
    match try_clean(path, cleaned) {
        Ok(Some(checkpoints)) => clean_job(&checkpoints, cleaned),
        Ok(None) => {}
        // Removed meanwhile by its job, or by another process running `clean`.
        Err(_) if path.symlink_metadata().is_err() => {}
        Err(error) => cleaned.refused.push((path.to_owned(), error)),
    }
}

/// Removes a directory, unless its job lives.
///
/// Returns the removed directory's checkpoint directory.
fn try_clean(path: &Path, cleaned: &mut Cleaned) -> Result<Option<PathBuf>, JobError> {
    check_private_dir(path)?;
    // Held until the directory is gone: a job with this name may start meanwhile.
    let Some(_lock) = lock_of_dead(path)? else {
        cleaned.live.push(path.to_owned());
        return Ok(None);
    };
    let processes = processes_of(path);
    if !processes.is_empty() {
        cleaned.in_use.push((path.to_owned(), processes));
        return Ok(None);
    }
    // Read before the directory is removed.
    let checkpoints = checkpoint_directory(path);
    fs::remove_dir_all(path).map_err(JobError::io("remove", path))?;
    cleaned.removed.push(path.to_owned());
    Ok(checkpoints)
}

/// Takes the job directory's lock, if its launcher is dead; `Some(None)` if there is no lock.
fn lock_of_dead(path: &Path) -> Result<Option<Option<File>>, JobError> {
    match open_private_file(&path.join(LOCK_FILE)) {
        Ok(lock) => Ok(Some(Some(lock))),
        Err(PrivateFileError::OwnerAlive { .. }) => Ok(None),
        // The launcher has made the directory, and either died before it made the lock or is about to make it: only the
        // process id in the name can tell. A named job has none; its processes make the lock before anything else.
        Err(PrivateFileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok((!launcher_process_exists(path)).then_some(None))
        }
        Err(error) => Err(error.into()),
    }
}

fn launcher_process_exists(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return true };
    let Some((_, pid)) = parse_name(name) else { return false };
    let pid = Some(pid);
    let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
    // An unknown process counts as alive.
    pid.is_none_or(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// Returns this job's live processes: ranks that survived their launcher, and processes that start them.
fn processes_of(path: &Path) -> Vec<u32> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let job = name.strip_suffix(CHECKPOINTS_SUFFIX).unwrap_or(name).as_bytes();
    let mentions = |file: PathBuf| fs::read(file).is_ok_and(|text| text.windows(job.len()).any(|part| part == job));
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        // Skip this process: the job may be among its arguments.
        let Some(pid) = pid.filter(|&pid| pid != std::process::id()) else { continue };
        // Both are empty for a process that has exited.
        if ["environ", "cmdline"].iter().any(|file| mentions(entry.path().join(file))) {
            processes.push(pid);
        }
    }
    processes.sort_unstable();
    processes
}

/// Returns the checkpoint directory named by the job, if it exists and belongs to the same job.
fn checkpoint_directory(job: &Path) -> Option<PathBuf> {
    let pointer = job.join(CHECKPOINTS_FILE);
    if !fs::symlink_metadata(&pointer).ok()?.is_file() {
        return None;
    }
    let path = PathBuf::from(std::ffi::OsString::from_vec(fs::read(&pointer).ok()?));
    let expected = format!("{}{CHECKPOINTS_SUFFIX}", job.file_name()?.to_str()?);
    (path.is_absolute() && path.file_name()? == expected.as_str() && path.exists()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::super::job::JobDirectory;
    use std::process::Command;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;
    use counterfoil_log_core::{create_private_dir, create_private_file};

    /// Makes the directories of a job with a dead launcher: nobody holds the lock.
    fn abandoned(root: &Path, disk: &Path) -> (PathBuf, PathBuf) {
        let user = rustix::process::geteuid().as_raw();
        // A name unique among the tests in this process and in others: a concurrent test's process mentions its own
        // job.
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = u64::from(std::process::id()) << 32 | MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("counterfoil-{user}-1-{number:016x}");
        let (job, checkpoints) = (root.join(&name), disk.join(format!("{name}-checkpoints")));
        for path in [&job, &checkpoints] {
            create_private_dir(path).unwrap();
            create_private_file(&path.join(LOCK_FILE)).unwrap();
        }
        fs::write(job.join(CHECKPOINTS_FILE), checkpoints.as_os_str().as_encoded_bytes()).unwrap();
        (job, checkpoints)
    }

    #[test]
    fn a_directory_that_is_gone_is_not_reported() {
        let (root, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (job, checkpoints) = abandoned(root.path(), disk.path());
        fs::remove_dir_all(checkpoints).unwrap();
        let mut cleaned = Cleaned::default();
        for _ in 0..2 {
            clean_job(&job, &mut cleaned);
            assert!(!job.exists() && cleaned.refused.is_empty());
        }
        assert_eq!(cleaned.removed, [job]);
        clean_job(&root.path().join("counterfoil-0-1-0"), &mut cleaned);
        assert!(cleaned.refused.is_empty() && cleaned.removed.len() == 1);
    }

    #[test]
    fn the_directories_of_a_dead_launcher_are_removed_and_those_of_a_live_job_are_not() {
        let (root, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let live = JobDirectory::create(root.path(), disk.path()).unwrap();
        let (job, checkpoints) = abandoned(root.path(), disk.path());
        let cleaned = clean(&[root.path().to_owned()]).unwrap();
        assert_eq!(cleaned.removed, [job.clone(), checkpoints.clone()]);
        assert_eq!(cleaned.live, [live.paths().directory()]);
        assert!(cleaned.refused.is_empty());
        assert!(!job.exists() && !checkpoints.exists());
        assert!(live.paths().directory().exists() && live.checkpoints().exists());
    }

    #[test]
    fn directories_that_a_process_of_the_job_may_use_are_kept() {
        let (root, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (job, checkpoints) = abandoned(root.path(), disk.path());
        let roots = [root.path().to_owned(), disk.path().to_owned()];
        let mut rank = Command::new("sleep");
        let mut rank = rank.arg("1000").env("COUNTERFOIL_SUMMARY_DIR", job.join("traces")).spawn().unwrap();
        // During exec a process has no environment for a moment.
        while processes_of(&job).is_empty() {
            assert_eq!(rank.try_wait().unwrap(), None, "it has ended");
            std::thread::sleep(Duration::from_millis(1));
        }
        let cleaned = clean(&roots).unwrap();
        rank.kill().unwrap();
        rank.wait().unwrap();
        let of = |path: &PathBuf| (path.clone(), vec![rank.id()]);
        let mut in_use = [of(&job), of(&checkpoints)];
        in_use.sort();
        let mut found = cleaned.in_use.clone();
        found.sort();
        assert_eq!((found, cleaned.removed), (in_use.to_vec(), Vec::new()));
        let cleaned = clean(&roots).unwrap();
        assert!(cleaned.in_use.is_empty() && cleaned.removed.len() == 2, "{cleaned:?}");
    }

    #[test]
    fn a_link_with_our_name_is_refused_and_its_target_is_kept() {
        let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let precious = other.path().join("precious");
        fs::write(&precious, "x").unwrap();
        let user = rustix::process::geteuid().as_raw();
        let link = root.path().join(format!("counterfoil-{user}-1-00000000000000cd"));
        std::os::unix::fs::symlink(other.path(), &link).unwrap();
        let cleaned = clean(&[root.path().to_owned()]).unwrap();
        assert!(cleaned.removed.is_empty());
        assert!(matches!(&cleaned.refused[..], [(path, JobError::Private(_))] if *path == link));
        assert!(precious.exists());
    }

    #[test]
    fn a_pointer_to_something_else_is_not_followed() {
        let (root, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (job, checkpoints) = abandoned(root.path(), disk.path());
        let other = disk.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(job.join(CHECKPOINTS_FILE), other.as_os_str().as_encoded_bytes()).unwrap();
        clean(&[root.path().to_owned()]).unwrap();
        assert!(other.exists() && checkpoints.exists());
    }

    #[test]
    fn a_named_job_is_removed_by_its_name_only_and_not_while_it_runs() {
        let root = tempfile::tempdir().unwrap();
        let roots = [root.path().to_owned()];
        let name = SharedJobDirectory::directory_name("heat").unwrap();
        let job = SharedJobDirectory::join(&name, root.path(), root.path()).unwrap();
        job.mark_rank(0, "host").unwrap();
        job.write_record(0, b"x").unwrap();
        let (memory, checkpoints) = (job.paths().directory().to_owned(), job.checkpoints().to_owned());
        assert_eq!(clean_named("heat", &roots).unwrap().live, [memory.clone(), checkpoints.clone()]);
        drop(job);
        assert!(clean(&roots).unwrap().removed.is_empty());
        assert!(clean_named("cold", &roots).unwrap().removed.is_empty());
        assert_eq!(clean_named("heat", &roots).unwrap().removed, [memory, checkpoints]);
        assert!(matches!(clean_named("../heat", &roots), Err(JobError::Name { .. })));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn other_names_and_missing_roots_are_ignored() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("counterfoil-notes")).unwrap();
        let cleaned = clean(&[root.path().to_owned(), root.path().join("missing")]).unwrap();
        assert!(cleaned.removed.is_empty() && cleaned.live.is_empty() && cleaned.refused.is_empty());
    }
}
