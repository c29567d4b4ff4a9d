//! Immediate operations, and the memory that MPI uses until they complete.
//!
//! Memory that an operation borrows belongs to a [`LocalScope`], which completes all pending operations when it ends: it also completes a
//! request that is leaked. A leaked request that owns its memory leaks the memory as well.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::rc::Rc;

use counterfoil_runtime::communicator::Status;
use mpi_sys as ffi;
use zerocopy::{FromBytes, IntoBytes};

use crate::comm::null_request;
use crate::error::{MpiError, OperationError, check};
use crate::point_to_point::Envelope;
use crate::recovering::{EndpointOperation, taken};
use crate::universe::Universe;

pub(crate) use crate::recovering::Completion;

/// Least number of requests in a scope before it removes the completed ones.
const SCOPE_PRUNE_MIN: usize = 32;

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    Receive,
    Collective,
}

/// Memory that an operation owns.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Bytes that are sent or received.
    pub(crate) bytes: Vec<u8>,
    /// Lengths and displacements of parts.
    pub(crate) _numbers: Vec<Vec<c_int>>,
}

/// An operation that MPI carries out, until it is dropped.
#[derive(Debug)]
pub(crate) struct MpiOperation {
    /// Active, or the null request.
    request: Cell<ffi::MPI_Request>,
    kind: Kind,
    /// Exclusive to MPI while the request is active.
    memory: RefCell<ManuallyDrop<Memory>>,
    _universe: Rc<Universe>,
}

/// Returns a zeroed status.
pub(crate) fn empty_status() -> ffi::MPI_Status {
    // SAFETY: all fields are numbers, for which zero is valid.
    unsafe { std::mem::zeroed() }
}

impl MpiOperation {
    /// Takes ownership of the request of an operation that has just begun.
    ///
    /// # Safety
    /// `request` is active or null, and no other copy of it is used. Memory that the operation uses is in `memory`, or stays exclusive to
    /// MPI until the operation is complete.
    pub(crate) unsafe fn begun(
        request: ffi::MPI_Request,
        kind: Kind,
        memory: Memory,
        universe: Rc<Universe>,
    ) -> MpiOperation {
        let memory = RefCell::new(ManuallyDrop::new(memory));
        MpiOperation { request: Cell::new(request), kind, memory, _universe: universe }
    }

    /// Returns the request for an array of requests; [`set`](Self::set) stores it again after the call.
    pub(crate) fn raw(&self) -> ffi::MPI_Request {
        self.request.get()
    }

    /// Stores the request as MPI has left it.
    ///
    /// # Safety
    /// A call of MPI has replaced the request that [`raw`](Self::raw) returned by `request`.
    pub(crate) unsafe fn set(&self, request: ffi::MPI_Request) {
        self.request.set(request);
    }

    /// Returns `true` if the operation is complete, so that MPI no longer uses its memory.
    pub(crate) fn is_complete(&self) -> bool {
        self.request.get() == null_request()
    }

    /// Returns the outcome of an operation that `call` has completed with this code and status.
    pub(crate) fn complete(&self, call: &'static str, code: c_int, status: &ffi::MPI_Status) -> Completion {
        let mut result = check(call, code);
        let is_taken = match &result {
            Ok(()) => true,
            Err(MpiError::Call { class, .. }) => *class == ffi::MPI_ERR_TRUNCATE as i32,
            Err(_) => false,
        };
        let mut cancelled = 0;
        // SAFETY: a status that MPI has filled in, or a zeroed one, and a pointer to a local variable.
        unsafe { ffi::MPI_Test_cancelled(status, &raw mut cancelled) };
        if self.kind != Kind::Receive || !is_taken || cancelled != 0 {
            return Completion { envelope: None, result: result.map_err(MpiError::into) };
        }
        let envelope = Envelope::of(status);
        if let (Ok(()), Err(error)) = (&result, &envelope) {
            result = Err(error.clone());
        }
        Completion { envelope: envelope.ok(), result: result.map_err(MpiError::into) }
    }

    /// Waits until the operation completes.
    pub(crate) fn wait(&self) -> Completion {
        if self.is_complete() {
            return Completion::DONE;
        }
        let (mut request, mut status) = (self.raw(), empty_status());
        // SAFETY: an active request, and pointers to local variables.
        let code = unsafe { ffi::MPI_Wait(&raw mut request, &raw mut status) };
        self.request.set(request);
        self.complete("MPI_Wait", code, &status)
    }

    /// Returns the outcome if the operation is complete.
    pub(crate) fn test(&self) -> Option<Completion> {
        if self.is_complete() {
            return Some(self.wait());
        }
        let (mut request, mut flag, mut status) = (self.raw(), 0, empty_status());
        // SAFETY: as in `wait`.
        let code = unsafe { ffi::MPI_Test(&raw mut request, &raw mut flag, &raw mut status) };
        self.request.set(request);
        (code != 0 || flag != 0).then(|| self.complete("MPI_Test", code, &status))
    }

    /// Returns `true` if [`wait`](Self::wait) would return at once.
    pub(crate) fn is_ready(&self) -> Result<bool, MpiError> {
        if self.is_complete() {
            return Ok(true);
        }
        let mut flag = 0;
        // SAFETY: an active request, a pointer to a local variable, and an ignored status.
        let code = unsafe { ffi::MPI_Request_get_status(self.raw(), &raw mut flag, ffi::RSMPI_STATUS_IGNORE) };
        check("MPI_Request_get_status", code)?;
        Ok(flag != 0)
    }

    /// Cancels a receive, and waits until it completes, with or without a message. Other operations are waited for.
    pub(crate) fn cancel(&self) -> Completion {
        if self.kind == Kind::Receive && !self.is_complete() {
            let mut request = self.raw();
            // SAFETY: an active request. If MPI can't cancel it, it completes normally.
            unsafe { ffi::MPI_Cancel(&raw mut request) };
        }
        self.wait()
    }

    /// Takes the bytes that the operation owned; none while it is pending.
    pub(crate) fn take_bytes(&self) -> Vec<u8> {
        if self.is_complete() { std::mem::take(&mut self.memory.borrow_mut().bytes) } else { Vec::new() }
    }

    /// Completes the operation, because its scope ends and its memory is about to be reused.
    fn end_with_scope(&self) -> Completion {
        // Other ranks may depend on a send or a collective operation, so it can't be cancelled; while this rank panics, it may never end.
        let may_wait = self.kind == Kind::Receive || !std::thread::panicking();
        let completion = if may_wait { self.cancel() } else { Completion::DONE };
        if !self.is_complete() {
            tracing::error!("the process aborts, because its scope would release memory that MPI still uses");
            std::process::abort();
        }
        completion
    }
}

impl Drop for MpiOperation {
    fn drop(&mut self) {
        if !self.is_complete() {
            let mut request = self.raw();
            match self.kind {
                // The send continues. SAFETY: an active request, which isn't used afterwards.
                Kind::Send => unsafe {
                    ffi::MPI_Request_free(&raw mut request);
                    return;
                },
                Kind::Receive => drop(self.cancel()),
                // MPI can't free the request of a collective operation before it is complete.
                Kind::Collective if std::thread::panicking() => return,
                Kind::Collective => drop(self.wait()),
            }
        }
        if self.is_complete() {
            // SAFETY: MPI no longer uses the memory, which is dropped once, here. Otherwise it is leaked, because MPI may still use it.
            unsafe { ManuallyDrop::drop(self.memory.get_mut()) };
        }
    }
}

/// Carrier of an operation.
#[derive(Debug)]
enum Carrier {
    Mpi(MpiOperation),
    /// The endpoint of a rank that recovers.
    Endpoint(EndpointOperation),
}

/// An immediate operation.
#[derive(Debug)]
pub struct Pending {
    carrier: Carrier,
    /// Outcome, if the scope completed the operation.
    completion: RefCell<Option<Completion>>,
}

impl From<MpiOperation> for Pending {
    fn from(operation: MpiOperation) -> Pending {
        Pending { carrier: Carrier::Mpi(operation), completion: RefCell::default() }
    }
}

impl From<EndpointOperation> for Pending {
    fn from(operation: EndpointOperation) -> Pending {
        Pending { carrier: Carrier::Endpoint(operation), completion: RefCell::default() }
    }
}

impl Pending {
    /// Returns the operation if MPI carries it out.
    pub(crate) fn mpi(&self) -> Option<&MpiOperation> {
        match &self.carrier {
            Carrier::Mpi(operation) => Some(operation),
            Carrier::Endpoint(_) => None,
        }
    }

    /// Returns the operation if the endpoint of a rank that recovers carries it out.
    pub(crate) fn endpoint(&self) -> Option<&EndpointOperation> {
        match &self.carrier {
            Carrier::Mpi(_) => None,
            Carrier::Endpoint(operation) => Some(operation),
        }
    }

    /// Returns `true` if the operation is complete, so that its memory is no longer used.
    pub(crate) fn is_complete(&self) -> bool {
        match &self.carrier {
            Carrier::Mpi(operation) => operation.is_complete(),
            Carrier::Endpoint(operation) => operation.is_complete(),
        }
    }

    /// Takes the outcome, if the scope completed the operation.
    pub(crate) fn take_completion(&self) -> Option<Completion> {
        self.completion.take()
    }

    /// Waits until the operation completes.
    pub(crate) fn wait(&self) -> Completion {
        self.take_completion().unwrap_or_else(|| match &self.carrier {
            Carrier::Mpi(operation) => operation.wait(),
            Carrier::Endpoint(operation) => operation.wait(),
        })
    }

    /// Returns the outcome if the operation is complete.
    pub(crate) fn test(&self) -> Option<Completion> {
        self.take_completion().or_else(|| match &self.carrier {
            Carrier::Mpi(operation) => operation.test(),
            Carrier::Endpoint(operation) => operation.test(),
        })
    }

    /// Returns `true` if [`wait`](Self::wait) would return at once.
    pub(crate) fn is_ready(&self) -> Result<bool, OperationError> {
        match &self.carrier {
            Carrier::Mpi(operation) => Ok(operation.is_ready()?),
            Carrier::Endpoint(operation) => operation.is_ready(),
        }
    }

    /// Cancels a receive, and waits until it completes, with or without a message. Other operations are waited for.
    pub(crate) fn cancel(&self) -> Completion {
        self.take_completion().unwrap_or_else(|| match &self.carrier {
            Carrier::Mpi(operation) => operation.cancel(),
            Carrier::Endpoint(operation) => operation.cancel(),
        })
    }

    /// Takes the bytes that the operation owned; none while it is pending.
    pub(crate) fn take_bytes(&self) -> Vec<u8> {
        match &self.carrier {
            Carrier::Mpi(operation) => operation.take_bytes(),
            Carrier::Endpoint(operation) => operation.take_bytes(),
        }
    }

    /// Completes the operation, because its scope ends and its memory is about to be reused.
    fn end_with_scope(&self) {
        if self.is_complete() {
            return;
        }
        self.completion.replace(Some(match &self.carrier {
            Carrier::Mpi(operation) => operation.end_with_scope(),
            Carrier::Endpoint(operation) => operation.end_with_scope(),
        }));
    }
}

/// Scope in which immediate operations may use memory that is borrowed for `'a`. [`scope`] creates it.
#[derive(Debug)]
pub struct LocalScope<'a> {
    pending: RefCell<Vec<Rc<Pending>>>,
    /// Length of `pending` at which the completed operations are removed.
    prune_at: Cell<usize>,
    /// Makes the type invariant in `'a`.
    _buffers: PhantomData<Cell<&'a ()>>,
}

impl<'a> LocalScope<'a> {
    pub(crate) fn register(&self, pending: impl Into<Pending>) -> Rc<Pending> {
        let pending = Rc::new(pending.into());
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

/// Runs `f` with a scope in which it can begin operations on memory that outlives the scope. When `f` returns, pending receives are
/// cancelled, and other pending operations are waited for.
///
/// If `f` panics while an operation that can't be cancelled is pending, the process aborts.
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
/// Memory that doesn't outlive the scope doesn't compile:
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
/// nor does the use of memory that an operation has borrowed:
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

/// Function that stores a message in borrowed memory.
pub(crate) type StoreMessage = Box<dyn FnOnce(Status, &[u8]) -> Completion>;

/// An operation on memory that is borrowed for `'a`.
#[derive(Debug)]
pub(crate) struct Borrowed<'a, B: ?Sized> {
    pub(crate) pending: Rc<Pending>,
    memory: *mut B,
    _borrowed: PhantomData<&'a mut B>,
}

impl<'a, B: ?Sized> Borrowed<'a, B> {
    /// # Safety
    /// `memory` comes from a `&'a mut B` that only `pending` uses, and only until it is complete.
    pub(crate) unsafe fn new(pending: Rc<Pending>, memory: *mut B) -> Borrowed<'a, B> {
        Borrowed { pending, memory, _borrowed: PhantomData }
    }

    /// Begins to receive a message into `memory`, by `begin`, which gets a function that stores the message.
    pub(crate) fn receiving(
        scope: &LocalScope<'a>,
        memory: &'a mut B,
        begin: impl FnOnce(StoreMessage) -> Result<EndpointOperation, OperationError>,
    ) -> Result<Borrowed<'a, B>, OperationError>
    where
        B: FromBytes + IntoBytes,
    {
        let memory: *mut B = memory;
        // SAFETY: borrowed for `'a`, and accessed only through `memory` from here on: the bytes are derived from that pointer.
        let bytes: *mut [u8] = unsafe { (*memory).as_mut_bytes() };
        // SAFETY: the scope ends the operation before `'a` ends; until then nothing else uses the memory. An operation that its scope has
        // ended drops the function.
        let store = Box::new(move |status: Status, message: &[u8]| taken(status, message, unsafe { &mut *bytes }));
        let operation = begin(store)?;
        // SAFETY: only the operation uses the memory, until it is complete.
        Ok(unsafe { Borrowed::new(scope.register(operation), memory) })
    }

    /// Gives the memory back; `None` if the operation is still pending, and then the memory is never given back.
    pub(crate) fn give_back(self) -> Option<&'a mut B> {
        // SAFETY: it was borrowed mutably for `'a`, and MPI no longer uses it. `self` is consumed, so it is given back once.
        self.pending.is_complete().then(|| unsafe { &mut *self.memory })
    }
}
