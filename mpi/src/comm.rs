//! Communicators: messages of bytes, with errors in place of aborts.

use std::ffi::{c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::rc::Rc;

use mpi_sys as ffi;

use crate::error::{MpiError, check, count};
use crate::point_to_point::Mode;
use crate::request::none;
use crate::universe::Universe;

/// A communicator. It is freed when it is dropped, if it was made here.
#[derive(Debug)]
pub struct Comm {
    raw: ffi::MPI_Comm,
    is_ours: bool,
    /// MPI lives at least as long.
    pub(crate) universe: Rc<Universe>,
}

/// A message that was matched and not received yet: nobody else can take it.
#[derive(Debug)]
#[must_use = "a matched message has to be received: nobody else can"]
pub struct Matched {
    pub(crate) message: ffi::MPI_Message,
    /// Who sent it.
    pub source: u32,
    /// Its tag.
    pub tag: i32,
    /// Its length in bytes.
    pub len: usize,
    pub(crate) _universe: Rc<Universe>,
}

/// A message that is being sent, with its bytes.
#[derive(Debug)]
pub struct Sending {
    request: ffi::MPI_Request,
    /// Not touched while the request is under way.
    bytes: ManuallyDrop<Vec<u8>>,
    _universe: Rc<Universe>,
}

impl Comm {
    pub(crate) fn predefined(raw: ffi::MPI_Comm, universe: Rc<Universe>) -> Comm {
        Comm { raw, is_ours: false, universe }
    }

    /// A communicator that was made just now.
    pub(crate) fn made(raw: ffi::MPI_Comm, universe: Rc<Universe>) -> Comm {
        Comm { raw, is_ours: true, universe }
    }

    /// The handle, for calls that this type doesn't have. It is valid as long as this communicator.
    pub fn raw(&self) -> ffi::MPI_Comm {
        self.raw
    }

    /// This process's rank.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn rank(&self) -> Result<u32, MpiError> {
        let mut rank = 0;
        // SAFETY: a living communicator and a pointer to a local variable.
        check("MPI_Comm_rank", unsafe { ffi::MPI_Comm_rank(self.raw, &raw mut rank) })?;
        Ok(rank.unsigned_abs())
    }

    /// How many ranks there are.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn size(&self) -> Result<u32, MpiError> {
        let mut size = 0;
        // SAFETY: as in `rank`.
        check("MPI_Comm_size", unsafe { ffi::MPI_Comm_size(self.raw, &raw mut size) })?;
        Ok(size.unsigned_abs())
    }

    /// Another communicator of the same ranks, whose messages don't meet those of this one. All ranks call it.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn dup(&self) -> Result<Comm, MpiError> {
        let mut raw = self.raw;
        // SAFETY: a living communicator and a pointer to a local variable.
        check("MPI_Comm_dup", unsafe { ffi::MPI_Comm_dup(self.raw, &raw mut raw) })?;
        Ok(Comm { raw, is_ours: true, universe: Rc::clone(&self.universe) })
    }

    /// Returns once every rank has called it.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn barrier(&self) -> Result<(), MpiError> {
        // SAFETY: a living communicator.
        check("MPI_Barrier", unsafe { ffi::MPI_Barrier(self.raw) })
    }

    /// Gives every rank the `bytes` of rank `root`, which have the same length everywhere.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn bcast(&self, root: u32, bytes: &mut [u8]) -> Result<(), MpiError> {
        let len = count("MPI_Bcast", bytes.len())?;
        let at = bytes.as_mut_ptr().cast::<c_void>();
        // SAFETY: `len` bytes at `at` are this call's alone until it returns.
        check("MPI_Bcast", unsafe { ffi::MPI_Bcast(at, len, ffi::RSMPI_UINT8_T, root as c_int, self.raw) })
    }

    /// Sends, and returns when `bytes` may be used again.
    ///
    /// # Errors
    /// [`MpiError`].
    #[inline]
    pub fn send(&self, bytes: &[u8], to: u32, tag: i32) -> Result<(), MpiError> {
        let len = count("MPI_Send", bytes.len())?;
        let at = bytes.as_ptr().cast::<c_void>();
        // SAFETY: `len` bytes at `at` stay as they are until the call returns; MPI reads them only.
        check("MPI_Send", unsafe { ffi::MPI_Send(at, len, ffi::RSMPI_UINT8_T, to as c_int, tag, self.raw) })
    }

    /// Sends, does `work` while the message is under way, and returns when `bytes` may be used again.
    ///
    /// # Errors
    /// [`MpiError`]. Of an error before the message was begun, `work` is not done.
    #[inline]
    pub fn send_while<T>(&self, bytes: &[u8], to: u32, tag: i32, work: impl FnOnce() -> T) -> Result<T, MpiError> {
        self.send_within(Mode::Standard, bytes, to, tag, |begin| {
            begin()?;
            Ok(work())
        })
    }

    /// Sends in this way: `around` is given what begins to send, and when it has returned, it is waited until `bytes` may be used again.
    ///
    /// # Errors
    /// That of `around`; [`MpiError`].
    #[inline]
    pub(crate) fn send_within<T, E: From<MpiError>>(
        &self,
        mode: Mode,
        bytes: &[u8],
        to: u32,
        tag: i32,
        around: impl FnOnce(&mut dyn FnMut() -> Result<(), MpiError>) -> Result<T, E>,
    ) -> Result<T, E> {
        /// Waits also where `around` panics: MPI may still be reading.
        struct Wait(ffi::MPI_Request);
        impl Wait {
            #[inline]
            fn wait(&mut self) -> c_int {
                // SAFETY: a request that was begun here, or the null request, also that which a first wait left.
                unsafe { ffi::MPI_Wait(&raw mut self.0, ffi::RSMPI_STATUS_IGNORE) }
            }
        }
        impl Drop for Wait {
            fn drop(&mut self) {
                if self.0 != none() {
                    self.wait();
                }
            }
        }
        let (call, send) = mode.immediate();
        let len = count(call, bytes.len())?;
        let at = bytes.as_ptr().cast::<c_void>();
        let mut sending = Wait(none());
        let done = around(&mut || {
            // A second message would have no request of its own.
            if sending.0 != none() {
                return Ok(());
            }
            let mut request = none();
            // SAFETY: `bytes` is borrowed until this function returns, and `sending` waits for the request before it does. That a receive is
            // posted which a ready send needs is what `IsPosted` stands for.
            check(call, unsafe { send(at, len, ffi::RSMPI_UINT8_T, to as c_int, tag, self.raw, &raw mut request) })?;
            // A failed one may leave a request behind that never ends.
            sending.0 = request;
            Ok(())
        })?;
        check("MPI_Wait", sending.wait())?;
        Ok(done)
    }

    /// Begins to send `bytes`, which the request keeps until it is done.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn isend(&self, bytes: Vec<u8>, to: u32, tag: i32) -> Result<Sending, MpiError> {
        let len = count("MPI_Isend", bytes.len())?;
        // SAFETY: a constant of the shim.
        let request = unsafe { ffi::RSMPI_REQUEST_NULL };
        let mut sending = Sending { request, bytes: ManuallyDrop::new(bytes), _universe: Rc::clone(&self.universe) };
        let (at, request) = (sending.bytes.as_ptr().cast::<c_void>(), &raw mut sending.request);
        // SAFETY: the bytes are on the heap, where `Sending` leaves them, untouched, until the request is done.
        let code = unsafe { ffi::MPI_Isend(at, len, ffi::RSMPI_UINT8_T, to as c_int, tag, self.raw, request) };
        check("MPI_Isend", code)?;
        Ok(sending)
    }

    /// Receives a message of at most as many bytes as `bytes` has, and says how many it has. `None` is a wildcard.
    ///
    /// # Errors
    /// [`MpiError`]; of class `MPI_ERR_TRUNCATE` for a longer message, which is lost.
    #[inline]
    pub fn recv(&self, bytes: &mut [u8], source: Option<u32>, tag: Option<i32>) -> Result<usize, MpiError> {
        let len = count("MPI_Recv", bytes.len())?;
        let at = bytes.as_mut_ptr().cast::<c_void>();
        let mut status = MaybeUninit::uninit();
        let (source, tag) = (any_source(source), any_tag(tag));
        // SAFETY: `len` bytes at `at` are this call's alone until it returns, and it fills the status in where it succeeds.
        unsafe {
            let code = ffi::MPI_Recv(at, len, ffi::RSMPI_UINT8_T, source, tag, self.raw, status.as_mut_ptr());
            check("MPI_Recv", code)?;
            received_len(&status.assume_init())
        }
    }

    /// Takes a message that has come, if there is one, out of everybody's reach. `None` is a wildcard.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn improbe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Matched>, MpiError> {
        let mut flag = 0;
        let mut status = MaybeUninit::uninit();
        // SAFETY: a constant of the shim.
        let mut message = unsafe { ffi::RSMPI_MESSAGE_NULL };
        let (source, tag) = (any_source(source), any_tag(tag));
        // SAFETY: a living communicator, and pointers to local variables.
        let code =
            unsafe { ffi::MPI_Improbe(source, tag, self.raw, &raw mut flag, &raw mut message, status.as_mut_ptr()) };
        check("MPI_Improbe", code)?;
        if flag == 0 {
            return Ok(None);
        }
        // SAFETY: where there is a message, the call has filled the status in.
        let status = unsafe { status.assume_init() };
        let (source, tag) = (status.MPI_SOURCE.unsigned_abs(), status.MPI_TAG);
        let len = received_len(&status)?;
        Ok(Some(Matched { message, source, tag, len, _universe: Rc::clone(&self.universe) }))
    }

    /// Whether a message has come that such a receive would take; it stays where it is. `None` is a wildcard.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn iprobe(&self, source: Option<u32>, tag: Option<i32>) -> Result<bool, MpiError> {
        let mut flag = 0;
        let (source, tag) = (any_source(source), any_tag(tag));
        // SAFETY: a living communicator, a pointer to a local variable, and a status that is not wanted.
        let code = unsafe { ffi::MPI_Iprobe(source, tag, self.raw, &raw mut flag, ffi::RSMPI_STATUS_IGNORE) };
        check("MPI_Iprobe", code)?;
        Ok(flag != 0)
    }

    /// Ends all processes of the job. For failures that nobody else would hear of.
    pub fn abort(&self, code: i32) {
        // SAFETY: a living communicator. Where MPI can't, the caller goes on.
        unsafe {
            ffi::MPI_Abort(self.raw, code);
        }
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if self.is_ours {
            // SAFETY: made by `dup` and not freed since; `universe` says that MPI is still there. A failure leaves it to
            // MPI_Finalize.
            unsafe {
                ffi::MPI_Comm_free(&raw mut self.raw);
            }
        }
    }
}

impl Matched {
    /// Receives it.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn receive(mut self) -> Result<Vec<u8>, MpiError> {
        let len = count("MPI_Mrecv", self.len)?;
        let mut bytes = vec![0; self.len];
        let (at, message) = (bytes.as_mut_ptr().cast::<c_void>(), &raw mut self.message);
        // SAFETY: `len` bytes at `at` are this call's alone, and the message was matched and not received: `self` is used up.
        let code = unsafe { ffi::MPI_Mrecv(at, len, ffi::RSMPI_UINT8_T, message, ffi::RSMPI_STATUS_IGNORE) };
        check("MPI_Mrecv", code)?;
        Ok(bytes)
    }
}

impl Sending {
    /// Whether it is done, and its bytes are nobody's any more.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn test(&mut self) -> Result<bool, MpiError> {
        let mut flag = 0;
        // SAFETY: a request that `MPI_Isend` made, or the null request that an earlier test left.
        let code = unsafe { ffi::MPI_Test(&raw mut self.request, &raw mut flag, ffi::RSMPI_STATUS_IGNORE) };
        check("MPI_Test", code)?;
        Ok(flag != 0)
    }

    /// Waits until it is done.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn wait(mut self) -> Result<(), MpiError> {
        // SAFETY: as in `test`.
        check("MPI_Wait", unsafe { ffi::MPI_Wait(&raw mut self.request, ffi::RSMPI_STATUS_IGNORE) })
    }

    /// How many bytes are being sent.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is nothing but an envelope.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        // SAFETY: a constant of the shim. Where the request is done, MPI has forgotten the bytes, which are dropped once, here.
        // Else they are left where they are: MPI may still read them.
        unsafe {
            if self.request == ffi::RSMPI_REQUEST_NULL {
                ManuallyDrop::drop(&mut self.bytes);
            } else {
                ffi::MPI_Request_free(&raw mut self.request);
            }
        }
    }
}

pub(crate) fn any_source(source: Option<u32>) -> c_int {
    // SAFETY: a constant of the shim that `mpi-sys` links; nobody writes it.
    source.map_or(unsafe { ffi::RSMPI_ANY_SOURCE }, |source| source as c_int)
}

pub(crate) fn any_tag(tag: Option<i32>) -> c_int {
    // SAFETY: a constant of the shim that `mpi-sys` links; nobody writes it.
    tag.unwrap_or(unsafe { ffi::RSMPI_ANY_TAG })
}

#[inline]
pub(crate) fn received_len(status: &ffi::MPI_Status) -> Result<usize, MpiError> {
    let mut len = 0;
    // SAFETY: a status that MPI filled in, and a pointer to a local variable.
    check("MPI_Get_count", unsafe { ffi::MPI_Get_count(status, ffi::RSMPI_UINT8_T, &raw mut len) })?;
    Ok(usize::try_from(len).unwrap_or(0))
}
