//! Acknowledgements, questions and answers on their way: a communicator of the library's own. Its calls are those of MPI's profiling
//! interface, so that nobody who stands between a program and its MPI takes them for the program's.

use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::rc::Rc;

use mpi_sys as ffi;

use super::failures::{self, Failures};
use crate::comm::Comm;
use crate::error::{MpiError, check};
use crate::universe::Universe;

/// What debuggers see of the communicator. Of a program that logs by itself others may see it named, too: by that the library under
/// unmodified programs knows that it logs a second time.
pub const ACKNOWLEDGEMENTS: &CStr = c"counterfoil acknowledgements";
/// The longest message: so many streams, 16 bytes each. Of a batch with more there are several.
const BYTES_MAX: usize = 64 * 16;

/// What a message is, by its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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
    /// Its sender goes away, and has not waited for the end of the others.
    Gone,
}

impl Kind {
    fn of(tag: c_int) -> Option<Kind> {
        let all = [Kind::Batch, Kind::Ask, Kind::Answer, Kind::Pulse, Kind::Beat, Kind::Gone];
        all.into_iter().find(|kind| *kind as c_int == tag)
    }
}

/// What came: so many bytes, which are in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came {
    /// What it is.
    pub kind: Kind,
    /// Whose it is.
    pub from: u32,
    /// How many bytes.
    pub len: usize,
}

/// All ranks are asked to come to a place.
#[derive(Debug)]
pub struct Meeting(ffi::MPI_Request);

/// The communicator, what is being received on it, and what is being sent. Who drops it without [ending](Self::end) it leaves what is
/// under way to MPI.
#[derive(Debug)]
pub struct Control {
    comm: ffi::MPI_Comm,
    receive: ffi::MPI_Request,
    /// Where MPI writes while the receive is under way: never freed, a process has one.
    buffer: NonNull<u8>,
    sending: Vec<(ffi::MPI_Request, Box<[u8]>)>,
    /// Messages to each rank, for the end.
    sent: Vec<u64>,
    received: Vec<u64>,
    expected: Vec<u64>,
    /// Who has failed while this rank lives on.
    pub failures: Failures,
    /// What says that MPI is up, where something does. The last to be dropped.
    universe: Option<Rc<Universe>>,
}

impl Control {
    /// All ranks of MPI_COMM_WORLD do this together.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn of(world: &Comm) -> Result<Control, MpiError> {
        // SAFETY: the universe is there as long as this, which neither can leave its thread.
        let mut control = unsafe { Control::new(world.size()?) }?;
        // SAFETY: the communicator of the line before, and a text that MPI copies. It has this name: whoever stands between a program and
        // its MPI is told.
        check("MPI_Comm_set_name", unsafe { ffi::MPI_Comm_set_name(control.comm, ACKNOWLEDGEMENTS.as_ptr()) })?;
        control.universe = Some(Rc::clone(&world.universe));
        // Who uses this as a type of its own is told of a failure as of any other error.
        control.failures = Failures::none(world.size()?);
        Ok(control)
    }

    /// All ranks of MPI_COMM_WORLD, so many, do this together.
    ///
    /// # Errors
    /// [`MpiError`].
    ///
    /// # Safety
    /// MPI is up, and stays so until this is dropped. Where MPI wants calls of one thread, or of one at a time, those to this are such.
    pub unsafe fn new(ranks: u32) -> Result<Control, MpiError> {
        let none = || vec![0; ranks as usize];
        // SAFETY: constants of the shim that `mpi-sys` links; nobody writes them.
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
                universe: None,
            }
        };
        // SAFETY: MPI is up; constants of the shim, pointers to fields, and a name that MPI copies; the handler is MPI's own.
        unsafe {
            check("MPI_Comm_dup", ffi::PMPI_Comm_dup(ffi::RSMPI_COMM_WORLD, &raw mut control.comm))?;
            check("MPI_Comm_set_name", ffi::PMPI_Comm_set_name(control.comm, ACKNOWLEDGEMENTS.as_ptr()))?;
            check("MPI_Comm_set_errhandler", ffi::PMPI_Comm_set_errhandler(control.comm, ffi::RSMPI_ERRORS_RETURN))?;
            let to = control.buffer.as_ptr().cast();
            // SAFETY: the buffer is there for ever, and nobody else touches it while the receive is under way.
            check(
                "MPI_Recv_init",
                ffi::PMPI_Recv_init(
                    to,
                    BYTES_MAX as c_int,
                    ffi::RSMPI_UINT8_T,
                    ffi::RSMPI_ANY_SOURCE,
                    ffi::RSMPI_ANY_TAG,
                    control.comm,
                    &raw mut control.receive,
                ),
            )?;
            check("MPI_Start", ffi::PMPI_Start(&raw mut control.receive))?;
        }
        Ok(control)
    }

    /// Of how many ranks something is so. All ranks do this together.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn how_many(&self, is_so: bool) -> Result<u32, MpiError> {
        let (mine, mut all) = (u32::from(is_so), 0u32);
        // SAFETY: pointers to local variables; everybody does this now.
        unsafe {
            let (from, to) = ((&raw const mine).cast(), (&raw mut all).cast());
            check("MPI_Allreduce", ffi::PMPI_Allreduce(from, to, 1, ffi::RSMPI_UINT32_T, ffi::RSMPI_SUM, self.comm))?;
        }
        Ok(all)
    }

    /// Begins to send bytes, in parts if they are many: entries of 16 bytes, none of which is cut. To a rank that has failed nothing is
    /// sent.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn send(&mut self, to: u32, kind: Kind, bytes: &[u8]) -> Result<(), MpiError> {
        if self.failures.is_gone(to) {
            return Ok(());
        }
        for part in bytes.chunks(BYTES_MAX) {
            self.send_part(to, kind as c_int, part.into())?;
        }
        Ok(())
    }

    fn send_part(&mut self, to: u32, tag: c_int, bytes: Box<[u8]>) -> Result<(), MpiError> {
        self.sweep()?;
        let begin = || {
            let (at, len) = (bytes.as_ptr().cast(), bytes.len() as c_int);
            // SAFETY: the bytes are on the heap, untouched, until the request has ended: they are kept beside it.
            unsafe {
                let mut request = ffi::RSMPI_REQUEST_NULL;
                let code = ffi::PMPI_Isend(at, len, ffi::RSMPI_UINT8_T, to as c_int, tag, self.comm, &raw mut request);
                check("MPI_Isend", code).map(|()| request)
            }
        };
        match begin() {
            Ok(request) => {
                self.sending.push((request, bytes));
                self.sent[to as usize] += 1;
                Ok(())
            }
            Err(error) if self.failures.explain(&error) => self.failures.note(self.comm),
            Err(error) => Err(error),
        }
    }

    /// Lets go of what has been sent.
    fn sweep(&mut self) -> Result<(), MpiError> {
        let mut at = 0;
        while let Some((request, _)) = self.sending.get_mut(at) {
            match has_ended(request) {
                Ok(false) => at += 1,
                Ok(true) => drop(self.sending.swap_remove(at)),
                Err(error) if self.failures.explain(&error) => {
                    self.sending.swap_remove(at);
                    self.failures.note(self.comm)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What has come, if something has. What is in [`bytes`](Self::bytes) stays until [`go_on`](Self::go_on).
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn poll(&mut self) -> Result<Option<Came>, MpiError> {
        let mut flag = 0;
        let mut status = MaybeUninit::uninit();
        // SAFETY: the started receive, and pointers to local variables.
        let tested = unsafe { ffi::PMPI_Test(&raw mut self.receive, &raw mut flag, status.as_mut_ptr()) };
        let is_interrupted = match check("MPI_Test", tested) {
            Ok(()) => false,
            Err(error) if self.failures.explain(&error) => true,
            Err(error) => return Err(error),
        };
        if is_interrupted {
            self.failures.note(self.comm)?;
        }
        // If it was interrupted, it goes on.
        if flag == 0 {
            return Ok(None);
        }
        // SAFETY: the receive has ended, so the status is filled in.
        let status = unsafe { status.assume_init() };
        let mut len = 0;
        // SAFETY: a status that MPI filled in, and a pointer to a local variable.
        unsafe { check("MPI_Get_count", ffi::PMPI_Get_count(&raw const status, ffi::RSMPI_UINT8_T, &raw mut len))? };
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
    pub fn bytes(&self, len: usize) -> Vec<u8> {
        // SAFETY: the buffer's own bytes; no receive is under way between `poll` and `go_on`.
        unsafe { std::slice::from_raw_parts(self.buffer.as_ptr(), len.min(BYTES_MAX)) }.to_vec()
    }

    /// Receives again.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn go_on(&mut self) -> Result<(), MpiError> {
        // SAFETY: a persistent receive that has ended; the buffer is still there.
        unsafe { check("MPI_Start", ffi::PMPI_Start(&raw mut self.receive))? };
        Ok(())
    }

    /// Begins to wait until all ranks that live have come here.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn meet(&mut self) -> Result<Meeting, MpiError> {
        if self.failures.may_come() {
            return self.failures.meet(self.comm).map(Meeting);
        }
        // SAFETY: a constant of the shim and a pointer to a local variable; everybody does this now.
        unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            check("MPI_Ibarrier", ffi::PMPI_Ibarrier(self.comm, &raw mut request))?;
            Ok(Meeting(request))
        }
    }

    /// Whether all have come: that somebody has failed meanwhile may be said then, too.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn is_over(&mut self, meeting: &mut Meeting) -> Result<bool, MpiError> {
        match has_ended(&mut meeting.0) {
            Err(error) if self.failures.explain(&error) => Ok(true),
            ended => ended,
        }
    }

    /// All ranks that live tell each other how many messages they have sent, do this together, and send nothing afterwards.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn tell_counts(&mut self) -> Result<(), MpiError> {
        self.expected = if self.failures.may_come() {
            failures::tell_counts(self.comm, &self.sent)?
        } else {
            let mut expected = vec![0u64; self.sent.len()];
            // SAFETY: arrays with a number for each rank; everybody does this now.
            unsafe {
                let (from, to) = (self.sent.as_ptr().cast(), expected.as_mut_ptr().cast());
                check(
                    "MPI_Alltoall",
                    ffi::PMPI_Alltoall(from, 1, ffi::RSMPI_UINT64_T, to, 1, ffi::RSMPI_UINT64_T, self.comm),
                )?;
            }
            expected
        };
        Ok(())
    }

    /// Whether messages of ranks that live are still under way to this one, which have [told](Self::tell_counts) how many there are.
    pub fn has_outstanding(&self) -> bool {
        let mut each = (0..).zip(self.expected.iter().zip(&self.received));
        each.any(|(rank, (expected, received))| expected > received && !self.failures.is_gone(rank))
    }

    /// Gives everything back to MPI. Nothing is under way to this rank any more.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn end(mut self) -> Result<(), MpiError> {
        for (request, _) in &mut self.sending {
            // SAFETY: a request of `send_part`.
            let ended = check("MPI_Wait", unsafe { ffi::PMPI_Wait(request, ffi::RSMPI_STATUS_IGNORE) });
            self.failures.pass_over(ended)?;
        }
        self.give_back()
    }

    fn give_back(&mut self) -> Result<(), MpiError> {
        // SAFETY: a constant of the shim; then the started receive, and the communicator, each given back once.
        unsafe {
            let mut comm = std::mem::replace(&mut self.comm, ffi::RSMPI_COMM_NULL);
            if comm == ffi::RSMPI_COMM_NULL {
                return Ok(());
            }
            check("MPI_Cancel", ffi::PMPI_Cancel(&raw mut self.receive))?;
            // A receive from anybody is interrupted where somebody has failed.
            let ended = check("MPI_Wait", ffi::PMPI_Wait(&raw mut self.receive, ffi::RSMPI_STATUS_IGNORE));
            self.failures.pass_over(ended)?;
            check("MPI_Request_free", ffi::PMPI_Request_free(&raw mut self.receive))?;
            check("MPI_Comm_free", ffi::PMPI_Comm_free(&raw mut comm))
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        for (mut request, bytes) in self.sending.drain(..) {
            if has_ended(&mut request) != Ok(true) {
                // MPI may still read them. SAFETY: a request that is under way, and is nobody's afterwards.
                unsafe { ffi::PMPI_Request_free(&raw mut request) };
                std::mem::forget(bytes);
            }
        }
        // Nobody is there to be told of an error.
        let _ = self.give_back();
    }
}

/// Whether a request of this module has ended.
fn has_ended(request: &mut ffi::MPI_Request) -> Result<bool, MpiError> {
    let mut flag = 0;
    // SAFETY: a request that MPI has made, or the null one that an earlier test left; a pointer to a local variable, and no status.
    check("MPI_Test", unsafe { ffi::PMPI_Test(request, &raw mut flag, ffi::RSMPI_STATUS_IGNORE) })?;
    Ok(flag != 0)
}
