//! Watchdog over calls of MPI that don't wait: ends this process when one of them hangs.
//!
//! In Open MPI 5.0.11 each process has a queue in shared memory, to which the others on its host append. A process that
//! is killed between the two stores of an append leaves the queue without its end, and the owner then spins in
//! `sm_fifo_read` in whatever call makes progress, for ever. Only its death helps: the job replaces it as any other
//! dead process.
//!
//! The limit is in processor time of the calling thread, so that neither a busy machine, nor SIGSTOP, nor a debugger
//! ends a process.

use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Longest processor time of a call that doesn't wait. It may handle many messages that have arrived, and copies those
/// whose receives have begun.
const CALL_MAX: Duration = Duration::from_secs(5);
/// Time between two looks.
const NAP: Duration = Duration::from_millis(500);

/// Number of begins and ends of calls: odd within a call.
static CALLS: AtomicU64 = AtomicU64::new(0);
/// Clock of the processor time of the thread that made the last call.
static CLOCK: AtomicI32 = AtomicI32::new(0);

thread_local! {
    /// Clock of this thread's processor time.
    static OWN_CLOCK: Cell<Option<libc::clockid_t>> = const { Cell::new(None) };
}

/// A call of MPI that doesn't wait, until this is dropped. The calls of several threads don't overlap.
#[derive(Debug)]
pub(crate) struct Call(());

impl Call {
    /// Begins a call.
    #[inline]
    pub(crate) fn begin() -> Call {
        CLOCK.store(OWN_CLOCK.get().unwrap_or_else(find_own_clock), Ordering::Relaxed);
        count();
        Call(())
    }
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        count();
    }
}

/// Counts a begin or an end.
#[inline]
fn count() {
    // One thread at a time.
    CALLS.store(CALLS.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

#[cold]
fn find_own_clock() -> libc::clockid_t {
    let mut clock = libc::CLOCK_PROCESS_CPUTIME_ID;
    // SAFETY: the calling thread exists, and the pointer is to a local variable.
    unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
    OWN_CLOCK.set(Some(clock));
    clock
}

/// Returns the processor time on a clock; `None` if its thread has ended.
fn processor_time(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a pointer to a local variable; the call refuses a clock that doesn't exist.
    let code = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (code == 0).then(|| Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32))
}

/// Begins to watch the calls of this process, for its lifetime.
pub fn watch_calls() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let begun =
            thread::Builder::new().name("counterfoil-watch".to_owned()).spawn(|| watch(CALL_MAX, NAP, end_process));
        if let Err(error) = begun {
            tracing::warn!(%error, "no thread to watch the calls of MPI: one that hangs is not noticed");
        }
    });
}

/// Looks at the calls every `nap`, until one has used `max` of processor time, and calls `end` then.
fn watch(max: Duration, nap: Duration, end: fn()) {
    // Number of the call at the last look, its clock, and the time on it then.
    let mut seen = None;
    loop {
        thread::sleep(nap);
        let (calls, clock) = (CALLS.load(Ordering::Relaxed), CLOCK.load(Ordering::Relaxed));
        let Some(time) = processor_time(clock).filter(|_| calls % 2 == 1) else {
            seen = None;
            continue;
        };
        match seen {
            Some((number, of, since)) if (number, of) == (calls, clock) => {
                if time.saturating_sub(since) >= max {
                    return end();
                }
            }
            _ => seen = Some((calls, clock, time)),
        }
    }
}

/// Ends this process as a failure from outside does, so that MPI tells the others of it.
fn end_process() {
    eprintln!(
        "error: a call of MPI that doesn't wait has not returned after {} s of processor time, as when another process \
         was killed while it wrote to this one's queue in shared memory: process {} ends, to be replaced",
        CALL_MAX.as_secs(),
        std::process::id()
    );
    // SAFETY: a signal to this process.
    unsafe { libc::raise(libc::SIGKILL) };
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use super::*;

    static ENDED: AtomicBool = AtomicBool::new(false);

    /// Uses this much processor time.
    fn spin(time: Duration) {
        let clock = find_own_clock();
        let begun = processor_time(clock).unwrap();
        while processor_time(clock).unwrap() - begun < time && !ENDED.load(Ordering::Relaxed) {}
    }

    #[test]
    fn only_a_call_that_hangs_is_found() {
        let (max, nap) = (Duration::from_millis(200), Duration::from_millis(10));
        thread::spawn(move || watch(max, nap, || ENDED.store(true, Ordering::Relaxed)));
        // Many calls, a call that sleeps, and a program that computes.
        let begun = Instant::now();
        while begun.elapsed() < 2 * max {
            drop(Call::begin());
        }
        let call = Call::begin();
        thread::sleep(2 * max);
        drop(call);
        spin(2 * max);
        assert!(!ENDED.load(Ordering::Relaxed));

        let _call = Call::begin();
        spin(20 * max);
        assert!(ENDED.load(Ordering::Relaxed));
    }
}
