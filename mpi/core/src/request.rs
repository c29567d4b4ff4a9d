//! Immediate operations, and the memory used by MPI until they complete.
//!
//! A leaked operation leaks the memory it owns.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::rc::Rc;

use mpi_sys as ffi;

use crate::comm::null_request;
use crate::envelope::Envelope;
use crate::error::{MpiError, check};
use crate::universe::Universe;

/// Outcome of an operation.
#[derive(Debug)]
pub struct Completion<E = MpiError> {
    /// Envelope of the message taken by a receive, even if the message was truncated.
    pub envelope: Option<Envelope>,
    /// Error from the operation.
    pub result: Result<(), E>,
}

impl<E> Completion<E> {
    /// Success without a message.
    pub const DONE: Completion<E> = Completion { envelope: None, result: Ok(()) };

    /// Converts the error.
    pub fn convert<F: From<E>>(self) -> Completion<F> {
        Completion { envelope: self.envelope, result: self.result.map_err(F::from) }
    }
}

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A send.
    Send,
    /// A receive.
    Receive,
    /// A collective operation.
    Collective,
}

/// Memory owned by an operation.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Bytes sent or received.
    pub(crate) bytes: Vec<u8>,
    /// Lengths and displacements of parts.
    pub(crate) _numbers: Vec<Vec<c_int>>,
}

/// An operation carried out by MPI, until it is dropped.
#[derive(Debug)]
pub struct MpiOperation {
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
    /// Takes ownership of a started operation's request.
    ///
    /// # Safety
    /// `request` is active or null, and no other copy of it is used. Memory used by the operation is in `memory`, or
    /// stays exclusive to MPI until the operation is complete.
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
    /// An MPI call has replaced the request returned by [`raw`](Self::raw) with `request`.
    pub(crate) unsafe fn set(&self, request: ffi::MPI_Request) {
        self.request.set(request);
    }

    /// Returns `true` if the operation is complete, so MPI no longer uses its memory.
    pub fn is_complete(&self) -> bool {
        self.request.get() == null_request()
    }

    /// Returns the outcome of an operation completed by `call` with this code and status.
    pub(crate) fn complete(&self, call: &'static str, code: c_int, status: &ffi::MPI_Status) -> Completion {
        let mut result = check(call, code);
        let is_taken = match &result {
            Ok(()) => true,
            Err(MpiError::Call { class, .. }) => *class == ffi::MPI_ERR_TRUNCATE as i32,
            Err(_) => false,
        };
        let mut cancelled = 0;
        // SAFETY: a status filled in by MPI, or a zeroed one, and a pointer to a local variable.
        unsafe { ffi::MPI_Test_cancelled(status, &raw mut cancelled) };
        if self.kind != Kind::Receive || !is_taken || cancelled != 0 {
            return Completion { envelope: None, result };
        }
        let envelope = Envelope::of(status);
        if let (Ok(()), Err(error)) = (&result, &envelope) {
            result = Err(error.clone());
        }
        Completion { envelope: envelope.ok(), result }
    }

    /// Waits until the operation completes.
    pub fn wait(&self) -> Completion {
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
    pub fn test(&self) -> Option<Completion> {
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
    pub fn is_ready(&self) -> Result<bool, MpiError> {
        if self.is_complete() {
            return Ok(true);
        }
        let mut flag = 0;
        // SAFETY: an active request, a pointer to a local variable, and an ignored status.
        let code = unsafe { ffi::MPI_Request_get_status(self.raw(), &raw mut flag, ffi::RSMPI_STATUS_IGNORE) };
        check("MPI_Request_get_status", code)?;
        Ok(flag != 0)
    }

    /// Cancels a receive, and waits until it completes, with or without a message.
    ///
    /// Other operations are waited for.
    pub fn cancel(&self) -> Completion {
        if self.kind == Kind::Receive && !self.is_complete() {
            let mut request = self.raw();
            // SAFETY: an active request. If MPI can't cancel it, it completes normally.
            unsafe { ffi::MPI_Cancel(&raw mut request) };
        }
        self.wait()
    }

    /// Takes the bytes owned by the operation; none while it is pending.
    pub fn take_bytes(&self) -> Vec<u8> {
        if self.is_complete() { std::mem::take(&mut self.memory.borrow_mut().bytes) } else { Vec::new() }
    }

    /// Completes the operation, because its scope ends and its memory is about to be reused.
    pub fn end_with_scope(&self) -> Completion {
        // Other ranks may depend on a send or a collective operation, so it can't be cancelled; while this rank panics,
        // it may never end.
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
                // The send continues. SAFETY: an active request, not used afterwards.
                Kind::Send => unsafe {
                    ffi::MPI_Request_free(&raw mut request);
                    return;
                },
                Kind::Receive => drop(self.cancel()),
                // MPI can't free a collective operation's request before it is complete.
                Kind::Collective if std::thread::panicking() => return,
                Kind::Collective => drop(self.wait()),
            }
        }
        if self.is_complete() {
            // SAFETY: MPI no longer uses the memory, which is dropped once, here. Otherwise it is leaked, because MPI
            // may still use it.
            unsafe { ManuallyDrop::drop(self.memory.get_mut()) };
        }
    }
}
