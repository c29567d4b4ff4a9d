//! The end-to-end message checksum.
//!
//! It holds through the log, every retransmission from it, and checkpoints.
//!
//! It detects accidental corruption, not deliberate modification.

use counterfoil_log_core::{Rank, Ssn, crc32c, crc32c_append};
use thiserror::Error;

use crate::{Flags, Kind, WireHeader};

/// A message differs from the one sent.
///
/// Its container (a log, a checkpoint, a connection) is damaged, and no field of the header can be trusted, including
/// those reported here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChecksumError {
    /// The payload is longer or shorter than the header says.
    #[error("{ssn} from {source_rank} to {destination} has {found} bytes of payload, and its header says {len}")]
    Length {
        /// Source rank in the header.
        source_rank: Rank,
        /// Destination rank in the header.
        destination: Rank,
        /// SSN in the header.
        ssn: Ssn,
        /// Payload length in the header, in bytes.
        len: u64,
        /// Actual payload length in bytes.
        found: u64,
    },
    /// Header or payload changed after the message was sealed.
    #[error(
        "{ssn} from {source_rank} to {destination} was sealed with the checksum {expected:#010x}, and its bytes have \
         {found:#010x} now"
    )]
    Differs {
        /// Source rank in the header.
        source_rank: Rank,
        /// Destination rank in the header.
        destination: Rank,
        /// SSN in the header.
        ssn: Ssn,
        /// Checksum in the header.
        expected: u32,
        /// Checksum computed from the bytes.
        found: u32,
    },
}

impl WireHeader {
    /// Writes this message's checksum into its header and sets [`Flags::CHECKED`].
    ///
    /// The checksum is the CRC-32C over the 64 header bytes followed by the payload, with the fields changed by a
    /// retransmission set to zero: the checksum itself, the sender's incarnation, the ack (bytes 36-39 and 56-63), and
    /// all flags but [`Flags::LARGE`]. [`refreshed`](WireHeader::refreshed) therefore preserves it.
    ///
    /// Applies to [`Kind::Message`] only. Headers of other kinds are left unchanged: they aren't stored anywhere, and
    /// may not carry the flag.
    ///
    /// `payload` must have the header's length, or [`verify`](WireHeader::verify) will refuse it.
    #[inline]
    pub fn seal(&mut self, payload: &[u8]) {
        if self.kind() == Kind::Message {
            self.set_checksum(self.checksum_of(payload));
        }
    }

    /// Checks header and payload against the seal. A header without [`Flags::CHECKED`] passes.
    ///
    /// # Errors
    /// [`ChecksumError`] if the length or the checksum differs.
    #[inline]
    pub fn verify(&self, payload: &[u8]) -> Result<(), ChecksumError> {
        if !self.flags().contains(Flags::CHECKED) {
            return Ok(());
        }
        let (source_rank, destination, ssn) = (self.source(), self.destination(), self.ssn());
        let (len, found) = (self.payload_len(), payload.len() as u64);
        if len != found {
            return Err(ChecksumError::Length { source_rank, destination, ssn, len, found });
        }
        let (expected, found) = (self.checksum(), self.checksum_of(payload));
        if expected != found {
            return Err(ChecksumError::Differs { source_rank, destination, ssn, expected, found });
        }
        Ok(())
    }

    fn checksum_of(&self, payload: &[u8]) -> u32 {
        crc32c_append(crc32c(self.invariant_part().as_bytes()), payload)
    }
}
