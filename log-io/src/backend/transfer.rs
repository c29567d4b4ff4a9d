//! Write progress: short writes and retries.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;

use crate::PAGE_BYTES;

/// Number of results without progress before a write fails.
///
/// With [`PAUSE`] between them, a tenth of a second.
const ATTEMPTS: u32 = 100;

/// Pause after an attempt without progress.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

/// Progress of a `len`-byte write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    len: usize,
    done: usize,
    attempts: u32,
}

/// Next step of a write.
#[derive(Debug)]
pub(crate) enum Step {
    /// The write is complete.
    Done,
    /// Write the rest; after [`PAUSE`] if there was no progress.
    Retry { progressed: bool },
    /// The write can't be completed.
    Failed(io::Error),
}

impl Progress {
    pub(crate) fn new(len: usize) -> Progress {
        Progress { len, done: 0, attempts: 0 }
    }

    /// Returns the number of completed bytes, whole pages: a direct write can't begin within a page.
    pub(crate) fn done(&self) -> usize {
        self.done
    }

    /// Processes a system result: bytes written from [`done`](Self::done) on, or an error.
    pub(crate) fn advance(&mut self, answer: Result<usize, Errno>) -> Step {
        let written = match answer {
            Ok(written) => written,
            // CANCELED comes from io_uring: the submitting thread ended before the write started.
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
            return Step::Retry { progressed: true };
        }
        self.attempts += 1;
        if self.attempts > ATTEMPTS {
            let what = format!("only {} of {} bytes were written", self.done + written, self.len);
            return Step::Failed(io::Error::new(io::ErrorKind::WriteZero, what));
        }
        Step::Retry { progressed: false }
    }
}

/// Writes all `bytes` at offset `at`, in as many calls as needed.
pub(crate) fn write_in_full(file: impl AsFd, at: u64, bytes: &[u8]) -> io::Result<()> {
    let mut progress = Progress::new(bytes.len());
    loop {
        let done = progress.done();
        match progress.advance(rustix::io::pwrite(file.as_fd(), &bytes[done..], at + done as u64)) {
            Step::Done => return Ok(()),
            Step::Retry { progressed: true } => {}
            Step::Retry { progressed: false } => std::thread::sleep(PAUSE),
            Step::Failed(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_write_continues_at_a_page() {
        let mut progress = Progress::new(3 * PAGE_BYTES);
        assert!(matches!(progress.advance(Ok(PAGE_BYTES + 512)), Step::Retry { progressed: true }));
        assert_eq!(progress.done(), PAGE_BYTES);
        assert!(matches!(progress.advance(Ok(PAGE_BYTES)), Step::Retry { progressed: true }));
        assert!(matches!(progress.advance(Ok(PAGE_BYTES)), Step::Done));
    }

    #[test]
    fn a_write_without_progress_is_retried_and_finally_fails() {
        for answer in [Ok(0), Ok(512), Err(Errno::AGAIN), Err(Errno::INTR), Err(Errno::CANCELED)] {
            let mut progress = Progress::new(PAGE_BYTES);
            for _ in 0..ATTEMPTS {
                assert!(matches!(progress.advance(answer), Step::Retry { progressed: false }), "{answer:?}");
            }
            let Step::Failed(error) = progress.advance(answer) else { panic!("{answer:?}") };
            // The system's own error, if there is one.
            assert_eq!(error.raw_os_error(), answer.err().map(Errno::raw_os_error));
        }
    }

    #[test]
    fn an_error_is_never_retried() {
        for errno in [Errno::IO, Errno::NOSPC, Errno::INVAL, Errno::FBIG] {
            let step = Progress::new(PAGE_BYTES).advance(Err(errno));
            assert!(matches!(step, Step::Failed(error) if error.raw_os_error() == Some(errno.raw_os_error())));
        }
    }
}
