//! Clocks that the program reads: a repetition gets the times that its predecessor got.
//!
//! `MPI_Wtime` and the clocks of the C library, which this library stands in for. Readings are recorded on the thread
//! that has called `MPI_Init`, between `MPI_Init` and `MPI_Finalize`, and outside calls of MPI.
//!
//! A program that waits for a time reads a clock millions of times. So a clock that is read without a pause stands
//! still, for a small part of the time that the readings have taken, and what stands still needs no memory.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use crate::front::{Front, running};
use crate::next::Next;

/// Nanoseconds in a second, and in a microsecond.
const SECOND: u64 = 1_000_000_000;
const MICROSECOND: u64 = 1_000;

/// Longest time between two readings without a pause, in nanoseconds.
const PAUSE: u64 = MICROSECOND;
/// Readings without a pause after which a clock may stand still.
const SPIN: u32 = 64;
/// Part of the time of the readings for which it stands still, and its limit in nanoseconds.
const STILL_SHARE: u64 = 64;
const STILL_MAX: u64 = 1_000_000;

/// Clocks, by the numbers of their readings: those of `clock_gettime` have their own.
const CLOCKS: usize = 20;
/// `MPI_Wtime`
const WTIME: u8 = 12;
/// `getrusage`: user and system time of the process, and of its children.
const USAGE: u8 = 13;
/// `times`: elapsed, user and system time.
const ELAPSED: u8 = 17;

thread_local! {
    /// The thread is the rank's.
    static IS_RANK: Cell<bool> = const { Cell::new(false) };
    /// Calls of MPI that the thread is in.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Notes that this thread is the rank's.
pub(crate) fn note_thread() {
    IS_RANK.set(true);
}

/// A call of MPI, in which clocks are not the program's.
pub(crate) struct Inside(());

impl Inside {
    pub(crate) fn enter() -> Inside {
        INSIDE.set(INSIDE.get() + 1);
        Inside(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(INSIDE.get() - 1);
    }
}

/// Pace at which a clock is read.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// Last time, as it was.
    last: u64,
    /// Time of the first reading after a pause.
    first: u64,
    /// Readings since then.
    readings: u32,
}

impl Pace {
    /// Returns the time that a clock shows at `now`, after it has shown `shown`.
    fn show(&mut self, shown: u64, now: u64) -> u64 {
        if now.saturating_sub(self.last) >= PAUSE {
            (self.first, self.readings) = (now, 0);
        }
        self.last = now;
        self.readings = self.readings.saturating_add(1);
        let still =
            if self.readings > SPIN { (now.saturating_sub(self.first) / STILL_SHARE).min(STILL_MAX) } else { 0 };
        // The clock of another boot may be behind.
        if now < shown.saturating_add(still) { shown } else { now }
    }
}

/// Clocks of a rank.
#[derive(Debug, Default)]
pub(crate) struct Clocks([Cell<Pace>; CLOCKS]);

/// Returns a time of a clock for the program: on record, or that of `now`.
fn read(clock: u8, now: impl FnOnce() -> u64) -> u64 {
    let is_program = IS_RANK.get() && INSIDE.get() == 0;
    match running().filter(|_| is_program) {
        Some(front) => {
            let _inside = Inside::enter();
            front.read_clock(clock, now)
        }
        None => now(),
    }
}

impl Front {
    fn read_clock(&self, clock: u8, now: impl FnOnce() -> u64) -> u64 {
        let pace = &self.clocks.0[usize::from(clock)];
        let show = |shown| {
            let mut changed = pace.get();
            let value = changed.show(shown, now());
            pace.set(changed);
            value
        };
        match self.process.call(|endpoint| endpoint.reading(clock, show)) {
            Ok(value) => value,
            Err(error) => {
                self.fail("a reading of a clock", None, error.into());
                0
            }
        }
    }
}

static CLOCK_GETTIME: Next<unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int> =
    Next::new(c"clock_gettime");
static GETRUSAGE: Next<unsafe extern "C" fn(c_int, *mut libc::rusage) -> c_int> = Next::new(c"getrusage");
static TIMES: Next<unsafe extern "C" fn(*mut libc::tms) -> libc::clock_t> = Next::new(c"times");

/// Returns the time of a clock of the system in nanoseconds, or an error as `clock_gettime` does.
fn system(clock: libc::clockid_t) -> Result<u64, c_int> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a pointer to a local variable.
    let code = unsafe { CLOCK_GETTIME.get()(clock, &raw mut now) };
    if code == 0 { Ok(nanoseconds(now)) } else { Err(code) }
}

fn nanoseconds(time: libc::timespec) -> u64 {
    (time.tv_sec as u64).wrapping_mul(SECOND).wrapping_add(time.tv_nsec as u64)
}

fn timespec(nanoseconds: u64) -> libc::timespec {
    libc::timespec { tv_sec: (nanoseconds / SECOND) as i64, tv_nsec: (nanoseconds % SECOND) as i64 }
}

/// Reads a clock of the system that has a number here, or else the system's.
fn read_system(clock: libc::clockid_t) -> Result<u64, c_int> {
    let now = system(clock)?;
    match u8::try_from(clock).ok().filter(|clock| *clock < WTIME) {
        Some(number) => Ok(read(number, || now)),
        None => Ok(now),
    }
}

/// `MPI_Wtime`: of the host's clock. The MPI's may count from the start of each process, and a rank's next process goes
/// on with the clock of the one before.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn MPI_Wtime() -> f64 {
    read(WTIME, || system(libc::CLOCK_MONOTONIC).unwrap_or(0)) as f64 / SECOND as f64
}

/// `clock_gettime`
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    match read_system(clock) {
        Ok(now) => {
            // SAFETY: the caller's variable.
            unsafe { time.write(timespec(now)) };
            0
        }
        Err(code) => code,
    }
}

/// `timespec_get`
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timespec_get(time: *mut libc::timespec, base: c_int) -> c_int {
    const TIME_UTC: c_int = 1;
    // SAFETY: the caller's variable.
    if base == TIME_UTC && unsafe { clock_gettime(libc::CLOCK_REALTIME, time) } == 0 { base } else { 0 }
}

/// `gettimeofday`
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut libc::timeval, zone: *mut c_void) -> c_int {
    let now = read_system(libc::CLOCK_REALTIME).unwrap_or(0);
    // SAFETY: the caller's variables: two integers in the zone, which is no longer used.
    unsafe {
        if !time.is_null() {
            time.write(timeval(now));
        }
        if !zone.is_null() {
            zone.cast::<[c_int; 2]>().write([0, 0]);
        }
    }
    0
}

fn timeval(nanoseconds: u64) -> libc::timeval {
    let microseconds = (nanoseconds % SECOND) / MICROSECOND;
    libc::timeval { tv_sec: (nanoseconds / SECOND) as i64, tv_usec: microseconds as i64 }
}

/// `time`
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(seconds: *mut libc::time_t) -> libc::time_t {
    let now = (read_system(libc::CLOCK_REALTIME_COARSE).unwrap_or(0) / SECOND) as libc::time_t;
    if !seconds.is_null() {
        // SAFETY: the caller's variable.
        unsafe { seconds.write(now) };
    }
    now
}

/// `clock`: in microseconds, as POSIX has it.
#[unsafe(no_mangle)]
pub extern "C" fn clock() -> libc::clock_t {
    read_system(libc::CLOCK_PROCESS_CPUTIME_ID).map_or(-1, |now| (now / MICROSECOND) as libc::clock_t)
}

/// `getrusage`: the times are repeated, other counts are those of the process.
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrusage(who: c_int, usage: *mut libc::rusage) -> c_int {
    // SAFETY: the caller's variable.
    unsafe {
        let code = GETRUSAGE.get()(who, usage);
        let first = match who {
            libc::RUSAGE_SELF => USAGE,
            libc::RUSAGE_CHILDREN => USAGE + 2,
            _ => return code,
        };
        if code == 0 {
            let usage = &mut *usage;
            for (clock, time) in [(first, &mut usage.ru_utime), (first + 1, &mut usage.ru_stime)] {
                let now = time.tv_sec as u64 * SECOND + time.tv_usec as u64 * MICROSECOND;
                *time = timeval(read(clock, || now));
            }
        }
        code
    }
}

/// `times`: the elapsed time and the process's own are repeated.
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn times(times: *mut libc::tms) -> libc::clock_t {
    // SAFETY: the caller's variable.
    unsafe {
        let elapsed = TIMES.get()(times);
        if let Some(times) = times.as_mut() {
            for (clock, ticks) in [(ELAPSED + 1, &mut times.tms_utime), (ELAPSED + 2, &mut times.tms_stime)] {
                *ticks = read(clock, || *ticks as u64) as libc::clock_t;
            }
        }
        read(ELAPSED, || elapsed as u64) as libc::clock_t
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn a_clock_that_is_read_without_a_pause_stands_still_for_a_small_part_of_that_time() {
        let (mut pace, mut shown, mut values) = (Pace::default(), 0, 0);
        for now in (SECOND..2 * SECOND).step_by(100) {
            let next = pace.show(shown, now);
            assert!(next >= shown && now - next <= STILL_MAX.min((now - SECOND) / STILL_SHARE), "{next} at {now}");
            values += u32::from(next != shown);
            shown = next;
        }
        assert!((1_000..3_000).contains(&values), "{values}");
    }

    #[test]
    fn a_clock_that_is_read_with_pauses_shows_each_time() {
        let (mut pace, mut shown) = (Pace::default(), 0);
        for now in (SECOND..SECOND + 1_000 * PAUSE).step_by(PAUSE as usize) {
            shown = pace.show(shown, now);
            assert_eq!(shown, now);
        }
        assert_eq!(pace.show(shown, now_before(shown)), shown, "the clock of another boot");
    }

    fn now_before(time: u64) -> u64 {
        time - SECOND / 2
    }

    #[test]
    fn functions_are_those_of_the_c_library_outside_a_job() {
        let before = system(libc::CLOCK_REALTIME).unwrap();
        // SAFETY: pointers to local variables.
        unsafe {
            let (mut spec, mut val) = (timespec(0), timeval(0));
            assert_eq!(clock_gettime(libc::CLOCK_REALTIME, &raw mut spec), 0);
            assert!(nanoseconds(spec) >= before);
            assert_eq!(timespec_get(&raw mut spec, 1), 1);
            assert_eq!(timespec_get(&raw mut spec, 7), 0);
            assert_eq!(gettimeofday(&raw mut val, ptr::null_mut()), 0);
            assert!(val.tv_sec as u64 >= before / SECOND);
            assert!(time(ptr::null_mut()) as u64 + 1 >= before / SECOND);
            assert_ne!(clock_gettime(99, &raw mut spec), 0);
            let mut usage = std::mem::zeroed();
            assert_eq!(getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
            assert!(usage.ru_maxrss > 0);
            assert!(times(ptr::null_mut()) != -1);
        }
        assert!(clock() >= 0);
    }
}
