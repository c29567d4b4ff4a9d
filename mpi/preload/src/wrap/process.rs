//! MPI begins and ends.

use std::ffi::c_int;
use std::fmt::Display;
use std::path::Path;

use counterfoil_profile::refused;
use mpi_sys as ffi;

use crate::say;
use crate::session::{self, BeginError, Ended, Session, enter};
use crate::settings::{self, Settings};

/// One of these is in the environment of a process that a launcher started; MPI itself sets some of them in `MPI_Init`.
const RANKS: [&str; 3] = ["PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"];

/// MPI begins.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn init(call: impl FnOnce() -> c_int) -> c_int {
    let is_launched = RANKS.iter().any(|name| std::env::var_os(name).is_some());
    let code = call();
    if code == 0 {
        begin(is_launched);
    }
    code
}

/// MPI begins, and threads may call it.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn init_thread(_: *mut c_int, call: impl FnOnce() -> c_int) -> c_int {
    // The same: `begin` asks MPI for the level itself.
    // SAFETY: as for this function.
    unsafe { init(call) }
}

/// Whether this process was started by an MPI program, and not by the user.
fn is_spawned() -> bool {
    // SAFETY: MPI is up; a constant of the shim and a pointer to a local variable.
    unsafe {
        let mut parent = ffi::RSMPI_COMM_NULL;
        ffi::PMPI_Comm_get_parent(&raw mut parent) == 0 && parent != ffi::RSMPI_COMM_NULL
    }
}

fn begin(is_launched: bool) {
    // Its ranks are numbered anew, and would take the names of others; its parents say that it isn't logged.
    if is_spawned() {
        return;
    }
    let (mut rank, mut ranks, mut level) = (0, 0, 0);
    // SAFETY: MPI is up; constants of the shim and pointers to local variables.
    let is_together = unsafe {
        ffi::PMPI_Comm_rank(ffi::RSMPI_COMM_WORLD, &raw mut rank);
        ffi::PMPI_Comm_size(ffi::RSMPI_COMM_WORLD, &raw mut ranks);
        ffi::PMPI_Query_thread(&raw mut level);
        level == ffi::RSMPI_THREAD_MULTIPLE
    };
    let (rank, ranks) = (rank.unsigned_abs(), ranks.unsigned_abs());
    say::as_rank(rank);
    let settings = match Settings::from_environment() {
        Ok(settings) => settings,
        Err(error) => {
            // All ranks have the same environment: one speaks for all.
            if rank == 0 {
                refuse(settings::summary_dir().as_deref(), rank, &error);
            }
            return;
        }
    };
    if !settings.is_on {
        return;
    }
    if !is_launched && ranks == 1 {
        say::say(format_args!(
            "the program runs without mpirun, so it is a job of one rank; `counterfoil run -n N -- PROGRAM` starts one of several"
        ));
    }
    let summary_dir = settings.summary_dir.clone();
    match Session::begin(settings, rank, ranks) {
        Ok(session) => session::put(session, is_together),
        // Who can't says why, and that is enough.
        Err(BeginError::Others { .. }) => {}
        Err(error) => refuse(summary_dir.as_deref(), rank, &error),
    }
}

/// Says why this rank can't log, and leaves it for `counterfoil run` to say at the end.
fn refuse(summary_dir: Option<&Path>, rank: u32, why: &dyn Display) {
    say::say(format_args!("{why}; nothing is logged"));
    if let Some(dir) = summary_dir {
        // Where it can't be left, it was said.
        let _ = refused::write(dir, rank, &why.to_string());
    }
}

/// MPI ends.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn finalize(call: impl FnOnce() -> c_int) -> c_int {
    if let Some(session) = session::take() {
        session.end();
    }
    call()
}

/// The program ends its job.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn abort(_: ffi::MPI_Comm, _: c_int, call: impl FnOnce() -> c_int) -> c_int {
    enter(|session| session.account(Ended::Aborted));
    call()
}

/// The program says whether it wants to be logged: `MPI_Pcontrol`.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn control(level: c_int, call: impl FnOnce() -> c_int) -> c_int {
    enter(|session| match level {
        0 => session.is_logging = false,
        1 => session.is_logging = true,
        // Other levels are for other tools.
        _ => {}
    });
    call()
}
