//! Waits of a polling thread.

use std::thread;
use std::time::Duration;

/// Consecutive idle polls after which the thread yields the processor.
const IDLE_POLLS_BEFORE_YIELD: u32 = 200;
/// Consecutive idle polls after which the thread sleeps between polls.
const IDLE_POLLS_BEFORE_SLEEP: u32 = 2_000;
/// Length of such a sleep.
const NAP: Duration = Duration::from_micros(50);

/// Number of consecutive polls without progress.
#[derive(Debug, Default)]
pub(super) struct Idle(u32);

impl Idle {
    /// Spins, yields or sleeps, by the number of idle polls: there may be more ranks than processors.
    ///
    /// A poll makes some MPI calls, so the first ones follow each other without a pause; with one, a neurons workload
    /// run took 2 % longer in a virtual machine.
    pub(super) fn after_poll(&mut self, progressed: bool) {
        self.0 = if progressed { 0 } else { self.0.saturating_add(1) };
        match self.0 {
            0..IDLE_POLLS_BEFORE_YIELD => {}
            IDLE_POLLS_BEFORE_YIELD..IDLE_POLLS_BEFORE_SLEEP => thread::yield_now(),
            _ => thread::sleep(NAP),
        }
    }
}
