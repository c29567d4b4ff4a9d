//! Detects damaged messages before they are delivered.
//!
//! A sender seals each message as it logs it ([`WireHeader::seal`]). The runtime verifies a message wherever it may
//! have changed: when a replacement takes over a log or a checkpoint, before a record is sent again, and when a message
//! arrives, before any field is used: a changed SSN would make it a duplicate.

use std::fmt;

use counterfoil::{Rank, Ssn};
use counterfoil_ack_piggyback::{ChecksumError, Flags, HeaderError, Kind, WireHeader};

use crate::Error;

/// Reason why a message is considered damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The bytes in front are no valid header.
    #[error("it has no header: {0}")]
    Header(#[from] HeaderError),
    /// The header belongs to no message, or has no checksum; every message is logged with one.
    #[error("its header is not one that a message is logged with ({kind:?}, {flags:?})")]
    NotSealed {
        /// Frame kind in the header.
        kind: Kind,
        /// Flags in the header.
        flags: Flags,
    },
    /// Header or payload don't match the checksum.
    #[error(transparent)]
    Checksum(#[from] ChecksumError),
    /// A valid message, but not the expected one.
    #[error("it is {ssn} from {source_rank} to {destination}")]
    Another {
        /// Sender in the header.
        source_rank: Rank,
        /// Destination in the header.
        destination: Rank,
        /// SSN in the header.
        ssn: Ssn,
    },
}

/// Location where a damaged message was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamageLocation {
    /// In the shared-memory log left by the sender's dead incarnation.
    Predecessor,
    /// In its live sender's log.
    Log,
    /// In its sender's checkpoint.
    ///
    /// The file's own checksum is valid: the log was damaged before the checkpoint.
    Checkpoint,
    /// At its receiver.
    Arrival,
}

impl fmt::Display for DamageLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DamageLocation::Predecessor => "in the shared-memory log that its sender's dead incarnation left",
            DamageLocation::Log => "in its sender's log, from where it was to be sent again",
            DamageLocation::Checkpoint => {
                "in its sender's checkpoint, which was taken when the log was damaged already"
            }
            DamageLocation::Arrival => "as it arrived: in its sender's log, or on the way from there",
        })
    }
}

/// Identity of the expected message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) ssn: Ssn,
}

impl Expected {
    /// Checks a stored record (header and payload) and returns its header.
    pub(crate) fn check_record(
        self,
        location: DamageLocation,
        prefix: &[u8],
        payload: &[u8],
    ) -> Result<WireHeader, Error> {
        let header = self.parse(location, prefix)?;
        self.check(location, &header, payload)?;
        Ok(header)
    }

    /// Parses a record's header, without further checks.
    pub(crate) fn parse(self, location: DamageLocation, prefix: &[u8]) -> Result<WireHeader, Error> {
        WireHeader::parse(prefix).copied().map_err(|source| self.damaged(location, source.into()))
    }

    /// Checks that this is the expected message, undamaged.
    pub(crate) fn check(self, location: DamageLocation, header: &WireHeader, payload: &[u8]) -> Result<(), Error> {
        self.compare(header, payload).map_err(|damage| self.damaged(location, damage))
    }

    fn compare(self, header: &WireHeader, payload: &[u8]) -> Result<(), Damage> {
        let (kind, flags) = (header.kind(), header.flags());
        if kind != Kind::Message || !flags.contains(Flags::CHECKED) {
            return Err(Damage::NotSealed { kind, flags });
        }
        header.verify(payload)?;
        let (source_rank, destination, ssn) = (header.source(), header.destination(), header.ssn());
        if (source_rank, destination, ssn) != (Rank(self.from), Rank(self.to), self.ssn) {
            return Err(Damage::Another { source_rank, destination, ssn });
        }
        Ok(())
    }

    fn damaged(self, location: DamageLocation, source: Damage) -> Error {
        Error::Damaged { from: self.from, to: self.to, ssn: self.ssn.0, location, source }
    }
}
