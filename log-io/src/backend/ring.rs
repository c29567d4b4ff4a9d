//! Entering the kernel for a ring, for writes and reads.

use std::io;

use io_uring::IoUring;

use crate::backend::transfer::PAUSE;

/// Number of kernel refusals before they become an error.
///
/// With [`PAUSE`] between them, a second.
const REFUSALS_MAX: u32 = 1000;

/// Temporary kernel refusals to take a submission.
#[derive(Debug, Default)]
pub(crate) struct Refusals(u32);

impl Refusals {
    /// Counts a refusal.
    ///
    /// Returns `false` if there were too many.
    pub(crate) fn may_try_again(&mut self) -> bool {
        self.0 += 1;
        self.0 <= REFUSALS_MAX
    }
}

/// Submits the queued entries and waits for `wanted` completions.
///
/// Returns early if completions have to be taken first.
///
/// # Errors
/// The operating system's. The queued entries may then be submitted or not.
pub(crate) fn enter(ring: &mut IoUring, wanted: usize) -> io::Result<()> {
    submit(ring, |ring| ring.submit_and_wait(wanted), |ring| !ring.completion().is_empty())
}

/// Calls `enter` until `ring` has taken the queued entries, or until `has_completions` and it can't.
fn submit<R>(
    ring: &mut R,
    enter: impl Fn(&mut R) -> io::Result<usize>,
    has_completions: impl Fn(&mut R) -> bool,
) -> io::Result<()> {
    let mut refusals = Refusals::default();
    loop {
        match enter(ring) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // EAGAIN: no memory for a request just now. EBUSY: completions have to be taken first.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => {
                if has_completions(ring) {
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

    /// Submits to a ring with these answers, in order; `has_completions` states whether it has completions.
    ///
    /// Returns the result and the number of answers taken.
    fn submitted(answers: &[Option<i32>], has_completions: bool) -> (Option<i32>, usize) {
        let mut taken = 0;
        let enter = |taken: &mut usize| {
            let answer = answers[*taken % answers.len()];
            *taken += 1;
            answer.map_or(Ok(1), |errno| Err(io::Error::from_raw_os_error(errno)))
        };
        let result = submit(&mut taken, enter, |_| has_completions);
        (result.err().and_then(|error| error.raw_os_error()), taken)
    }

    #[test]
    fn a_submission_is_tried_again_unless_completions_or_an_error_stand_in_the_way() {
        let (again, busy, interrupted) = (Some(libc::EAGAIN), Some(libc::EBUSY), Some(libc::EINTR));
        assert_eq!(submitted(&[None], false), (None, 1));
        assert_eq!(submitted(&[interrupted, interrupted, None], true), (None, 3));
        assert_eq!(submitted(&[again, busy, None], false), (None, 3));
        assert_eq!(submitted(&[again, None], true), (None, 1));
        assert_eq!(submitted(&[busy, None], true), (None, 1));
        assert_eq!(submitted(&[interrupted, Some(libc::EBADF), None], true), (Some(libc::EBADF), 2));
        assert_eq!(submitted(&[busy], false), (Some(libc::EBUSY), REFUSALS_MAX as usize + 1));
    }

    #[test]
    fn a_refusal_is_an_error_after_a_second() {
        let mut refusals = Refusals::default();
        assert!((0..REFUSALS_MAX).all(|_| refusals.may_try_again()));
        assert!(!refusals.may_try_again());
    }
}
