//! Runs schedules on several threads, with the same result as on one.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use counterfoil_protocols::api::Rule;
use counterfoil_runtime::local::Interrupts;
use counterfoil_simulator::{self as simulator, Config, Progress, Summary, ViolationKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;

/// Number of seeds taken by a thread at a time.
///
/// At most the number of failures kept by a summary, so that none is missed.
const SLICE: u64 = Summary::FAILURES_MAX as u64;
/// Maximum number of failing seeds to list.
const SEEDS_FAILED_MAX: usize = 1_000;
/// Interval between checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Campaign results.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) summary: Summary,
    /// Number of failures by violation kind.
    pub(super) kinds: BTreeMap<&'static str, u64>,
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) reordered: u64,
    /// First failing seeds.
    pub(super) seeds_failed: Vec<u64>,
}

impl Tally {
    /// Adds the summary of the next slice of seeds.
    fn add(&mut self, next: &Summary) {
        for failure in &next.failures {
            let wrong = &failure.violation.kind;
            *self.kinds.entry(wrong.name()).or_default() += 1;
            match effect(wrong) {
                Some(Effect::Lost) => self.lost += 1,
                Some(Effect::Duplicated) => self.duplicated += 1,
                Some(Effect::Reordered) => self.reordered += 1,
                None => {}
            }
            if self.seeds_failed.len() < SEEDS_FAILED_MAX {
                self.seeds_failed.push(failure.seed);
            }
        }
        self.summary.add(next);
    }
}

/// A violation's effect on messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Lost,
    Duplicated,
    Reordered,
}

/// Returns a violation's effect; `None` if it doesn't concern messages.
///
/// A deadlocked rank waits for a lost message.
fn effect(wrong: &ViolationKind) -> Option<Effect> {
    match wrong {
        ViolationKind::Duplicate { .. } => Some(Effect::Duplicated),
        ViolationKind::Take { .. } => Some(Effect::Reordered),
        ViolationKind::Incomplete { expected, received, taken, .. } if received > expected || taken > expected => {
            Some(Effect::Duplicated)
        }
        ViolationKind::Incomplete { .. } | ViolationKind::Freed { .. } | ViolationKind::Deadlock { .. } => {
            Some(Effect::Lost)
        }
        _ => None,
    }
}

/// Error of a campaign.
#[derive(Debug, Error)]
pub(super) enum CampaignError {
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    #[error("cannot check for interrupts: {0}")]
    Interrupts(#[source] io::Error),
    #[error("the simulator panicked: see the message above")]
    Panicked,
}

/// Runs the schedules for all seeds or, after an interrupt, for the first ones.
///
/// Threads take slices in any order; the results are merged in seed order, so they don't depend on it.
pub(super) fn run(
    rule: &Rule,
    config: &Config,
    seeds: Range<u64>,
    threads: usize,
    interrupts: &Interrupts,
    mut on_progress: impl FnMut(Progress),
) -> Result<Tally, CampaignError> {
    let of = seeds.end - seeds.start;
    let slices = of.div_ceil(SLICE);
    // A thread finishes every slice it takes, so the completed slices are always the first ones.
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
            if sender.send((slice, simulator::campaign(rule, from..to, config, |_| {}))).is_err() {
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
        let mut pending: BTreeMap<u64, Summary> = BTreeMap::new();
        let (mut merged, mut has_begun) = (0, false);
        let collected = loop {
            match receiver.recv_timeout(POLL_INTERVAL) {
                Ok((slice, summary)) => drop(pending.insert(slice, summary)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break Ok(()),
            }
            while let Some(summary) = pending.remove(&merged) {
                tally.add(&summary);
                merged += 1;
            }
            let Summary { schedules, failed, .. } = tally.summary;
            if schedules > 0 && !has_begun {
                has_begun = true;
                tracing::debug!(schedules, "the first schedules are done");
            }
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
    fn violations_are_classified_by_their_effect_on_messages() {
        let incomplete =
            |sent, received, taken| ViolationKind::Incomplete { from: 0, to: 1, expected: 3, sent, received, taken };
        assert_eq!(effect(&incomplete(3, 2, 2)), Some(Effect::Lost));
        assert_eq!(effect(&incomplete(3, 4, 3)), Some(Effect::Duplicated));
        assert_eq!(effect(&ViolationKind::Duplicate { rank: 0, from: 1, number: 1 }), Some(Effect::Duplicated));
        assert_eq!(effect(&ViolationKind::Take { rank: 0, from: 1, tag: 0, number: 1 }), Some(Effect::Reordered));
        assert_eq!(effect(&ViolationKind::Deadlock { ranks: vec![0] }), Some(Effect::Lost));
        assert_eq!(effect(&ViolationKind::Endless { events: 9 }), None);
    }
}
