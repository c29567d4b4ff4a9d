//! Demo runs with a time limit, in a separate directory.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::output::ProgramOutput;

/// Time limit.
///
/// No test takes a hundredth of it on an idle machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Temporary directory for one test.
pub(crate) struct Sandbox {
    directory: TempDir,
}

impl Sandbox {
    pub(crate) fn new() -> Sandbox {
        // Socket paths must be short, and the default temporary directory's may not be.
        Sandbox { directory: tempfile::Builder::new().prefix("cfd").tempdir_in("/tmp").unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Starts `counterfoil demo` with its files in this directory.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        command.arg("demo").args(arguments).arg("--shm-dir").arg(self.path()).arg("--checkpoint-dir").arg(self.path());
        // Not pipes: they stay open while any rank lives, and would turn an orphan into a hang.
        let file = |name: &str| fs::File::create(self.path().join(name)).unwrap();
        command.stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr"));
        Running { child: Some(command.spawn().unwrap()), directory: self.path().to_owned() }
    }

    /// Runs `counterfoil demo` to its end.
    pub(crate) fn demo(&self, arguments: &[&str]) -> ProgramOutput {
        self.start(arguments).wait()
    }

    /// Returns the names of remaining job directories.
    pub(crate) fn remaining_jobs(&self) -> Vec<String> {
        let names = fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("counterfoil-")).collect()
    }

    /// Runs `counterfoil clean` on this directory.
    pub(crate) fn clean(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        command.arg("clean").arg("--json").arg("--dir").arg(self.path()).args(arguments).output().unwrap()
    }
}

/// A running demo.
pub(crate) struct Running {
    child: Option<Child>,
    directory: std::path::PathBuf,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Waits until the demo ends; kills it at the time limit.
    pub(crate) fn wait(mut self) -> ProgramOutput {
        let mut child = self.child.take().unwrap();
        let start = Instant::now();
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None if start.elapsed() > LIMIT => {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    panic!("no end within {LIMIT:?}: {}", self.read("stderr"));
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        ProgramOutput { code: status.code(), stdout: self.read("stdout"), stderr: self.read("stderr") }
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.directory.join(name)).unwrap()
    }

    /// Returns the process ids of its running ranks.
    pub(crate) fn ranks(&self) -> Vec<u32> {
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        children.split_whitespace().map(|pid| pid.parse().unwrap()).filter(|pid| is_alive(*pid)).collect()
    }

    /// Waits until the demo has this many ranks.
    pub(crate) fn await_ranks(&self, count: usize) -> Vec<u32> {
        let mut ranks = Vec::new();
        wait_until("all ranks are started", || {
            ranks = self.ranks();
            ranks.len() == count
        });
        ranks
    }

    /// Stops the launcher in the middle of a run, which freezes the job's state; returns the ranks' process ids.
    pub(crate) fn freeze(&self, sandbox: &Sandbox, ranks: usize) -> Vec<u32> {
        let mut pids = Vec::new();
        wait_until("the launcher is stopped in the middle of a run", || {
            self.signal(Signal::STOP);
            // Before, between and after the two runs there is no job.
            pids = self.ranks();
            let is_running = pids.len() == ranks && sandbox.remaining_jobs().len() == 2;
            if !is_running {
                self.signal(Signal::CONT);
            }
            is_running
        });
        pids
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl ProgramOutput {
    /// Parses the JSON report and checks that it reports no problem.
    pub(crate) fn checked_report(&self) -> Value {
        assert_eq!(self.code, Some(0), "{}{}", self.stderr, self.stdout);
        let report: Value =
            serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout));
        for field in ["digest_equal", "recovered", "survivors_undisturbed", "verified"] {
            assert_eq!(report[field], true, "{field}: {report}");
        }
        for field in ["lost", "duplicated", "reordered", "altered", "diverged"] {
            assert_eq!(report[field], 0, "{field}: {report}");
        }
        report
    }
}

pub(crate) fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    // The process may have ended meanwhile.
    let _ = kill_process(pid, signal);
}

/// Returns `true` if the process exists and isn't a zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
