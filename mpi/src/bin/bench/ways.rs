//! A ping-pong by the program's calls, which the library under it logs, and by the MPI's own names for them, which it doesn't see.

use std::ffi::c_int;
use std::hint::black_box;
use std::time::{Duration, Instant};

use mpi_sys as ffi;

/// A call of MPI said no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} returned {code}")]
pub(crate) struct Failed {
    call: &'static str,
    code: c_int,
}

/// The two calls of a ping-pong.
trait Calls {
    /// The first tag: two kinds that count differently at their ends must not meet in a stream.
    const FIRST_TAG: c_int;

    /// # Safety
    /// `payload` stays as it is until this returns; MPI is up.
    unsafe fn send(payload: &[u8], to: c_int, tag: c_int) -> c_int;

    /// # Safety
    /// MPI is up.
    unsafe fn receive(payload: &mut [u8], from: c_int, tag: c_int) -> c_int;
}

macro_rules! calls {
    ($(#[$doc:meta])* $name:ident, $first_tag:expr, $send:ident, $receive:ident) => {
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
        }
    };
}

calls! {
    /// What a program calls: the library has these names.
    Program, 0, MPI_Send, MPI_Recv
}
calls! {
    /// What is behind them.
    Naked, 0, PMPI_Send, PMPI_Recv
}
calls! {
    /// Only the receiver's side is seen.
    Received, 1 << 12, PMPI_Send, MPI_Recv
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

/// How many round trips, and over how many tags in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trips {
    pub(crate) count: u64,
    pub(crate) tags: u32,
}

/// A batch of round trips; how long it took. Both ranks call this with the same arguments but for `rank`, 0 or 1.
///
/// # Safety
/// MPI is up, with two ranks, and nothing else is under way between them.
pub(crate) unsafe fn batch(way: Way, rank: u32, payload: &mut [u8], trips: Trips) -> Result<Duration, Failed> {
    // SAFETY: the caller's promise.
    unsafe {
        match way {
            Way::Native => play::<Naked>(rank, payload, trips),
            Way::Logged => play::<Program>(rank, payload, trips),
            Way::Received => play::<Received>(rank, payload, trips),
            Way::Counted => {
                check("MPI_Pcontrol", ffi::MPI_Pcontrol(0))?;
                let took = play::<Program>(rank, payload, trips);
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
unsafe fn play<C: Calls>(rank: u32, payload: &mut [u8], trips: Trips) -> Result<Duration, Failed> {
    let peer = 1 - rank as c_int;
    let start = Instant::now();
    let mut tag = 0;
    for _ in 0..trips.count {
        let this = C::FIRST_TAG + tag;
        tag = if tag + 1 == trips.tags as c_int { 0 } else { tag + 1 };
        // SAFETY: the caller's promise; the payload is this rank's alone while it is received into.
        unsafe {
            if rank == 0 {
                check("sending", C::send(black_box(payload), peer, this))?;
                check("receiving", C::receive(black_box(payload), peer, this))?;
            } else {
                check("receiving", C::receive(black_box(payload), peer, this))?;
                check("sending", C::send(black_box(payload), peer, this))?;
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
