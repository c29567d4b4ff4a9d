//! Pairwise buffers between a host's processes, in place of the queue shared by all writers.
//!
//! A process killed during an append damages the other's queue ([`watchdog`](crate::watchdog)). In a fast box, which
//! has one writer, a message is complete or absent. Open MPI 5.0.11 begins to use a 4 KiB box after 16 messages, for
//! messages up to a quarter of it, and falls back to the queue while it is full.

use std::env;

use counterfoil_mpi_discovery::environment::LIVES_ON;

/// Set by `mpirun --with-ft ulfm`.
const OUTLIVES_FAILURES: &str = "OMPI_MCA_mpi_ft_enable";
/// Component with the boxes in Open MPI 5, and in Open MPI 4.
const COMPONENTS: [&str; 2] = ["sm", "vader"];
/// Number of processes on this host; set by `mpirun`.
const LOCAL_PROCESSES: &str = "OMPI_COMM_WORLD_LOCAL_SIZE";
/// Memory for a process's boxes, in bytes: a quarter of its shared memory in Open MPI.
const BOXES_BYTES: usize = 4 << 20;
/// Shortest and longest box in bytes.
///
/// Open MPI's default, and one for all messages that Open MPI doesn't split, as many as may be in flight between two
/// ranks. The longest is a multiple of the shortest.
const BOX_BYTES_MIN: usize = 4 << 10;
const BOX_BYTES_MAX: usize = 64 << 10;

/// Prefers fast boxes in a job that survives failures: the first message to a process makes one.
///
/// Parameters set by the user stay.
///
/// # Safety
/// MPI is not initialised, and no other thread reads or writes the environment.
pub(crate) unsafe fn prefer_fast_boxes() {
    if env::var_os(OUTLIVES_FAILURES).is_none_or(|value| value == "0") && !lives_on() {
        return;
    }
    let processes = env::var(LOCAL_PROCESSES).ok().and_then(|processes| processes.parse().ok()).unwrap_or(1);
    let parameters = [
        ("fbox_threshold", "1".to_owned()),
        ("fbox_size", box_bytes(processes).to_string()),
        ("fbox_max", processes.max(1).to_string()),
    ];
    for (component, (parameter, value)) in COMPONENTS.iter().flat_map(|of| parameters.iter().map(move |it| (of, it))) {
        let name = format!("OMPI_MCA_btl_{component}_{parameter}");
        if env::var_os(&name).is_none() {
            // SAFETY: the caller's promise.
            unsafe { env::set_var(name, value) };
        }
    }
}

/// Returns `true` in a process that continues when another one dies, although MPI doesn't notify it.
pub fn lives_on() -> bool {
    env::var_os(LIVES_ON.0).is_some()
}

/// Returns the box length in bytes, for this many processes on the host.
fn box_bytes(processes: usize) -> usize {
    let bytes = (BOXES_BYTES / processes.max(1)).clamp(BOX_BYTES_MIN, BOX_BYTES_MAX);
    bytes - bytes % BOX_BYTES_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boxes_of_a_process_fit_into_their_memory() {
        assert_eq!([0, 1, 64].map(box_bytes), [BOX_BYTES_MAX; 3]);
        assert_eq!((box_bytes(100), box_bytes(10_000)), (40 << 10, BOX_BYTES_MIN));
    }
}
