//! Wire header kind and flags.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

/// The kind of message after a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(u8)]
pub enum Kind {
    /// An application message: it has an SSN, and its payload follows.
    Message = 1,
    /// An explicit ack; nothing follows.
    Ack = 2,
    /// A request for an explicit ack up to this SSN; nothing follows.
    AckRequest = 3,
    /// A protocol control message; `tag` identifies it, its body follows.
    Control = 4,
}

impl Kind {
    pub(crate) const fn from_byte(byte: u8) -> Option<Kind> {
        match byte {
            1 => Some(Kind::Message),
            2 => Some(Kind::Ack),
            3 => Some(Kind::AckRequest),
            4 => Some(Kind::Control),
            _ => None,
        }
    }

    /// Returns the flags allowed for this kind.
    pub(crate) const fn flags_allowed(self) -> Flags {
        match self {
            Kind::Message => Flags::ALL,
            Kind::Ack | Kind::AckRequest | Kind::Control => Flags::HAS_ACK,
        }
    }
}

/// A set of message flags.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags(u8);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// A replay: sent from the log, not by the application.
    pub const REPLAYED: Flags = Flags(1);
    /// The payload exceeds [`AckPolicy::small_message_limit`](crate::AckPolicy::small_message_limit): the receiver
    /// sends an explicit ack, unless the message is also `LOGGED`.
    pub const LARGE: Flags = Flags(1 << 1);
    /// Already logged: the sender knows the receiver to be in a later epoch than its own, so it retains this message in
    /// any case.
    ///
    /// No explicit ack is needed. A replay of a logged message has this flag too.
    pub const LOGGED: Flags = Flags(1 << 2);
    /// The header's ack fields are valid.
    ///
    /// Set and cleared by [`WireHeader`](crate::WireHeader) itself.
    pub const HAS_ACK: Flags = Flags(1 << 3);
    /// The sender requests an explicit ack for everything up to this message.
    pub const ACK_REQUESTED: Flags = Flags(1 << 4);
    /// The header's checksum is valid.
    ///
    /// Set by [`WireHeader::seal`](crate::WireHeader::seal) only.
    pub const CHECKED: Flags = Flags(1 << 5);

    /// The sender may still log what a recovery line depends on (C3, section 3.3, *amLogging*).
    pub const AM_LOGGING: Flags = Flags(1 << 6);

    /// Flags shared by all transmissions of a message.
    pub(crate) const INVARIANT: Flags = Flags::LARGE.union(Flags::CHECKED);
    const ALL: Flags = Flags(0b111_1111);

    /// Returns the wire representation.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Converts from the wire representation; `None` if an undefined bit is set.
    #[inline]
    pub const fn from_bits(bits: u8) -> Option<Flags> {
        if bits & !Self::ALL.0 == 0 { Some(Flags(bits)) } else { None }
    }

    /// Returns `true` if every flag in `other` is set.
    #[inline]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the flags in either set.
    #[inline]
    #[must_use]
    pub const fn union(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Returns the flags in both sets.
    #[inline]
    #[must_use]
    pub const fn intersection(self, other: Flags) -> Flags {
        Flags(self.0 & other.0)
    }

    /// Returns these flags without those in `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        self.union(other)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Flags) {
        *self = self.union(other);
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(Flags, &str); 7] = [
            (Flags::REPLAYED, "REPLAYED"),
            (Flags::LARGE, "LARGE"),
            (Flags::LOGGED, "LOGGED"),
            (Flags::HAS_ACK, "HAS_ACK"),
            (Flags::ACK_REQUESTED, "ACK_REQUESTED"),
            (Flags::CHECKED, "CHECKED"),
            (Flags::AM_LOGGING, "AM_LOGGING"),
        ];
        let set = NAMES.iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, name)| *name);
        f.write_str("Flags(")?;
        for (i, name) in set.enumerate() {
            f.write_str(if i == 0 { "" } else { " | " })?;
            f.write_str(name)?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undefined_bit_is_refused() {
        assert_eq!(Flags::from_bits(0b11), Some(Flags::REPLAYED | Flags::LARGE));
        assert_eq!(Flags::from_bits(1 << 7), None);
    }

    #[test]
    fn a_flag_of_both_sets_is_in_their_union() {
        let union = (Flags::LARGE | Flags::LOGGED) | (Flags::LOGGED | Flags::CHECKED);
        assert_eq!(union.bits(), 0b10_0110);
    }

    #[test]
    fn flags_are_printed_by_name() {
        assert_eq!(format!("{:?}", Flags::LARGE | Flags::HAS_ACK), "Flags(LARGE | HAS_ACK)");
        assert_eq!(format!("{:?}", Flags::NONE), "Flags()");
    }

    #[test]
    fn every_kind_round_trips_through_its_byte() {
        for byte in 0..=u8::MAX {
            let kind = Kind::from_byte(byte);
            assert_eq!(kind, Kind::try_read_from_bytes(&[byte]).ok());
            assert_eq!(kind.map(|kind| kind as u8), kind.is_some().then_some(byte));
        }
    }
}
