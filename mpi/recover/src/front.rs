//! The rank's state between `MPI_Init` and `MPI_Finalize`.
//!
//! The program may call MPI from several threads, one at a time (`MPI_THREAD_SERIALIZED`). Nothing is borrowed while
//! one of the program's functions runs (an error handler, an attribute's function), so it may call MPI.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::rc::Rc;

use counterfoil_mpi::recovering::Recovering;
use counterfoil_mpi::recovery::RankHandle;
use counterfoil_settings::recover::ReplayEnd;
use mpi_sys as ffi;
use rustc_hash::FxHashMap;

use crate::calls::Matched;
use crate::clocks::{Clocks, Inside};
use crate::comms::Comm;
use crate::failure::{Failure, refusal, text_of};
use crate::handle::bits;
use crate::last_test::LastTest;
use crate::mark::Mark;
use crate::process;
use crate::reduction::UsedOperations;
use crate::replay::{Reason, Replay};
use crate::requests::Requests;
use crate::slab::Slab;

/// Exit code of a job ending because a call failed.
const FAILED: c_int = 1;

/// The rank's state.
pub(crate) struct Front {
    pub(crate) process: Rc<Recovering>,
    /// Communicators by handle.
    pub(crate) comms: RefCell<FxHashMap<usize, Rc<Comm>>>,
    pub(crate) world: Rc<Comm>,
    pub(crate) requests: RefCell<Requests>,
    pub(crate) last_test: LastTest,
    /// Matched messages.
    pub(crate) matched: RefCell<Slab<Matched>>,
    /// Job ranks in the program's groups.
    pub(crate) groups: RefCell<Slab<Vec<u32>>>,
    pub(crate) used_operations: Rc<UsedOperations>,
    /// A communicator with this process alone, without attributes, for the MPI's own calls that need one.
    pub(crate) private: ffi::MPI_Comm,
    /// Same, with the attributes set by the program on `MPI_COMM_WORLD`.
    pub(crate) world_attributes: ffi::MPI_Comm,
    pub(crate) clocks: Clocks,
    /// The program's calls since `MPI_Init`.
    pub(crate) calls: Cell<u64>,
    /// Name of the last call.
    pub(crate) last: Cell<&'static str>,
    /// Number of the next call before which this process kills itself or stops its replay.
    pub(crate) stops_in: Cell<Option<u64>>,
    /// True until the program first sends bytes other than the recorded ones, if it may continue then.
    pub(crate) looks_for_divergence: Cell<bool>,
    /// Number of times the rank has been replaced, until this process has caught up with its predecessor.
    pub(crate) catches_up: Cell<Option<u32>>,
    /// Call count for a replay, where the job keeps its logs.
    pub(crate) mark: Option<Mark>,
    /// True if the program may take checkpoints.
    pub(crate) takes_checkpoints: bool,
    /// Ids and lengths of the memory named when the program was set up.
    pub(crate) set_up: RefCell<Option<BTreeSet<(c_int, usize)>>>,
    /// `None` in a job.
    pub(crate) replay: Option<Replay>,
    pub(crate) handle: Cell<Option<RankHandle>>,
}

/// This process's state.
enum State {
    Before,
    Running(Box<Front>),
    After,
}

/// A cell for the only state, shared by calls made one at a time.
struct Global(UnsafeCell<State>);

// SAFETY: MPI's thread level promises that calls from several threads don't overlap, and that they are ordered.
unsafe impl Sync for Global {}

static GLOBAL: Global = Global(UnsafeCell::new(State::Before));

/// Returns the rank's state between `MPI_Init` and `MPI_Finalize`.
pub(crate) fn running() -> Option<&'static Front> {
    // SAFETY: it is replaced by `begin` and `take` only, before and after all other calls.
    match unsafe { &*GLOBAL.0.get() } {
        State::Running(front) => Some(front),
        State::Before | State::After => None,
    }
}

/// Begins with a state.
pub(crate) fn begin(front: Front) {
    // SAFETY: nothing refers to the earlier state, since there was none.
    unsafe { *GLOBAL.0.get() = State::Running(Box::new(front)) };
}

/// Returns `true` once `MPI_Finalize` was called.
pub(crate) fn is_over() -> bool {
    // SAFETY: as in `running`.
    matches!(unsafe { &*GLOBAL.0.get() }, State::After)
}

/// Takes the state, at the end.
pub(crate) fn take() -> Option<Box<Front>> {
    // SAFETY: the only call under way is `MPI_Finalize`, which holds no reference.
    match unsafe { std::mem::replace(&mut *GLOBAL.0.get(), State::After) } {
        State::Running(front) => Some(front),
        State::Before | State::After => None,
    }
}

/// Refuses a call unsupported by recovery: ends the job, or the process before it is a rank.
pub(crate) fn refuse(name: &'static str) -> c_int {
    if running().is_some() {
        return enter(name, None, |_| Err(Failure::refused(name)));
    }
    process::say(&refusal(name));
    process::exit_at_once(FAILED);
}

/// Makes one of the program's calls, and hands an error to its communicator's handler.
pub(crate) fn enter(
    name: &'static str,
    comm: Option<ffi::MPI_Comm>,
    call: impl FnOnce(&'static Front) -> Result<(), Failure>,
) -> c_int {
    let Some(front) = running() else {
        let when = if is_over() { "after MPI_Finalize" } else { "before MPI_Init" };
        process::say(&format!("{name} was called {when}"));
        process::exit_at_once(FAILED);
    };
    let called = {
        let _inside = Inside::enter();
        front.count_call(name);
        let called = front.settle_orphans().and_then(|()| call(front));
        if front.looks_for_divergence.get() {
            front.warn_of_divergence(name);
        }
        if let Some(incarnation) = front.catches_up.get() {
            front.report_recovery(incarnation);
        }
        called
    };
    match called {
        Ok(()) => 0,
        Err(failure) => front.fail(name, comm, failure),
    }
}

/// Checks that a pointer to `count` values is not null.
pub(crate) fn check<T>(at: *mut T, count: c_int) -> Result<(), Failure> {
    if at.is_null() && count > 0 { Err(Failure::class(ffi::MPI_ERR_ARG)) } else { Ok(()) }
}

impl Front {
    /// Returns the process's rank in the job.
    pub(crate) fn rank(&self) -> u32 {
        self.process.rank()
    }

    /// Counts a call, and stops before the one named by the user.
    pub(crate) fn count_call(&self, name: &'static str) {
        let calls = self.calls.get() + 1;
        self.calls.set(calls);
        let last = self.last.replace(name);
        if let Some(mark) = &self.mark {
            mark.note(calls);
        }
        if self.stops_in.get() == Some(calls) {
            self.stop(name, last);
        }
        if self.replay.as_ref().is_some_and(Replay::has_history) {
            // An error recurs in the call itself.
            let _ = self.process.call(|endpoint| {
                endpoint.set_place(calls, name);
                Ok(())
            });
        }
    }

    #[cold]
    fn stop(&self, name: &str, last: &str) {
        let Some(replay) = &self.replay else {
            // SAFETY: a signal to this process, which can't be blocked.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            return;
        };
        replay.stop(self, name, last);
        self.stops_in.set(replay.stops_in());
        if self.stops_in.get() == Some(self.calls.get()) {
            replay.stop(self, name, last);
        }
    }

    /// Reports the recovery's steps, once this process has caught up with its predecessor.
    #[cold]
    fn report_recovery(&self, incarnation: u32) {
        let times = self.process.call(|endpoint| Ok(endpoint.transport_mut().recovery_times())).unwrap_or_default();
        if times.catch_up.is_some() {
            self.catches_up.set(None);
            process::report_recovery(self.rank(), incarnation, &times);
        }
    }

    /// Warns, once, that the program has sent bytes other than the recorded ones.
    #[cold]
    fn warn_of_divergence(&self, name: &str) {
        if let Ok(Some(first)) = self.process.call(|endpoint| Ok(endpoint.take_divergence())) {
            self.looks_for_divergence.set(false);
            process::say(&format!(
                "rank {}, call {}, {name}: {first}; the bytes on record are sent, here and from now on",
                self.rank(),
                self.calls.get()
            ));
        }
    }

    /// Returns the communicator with a handle.
    pub(crate) fn comm(&self, handle: ffi::MPI_Comm) -> Result<Rc<Comm>, Failure> {
        if handle == self.world.handle {
            return Ok(Rc::clone(&self.world));
        }
        let found = self.comms.borrow().get(&bits(handle)).cloned();
        // Handled by MPI_COMM_WORLD's handler: there is no other.
        found.ok_or_else(|| Failure::class(ffi::MPI_ERR_COMM).on(self.world.handle))
    }

    /// Handles a failure as its communicator's handler demands; returns the code for the program.
    pub(crate) fn fail(&self, name: &str, comm: Option<ffi::MPI_Comm>, failure: Failure) -> c_int {
        let inside = Inside::enter();
        let (code, on) = match failure {
            Failure::Mpi { code, comm: on } => (code, on.or(comm).unwrap_or(self.world.handle)),
            Failure::Fatal(why) => self.end_job_in(name, FAILED, &why, ReplayEnd::Failed),
            Failure::Replay { reason, why } => {
                let end = self.replay.as_ref().map(|replay| replay.end_for(reason, self.calls.get()));
                let hint = match reason {
                    Reason::OtherBytes if end.is_none() => {
                        "; with --divergence warn, the job goes on with those on record"
                    }
                    _ => "",
                };
                self.end_job_in(name, FAILED, &format!("{why}{hint}"), end.unwrap_or(ReplayEnd::Differs))
            }
            Failure::Ended => process::exit_at_once(FAILED),
            Failure::Lost(why) => process::lose_job(self.process.universe(), &format!("rank {}: {why}", self.rank())),
        };
        drop(inside);
        let on = if self.comm(on).is_ok() { on } else { self.world.handle };
        // SAFETY: a valid communicator, and pointers to local variables. Nothing is borrowed while the handler runs.
        unsafe {
            let mut handler = ffi::RSMPI_ERRORS_RETURN;
            ffi::PMPI_Comm_get_errhandler(on, &raw mut handler);
            let is_fatal = handler == ffi::RSMPI_ERRORS_ARE_FATAL;
            ffi::PMPI_Errhandler_free(&raw mut handler);
            if is_fatal {
                let why = format!("an error occurred in {name}: {}", text_of(code));
                self.end_job_in(name, code, &why, ReplayEnd::Aborted);
            }
            ffi::PMPI_Comm_call_errhandler(on, code);
        }
        code
    }

    /// Ends all processes of the job, or the replay, because of a failed call.
    fn end_job_in(&self, call: &str, code: c_int, why: &str, end: ReplayEnd) -> ! {
        let _inside = Inside::enter();
        match &self.replay {
            Some(replay) => replay.end(self, end, call, why.to_owned()),
            None => self.end_job(code, why),
        }
    }

    /// Ends all processes of the job at the program's request.
    pub(crate) fn end_job(&self, code: c_int, why: &str) -> ! {
        let _inside = Inside::enter();
        if let Some(replay) = &self.replay {
            replay.end(self, ReplayEnd::Aborted, self.last.get(), why.to_owned());
        }
        process::end_job(self.process.universe(), code, &format!("rank {}: {why}", self.rank()))
    }
}
