//! The session of the process, and its entry from calls.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use counterfoil::{Keep, OnFull};
use counterfoil_mpi_core::control::progress_hook;

use crate::awaited;
use crate::deferred::{self, Event};
use crate::session::{FullError, Session};

/// Before `MPI_Init`, after `MPI_Finalize`, or without logging: calls only go to MPI.
const ABSENT: u8 = 0;
/// MPI's thread level is below MPI_THREAD_MULTIPLE: one thread at a time calls MPI, so no lock is needed.
const SERIALIZED: u8 = 1;
/// The thread level is MPI_THREAD_MULTIPLE, or the program has an MPI session, whose level may be that.
const MULTIPLE: u8 = 2;
/// Like SERIALIZED, but messages are logged before they are sent, since a full log makes the send fail.
const SERIALIZED_LOG_FIRST: u8 = 3;

struct Global {
    state: AtomicU8,
    /// True while a call is in the session.
    ///
    /// A nested MPI call (by a callback of the program, say) isn't logged.
    is_entered: AtomicBool,
    lock: Mutex<()>,
    session: UnsafeCell<Option<Session>>,
}

// SAFETY: the session is reached only by this module's functions. In the state MULTIPLE they hold the lock. In the
// states SERIALIZED the program has promised MPI never to have two threads in MPI calls at the same time, and all
// accesses are made in such calls. `begin` and `end` run in MPI_Init and MPI_Finalize, during which MPI permits no
// other call; `share` runs in the call that lets other threads in.
unsafe impl Sync for Global {}

static GLOBAL: Global = Global {
    state: AtomicU8::new(ABSENT),
    is_entered: AtomicBool::new(false),
    lock: Mutex::new(()),
    session: UnsafeCell::new(None),
};

/// The program has begun an MPI session, whose threads may be in calls at the same time, whatever MPI_Init's level.
static IS_SHARED: AtomicBool = AtomicBool::new(false);

static RECORDS_DETERMINANTS: AtomicBool = AtomicBool::new(false);

/// Marks the session as entered, until dropped.
struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        GLOBAL.is_entered.store(false, Ordering::Relaxed);
    }
}

/// Calls `work` with the session, if there is one.
#[inline]
pub(crate) fn enter<T>(work: impl FnOnce(&mut Session) -> T) -> Option<T> {
    match GLOBAL.state.load(Ordering::Acquire) {
        SERIALIZED | SERIALIZED_LOG_FIRST => enter_locked(work),
        MULTIPLE => {
            if is_lock_holder() {
                return None;
            }
            let _guard = GLOBAL.lock.lock().unwrap_or_else(PoisonError::into_inner);
            let _holder = LockHolder::new();
            enter_locked(work)
        }
        _ => None,
    }
}

/// The entered session, until dropped.
pub(crate) struct SessionGuard {
    session: &'static mut Session,
    _entered: Entered,
}

impl Deref for SessionGuard {
    type Target = Session;

    #[inline(always)]
    fn deref(&self) -> &Session {
        self.session
    }
}

impl DerefMut for SessionGuard {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Session {
        self.session
    }
}

/// Enters the session, unless this thread is in it.
///
/// To be called only in the states SERIALIZED, or with the lock held.
#[inline(always)]
fn guard() -> Option<SessionGuard> {
    if GLOBAL.is_entered.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: the only reference: see `Global`; `is_entered` keeps this thread from making a second one until the guard
    // is dropped.
    let session = unsafe { &mut *GLOBAL.session.get() }.as_mut()?;
    GLOBAL.is_entered.store(true, Ordering::Relaxed);
    Some(SessionGuard { session, _entered: Entered })
}

/// Enters the session after sending a message to be [logged after its send](logs_after_send).
///
/// Handles deferred events, except posted receives not yet due, and a single plain receive, left to
/// [`finish_after_send`](SessionGuard::finish_after_send). (A closure's captures would be stored after the message.)
#[inline(always)]
pub(crate) fn enter_after_send() -> Option<SessionGuard> {
    if GLOBAL.state.load(Ordering::Acquire) != SERIALIZED {
        return None;
    }
    let mut guard = guard()?;
    if !deferred::is_empty() && !deferred::is_plain() && (!deferred::has_posted() || deferred::is_due()) {
        guard.catch_up_during_send();
    }
    Some(guard)
}

impl SessionGuard {
    /// Counts a single receive's message, taken before the send, after the sent one was logged.
    ///
    /// The record comes first, since it takes longest to reach the cache.
    #[inline(always)]
    pub(crate) fn finish_after_send(mut self) {
        if let Some((comm, arrival)) = deferred::take_plain() {
            self.count_arrival(comm, false, arrival);
        }
    }

    /// Like [`finish_after_send`](Self::finish_after_send), for an unlogged message.
    #[cold]
    pub(crate) fn finish_unlogged(mut self) {
        if let Some((comm, arrival)) = deferred::take_plain() {
            self.handle_received(comm, false, arrival);
        }
    }
}

/// Calls `work`, which may have to wait for space in the log, with the session, if there is one.
///
/// With MPI_THREAD_MULTIPLE the session is left during the wait, since another thread's receive may free space, and
/// `work` is called again.
#[inline]
pub(crate) fn enter_for_space<T>(
    mut work: impl FnMut(&mut Session) -> Result<T, FullError>,
) -> Option<Result<T, FullError>> {
    loop {
        let done = enter(|session| {
            session.may_leave = is_multiple();
            let done = work(session);
            session.may_leave = false;
            done
        });
        match done {
            Some(Err(FullError::Later)) => std::thread::yield_now(),
            done => return done,
        }
    }
}

#[inline]
fn enter_locked<T>(work: impl FnOnce(&mut Session) -> T) -> Option<T> {
    let mut guard = guard()?;
    if !deferred::is_empty() {
        guard.catch_up();
    }
    Some(work(&mut guard))
}

thread_local! {
    static HOLDS_LOCK: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Marks this thread as the lock's holder, until dropped.
struct LockHolder;

impl LockHolder {
    fn new() -> LockHolder {
        HOLDS_LOCK.set(true);
        LockHolder
    }
}

impl Drop for LockHolder {
    fn drop(&mut self) {
        HOLDS_LOCK.set(false);
    }
}

fn is_lock_holder() -> bool {
    HOLDS_LOCK.get()
}

/// Returns `true` if threads may be in MPI calls at the same time.
#[inline]
pub(crate) fn is_multiple() -> bool {
    GLOBAL.state.load(Ordering::Relaxed) == MULTIPLE
}

/// Returns `true` if threads may be in MPI calls at the same time because of an MPI session.
pub(crate) fn is_shared() -> bool {
    IS_SHARED.load(Ordering::Relaxed)
}

/// Returns `true` without a session: calls only go to MPI.
#[inline]
pub(crate) fn is_absent() -> bool {
    GLOBAL.state.load(Ordering::Relaxed) == ABSENT
}

/// Returns `true` if messages may be sent first and logged afterwards: no other thread sends meanwhile, and a full log
/// doesn't hold them back.
#[inline]
pub(crate) fn logs_after_send() -> bool {
    GLOBAL.state.load(Ordering::Relaxed) == SERIALIZED
}

/// Returns `true` if events may be [deferred](mod@deferred): no other thread calls, and the call isn't made from within
/// the session.
#[inline]
pub(crate) fn can_defer() -> bool {
    matches!(GLOBAL.state.load(Ordering::Relaxed), SERIALIZED | SERIALIZED_LOG_FIRST)
        && !GLOBAL.is_entered.load(Ordering::Relaxed)
}

/// Returns `true` if a test or wait needn't enter the session before its MPI call: no other thread calls, and nothing
/// is due.
#[inline]
pub(crate) fn can_skip_session() -> bool {
    !is_multiple() && !deferred::is_due()
}

/// Handles deferred events.
#[inline]
pub(crate) fn catch_up() {
    if !deferred::is_empty() {
        enter(|_| ());
    }
}

/// Handles due deferred events, or shows another rank that the program calls MPI.
#[inline]
pub(crate) fn catch_up_if_due() {
    if deferred::is_due() {
        enter(|session| {
            session.logger.note_activity();
            deferred::clear_due();
        });
    }
}

/// Defers an event, where that [is allowed](can_defer).
#[inline]
pub(crate) fn defer(event: Event) {
    if deferred::is_full() {
        catch_up();
    }
    deferred::put(event);
}

/// Returns `true` if determinants are recorded, with the number of polls failed before each.
#[inline]
pub(crate) fn records_determinants() -> bool {
    RECORDS_DETERMINANTS.load(Ordering::Relaxed)
}

/// Counts a test or probe without a result.
#[inline]
pub(crate) fn count_failed_poll() {
    crate::failed_polls::add(is_multiple());
}

/// Begins the process's session, in MPI_Init.
pub(crate) fn begin(session: Session, is_multiple: bool) {
    let _guard = GLOBAL.lock.lock().unwrap_or_else(PoisonError::into_inner);
    let on_full = session.settings.on_full;
    RECORDS_DETERMINANTS.store(session.settings.keep != Keep::Acked, Ordering::Relaxed);
    awaited::begin(session.bytes_without_wait(), is_multiple);
    // SAFETY: see `Global`; the state is ABSENT, so no call is in `enter`.
    unsafe { *GLOBAL.session.get() = Some(session) };
    let state = match on_full {
        _ if is_multiple => MULTIPLE,
        OnFull::Fail => SERIALIZED_LOG_FIRST,
        _ => SERIALIZED,
    };
    GLOBAL.state.store(state, Ordering::Release);
    // SAFETY: MPI is initialised; this library was loaded before the program and is never unloaded.
    unsafe { progress_hook::begin(poll_in_call) };
}

/// Lets several threads into calls at the same time from now on.
///
/// To be called in an MPI call, while no other thread is in one: at levels below MPI_THREAD_MULTIPLE the program
/// ensures this.
#[cfg(wraps = "session_init")]
pub(crate) fn share() {
    IS_SHARED.store(true, Ordering::Relaxed);
    catch_up();
    let is_serialized = enter(|session| session.logger.set_multithreaded()).is_some() && !is_multiple();
    if is_serialized {
        awaited::share();
        GLOBAL.state.store(MULTIPLE, Ordering::Release);
    }
}

/// Handles control messages while the program waits in an MPI call, unless a call is in the session.
fn poll_in_call() {
    let poll = || {
        if let Some(mut session) = guard() {
            // The call may be a send not counted yet.
            session.catch_up_during_send();
            session.poll_in_call();
        }
    };
    match GLOBAL.state.load(Ordering::Acquire) {
        SERIALIZED | SERIALIZED_LOG_FIRST => poll(),
        MULTIPLE if !is_lock_holder() => {
            let _guard = match GLOBAL.lock.try_lock() {
                Ok(guard) => guard,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let _holder = LockHolder::new();
            poll();
        }
        _ => {}
    }
}

/// Takes the session, in MPI_Finalize.
pub(crate) fn end() -> Option<Session> {
    catch_up();
    let session = {
        let _guard = GLOBAL.lock.lock().unwrap_or_else(PoisonError::into_inner);
        GLOBAL.state.store(ABSENT, Ordering::Release);
        // SAFETY: see `Global`; a call in the session held the lock, or was another MPI call, which MPI_Finalize
        // excludes.
        unsafe { (*GLOBAL.session.get()).take() }
    }?;
    // SAFETY: MPI is not finalised yet.
    unsafe { progress_hook::end() };
    Some(session)
}
