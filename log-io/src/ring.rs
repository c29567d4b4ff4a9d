//! Entering the kernel for a ring, for writes and reads.

use std::io;

use io_uring::IoUring;

use crate::transfer::PAUSE;

/// Refusals of the kernel before that is an error. With [`PAUSE`] between them, a second.
const REFUSALS_MAX: u32 = 1000;

/// Refusals of the kernel to take a submission just now.
#[derive(Debug, Default)]
pub(crate) struct Refusals(u32);

impl Refusals {
    /// Counts a refusal. Returns `false` if there were too many.
    pub(crate) fn may_try_again(&mut self) -> bool {
        self.0 += 1;
        self.0 <= REFUSALS_MAX
    }
}

/// Submits the queued entries and waits for `wanted` completions. Returns early if completions have to be taken first.
///
/// # Errors
/// The operating system's. The queued entries may then be submitted or not.
pub(crate) fn enter(ring: &mut IoUring, wanted: usize) -> io::Result<()> {
    let mut refusals = Refusals::default();
    loop {
        match ring.submit_and_wait(wanted) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // EAGAIN: no memory for a request just now. EBUSY: completions have to be taken first.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => {
                if !ring.completion().is_empty() {
                    return Ok(());
                }
                if !refusals.may_try_again() {
                    return Err(error);
                }
                std::thread::sleep(PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_an_error_after_a_second() {
        let mut refusals = Refusals::default();
        assert!((0..REFUSALS_MAX).all(|_| refusals.may_try_again()));
        assert!(!refusals.may_try_again());
    }
}
