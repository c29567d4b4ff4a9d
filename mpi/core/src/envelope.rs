//! Message envelopes.

use mpi_sys as ffi;

use crate::comm::received_len;
use crate::error::MpiError;

/// Message envelope: source, tag and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Sender's rank.
    pub source: u32,
    /// Message tag.
    pub tag: i32,
    /// Length in bytes.
    pub len: usize,
}

impl Envelope {
    pub(crate) fn of(status: &ffi::MPI_Status) -> Result<Envelope, MpiError> {
        let (source, tag) = (status.MPI_SOURCE.unsigned_abs(), status.MPI_TAG);
        Ok(Envelope { source, tag, len: received_len(status)? })
    }
}
