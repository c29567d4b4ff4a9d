//! Entering the kernel for a ring: what its writes and its reads have in common.

use std::io;

use io_uring::IoUring;

use crate::transfer::PAUSE;

/// How often the kernel may refuse to take what is submitted, with [`PAUSE`] in between, before that is an error: a second.
pub(crate) const REFUSALS: u32 = 1000;

/// Submits what is queued and waits until there are `wanted` completions to be taken. Returns before where completions have
/// to be taken first.
///
/// # Errors
/// The system's. What is queued may or may not have been submitted then.
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
