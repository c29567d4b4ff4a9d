//! Communicators: byte messages, with errors instead of aborts.

use std::ffi::{c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::rc::Rc;

use mpi_sys as ffi;

use crate::error::{MpiError, check, count};
use crate::universe::{Universe, by_name};
use crate::watchdog::Call;

/// Longest message sent whole by default in Open MPI's transports, so it has arrived once matched.
const EAGER_BYTES: usize = 4 << 10;

/// A communicator.
///
/// Dropping it frees it, unless it is predefined.
#[derive(Debug)]
pub struct Comm {
    raw: ffi::MPI_Comm,
    is_owned: bool,
    /// Keeps MPI initialised.
    pub(crate) universe: Rc<Universe>,
}

/// A matched message, not yet received: no other receive can take it.
#[derive(Debug)]
#[must_use = "a matched message has to be received: no other receive can take it"]
pub struct Matched {
    pub(crate) message: ffi::MPI_Message,
    /// Rank of the sender.
    pub source: u32,
    /// Tag of the message.
    pub tag: i32,
    /// Length in bytes.
    pub len: usize,
    pub(crate) universe: Rc<Universe>,
}

/// A send in flight, with its bytes.
#[derive(Debug)]
pub struct Sending {
    request: ffi::MPI_Request,
    /// Left untouched while the request is active.
    bytes: ManuallyDrop<Vec<u8>>,
    universe: Rc<Universe>,
}

impl Comm {
    fn predefined(raw: ffi::MPI_Comm, universe: Rc<Universe>) -> Comm {
        Comm { raw, is_owned: false, universe }
    }

    /// Takes ownership of a new communicator.
    pub(crate) fn made(raw: ffi::MPI_Comm, universe: Rc<Universe>) -> Comm {
        Comm { raw, is_owned: true, universe }
    }

    /// Returns the MPI instance it belongs to.
    pub fn universe(&self) -> &Rc<Universe> {
        &self.universe
    }

    /// Returns the handle, for calls missing from this type.
    ///
    /// It is valid as long as this communicator.
    pub fn raw(&self) -> ffi::MPI_Comm {
        self.raw
    }

    /// Returns this process's rank.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn rank(&self) -> Result<u32, MpiError> {
        let mut rank = 0;
        // SAFETY: a valid communicator and a pointer to a local variable.
        check("MPI_Comm_rank", unsafe { ffi::PMPI_Comm_rank(self.raw, &raw mut rank) })?;
        Ok(rank.unsigned_abs())
    }

    /// Returns the number of ranks.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn size(&self) -> Result<u32, MpiError> {
        let mut size = 0;
        // SAFETY: as in `rank`.
        check("MPI_Comm_size", unsafe { ffi::PMPI_Comm_size(self.raw, &raw mut size) })?;
        Ok(size.unsigned_abs())
    }

    /// Duplicates the communicator: same ranks, separate messages.
    ///
    /// Collective.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn dup(&self) -> Result<Comm, MpiError> {
        let mut raw = self.raw;
        // SAFETY: a valid communicator and a pointer to a local variable.
        check("MPI_Comm_dup", unsafe { by_name!(self.universe, MPI_Comm_dup, PMPI_Comm_dup)(self.raw, &raw mut raw) })?;
        Ok(Comm { raw, is_owned: true, universe: Rc::clone(&self.universe) })
    }

    /// Returns once every rank has called it.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn barrier(&self) -> Result<(), MpiError> {
        // SAFETY: a valid communicator.
        check("MPI_Barrier", unsafe { by_name!(self.universe, MPI_Barrier, PMPI_Barrier)(self.raw) })
    }

    /// Copies `bytes` from rank `root` to every rank; they have the same length on all ranks.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn bcast(&self, root: u32, bytes: &mut [u8]) -> Result<(), MpiError> {
        let len = count("MPI_Bcast", bytes.len())?;
        let at = bytes.as_mut_ptr().cast::<c_void>();
        // SAFETY: `len` bytes at `at` are borrowed mutably until the call returns.
        check("MPI_Bcast", unsafe {
            by_name!(self.universe, MPI_Bcast, PMPI_Bcast)(at, len, ffi::RSMPI_UINT8_T, root as c_int, self.raw)
        })
    }

    /// Sends `bytes`; returns when they may be reused.
    ///
    /// # Errors
    /// [`MpiError`].
    #[inline]
    pub fn send(&self, bytes: &[u8], to: u32, tag: i32) -> Result<(), MpiError> {
        let len = count("MPI_Send", bytes.len())?;
        let at = bytes.as_ptr().cast::<c_void>();
        // SAFETY: `len` bytes at `at` are borrowed until the call returns; MPI only reads them.
        check("MPI_Send", unsafe { ffi::MPI_Send(at, len, ffi::RSMPI_UINT8_T, to as c_int, tag, self.raw) })
    }

    /// Starts to send `bytes`, which the request owns until it is complete.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn isend(&self, bytes: Vec<u8>, to: u32, tag: i32) -> Result<Sending, MpiError> {
        let len = count("MPI_Isend", bytes.len())?;
        let bytes = ManuallyDrop::new(bytes);
        let mut sending = Sending { request: null_request(), bytes, universe: Rc::clone(&self.universe) };
        let (at, request) = (sending.bytes.as_ptr().cast::<c_void>(), &raw mut sending.request);
        let isend = by_name!(self.universe, MPI_Isend, PMPI_Isend);
        let _call = Call::begin();
        // SAFETY: the bytes are on the heap, where `Sending` leaves them untouched until the request is complete.
        check("MPI_Isend", unsafe { isend(at, len, ffi::RSMPI_UINT8_T, to as c_int, tag, self.raw, request) })?;
        Ok(sending)
    }

    /// Receives a message into `bytes` and returns its length.
    ///
    /// `None` is a wildcard.
    ///
    /// # Errors
    /// [`MpiError`]; class `MPI_ERR_TRUNCATE` for a message longer than `bytes`, which is lost.
    #[inline]
    pub fn recv(&self, bytes: &mut [u8], source: Option<u32>, tag: Option<i32>) -> Result<usize, MpiError> {
        let len = count("MPI_Recv", bytes.len())?;
        let at = bytes.as_mut_ptr().cast::<c_void>();
        let mut status = MaybeUninit::uninit();
        let (source, tag) = (any_source(source), any_tag(tag));
        // SAFETY: `len` bytes at `at` are borrowed mutably until the call returns, and the call fills in the status if
        // it succeeds.
        unsafe {
            let code = ffi::MPI_Recv(at, len, ffi::RSMPI_UINT8_T, source, tag, self.raw, status.as_mut_ptr());
            check("MPI_Recv", code)?;
            received_len(&status.assume_init())
        }
    }

    /// Matches an arrived message, if there is one, so no other receive can take it.
    ///
    /// `None` is a wildcard.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn improbe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Matched>, MpiError> {
        let mut flag = 0;
        let mut status = MaybeUninit::uninit();
        // SAFETY: a shim constant.
        let mut message = unsafe { ffi::RSMPI_MESSAGE_NULL };
        let (source, tag) = (any_source(source), any_tag(tag));
        let improbe = by_name!(self.universe, MPI_Improbe, PMPI_Improbe);
        let _call = Call::begin();
        // SAFETY: a valid communicator, and pointers to local variables.
        let code = unsafe { improbe(source, tag, self.raw, &raw mut flag, &raw mut message, status.as_mut_ptr()) };
        check("MPI_Improbe", code)?;
        if flag == 0 {
            return Ok(None);
        }
        // SAFETY: the flag reports a message, so the call has filled in the status.
        let status = unsafe { status.assume_init() };
        let (source, tag) = (status.MPI_SOURCE.unsigned_abs(), status.MPI_TAG);
        let len = received_len(&status)?;
        Ok(Some(Matched { message, source, tag, len, universe: Rc::clone(&self.universe) }))
    }
}

impl Universe {
    /// Returns `MPI_COMM_WORLD`.
    pub fn world(self: &Rc<Universe>) -> Comm {
        // SAFETY: a shim constant linked by `mpi-sys`, never written.
        Comm::predefined(unsafe { ffi::RSMPI_COMM_WORLD }, Rc::clone(self))
    }

    /// Returns `MPI_COMM_SELF`.
    pub fn self_comm(self: &Rc<Universe>) -> Comm {
        // SAFETY: a shim constant linked by `mpi-sys`, never written.
        Comm::predefined(unsafe { ffi::RSMPI_COMM_SELF }, Rc::clone(self))
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if self.is_owned {
            // SAFETY: owned and not freed before; `universe` keeps MPI initialised. A failure leaves the communicator
            // to MPI_Finalize.
            unsafe {
                by_name!(self.universe, MPI_Comm_free, PMPI_Comm_free)(&raw mut self.raw);
            }
        }
    }
}

/// Tests of an incomplete receive between two calls of `gives_up`, each possibly a system call.
const TESTS_PER_QUESTION: u32 = 64;

impl Matched {
    /// Receives the message.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn receive(self) -> Result<Vec<u8>, MpiError> {
        self.receive_reusing(Vec::new())
    }

    /// Receives the message into the memory of `bytes`, grown if needed; its earlier contents are dropped.
    ///
    /// Waits for a long message's sender.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn receive_reusing(self, bytes: Vec<u8>) -> Result<Vec<u8>, MpiError> {
        Ok(self.receive_unless(bytes, || false)?.unwrap_or_default())
    }

    /// Receives the message as [`receive_reusing`](Self::receive_reusing) does, or returns `None` once `gives_up`
    /// returns `true` while a long message is incomplete.
    ///
    /// The sender may be dead then, which MPI doesn't report to every process. MPI keeps the memory from then on.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn receive_unless(
        mut self,
        mut bytes: Vec<u8>,
        gives_up: impl FnMut() -> bool,
    ) -> Result<Option<Vec<u8>>, MpiError> {
        bytes.clear();
        bytes.reserve(self.len);
        if self.len <= EAGER_BYTES {
            self.receive_short(&mut bytes)?;
        } else if !self.receive_long(&mut bytes, gives_up)? {
            return Ok(None);
        }
        // SAFETY: the matching probe reported this length, and the message was received whole.
        unsafe { bytes.set_len(self.len) };
        Ok(Some(bytes))
    }

    /// Receives the message into a vector with room for it.
    fn receive_short(&mut self, bytes: &mut Vec<u8>) -> Result<(), MpiError> {
        let len = count("MPI_Mrecv", self.len)?;
        let (at, message) = (bytes.as_mut_ptr().cast::<c_void>(), &raw mut self.message);
        // SAFETY: the vector has room for `len` bytes at `at`, and the message was matched and not received: each
        // caller consumes `self`.
        check("MPI_Mrecv", unsafe {
            by_name!(self.universe, MPI_Mrecv, PMPI_Mrecv)(
                at,
                len,
                ffi::RSMPI_UINT8_T,
                message,
                ffi::RSMPI_STATUS_IGNORE,
            )
        })
    }

    /// Receives as [`receive_short`](Self::receive_short) does, but in calls that don't wait, so a hanging one is
    /// noticed.
    ///
    /// Returns `false` after giving up.
    fn receive_long(&mut self, bytes: &mut Vec<u8>, mut gives_up: impl FnMut() -> bool) -> Result<bool, MpiError> {
        let len = count("MPI_Imrecv", self.len)?;
        let (at, message) = (bytes.as_mut_ptr().cast::<c_void>(), &raw mut self.message);
        let mut request = null_request();
        // SAFETY: as in `receive_short`; the vector is left alone until the request is complete.
        check("MPI_Imrecv", unsafe {
            by_name!(self.universe, MPI_Imrecv, PMPI_Imrecv)(at, len, ffi::RSMPI_UINT8_T, message, &raw mut request)
        })?;
        let (mut flag, mut tested, mut tests) = (0, Ok(()), 0_u32);
        let mut is_given_up = false;
        while flag == 0 && tested.is_ok() && !is_given_up {
            let _call = Call::begin();
            // SAFETY: the request made above, and pointers to local variables.
            tested = check("MPI_Test", unsafe {
                by_name!(self.universe, MPI_Test, PMPI_Test)(&raw mut request, &raw mut flag, ffi::RSMPI_STATUS_IGNORE)
            });
            tests = tests.wrapping_add(1);
            is_given_up = flag == 0 && tests.is_multiple_of(TESTS_PER_QUESTION) && gives_up();
        }
        if request != null_request() {
            // MPI may still write to it.
            std::mem::forget(std::mem::take(bytes));
        }
        tested.map(|()| !is_given_up)
    }
}

impl Sending {
    /// Returns `true` if the send is complete and MPI no longer uses its bytes.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn test(&mut self) -> Result<bool, MpiError> {
        let mut flag = 0;
        let _call = Call::begin();
        // SAFETY: a request from `MPI_Isend`, or the null request left by an earlier test.
        let code = unsafe {
            by_name!(self.universe, MPI_Test, PMPI_Test)(&raw mut self.request, &raw mut flag, ffi::RSMPI_STATUS_IGNORE)
        };
        check("MPI_Test", code)?;
        Ok(flag != 0)
    }

    /// Waits until the send is complete.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn wait(mut self) -> Result<(), MpiError> {
        // SAFETY: as in `test`.
        check("MPI_Wait", unsafe {
            by_name!(self.universe, MPI_Wait, PMPI_Wait)(&raw mut self.request, ffi::RSMPI_STATUS_IGNORE)
        })
    }

    /// Drops a send without waiting for it.
    ///
    /// Its bytes are leaked, because MPI may still read them, and so is its request, which MPI may still complete.
    pub fn abandon(mut self) {
        // SAFETY: a shim constant.
        self.request = unsafe { ffi::RSMPI_REQUEST_NULL };
        std::mem::forget(std::mem::take(&mut *self.bytes));
    }

    /// Returns a completed send's bytes, or the send if it is incomplete.
    ///
    /// # Errors
    /// The send.
    pub fn into_bytes(mut self) -> Result<Vec<u8>, Sending> {
        // SAFETY: a shim constant.
        let is_complete = self.request == unsafe { ffi::RSMPI_REQUEST_NULL };
        if is_complete { Ok(std::mem::take(&mut *self.bytes)) } else { Err(self) }
    }

    /// Returns the length of the message in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns `true` if the message is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        // SAFETY: a shim constant. If the request is complete, MPI no longer uses the bytes, and they are dropped once,
        // here. Otherwise they are leaked, because MPI may still read them.
        unsafe {
            if self.request == ffi::RSMPI_REQUEST_NULL {
                ManuallyDrop::drop(&mut self.bytes);
            } else {
                by_name!(self.universe, MPI_Request_free, PMPI_Request_free)(&raw mut self.request);
            }
        }
    }
}

/// Returns `MPI_REQUEST_NULL`.
pub(crate) fn null_request() -> ffi::MPI_Request {
    // SAFETY: a shim constant linked by `mpi-sys`, never written.
    unsafe { ffi::RSMPI_REQUEST_NULL }
}

pub(crate) fn any_source(source: Option<u32>) -> c_int {
    // SAFETY: a shim constant linked by `mpi-sys`, never written.
    source.map_or(unsafe { ffi::RSMPI_ANY_SOURCE }, |source| source as c_int)
}

pub(crate) fn any_tag(tag: Option<i32>) -> c_int {
    // SAFETY: a shim constant linked by `mpi-sys`, never written.
    tag.unwrap_or(unsafe { ffi::RSMPI_ANY_TAG })
}

#[inline]
pub(crate) fn received_len(status: &ffi::MPI_Status) -> Result<usize, MpiError> {
    let mut len = 0;
    // SAFETY: a status filled in by MPI, and a pointer to a local variable.
    check("MPI_Get_count", unsafe { ffi::PMPI_Get_count(status, ffi::RSMPI_UINT8_T, &raw mut len) })?;
    Ok(usize::try_from(len).unwrap_or(0))
}
