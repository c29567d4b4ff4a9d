//! How far a write has come: what to do with what the system says that it wrote.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

use crate::PAGE_BYTES;

/// Answers without progress after which a write is given up. With [`PAUSE`] between them, a tenth of a second.
const ATTEMPTS: u32 = 100;

/// Between two attempts of which the first made no progress.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

/// A write of `len` bytes, some of which may be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    len: usize,
    done: usize,
    attempts: u32,
}

/// What a write needs next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing.
    Done,
    /// The rest of it to be written, after [`PAUSE`] where there was no progress.
    Again { progressed: bool },
    /// It can't be completed.
    Failed(io::Error),
}

impl Progress {
    pub(crate) fn new(len: usize) -> Progress {
        Progress { len, done: 0, attempts: 0 }
    }

    /// Bytes that needn't be written again, whole pages: a direct write can't begin within one.
    pub(crate) fn done(&self) -> usize {
        self.done
    }

    /// Takes in the system's answer: bytes written from [`done`](Self::done) on, or why not.
    pub(crate) fn advance(&mut self, answer: Result<usize, Errno>) -> Step {
        let written = match answer {
            Ok(written) => written,
            // An answer of io_uring, too: a write whose thread ended before it was begun is cancelled.
            Err(Errno::INTR | Errno::AGAIN | Errno::CANCELED) if self.attempts < ATTEMPTS => 0,
            Err(errno) => return Step::Failed(errno.into()),
        };
        if written >= self.len - self.done {
            self.done = self.len;
            return Step::Done;
        }
        let pages = written / PAGE_BYTES * PAGE_BYTES;
        if pages > 0 {
            self.done += pages;
            self.attempts = 0;
            return Step::Again { progressed: true };
        }
        self.attempts += 1;
        if self.attempts > ATTEMPTS {
            let what = format!("only {} of {} bytes were written", self.done + written, self.len);
            return Step::Failed(io::Error::new(io::ErrorKind::WriteZero, what));
        }
        Step::Again { progressed: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_write_goes_on_at_a_page() {
        let mut progress = Progress::new(3 * PAGE_BYTES);
        assert!(matches!(progress.advance(Ok(PAGE_BYTES + 512)), Step::Again { progressed: true }));
        assert_eq!(progress.done(), PAGE_BYTES);
        assert!(matches!(progress.advance(Ok(PAGE_BYTES)), Step::Again { progressed: true }));
        assert!(matches!(progress.advance(Ok(PAGE_BYTES)), Step::Done));
    }

    #[test]
    fn a_write_that_is_put_off_is_tried_again_and_given_up_at_last() {
        for answer in [Ok(0), Ok(512), Err(Errno::AGAIN), Err(Errno::INTR), Err(Errno::CANCELED)] {
            let mut progress = Progress::new(PAGE_BYTES);
            for _ in 0..ATTEMPTS {
                assert!(matches!(progress.advance(answer), Step::Again { progressed: false }), "{answer:?}");
            }
            assert!(matches!(progress.advance(answer), Step::Failed(_)), "{answer:?}");
        }
    }

    #[test]
    fn an_error_is_never_tried_again() {
        for errno in [Errno::IO, Errno::NOSPC, Errno::INVAL, Errno::FBIG] {
            let step = Progress::new(PAGE_BYTES).advance(Err(errno));
            assert!(matches!(step, Step::Failed(error) if error.raw_os_error() == Some(errno.raw_os_error())));
        }
    }
}
