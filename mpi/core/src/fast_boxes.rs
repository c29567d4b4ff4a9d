//! Buffers between each two processes of a host, in place of the queue that all of them append to.
//!
//! A process that is killed while it appends to another one's queue damages that ([`watchdog`](crate::watchdog)). In a
//! fast box, which has one writer, a message is complete or isn't there. Open MPI 5.0.11 begins to use a box of 4 KiB
//! after 16 messages, for messages of up to a quarter of it, and falls back to the queue while it is full.

use std::env;

/// Set by `mpirun --with-ft ulfm`.
const OUTLIVES_FAILURES: &str = "OMPI_MCA_mpi_ft_enable";
/// Parameters of Open MPI, as variables of the environment: the first message to a process makes a box, which takes all
/// messages that Open MPI doesn't split, and as many as may be on their way between two ranks.
const PARAMETERS: [(&str, &str); 3] = [
    ("OMPI_MCA_btl_sm_fbox_threshold", "1"),
    ("OMPI_MCA_btl_sm_fbox_size", "65536"),
    ("OMPI_MCA_btl_sm_fbox_max", "1024"),
];

/// Prefers fast boxes in a job that outlives failures, unless the user has set these parameters.
///
/// # Safety
/// MPI is not initialised, and no other thread reads or writes the environment.
pub(crate) unsafe fn prefer_fast_boxes() {
    if env::var_os(OUTLIVES_FAILURES).is_none_or(|value| value == "0") {
        return;
    }
    for (name, value) in PARAMETERS {
        if env::var_os(name).is_none() {
            // SAFETY: the caller's promise.
            unsafe { env::set_var(name, value) };
        }
    }
}
