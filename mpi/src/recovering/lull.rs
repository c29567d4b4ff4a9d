//! Time after a test that found nothing.

use std::cell::Cell;

/// Shortest lull, in [`ticks`]: 0.2 to 0.5 us.
const SHORTEST: u64 = if cfg!(target_arch = "x86_64") { 1024 } else { 300 };
/// Longest lull, in [`ticks`]: 1.6 to 4 us.
const LONGEST: u64 = 8 * SHORTEST;
/// Share of the time waited so far, as a divisor.
const SHARE: u64 = 16;

/// Time after a test that found nothing, in which the same test polls no more.
///
/// A poll of the MPI takes longer than everything else in a test, and a program that tests between pieces of its work
/// may do so every 100 ns. A message that arrives in a lull is found at its end, so a lull is short beside the time for
/// which the tests have found nothing.
#[derive(Debug, Default)]
pub(super) struct Lull {
    /// Number of calls to the endpoint.
    calls: Cell<u64>,
    last: Cell<Option<Last>>,
}

/// The last test that found nothing.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// Number of calls to the endpoint, this one included.
    calls: u64,
    /// End of the first of the tests without another call between them.
    first: u64,
    /// End of the test.
    begun: u64,
    len: u64,
}

impl Lull {
    /// Notes a call to the endpoint, which ends the lull.
    pub(super) fn note_call(&self) {
        self.calls.set(self.calls.get().wrapping_add(1));
    }

    /// Begins a lull: the last call was a test that found nothing.
    pub(super) fn begin(&self) {
        let (calls, now) = (self.calls.get(), ticks());
        let previous = self.last.get().filter(|last| last.calls.wrapping_add(1) == calls);
        let first = previous.map_or(now, |last| last.first);
        let len = (now.wrapping_sub(first) / SHARE).clamp(SHORTEST, LONGEST);
        self.last.set(Some(Last { calls, first, begun: now, len }));
    }

    pub(super) fn goes_on(&self) -> bool {
        let last = self.last.get().filter(|last| last.calls == self.calls.get());
        last.is_some_and(|last| ticks().wrapping_sub(last.begun) < last.len)
    }
}

/// Returns the processor's time stamp, a third as costly as a clock.
#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux permits it unless the process gives it up by prctl.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Returns the time in nanoseconds.
#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}
