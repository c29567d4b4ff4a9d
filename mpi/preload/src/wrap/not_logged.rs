//! Calls whose effects are not logged.

use std::ffi::c_int;
use std::sync::Mutex;

use super::process::RANKS;
use crate::global::enter;
use crate::say::say;

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
    call()
}

/// Returns this process's rank from the launcher; `None` without one.
pub(super) fn launched_rank() -> Option<u32> {
    RANKS.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}
