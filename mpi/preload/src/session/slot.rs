//! Where the one session of a process is.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use counterfoil::{Keep, OnFull};

use super::put_off::{self, PutOff};
use super::{FullError, Session, asking};

/// Before `MPI_Init`, or behind `MPI_Finalize`, or where logging was given up: calls go to MPI and nowhere else.
const ABSENT: u8 = 0;
/// MPI said that only one thread at a time calls it: nobody has to wait for anybody here either.
const ALONE: u8 = 1;
/// Threads call when they want to.
const TOGETHER: u8 = 2;
/// As ALONE; and whether a message is logged has to be known before it is sent.
const ALONE_CAREFUL: u8 = 3;

struct Slot {
    state: AtomicU8,
    /// Whether somebody is inside: a call of MPI from within a call of ours (from a callback of the user's, say) passes by.
    is_entered: AtomicBool,
    lock: Mutex<()>,
    session: UnsafeCell<Option<Session>>,
}

// SAFETY: the session is reached only through `enter` and those like it, `put` and `take`. In the state TOGETHER they hold the lock. In
// the state ALONE the program has promised MPI (thread levels single, funneled, serialized) that no two of its threads are in MPI calls at
// once, and all of ours are made in such calls. `put` and `take` run in the program's calls of MPI_Init and MPI_Finalize, beside
// which MPI permits no other call.
unsafe impl Sync for Slot {}

static SLOT: Slot = Slot {
    state: AtomicU8::new(ABSENT),
    is_entered: AtomicBool::new(false),
    lock: Mutex::new(()),
    session: UnsafeCell::new(None),
};

static RECORDS_CHOICES: AtomicBool = AtomicBool::new(false);

/// Leaves, also by a panic.
struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        SLOT.is_entered.store(false, Ordering::Relaxed);
    }
}

/// Does `work` with the session, if there is one.
#[inline]
pub(crate) fn enter<T>(work: impl FnOnce(&mut Session) -> T) -> Option<T> {
    match SLOT.state.load(Ordering::Acquire) {
        ALONE | ALONE_CAREFUL => enter_alone(work),
        TOGETHER => {
            if is_mine() {
                return None;
            }
            let _guard = SLOT.lock.lock().unwrap_or_else(PoisonError::into_inner);
            let _inside = Inside::new();
            enter_alone(work)
        }
        _ => None,
    }
}

/// The session, until this is dropped.
pub(crate) struct Visit {
    session: &'static mut Session,
    _entered: Entered,
}

impl Deref for Visit {
    type Target = Session;

    #[inline(always)]
    fn deref(&self) -> &Session {
        self.session
    }
}

impl DerefMut for Visit {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Session {
        self.session
    }
}

/// Enters, where nobody is inside. To be called only by who is alone, or has the lock.
#[inline(always)]
fn visit() -> Option<Visit> {
    if SLOT.is_entered.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: the only reference: see `Slot`; `is_entered` keeps this thread from making a second one, from here on and until the
    // visit is dropped.
    let session = unsafe { &mut *SLOT.session.get() }.as_mut()?;
    SLOT.is_entered.store(true, Ordering::Relaxed);
    Some(Visit { session, _entered: Entered })
}

/// Enters where a message [is sent first](sends_first), and sees to what is put off, but for the beginning of a receive that isn't due,
/// and for one plain receive, for [`leave_behind`](Visit::leave_behind). (What would be handed to a closure here would be stored behind the message.)
#[inline(always)]
pub(crate) fn enter_behind() -> Option<Visit> {
    if SLOT.state.load(Ordering::Acquire) != ALONE {
        return None;
    }
    let mut visit = visit()?;
    if put_off::is_there() && !put_off::is_plain() && (!put_off::has_posted() || put_off::is_due()) {
        visit.catch_up();
    }
    Some(visit)
}

impl Visit {
    /// A message was logged: now what a receive before it took is counted. The record comes first, since it is what takes longest to be
    /// in the cache.
    #[inline(always)]
    pub(crate) fn leave_behind(mut self) {
        if let Some((comm, taken)) = put_off::take_plain() {
            self.count_received(comm, false, taken);
        }
    }

    /// The message isn't logged: what a receive before it took is counted as if no send stood behind it.
    #[cold]
    pub(crate) fn leave(mut self) {
        if let Some((comm, taken)) = put_off::take_plain() {
            self.received_at_once(comm, false, taken);
        }
    }
}

/// Does `work`, which may have to wait for room in the log, with the session, if there is one. Where threads call when they want to, the
/// session is left meanwhile, for what makes room may be a receive of another thread: `work` is then done once more.
#[inline]
pub(crate) fn enter_for_room<T>(
    mut work: impl FnMut(&mut Session) -> Result<T, FullError>,
) -> Option<Result<T, FullError>> {
    loop {
        let done = enter(|session| {
            session.may_leave = is_together();
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

/// Does `work` with the session where nobody is inside, and without waiting for who is.
pub(crate) fn enter_if_free<T>(work: impl FnOnce(&mut Session) -> T) -> Option<T> {
    match SLOT.state.load(Ordering::Acquire) {
        ALONE | ALONE_CAREFUL => enter_alone(work),
        TOGETHER => {
            if is_mine() {
                return None;
            }
            let _guard = match SLOT.lock.try_lock() {
                Ok(guard) => guard,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return None,
            };
            let _inside = Inside::new();
            enter_alone(work)
        }
        _ => None,
    }
}

#[inline]
fn enter_alone<T>(work: impl FnOnce(&mut Session) -> T) -> Option<T> {
    let mut visit = visit()?;
    if put_off::is_there() {
        visit.catch_up();
    }
    Some(work(&mut visit))
}

thread_local! {
    static INSIDE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// This thread holds the lock.
struct Inside;

impl Inside {
    fn new() -> Inside {
        INSIDE.set(true);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

fn is_mine() -> bool {
    INSIDE.get()
}

/// Whether threads may be in MPI calls at once.
#[inline]
pub(crate) fn is_together() -> bool {
    SLOT.state.load(Ordering::Relaxed) == TOGETHER
}

/// Whether there is no session: what is called goes to MPI as it is.
#[inline]
pub(crate) fn is_absent() -> bool {
    SLOT.state.load(Ordering::Relaxed) == ABSENT
}

/// Whether a message may be sent first and logged behind: nobody else sends meanwhile, and a full log doesn't keep it back.
#[inline]
pub(crate) fn sends_first() -> bool {
    SLOT.state.load(Ordering::Relaxed) == ALONE
}

/// Whether what there is to be done may be [put off](mod@put_off): nobody else calls, and this is no call from within one of ours.
#[inline]
pub(crate) fn may_put_off() -> bool {
    matches!(SLOT.state.load(Ordering::Relaxed), ALONE | ALONE_CAREFUL) && !SLOT.is_entered.load(Ordering::Relaxed)
}

/// Whether a call that asks after requests has nothing else to see to: one thread at a time calls, and nothing is due.
#[inline]
pub(crate) fn asks_plainly() -> bool {
    !is_together() && !put_off::is_due()
}

/// Sees to what is put off.
#[inline]
pub(crate) fn catch_up() {
    if put_off::is_there() {
        enter(|_| ());
    }
}

/// Sees to what is put off if that is due, or if somebody wants to know whether the program calls.
#[inline]
pub(crate) fn catch_up_if_due() {
    if put_off::is_due() {
        enter(|session| {
            session.moves += 1;
            put_off::be_no_longer_due();
        });
    }
}

/// Puts off what there is to be done, where it [may be](may_put_off).
#[inline]
pub(crate) fn put_off(what: PutOff) {
    if put_off::is_full() {
        catch_up();
    }
    put_off::put(what);
}

/// Whether outcomes that the program leaves to MPI are recorded, and how often it asked in vain before.
#[inline]
pub(crate) fn records_choices() -> bool {
    RECORDS_CHOICES.load(Ordering::Relaxed)
}

/// The session begins.
pub(crate) fn put(session: Session, together: bool) {
    let _guard = SLOT.lock.lock().unwrap_or_else(PoisonError::into_inner);
    let on_full = session.settings.on_full;
    RECORDS_CHOICES.store(session.settings.keep != Keep::Acked, Ordering::Relaxed);
    // SAFETY: see `Slot`; the state is ABSENT, so nobody is in `enter`.
    unsafe { *SLOT.session.get() = Some(session) };
    let state = match on_full {
        _ if together => TOGETHER,
        OnFull::Fail => ALONE_CAREFUL,
        _ => ALONE,
    };
    SLOT.state.store(state, Ordering::Release);
    asking::begin();
}

/// The session ends.
pub(crate) fn take() -> Option<Session> {
    catch_up();
    let _guard = SLOT.lock.lock().unwrap_or_else(PoisonError::into_inner);
    SLOT.state.store(ABSENT, Ordering::Release);
    // SAFETY: see `Slot`; who was inside held the lock, or was in another call of MPI, which MPI_Finalize excludes.
    unsafe { (*SLOT.session.get()).take() }
}
