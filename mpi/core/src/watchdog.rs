//! Watchdog over non-waiting MPI calls: ends this process when one hangs.
//!
//! In Open MPI 5.0.11 each process has a queue in shared memory, to which the others on its host append. A process
//! killed between an append's two stores leaves the queue without its end, and the owner then spins in `sm_fifo_read`
//! for ever, in any call making progress. Only its death helps: the job replaces it like any other dead process.
//!
//! The limit is in processor time of the calling thread, so a busy machine, SIGSTOP or a debugger doesn't end a
//! process.

use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Longest processor time of a call that doesn't wait.
///
/// It may handle many arrived messages, and copies those whose receives have begun.
const CALL_MAX: Duration = Duration::from_secs(5);
/// Time between two checks.
const NAP: Duration = Duration::from_millis(500);

/// Number of call begins and ends: odd within a call.
static CALLS: AtomicU64 = AtomicU64::new(0);
/// Processor-time clock of the thread that made the last call.
static CLOCK: AtomicI32 = AtomicI32::new(0);

thread_local! {
    /// This thread's processor-time clock.
    static OWN_CLOCK: Cell<Option<libc::clockid_t>> = const { Cell::new(None) };
}

/// A non-waiting MPI call, until this is dropped.
///
/// Calls from several threads don't overlap.
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

/// Returns a clock's processor time; `None` if its thread has ended.
fn processor_time(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a pointer to a local variable; the call refuses a clock that doesn't exist.
    let code = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (code == 0).then(|| Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32))
}

/// Begins to watch this process's calls, for its lifetime.
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

/// Checks the calls every `nap`, until one has used `max` processor time, and calls `end` then.
fn watch(max: Duration, nap: Duration, end: fn()) {
    // Call number at the last check, its clock, and the clock's time then.
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

/// Ends this process like an external failure, so MPI reports it to the others.
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
        // Many calls, a sleeping call, and a computing program.
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
