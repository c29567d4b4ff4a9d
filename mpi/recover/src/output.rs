//! Standard output and error of a process that may become a rank.
//!
//! A replaced rank repeats its predecessor's output. So each process writes to its own files, and `counterfoil run`
//! copies only output not printed before by the rank.

use std::env;
use std::ffi::{c_int, c_void};
use std::fs::{self, OpenOptions};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use counterfoil_settings::recover::{OUTPUT, RecoverSettings, Started, Stream};

use crate::alloc;
use crate::process::report;

unsafe extern "C" {
    fn counterfoil_recover_buffer_lines();
    fn counterfoil_recover_has_printed() -> c_int;
    /// glibc's: calls `function` with the exit code.
    pub(crate) fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// This process's id; a forked child has another one.
static PROCESS_ID: AtomicU32 = AtomicU32::new(0);
static HAS_CALLED_INIT: AtomicBool = AtomicBool::new(false);

/// Variables for a process's number in its job, as set by the MPIs' launchers.
const PROCESS: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];

/// Runs when the library is loaded, before the program.
#[used]
#[unsafe(link_section = ".init_array")]
static REDIRECT: extern "C" fn() = redirect;

/// Returns the number of this process's output files, if there are any.
pub(crate) fn number() -> Option<u32> {
    env::var(OUTPUT).ok()?.parse().ok()
}

/// Returns `true` if standard output is this process's file and a write has failed.
///
/// Programs seldom check.
pub(crate) fn has_lost_output() -> bool {
    // SAFETY: a C function without preconditions.
    number().is_some() && unsafe { counterfoil_recover_has_printed() } == 0
}

/// Reports that this process has called `MPI_Init`.
pub(crate) fn note_init(settings: &RecoverSettings) {
    HAS_CALLED_INIT.store(true, Ordering::Relaxed);
    if let Some(number) = number() {
        report(settings, &Started::file(number), &Started::own(true));
    }
}

/// Leaves a file if this process exits by itself before it has called `MPI_Init`.
///
/// It was not killed then, nor ended by an MPI that has lost other processes.
extern "C" fn note_exit(_: c_int, _: *mut c_void) {
    // A child forked by the program has the same function.
    let is_own = PROCESS_ID.load(Ordering::Relaxed) == std::process::id();
    if let Some(number) = number().filter(|_| is_own && !HAS_CALLED_INIT.load(Ordering::Relaxed))
        && let Ok(Some(settings)) = RecoverSettings::from_env()
    {
        let path = settings.report_dir.join(RecoverSettings::exit_file(number));
        let _ = fs::write(path, std::process::id().to_string());
    }
}

extern "C" fn redirect() {
    let Ok(Some(settings)) = RecoverSettings::from_env() else { return };
    alloc::begin();
    // The ranks' launcher and the ranks' children have no files of their own.
    if number().is_some() {
        return;
    }
    let Some(process) = PROCESS.iter().find_map(|name| env::var(name).ok()?.parse::<u32>().ok()) else { return };
    // A missing directory is an error in MPI_Init.
    if settings.replay.is_some() || !settings.report_dir.is_dir() {
        return;
    }
    let (number, mut is_redirected) = (settings.output_of(process), false);
    for stream in Stream::ALL {
        let path = settings.report_dir.join(stream.file(number));
        let Ok(file) = OpenOptions::new().create(true).append(true).open(path) else { continue };
        // SAFETY: two of this process's descriptors.
        is_redirected |= unsafe { libc::dup2(file.as_raw_fd(), stream.descriptor()) } >= 0;
    }
    report(&settings, &Started::file(number), &Started::own(false));
    PROCESS_ID.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: a function without preconditions.
    unsafe { on_exit(note_exit, std::ptr::null_mut()) };
    if is_redirected {
        // SAFETY: the process has one thread: it is being started.
        unsafe {
            env::set_var(OUTPUT, number.to_string());
            counterfoil_recover_buffer_lines();
        }
    }
}
