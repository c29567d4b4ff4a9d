//! MPI sessions.

use std::ffi::c_int;

use counterfoil_profile::refused;
use mpi_sys as ffi;

use super::not_logged::{launched_rank, not_logged};
use super::process::summary_dir;
use crate::global::{is_absent, share};

/// `MPI_Session_init`.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn session_init(_: *mut ffi::MPI_Session, call: impl FnOnce() -> c_int) -> c_int {
    refuse_sessions();
    // SAFETY: as for this function.
    let code = unsafe { not_logged("MPI_Session_init", call) };
    // It has its own thread support level.
    share();
    code
}

/// Tells `counterfoil run` why this rank isn't logged, unless MPI_Init has begun logging.
fn refuse_sessions() {
    if !is_absent() || is_world_initialized() {
        return;
    }
    if let (Some(dir), Some(rank)) = (summary_dir(), launched_rank()) {
        // Without the file, the line of this call remains.
        let _ = refused::write(
            &dir,
            rank,
            "the program uses MPI's sessions without MPI_Init, and only what is sent after MPI_Init is logged",
        );
    }
}

/// Returns `true` after MPI_Init.
///
/// Without logging then, the user has disabled it.
fn is_world_initialized() -> bool {
    let mut flag = 0;
    // SAFETY: a pointer to a local variable; the call is allowed at any time.
    unsafe { ffi::PMPI_Initialized(&raw mut flag) };
    flag != 0
}
