//! The control communicator, carrying messages between a job's loggers.
//!
//! It calls MPI's profiling interface, so a tool between a program and its MPI doesn't take these calls for the
//! program's.

pub mod failures;
pub mod progress_hook;

use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::rc::Rc;

use counterfoil_mpi_logger::{ControlChannel, ControlKind, ControlMessage, ReceivedControl};
use mpi_sys as ffi;

use crate::comm::Comm;
use crate::error::{MpiError, check, count};
use crate::universe::Universe;
use failures::Failures;
use progress_hook::be_eager;

/// Name of the communicator, for debuggers.
///
/// Tells the library under unmodified programs when a program logs by itself.
pub const CONTROL_NAME: &CStr = c"counterfoil acknowledgements";
/// Longest message in bytes: entries of 16 bytes.
///
/// More entries go in several messages.
const BYTES_MAX: usize = 64 * 16;

/// A started barrier over all living ranks.
#[derive(Debug)]
pub struct Barrier(ffi::MPI_Request);

/// Makes a communicator over all ranks.
///
/// Open MPI 4 takes each non-blocking collective's tag on a communicator from a counter, which passes the message tags
/// used in MPI_Dist_graph_create: a call made at that moment may hang. MPI_Comm_dup is three such collectives, so
/// different programs would hang after it. MPI_Comm_create_group is none.
///
/// # Safety
/// MPI is initialised and not finalised.
unsafe fn duplicate_world() -> Result<ffi::MPI_Comm, MpiError> {
    let counts_tags = Universe::library_version()?.starts_with("Open MPI v4.");
    // SAFETY: MPI is initialised; shim constants, and pointers to local variables.
    unsafe {
        let mut made = ffi::RSMPI_COMM_NULL;
        if !counts_tags {
            check("MPI_Comm_dup", ffi::PMPI_Comm_dup(ffi::RSMPI_COMM_WORLD, &raw mut made))?;
            return Ok(made);
        }
        let mut all = ffi::RSMPI_GROUP_NULL;
        check("MPI_Comm_group", ffi::PMPI_Comm_group(ffi::RSMPI_COMM_WORLD, &raw mut all))?;
        let code = ffi::PMPI_Comm_create_group(ffi::RSMPI_COMM_WORLD, all, 0, &raw mut made);
        ffi::PMPI_Group_free(&raw mut all);
        check("MPI_Comm_create_group", code)?;
        Ok(made)
    }
}

/// The control communicator with its pending receive and sends.
///
/// Dropped without [`end`](Self::end), it leaves pending sends to MPI.
#[derive(Debug)]
pub struct Control {
    comm: ffi::MPI_Comm,
    receive: ffi::MPI_Request,
    /// Buffer for the pending receive, one per process and never freed.
    buffer: NonNull<u8>,
    sending: Vec<(ffi::MPI_Request, Box<[u8]>)>,
    /// Messages sent to each rank; exchanged at the end.
    sent: Vec<u64>,
    received: Vec<u64>,
    expected: Vec<u64>,
    /// Failed ranks that this one survives.
    pub failures: Failures,
    /// Keeps MPI initialised.
    ///
    /// Declared last, so dropped last.
    universe: Option<Rc<Universe>>,
}

impl Control {
    /// Makes the communicator.
    ///
    /// Collective over MPI_COMM_WORLD.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn of(world: &Comm) -> Result<Control, MpiError> {
        // SAFETY: the universe lives as long as this value, and neither can leave its thread.
        let mut control = unsafe { Control::new(world.size()?) }?;
        // Named by the call visible to tools: the library under unmodified programs looks for the name.
        // SAFETY: the communicator made above, and a text copied by MPI.
        check("MPI_Comm_set_name", unsafe { ffi::MPI_Comm_set_name(control.comm, CONTROL_NAME.as_ptr()) })?;
        control.universe = Some(Rc::clone(&world.universe));
        // An application using this type handles a failure as any other error.
        control.failures = Failures::fatal(world.size()?);
        Ok(control)
    }

    /// Makes the communicator for a job of `ranks` ranks.
    ///
    /// Collective over MPI_COMM_WORLD.
    ///
    /// # Errors
    /// [`MpiError`].
    ///
    /// # Safety
    /// MPI is initialised, and not finalised before this value is dropped. Its methods are called as the MPI's thread
    /// level demands.
    pub unsafe fn new(ranks: u32) -> Result<Control, MpiError> {
        let none = || vec![0; ranks as usize];
        // SAFETY: shim constants linked by `mpi-sys`, never written.
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
        // SAFETY: shim constants, pointers to fields, and a name copied by MPI; the handler is MPI's own.
        unsafe {
            control.comm = duplicate_world()?;
            check("MPI_Comm_set_name", ffi::PMPI_Comm_set_name(control.comm, CONTROL_NAME.as_ptr()))?;
            check("MPI_Comm_set_errhandler", ffi::PMPI_Comm_set_errhandler(control.comm, ffi::RSMPI_ERRORS_RETURN))?;
            let to = control.buffer.as_ptr().cast();
            // SAFETY: the buffer is never freed, and nothing else touches it while the receive is pending.
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

    /// Returns the communicator's handle, for local calls.
    ///
    /// Errors on it are returned.
    pub fn handle(&self) -> ffi::MPI_Comm {
        self.comm
    }

    /// Returns the number of ranks calling this with `true`.
    ///
    /// Collective.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn count_true(&self, own: bool) -> Result<u32, MpiError> {
        let (mine, mut all) = (u32::from(own), 0u32);
        // SAFETY: pointers to local variables; all ranks call this.
        unsafe {
            let (from, to) = ((&raw const mine).cast(), (&raw mut all).cast());
            check("MPI_Allreduce", ffi::PMPI_Allreduce(from, to, 1, ffi::RSMPI_UINT32_T, ffi::RSMPI_SUM, self.comm))?;
        }
        Ok(all)
    }

    /// Returns the lowest rank calling this with `true`.
    ///
    /// Collective.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn lowest_true(&self, own: bool) -> Result<Option<u32>, MpiError> {
        let (mut mine, mut lowest) = (0, 0);
        // SAFETY: pointers to local variables; all ranks call this.
        unsafe {
            check("MPI_Comm_rank", ffi::PMPI_Comm_rank(self.comm, &raw mut mine))?;
            mine = if own { mine } else { c_int::MAX };
            let (from, to) = ((&raw const mine).cast(), (&raw mut lowest).cast());
            check("MPI_Allreduce", ffi::PMPI_Allreduce(from, to, 1, ffi::RSMPI_INT32_T, ffi::RSMPI_MIN, self.comm))?;
        }
        Ok((lowest != c_int::MAX).then_some(lowest.unsigned_abs()))
    }

    /// Gathers each rank's `bytes` on rank `root`; returns nothing on the others.
    ///
    /// Collective.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn gather(&self, root: u32, bytes: &[u8]) -> Result<Vec<Vec<u8>>, MpiError> {
        let (ranks, len) = (self.sent.len(), count("MPI_Gatherv", bytes.len())?);
        let mut lens: Vec<c_int> = vec![0; ranks];
        // SAFETY: a pointer to a local variable, and an array with an element for each rank; all ranks call this.
        unsafe {
            let (from, to) = ((&raw const len).cast(), lens.as_mut_ptr().cast());
            let (int, root) = (ffi::RSMPI_INT32_T, root as c_int);
            check("MPI_Gather", ffi::PMPI_Gather(from, 1, int, to, 1, int, root, self.comm))?;
        }
        let total = lens.iter().map(|len| len.unsigned_abs() as usize).sum::<usize>();
        count("MPI_Gatherv", total)?;
        let starts: Vec<c_int> = lens.iter().scan(0, |end, len| Some(std::mem::replace(end, *end + len))).collect();
        let mut all = vec![0u8; total.max(1)];
        // The pointer to no bytes may be 1, which is MPI_IN_PLACE in Open MPI.
        let bytes = if bytes.is_empty() { &[0] } else { bytes };
        // SAFETY: at least `len` bytes, arrays with an element for each rank, and on the root as many bytes as they
        // say; all ranks call this.
        unsafe {
            let (from, to) = (bytes.as_ptr().cast(), all.as_mut_ptr().cast());
            let (byte, root) = (ffi::RSMPI_UINT8_T, root as c_int);
            let code = ffi::PMPI_Gatherv(from, len, byte, to, lens.as_ptr(), starts.as_ptr(), byte, root, self.comm);
            check("MPI_Gatherv", code)?;
        }
        if total == 0 {
            return Ok(Vec::new());
        }
        let mut rest = &all[..];
        let mut take = |len: &c_int| {
            let (part, others) = rest.split_at(len.unsigned_abs() as usize);
            rest = others;
            part.to_vec()
        };
        Ok(lens.iter().map(&mut take).collect())
    }

    fn send_part(&mut self, to: u32, tag: c_int, bytes: Box<[u8]>) -> Result<(), MpiError> {
        self.drop_sent()?;
        let begin = || {
            let (at, len) = (bytes.as_ptr().cast(), bytes.len() as c_int);
            // SAFETY: the bytes stay on the heap, untouched, until the request has ended: they are kept with it.
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
            Err(error) if self.failures.explain(&error) => self.failures.update(self.comm),
            Err(error) => Err(error),
        }
    }

    /// Drops completed sends.
    fn drop_sent(&mut self) -> Result<(), MpiError> {
        let mut at = 0;
        while let Some((request, _)) = self.sending.get_mut(at) {
            match has_ended(request) {
                Ok(false) => at += 1,
                Ok(true) => drop(self.sending.swap_remove(at)),
                Err(error) if self.failures.explain(&error) => {
                    self.sending.swap_remove(at);
                    self.failures.update(self.comm)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Asks MPI for failed ranks not yet reported by a call on the control communicator.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn look_for_failures(&mut self) -> Result<(), MpiError> {
        if self.failures.are_survivable() { self.failures.update(self.comm) } else { Ok(()) }
    }

    fn restart(&mut self) -> Result<(), MpiError> {
        // SAFETY: a persistent receive that has ended; the buffer is never freed.
        unsafe { check("MPI_Start", ffi::PMPI_Start(&raw mut self.receive)) }
    }

    /// Begins a barrier over all living ranks.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn begin_barrier(&mut self) -> Result<Barrier, MpiError> {
        if self.failures.are_survivable() {
            return self.failures.meet(self.comm).map(Barrier);
        }
        // SAFETY: a shim constant and a pointer to a local variable; all ranks call this.
        unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            check("MPI_Ibarrier", ffi::PMPI_Ibarrier(self.comm, &raw mut request))?;
            Ok(Barrier(request))
        }
    }

    /// Returns `true` if all living ranks have reached a barrier, even if it reports a failure.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn has_ended(&mut self, barrier: &mut Barrier) -> Result<bool, MpiError> {
        match has_ended(&mut barrier.0) {
            Err(error) if self.failures.explain(&error) => Ok(true),
            ended => ended,
        }
    }

    /// Sends every living rank the number of messages sent to it.
    fn exchange_counts(&mut self) -> Result<(), MpiError> {
        self.expected = if self.failures.are_survivable() {
            failures::exchange_counts(self.comm, &self.sent)?
        } else {
            let mut expected = vec![0u64; self.sent.len()];
            // SAFETY: arrays with an element for each rank; all ranks call this.
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

    /// Returns `true` while messages from living ranks are in flight to this one, by the
    /// [exchanged](Self::exchange_counts) counts.
    fn has_outstanding(&self) -> bool {
        let mut each = (0..).zip(self.expected.iter().zip(&self.received));
        each.any(|(rank, (expected, received))| expected > received && !self.failures.has_failed(rank))
    }

    /// Waits for the sends and frees the communicator.
    ///
    /// No message to this rank is in flight any more.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn end(mut self) -> Result<(), MpiError> {
        for (request, _) in &mut self.sending {
            // SAFETY: a request from `send_part`.
            let ended = check("MPI_Wait", unsafe { ffi::PMPI_Wait(request, ffi::RSMPI_STATUS_IGNORE) });
            self.failures.ignore(ended)?;
        }
        self.free()
    }

    fn free(&mut self) -> Result<(), MpiError> {
        // SAFETY: a shim constant; then the started receive, and the communicator, each freed once.
        unsafe {
            let mut comm = std::mem::replace(&mut self.comm, ffi::RSMPI_COMM_NULL);
            if comm == ffi::RSMPI_COMM_NULL {
                return Ok(());
            }
            check("MPI_Cancel", ffi::PMPI_Cancel(&raw mut self.receive))?;
            // A failure interrupts a receive from any source.
            let ended = check("MPI_Wait", ffi::PMPI_Wait(&raw mut self.receive, ffi::RSMPI_STATUS_IGNORE));
            self.failures.ignore(ended)?;
            check("MPI_Request_free", ffi::PMPI_Request_free(&raw mut self.receive))?;
            check("MPI_Comm_free", ffi::PMPI_Comm_free(&raw mut comm))
        }
    }
}

impl ControlChannel for Control {
    type Error = MpiError;

    /// Begins to send a message, in parts if it is long.
    ///
    /// A message to a failed rank is dropped.
    fn send(&mut self, message: &ControlMessage) -> Result<(), MpiError> {
        if self.failures.has_failed(message.to) {
            return Ok(());
        }
        for part in message.bytes.chunks(BYTES_MAX) {
            self.send_part(message.to, message.kind as c_int, part.into())?;
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<ReceivedControl>, MpiError> {
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
            self.failures.update(self.comm)?;
        }
        // The receive continues after an interruption.
        if flag == 0 {
            return Ok(None);
        }
        // SAFETY: the receive has ended, so the status is filled in.
        let status = unsafe { status.assume_init() };
        let mut len = 0;
        // SAFETY: a status filled in by MPI, and a pointer to a local variable.
        unsafe { check("MPI_Get_count", ffi::PMPI_Get_count(&raw const status, ffi::RSMPI_UINT8_T, &raw mut len))? };
        let from = status.MPI_SOURCE.unsigned_abs();
        // An interrupted receive may have taken a living rank's message: Open MPI leaves the code as it was.
        if is_interrupted && self.failures.has_failed(from) {
            self.restart()?;
            return Ok(None);
        }
        if let Some(received) = self.received.get_mut(from as usize) {
            *received += 1;
        }
        let len = (len.unsigned_abs() as usize).min(BYTES_MAX);
        // SAFETY: the buffer's own bytes; no receive is pending before `restart`.
        let bytes = unsafe { std::slice::from_raw_parts(self.buffer.as_ptr(), len) }.to_vec();
        self.restart()?;
        // Only loggers send on this communicator.
        let kind = ControlKind::from_tag(status.MPI_TAG).unwrap_or(ControlKind::Acks);
        Ok(Some(ReceivedControl { kind, from, bytes }))
    }

    /// Receives the messages in flight to this rank, and returns the acknowledgements among them.
    ///
    /// Collective; all living ranks have [met](Self::begin_barrier), and nothing is sent after it.
    fn drain(&mut self) -> Result<Vec<ReceivedControl>, MpiError> {
        self.exchange_counts()?;
        let mut acks = Vec::new();
        while self.has_outstanding() {
            match self.poll()? {
                // Queries need no answer any more.
                Some(received) if received.kind == ControlKind::Acks => acks.push(received),
                Some(_) => {}
                None => std::thread::yield_now(),
            }
        }
        Ok(acks)
    }

    fn be_eager(&mut self) {
        be_eager();
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        for (mut request, bytes) in self.sending.drain(..) {
            if has_ended(&mut request) != Ok(true) {
                // MPI may still read the bytes. SAFETY: a pending request, not used afterwards.
                unsafe { ffi::PMPI_Request_free(&raw mut request) };
                std::mem::forget(bytes);
            }
        }
        // An error can't be reported here.
        let _ = self.free();
    }
}

/// Returns `true` if one of this module's requests has ended.
fn has_ended(request: &mut ffi::MPI_Request) -> Result<bool, MpiError> {
    let mut flag = 0;
    // SAFETY: a request made by MPI, or the null one left by an earlier test; a pointer to a local variable, and no
    // status.
    check("MPI_Test", unsafe { ffi::PMPI_Test(request, &raw mut flag, ffi::RSMPI_STATUS_IGNORE) })?;
    Ok(flag != 0)
}
