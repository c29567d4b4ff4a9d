//! Messages by the program's names, logged by the library, and by the profiling names (`PMPI_`), bypassing it.

use std::ffi::c_int;
use std::hint::black_box;
use std::time::{Duration, Instant};

use mpi_sys as ffi;

use crate::pattern::Pattern;

/// A call of MPI failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} returned {code}")]
pub(crate) struct Failed {
    call: &'static str,
    code: c_int,
}

/// A set of MPI calls under one choice of names.
trait Calls {
    /// First tag to use.
    ///
    /// Two sets counted differently at their ends must not share a stream.
    const FIRST_TAG: c_int;

    /// # Safety
    /// MPI is up.
    unsafe fn send(payload: &[u8], to: c_int, tag: c_int) -> c_int;

    /// # Safety
    /// MPI is up.
    unsafe fn receive(payload: &mut [u8], from: c_int, tag: c_int) -> c_int;

    /// Sends and receives in one call.
    ///
    /// # Safety
    /// MPI is up.
    unsafe fn exchange(payload: &[u8], into: &mut [u8], peer: c_int, tag: c_int) -> c_int;

    /// Sends and receives by two requests, and waits for both.
    ///
    /// # Safety
    /// MPI is up.
    unsafe fn immediate(payload: &[u8], into: &mut [u8], peer: c_int, tag: c_int) -> c_int;
}

macro_rules! calls {
    ($(#[$doc:meta])* $name:ident, $first_tag:expr, $send:ident, $receive:ident, $exchange:ident, $isend:ident, $irecv:ident, $wait:ident) => {
        $(#[$doc])*
        struct $name;

        impl Calls for $name {
            const FIRST_TAG: c_int = $first_tag;

            /// # Safety
            /// MPI is up.
            #[inline]
            unsafe fn send(payload: &[u8], to: c_int, tag: c_int) -> c_int {
                // SAFETY: pointer and length are the slice's; MPI is up, by this function's contract; the constants are
                // from the shim linked by `mpi-sys`.
                unsafe {
                    let (at, len) = (payload.as_ptr().cast(), payload.len() as c_int);
                    ffi::$send(at, len, ffi::RSMPI_UINT8_T, to, tag, ffi::RSMPI_COMM_WORLD)
                }
            }

            /// # Safety
            /// MPI is up.
            #[inline]
            unsafe fn receive(payload: &mut [u8], from: c_int, tag: c_int) -> c_int {
                // SAFETY: as in `send`.
                unsafe {
                    let (at, len) = (payload.as_mut_ptr().cast(), payload.len() as c_int);
                    let (comm, status) = (ffi::RSMPI_COMM_WORLD, ffi::RSMPI_STATUS_IGNORE);
                    ffi::$receive(at, len, ffi::RSMPI_UINT8_T, from, tag, comm, status)
                }
            }

            /// # Safety
            /// MPI is up.
            #[inline]
            unsafe fn exchange(payload: &[u8], into: &mut [u8], peer: c_int, tag: c_int) -> c_int {
                // SAFETY: as in `send`.
                unsafe {
                    let (byte, comm) = (ffi::RSMPI_UINT8_T, ffi::RSMPI_COMM_WORLD);
                    let (from, len) = (payload.as_ptr().cast(), payload.len() as c_int);
                    let (to, status) = (into.as_mut_ptr().cast(), ffi::RSMPI_STATUS_IGNORE);
                    ffi::$exchange(from, len, byte, peer, tag, to, len, byte, peer, tag, comm, status)
                }
            }

            /// # Safety
            /// MPI is up.
            #[inline]
            unsafe fn immediate(payload: &[u8], into: &mut [u8], peer: c_int, tag: c_int) -> c_int {
                // SAFETY: as in `send`; both requests have ended when this returns.
                unsafe {
                    let (byte, comm) = (ffi::RSMPI_UINT8_T, ffi::RSMPI_COMM_WORLD);
                    let (from, to, len) = (payload.as_ptr().cast(), into.as_mut_ptr().cast(), payload.len() as c_int);
                    let mut requests = [ffi::RSMPI_REQUEST_NULL; 2];
                    let mut code = ffi::$irecv(to, len, byte, peer, tag, comm, &raw mut requests[0]);
                    if code == 0 {
                        code = ffi::$isend(from, len, byte, peer, tag, comm, &raw mut requests[1]);
                    }
                    let waited = ffi::$wait(2, requests.as_mut_ptr(), ffi::RSMPI_STATUSES_IGNORE);
                    if code == 0 { waited } else { code }
                }
            }
        }
    };
}

calls! {
    /// The program's names, defined by the library.
    Program, 0, MPI_Send, MPI_Recv, MPI_Sendrecv, MPI_Isend, MPI_Irecv, MPI_Waitall
}
calls! {
    /// The profiling names, defined by the MPI.
    Native, 0, PMPI_Send, PMPI_Recv, PMPI_Sendrecv, PMPI_Isend, PMPI_Irecv, PMPI_Waitall
}
calls! {
    /// The program's names for receives and the profiling names for sends: the library sees only the receiver's side.
    Received, 1 << 12, PMPI_Send, MPI_Recv, PMPI_Sendrecv, PMPI_Isend, MPI_Irecv, MPI_Waitall
}

impl Pattern {
    /// Returns the number of consecutive messages in a trip.
    pub(crate) fn legs(self) -> u64 {
        match self {
            Pattern::PingPong => 2,
            Pattern::Exchange | Pattern::Immediate | Pattern::Stream => 1,
        }
    }
}

/// A rank's message buffers.
#[derive(Debug)]
pub(crate) struct Buffers {
    pub(crate) out: Vec<u8>,
    /// Buffer for a message received while `out` is sent.
    pub(crate) into: Vec<u8>,
}

/// Variant under measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// The MPI's own calls.
    Native,
    /// The program's calls.
    Logged,
    /// The program's calls between `MPI_Pcontrol(0)` and `MPI_Pcontrol(1)`.
    Counted,
    /// The program's receives and native sends.
    Received,
}

impl Way {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::Native => "native",
            Way::Logged => "logged",
            Way::Counted => "counted",
            Way::Received => "received",
        }
    }
}

/// Pattern and number of trips, and the number of tags used in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trips {
    pub(crate) pattern: Pattern,
    pub(crate) count: u64,
    pub(crate) tags: u32,
}

/// Runs a batch of trips and returns its duration.
///
/// Both ranks call this with the same arguments except `rank`, 0 or 1.
///
/// # Safety
/// MPI is up with two ranks, and nothing else is in flight between them.
pub(crate) unsafe fn batch(way: Way, rank: u32, buffers: &mut Buffers, trips: Trips) -> Result<Duration, Failed> {
    // SAFETY: by this function's contract.
    unsafe {
        match way {
            Way::Native => run::<Native>(rank, buffers, trips),
            Way::Logged => run::<Program>(rank, buffers, trips),
            Way::Received => run::<Received>(rank, buffers, trips),
            Way::Counted => {
                check("MPI_Pcontrol", ffi::MPI_Pcontrol(0))?;
                let took = run::<Program>(rank, buffers, trips);
                check("MPI_Pcontrol", ffi::MPI_Pcontrol(1))?;
                took
            }
        }
    }
}

/// Runs the loop, compiled for each set of calls to avoid indirect calls.
///
/// # Safety
/// Same as [`batch`].
unsafe fn run<C: Calls>(rank: u32, buffers: &mut Buffers, trips: Trips) -> Result<Duration, Failed> {
    let peer = 1 - rank as c_int;
    let Buffers { out, into } = buffers;
    let start = Instant::now();
    let mut tag = 0;
    for _ in 0..trips.count {
        let this = C::FIRST_TAG + tag;
        tag = if tag + 1 == trips.tags as c_int { 0 } else { tag + 1 };
        // SAFETY: by this function's contract; the buffers are borrowed mutably, so nothing else uses them.
        unsafe {
            match (trips.pattern, rank) {
                (Pattern::PingPong, 0) => {
                    check("sending", C::send(black_box(out), peer, this))?;
                    check("receiving", C::receive(black_box(out), peer, this))?;
                }
                (Pattern::PingPong, _) => {
                    check("receiving", C::receive(black_box(out), peer, this))?;
                    check("sending", C::send(black_box(out), peer, this))?;
                }
                (Pattern::Exchange, _) => check("both", C::exchange(black_box(out), black_box(into), peer, this))?,
                (Pattern::Immediate, _) => check("both", C::immediate(black_box(out), black_box(into), peer, this))?,
                (Pattern::Stream, 0) => check("sending", C::send(black_box(out), peer, this))?,
                (Pattern::Stream, _) => check("receiving", C::receive(black_box(into), peer, this))?,
            }
        }
    }
    if trips.pattern == Pattern::Stream {
        // SAFETY: as in the loop.
        unsafe {
            if rank == 0 {
                check("receiving", C::receive(into, peer, C::FIRST_TAG))?;
            } else {
                check("sending", C::send(out, peer, C::FIRST_TAG))?;
            }
        }
    }
    Ok(start.elapsed())
}

#[inline]
fn check(call: &'static str, code: c_int) -> Result<(), Failed> {
    if code == ffi::MPI_SUCCESS as c_int { Ok(()) } else { Err(Failed { call, code }) }
}

/// Returns `true` if a library is interposed between the program and its MPI.
pub(crate) fn is_interposed() -> bool {
    let (seen, own) = (ffi::MPI_Send as *const (), ffi::PMPI_Send as *const ());
    !std::ptr::eq(seen, own)
}
