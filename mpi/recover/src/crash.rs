//! Ranks that die by their own fault: a signal caused by the program.
//!
//! A replacement does the same again and dies, too. So each such death leaves a mark, and after the second one the job
//! ends with one line instead of using up its spares.

use std::cell::UnsafeCell;
use std::ffi::{CString, c_int};
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use counterfoil_settings::recover::RecoverSettings;

/// Deaths after which a rank isn't replaced again.
const DEATHS_MAX: usize = 2;
/// Signals caused by a program.
const SIGNALS: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT];

/// Path of the file with a byte for each death of this rank: the signal.
///
/// Never freed.
static MARKS: AtomicPtr<libc::c_char> = AtomicPtr::new(ptr::null_mut());
/// Bits for [`SIGNALS`], by index, without a handler in the program.
static UNHANDLED: AtomicU32 = AtomicU32::new(0);
/// The MPI's actions for [`SIGNALS`], which run afterwards.
static NEXT: Actions = Actions(UnsafeCell::new([const { MaybeUninit::uninit() }; SIGNALS.len()]));

/// Signal actions.
struct Actions(UnsafeCell<[MaybeUninit<libc::sigaction>; SIGNALS.len()]>);

// SAFETY: each is written once, before the handler that reads it is installed.
unsafe impl Sync for Actions {}

/// Records the signals handled by the program itself: before the MPI is initialised, which handles some.
pub(crate) fn note_handlers() {
    for (index, signal) in SIGNALS.into_iter().enumerate() {
        // SAFETY: integers and a pointer, for which zero is a value.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_DFL {
                UNHANDLED.fetch_or(1 << index, Ordering::Relaxed);
            }
        }
    }
}

fn path(settings: &RecoverSettings, rank: u32) -> PathBuf {
    settings.report_dir.join(format!("rank-{rank}.crashed"))
}

/// Returns the last signal of a rank that has died too often by its own fault to be replaced.
pub(crate) fn fatal_signal(settings: &RecoverSettings, rank: u32) -> Option<c_int> {
    let marks = fs::read(path(settings, rank)).ok().filter(|marks| marks.len() >= DEATHS_MAX)?;
    marks.last().map(|signal| c_int::from(*signal))
}

/// Leaves a mark if this rank dies by its own fault from now on.
///
/// The program's own handlers stay.
pub(crate) fn watch(settings: &RecoverSettings, rank: u32) {
    let Ok(path) = CString::new(path(settings, rank).as_os_str().as_bytes()) else { return };
    MARKS.store(path.into_raw(), Ordering::Release);
    for (index, signal) in SIGNALS.into_iter().enumerate() {
        if UNHANDLED.load(Ordering::Relaxed) & 1 << index == 0 {
            continue;
        }
        // SAFETY: integers and a pointer, for which zero is a value; the handler calls only functions allowed in
        // handlers, and its action is stored before.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, ptr::null(), &raw mut action) == 0 {
                (*NEXT.0.get())[index].write(action);
                libc::signal(signal, handle as extern "C" fn(c_int) as libc::sighandler_t);
            }
        }
    }
}

/// Leaves a mark, and lets the signal end the process, after the MPI's own action.
extern "C" fn handle(signal: c_int) {
    let path = MARKS.load(Ordering::Acquire);
    // SAFETY: functions allowed in handlers; a path that is never freed, and an action stored before.
    unsafe {
        let file = libc::open(path, libc::O_CREAT | libc::O_APPEND | libc::O_WRONLY, 0o600);
        if file >= 0 {
            let mark = signal as u8;
            libc::write(file, (&raw const mark).cast(), 1);
            libc::close(file);
        }
        if let Some(index) = SIGNALS.iter().position(|known| *known == signal) {
            libc::sigaction(signal, (*NEXT.0.get())[index].as_ptr(), ptr::null_mut());
        }
        libc::raise(signal);
    }
}
