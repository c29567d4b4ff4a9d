//! Runs one `counterfoil demo` with a timeout and finds its leftover files and processes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::workspace::TaskError;

/// Poll interval for a running demo's end.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Completed run's outcome.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) termination: Termination,
    pub(super) stdout: String,
    /// Files and processes of the job that still exist.
    pub(super) leftovers: Vec<String>,
}

/// Reason for a run's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Termination {
    /// Exited with this code.
    Exited(i32),
    /// Killed by a signal not sent by this program.
    Signalled,
    /// Killed by this program after the timeout.
    TimedOut,
}

/// Runs the program with its output in the files `stdout` and `stderr` of `folder`.
///
/// A pipe would stay open as long as any rank lives, so that an orphan would block this program instead of being found.
pub(super) fn launch(
    program: &Path,
    arguments: &[String],
    timeout: Duration,
    folder: &Path,
) -> Result<Outcome, TaskError> {
    let stdout = folder.join("stdout");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(create(&stdout)?)
        .stderr(create(&folder.join("stderr"))?)
        .spawn()
        .map_err(|source| TaskError::Start { program: program.display().to_string(), source })?;
    let launcher = child.id();
    let termination = wait_or_kill(&mut child, timeout).map_err(TaskError::file(program))?;
    let leftovers = match termination {
        // A killed launcher cannot remove its files, but its ranks must end.
        Termination::TimedOut | Termination::Signalled => job_processes(launcher),
        Termination::Exited(_) => [job_files(launcher), job_processes(launcher)].concat(),
    };
    let bytes = fs::read(&stdout).map_err(TaskError::file(&stdout))?;
    Ok(Outcome { termination, stdout: String::from_utf8_lossy(&bytes).into_owned(), leftovers })
}

fn create(path: &Path) -> Result<File, TaskError> {
    File::create(path).map_err(TaskError::file(path))
}

/// Waits for the launcher and kills it after `timeout`.
fn wait_or_kill(child: &mut Child, timeout: Duration) -> std::io::Result<Termination> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(termination_of(status));
        }
        if start.elapsed() > timeout {
            child.kill()?;
            child.wait()?;
            // The kernel signals its ranks (parent-death signal): give them time to end.
            thread::sleep(Duration::from_millis(200));
            return Ok(Termination::TimedOut);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn termination_of(status: ExitStatus) -> Termination {
    status.code().map_or(Termination::Signalled, Termination::Exited)
}

/// Finds job directories `counterfoil-<user>-<launcher>-<random>` in `/dev/shm` and in the temporary directory.
fn job_files(launcher: u32) -> Vec<String> {
    [PathBuf::from("/dev/shm"), std::env::temp_dir()]
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .flatten()
        .filter(|entry| is_job_name(&entry.file_name().to_string_lossy(), launcher))
        .map(|entry| entry.path().display().to_string())
        .collect()
}

/// Finds the job's processes by the job directory in their command lines.
fn job_processes(launcher: u32) -> Vec<String> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .flatten()
        .filter(|process| {
            let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command).split(['/', '\0', '=']).any(|word| is_job_name(word, launcher))
        })
        .map(|process| format!("process {}", process.file_name().to_string_lossy()))
        .collect()
}

/// Returns `true` for names `counterfoil-<user>-<launcher>-...`.
fn is_job_name(name: &str, launcher: u32) -> bool {
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

    fn run_script(name: &str, script: &str, timeout: Duration) -> Outcome {
        let folder = std::env::temp_dir().join(format!("xtask-launch-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let arguments = ["-c".to_owned(), script.to_owned()];
        let outcome = launch(Path::new("/bin/sh"), &arguments, timeout, &folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        outcome
    }

    #[test]
    fn output_and_exit_code_are_returned() {
        let outcome = run_script("exit", "echo yes; echo no >&2; exit 3", Duration::from_secs(20));
        assert_eq!(outcome.termination, Termination::Exited(3));
        assert_eq!(outcome.stdout, "yes\n");
        assert!(outcome.leftovers.is_empty());
    }

    #[test]
    fn a_run_that_hangs_is_killed() {
        let start = Instant::now();
        let outcome = run_script("hang", "exec sleep 60", Duration::from_millis(50));
        assert_eq!(outcome.termination, Termination::TimedOut);
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn leftover_files_and_processes_are_found() {
        let launcher = std::process::id();
        let job = std::env::temp_dir().join(format!("counterfoil-0-{launcher}-f00d"));
        fs::create_dir(&job).unwrap();
        assert_eq!(job_files(launcher), [job.display().to_string()]);
        // Its command line is readable after its first output, but not necessarily when `spawn` returns.
        let mut rank = Command::new("sh")
            .args(["-c", "echo ready; read -r never"])
            .arg(&job)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        rank.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        assert_eq!(job_processes(launcher), [format!("process {}", rank.id())]);
        rank.kill().unwrap();
        rank.wait().unwrap();
        fs::remove_dir(&job).unwrap();
        assert!(job_files(launcher).is_empty() && job_processes(launcher).is_empty());
    }

    #[test]
    fn jobs_of_other_launchers_are_ignored() {
        assert!(is_job_name("counterfoil-1000-77-ab12", 77));
        for other in ["counterfoil-1000-78-ab12", "counterfoil-77", "counterfoil-x-77-a", "job-1-77-a"] {
            assert!(!is_job_name(other, 77), "{other}");
        }
    }
}
