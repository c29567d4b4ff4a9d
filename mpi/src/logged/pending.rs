//! Immediate operations, and the scope of their borrowed memory.
//!
//! Memory borrowed by an operation belongs to a [`LocalScope`]. At its end, the scope completes all pending operations,
//! including those of leaked requests.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;

use zerocopy::{FromBytes, IntoBytes};

use super::carrier::Carrier;
use super::error::LoggedError;
use crate::error::{OperationError, Outcome};
use crate::immediate::ImmediateOperation;

/// Minimum number of requests in a scope before it removes the completed ones.
const SCOPE_PRUNE_MIN: usize = 32;

/// An immediate operation, with the communicator's carrier.
#[derive(Debug)]
pub struct Pending {
    operation: Box<dyn ImmediateOperation>,
    /// Outcome, if the scope completed the operation.
    outcome: RefCell<Option<Outcome>>,
    /// Keeps the communicator.
    carrier: Rc<dyn Carrier>,
}

impl Pending {
    pub(super) fn new(operation: Box<dyn ImmediateOperation>, carrier: &Rc<dyn Carrier>) -> Pending {
        Pending { operation, outcome: RefCell::default(), carrier: Rc::clone(carrier) }
    }

    pub(super) fn carrier(&self) -> &dyn Carrier {
        &*self.carrier
    }

    pub(super) fn operation(&self) -> &dyn ImmediateOperation {
        &*self.operation
    }

    /// Returns `true` if the operation is complete and no longer uses its memory.
    pub(super) fn is_complete(&self) -> bool {
        self.operation.is_complete()
    }

    /// Takes the outcome, if the scope completed the operation.
    pub(super) fn take_outcome(&self) -> Option<Outcome> {
        self.outcome.take()
    }

    /// Waits until the operation completes.
    pub(super) fn wait(&self) -> Outcome {
        self.take_outcome().unwrap_or_else(|| self.operation.wait())
    }

    /// Returns the outcome if the operation is complete.
    pub(super) fn test(&self) -> Option<Outcome> {
        self.take_outcome().or_else(|| self.operation.test())
    }

    /// Returns `true` if [`wait`](Self::wait) would return at once.
    pub(super) fn is_ready(&self) -> Result<bool, OperationError> {
        self.operation.is_ready()
    }

    /// Cancels a receive, and waits until it completes, with or without a message.
    ///
    /// Other operations are waited for.
    pub(super) fn cancel(&self) -> Outcome {
        self.take_outcome().unwrap_or_else(|| self.operation.cancel())
    }

    /// Takes the bytes owned by the operation; none while it is pending.
    pub(super) fn take_bytes(&self) -> Vec<u8> {
        self.operation.take_bytes()
    }

    /// Completes the operation, because its scope ends and its memory is about to be reused.
    fn end_with_scope(&self) {
        if !self.is_complete() {
            self.outcome.replace(Some(self.operation.end_with_scope()));
        }
    }
}

/// Scope for immediate operations on memory borrowed for `'a`.
///
/// [`scope`] creates it.
#[derive(Debug)]
pub struct LocalScope<'a> {
    pending: RefCell<Vec<Rc<Pending>>>,
    /// Length of `pending` at which completed operations are removed.
    prune_at: Cell<usize>,
    /// Makes the type invariant in `'a`.
    _buffers: PhantomData<Cell<&'a ()>>,
}

impl<'a> LocalScope<'a> {
    fn register(&self, pending: Pending) -> Rc<Pending> {
        let pending = Rc::new(pending);
        let mut all = self.pending.borrow_mut();
        if all.len() >= self.prune_at.get() {
            all.retain(|pending| !pending.is_complete());
            self.prune_at.set(SCOPE_PRUNE_MIN.max(2 * all.len()));
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

/// Runs `f` with a scope to begin operations on memory outliving the scope.
///
/// When `f` returns, pending receives are cancelled, and other pending operations are waited for.
///
/// If `f` panics while an uncancellable operation is pending, the process aborts.
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
/// Memory not outliving the scope doesn't compile:
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
/// nor does the use of memory borrowed by an operation:
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
    f(&LocalScope { pending: RefCell::default(), prune_at: Cell::new(SCOPE_PRUNE_MIN), _buffers: PhantomData })
}

/// An operation on memory borrowed for `'a`.
#[derive(Debug)]
pub(super) struct Borrowed<'a, B: ?Sized> {
    pub(super) pending: Rc<Pending>,
    memory: *mut B,
    _borrowed: PhantomData<&'a mut B>,
}

impl<'a, B: ?Sized> Borrowed<'a, B> {
    /// Registers a pending operation on `memory` with the scope; the scope's end completes it.
    ///
    /// # Safety
    /// `memory` comes from a `&'a mut B` used only by `pending`, and only until it is complete.
    pub(super) unsafe fn scoped(scope: &LocalScope<'a>, pending: Pending, memory: *mut B) -> Borrowed<'a, B> {
        Borrowed { pending: scope.register(pending), memory, _borrowed: PhantomData }
    }

    /// Begins to receive a message into `memory`, by `begin`; it may use the passed bytes until the operation is
    /// complete.
    pub(super) fn receiving(
        scope: &LocalScope<'a>,
        memory: &'a mut B,
        begin: impl FnOnce(*mut [u8]) -> Result<Pending, LoggedError>,
    ) -> Result<Borrowed<'a, B>, LoggedError>
    where
        B: FromBytes + IntoBytes,
    {
        let memory: *mut B = memory;
        // SAFETY: borrowed for `'a`, and accessed only through `memory` from here on: the bytes are derived from that
        // pointer.
        let bytes: *mut [u8] = unsafe { (*memory).as_mut_bytes() };
        let pending = begin(bytes)?;
        // SAFETY: only the operation uses the memory, until it is complete.
        Ok(unsafe { Borrowed::scoped(scope, pending, memory) })
    }

    /// Gives the memory back; `None` if the operation is still pending, in which case the memory is never given back.
    pub(super) fn give_back(self) -> Option<&'a mut B> {
        // SAFETY: it was borrowed mutably for `'a`, and the operation no longer uses it. `self` is consumed, so it is
        // given back once.
        self.pending.is_complete().then(|| unsafe { &mut *self.memory })
    }
}

impl Borrowed<'static, ()> {
    /// Wraps a pending operation without borrowed memory.
    pub(super) fn unscoped(pending: Pending) -> Borrowed<'static, ()> {
        let memory = std::ptr::NonNull::dangling().as_ptr();
        Borrowed { pending: Rc::new(pending), memory, _borrowed: PhantomData }
    }
}
