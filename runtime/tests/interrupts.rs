//! Signals that come while a job is being started.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a failed step of a test's setting is a failed test")]

use std::time::Duration;

use counterfoil_runtime::local::{Interrupts, JobOptions, LaunchError, Observer, Progress, launch};
use rustix::process::{Signal, getpid, kill_process};

/// Sends this process a signal as soon as the first rank was started.
#[derive(Default)]
struct Impatient {
    started: u32,
}

impl Observer for Impatient {
    fn handle_progress(&mut self, progress: Progress) {
        if let Progress::Started { .. } = progress {
            self.started += 1;
            if self.started == 1 {
                kill_process(getpid(), Signal::TERM).unwrap();
                // Another thread may be the one that takes it.
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

#[test]
fn a_signal_while_ranks_are_started_ends_the_job_before_the_next_one_is() {
    let root = tempfile::tempdir_in("/tmp").unwrap();
    let command = ["sh", "-c", "exec sleep 60"].map(Into::into).to_vec();
    let options = JobOptions {
        shm_root: root.path().to_owned(),
        checkpoint_root: root.path().to_owned(),
        ..JobOptions::new(command, 16)
    };
    let interrupts = Interrupts::install().unwrap();
    let mut observer = Impatient::default();
    let ended = launch(&options, Some(&interrupts), &mut observer);
    assert!(matches!(ended, Err(LaunchError::Interrupted)), "{ended:?}");
    assert_eq!(observer.started, 1);
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
}
