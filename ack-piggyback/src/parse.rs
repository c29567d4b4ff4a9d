//! Reading a header that came from outside.

use counterfoil_log_core::{Epoch, Rank, Ssn};
use thiserror::Error;

use crate::{Flags, Kind, WireHeader};

/// Why bytes aren't a header: which byte is wrong and what was expected there.
///
/// The connection that such bytes came from can't be trusted to be in step any more: drop it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// There are fewer bytes than a header has.
    #[error("a header has {needed} bytes, but there are only {len}")]
    TooShort {
        /// How many bytes there are.
        len: usize,
        /// How many there should be.
        needed: usize,
    },
    /// These aren't Counterfoil's bytes.
    #[error("byte 0: expected the magic {:#06x}, found {found:#06x}", WireHeader::MAGIC)]
    Magic {
        /// What is there.
        found: u16,
    },
    /// Another version wrote this.
    #[error("byte 2: expected version {}, found {found}", WireHeader::VERSION)]
    Version {
        /// What is there.
        found: u8,
    },
    /// No such kind of message.
    #[error("byte 3: expected a kind from 1 to 4, found {found}")]
    Kind {
        /// What is there.
        found: u8,
    },
    /// Flags that mean nothing, or nothing for this kind of message.
    #[error("byte 4: expected flags within {allowed:#06x}, found {found:#06x}")]
    Flags {
        /// What is there.
        found: u16,
        /// All the bits that may be there.
        allowed: u16,
    },
    /// The length of the header isn't what this version writes.
    #[error("byte 6: expected a header length of {}, found {found}", WireHeader::LEN)]
    HeaderLen {
        /// What is there.
        found: u16,
    },
    /// A number is beyond the limits of its noun, or isn't what the kind and the flags imply.
    #[error("byte {offset}: expected {field} from {least} to {most}, found {found}")]
    OutOfRange {
        /// Offset of the field's first byte.
        offset: usize,
        /// The field.
        field: &'static str,
        /// What is there.
        found: u64,
        /// The smallest value that may be there.
        least: u64,
        /// The largest.
        most: u64,
    },
    /// An explicit ack that acknowledges nothing.
    #[error("byte 4: expected an ack in a message of kind Ack")]
    NoAck,
}

impl HeaderError {
    /// The offset of the byte that is wrong, or the number of bytes that there are.
    pub fn offset(&self) -> usize {
        match *self {
            HeaderError::TooShort { len, .. } => len,
            HeaderError::Magic { .. } => 0,
            HeaderError::Version { .. } => 2,
            HeaderError::Kind { .. } => 3,
            HeaderError::Flags { .. } | HeaderError::NoAck => 4,
            HeaderError::HeaderLen { .. } => 6,
            HeaderError::OutOfRange { offset, .. } => offset,
        }
    }
}

/// Checks the first eight bytes, and that there are enough of them for the rest.
#[inline]
pub(crate) fn check_start(bytes: &[u8]) -> Result<(), HeaderError> {
    let Some(&[m0, m1, version, kind, f0, f1, l0, l1]) = bytes.first_chunk::<8>() else {
        return Err(HeaderError::TooShort { len: bytes.len(), needed: WireHeader::LEN });
    };
    let magic = u16::from_le_bytes([m0, m1]);
    if magic != WireHeader::MAGIC {
        return Err(HeaderError::Magic { found: magic });
    }
    if version != WireHeader::VERSION {
        return Err(HeaderError::Version { found: version });
    }
    let Some(kind) = Kind::from_byte(kind) else {
        return Err(HeaderError::Kind { found: kind });
    };
    let flags = u16::from_le_bytes([f0, f1]);
    let allowed = kind.flags_allowed();
    if !Flags::from_bits(flags).is_some_and(|flags| allowed.contains(flags)) {
        return Err(HeaderError::Flags { found: flags, allowed: allowed.bits() });
    }
    let header_len = u16::from_le_bytes([l0, l1]);
    if usize::from(header_len) != WireHeader::LEN {
        return Err(HeaderError::HeaderLen { found: header_len });
    }
    if bytes.len() < WireHeader::LEN {
        return Err(HeaderError::TooShort { len: bytes.len(), needed: WireHeader::LEN });
    }
    Ok(())
}

/// Checks what [`check_start`] left: numbers against the limits of their nouns, and against kind and flags.
#[inline]
pub(crate) fn check_fields(header: &WireHeader) -> Result<(), HeaderError> {
    let (ack_ssn, ack_epoch) = header.ack_fields();
    let epochs = (u64::from(Epoch::FIRST.0), u64::from(Epoch::MAX.0));
    let ssns = (Ssn::FIRST.0, Ssn::MAX.0);
    let nothing = (0, 0);
    let has_ack = header.flags().contains(Flags::HAS_ACK);
    let kind = header.kind();

    if kind == Kind::Ack && !has_ack {
        return Err(HeaderError::NoAck);
    }
    in_range(8, "a source rank", header.source().0.into(), (0, Rank::MAX.0.into()))?;
    in_range(12, "a destination rank", header.destination().0.into(), (0, Rank::MAX.0.into()))?;
    in_range(20, "an epoch", header.epoch().0.into(), epochs)?;
    in_range(36, "an acked epoch", ack_epoch.into(), if has_ack { epochs } else { nothing })?;
    let lens = match kind {
        Kind::Message | Kind::Control => (0, u64::MAX),
        Kind::Ack | Kind::AckRequest => nothing,
    };
    in_range(40, "a payload length", header.payload_len(), lens)?;
    let ssn = match kind {
        Kind::Message | Kind::AckRequest => ssns,
        Kind::Ack | Kind::Control => nothing,
    };
    in_range(48, "an SSN", header.ssn().0, ssn)?;
    in_range(56, "an acked SSN", ack_ssn, if has_ack { ssns } else { nothing })
}

#[inline]
fn in_range(offset: usize, field: &'static str, found: u64, (least, most): (u64, u64)) -> Result<(), HeaderError> {
    if (least..=most).contains(&found) {
        Ok(())
    } else {
        Err(HeaderError::OutOfRange { offset, field, found, least, most })
    }
}
