//! Messages of bytes in MPI's other ways: buffered, synchronous, ready, waited for later, looked at before they are received.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::rc::Rc;

use mpi_sys as ffi;
use zerocopy::{FromBytes, IntoBytes};

use crate::comm::{Comm, Matched, any_source, any_tag, received_len};
use crate::error::{MpiError, check, count};
use crate::request::{Borrowed, Kind, LocalScope, Memory, Pending, none};

/// Whose a message is, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The rank that sent it.
    pub source: u32,
    /// Its tag.
    pub tag: i32,
    /// Its length in bytes.
    pub len: usize,
}

impl Envelope {
    pub(crate) fn of(status: &ffi::MPI_Status) -> Result<Envelope, MpiError> {
        let (source, tag) = (status.MPI_SOURCE.unsigned_abs(), status.MPI_TAG);
        Ok(Envelope { source, tag, len: received_len(status)? })
    }
}

/// In which of MPI's ways a message is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    Standard,
    Buffered,
    Synchronous,
    Ready(IsPosted),
}

/// A function that begins to send.
type Begin = unsafe extern "C" fn(
    *const c_void,
    c_int,
    ffi::MPI_Datatype,
    c_int,
    c_int,
    ffi::MPI_Comm,
    *mut ffi::MPI_Request,
) -> c_int;

impl Mode {
    /// What begins to send so.
    #[inline]
    pub(crate) fn immediate(self) -> (&'static str, Begin) {
        match self {
            Mode::Standard => ("MPI_Isend", ffi::MPI_Isend),
            Mode::Buffered => ("MPI_Ibsend", ffi::MPI_Ibsend),
            Mode::Synchronous => ("MPI_Issend", ffi::MPI_Issend),
            Mode::Ready(_) => ("MPI_Irsend", ffi::MPI_Irsend),
        }
    }
}

/// Somebody's promise that the receive of a message is posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IsPosted(());

impl IsPosted {
    /// # Safety
    /// The receive that is to take the message is posted when it is sent.
    pub(crate) unsafe fn promised() -> IsPosted {
        IsPosted(())
    }
}

/// What a receive took that ended so.
fn taken(
    received: Result<(), MpiError>,
    status: MaybeUninit<ffi::MPI_Status>,
) -> Result<(Envelope, Result<(), MpiError>), MpiError> {
    match &received {
        Ok(()) => {}
        Err(MpiError::Call { class, .. }) if *class == ffi::MPI_ERR_TRUNCATE as i32 => {}
        Err(error) => return Err(error.clone()),
    }
    // SAFETY: it began as zeros, which are values of all its fields, and was filled in.
    Ok((Envelope::of(&unsafe { status.assume_init() })?, received))
}

impl Comm {
    /// Sends, and returns when the message is being received.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn send_synchronous(&self, bytes: &[u8], to: u32, tag: i32) -> Result<(), MpiError> {
        self.send_within(Mode::Synchronous, bytes, to, tag, |begin| begin())
    }

    /// Begins to send `bytes` in this way. Who drops the request lets it go on.
    ///
    /// # Errors
    /// [`MpiError`]: of class `MPI_ERR_BUFFER` where a buffered message finds no room, and was not sent.
    pub(crate) fn begin_send(&self, mode: Mode, bytes: Vec<u8>, to: u32, tag: i32) -> Result<Pending, MpiError> {
        let (call, send) = mode.immediate();
        let (len, mut request) = (count(call, bytes.len())?, none());
        let at = bytes.as_ptr().cast::<c_void>();
        let to = to as c_int;
        // SAFETY: the bytes are on the heap, where `Pending` leaves them, untouched, until the request is over. That a
        // receive is posted which a ready send needs is what `IsPosted` stands for.
        unsafe {
            check(call, send(at, len, ffi::RSMPI_UINT8_T, to, tag, self.raw(), &raw mut request))?;
            let memory = Memory { bytes, ..Memory::default() };
            Ok(Pending::begun(request, Kind::Send, memory, Rc::clone(&self.universe)))
        }
    }

    /// Receives a message as [`recv`](Self::recv) does, and says whose it is; with an error beside it where it was longer, and what is
    /// behind `bytes` is lost.
    ///
    /// # Errors
    /// [`MpiError`]: no message was received.
    pub(crate) fn receive(
        &self,
        bytes: &mut [u8],
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Result<(Envelope, Result<(), MpiError>), MpiError> {
        let len = count("MPI_Recv", bytes.len())?;
        let at = bytes.as_mut_ptr().cast::<c_void>();
        let mut status = MaybeUninit::zeroed();
        let (source, tag) = (any_source(source), any_tag(tag));
        // SAFETY: `len` bytes at `at` are this call's alone until it returns, and it fills the status in where a message was taken.
        let received = unsafe {
            let code = ffi::MPI_Recv(at, len, ffi::RSMPI_UINT8_T, source, tag, self.raw(), status.as_mut_ptr());
            check("MPI_Recv", code)
        };
        taken(received, status)
    }

    /// Begins to receive a message of at most `len` bytes, which the request has afterwards. `None` is a wildcard. Who drops it calls it
    /// off.
    ///
    /// # Errors
    /// [`MpiError`].
    pub(crate) fn irecv(&self, len: usize, source: Option<u32>, tag: Option<i32>) -> Result<Pending, MpiError> {
        let mut bytes = vec![0; len];
        let (room, mut request) = (count("MPI_Irecv", len)?, none());
        let (source, tag) = (any_source(source), any_tag(tag));
        let at = bytes.as_mut_ptr().cast::<c_void>();
        // SAFETY: the bytes are on the heap, where `Pending` leaves them until the request is over.
        unsafe {
            let code = ffi::MPI_Irecv(at, room, ffi::RSMPI_UINT8_T, source, tag, self.raw(), &raw mut request);
            check("MPI_Irecv", code)?;
            let memory = Memory { bytes, ..Memory::default() };
            Ok(Pending::begun(request, Kind::Receive, memory, Rc::clone(&self.universe)))
        }
    }

    /// Begins to receive a message into `buf`, which is at least as long. `None` is a wildcard.
    ///
    /// # Errors
    /// [`MpiError`].
    pub(crate) fn irecv_into<'a, B: FromBytes + IntoBytes + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        buf: &'a mut B,
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Result<Borrowed<'a, B>, MpiError> {
        let (source, tag) = (any_source(source), any_tag(tag));
        self.borrow_for("MPI_Irecv", scope, buf, |at, len, request| {
            // SAFETY: what `borrow_for` says of its closure's arguments.
            unsafe { ffi::MPI_Irecv(at, len, ffi::RSMPI_UINT8_T, source, tag, self.raw(), request) }
        })
    }

    /// Begins to receive a matched message into `buf`, which is at least as long.
    ///
    /// # Errors
    /// [`MpiError`].
    pub(crate) fn imrecv_into<'a, B: FromBytes + IntoBytes + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        mut matched: Matched,
        buf: &'a mut B,
    ) -> Result<Borrowed<'a, B>, MpiError> {
        let message = &raw mut matched.message;
        self.borrow_for("MPI_Imrecv", scope, buf, |at, len, request| {
            // SAFETY: what `borrow_for` says of its closure's arguments; the message was matched and not received: `matched` is used up.
            unsafe { ffi::MPI_Imrecv(at, len, ffi::RSMPI_UINT8_T, message, request) }
        })
    }

    /// Begins a receive by `begin`, which is given memory and its length, that are MPI's alone until the request that it makes is over.
    fn borrow_for<'a, B: FromBytes + IntoBytes + ?Sized>(
        &self,
        call: &'static str,
        scope: &LocalScope<'a>,
        buf: &'a mut B,
        begin: impl FnOnce(*mut c_void, c_int, *mut ffi::MPI_Request) -> c_int,
    ) -> Result<Borrowed<'a, B>, MpiError> {
        let mut request = none();
        let len = count(call, buf.as_mut_bytes().len())?;
        let memory: *mut B = buf;
        // SAFETY: `memory` is `buf`, which is borrowed for `'a`; the scope ends the request before `'a` does, and until it is over nobody
        // but MPI uses the memory.
        unsafe {
            let at = (*memory).as_mut_bytes().as_mut_ptr().cast::<c_void>();
            check(call, begin(at, len, &raw mut request))?;
            let pending = Pending::begun(request, Kind::Receive, Memory::default(), Rc::clone(&self.universe));
            Ok(Borrowed::new(scope.register(pending), memory))
        }
    }

    /// Waits for a message that such a receive would take, and leaves it where it is. `None` is a wildcard.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn probe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Envelope, MpiError> {
        let mut status = MaybeUninit::uninit();
        let (source, tag) = (any_source(source), any_tag(tag));
        // SAFETY: a living communicator and a pointer to a local variable, which the call fills in where it succeeds.
        unsafe {
            check("MPI_Probe", ffi::MPI_Probe(source, tag, self.raw(), status.as_mut_ptr()))?;
            Envelope::of(&status.assume_init())
        }
    }

    /// As [`probe`](Self::probe), and `None` where there is no such message yet.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn immediate_probe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Envelope>, MpiError> {
        let (mut flag, mut status) = (0, MaybeUninit::uninit());
        let (source, tag) = (any_source(source), any_tag(tag));
        // SAFETY: as in `probe`; the status is filled in where there is a message.
        unsafe {
            let code = ffi::MPI_Iprobe(source, tag, self.raw(), &raw mut flag, status.as_mut_ptr());
            check("MPI_Iprobe", code)?;
            if flag == 0 { Ok(None) } else { Envelope::of(&status.assume_init()).map(Some) }
        }
    }

    /// Waits for a message that such a receive would take, and takes it out of everybody's reach. `None` is a wildcard.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn mprobe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Matched, MpiError> {
        let mut status = MaybeUninit::uninit();
        let (source, tag) = (any_source(source), any_tag(tag));
        // SAFETY: constants of the shim, a living communicator, and pointers to local variables that the call fills in.
        unsafe {
            let mut message = ffi::RSMPI_MESSAGE_NULL;
            let code = ffi::MPI_Mprobe(source, tag, self.raw(), &raw mut message, status.as_mut_ptr());
            check("MPI_Mprobe", code)?;
            let Envelope { source, tag, len } = Envelope::of(&status.assume_init())?;
            Ok(Matched { message, source, tag, len, _universe: Rc::clone(&self.universe) })
        }
    }
}

impl Matched {
    /// Receives it into `bytes`; with an error beside it where it was longer, and what is behind them is lost.
    ///
    /// # Errors
    /// [`MpiError`]: it was not received.
    pub(crate) fn receive_into(mut self, bytes: &mut [u8]) -> Result<(Envelope, Result<(), MpiError>), MpiError> {
        let len = count("MPI_Mrecv", bytes.len())?;
        let (at, message) = (bytes.as_mut_ptr().cast::<c_void>(), &raw mut self.message);
        let mut status = MaybeUninit::zeroed();
        // SAFETY: `len` bytes at `at` are this call's alone, and the message was matched and not received: `self` is used up.
        let code = unsafe { ffi::MPI_Mrecv(at, len, ffi::RSMPI_UINT8_T, message, status.as_mut_ptr()) };
        taken(check("MPI_Mrecv", code), status)
    }
}
