//! Messages that are not what was sent: found before anybody gets them.
//!
//! A sender seals each message as it logs it ([`WireHeader::seal`]). It is checked wherever it comes back from a place
//! that may have changed it: when a replacement takes a log or a checkpoint over, before a record is sent again, and when
//! a message arrives, before anything in it is believed: a number that was changed would make it a duplicate.

use std::fmt;

use counterfoil::{Rank, Ssn};
use counterfoil_ack_piggyback::{ChecksumError, Flags, HeaderError, Kind, WireHeader};

use crate::Error;

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// Nothing that could be its header stands in front of it.
    #[error("it has no header: {0}")]
    Header(#[from] HeaderError),
    /// The header is none of a message, or has no checksum; every message is logged with one.
    #[error("its header is not one that a message is logged with ({kind:?}, {flags:?})")]
    NotSealed {
        /// What the header announces.
        kind: Kind,
        /// Its flags.
        flags: Flags,
    },
    /// Header or payload were changed.
    #[error(transparent)]
    Checksum(#[from] ChecksumError),
    /// It is a whole message, but not the one that belongs here.
    #[error("it is {ssn} from {source_rank} to {destination}")]
    Another {
        /// Who sent it, by its header.
        source_rank: Rank,
        /// Who is to receive it, by its header.
        destination: Rank,
        /// Its number, by its header.
        ssn: Ssn,
    },
}

/// Where a message was when it was found damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// In the shared-memory log that the sender's dead incarnation left.
    Predecessor,
    /// In the log of its sender, which lives.
    Log,
    /// In a checkpoint of its sender. The file's own checksum is right: it was damaged in the log before.
    Checkpoint,
    /// At its receiver.
    Arrival,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::Predecessor => "in the shared-memory log that its sender's dead incarnation left",
            Place::Log => "in its sender's log, from where it was to be sent again",
            Place::Checkpoint => "in its sender's checkpoint, which was taken when the log was damaged already",
            Place::Arrival => "as it arrived: in its sender's log, or on the way from there",
        })
    }
}

/// The message that belongs in a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) ssn: Ssn,
}

impl Expected {
    /// Checks a record (header and payload, as they are kept) and gives its header.
    pub(crate) fn check_record(self, place: Place, prefix: &[u8], payload: &[u8]) -> Result<WireHeader, Error> {
        let header = self.parse(place, prefix)?;
        self.check(place, &header, payload)?;
        Ok(header)
    }

    /// The header of a record, which is not compared with anything.
    pub(crate) fn parse(self, place: Place, prefix: &[u8]) -> Result<WireHeader, Error> {
        WireHeader::parse(prefix).copied().map_err(|source| self.damaged(place, source.into()))
    }

    /// Checks that this is the message.
    pub(crate) fn check(self, place: Place, header: &WireHeader, payload: &[u8]) -> Result<(), Error> {
        self.compare(header, payload).map_err(|damage| self.damaged(place, damage))
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

    fn damaged(self, place: Place, source: Damage) -> Error {
        Error::Damaged { from: self.from, to: self.to, ssn: self.ssn.0, place, source }
    }
}
