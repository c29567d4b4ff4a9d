//! Pace of the store's thread: its share of a core, by rests between batches of jobs.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::Job;

/// Returns the calling thread's processor time.
pub(super) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Job queue of the store's thread.
///
/// After a batch of jobs the thread rests until the batch took at most its share of a core. A job awaited by a call
/// ends the rest.
#[derive(Debug)]
pub(super) struct PacedJobs<'a> {
    jobs: &'a Receiver<Job>,
    /// Core share in percent.
    percent: u8,
    /// Jobs received during a rest.
    received: VecDeque<Job>,
    /// Start time of the batch, and the thread's processor time then.
    began: (Instant, Duration),
    rest_until: Instant,
}

impl<'a> PacedJobs<'a> {
    pub(super) fn new(jobs: &'a Receiver<Job>, percent: u8) -> PacedJobs<'a> {
        let now = Instant::now();
        PacedJobs { jobs, percent, received: VecDeque::new(), began: (now, thread_cpu()), rest_until: now }
    }

    /// Waits for a batch's first job, and for the end of the rest.
    ///
    /// Returns `None` when the sender is gone and nothing is left.
    pub(super) fn begin_batch(&mut self) -> Option<Job> {
        if self.received.is_empty() {
            self.received.push_back(self.jobs.recv().ok()?);
        }
        while !self.received.iter().any(Job::is_awaited) {
            let rest = self.rest_until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                break;
            }
            // Without a sender the rest is over, too.
            match self.jobs.recv_timeout(rest) {
                Ok(job) => self.received.push_back(job),
                Err(_) => break,
            }
        }
        if self.percent < 100 {
            self.began = (Instant::now(), thread_cpu());
        }
        self.received.pop_front()
    }

    /// Returns the next job in the batch, if there is one already.
    pub(super) fn poll(&mut self) -> Option<Job> {
        self.received.pop_front().or_else(|| self.jobs.try_recv().ok())
    }

    /// Ends a batch, and sets the rest after it.
    pub(super) fn end_batch(&mut self) {
        if self.percent < 100 {
            let (began, cpu) = self.began;
            self.rest_until = began + thread_cpu().saturating_sub(cpu) * 100 / u32::from(self.percent);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const REST: Duration = Duration::from_millis(20);
    /// Longer than a test runs.
    const LONG: Duration = Duration::from_secs(3600);

    /// Returns a job not awaited by a call.
    fn unawaited() -> Job {
        Job::Free(Vec::new())
    }

    #[test]
    fn a_job_waits_for_the_end_of_the_rest() {
        let (sender, jobs) = channel();
        let mut paced = PacedJobs::new(&jobs, 10);
        let rest_until = Instant::now() + REST;
        paced.rest_until = rest_until;
        sender.send(unawaited()).unwrap();
        assert!(paced.begin_batch().is_some());
        assert!(Instant::now() >= rest_until);
        assert!(paced.poll().is_none());
    }

    #[test]
    fn a_job_that_a_call_waits_for_ends_the_rest_and_the_order_stays() {
        let (sender, jobs) = channel();
        let mut paced = PacedJobs::new(&jobs, 10);
        paced.rest_until = Instant::now() + LONG;
        sender.send(unawaited()).unwrap();
        sender.send(unawaited()).unwrap();
        sender.send(Job::Hurry).unwrap();
        sender.send(unawaited()).unwrap();
        assert!(matches!(paced.begin_batch(), Some(Job::Free(_))));
        // A batch ending before it doesn't begin another rest.
        assert!(matches!(paced.begin_batch(), Some(Job::Free(_))));
        assert!(matches!(paced.poll(), Some(Job::Hurry)));
        assert!(matches!(paced.poll(), Some(Job::Free(_))));
    }

    #[test]
    fn without_a_sender_there_is_no_rest() {
        let (sender, jobs) = channel();
        let mut paced = PacedJobs::new(&jobs, 10);
        paced.rest_until = Instant::now() + LONG;
        sender.send(unawaited()).unwrap();
        drop(sender);
        assert!(paced.begin_batch().is_some());
        assert!(paced.begin_batch().is_none());
    }

    #[test]
    fn a_rest_is_as_long_as_the_share_asks_for() {
        let (sender, jobs) = channel();
        let mut paced = PacedJobs::new(&jobs, 20);
        sender.send(unawaited()).unwrap();
        let before = thread_cpu();
        paced.begin_batch();
        while thread_cpu() - before < 2 * REST {}
        let began = paced.began.0;
        paced.end_batch();
        // Five times the processor time, and no more than five times what the thread has taken since.
        assert!(paced.rest_until >= began + 9 * REST && paced.rest_until <= began + (thread_cpu() - before) * 5);
        let mut unlimited = PacedJobs::new(&jobs, 100);
        let rest_until = unlimited.rest_until;
        sender.send(unawaited()).unwrap();
        unlimited.begin_batch();
        unlimited.end_batch();
        assert_eq!(unlimited.rest_until, rest_until);
    }
}
