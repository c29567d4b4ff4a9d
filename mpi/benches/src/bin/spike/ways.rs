//! Ways that log nothing: the native calls, and forms of carrying a number.

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use counterfoil_mpi::{Comm, MpiError};
use mpi_sys as ffi;

use crate::logged::SpikeError;
use crate::measure::Way;

/// Size of the piggyback in bytes: number, epoch, phase and an acknowledgement, packed.
pub(crate) const PIGGYBACK_LEN: usize = 16;

/// `MPI_Send` and `MPI_Recv`.
pub(crate) struct Native(pub(crate) Comm);

impl Way for Native {
    #[inline]
    fn send(&mut self, payload: &[u8], to: u32, tag: i32) -> Result<(), SpikeError> {
        Ok(self.0.send(payload, to, tag)?)
    }

    #[inline]
    fn receive(&mut self, payload: &mut [u8], from: u32, tag: i32) -> Result<(), SpikeError> {
        self.0.recv(payload, Some(from), Some(tag))?;
        Ok(())
    }
}

/// One more function call and a flag test: the least cost of an interposed function.
pub(crate) struct Interposed(pub(crate) Comm);

static IS_ON: AtomicBool = AtomicBool::new(false);

#[inline(never)]
fn interposed_send(comm: &Comm, payload: &[u8], to: u32, tag: i32) -> Result<(), MpiError> {
    if IS_ON.load(Ordering::Relaxed) {
        black_box(payload);
    }
    comm.send(payload, to, tag)
}

#[inline(never)]
fn interposed_receive(comm: &Comm, payload: &mut [u8], from: u32, tag: i32) -> Result<usize, MpiError> {
    let received = comm.recv(payload, Some(from), Some(tag));
    if IS_ON.load(Ordering::Relaxed) {
        black_box(payload);
    }
    received
}

impl Way for Interposed {
    #[inline]
    fn send(&mut self, payload: &[u8], to: u32, tag: i32) -> Result<(), SpikeError> {
        Ok(interposed_send(&self.0, payload, to, tag)?)
    }

    #[inline]
    fn receive(&mut self, payload: &mut [u8], from: u32, tag: i32) -> Result<(), SpikeError> {
        interposed_receive(&self.0, payload, from, tag)?;
        Ok(())
    }
}

/// The piggyback precedes the payload as a second message, on a separate communicator.
pub(crate) struct SecondMessage {
    comm: Comm,
    headers: Comm,
    number: u64,
}

impl SecondMessage {
    pub(crate) fn new(comm: Comm, headers: Comm) -> SecondMessage {
        SecondMessage { comm, headers, number: 0 }
    }
}

impl Way for SecondMessage {
    #[inline]
    fn send(&mut self, payload: &[u8], to: u32, tag: i32) -> Result<(), SpikeError> {
        self.number += 1;
        let mut header = [0; PIGGYBACK_LEN];
        header[..8].copy_from_slice(&self.number.to_le_bytes());
        self.headers.send(&header, to, tag)?;
        Ok(self.comm.send(payload, to, tag)?)
    }

    #[inline]
    fn receive(&mut self, payload: &mut [u8], from: u32, tag: i32) -> Result<(), SpikeError> {
        let mut header = [0; PIGGYBACK_LEN];
        self.headers.recv(&mut header, Some(from), Some(tag))?;
        black_box(&header);
        self.comm.recv(payload, Some(from), Some(tag))?;
        Ok(())
    }
}

/// A struct datatype with the addresses of both joins piggyback and payload in one message. It is created for each message, because
/// a program's buffers change.
pub(crate) struct StructType {
    comm: Comm,
    header: [u8; PIGGYBACK_LEN],
    number: u64,
}

impl StructType {
    pub(crate) fn new(comm: Comm) -> StructType {
        StructType { comm, header: [0; PIGGYBACK_LEN], number: 0 }
    }

    /// Creates the type of the header and `len` bytes at `payload`, passes it to `transfer`, and frees it.
    fn with_type(
        &mut self,
        payload: *mut u8,
        len: usize,
        transfer: impl FnOnce(ffi::MPI_Comm, ffi::MPI_Datatype) -> (&'static str, c_int),
    ) -> Result<(), SpikeError> {
        let len = c_int::try_from(len).map_err(|_| MpiError::TooLong { call: "MPI_Type_create_struct", len })?;
        let lengths = [PIGGYBACK_LEN as c_int, len];
        let mut addresses: [ffi::MPI_Aint; 2] = [0; 2];
        // SAFETY: addresses of the header and of the payload, both of which outlive the transfer; the arrays have two entries,
        // and the type is freed after the transfer, which is complete when it returns.
        unsafe {
            check("MPI_Get_address", ffi::MPI_Get_address(self.header.as_ptr().cast(), &raw mut addresses[0]))?;
            check("MPI_Get_address", ffi::MPI_Get_address(payload.cast(), &raw mut addresses[1]))?;
            let types = [ffi::RSMPI_UINT8_T, ffi::RSMPI_UINT8_T];
            let mut datatype = ffi::RSMPI_DATATYPE_NULL;
            let code =
                ffi::MPI_Type_create_struct(2, lengths.as_ptr(), addresses.as_ptr(), types.as_ptr(), &raw mut datatype);
            check("MPI_Type_create_struct", code)?;
            check("MPI_Type_commit", ffi::MPI_Type_commit(&raw mut datatype))?;
            let (call, code) = transfer(self.comm.raw(), datatype);
            check("MPI_Type_free", ffi::MPI_Type_free(&raw mut datatype))?;
            check(call, code)
        }
    }
}

/// `MPI_BOTTOM`: the addresses are in the datatype.
const BOTTOM: *mut c_void = std::ptr::null_mut();

impl Way for StructType {
    fn send(&mut self, payload: &[u8], to: u32, tag: i32) -> Result<(), SpikeError> {
        self.number += 1;
        self.header[..8].copy_from_slice(&self.number.to_le_bytes());
        self.with_type(payload.as_ptr().cast_mut(), payload.len(), |comm, datatype| {
            // SAFETY: the type has the addresses of live bytes, which MPI only reads.
            ("MPI_Send", unsafe { ffi::MPI_Send(BOTTOM, 1, datatype, to as c_int, tag, comm) })
        })
    }

    fn receive(&mut self, payload: &mut [u8], from: u32, tag: i32) -> Result<(), SpikeError> {
        self.with_type(payload.as_mut_ptr(), payload.len(), |comm, datatype| {
            // SAFETY: the type has the addresses of bytes that are borrowed mutably for this call, the header's included.
            let code =
                unsafe { ffi::MPI_Recv(BOTTOM, 1, datatype, from as c_int, tag, comm, ffi::RSMPI_STATUS_IGNORE) };
            ("MPI_Recv", code)
        })
    }
}

fn check(call: &'static str, code: c_int) -> Result<(), SpikeError> {
    if code == ffi::MPI_SUCCESS as c_int { Ok(()) } else { Err(SpikeError::Raw { call, code }) }
}
