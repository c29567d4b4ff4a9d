//! This process's parent: `mpirun`, or its daemon on this host.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::control::failures::outlives_failures;
use crate::exit::exit;

/// Time between two checks of the parent.
const NAP: Duration = Duration::from_millis(100);
/// Longest time in `MPI_Finalize` after all processes have met.
const FINALIZE_MAX: Duration = Duration::from_secs(30);

/// The process that started this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parent {
    /// Process id.
    process: i32,
}

impl Parent {
    pub(crate) fn of_this_process() -> Parent {
        Parent { process: parent() }
    }

    /// Returns `true` if the parent is dead.
    ///
    /// MPI doesn't always notify a process, and under User-Level Failure Mitigation the process would continue.
    pub(crate) fn is_dead(self) -> bool {
        parent() != self.process
    }

    /// Ends this process if `MPI_Finalize`, called next, outlasts the parent or, after all processes have met, half a
    /// minute.
    ///
    /// In Open MPI 5.0.11 it may wait for a dead process unknown to this one. The result is to be dropped when it has
    /// returned.
    pub(crate) fn limit_finalize(self, have_met: bool) -> Option<Sender<()>> {
        if !outlives_failures() {
            return None;
        }
        let (begun, (returned, returns)) = (Instant::now(), channel());
        thread::spawn(move || {
            while !self.is_dead() {
                if returns.recv_timeout(NAP) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                if have_met && begun.elapsed() >= FINALIZE_MAX {
                    eprintln!("MPI_Finalize doesn't return: this process ends without it");
                    break;
                }
            }
            exit(1);
        });
        Some(returned)
    }
}

/// Returns the process id of this process's parent, a different one after its death.
fn parent() -> i32 {
    // SAFETY: has no precondition.
    unsafe { libc::getppid() }
}
