//! MPI's begin and end.

use std::env::var_os;
use std::ffi::c_int;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use counterfoil_profile::{Ended, refused};
use counterfoil_settings::{RunSettings, SUMMARY_DIR};
use mpi_sys as ffi;

use crate::global::{self, enter};
use crate::say;
use crate::session::{BeginError, Session};

/// Variables, one of which is set by a launcher.
///
/// MPI itself sets some of them in `MPI_Init`.
pub(super) const RANKS: [&str; 3] = ["PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"];

/// `MPI_Init`.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn init(call: impl FnOnce() -> c_int) -> c_int {
    let is_launched = RANKS.iter().any(|name| var_os(name).is_some());
    let code = call();
    if code == 0 {
        begin(is_launched);
    }
    code
}

/// `MPI_Init_thread`.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn init_thread(_: *mut c_int, call: impl FnOnce() -> c_int) -> c_int {
    // `begin` asks MPI for the thread level itself.
    // SAFETY: as for this function.
    unsafe { init(call) }
}

/// Returns `true` if an MPI program started this process (`MPI_Comm_spawn`).
fn is_spawned() -> bool {
    // SAFETY: MPI is up; a constant of the shim and a pointer to a local variable.
    unsafe {
        let mut parent = ffi::RSMPI_COMM_NULL;
        ffi::PMPI_Comm_get_parent(&raw mut parent) == 0 && parent != ffi::RSMPI_COMM_NULL
    }
}

fn begin(is_launched: bool) {
    // Its ranks are numbered from 0 again, so its files would replace others; its parent reports that it isn't logged.
    if is_spawned() {
        return;
    }
    let (mut rank, mut ranks, mut level) = (0, 0, 0);
    // SAFETY: MPI is up; constants of the shim and pointers to local variables.
    let is_multiple = unsafe {
        ffi::PMPI_Comm_rank(ffi::RSMPI_COMM_WORLD, &raw mut rank);
        ffi::PMPI_Comm_size(ffi::RSMPI_COMM_WORLD, &raw mut ranks);
        ffi::PMPI_Query_thread(&raw mut level);
        level == ffi::RSMPI_THREAD_MULTIPLE || global::is_shared()
    };
    let (rank, ranks) = (rank.unsigned_abs(), ranks.unsigned_abs());
    say::as_rank(rank);
    let settings = match RunSettings::from_env(|name| var_os(name)) {
        Ok(settings) => settings,
        Err(error) => {
            // All ranks have the same environment: one reports for all.
            if rank == 0 {
                refuse(summary_dir().as_deref(), rank, &error);
            }
            return;
        }
    };
    if !settings.logging {
        return;
    }
    if !is_launched && ranks == 1 {
        say::say(format_args!(
            "the program runs without mpirun, so it is a job of one rank; `counterfoil run -n N -- PROGRAM` starts one of several"
        ));
    }
    let summary_dir = settings.summary_dir.clone();
    if let Some(dir) = &summary_dir {
        // From sessions begun by the program before.
        refused::withdraw(dir, rank);
    }
    match Session::begin(settings, (rank, ranks), is_multiple) {
        Ok(session) => global::begin(session, is_multiple),
        // Ranks unable to make their logs report it.
        Err(BeginError::Others { .. }) => {}
        Err(error) => refuse(summary_dir.as_deref(), rank, &error),
    }
}

/// Returns the summaries' directory, whatever the other settings are.
pub(super) fn summary_dir() -> Option<PathBuf> {
    var_os(SUMMARY_DIR).filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// Reports why this rank can't log, also in a file for `counterfoil run`.
fn refuse(summary_dir: Option<&Path>, rank: u32, why: &dyn Display) {
    say::say(format_args!("{why}; nothing is logged"));
    if let Some(dir) = summary_dir {
        // Without the file, the line above remains.
        let _ = refused::write(dir, rank, &why.to_string());
    }
}

/// `MPI_Finalize`.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn finalize(call: impl FnOnce() -> c_int) -> c_int {
    if let Some(session) = global::end() {
        session.end();
    }
    call()
}

/// `MPI_Abort`.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn abort(_: ffi::MPI_Comm, _: c_int, call: impl FnOnce() -> c_int) -> c_int {
    enter(|session| session.write_account(Ended::Aborted));
    call()
}

/// `MPI_Pcontrol`: level 0 turns logging off, every higher one on (MPI 4.0, section 15.2.4).
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn control(level: c_int, call: impl FnOnce() -> c_int) -> c_int {
    // Negative levels are not defined.
    if level >= 0 {
        enter(|session| session.set_logging(level > 0));
    }
    call()
}
