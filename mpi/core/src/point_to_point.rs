//! Further point-to-point calls: send modes, immediate sends and receives, probes and matched probes.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::rc::Rc;

use mpi_sys as ffi;

use crate::comm::{Comm, Matched, any_source, any_tag, null_request};
use crate::envelope::Envelope;
use crate::error::{MpiError, check, count};
use crate::request::{Completion, Kind, Memory, MpiOperation};

/// Send mode.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// Standard mode.
    Standard,
    /// Through the buffer for buffered messages.
    Buffered,
    /// The send ends after its receive has begun.
    Synchronous,
    /// To a posted receive.
    Ready(IsPosted),
}

/// An MPI function that starts a send.
pub(crate) type StartSend = unsafe extern "C" fn(
    *const c_void,
    c_int,
    ffi::MPI_Datatype,
    c_int,
    c_int,
    ffi::MPI_Comm,
    *mut ffi::MPI_Request,
) -> c_int;

impl Mode {
    /// Returns the function that starts a send in this mode, and its name.
    #[inline]
    pub(crate) fn immediate(self) -> (&'static str, StartSend) {
        match self {
            Mode::Standard => ("MPI_Isend", ffi::MPI_Isend),
            Mode::Buffered => ("MPI_Ibsend", ffi::MPI_Ibsend),
            Mode::Synchronous => ("MPI_Issend", ffi::MPI_Issend),
            Mode::Ready(_) => ("MPI_Irsend", ffi::MPI_Irsend),
        }
    }
}

/// Proof that a message's receive is posted.
#[derive(Clone, Copy, Debug)]
pub struct IsPosted(());

impl IsPosted {
    /// Makes the proof.
    ///
    /// # Safety
    /// The matching receive is posted before the message is sent.
    pub unsafe fn promised() -> IsPosted {
        IsPosted(())
    }
}

/// Returns the outcome of a receive that took a message, with an error if it was truncated.
fn taken(received: Result<(), MpiError>, status: MaybeUninit<ffi::MPI_Status>) -> Result<Completion, MpiError> {
    match &received {
        Ok(()) => {}
        Err(MpiError::Call { class, .. }) if *class == ffi::MPI_ERR_TRUNCATE as i32 => {}
        Err(error) => return Err(error.clone()),
    }
    // SAFETY: it was initialised with zeros, which are valid for all its fields.
    let envelope = Envelope::of(&unsafe { status.assume_init() })?;
    Ok(Completion { envelope: Some(envelope), result: received })
}

impl Comm {
    /// Sends `bytes`, runs `work` while the message is in flight, and returns when `bytes` may be reused.
    ///
    /// # Errors
    /// [`MpiError`]. `work` doesn't run if the send can't be started.
    #[inline]
    pub fn send_while<T>(&self, bytes: &[u8], to: u32, tag: i32, work: impl FnOnce() -> T) -> Result<T, MpiError> {
        self.send_within(Mode::Standard, bytes, to, tag, |begin| {
            begin()?;
            Ok(work())
        })
    }

    /// Sends `bytes` in this mode.
    ///
    /// `around` is given a function to start the send; after `around` returns, this waits until `bytes` may be reused.
    ///
    /// # Errors
    /// Any error of `around`; [`MpiError`].
    #[inline]
    pub fn send_within<T, E: From<MpiError>>(
        &self,
        mode: Mode,
        bytes: &[u8],
        to: u32,
        tag: i32,
        around: impl FnOnce(&mut dyn FnMut() -> Result<(), MpiError>) -> Result<T, E>,
    ) -> Result<T, E> {
        /// Waits even if `around` panics: MPI may still be reading.
        struct Wait(ffi::MPI_Request);
        impl Wait {
            #[inline]
            fn wait(&mut self) -> c_int {
                // SAFETY: a request started here, or the null request left by an earlier wait.
                unsafe { ffi::MPI_Wait(&raw mut self.0, ffi::RSMPI_STATUS_IGNORE) }
            }
        }
        impl Drop for Wait {
            fn drop(&mut self) {
                if self.0 != null_request() {
                    self.wait();
                }
            }
        }
        let (call, send) = mode.immediate();
        let len = count(call, bytes.len())?;
        let at = bytes.as_ptr().cast::<c_void>();
        let mut sending = Wait(null_request());
        let done = around(&mut || {
            // A second send would overwrite the first one's request.
            if sending.0 != null_request() {
                return Ok(());
            }
            let mut request = null_request();
            // SAFETY: `bytes` is borrowed until this function returns, and `sending` waits for the request before that.
            // `IsPosted` proves that a ready send's receive is posted.
            check(call, unsafe { send(at, len, ffi::RSMPI_UINT8_T, to as c_int, tag, self.raw(), &raw mut request) })?;
            // Set only on success: a failed send may leave a request that never ends.
            sending.0 = request;
            Ok(())
        })?;
        check("MPI_Wait", sending.wait())?;
        Ok(done)
    }

    /// Sends `bytes`; returns when the matching receive has started.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn send_synchronous(&self, bytes: &[u8], to: u32, tag: i32) -> Result<(), MpiError> {
        self.send_within(Mode::Synchronous, bytes, to, tag, |begin| begin())
    }

    /// Starts to send `bytes` in this mode.
    ///
    /// Dropping the request doesn't cancel the send.
    ///
    /// # Errors
    /// [`MpiError`]; class `MPI_ERR_BUFFER` if the buffer has no room for a buffered message, which is not sent then.
    pub fn begin_send(&self, mode: Mode, bytes: Vec<u8>, to: u32, tag: i32) -> Result<MpiOperation, MpiError> {
        let (call, send) = mode.immediate();
        let (len, mut request) = (count(call, bytes.len())?, null_request());
        let at = bytes.as_ptr().cast::<c_void>();
        let to = to as c_int;
        // SAFETY: the bytes are on the heap, where `MpiOperation` leaves them untouched until the request is complete.
        // `IsPosted` proves that a ready send's receive is posted.
        unsafe {
            check(call, send(at, len, ffi::RSMPI_UINT8_T, to, tag, self.raw(), &raw mut request))?;
            let memory = Memory { bytes, ..Memory::default() };
            Ok(MpiOperation::begun(request, Kind::Send, memory, Rc::clone(&self.universe)))
        }
    }

    /// Receives a message into `bytes` and returns its envelope, together with a truncation error if the message was
    /// longer: its rest is lost.
    ///
    /// # Errors
    /// [`MpiError`]: no message was received.
    pub fn receive(&self, bytes: &mut [u8], source: Option<u32>, tag: Option<i32>) -> Result<Completion, MpiError> {
        let len = count("MPI_Recv", bytes.len())?;
        let at = bytes.as_mut_ptr().cast::<c_void>();
        let mut status = MaybeUninit::zeroed();
        let (source, tag) = (any_source(source), any_tag(tag));
        // SAFETY: `len` bytes at `at` are borrowed mutably until the call returns, and the call fills in the status if
        // it took a message.
        let received = unsafe {
            let code = ffi::MPI_Recv(at, len, ffi::RSMPI_UINT8_T, source, tag, self.raw(), status.as_mut_ptr());
            check("MPI_Recv", code)
        };
        taken(received, status)
    }

    /// Posts a receive for at most `len` bytes, owned by the request.
    ///
    /// `None` is a wildcard. Dropping the request cancels the receive.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn irecv(&self, len: usize, source: Option<u32>, tag: Option<i32>) -> Result<MpiOperation, MpiError> {
        let mut bytes = vec![0; len];
        let (room, mut request) = (count("MPI_Irecv", len)?, null_request());
        let (source, tag) = (any_source(source), any_tag(tag));
        let at = bytes.as_mut_ptr().cast::<c_void>();
        // SAFETY: the bytes are on the heap, where `MpiOperation` leaves them until the request is complete.
        unsafe {
            let code = ffi::MPI_Irecv(at, room, ffi::RSMPI_UINT8_T, source, tag, self.raw(), &raw mut request);
            check("MPI_Irecv", code)?;
            let memory = Memory { bytes, ..Memory::default() };
            Ok(MpiOperation::begun(request, Kind::Receive, memory, Rc::clone(&self.universe)))
        }
    }

    /// Posts a receive into `memory` for a message no longer than it.
    ///
    /// `None` is a wildcard.
    ///
    /// # Errors
    /// [`MpiError`].
    ///
    /// # Safety
    /// `memory` can be written, and stays exclusive to the operation until it is complete.
    pub unsafe fn irecv_into(
        &self,
        memory: *mut [u8],
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Result<MpiOperation, MpiError> {
        let (room, mut request) = (count("MPI_Irecv", memory.len())?, null_request());
        let (source, tag) = (any_source(source), any_tag(tag));
        let at = memory.cast::<c_void>();
        // SAFETY: the caller's promise, and a pointer to a local variable.
        unsafe {
            let code = ffi::MPI_Irecv(at, room, ffi::RSMPI_UINT8_T, source, tag, self.raw(), &raw mut request);
            check("MPI_Irecv", code)?;
            Ok(MpiOperation::begun(request, Kind::Receive, Memory::default(), Rc::clone(&self.universe)))
        }
    }

    /// Waits for a matching message, without receiving it.
    ///
    /// `None` is a wildcard.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn probe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Envelope, MpiError> {
        let mut status = MaybeUninit::uninit();
        let (source, tag) = (any_source(source), any_tag(tag));
        // SAFETY: a valid communicator and a pointer to a local variable, which the call fills in if it succeeds.
        unsafe {
            check("MPI_Probe", ffi::MPI_Probe(source, tag, self.raw(), status.as_mut_ptr()))?;
            Envelope::of(&status.assume_init())
        }
    }

    /// Returns the envelope that [`probe`](Self::probe) would return, or `None` if there is no such message yet.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn immediate_probe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Envelope>, MpiError> {
        let (mut flag, mut status) = (0, MaybeUninit::uninit());
        let (source, tag) = (any_source(source), any_tag(tag));
        // SAFETY: as in `probe`; the call fills in the status if there is a message.
        unsafe {
            let code = ffi::MPI_Iprobe(source, tag, self.raw(), &raw mut flag, status.as_mut_ptr());
            check("MPI_Iprobe", code)?;
            if flag == 0 { Ok(None) } else { Envelope::of(&status.assume_init()).map(Some) }
        }
    }

    /// Waits for a message and matches it, so no other receive can take it.
    ///
    /// `None` is a wildcard.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn mprobe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Matched, MpiError> {
        let mut status = MaybeUninit::uninit();
        let (source, tag) = (any_source(source), any_tag(tag));
        // SAFETY: shim constants, a valid communicator, and pointers to local variables filled in by the call.
        unsafe {
            let mut message = ffi::RSMPI_MESSAGE_NULL;
            let code = ffi::MPI_Mprobe(source, tag, self.raw(), &raw mut message, status.as_mut_ptr());
            check("MPI_Mprobe", code)?;
            let Envelope { source, tag, len } = Envelope::of(&status.assume_init())?;
            Ok(Matched { message, source, tag, len, universe: Rc::clone(&self.universe) })
        }
    }
}

impl Matched {
    /// Receives the message into `bytes` and returns its envelope, together with a truncation error if the message was
    /// longer: its rest is lost.
    ///
    /// # Errors
    /// [`MpiError`]: the message was not received.
    pub fn receive_into(mut self, bytes: &mut [u8]) -> Result<Completion, MpiError> {
        let len = count("MPI_Mrecv", bytes.len())?;
        let (at, message) = (bytes.as_mut_ptr().cast::<c_void>(), &raw mut self.message);
        let mut status = MaybeUninit::zeroed();
        // SAFETY: `len` bytes at `at` are exclusive to this call, and the message was matched and not received: `self`
        // is consumed.
        let code = unsafe { ffi::MPI_Mrecv(at, len, ffi::RSMPI_UINT8_T, message, status.as_mut_ptr()) };
        taken(check("MPI_Mrecv", code), status)
    }

    /// Starts to receive the message into `memory`, which limits its length.
    ///
    /// # Errors
    /// [`MpiError`].
    ///
    /// # Safety
    /// Same as [`Comm::irecv_into`].
    pub unsafe fn begin_receive_into(mut self, memory: *mut [u8]) -> Result<MpiOperation, MpiError> {
        let (room, mut request) = (count("MPI_Imrecv", memory.len())?, null_request());
        let (at, message) = (memory.cast::<c_void>(), &raw mut self.message);
        // SAFETY: the caller's promise; the message was matched and not received: `self` is consumed.
        unsafe {
            let code = ffi::MPI_Imrecv(at, room, ffi::RSMPI_UINT8_T, message, &raw mut request);
            check("MPI_Imrecv", code)?;
            Ok(MpiOperation::begun(request, Kind::Receive, Memory::default(), Rc::clone(&self.universe)))
        }
    }
}
