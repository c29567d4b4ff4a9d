//! Calls whose effects are not logged.

use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use counterfoil_profile::refused;
use mpi_sys as ffi;

use super::process::RANKS;
use crate::global::{enter, is_absent, share};
use crate::say::say;
use crate::settings::summary_dir;

static HAS_SESSION: AtomicBool = AtomicBool::new(false);

/// Calls reported already.
static SAID: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// Reports once that the call's effects are not logged.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn not_logged(name: &'static str, call: impl FnOnce() -> c_int) -> c_int {
    // Ranks other than 0 may call these alone.
    let is_alone = matches!(name, "MPI_Comm_accept" | "MPI_Comm_connect" | "MPI_Comm_join");
    let speaks = enter(|session| session.rank() == 0 || is_alone);
    let speaks = speaks.unwrap_or_else(|| launched_rank().is_none_or(|rank| rank == 0));
    let mut said = SAID.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if speaks && !said.contains(&name) {
        said.push(name);
        let what = if name.starts_with("MPI_Win") {
            "one-sided communication"
        } else if name.starts_with("MPI_File") {
            "reading and writing files"
        } else if name.starts_with("MPI_Session") {
            "what is sent in sessions without MPI_Init"
        } else if name.starts_with("MPI_Comm_spawn") {
            "what processes send that are spawned, and what is sent to them,"
        } else {
            "what is exchanged with processes outside MPI_COMM_WORLD"
        };
        say(format_args!("{name} was called: {what} is not logged, and can't be replayed"));
    }
    drop(said);
    if name == "MPI_Session_init" {
        refuse_sessions();
        HAS_SESSION.store(true, Ordering::Relaxed);
        let code = call();
        // Its level of thread support is its own.
        share();
        return code;
    }
    call()
}

/// Returns `true` if the program has begun a session of MPI.
pub(super) fn has_session() -> bool {
    HAS_SESSION.load(Ordering::Relaxed)
}

/// Tells `counterfoil run` why this rank isn't logged, unless it is: by MPI_Init.
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

/// Returns the rank that the launcher has given this process; `None` without one.
fn launched_rank() -> Option<u32> {
    RANKS.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// Returns `true` after MPI_Init, where nothing is logged by the user's wish.
fn is_world_initialized() -> bool {
    let mut flag = 0;
    // SAFETY: a pointer to a local variable; the call is allowed at any time.
    unsafe { ffi::PMPI_Initialized(&raw mut flag) };
    flag != 0
}
