//! Signals during the start of a job.
//!
//! A program of its own, since it sends signals to its process.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use counterfoil_runtime::local::{Interrupts, JobOptions, LaunchError, Observer, Progress, launch};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};

/// Sends SIGTERM to this process when the first rank has started.
struct TerminateAtFirstStart<'a> {
    interrupts: &'a Interrupts,
    started: u32,
}

impl Observer for TerminateAtFirstStart<'_> {
    fn handle_progress(&mut self, progress: Progress) {
        if let Progress::Started { .. } = progress {
            self.started += 1;
            if self.started == 1 {
                kill_process(getpid(), Signal::TERM).unwrap();
                // Another thread may handle it.
                let mut interrupted = [PollFd::new(self.interrupts, PollFlags::IN)];
                let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
                while poll(&mut interrupted, Some(&limit)) == Err(Errno::INTR) {}
                assert!(interrupted[0].revents().contains(PollFlags::IN), "the signal was not handled");
            }
        }
    }
}

#[test]
fn a_signal_during_the_start_of_ranks_ends_the_job_before_the_next_start() {
    let root = tempfile::tempdir_in("/tmp").unwrap();
    let command = ["sh", "-c", "exec sleep 60"].map(Into::into).to_vec();
    let options = JobOptions {
        shm_root: root.path().to_owned(),
        checkpoint_root: root.path().to_owned(),
        ..JobOptions::new(command, 16)
    };
    let interrupts = Interrupts::install().unwrap();
    let mut observer = TerminateAtFirstStart { interrupts: &interrupts, started: 0 };
    let ended = launch(&options, Some(&interrupts), &mut observer);
    assert!(matches!(ended, Err(LaunchError::Interrupted)), "{ended:?}");
    assert_eq!(observer.started, 1);
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
}
