//! Messages by the program's calls, which the library under it logs, and by the MPI's own names for them, which it doesn't see.

use std::ffi::c_int;
use std::hint::black_box;
use std::time::{Duration, Instant};

use mpi_sys as ffi;

use crate::pattern::Pattern;

/// A call of MPI said no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} returned {code}")]
pub(crate) struct Failed {
    call: &'static str,
    code: c_int,
}

/// The calls that are made.
trait Calls {
    /// The first tag: two kinds that count differently at their ends must not meet in a stream.
    const FIRST_TAG: c_int;

    /// # Safety
    /// `payload` stays as it is until this returns; MPI is up.
    unsafe fn send(payload: &[u8], to: c_int, tag: c_int) -> c_int;

    /// # Safety
    /// MPI is up.
    unsafe fn receive(payload: &mut [u8], from: c_int, tag: c_int) -> c_int;

    /// Both at once, in one call.
    ///
    /// # Safety
    /// As of both.
    unsafe fn exchange(payload: &[u8], into: &mut [u8], peer: c_int, tag: c_int) -> c_int;

    /// The same by two requests, for which it waits.
    ///
    /// # Safety
    /// As of both.
    unsafe fn immediate(payload: &[u8], into: &mut [u8], peer: c_int, tag: c_int) -> c_int;
}

macro_rules! calls {
    ($(#[$doc:meta])* $name:ident, $first_tag:expr, $send:ident, $receive:ident, $exchange:ident, $isend:ident, $irecv:ident, $wait:ident) => {
        $(#[$doc])*
        struct $name;

        impl Calls for $name {
            const FIRST_TAG: c_int = $first_tag;

            #[inline]
            unsafe fn send(payload: &[u8], to: c_int, tag: c_int) -> c_int {
                // SAFETY: as many bytes as are said, and the caller's promise; constants of the shim that `mpi-sys` links.
                unsafe {
                    let (at, len) = (payload.as_ptr().cast(), payload.len() as c_int);
                    ffi::$send(at, len, ffi::RSMPI_UINT8_T, to, tag, ffi::RSMPI_COMM_WORLD)
                }
            }

            #[inline]
            unsafe fn receive(payload: &mut [u8], from: c_int, tag: c_int) -> c_int {
                // SAFETY: as above.
                unsafe {
                    let (at, len) = (payload.as_mut_ptr().cast(), payload.len() as c_int);
                    let (comm, status) = (ffi::RSMPI_COMM_WORLD, ffi::RSMPI_STATUS_IGNORE);
                    ffi::$receive(at, len, ffi::RSMPI_UINT8_T, from, tag, comm, status)
                }
            }

            #[inline]
            unsafe fn exchange(payload: &[u8], into: &mut [u8], peer: c_int, tag: c_int) -> c_int {
                // SAFETY: as above.
                unsafe {
                    let (byte, comm) = (ffi::RSMPI_UINT8_T, ffi::RSMPI_COMM_WORLD);
                    let (from, len) = (payload.as_ptr().cast(), payload.len() as c_int);
                    let (to, status) = (into.as_mut_ptr().cast(), ffi::RSMPI_STATUS_IGNORE);
                    ffi::$exchange(from, len, byte, peer, tag, to, len, byte, peer, tag, comm, status)
                }
            }

            #[inline]
            unsafe fn immediate(payload: &[u8], into: &mut [u8], peer: c_int, tag: c_int) -> c_int {
                // SAFETY: as above; both requests are waited for.
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
    /// What a program calls: the library has these names.
    Program, 0, MPI_Send, MPI_Recv, MPI_Sendrecv, MPI_Isend, MPI_Irecv, MPI_Waitall
}
calls! {
    /// What is behind them.
    Naked, 0, PMPI_Send, PMPI_Recv, PMPI_Sendrecv, PMPI_Isend, PMPI_Irecv, PMPI_Waitall
}
calls! {
    /// Only the receiver's side is seen.
    Received, 1 << 12, PMPI_Send, MPI_Recv, PMPI_Sendrecv, PMPI_Isend, MPI_Irecv, MPI_Waitall
}

impl Pattern {
    /// How many messages follow one another in a trip.
    pub(crate) fn legs(self) -> u64 {
        match self {
            Pattern::PingPong => 2,
            Pattern::Exchange | Pattern::Immediate | Pattern::Stream => 1,
        }
    }
}

/// The memory of a rank's messages.
#[derive(Debug)]
pub(crate) struct Buffers {
    pub(crate) out: Vec<u8>,
    /// Where what comes while it leaves goes.
    pub(crate) into: Vec<u8>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// The MPI's own names for the calls.
    Native,
    /// The program's calls.
    Logged,
    /// The program's calls between `MPI_Pcontrol(0)` and `MPI_Pcontrol(1)`.
    Counted,
    /// The program's receives, and naked sends.
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

/// How many trips, of what kind, and over how many tags in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trips {
    pub(crate) pattern: Pattern,
    pub(crate) count: u64,
    pub(crate) tags: u32,
}

/// A batch of trips; how long it took. Both ranks call this with the same arguments but for `rank`, 0 or 1.
///
/// # Safety
/// MPI is up, with two ranks, and nothing else is under way between them.
pub(crate) unsafe fn batch(way: Way, rank: u32, buffers: &mut Buffers, trips: Trips) -> Result<Duration, Failed> {
    // SAFETY: the caller's promise.
    unsafe {
        match way {
            Way::Native => play::<Naked>(rank, buffers, trips),
            Way::Logged => play::<Program>(rank, buffers, trips),
            Way::Received => play::<Received>(rank, buffers, trips),
            Way::Counted => {
                check("MPI_Pcontrol", ffi::MPI_Pcontrol(0))?;
                let took = play::<Program>(rank, buffers, trips);
                check("MPI_Pcontrol", ffi::MPI_Pcontrol(1))?;
                took
            }
        }
    }
}

/// The loop is compiled for each kind of calls, so that none of them is an indirect one.
///
/// # Safety
/// As for [`batch`].
unsafe fn play<C: Calls>(rank: u32, buffers: &mut Buffers, trips: Trips) -> Result<Duration, Failed> {
    let peer = 1 - rank as c_int;
    let Buffers { out, into } = buffers;
    let start = Instant::now();
    let mut tag = 0;
    for _ in 0..trips.count {
        let this = C::FIRST_TAG + tag;
        tag = if tag + 1 == trips.tags as c_int { 0 } else { tag + 1 };
        // SAFETY: the caller's promise; what is received into is this rank's alone, and nothing else.
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
        // SAFETY: as above.
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

/// Whether a library stands between the program and its MPI.
pub(crate) fn is_interposed() -> bool {
    let (seen, own) = (ffi::MPI_Send as *const (), ffi::PMPI_Send as *const ());
    !std::ptr::eq(seen, own)
}
