//! Clocks read by the program: a repetition gets its predecessor's times.
//!
//! This library stands in for `MPI_Wtime` and the C library's clocks. Readings are recorded on the thread that called
//! `MPI_Init`, between `MPI_Init` and `MPI_Finalize`, and outside MPI calls.
//!
//! A program waiting for a time reads a clock millions of times. So a clock read without a pause stands still, for a
//! small part of the readings' duration, and while it stands still it needs no memory.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::front::{Front, running};
use crate::next::Next;
use crate::process::say;

/// Nanoseconds in a second, and in a microsecond.
const SECOND: u64 = 1_000_000_000;
const MICROSECOND: u64 = 1_000;

/// Longest time between two readings without a pause, in nanoseconds.
const PAUSE: u64 = MICROSECOND;
/// Readings without a pause after which a clock may stand still.
const SPIN: u32 = 64;
/// Part of the readings' duration for which it stands still, and its limit in nanoseconds.
const STILL_SHARE: u64 = 64;
const STILL_MAX: u64 = 1_000_000;

/// Bytes of a recorded reading.
const READING_BYTES: u64 = 48;
/// Divisor for the readings' part of the memory for outcomes.
const READINGS_SHARE: u64 = 2;
/// Assumed minimum duration of the job, in nanoseconds.
const RAN_MIN: u64 = 60 * SECOND;

/// Number of clocks, numbered as their readings: those of `clock_gettime` have their own.
const CLOCKS: usize = 20;
/// `MPI_Wtime`
const WTIME: u8 = 12;
/// `getrusage`: user and system time for the process, and for its children.
const USAGE: u8 = 13;
/// `times`: elapsed, user and system time.
const ELAPSED: u8 = 17;

thread_local! {
    /// True on the rank's thread.
    static IS_RANK: Cell<bool> = const { Cell::new(false) };
    /// Nesting depth of the thread's MPI calls.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}
/// True if several threads may call MPI.
static HAS_THREADS: AtomicBool = AtomicBool::new(false);
/// Current activity of any thread, if there may be several.
static BUSY: AtomicU8 = AtomicU8::new(IDLE);
const IDLE: u8 = 0;
const CALL: u8 = 1;
const READING: u8 = 2;
/// True in a child forked by the rank.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Marks this thread as the rank's; with `has_threads`, others may call MPI, too.
pub(crate) fn note_thread(has_threads: bool) {
    extern "C" fn note_child() {
        IS_CHILD.store(true, Ordering::Relaxed);
    }
    IS_RANK.set(true);
    HAS_THREADS.store(has_threads, Ordering::Relaxed);
    // SAFETY: the function only stores. Without memory for it, children record readings of their own.
    unsafe { libc::pthread_atfork(None, None, Some(note_child)) };
}

/// Returns `true` in a child forked by the rank.
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// An MPI call, in which clocks are not the program's, or a clock reading.
pub(crate) struct Inside {
    /// True if dropping it resets [`BUSY`].
    is_outermost: bool,
}

impl Inside {
    /// Enters an MPI call.
    ///
    /// Waits for a thread reading a clock. A thread in another call breaks the promise of `MPI_THREAD_SERIALIZED`, and
    /// ends the process.
    pub(crate) fn enter() -> Inside {
        loop {
            match Inside::try_enter(CALL) {
                Ok(inside) => return inside,
                Err(READING) => hint::spin_loop(),
                Err(_) => {
                    say("two threads are in calls of MPI at once, and MPI_THREAD_SERIALIZED is provided");
                    // SAFETY: a function without preconditions.
                    unsafe { libc::abort() }
                }
            }
        }
    }

    /// Enters, or returns another thread's activity.
    fn try_enter(what: u8) -> Result<Inside, u8> {
        INSIDE.with(|inside| {
            let is_outermost = inside.get() == 0 && HAS_THREADS.load(Ordering::Relaxed);
            if is_outermost {
                BUSY.compare_exchange(IDLE, what, Ordering::Acquire, Ordering::Relaxed)?;
            }
            inside.set(inside.get() + 1);
            Ok(Inside { is_outermost })
        })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(inside.get() - 1));
        if self.is_outermost {
            BUSY.store(IDLE, Ordering::Release);
        }
    }
}

/// Returns `true` if this thread is in an MPI call.
pub(crate) fn is_inside() -> bool {
    INSIDE.get() > 0
}

/// Pace of a clock's readings.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// Last time, unadjusted.
    last: u64,
    /// Time of the first reading after a pause.
    first: u64,
    /// Readings since then.
    readings: u32,
    /// Offset added to a clock lagging the previous process's: a processor-time clock, or any after another boot.
    ahead: u64,
    /// Last time shown, also by the process that took the checkpoint.
    shown: u64,
}

impl Pace {
    /// Returns a clock's time at `now`, after it has shown `shown`.
    ///
    /// It stands still for at least `still`.
    fn show(&mut self, shown: u64, now: u64, still: u64) -> u64 {
        if now < self.last || now.saturating_sub(self.last) >= PAUSE {
            (self.first, self.readings) = (now, 0);
        }
        self.last = now;
        self.readings = self.readings.saturating_add(1);
        let spin = if self.readings > SPIN { (now.saturating_sub(self.first) / STILL_SHARE).min(STILL_MAX) } else { 0 };
        if now.saturating_add(self.ahead) < shown {
            self.ahead = shown - now;
        }
        let now = now.saturating_add(self.ahead);
        if now < shown.saturating_add(still.max(spin)) { shown } else { now }
    }
}

/// A rank's clocks.
#[derive(Debug)]
pub(crate) struct Clocks {
    paces: [Cell<Pace>; CLOCKS],
    /// Readings that fit into their memory.
    readings_max: u64,
    /// Rank's start time, in nanoseconds.
    begun: u64,
}

impl Clocks {
    /// Makes a rank's clocks with this memory for outcomes.
    pub(crate) fn new(outcome_bytes: usize) -> Clocks {
        Clocks {
            paces: Default::default(),
            readings_max: outcome_bytes as u64 / READINGS_SHARE / READING_BYTES,
            begun: system(libc::CLOCK_MONOTONIC).unwrap_or(0),
        }
    }

    /// Returns each clock's last time, for a checkpoint.
    pub(crate) fn shown(&self) -> Vec<u64> {
        self.paces.iter().map(|pace| pace.get().shown).collect()
    }

    /// Continues from a checkpoint's times.
    pub(crate) fn resume(&self, shown: &[u64]) {
        self.paces.iter().zip(shown).for_each(|(pace, shown)| note_shown(pace, *shown));
    }

    /// Returns the time for which a clock stands still once much memory is used.
    ///
    /// The remaining memory then suffices for as long as the job has run, and so on.
    fn still(&self, recorded: u64) -> u64 {
        if recorded < self.readings_max / 2 {
            return 0;
        }
        let ran = system(libc::CLOCK_MONOTONIC).unwrap_or(0).saturating_sub(self.begun).max(RAN_MIN);
        ran / self.readings_max.saturating_sub(recorded).max(1)
    }
}

/// Notes a time shown to the program.
fn note_shown(pace: &Cell<Pace>, shown: u64) {
    pace.set(Pace { shown, ..pace.get() });
}

/// Returns a clock's time for the program: on record, or from `now`.
fn read(clock: u8, now: impl FnOnce() -> u64) -> u64 {
    let is_program = (IS_RANK.get() || clock == WTIME) && INSIDE.get() == 0 && !is_child();
    // Not recorded while another thread is in a call.
    let Some(Ok(_inside)) = is_program.then(|| Inside::try_enter(READING)) else { return now() };
    match running() {
        Some(front) => front.read_clock(clock, now),
        None => now(),
    }
}

impl Front {
    fn read_clock(&self, clock: u8, now: impl FnOnce() -> u64) -> u64 {
        let pace = &self.clocks.paces[usize::from(clock)];
        let show = |shown, recorded| {
            let mut changed = pace.get();
            let value = changed.show(changed.shown.max(shown), now(), self.clocks.still(recorded));
            pace.set(changed);
            value
        };
        match self.process.call(|endpoint| endpoint.reading(clock, show)) {
            Ok(value) => {
                note_shown(pace, value);
                value
            }
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
static TIMESPEC_GET: Next<unsafe extern "C" fn(*mut libc::timespec, c_int) -> c_int> = Next::new(c"timespec_get");
static TIMES: Next<unsafe extern "C" fn(*mut libc::tms) -> libc::clock_t> = Next::new(c"times");

/// Returns a system clock's time in nanoseconds, or an error as `clock_gettime` does.
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

/// Reads a system clock with a number here, or else the system's.
fn read_system(clock: libc::clockid_t) -> Result<u64, c_int> {
    let now = system(clock)?;
    match u8::try_from(clock).ok().filter(|clock| *clock < WTIME) {
        Some(number) => Ok(read(number, || now)),
        None => Ok(now),
    }
}

/// `MPI_Wtime`, on the host's clock.
///
/// The MPI's may count from the start of each process, while a rank's next process continues its predecessor's clock.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn MPI_Wtime() -> f64 {
    read(WTIME, || system(libc::CLOCK_MONOTONIC).unwrap_or(0)) as f64 / SECOND as f64
}

/// `clock_gettime`
///
/// # Safety
/// Same as in the C library.
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
/// Same as in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timespec_get(time: *mut libc::timespec, base: c_int) -> c_int {
    const TIME_UTC: c_int = 1;
    // SAFETY: the caller's variable.
    unsafe {
        if base != TIME_UTC {
            return TIMESPEC_GET.get()(time, base);
        }
        if clock_gettime(libc::CLOCK_REALTIME, time) == 0 { base } else { 0 }
    }
}

/// `gettimeofday`
///
/// # Safety
/// Same as in the C library.
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
/// Same as in the C library.
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

/// `getrusage`: the times are repeated, other counts are the process's own.
///
/// # Safety
/// Same as in the C library.
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
/// Same as in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn times(times: *mut libc::tms) -> libc::clock_t {
    // SAFETY: the caller's variable, and a function without preconditions.
    unsafe {
        let elapsed = TIMES.get()(times);
        if elapsed == -1 {
            return elapsed;
        }
        let tick = SECOND / (libc::sysconf(libc::_SC_CLK_TCK).max(1) as u64);
        let read_ticks = |clock, ticks: libc::clock_t| (read(clock, || ticks as u64 * tick) / tick) as libc::clock_t;
        if let Some(times) = times.as_mut() {
            times.tms_utime = read_ticks(ELAPSED + 1, times.tms_utime);
            times.tms_stime = read_ticks(ELAPSED + 2, times.tms_stime);
        }
        read_ticks(ELAPSED, elapsed)
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
            let next = pace.show(shown, now, 0);
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
            shown = pace.show(shown, now, 0);
            assert_eq!(shown, now);
        }
    }

    #[test]
    fn a_clock_that_is_behind_goes_on_from_what_it_has_shown() {
        let mut pace = Pace::default();
        assert_eq!(pace.show(7 * SECOND, SECOND, 0), 7 * SECOND);
        assert_eq!(pace.show(7 * SECOND, SECOND + 2 * PAUSE, 0), 7 * SECOND + 2 * PAUSE);
        // Set back later.
        let shown = 7 * SECOND + 2 * PAUSE;
        assert_eq!(pace.show(shown, 5, 0), shown);
        assert_eq!(pace.show(shown, 5 + 3 * PAUSE, 0), shown + 3 * PAUSE);
    }

    #[test]
    fn readings_fit_into_their_memory_however_often_clocks_are_read() {
        let clocks = Clocks::new(1 << 20);
        let (mut pace, mut shown, mut recorded) = (Pace::default(), 0, 0);
        // Every 2 us, for a minute starting with the rank.
        for now in (SECOND..61 * SECOND).step_by(2_000) {
            let next = pace.show(shown, now, clocks.still(recorded));
            assert!(next >= shown);
            recorded += u64::from(next != shown);
            shown = next;
        }
        assert!((clocks.readings_max / 2..clocks.readings_max).contains(&recorded), "{recorded}");
        assert!(61 * SECOND - shown < SECOND / 10, "{shown}");
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
