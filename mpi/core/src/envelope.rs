//! The envelope of a message.

use mpi_sys as ffi;

use crate::comm::received_len;
use crate::error::MpiError;

/// Envelope of a message: its source, tag and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Rank of the sender.
    pub source: u32,
    /// Tag of the message.
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
