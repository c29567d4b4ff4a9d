//! Messages of bytes in MPI's other ways: synchronous, waited for later, looked at before they are received.

use std::ffi::{c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::rc::Rc;

use mpi_sys as ffi;

use crate::comm::{Comm, Matched, any_source, any_tag, received_len};
use crate::error::{MpiError, check, count};
use crate::universe::Universe;

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
    fn of(status: &ffi::MPI_Status) -> Result<Envelope, MpiError> {
        let (source, tag) = (status.MPI_SOURCE.unsigned_abs(), status.MPI_TAG);
        Ok(Envelope { source, tag, len: received_len(status)? })
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

/// A message that is being received, with the memory that it goes to. Who drops it waits no longer for the message: it is called off, or lost.
#[derive(Debug)]
#[must_use = "what is dropped is called off"]
pub struct Receiving {
    request: ffi::MPI_Request,
    /// MPI's alone while the request is under way.
    bytes: ManuallyDrop<Vec<u8>>,
    _universe: Rc<Universe>,
}

impl Comm {
    /// Sends, and returns when the message is being received.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn send_synchronous(&self, bytes: &[u8], to: u32, tag: i32) -> Result<(), MpiError> {
        let len = count("MPI_Ssend", bytes.len())?;
        let at = bytes.as_ptr().cast::<c_void>();
        // SAFETY: `len` bytes at `at` stay as they are until the call returns; MPI reads them only.
        check("MPI_Ssend", unsafe { ffi::MPI_Ssend(at, len, ffi::RSMPI_UINT8_T, to as c_int, tag, self.raw()) })
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

    /// Begins to receive a message of at most `len` bytes. `None` is a wildcard.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn irecv(&self, len: usize, source: Option<u32>, tag: Option<i32>) -> Result<Receiving, MpiError> {
        let room = count("MPI_Irecv", len)?;
        let (source, tag) = (any_source(source), any_tag(tag));
        // SAFETY: a constant of the shim.
        let request = unsafe { ffi::RSMPI_REQUEST_NULL };
        let universe = Rc::clone(&self.universe);
        let mut receiving = Receiving { request, bytes: ManuallyDrop::new(vec![0; len]), _universe: universe };
        let (at, request) = (receiving.bytes.as_mut_ptr().cast::<c_void>(), &raw mut receiving.request);
        // SAFETY: the bytes are on the heap, where `Receiving` leaves them until the request has ended.
        let code = unsafe { ffi::MPI_Irecv(at, room, ffi::RSMPI_UINT8_T, source, tag, self.raw(), request) };
        check("MPI_Irecv", code)?;
        Ok(receiving)
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

impl Receiving {
    /// Waits for the message: whose it is, and its bytes.
    ///
    /// # Errors
    /// [`MpiError`]; of class `MPI_ERR_TRUNCATE` for a longer message, which is lost.
    pub fn wait(self) -> Result<(Envelope, Vec<u8>), MpiError> {
        let (envelope, bytes) = self.wait_whole()?;
        Ok((envelope, bytes?))
    }

    /// Waits for the message, which was taken also where there is an error beside it.
    pub(crate) fn wait_whole(mut self) -> Result<(Envelope, Result<Vec<u8>, MpiError>), MpiError> {
        let mut status = MaybeUninit::zeroed();
        // SAFETY: a request that `MPI_Irecv` made, and a pointer to a local variable, which is filled in where a message was taken.
        let received = check("MPI_Wait", unsafe { ffi::MPI_Wait(&raw mut self.request, status.as_mut_ptr()) });
        let (envelope, received) = taken(received, status)?;
        let mut bytes = std::mem::take(&mut *self.bytes);
        bytes.truncate(envelope.len);
        Ok((envelope, received.map(|()| bytes)))
    }

    /// Whether [`wait`](Self::wait) returns at once.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn is_ready(&self) -> Result<bool, MpiError> {
        let mut flag = 0;
        // SAFETY: a request that `MPI_Irecv` made, a pointer to a local variable, and a status that is not wanted.
        let code = unsafe { ffi::MPI_Request_get_status(self.request, &raw mut flag, ffi::RSMPI_STATUS_IGNORE) };
        check("MPI_Request_get_status", code)?;
        Ok(flag != 0)
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        // SAFETY: a constant of the shim, and a request that `MPI_Irecv` made: one that is called off ends at once, or its message has come;
        // either way MPI has forgotten the bytes then, which are dropped once, here. Where MPI can't say so they are left to it.
        unsafe {
            if self.request != ffi::RSMPI_REQUEST_NULL {
                ffi::MPI_Cancel(&raw mut self.request);
                if ffi::MPI_Wait(&raw mut self.request, ffi::RSMPI_STATUS_IGNORE) != 0 {
                    return;
                }
            }
            ManuallyDrop::drop(&mut self.bytes);
        }
    }
}
