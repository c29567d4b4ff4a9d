//! Received header validation.

use counterfoil_log_core::{Epoch, Rank, Ssn};
use thiserror::Error;

use crate::{Flags, Kind, WireHeader};

/// The bytes aren't a valid header.
///
/// Names the first wrong byte and the expected value.
///
/// The connection may have lost its framing: drop it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Fewer bytes than a header has.
    #[error("a header has {needed} bytes, but there are only {len}")]
    TooShort {
        /// Bytes found.
        len: usize,
        /// Header length in bytes.
        needed: usize,
    },
    /// The magic number is wrong.
    #[error("byte 0: expected the magic {:#04x}, found {found:#04x}", WireHeader::MAGIC)]
    Magic {
        /// Value found.
        found: u8,
    },
    /// The header has another format version.
    #[error("byte 1: expected version {}, found {found}", WireHeader::VERSION)]
    Version {
        /// Value found.
        found: u8,
    },
    /// The message kind is undefined.
    #[error("byte 2: expected a kind from 1 to 4, found {found}")]
    Kind {
        /// Value found.
        found: u8,
    },
    /// A flag is undefined, or not allowed for this message kind.
    #[error("byte 3: expected flags within {allowed:#04x}, found {found:#04x}")]
    Flags {
        /// Value found.
        found: u8,
        /// All bits allowed for this kind.
        allowed: u8,
    },
    /// A number is outside its type's limits, or contradicts kind and flags.
    #[error("byte {offset}: expected {field} from {least} to {most}, found {found}")]
    OutOfRange {
        /// Offset of the field in bytes.
        offset: usize,
        /// Field name.
        field: &'static str,
        /// Value found.
        found: u64,
        /// Smallest allowed value.
        least: u64,
        /// Largest allowed value.
        most: u64,
    },
    /// An explicit ack without an acknowledged SSN.
    #[error("byte 3: expected an ack in a message of kind Ack")]
    NoAck,
}

impl HeaderError {
    /// Returns the offset of the first wrong byte; for a header too short, the number of bytes found.
    pub fn offset(&self) -> usize {
        match *self {
            HeaderError::TooShort { len, .. } => len,
            HeaderError::Magic { .. } => 0,
            HeaderError::Version { .. } => 1,
            HeaderError::Kind { .. } => 2,
            HeaderError::Flags { .. } | HeaderError::NoAck => 3,
            HeaderError::OutOfRange { offset, .. } => offset,
        }
    }
}

/// Checks the first four bytes and the length.
#[inline]
pub(crate) fn check_start(bytes: &[u8]) -> Result<(), HeaderError> {
    let Some(&[magic, version, kind, flags]) = bytes.first_chunk::<4>() else {
        return Err(HeaderError::TooShort { len: bytes.len(), needed: WireHeader::LEN });
    };
    if magic != WireHeader::MAGIC {
        return Err(HeaderError::Magic { found: magic });
    }
    if version != WireHeader::VERSION {
        return Err(HeaderError::Version { found: version });
    }
    let Some(kind) = Kind::from_byte(kind) else {
        return Err(HeaderError::Kind { found: kind });
    };
    let allowed = kind.flags_allowed();
    if !Flags::from_bits(flags).is_some_and(|flags| allowed.contains(flags)) {
        return Err(HeaderError::Flags { found: flags, allowed: allowed.bits() });
    }
    if bytes.len() < WireHeader::LEN {
        return Err(HeaderError::TooShort { len: bytes.len(), needed: WireHeader::LEN });
    }
    Ok(())
}

/// Checks the remaining fields against the limits of their types, and against kind and flags.
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
    let checksums = if header.flags().contains(Flags::CHECKED) { (0, u32::MAX.into()) } else { nothing };
    in_range(4, "a checksum", header.checksum().into(), checksums)?;
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
