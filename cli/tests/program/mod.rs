//! Starts the real program, waits for it with a limit, and looks at what it leaves behind.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::ended::Ended;

/// Nothing here takes a hundredth of this on an idle machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Directories of one test, which no other test sees.
pub(crate) struct Place {
    directory: TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        // Paths of sockets are short, and the default directory for temporary files may not be.
        Place { directory: tempfile::Builder::new().prefix("cfd").tempdir_in("/tmp").unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Starts `counterfoil demo` with these arguments, and its files here.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        command.arg("demo").args(arguments).arg("--shm-dir").arg(self.path()).arg("--checkpoint-dir").arg(self.path());
        // A pipe stays open for as long as any rank lives, and would hide an orphan behind a hang.
        let file = |name: &str| fs::File::create(self.path().join(name)).unwrap();
        command.stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr"));
        Running { child: Some(command.spawn().unwrap()), place: self.path().to_owned() }
    }

    /// Runs it to its end.
    pub(crate) fn demo(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).wait()
    }

    /// Job directories that are still here.
    pub(crate) fn left_behind(&self) -> Vec<String> {
        let names = fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("counterfoil-")).collect()
    }

    /// Runs `counterfoil clean` over this place.
    pub(crate) fn clean(&self) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        command.arg("clean").arg("--json").arg("--dir").arg(self.path()).output().unwrap()
    }
}

/// A demo that runs.
pub(crate) struct Running {
    child: Option<Child>,
    place: std::path::PathBuf,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Waits for its end, and kills it after the limit.
    pub(crate) fn wait(mut self) -> Ended {
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
        Ended { code: status.code(), stdout: self.read("stdout"), stderr: self.read("stderr") }
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.place.join(name)).unwrap()
    }

    /// The process ids of its ranks that live.
    pub(crate) fn ranks(&self) -> Vec<u32> {
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        children.split_whitespace().map(|pid| pid.parse().unwrap()).filter(|pid| is_alive(*pid)).collect()
    }

    /// Waits until it has this many ranks.
    pub(crate) fn await_ranks(&self, count: usize) -> Vec<u32> {
        let mut ranks = Vec::new();
        wait_until("all ranks are started", || {
            ranks = self.ranks();
            ranks.len() == count
        });
        ranks
    }

    /// Stops the launcher amid a run: from here on nothing about the job changes by itself. Gives the ranks' process ids.
    pub(crate) fn freeze(&self, place: &Place, ranks: usize) -> Vec<u32> {
        let mut pids = Vec::new();
        wait_until("the launcher is stopped amid a run", || {
            self.signal(Signal::STOP);
            // There are moments without a job: before, between and after the two runs.
            pids = self.ranks();
            let amid = pids.len() == ranks && place.left_behind().len() == 2;
            if !amid {
                self.signal(Signal::CONT);
            }
            amid
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

impl Ended {
    /// The report, after checking that everything in it is as it should be.
    pub(crate) fn right_report(&self) -> Value {
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
    // It may have ended meanwhile.
    let _ = kill_process(pid, signal);
}

/// Whether the process exists and is not just waiting to be reaped.
pub(crate) fn is_alive(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
