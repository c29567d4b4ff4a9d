//! Acknowledgements on their way: a communicator of the library's own.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use mpi_sys as ffi;

use super::ask::{Refused, ask};
use super::failures::{self, Failures, is_failure};

/// The longest message: as many streams as a batch has messages, 16 bytes each.
pub(crate) const BYTES_MAX: usize = 64 * 16;

/// What a message is, by its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Acknowledgements.
    Batch = 1,
    /// What its sender wants to be told as soon as there is news of it.
    Ask,
    /// News of what was asked.
    Answer,
    /// Its sender wants to know now how much has happened here.
    Pulse,
    /// How much has happened.
    Beat,
}

impl Kind {
    fn of(tag: c_int) -> Option<Kind> {
        [Kind::Batch, Kind::Ask, Kind::Answer, Kind::Pulse, Kind::Beat].into_iter().find(|kind| *kind as c_int == tag)
    }
}

/// What came: so many bytes, which are in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Came {
    pub(crate) kind: Kind,
    pub(crate) from: u32,
    pub(crate) len: usize,
}

/// The communicator, what is being received on it, and what is being sent.
#[derive(Debug)]
pub(crate) struct Control {
    comm: ffi::MPI_Comm,
    receive: ffi::MPI_Request,
    /// Where MPI writes while the receive is under way: never freed, a process has one.
    buffer: NonNull<u8>,
    sending: Vec<(ffi::MPI_Request, Box<[u8]>)>,
    /// Messages to each rank, for the end.
    sent: Vec<u64>,
    received: Vec<u64>,
    expected: Vec<u64>,
    pub(super) failures: Failures,
}

impl Control {
    /// All ranks of MPI_COMM_WORLD do this together.
    pub(crate) fn new(ranks: u32) -> Result<Control, Refused> {
        let none = || vec![0; ranks as usize];
        // SAFETY: constants of the shim; MPI is up.
        let mut control = unsafe {
            Control {
                comm: ffi::RSMPI_COMM_NULL,
                receive: ffi::RSMPI_REQUEST_NULL,
                buffer: NonNull::from(Box::leak(Box::new([0u8; BYTES_MAX]))).cast(),
                sending: Vec::new(),
                sent: none(),
                received: none(),
                expected: none(),
                failures: Failures::new(ranks),
            }
        };
        // SAFETY: a constant of the shim and a pointer to a field; the handler is MPI's own.
        unsafe {
            ask!(PMPI_Comm_dup(ffi::RSMPI_COMM_WORLD, &raw mut control.comm));
            ask!(PMPI_Comm_set_errhandler(control.comm, ffi::RSMPI_ERRORS_RETURN));
            let to = control.buffer.as_ptr().cast();
            // SAFETY: the buffer is there for ever, and nobody else touches it while the receive is under way.
            ask!(PMPI_Recv_init(
                to,
                BYTES_MAX as c_int,
                ffi::RSMPI_UINT8_T,
                ffi::RSMPI_ANY_SOURCE,
                ffi::RSMPI_ANY_TAG,
                control.comm,
                &raw mut control.receive
            ));
            ask!(PMPI_Start(&raw mut control.receive));
        }
        Ok(control)
    }

    /// Of how many ranks something is so. All ranks do this together.
    pub(crate) fn how_many(&self, is_so: bool) -> Result<u32, Refused> {
        let (mine, mut all) = (u32::from(is_so), 0u32);
        // SAFETY: pointers to local variables; everybody does this now.
        unsafe {
            let (from, to) = ((&raw const mine).cast(), (&raw mut all).cast());
            ask!(PMPI_Allreduce(from, to, 1, ffi::RSMPI_UINT32_T, ffi::RSMPI_SUM, self.comm));
        }
        Ok(all)
    }

    /// Begins to send bytes, in parts if they are many: entries of 16 bytes, none of which is cut. To a rank that has failed nothing
    /// is sent.
    pub(crate) fn send(&mut self, to: u32, kind: Kind, bytes: &[u8]) -> Result<(), Refused> {
        if self.failures.is_gone(to) {
            return Ok(());
        }
        for part in bytes.chunks(BYTES_MAX) {
            self.send_part(to, kind as c_int, part.into())?;
        }
        Ok(())
    }

    fn send_part(&mut self, to: u32, tag: c_int, bytes: Box<[u8]>) -> Result<(), Refused> {
        self.sweep()?;
        let begin = || {
            // SAFETY: the bytes are on the heap, untouched, until the request has ended: they are kept beside it.
            unsafe {
                let mut request = ffi::RSMPI_REQUEST_NULL;
                let (at, len) = (bytes.as_ptr().cast(), bytes.len() as c_int);
                ask!(PMPI_Isend(at, len, ffi::RSMPI_UINT8_T, to as c_int, tag, self.comm, &raw mut request));
                Ok(request)
            }
        };
        match begin() {
            Ok(request) => {
                self.sending.push((request, bytes));
                self.sent[to as usize] += 1;
                Ok(())
            }
            Err(refused) if is_failure(refused.code) => self.failures.note(self.comm),
            Err(refused) => Err(refused),
        }
    }

    /// Lets go of what has been sent.
    fn sweep(&mut self) -> Result<(), Refused> {
        let mut at = 0;
        while let Some((request, _)) = self.sending.get_mut(at) {
            // SAFETY: a request of `send_part`.
            match unsafe { has_ended(request) } {
                Ok(false) => at += 1,
                Ok(true) => drop(self.sending.swap_remove(at)),
                Err(refused) if is_failure(refused.code) => {
                    self.sending.swap_remove(at);
                    self.failures.note(self.comm)?;
                }
                Err(refused) => return Err(refused),
            }
        }
        Ok(())
    }

    /// What has come, if something has. What is in [`bytes`](Self::bytes) stays until [`go_on`](Self::go_on).
    pub(crate) fn poll(&mut self) -> Result<Option<Came>, Refused> {
        let mut flag = 0;
        let mut status = MaybeUninit::uninit();
        // SAFETY: the started receive, and pointers to local variables.
        let code = unsafe { ffi::PMPI_Test(&raw mut self.receive, &raw mut flag, status.as_mut_ptr()) };
        let is_interrupted = is_failure(code);
        if is_interrupted {
            self.failures.note(self.comm)?;
        } else if code != 0 {
            return Err(Refused { call: "PMPI_Test", code });
        }
        // If it was interrupted, it goes on.
        if flag == 0 {
            return Ok(None);
        }
        // SAFETY: the receive has ended, so the status is filled in.
        let status = unsafe { status.assume_init() };
        let mut len = 0;
        // SAFETY: a status that MPI filled in, and a pointer to a local variable.
        unsafe { ask!(PMPI_Get_count(&raw const status, ffi::RSMPI_UINT8_T, &raw mut len)) };
        let from = status.MPI_SOURCE.unsigned_abs();
        // One that was interrupted may have taken a message of a rank that lives all the same: Open MPI leaves the code as it was.
        if is_interrupted && self.failures.is_gone(from) {
            self.go_on()?;
            return Ok(None);
        }
        if let Some(received) = self.received.get_mut(from as usize) {
            *received += 1;
        }
        // Nobody else sends on this communicator.
        let kind = Kind::of(status.MPI_TAG).unwrap_or(Kind::Batch);
        Ok(Some(Came { kind, from, len: len.unsigned_abs() as usize }))
    }

    /// The first `len` bytes of what came.
    pub(crate) fn bytes(&self, len: usize) -> Vec<u8> {
        // SAFETY: the buffer's own bytes; no receive is under way between `poll` and `go_on`.
        unsafe { std::slice::from_raw_parts(self.buffer.as_ptr(), len.min(BYTES_MAX)) }.to_vec()
    }

    /// Receives again.
    pub(crate) fn go_on(&mut self) -> Result<(), Refused> {
        // SAFETY: a persistent receive that has ended; the buffer is still there.
        unsafe { ask!(PMPI_Start(&raw mut self.receive)) };
        Ok(())
    }

    /// Begins to wait until all ranks that live have come here. The request is given to [`has_ended`].
    pub(crate) fn meet(&mut self) -> Result<ffi::MPI_Request, Refused> {
        if self.failures.may_come() {
            return self.failures.meet(self.comm);
        }
        // SAFETY: a pointer to a local variable; everybody does this now.
        unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            ask!(PMPI_Ibarrier(self.comm, &raw mut request));
            Ok(request)
        }
    }

    /// All ranks that live tell each other how many messages they have sent, do this together, and send nothing afterwards.
    pub(crate) fn tell_counts(&mut self) -> Result<(), Refused> {
        self.expected = if self.failures.may_come() {
            failures::tell_counts(self.comm, &self.sent)?
        } else {
            let mut expected = vec![0u64; self.sent.len()];
            // SAFETY: arrays with a number for each rank; everybody does this now.
            unsafe {
                let (from, to) = (self.sent.as_ptr().cast(), expected.as_mut_ptr().cast());
                ask!(PMPI_Alltoall(from, 1, ffi::RSMPI_UINT64_T, to, 1, ffi::RSMPI_UINT64_T, self.comm));
            }
            expected
        };
        Ok(())
    }

    /// Whether messages of ranks that live are still under way to this one.
    pub(crate) fn has_outstanding(&self) -> bool {
        let mut each = (0..).zip(self.expected.iter().zip(&self.received));
        each.any(|(rank, (expected, received))| expected > received && !self.failures.is_gone(rank))
    }

    /// Gives everything back to MPI.
    pub(crate) fn end(mut self) -> Result<(), Refused> {
        // SAFETY: the started receive, then requests of `send_part`, then a communicator on which nothing is under way any more.
        unsafe {
            ask!(PMPI_Cancel(&raw mut self.receive));
            ask!(PMPI_Wait(&raw mut self.receive, ffi::RSMPI_STATUS_IGNORE));
            ask!(PMPI_Request_free(&raw mut self.receive));
            for (request, _) in &mut self.sending {
                let code = ffi::PMPI_Wait(request, ffi::RSMPI_STATUS_IGNORE);
                if code != 0 && !is_failure(code) {
                    return Err(Refused { call: "PMPI_Wait", code });
                }
            }
            ask!(PMPI_Comm_free(&raw mut self.comm));
        }
        Ok(())
    }
}

/// Whether a request has ended.
///
/// # Safety
/// A request that MPI knows, or the null one.
pub(crate) unsafe fn has_ended(request: &mut ffi::MPI_Request) -> Result<bool, Refused> {
    let mut flag = 0;
    // SAFETY: the caller's promise, a pointer to a local variable, and no status.
    unsafe { ask!(PMPI_Test(request, &raw mut flag, ffi::RSMPI_STATUS_IGNORE)) };
    Ok(flag != 0)
}
