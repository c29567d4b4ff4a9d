//! Operations that are waited for later, and the memory that is MPI's meanwhile.
//!
//! Memory that is borrowed belongs to a [`LocalScope`], which ends whatever is still under way when it ends itself: a request that is
//! leaked is ended by its scope, and one that owns its memory leaks that, too.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::rc::Rc;

use mpi_sys as ffi;

use crate::error::{MpiError, check};
use crate::point_to_point::Envelope;
use crate::universe::Universe;

/// How many requests a scope has before it looks which of them are over.
const SCOPE_MIN: usize = 32;

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    Receive,
    Collective,
}

/// How an operation ended.
#[derive(Debug)]
pub struct Ended {
    /// The message that a receive took, also one that was too long.
    pub(crate) envelope: Option<Envelope>,
    pub(crate) result: Result<(), MpiError>,
}

/// Memory that an operation owns.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// What is sent or received.
    pub(crate) bytes: Vec<u8>,
    /// Lengths and places of parts.
    pub(crate) _numbers: Vec<Vec<c_int>>,
}

/// An operation that MPI carries out.
#[derive(Debug)]
pub struct Pending {
    /// Active, or the null request.
    request: Cell<ffi::MPI_Request>,
    kind: Kind,
    /// MPI's alone while the request is active.
    memory: RefCell<ManuallyDrop<Memory>>,
    /// How it ended, where that was not asked for.
    ended: RefCell<Option<Ended>>,
    _universe: Rc<Universe>,
}

/// The null request.
pub(crate) fn none() -> ffi::MPI_Request {
    // SAFETY: a constant of the shim that `mpi-sys` links; nobody writes it.
    unsafe { ffi::RSMPI_REQUEST_NULL }
}

/// A status that says nothing yet.
pub(crate) fn blank() -> ffi::MPI_Status {
    // SAFETY: numbers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

impl Pending {
    /// An operation that was begun just now.
    ///
    /// # Safety
    /// `request` is active, or the null one, and nobody else has it. Memory that it uses is in `memory`, or stays MPI's alone until this
    /// is over.
    pub(crate) unsafe fn begun(
        request: ffi::MPI_Request,
        kind: Kind,
        memory: Memory,
        universe: Rc<Universe>,
    ) -> Pending {
        let memory = RefCell::new(ManuallyDrop::new(memory));
        Pending { request: Cell::new(request), kind, memory, ended: RefCell::new(None), _universe: universe }
    }

    /// For an array of requests. It goes back by [`set`](Self::set).
    pub(crate) fn raw(&self) -> ffi::MPI_Request {
        self.request.get()
    }

    /// What MPI has left of the request.
    ///
    /// # Safety
    /// A call of MPI has put `request` in the place of what [`raw`](Self::raw) gave.
    pub(crate) unsafe fn set(&self, request: ffi::MPI_Request) {
        self.request.set(request);
    }

    /// Whether MPI has nothing to do with it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.request.get() == none()
    }

    /// How it ended, if its scope has ended it.
    pub(crate) fn take_ended(&self) -> Option<Ended> {
        self.ended.take()
    }

    /// It has ended with this code and status.
    pub(crate) fn conclude(&self, call: &'static str, code: c_int, status: &ffi::MPI_Status) -> Ended {
        let mut result = check(call, code);
        let is_taken = match &result {
            Ok(()) => true,
            Err(MpiError::Call { class, .. }) => *class == ffi::MPI_ERR_TRUNCATE as i32,
            Err(_) => false,
        };
        let mut cancelled = 0;
        // SAFETY: a status that MPI has filled in, or zeros, and a pointer to a local variable.
        unsafe { ffi::MPI_Test_cancelled(status, &raw mut cancelled) };
        if self.kind != Kind::Receive || !is_taken || cancelled != 0 {
            return Ended { envelope: None, result };
        }
        let envelope = Envelope::of(status);
        if let (Ok(()), Err(error)) = (&result, &envelope) {
            result = Err(error.clone());
        }
        Ended { envelope: envelope.ok(), result }
    }

    /// Waits until it ends.
    pub(crate) fn wait(&self) -> Ended {
        if let Some(ended) = self.take_ended() {
            return ended;
        }
        if self.is_over() {
            return Ended { envelope: None, result: Ok(()) };
        }
        let (mut request, mut status) = (self.raw(), blank());
        // SAFETY: a request that is active, and pointers to local variables.
        let code = unsafe { ffi::MPI_Wait(&raw mut request, &raw mut status) };
        self.request.set(request);
        self.conclude("MPI_Wait", code, &status)
    }

    /// How it ended, if it has.
    pub(crate) fn test(&self) -> Option<Ended> {
        if self.is_over() {
            return Some(self.wait());
        }
        let (mut request, mut flag, mut status) = (self.raw(), 0, blank());
        // SAFETY: as in `wait`.
        let code = unsafe { ffi::MPI_Test(&raw mut request, &raw mut flag, &raw mut status) };
        self.request.set(request);
        (code != 0 || flag != 0).then(|| self.conclude("MPI_Test", code, &status))
    }

    /// Whether [`wait`](Self::wait) returns at once.
    pub(crate) fn is_ready(&self) -> Result<bool, MpiError> {
        if self.is_over() {
            return Ok(true);
        }
        let mut flag = 0;
        // SAFETY: a request that is active, a pointer to a local variable, and a status that is not wanted.
        let code = unsafe { ffi::MPI_Request_get_status(self.raw(), &raw mut flag, ffi::RSMPI_STATUS_IGNORE) };
        check("MPI_Request_get_status", code)?;
        Ok(flag != 0)
    }

    /// Calls a receive off, and waits until it ends: without a message, or with one that had come.
    pub(crate) fn call_off(&self) -> Ended {
        if self.kind == Kind::Receive && !self.is_over() {
            let mut request = self.raw();
            // SAFETY: a request that is active. Where MPI can't call it off, it ends as it would otherwise.
            unsafe { ffi::MPI_Cancel(&raw mut request) };
        }
        self.wait()
    }

    /// The bytes that it owned; none while it is under way.
    pub(crate) fn take_bytes(&self) -> Vec<u8> {
        if self.is_over() { std::mem::take(&mut self.memory.borrow_mut().bytes) } else { Vec::new() }
    }

    /// Its memory is about to be somebody else's.
    fn end_with_scope(&self) {
        if self.is_over() {
            return;
        }
        // What others wait for can't be called off, and they may never come where this rank panics.
        let may_wait = self.kind == Kind::Receive || !std::thread::panicking();
        if may_wait {
            self.ended.replace(Some(self.call_off()));
        }
        if !self.is_over() {
            tracing::error!("memory that MPI is at work on would be given back: the process ends");
            std::process::abort();
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_over() {
            let mut request = self.raw();
            match self.kind {
                // It goes on. SAFETY: a request that is active, and is nobody's afterwards.
                Kind::Send => unsafe {
                    ffi::MPI_Request_free(&raw mut request);
                    return;
                },
                Kind::Receive => drop(self.call_off()),
                // MPI doesn't let go of these before they have ended.
                Kind::Collective if std::thread::panicking() => return,
                Kind::Collective => drop(self.wait()),
            }
        }
        if self.is_over() {
            // SAFETY: MPI has forgotten the memory, which is dropped once, here. Else it is left where it is: MPI may still use it.
            unsafe { ManuallyDrop::drop(self.memory.get_mut()) };
        }
    }
}

/// What borrowed memory may be used in for operations that are waited for later. Made by [`scope`].
#[derive(Debug)]
pub struct LocalScope<'a> {
    pending: RefCell<Vec<Rc<Pending>>>,
    look_at: Cell<usize>,
    /// Neither longer nor shorter.
    _buffers: PhantomData<Cell<&'a ()>>,
}

impl<'a> LocalScope<'a> {
    pub(crate) fn register(&self, pending: Pending) -> Rc<Pending> {
        let pending = Rc::new(pending);
        let mut all = self.pending.borrow_mut();
        if all.len() >= self.look_at.get() {
            all.retain(|pending| !pending.is_over());
            self.look_at.set(SCOPE_MIN.max(2 * all.len()));
        }
        all.push(Rc::clone(&pending));
        pending
    }
}

impl Drop for LocalScope<'_> {
    fn drop(&mut self) {
        for pending in self.pending.get_mut() {
            pending.end_with_scope();
        }
    }
}

/// Lets `f` begin operations on memory that lives longer than the scope which it is given. What is still under way when `f` returns is
/// ended then: receives are called off, the rest is waited for.
///
/// Where `f` panics, operations that can't be called off have nobody who will end them: the process aborts.
///
/// ```no_run
/// # use counterfoil_mpi::logged::{LoggedCommunicator, LoggedError, Request, Source, Destination, scope};
/// # fn example(world: &LoggedCommunicator) -> Result<(), LoggedError> {
/// let mut halo = [0.0_f64; 2];
/// let (left, right) = halo.split_at_mut(1);
/// scope(|scope| {
///     let from_the_left = world.process_at_rank(0)?.immediate_receive_into(scope, left)?;
///     let from_the_right = world.process_at_rank(2)?.immediate_receive_into(scope, right)?;
///     from_the_left.wait()?;
///     from_the_right.wait()?;
///     Ok::<_, LoggedError>(())
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// Memory that doesn't outlive the scope is not compiled:
///
/// ```compile_fail,E0597
/// # use counterfoil_mpi::logged::{LoggedCommunicator, LoggedError, Source, scope};
/// # fn example(world: &LoggedCommunicator) -> Result<(), LoggedError> {
/// scope(|scope| {
///     let mut halo = [0.0_f64];
///     let request = world.process_at_rank(0)?.immediate_receive_into(scope, &mut halo)?;
///     std::mem::forget(request);
///     Ok(())
/// })
/// # }
/// ```
///
/// nor is memory that is used while MPI has it:
///
/// ```compile_fail,E0506
/// # use counterfoil_mpi::logged::{LoggedCommunicator, LoggedError, Request, Source, scope};
/// # fn example(world: &LoggedCommunicator) -> Result<(), LoggedError> {
/// let mut halo = [0.0_f64];
/// scope(|scope| {
///     let request = world.process_at_rank(0)?.immediate_receive_into(scope, &mut halo)?;
///     halo[0] = 1.0;
///     request.wait().map(drop)
/// })
/// # }
/// ```
pub fn scope<'a, F, R>(f: F) -> R
where
    F: FnOnce(&LocalScope<'a>) -> R,
{
    f(&LocalScope { pending: RefCell::default(), look_at: Cell::new(SCOPE_MIN), _buffers: PhantomData })
}

/// An operation on memory that is borrowed for `'a`.
#[derive(Debug)]
pub(crate) struct Borrowed<'a, B: ?Sized> {
    pub(crate) pending: Rc<Pending>,
    memory: *mut B,
    _borrowed: PhantomData<&'a mut B>,
}

impl<'a, B: ?Sized> Borrowed<'a, B> {
    /// # Safety
    /// `memory` comes from a `&'a mut B` that is used by nobody but `pending`, and by that only until it is over.
    pub(crate) unsafe fn new(pending: Rc<Pending>, memory: *mut B) -> Borrowed<'a, B> {
        Borrowed { pending, memory, _borrowed: PhantomData }
    }

    /// The memory; `None` while the operation is under way, and then never.
    pub(crate) fn give_back(self) -> Option<&'a mut B> {
        // SAFETY: it was borrowed mutably for `'a`, and MPI is done with it. `self` is used up, so this is given once.
        self.pending.is_over().then(|| unsafe { &mut *self.memory })
    }
}
