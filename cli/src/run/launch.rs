//! mpirun: what it is told, how it is watched, and how it is ended.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use counterfoil_runtime::local::JobDirectory;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::account::pids;
use super::mpi::Mpi;
use super::view::View;
use crate::config::{Key, Settings};

/// How long mpirun may take to end its ranks when it is asked to; behind it, it and they are killed.
const GRACE: Duration = Duration::from_secs(5);
/// How long mpirun has for a signal that the terminal sent it as well.
const OWN_SIGNAL: Duration = Duration::from_secs(1);
/// How often what is going on is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Why mpirun can't be run.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaunchError {
    #[error("cannot watch for signals: {0}")]
    Signals(#[source] io::Error),
    #[error("cannot start {}: {source}", mpirun.display())]
    Start { mpirun: PathBuf, source: io::Error },
    #[error("cannot wait for mpirun: {0}")]
    Wait(#[source] io::Error),
}

/// How it ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// The program's exit code, as mpirun passes it on; 128 and the signal where one ended mpirun.
    pub(super) code: u8,
    pub(super) wall: Duration,
    /// Whether somebody interrupted it.
    pub(super) interrupted: bool,
}

/// A job that is to be run.
pub(super) struct Launch<'a> {
    pub(super) mpi: &'a Mpi,
    pub(super) library: &'a Path,
    pub(super) settings: &'a Settings,
    pub(super) ranks: Option<u32>,
    /// The same, where one of mpirun's own options says it.
    pub(super) ranks_elsewhere: Option<u32>,
    pub(super) log_dir: Option<&'a Path>,
    pub(super) job: &'a JobDirectory,
    pub(super) mpirun_options: &'a [OsString],
    pub(super) program: &'a [OsString],
}

impl Launch<'_> {
    /// Runs it to its end.
    pub(super) fn run(&self) -> Result<Ended, LaunchError> {
        let signals = Signals::watch().map_err(LaunchError::Signals)?;
        let mut command = self.command();
        let began = Instant::now();
        let child = command.spawn();
        let child = child.map_err(|source| LaunchError::Start { mpirun: self.mpi.mpirun.clone(), source })?;
        let mut running = Running { child, accounts: self.job.paths().traces() };
        let view = View::new(&self.job.paths().traces());
        let waited = running.wait(&signals, &view);
        let wall = began.elapsed();
        view.finish();
        let status = match waited {
            Ok(status) => status,
            Err(error) => {
                running.kill();
                return Err(LaunchError::Wait(error));
            }
        };
        running.end_ranks();
        let code = match (status.code(), status.signal()) {
            (Some(code), _) => u8::try_from(code).unwrap_or(1),
            (None, signal) => signal.and_then(|signal| u8::try_from(128 + signal).ok()).unwrap_or(1),
        };
        Ok(Ended { code, wall, interrupted: signals.has_come() })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.mpi.mpirun);
        if rustix::process::geteuid().is_root() {
            for name in ["OMPI", "PRTE"] {
                command.env(format!("{name}_ALLOW_RUN_AS_ROOT"), "1");
                command.env(format!("{name}_ALLOW_RUN_AS_ROOT_CONFIRM"), "1");
            }
        }
        if self.ranks.or(self.ranks_elsewhere).is_some_and(|ranks| ranks > cores()) {
            // In the environment, of version 4 and of version 5: options that the user gives count before that.
            command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
            command.env("PRTE_MCA_rmaps_default_mapping_policy", ":OVERSUBSCRIBE");
        }
        if let Some(libraries) = &self.mpi.libraries {
            let path = before(libraries.as_os_str(), std::env::var_os("LD_LIBRARY_PATH"));
            command.env("LD_LIBRARY_PATH", path).args(["-x", "LD_LIBRARY_PATH"]);
        }
        if let Some(ranks) = self.ranks {
            command.args(["-n", &ranks.to_string()]);
        }
        for (name, value) in self.variables() {
            let mut both = OsString::from(name);
            both.push("=");
            both.push(value);
            command.arg("-x").arg(both);
        }
        command.args(self.mpirun_options).args(self.program);
        command
    }

    /// What the ranks are told: the library, which mpirun itself must not load, and its settings.
    fn variables(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![
            ("LD_PRELOAD", before(self.library.as_os_str(), std::env::var_os("LD_PRELOAD"))),
            ("COUNTERFOIL_SUMMARY_DIR", self.job.paths().traces().into()),
            ("COUNTERFOIL_SHM_DIR", OsString::new()),
        ];
        for key in [Key::Protocol, Key::Logging, Key::Keep, Key::OnFull, Key::Budget, Key::Tier] {
            variables.push((key.variable(), self.settings.value(key).unwrap_or_default().into()));
        }
        let tier = self.settings.value(Key::Tier);
        if tier == Some("process-crash-safe") {
            variables[2].1 = self.job.paths().logs().into();
        }
        variables.push((Key::LogDir.variable(), self.log_dir.map(OsString::from).unwrap_or_default()));
        let spill = if tier == Some("node-local") { self.job.checkpoints().into() } else { OsString::new() };
        variables.push(("COUNTERFOIL_SPILL_DIR", spill));
        variables
    }
}

/// A path, and behind it those of a list.
fn before(path: &OsStr, list: Option<OsString>) -> OsString {
    let mut all = path.to_owned();
    if let Some(list) = list.filter(|list| !list.is_empty()) {
        all.push(":");
        all.push(list);
    }
    all
}

/// Cores, as Open MPI counts them: not what runs two threads at a time twice.
fn cores() -> u32 {
    let threads =
        std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX));
    let smt = std::fs::read_to_string("/sys/devices/system/cpu/smt/active").unwrap_or_default();
    if smt.trim() == "1" { threads.div_ceil(2) } else { threads }
}

/// Signals that ask for an end.
struct Signals {
    last: Arc<AtomicUsize>,
    registered: Vec<signal_hook::SigId>,
}

impl Signals {
    fn watch() -> io::Result<Signals> {
        let mut signals = Signals { last: Arc::new(AtomicUsize::new(0)), registered: Vec::new() };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let last = Arc::clone(&signals.last);
            signals.registered.push(signal_hook::flag::register_usize(signal, last, signal.unsigned_abs() as usize)?);
        }
        Ok(signals)
    }

    fn has_come(&self) -> bool {
        self.last.load(Ordering::Relaxed) != 0
    }

    /// The one that came, if one did.
    fn which(&self) -> Option<Signal> {
        match i32::try_from(self.last.load(Ordering::Relaxed)).ok()? {
            SIGINT => Some(Signal::INT),
            SIGTERM => Some(Signal::TERM),
            SIGHUP => Some(Signal::HUP),
            _ => None,
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for &id in &self.registered {
            signal_hook::low_level::unregister(id);
        }
    }
}

/// mpirun, started.
struct Running {
    child: Child,
    accounts: PathBuf,
}

impl Running {
    /// Waits for its end; passes on a signal that comes, and ends what doesn't hear it.
    fn wait(&mut self, signals: &Signals, view: &View) -> io::Result<ExitStatus> {
        let pid = self.pid();
        let pidfd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let is_typed = io::stdin().is_terminal() || io::stderr().is_terminal();
        let mut asked: Option<Instant> = None;
        let mut is_passed_on = false;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if let Some(signal) = signals.which() {
                let asked = asked.get_or_insert_with(Instant::now).elapsed();
                // One that was typed goes to all processes of the terminal: a second one would make mpirun leave its ranks.
                let is_due = !(is_typed && signal == Signal::INT) || asked > OWN_SIGNAL;
                if is_due && !is_passed_on {
                    is_passed_on = true;
                    // It may have ended meanwhile.
                    let _ = pid.map(|pid| kill_process(pid, signal));
                }
                if asked > GRACE {
                    self.kill();
                    return self.child.wait();
                }
            }
            view.look();
            self.pause(pidfd.as_ref());
        }
    }

    /// Until it ends, or it is time to look again.
    fn pause(&self, pidfd: Option<&OwnedFd>) {
        // A signal ends this early, too.
        match pidfd {
            Some(pidfd) => {
                has_ended(pidfd);
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Ends mpirun and everything below it at once, each by its process id.
    fn kill(&mut self) {
        let below = descendants(self.child.id());
        let _ = self.child.kill();
        for pid in below {
            kill(pid);
        }
        self.end_ranks();
    }

    /// Ends ranks that live on without mpirun, and waits until they have ended: they may have files of ours open.
    fn end_ranks(&self) {
        let own = self.accounts.as_os_str().as_encoded_bytes();
        let began = Instant::now();
        for pid in pids(&self.accounts) {
            let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { continue };
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            // The number may have been another process's before it was opened: ours has our directory in its environment.
            match std::fs::read(format!("/proc/{pid}/environ")) {
                Ok(environment) if environment.windows(own.len()).any(|window| window == own) => {
                    let _ = pidfd_send_signal(&process, Signal::KILL);
                }
                // Its memory is gone, and its environment with it: it is about to end.
                Ok(environment) if environment.is_empty() => {}
                Err(error) if error.kind() != io::ErrorKind::PermissionDenied => {}
                _ => continue,
            }
            while began.elapsed() < GRACE && !has_ended(&process) {}
        }
    }
}

/// Whether a process ends within a tenth of a second.
fn has_ended(process: &OwnedFd) -> bool {
    let limit = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.subsec_nanos().into() };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
}

fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Processes below one, as the kernel says.
fn descendants(pid: u32) -> Vec<u32> {
    let mut all = Vec::new();
    let mut waiting = vec![pid];
    while let Some(pid) = waiting.pop() {
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            let children: Vec<u32> = children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
            waiting.extend(&children);
            all.extend(children);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_paths_begins_with_ours() {
        assert_eq!(before(OsStr::new("/a"), None), "/a");
        assert_eq!(before(OsStr::new("/a"), Some("".into())), "/a");
        assert_eq!(before(OsStr::new("/a"), Some("/b:/c".into())), "/a:/b:/c");
    }

    #[test]
    fn what_a_process_has_started_is_found_and_ended_by_its_id() {
        let child = Command::new("sh").args(["-c", "sleep 1000 & sleep 1000 & wait"]).spawn().unwrap();
        let mut running = Running { child, accounts: "/nonexistent".into() };
        let began = Instant::now();
        while descendants(running.child.id()).len() < 2 {
            assert!(began.elapsed() < Duration::from_secs(60), "the shell starts nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
        let below = descendants(running.child.id());
        running.kill();
        assert_eq!(running.child.wait().unwrap().signal(), Some(9));
        let is_alive = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
        };
        while below.iter().any(is_alive) {
            assert!(began.elapsed() < Duration::from_secs(60), "{below:?} live on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
