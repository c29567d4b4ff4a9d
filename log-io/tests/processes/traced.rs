//! Observes the syncs, writes and holes that a child process requests from the kernel, by system calls and through an
//! io_uring.
//!
//! A seccomp filter stops the child before each call that can start one of these, for its tracer: this program. At a
//! stop, `/proc` has the call's arguments, its descriptors' files, and a ring's queued requests. This needs no
//! privilege, and the code under test isn't changed. A filter alone can't see a ring's requests, which lie in memory;
//! `LD_PRELOAD` can't see system calls made without the C library, as rustix makes them; kernel tracepoints need
//! privileges that a container doesn't have.

use std::collections::BTreeSet;
use std::fs::{File, read_to_string};
use std::io::{Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output};

use counterfoil_test_support::child;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Calls that can start a file or directory sync, a write, or a hole.
const CALLS: [i64; 9] = [
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_io_uring_enter,
    // Not used by a backend: reported, so that a test comparing files notices it.
    libc::SYS_sync,
    libc::SYS_syncfs,
    libc::SYS_sync_file_range,
];

/// The stops after which the tracer continues the child on its own.
const STOPS: Options =
    Options::PTRACE_O_TRACESECCOMP.union(Options::PTRACE_O_TRACECLONE).union(Options::PTRACE_O_EXITKILL);

/// Panic message of [`begin`].
const REFUSED: &str = "this system refuses what is needed to observe syncs";

/// A sync requested from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sync {
    /// The call, or the ring request.
    pub(crate) by: &'static str,
    /// The path of the file or directory.
    pub(crate) path: PathBuf,
}

/// A write, a hole, or a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A system call writes.
    Write,
    /// A ring gets this many writes or reads, possibly performed later.
    Queued(usize),
    /// The end of requests of a ring is awaited.
    Awaited,
    /// A hole is punched.
    Punch,
}

/// Lets this thread, and threads started by it, be traced by the process that started this one with [`syncs_of`] or
/// [`steps_of`].
///
/// # Panics
/// Tracing or seccomp filters are refused.
pub(crate) fn begin() {
    ptrace::traceme().unwrap_or_else(|error| panic!("{REFUSED}: ptrace: {error}"));
    // The tracer sets its options.
    raise(Signal::SIGSTOP).unwrap();
    let rules = CALLS.iter().map(|call| (*call, Vec::new())).collect();
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Trace(0), arch).unwrap();
    let filter = BpfProgram::try_from(filter).unwrap();
    seccompiler::apply_filter(&filter).unwrap_or_else(|error| panic!("{REFUSED}: a seccomp filter: {error}"));
}

/// Runs the ignored test `test` in this program, which calls [`begin`], and returns the later syncs, in order; `None`
/// where the system refuses tracing.
///
/// # Panics
/// The test fails, or its syncs can't be observed.
pub(crate) fn syncs_of(test: &str, argument: &str) -> Option<Vec<Sync>> {
    observe(test, argument, syncs_at)
}

/// Returns the writes and holes in a test, and the waits between them; see [`syncs_of`].
///
/// # Panics
/// The test fails, or its writes can't be observed.
pub(crate) fn steps_of(test: &str, argument: &str) -> Option<Vec<Step>> {
    observe(test, argument, steps_at)
}

/// Runs a test, and calls `at` with each thread stopped before one of [`CALLS`].
///
/// Returns its results.
#[expect(clippy::zombie_processes, reason = "`waitpid` waits for it, as for its threads")]
fn observe<T>(test: &str, argument: &str, at: fn(Pid) -> Vec<T>) -> Option<Vec<T>> {
    let (mut printed, mut errors) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(child::arguments(test)).env(child::ARGUMENT, argument);
    command.stdout(printed.try_clone().unwrap()).stderr(errors.try_clone().unwrap());
    // The tracer is a thread: this function runs in one.
    let process = command.spawn().unwrap();
    let leader = Pid::from_raw(process.id().cast_signed());
    let mut seen = Vec::new();
    let mut tracees = BTreeSet::new();
    let status = loop {
        // Other threads have their own children.
        match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)).unwrap() {
            WaitStatus::Exited(pid, code) if pid == leader => break ExitStatus::from_raw(code << 8),
            WaitStatus::Signaled(pid, signal, _) if pid == leader => break ExitStatus::from_raw(signal as i32),
            // A new thread begins with a stop, too.
            WaitStatus::Stopped(thread, Signal::SIGSTOP) if tracees.insert(thread) => {
                ptrace::setoptions(thread, STOPS).expect("tracing a process without stops of a seccomp filter");
                ptrace::cont(thread, None).unwrap();
            }
            WaitStatus::Stopped(thread, signal) => ptrace::cont(thread, signal).unwrap(),
            WaitStatus::PtraceEvent(thread, _, event) => {
                if event == libc::PTRACE_EVENT_SECCOMP {
                    seen.extend(at(thread));
                }
                ptrace::cont(thread, None).unwrap();
            }
            _ => {}
        }
    };
    let read = |file: &mut File| {
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).unwrap();
        bytes
    };
    let output = Output { status, stdout: read(&mut printed), stderr: read(&mut errors) };
    let is_refused = |text: &[u8]| String::from_utf8_lossy(text).contains(REFUSED);
    if !status.success() && (is_refused(&output.stdout) || is_refused(&output.stderr)) {
        return None;
    }
    child::assert_passed(&output, argument);
    assert!(!tracees.is_empty(), "the process wasn't traced");
    Some(seen)
}

/// Returns `true` if this kernel lists the queued requests of an io_uring: Linux 5.16 does.
pub(crate) fn lists_requests() -> bool {
    let release = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.trim().parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (5, 16)
}

/// Returns the number and the first three arguments of the call before which this thread is stopped.
fn call_of(thread: Pid) -> (i64, [u64; 3]) {
    let line = read_to_string(format!("/proc/{thread}/syscall")).expect("the call of a stopped thread, in /proc");
    let mut words = line.split(' ');
    let call: i64 = words.next().unwrap().parse().unwrap_or_else(|_| panic!("no call of a stopped thread: {line}"));
    let mut argument = || u64::from_str_radix(words.next().unwrap().trim_start_matches("0x"), 16).unwrap();
    (call, [argument(), argument(), argument()])
}

/// Returns the syncs to be started by the call before which this thread is stopped.
fn syncs_at(thread: Pid) -> Vec<Sync> {
    let (call, [file, submitted, awaited]) = call_of(thread);
    let by = match call {
        libc::SYS_pwrite64 | libc::SYS_pwritev | libc::SYS_fallocate => return Vec::new(),
        libc::SYS_fsync => "fsync",
        libc::SYS_fdatasync => "fdatasync",
        libc::SYS_io_uring_enter => return syncs_of_a_ring(thread, file, submitted, awaited),
        _ => panic!("a call that syncs something else: {call}"),
    };
    vec![Sync { by, path: path(thread, &file.to_string()) }]
}

/// Returns the writes, ring reads and hole to be started by the call before which this thread is stopped, and its wait
/// if it waits.
fn steps_at(thread: Pid) -> Vec<Step> {
    let (call, [file, second, awaited]) = call_of(thread);
    match call {
        libc::SYS_pwrite64 | libc::SYS_pwritev => vec![Step::Write],
        libc::SYS_fallocate if second & libc::FALLOC_FL_PUNCH_HOLE as u64 != 0 => vec![Step::Punch],
        libc::SYS_io_uring_enter => {
            let requests = requests_of_a_ring(thread, file);
            // Linux before 6.0 lists numbers: WRITEV, WRITE_FIXED, READ and WRITE.
            let is_transfer = |request: &&String| {
                let operation = request.split(", ").next().unwrap_or_default();
                operation.starts_with("WRITE") || operation == "READ" || ["2", "5", "22", "23"].contains(&operation)
            };
            let transfers = requests.iter().take(second as usize).filter(is_transfer).count();
            let queued = (transfers > 0).then_some(Step::Queued(transfers));
            queued.into_iter().chain((awaited > 0).then_some(Step::Awaited)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the queued requests of a ring: each begins with its operation.
fn requests_of_a_ring(thread: Pid, ring: u64) -> Vec<String> {
    let info = read_to_string(format!("/proc/{thread}/fdinfo/{ring}")).expect("the state of a ring, in /proc");
    let field = |name| info.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().parse::<usize>());
    let queued = match field("SQEs:") {
        Some(Ok(queued)) => queued,
        _ => panic!("this kernel doesn't list the requests of an io_uring (Linux 5.16 does):\n{info}"),
    };
    let requests: Vec<&str> = info.lines().filter_map(|line| Some(line.split_once(": opcode:")?.1)).collect();
    assert_eq!(requests.len(), queued, "the requests of a ring:\n{info}");
    requests.into_iter().map(str::to_owned).collect()
}

/// Returns the syncs among the first `submitted` queued requests of a ring.
fn syncs_of_a_ring(thread: Pid, ring: u64, submitted: u64, awaited: u64) -> Vec<Sync> {
    let requests = requests_of_a_ring(thread, ring);
    let mut syncs = Vec::new();
    for request in requests.iter().take(submitted as usize) {
        let mut fields = request.split(", ");
        // Linux before 6.0 lists numbers.
        if !matches!(fields.next(), Some("FSYNC" | "3")) {
            continue;
        }
        let file = fields.find_map(|field| field.strip_prefix("fd:")).unwrap_or_else(|| panic!("no file: {request}"));
        let by = if awaited == 0 { "FSYNC that isn't awaited" } else { "FSYNC" };
        syncs.push(Sync { by, path: path(thread, file) });
    }
    syncs
}

fn path(thread: Pid, file: &str) -> PathBuf {
    std::fs::read_link(format!("/proc/{thread}/fd/{file}")).expect("the file of a descriptor, in /proc")
}
