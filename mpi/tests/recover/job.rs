//! One run of an example.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Lines, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use counterfoil_runtime::local::{SharedJobDirectory, clean, default_shm_root};
use tempfile::TempDir;

use crate::build::built;
use crate::hang::describe_processes;
use crate::mpirun::mpirun;
use crate::ulfm::outlives_failures;

const STEPS: u32 = 8_000;
/// Longest run of a job, in seconds, before it is killed.
const SECONDS_MAX: u64 = 120;
/// Time after which a job counts as hung, and its processes are described.
const HANGS_AFTER: Duration = Duration::from_secs(SECONDS_MAX - 30);
/// Time between two checks of a process.
const POLL: Duration = Duration::from_micros(100);
/// Number of ranks; further processes are spares.
pub(crate) const RANKS: usize = 4;

/// An example.
#[derive(Clone, Copy)]
pub(crate) enum Program {
    /// `recover`.
    Rod,
    /// `every_call recover`.
    EveryCall,
}

impl Program {
    /// Builds the example once and returns its path.
    fn path(self) -> &'static Path {
        static BUILT: [OnceLock<PathBuf>; 2] = [const { OnceLock::new() }; 2];
        let name = match self {
            Program::Rod => "recover",
            Program::EveryCall => "every_call",
        };
        BUILT[self as usize].get_or_init(|| built(&format!("examples/{name}")))
    }

    fn arguments(self) -> Vec<String> {
        match self {
            Program::Rod => vec![RANKS.to_string(), STEPS.to_string()],
            Program::EveryCall => vec!["recover".to_owned(), RANKS.to_string()],
        }
    }

    /// Returns the program's last reported step, and the steps between two reports.
    pub(crate) fn steps(self) -> (u32, u32) {
        match self {
            Program::Rod => (STEPS, STEPS / 10),
            Program::EveryCall => (22, 1),
        }
    }

    /// Returns the last line common to all runs.
    fn result(self) -> &'static str {
        match self {
            Program::Rod => "heat 4995000.000000006 (41530dee00000006) after 8000 steps",
            Program::EveryCall => "every call has returned its value",
        }
    }
}

/// Start parameters of an example.
///
/// Copies have the same name and directory for temporary files.
#[derive(Clone)]
pub(crate) struct Job {
    program: Program,
    processes: usize,
    options: Vec<OsString>,
    /// Program that starts the example, its path and arguments following.
    wrapper: Option<PathBuf>,
    /// Argument: a tier or a rule.
    setting: Option<&'static str>,
    /// Last argument, after a setting: the job's name.
    name: Option<String>,
    temporary: Rc<TempDir>,
}

impl Job {
    pub(crate) fn new(processes: usize) -> Job {
        let temporary = Rc::new(tempfile::Builder::new().prefix("cfr").tempdir_in("/tmp").unwrap());
        let program = Program::Rod;
        Job { program, processes, options: Vec::new(), wrapper: None, setting: None, name: None, temporary }
    }

    /// Names the job, unlike all others.
    pub(crate) fn with_name(self) -> Job {
        let name = self.temporary.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.').to_owned();
        self.named(&name)
    }

    pub(crate) fn named(self, name: &str) -> Job {
        Job { name: Some(name.to_owned()), ..self }
    }

    /// Returns the named job's directories, in memory and for checkpoints.
    pub(crate) fn directories(&self) -> [PathBuf; 2] {
        let name = SharedJobDirectory::directory_name(self.name.as_deref().unwrap()).unwrap();
        [default_shm_root().join(&name), self.temporary.path().join(name + "-checkpoints")]
    }

    /// Joins the named job as its processes do.
    pub(crate) fn join(&self) -> SharedJobDirectory {
        let name = SharedJobDirectory::directory_name(self.name.as_deref().unwrap()).unwrap();
        SharedJobDirectory::join(&name, &default_shm_root(), self.temporary.path()).unwrap()
    }

    /// Returns the same job with another directory for temporary files.
    pub(crate) fn with_other_temporary(self) -> Job {
        Job { temporary: Job::new(self.processes).temporary, ..self }
    }

    /// Adds `mpirun` options.
    pub(crate) fn with_options(mut self, options: &[&str]) -> Job {
        self.options.extend(options.iter().map(OsString::from));
        self
    }

    pub(crate) fn with_program(self, program: Program) -> Job {
        Job { program, ..self }
    }

    pub(crate) fn program(&self) -> Program {
        self.program
    }

    pub(crate) fn with_wrapper(self, wrapper: PathBuf) -> Job {
        Job { wrapper: Some(wrapper), ..self }
    }

    pub(crate) fn with_setting(self, setting: &'static str) -> Job {
        Job { setting: Some(setting), ..self }
    }

    pub(crate) fn start(self) -> Running {
        let Job { temporary, .. } = self;
        // A hung launcher ignores SIGTERM.
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", &SECONDS_MAX.to_string()]).arg(mpirun());
        if outlives_failures() {
            command.args(["--with-ft", "ulfm", "--mca", "async_mpi_finalize", "1"]);
        }
        command.args(["-n", &self.processes.to_string()]).args(self.options).args(self.wrapper);
        command.arg(self.program.path()).args(self.program.arguments()).args(self.setting).args(self.name);
        command.env("TMPDIR", temporary.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut job = command.spawn().unwrap();
        let output = BufReader::new(job.stdout.take().unwrap()).lines();
        let (ended, end) = channel::<()>();
        let directory = temporary.path().to_owned();
        let watch = thread::spawn(move || match end.recv_timeout(HANGS_AFTER) {
            Err(RecvTimeoutError::Timeout) => describe_processes(&directory),
            _ => String::new(),
        });
        Running {
            program: self.program,
            job,
            watch: Some((ended, watch)),
            output,
            said: Vec::new(),
            processes: vec![None; RANKS],
            joined: 0,
            step: 0,
            temporary,
        }
    }
}

/// A running job.
pub(crate) struct Running {
    program: Program,
    job: Child,
    /// Describes a hung job's processes, unless the sender is dropped before.
    watch: Option<(Sender<()>, JoinHandle<String>)>,
    output: Lines<BufReader<ChildStdout>>,
    /// Lines of output so far.
    said: Vec<String>,
    /// For each rank: its process, unless killed.
    processes: Vec<Option<u32>>,
    /// Number of processes that became ranks.
    joined: usize,
    /// Last step reported by rank 0.
    step: u32,
    temporary: Rc<TempDir>,
}

impl Running {
    /// Reads a line of output; returns `false` at the end of the job.
    fn read_line(&mut self) -> bool {
        let Some(line) = self.output.next() else { return false };
        let line = line.unwrap();
        if let Some((rank, process)) = line.strip_prefix("rank ").and_then(|rest| rest.split_once(" is process ")) {
            self.processes[rank.parse::<usize>().unwrap()] = Some(process.parse().unwrap());
            self.joined += 1;
        }
        let step = line.strip_prefix("step ").and_then(|rest| rest.split_once(" of "));
        self.step = step.map_or(self.step, |(step, _)| step.parse().unwrap());
        self.said.push(line);
        true
    }

    /// Waits until every rank has a process.
    #[track_caller]
    pub(crate) fn wait_for_ranks(&mut self) {
        while self.processes.iter().any(Option::is_none) {
            assert!(self.read_line(), "the job ended too early: {}", self.describe());
        }
    }

    /// Waits until rank 0 has taken its checkpoint for a step, or for a later one.
    ///
    /// The job then has its remaining steps ahead.
    #[track_caller]
    pub(crate) fn wait_for_step(&mut self, step: u32) {
        while self.step < step {
            assert!(self.read_line(), "the job ended too early: {}", self.describe());
        }
    }

    /// Waits until a rank's process has used this much processor time from now on: on a busy machine, this is the same
    /// part of its work.
    #[track_caller]
    pub(crate) fn wait_until_has_run(&self, rank: usize, time: Duration) {
        let stat = format!("/proc/{}/schedstat", self.process(rank));
        let has_run = || {
            let stat = std::fs::read_to_string(&stat).unwrap_or_else(|error| panic!("rank {rank} has ended: {error}"));
            // Nanoseconds on a processor, and others.
            Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
        };
        let end = has_run() + time;
        while has_run() < end {
            thread::sleep(POLL);
        }
    }

    /// Returns a rank's process.
    pub(crate) fn process(&self, rank: usize) -> u32 {
        self.processes[rank].unwrap()
    }

    /// Kills a rank's process.
    #[track_caller]
    pub(crate) fn kill(&mut self, rank: usize) {
        let process = self.process(rank);
        kill(process);
        self.handle_killed(&[process]);
    }

    /// Stops a rank's process.
    #[track_caller]
    pub(crate) fn stop(&self, rank: usize) {
        signal("-STOP", self.process(rank));
    }

    /// Lets a rank's process hang in MPI, with the library `hung`.
    ///
    /// It counts as dead then.
    #[track_caller]
    pub(crate) fn hang(&mut self, rank: usize) {
        let process = self.process(rank);
        signal("-USR1", process);
        self.handle_killed(&[process]);
    }

    /// Kills the launcher.
    #[track_caller]
    pub(crate) fn kill_launcher(&self) {
        let timeout = self.job.id();
        let children = std::fs::read_to_string(format!("/proc/{timeout}/task/{timeout}/children")).unwrap();
        kill(children.trim().parse().unwrap());
    }

    /// Returns `true` if the job has printed this line so far.
    pub(crate) fn has_said(&self, line: &str) -> bool {
        self.said.iter().any(|said| said == line)
    }

    /// Waits for the end of the job after its launcher was killed.
    #[track_caller]
    pub(crate) fn lose_all(mut self) {
        while self.read_line() {}
        self.job.wait().unwrap();
        clean(&[default_shm_root()]).unwrap();
    }

    /// Records these processes as killed.
    pub(crate) fn handle_killed(&mut self, killed: &[u32]) {
        for process in &mut self.processes {
            *process = process.filter(|process| !killed.contains(process));
        }
    }

    /// Waits for the end of the job, and checks its output and leftovers.
    ///
    /// Returns the number of processes that became ranks.
    #[track_caller]
    pub(crate) fn finish(self) -> usize {
        let temporary = Rc::clone(&self.temporary);
        let joined = self.complete();
        let left = std::fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("counterfoil-")).collect();
        assert!(left.is_empty(), "{left:?}");
        joined
    }

    /// Waits for the end of the job, and checks its output.
    ///
    /// Returns the number of processes that became ranks.
    #[track_caller]
    pub(crate) fn complete(mut self) -> usize {
        while self.read_line() {}
        let printed = self.said.last().map(String::as_str) == Some(self.program.result());
        assert!(printed, "{}", self.describe());
        self.job.wait().unwrap();
        self.joined
    }

    /// Waits for the end of the job, failed with this error.
    #[track_caller]
    pub(crate) fn fail(self, words: &str) {
        let (_, described) = self.end();
        assert!(described.contains(words), "{described}");
        // A failed job leaves its ranks' logs.
        clean(&[default_shm_root()]).unwrap();
    }

    /// Same as [`fail`](Self::fail), with this exit code.
    #[track_caller]
    pub(crate) fn fail_with(self, expected: i32, words: &str) {
        let (code, described) = self.end();
        assert!(code == expected && described.contains(words), "{code}: {described}");
        clean(&[default_shm_root()]).unwrap();
    }

    /// Waits for the end of the failed job.
    #[track_caller]
    pub(crate) fn lose(self) {
        self.end();
    }

    /// Waits for the end of the failed job; returns its exit code and output.
    #[track_caller]
    fn end(mut self) -> (i32, String) {
        while self.read_line() {}
        let described = self.describe();
        let code = self.job.wait().unwrap().code();
        // Without a code, it hung and was killed.
        assert!(code.is_some_and(|code| code != 0), "{code:?}: {described}");
        (code.unwrap(), described)
    }

    /// Returns the first step reported by the program.
    #[track_caller]
    pub(crate) fn first_step(&mut self) -> u32 {
        while self.step == 0 {
            assert!(self.read_line(), "the job ended too early: {}", self.describe());
        }
        self.step
    }

    /// Returns the ended job's output, with a description of its processes if it has hung.
    fn describe(&mut self) -> String {
        let mut errors = String::new();
        self.job.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let hung = self.watch.take().map_or_else(String::new, |(ended, watch)| {
            drop(ended);
            watch.join().unwrap()
        });
        format!("{:?}\n{errors}{hung}", self.said)
    }
}

#[track_caller]
pub(crate) fn kill(process: u32) {
    signal("-KILL", process);
}

#[track_caller]
fn signal(signal: &str, process: u32) {
    assert!(Command::new("kill").args([signal, &process.to_string()]).status().unwrap().success(), "{process}");
}
