//! What is passed on and not logged.

use std::ffi::c_int;
use std::sync::Mutex;

use crate::say::say;
use crate::session::enter;

/// What was said already.
static SAID: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// Says once that what this call does is not logged.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn not_logged(name: &'static str, call: impl FnOnce() -> c_int) -> c_int {
    // Others than rank 0 may be alone in calling it, each with another call.
    let is_alone = matches!(name, "MPI_Comm_accept" | "MPI_Comm_connect" | "MPI_Comm_join");
    let speaks = enter(|session| session.rank == 0 || is_alone).unwrap_or(true);
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
