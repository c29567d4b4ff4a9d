//! Starting, monitoring and stopping mpirun.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use counterfoil_mpi_discovery::Implementation;
use counterfoil_mpi_discovery::environment::{AS_ROOT, OVERSUBSCRIBED};
use counterfoil_profile::live;
use counterfoil_runtime::local::{JobDirectory, kill_with_descendants};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::arguments::{NEXT_PROGRAM, ranks_of};
use super::mpi::Mpi;
use crate::mpirun;

/// Time for mpirun to end its ranks after a signal; after that, mpirun and the ranks are killed.
const GRACE: Duration = Duration::from_secs(5);
/// Time for mpirun to react to a signal also sent to it by the terminal.
const TERMINAL_SIGNAL_GRACE: Duration = Duration::from_secs(1);
/// Progress display interval.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Error while running mpirun.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaunchError {
    #[error("cannot install signal handlers: {0}")]
    Signals(#[source] io::Error),
    #[error("cannot find this program's executable, which starts mpirun: {0}")]
    CurrentExe(#[source] io::Error),
    #[error("cannot start {}: {source}", mpirun.display())]
    Start { mpirun: PathBuf, source: io::Error },
    #[error("cannot wait for mpirun: {0}")]
    Wait(#[source] io::Error),
}

/// Run outcome.
#[derive(Debug)]
pub(super) struct Exit {
    /// The program's exit code as reported by mpirun, or 128 plus the signal that ended mpirun.
    pub(super) code: u8,
    pub(super) wall: Duration,
    /// True if a signal interrupted the run.
    pub(super) interrupted: bool,
}

/// Run parameters.
pub(super) struct Launch<'a> {
    pub(super) mpi: &'a Mpi,
    /// Library preloaded into the ranks.
    pub(super) library: &'a Path,
    /// Variables for the ranks.
    pub(super) variables: Vec<(&'static str, OsString)>,
    /// Number of processes.
    pub(super) processes: Option<u32>,
    pub(super) job: &'a JobDirectory,
    /// Output of mpirun is its own, not any rank's: it goes to standard error.
    pub(super) has_own_output: bool,
    /// Options for mpirun, before the user's own.
    pub(super) options: &'a [&'a str],
    pub(super) mpirun_options: &'a [OsString],
    /// Program and arguments; after each `:` another program in the job, preceded by mpirun's options for it.
    pub(super) program: &'a [OsString],
}

/// Actions while a job runs.
pub(super) trait Watch {
    /// Looks at the job, several times a second.
    ///
    /// Returns `false` if the job can't go on: it is killed then.
    fn update(&mut self) -> bool;

    /// Ends with the job.
    fn finish(&mut self);
}

impl Launch<'_> {
    /// Runs the job to its end, polling `watch`.
    pub(super) fn run(&self, watch: &mut dyn Watch) -> Result<Exit, LaunchError> {
        let signals = Signals::install().map_err(LaunchError::Signals)?;
        let mut command = self.command()?;
        let began = Instant::now();
        let child = command.spawn();
        let child = child.map_err(|source| LaunchError::Start { mpirun: self.mpi.mpirun.clone(), source })?;
        let mut running = Running { child, summaries: self.job.paths().traces() };
        let waited = running.wait(&signals, watch);
        let wall = began.elapsed();
        let status = match waited {
            Ok(status) => status,
            Err(error) => {
                running.kill();
                return Err(LaunchError::Wait(error));
            }
        };
        running.end_ranks();
        watch.finish();
        let code = match (status.code(), status.signal()) {
            (Some(code), _) => u8::try_from(code).unwrap_or(1),
            (None, signal) => signal.and_then(|signal| u8::try_from(128 + signal).ok()).unwrap_or(1),
        };
        Ok(Exit { code, wall, interrupted: signals.is_received() })
    }

    fn command(&self) -> Result<Command, LaunchError> {
        let mut command = mpirun::bound_to_parent(&self.mpi.mpirun).map_err(LaunchError::CurrentExe)?;
        if rustix::process::geteuid().is_root() {
            command.envs(AS_ROOT);
        }
        if ranks_of(self.processes, self.mpirun_options, self.program) > cores() {
            // The user's own options override the environment.
            command.envs(OVERSUBSCRIBED);
        }
        let mut exported: Vec<OsString> = Vec::new();
        let is_open_mpi = self.mpi.implementation == Implementation::OpenMpi;
        if let Some((name, path)) = library_path(self.mpi) {
            command.env(name, path);
            // Under MPICH, ranks get all variables.
            if is_open_mpi {
                exported.extend(["-x".into(), name.into()]);
            }
        }
        let preloaded = preload(self.library);
        // mpirun itself must not load the library.
        for (name, value) in self.variables.iter().chain([&preloaded]) {
            if is_open_mpi {
                let mut both = OsString::from(name);
                both.push("=");
                both.push(value);
                exported.extend(["-x".into(), both]);
            } else {
                exported.extend(["-genv".into(), name.into(), value.clone()]);
            }
        }
        command.args(self.options).args(&exported);
        if let Some(processes) = self.processes {
            command.args(["-n", &processes.to_string()]);
        }
        for word in self.mpirun_options.iter().chain(self.program) {
            command.arg(word);
            if word == NEXT_PROGRAM && is_open_mpi {
                // In version 4 they apply to a single program.
                command.args(&exported);
            }
        }
        if self.has_own_output {
            command.stdout(io::stderr());
        }
        Ok(command)
    }
}

/// Returns `true` if the process exists and isn't a zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Returns the variable with which the loader finds an MPI's libraries, if it needs one, and its value.
pub(crate) fn library_path(mpi: &Mpi) -> Option<(&'static str, OsString)> {
    const NAME: &str = "LD_LIBRARY_PATH";
    mpi.libraries.as_ref().map(|libraries| (NAME, prepend(libraries.as_os_str(), std::env::var_os(NAME))))
}

/// Returns the variable for preloading a library, and its value.
pub(crate) fn preload(library: &Path) -> (&'static str, OsString) {
    const NAME: &str = "LD_PRELOAD";
    (NAME, prepend(library.as_os_str(), std::env::var_os(NAME)))
}

/// Prepends a path to a colon-separated list.
fn prepend(path: &OsStr, list: Option<OsString>) -> OsString {
    let mut all = path.to_owned();
    if let Some(list) = list.filter(|list| !list.is_empty()) {
        all.push(":");
        all.push(list);
    }
    all
}

/// Number of cores as counted by Open MPI, without hardware threads.
fn cores() -> u32 {
    let threads =
        std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX));
    let smt = std::fs::read_to_string("/sys/devices/system/cpu/smt/active").unwrap_or_default();
    if smt.trim() == "1" { threads.div_ceil(2) } else { threads }
}

/// Handlers for signals interrupting the run.
struct Signals {
    last: Arc<AtomicUsize>,
    registered: Vec<signal_hook::SigId>,
}

impl Signals {
    fn install() -> io::Result<Signals> {
        let mut signals = Signals { last: Arc::new(AtomicUsize::new(0)), registered: Vec::new() };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let last = Arc::clone(&signals.last);
            signals.registered.push(signal_hook::flag::register_usize(signal, last, signal.unsigned_abs() as usize)?);
        }
        Ok(signals)
    }

    fn is_received(&self) -> bool {
        self.last.load(Ordering::Relaxed) != 0
    }

    /// Returns the last received signal.
    fn received(&self) -> Option<Signal> {
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

/// A running mpirun.
struct Running {
    child: Child,
    /// Directory with the ranks' live counters.
    summaries: PathBuf,
}

impl Running {
    /// Waits for mpirun's end; forwards signals, and kills mpirun if it doesn't react.
    fn wait(&mut self, signals: &Signals, watch: &mut dyn Watch) -> io::Result<ExitStatus> {
        let pid = self.pid();
        let pidfd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let has_terminal = io::stdin().is_terminal() || io::stderr().is_terminal();
        let mut interrupted_at: Option<Instant> = None;
        let mut is_forwarded = false;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if let Some(signal) = signals.received() {
                let elapsed = interrupted_at.get_or_insert_with(Instant::now).elapsed();
                // Ctrl-C reaches all processes of the terminal. A second signal would make mpirun abandon its ranks.
                let is_due = !(has_terminal && signal == Signal::INT) || elapsed > TERMINAL_SIGNAL_GRACE;
                if is_due && !is_forwarded {
                    is_forwarded = true;
                    // mpirun may have ended meanwhile.
                    let _ = pid.map(|pid| kill_process(pid, signal));
                }
                if elapsed > GRACE {
                    self.kill();
                    return self.child.wait();
                }
            }
            if !watch.update() {
                self.kill();
                return self.child.wait();
            }
            self.pause(pidfd.as_ref());
        }
    }

    /// Waits until mpirun ends or the poll interval is over.
    fn pause(&self, pidfd: Option<&OwnedFd>) {
        // A signal also ends the wait.
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

    /// Kills mpirun and all its descendants.
    fn kill(&mut self) {
        if kill_with_descendants(&self.child).is_err() {
            // It has no descriptor; an error means it has ended.
            let _ = self.child.kill();
        }
        self.end_ranks();
    }

    /// Kills ranks outliving mpirun and waits for their end, since they may have files of this job open.
    fn end_ranks(&self) {
        let own = self.summaries.as_os_str().as_encoded_bytes();
        let began = Instant::now();
        for pid in live::pids(&self.summaries) {
            let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { continue };
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            // The process id may have been reused before `pidfd_open`; our ranks have the job directory in their
            // environment.
            match std::fs::read(format!("/proc/{pid}/environ")) {
                Ok(environment) if environment.windows(own.len()).any(|window| window == own) => {
                    let _ = pidfd_send_signal(&process, Signal::KILL);
                }
                // An exiting process has no memory and so no environment any more.
                Ok(environment) if environment.is_empty() => {}
                Err(error) if error.kind() != io::ErrorKind::PermissionDenied => {}
                _ => continue,
            }
            while began.elapsed() < GRACE && !has_ended(&process) {}
        }
    }
}

/// Waits up to the poll interval; returns `true` if the process has ended.
fn has_ended(process: &OwnedFd) -> bool {
    let limit = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    use super::*;

    #[test]
    fn the_path_is_prepended_to_the_list() {
        assert_eq!(prepend(OsStr::new("/a"), None), "/a");
        assert_eq!(prepend(OsStr::new("/a"), Some("".into())), "/a");
        assert_eq!(prepend(OsStr::new("/a"), Some("/b:/c".into())), "/a:/b:/c");
    }

    #[test]
    fn descendants_are_found_and_killed_by_process_id() {
        let script = "sleep 1000 & echo $!; sleep 1000 & echo $!; wait";
        let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(2);
        let below: Vec<u32> = lines.map(|line| line.unwrap().parse().unwrap()).collect();
        let mut running = Running { child, summaries: "/nonexistent".into() };
        let began = Instant::now();
        running.kill();
        assert_eq!(running.child.wait().unwrap().signal(), Some(9));
        while below.iter().any(|pid| is_alive(*pid)) {
            assert!(began.elapsed() < Duration::from_secs(60), "{below:?} live on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
