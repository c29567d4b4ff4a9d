//! Runs many schedules on several threads, with the same result as on one.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use counterfoil_runtime::local::Interrupts;
use counterfoil_runtime::sim::{Config, Progress, Summary, Wrong};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;

use super::protocol::Engine;

/// A thread takes so many seeds at once. No more than the failures that a summary keeps, so that none is missed.
const SLICE: u64 = Summary::FAILURES_MAX as u64;
/// How many failing seeds are listed.
const SEEDS_FAILED_MAX: usize = 1_000;
/// How often an interrupt is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What came of all schedules.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) summary: Summary,
    /// Failures by the kind of their violation.
    pub(super) kinds: BTreeMap<&'static str, u64>,
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) reordered: u64,
    /// The first of them.
    pub(super) seeds_failed: Vec<u64>,
}

impl Tally {
    /// Adds the summary of the seeds that come next.
    fn add(&mut self, next: &Summary) {
        for failure in &next.failures {
            let wrong = &failure.violation.wrong;
            *self.kinds.entry(wrong.name()).or_default() += 1;
            match harm(wrong) {
                Some(Harm::Lost) => self.lost += 1,
                Some(Harm::Duplicated) => self.duplicated += 1,
                Some(Harm::Reordered) => self.reordered += 1,
                None => {}
            }
            if self.seeds_failed.len() < SEEDS_FAILED_MAX {
                self.seeds_failed.push(failure.seed);
            }
        }
        self.summary.add(next);
    }
}

/// What a violation means for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Lost,
    Duplicated,
    Reordered,
}

/// `None`: something else is wrong. Who waits for ever waits for a message that doesn't come.
fn harm(wrong: &Wrong) -> Option<Harm> {
    match wrong {
        Wrong::Duplicate { .. } => Some(Harm::Duplicated),
        Wrong::Take { .. } => Some(Harm::Reordered),
        Wrong::Incomplete { expected, received, taken, .. } if received > expected || taken > expected => {
            Some(Harm::Duplicated)
        }
        Wrong::Incomplete { .. } | Wrong::Freed { .. } | Wrong::Deadlock { .. } => Some(Harm::Lost),
        _ => None,
    }
}

/// Why a campaign couldn't be made.
#[derive(Debug, Error)]
pub(super) enum CampaignError {
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    #[error("cannot look for interrupts: {0}")]
    Interrupts(#[source] io::Error),
    #[error("the simulator has panicked: the message above says where")]
    Panicked,
}

/// Runs the schedules of all seeds, or, after an interrupt, those of the first seeds. Which thread runs what is left to
/// chance; slices are put together in the order of their seeds, so that the result is not.
pub(super) fn run(
    engine: &Engine,
    config: &Config,
    seeds: Range<u64>,
    threads: usize,
    interrupts: &Interrupts,
    mut on_progress: impl FnMut(Progress),
) -> Result<Tally, CampaignError> {
    let of = seeds.end - seeds.start;
    let slices = of.div_ceil(SLICE);
    // Whoever takes a slice finishes it: those that are done are always the first ones.
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let work = |sender: mpsc::Sender<(u64, Summary)>| {
        while !stop.load(Ordering::Relaxed) {
            let slice = next.fetch_add(1, Ordering::Relaxed);
            if slice >= slices {
                break;
            }
            let from = seeds.start + slice * SLICE;
            let to = seeds.end.min(from.saturating_add(SLICE));
            if sender.send((slice, (engine.campaign)(from..to, config))).is_err() {
                break;
            }
        }
    };
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let mut workers = Vec::new();
        for _ in 0..threads {
            let sender = sender.clone();
            let worker = thread::Builder::new().name("simulate".into()).spawn_scoped(scope, || work(sender));
            match worker {
                Ok(worker) => workers.push(worker),
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    return Err(CampaignError::Thread(error));
                }
            }
        }
        drop(sender);
        let mut tally = Tally::default();
        let mut waiting: BTreeMap<u64, Summary> = BTreeMap::new();
        let mut merged = 0;
        let collected = loop {
            match receiver.recv_timeout(LOOK_EVERY) {
                Ok((slice, summary)) => drop(waiting.insert(slice, summary)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break Ok(()),
            }
            while let Some(summary) = waiting.remove(&merged) {
                tally.add(&summary);
                merged += 1;
            }
            let Summary { schedules, failed, .. } = tally.summary;
            on_progress(Progress { schedules, of, failed });
            match is_interrupted(interrupts) {
                Ok(false) => {}
                Ok(true) => stop.store(true, Ordering::Relaxed),
                Err(error) => break Err(CampaignError::Interrupts(error)),
            }
        };
        stop.store(true, Ordering::Relaxed);
        let panicked = workers.into_iter().any(|worker| worker.join().is_err());
        collected?;
        if panicked { Err(CampaignError::Panicked) } else { Ok(tally) }
    })
}

fn is_interrupted(interrupts: &Interrupts) -> io::Result<bool> {
    let mut fds = [PollFd::new(interrupts, PollFlags::IN)];
    match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_is_counted_by_what_it_does_to_messages() {
        let incomplete =
            |sent, received, taken| Wrong::Incomplete { from: 0, to: 1, expected: 3, sent, received, taken };
        assert_eq!(harm(&incomplete(3, 2, 2)), Some(Harm::Lost));
        assert_eq!(harm(&incomplete(3, 4, 3)), Some(Harm::Duplicated));
        assert_eq!(harm(&Wrong::Duplicate { rank: 0, from: 1, number: 1 }), Some(Harm::Duplicated));
        assert_eq!(harm(&Wrong::Take { rank: 0, from: 1, tag: 0, number: 1 }), Some(Harm::Reordered));
        assert_eq!(harm(&Wrong::Deadlock { ranks: vec![0] }), Some(Harm::Lost));
        assert_eq!(harm(&Wrong::Endless { events: 9 }), None);
    }
}
