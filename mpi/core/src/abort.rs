//! A job's end, initiated by one of its ranks.

use std::thread;
use std::time::Duration;

use mpi_sys as ffi;

use crate::comm::Comm;
use crate::control::failures::{is_world_revoked, outlives_failures, revoke_world};
use crate::exit::exit;

/// Time between one rank ending the job and the next one doing so.
const ABORT_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum number of intervals for a rank to wait.
const ABORT_INTERVALS_MAX: u32 = 10;
/// Time after which a process ending its job exits, whether `MPI_Abort` has returned or not.
const ABORT_MAX: Duration = Duration::from_secs(15);

impl Comm {
    /// Ends all processes of the job, for failures unnoticed by the other ranks.
    ///
    /// If the job survives failures, the others are told first, by revoking `MPI_COMM_WORLD`: in Open MPI 5.0.11
    /// `MPI_Abort` ends only those outside MPI calls. Then a rank other than 0 waits up to 2 s, and any rank 2.2 s more
    /// if another one has told it: when several processes call `MPI_Abort` at once, the launcher often hangs. It may
    /// also hang if the launcher ends meanwhile, so this process exits by itself after 15 s.
    pub fn abort(&self, code: i32) {
        thread::spawn(move || {
            thread::sleep(ABORT_MAX);
            exit(code);
        });
        if outlives_failures() {
            let rank = self.rank().unwrap_or_default().min(ABORT_INTERVALS_MAX);
            let intervals = if is_world_revoked() { ABORT_INTERVALS_MAX + 1 + rank } else { rank };
            revoke_world();
            thread::sleep(ABORT_INTERVAL * intervals);
        }
        // SAFETY: a valid communicator. If MPI fails to abort, the caller continues.
        unsafe {
            ffi::PMPI_Abort(self.raw(), code);
        }
    }
}
