//! Entering the kernel for a ring, for writes and reads.

use std::io;

use io_uring::IoUring;

use crate::transfer::PAUSE;

/// Refusals of the kernel to take submissions before that is an error. With [`PAUSE`] between them, a second.
pub(crate) const REFUSALS: u32 = 1000;

/// Submits the queued entries and waits for `wanted` completions. Returns early if completions have to be taken first.
///
/// # Errors
/// The operating system's. The queued entries may then be submitted or not.
pub(crate) fn enter(ring: &mut IoUring, wanted: usize) -> io::Result<()> {
    let mut refusals = 0;
    loop {
        match ring.submit_and_wait(wanted) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // EAGAIN: no memory for a request just now. EBUSY: completions have to be taken first.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => {
                if !ring.completion().is_empty() {
                    return Ok(());
                }
                refusals += 1;
                if refusals > REFUSALS {
                    return Err(error);
                }
                std::thread::sleep(PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}
