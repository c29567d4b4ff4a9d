//! The checksum of a message, from its sender's program to its receiver's: through the log, however often it is
//! transmitted from there, and through checkpoints.
//!
//! It finds bytes that changed by themselves. It is no protection against who changes them on purpose.

use counterfoil_log_core::{Rank, Ssn};
use thiserror::Error;

use crate::{Flags, Kind, WireHeader};

/// Why a message isn't what was sent. Whatever holds it (a log, a checkpoint, a connection) is damaged: no field of the
/// header can be believed either, least of all those that are named here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChecksumError {
    /// There are more or fewer bytes of payload than the header says.
    #[error("{ssn} from {source_rank} to {destination} has {found} bytes of payload, and its header says {len}")]
    Length {
        /// Who sent it, as the header says.
        source_rank: Rank,
        /// Who is to receive it, as the header says.
        destination: Rank,
        /// Its number, as the header says.
        ssn: Ssn,
        /// Bytes of payload, as the header says.
        len: u64,
        /// Bytes of payload that there are.
        found: u64,
    },
    /// Header or payload changed after the message was sealed.
    #[error(
        "{ssn} from {source_rank} to {destination} was sealed with the checksum {expected:#010x}, and its bytes have \
         {found:#010x} now"
    )]
    Differs {
        /// Who sent it, as the header says.
        source_rank: Rank,
        /// Who is to receive it, as the header says.
        destination: Rank,
        /// Its number, as the header says.
        ssn: Ssn,
        /// The checksum in the header.
        expected: u32,
        /// The checksum of what is there.
        found: u32,
    },
}

impl WireHeader {
    /// Puts the checksum of this message into its header and sets [`Flags::CHECKED`].
    ///
    /// It is the CRC-32C of the 64 bytes of the header followed by the payload, with the fields as zeros that may be
    /// others in each transmission: the checksum itself, the sender's incarnation, the ack (bytes 36-39 and 56-63), and
    /// all flags but [`Flags::LARGE`]. So [`refreshed`](WireHeader::refreshed) keeps it.
    ///
    /// For headers of [`Kind::Message`]. One of another kind is left as it is: such frames aren't kept anywhere, and no
    /// flag of theirs could say that they are sealed.
    ///
    /// `payload` has as many bytes as the header says, or [`verify`](WireHeader::verify) will refuse it.
    #[inline]
    pub fn seal(&mut self, payload: &[u8]) {
        if self.kind() == Kind::Message {
            self.set_checksum(self.checksum_of(payload));
        }
    }

    /// Checks that header and payload are those that were sealed. A header without [`Flags::CHECKED`] says nothing about
    /// that: it passes.
    ///
    /// # Errors
    /// [`ChecksumError`].
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
        crc32c::crc32c_append(crc32c::crc32c(self.lasting().as_bytes()), payload)
    }
}
