//! Starts one `counterfoil demo`, waits for it with a limit, and looks at what it left behind.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::workspace::TaskError;

/// How often a running demo is looked at.
const POLL: Duration = Duration::from_millis(5);

/// A demo that has ended.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) end: End,
    pub(super) stdout: String,
    /// Files and processes of the job that are still there.
    pub(super) left_behind: Vec<String>,
}

/// How a demo ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Exited(i32),
    /// By a signal that this program did not send.
    Signalled,
    /// It was killed after the limit.
    TimedOut,
}

/// Runs the program; its output goes to the files `stdout` and `stderr` in `folder`.
///
/// Files, since a pipe stays open for as long as any rank lives: an orphan would hang the soak
/// that is to find it.
pub(super) fn launch(
    program: &Path,
    arguments: &[String],
    timeout: Duration,
    folder: &Path,
) -> Result<Launched, TaskError> {
    let stdout = folder.join("stdout");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(create(&stdout)?)
        .stderr(create(&folder.join("stderr"))?)
        .spawn()
        .map_err(|source| TaskError::Start { program: program.display().to_string(), source })?;
    let launcher = child.id();
    let end = wait(&mut child, timeout).map_err(TaskError::file(program))?;
    let left_behind = match end {
        // A launcher that was killed cannot tidy its files up; its ranks must be gone all the same.
        End::TimedOut | End::Signalled => processes_of(launcher),
        End::Exited(_) => [files_of(launcher), processes_of(launcher)].concat(),
    };
    let bytes = fs::read(&stdout).map_err(TaskError::file(&stdout))?;
    Ok(Launched { end, stdout: String::from_utf8_lossy(&bytes).into_owned(), left_behind })
}

fn create(path: &Path) -> Result<File, TaskError> {
    File::create(path).map_err(TaskError::file(path))
}

/// Waits for the launcher and no longer than `timeout`; then kills it, by its process id alone.
fn wait(child: &mut Child, timeout: Duration) -> std::io::Result<End> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(end_of(status));
        }
        if start.elapsed() > timeout {
            child.kill()?;
            child.wait()?;
            // Its ranks get their signal from the kernel; give them the time to go.
            thread::sleep(Duration::from_millis(200));
            return Ok(End::TimedOut);
        }
        thread::sleep(POLL);
    }
}

fn end_of(status: ExitStatus) -> End {
    status.code().map_or(End::Signalled, End::Exited)
}

/// Job folders `counterfoil-<user>-<launcher>-<random>` in the places where jobs put them.
fn files_of(launcher: u32) -> Vec<String> {
    [PathBuf::from("/dev/shm"), std::env::temp_dir()]
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .flatten()
        .filter(|entry| names_job_of(&entry.file_name().to_string_lossy(), launcher))
        .map(|entry| entry.path().display().to_string())
        .collect()
}

/// Ranks know their job's folder by a command line argument.
fn processes_of(launcher: u32) -> Vec<String> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .flatten()
        .filter(|process| {
            let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command).split(['/', '\0', '=']).any(|word| names_job_of(word, launcher))
        })
        .map(|process| format!("process {}", process.file_name().to_string_lossy()))
        .collect()
}

/// Is this `counterfoil-<user>-<launcher>-...`?
fn names_job_of(name: &str, launcher: u32) -> bool {
    let mut parts = name.split('-');
    parts.next() == Some("counterfoil")
        && parts.next().is_some_and(|user| user.parse::<u32>().is_ok())
        && parts.next().and_then(|id| id.parse().ok()) == Some(launcher)
        && parts.next().is_some()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn in_folder(name: &str, script: &str, timeout: Duration) -> Launched {
        let folder = std::env::temp_dir().join(format!("xtask-launch-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let arguments = ["-c".to_owned(), script.to_owned()];
        let launched = launch(Path::new("/bin/sh"), &arguments, timeout, &folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        launched
    }

    #[test]
    fn output_and_exit_code_are_kept() {
        let launched = in_folder("exit", "echo yes; echo no >&2; exit 3", Duration::from_secs(20));
        assert_eq!(launched.end, End::Exited(3));
        assert_eq!(launched.stdout, "yes\n");
        assert!(launched.left_behind.is_empty());
    }

    #[test]
    fn a_run_that_hangs_is_ended() {
        let start = Instant::now();
        let launched = in_folder("hang", "exec sleep 60", Duration::from_millis(50));
        assert_eq!(launched.end, End::TimedOut);
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_file_and_a_process_left_behind_are_found() {
        let launcher = std::process::id();
        let job = std::env::temp_dir().join(format!("counterfoil-0-{launcher}-f00d"));
        fs::create_dir(&job).unwrap();
        assert_eq!(files_of(launcher), [job.display().to_string()]);
        // Its arguments can be read once it has said something: not yet when `spawn` returns.
        let mut rank = Command::new("sh")
            .args(["-c", "echo ready; read -r never"])
            .arg(&job)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        rank.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        assert_eq!(processes_of(launcher), [format!("process {}", rank.id())]);
        rank.kill().unwrap();
        rank.wait().unwrap();
        fs::remove_dir(&job).unwrap();
        assert!(files_of(launcher).is_empty() && processes_of(launcher).is_empty());
    }

    #[test]
    fn other_launchers_jobs_are_none_of_ours() {
        assert!(names_job_of("counterfoil-1000-77-ab12", 77));
        for other in ["counterfoil-1000-78-ab12", "counterfoil-77", "counterfoil-x-77-a", "job-1-77-a"] {
            assert!(!names_job_of(other, 77), "{other}");
        }
    }
}
