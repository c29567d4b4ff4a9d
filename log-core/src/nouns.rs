//! The nouns of the field, as types.
//!
//! Everything above this crate speaks in these words and in no synonyms: a [`Rank`] sends to another
//! over a channel; each message of a channel carries an [`Ssn`]; a rank's life is cut into [`Epoch`]s by
//! its checkpoints; an [`Incarnation`] counts how often it was replaced.

use std::fmt;

/// A process of the job, numbered from 0.
///
/// The largest rank is [`Rank::MAX`]: four billion ranks, less the one value that means "any".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

impl Rank {
    /// The largest rank that can be addressed.
    pub const MAX: Rank = Rank(u32::MAX - 1);

    /// This rank as an index into per-rank tables.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.0)
    }
}

/// Send sequence number: counts the messages of one channel (ordered pair of ranks), from 1, without gaps.
///
/// [`Ssn::ZERO`] is before the first message: "nothing received" or "nothing sent".
/// A lane refuses to go past [`Ssn::MAX`] (2^62): at a billion messages a second that is 146 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ssn(pub u64);

impl Ssn {
    /// Before the first message.
    pub const ZERO: Ssn = Ssn(0);
    /// The first message of a channel.
    pub const FIRST: Ssn = Ssn(1);
    /// The last number that a lane will give out.
    pub const MAX: Ssn = Ssn(1 << 62);

    /// The number after this one.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Ssn {
        Ssn(self.0 + 1)
    }

    /// The number before this one; the number before [`Ssn::ZERO`] is [`Ssn::ZERO`].
    #[inline]
    #[must_use]
    pub const fn prev(self) -> Ssn {
        Ssn(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Ssn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SSN {}", self.0)
    }
}

/// The interval between two checkpoints of one rank. The first epoch, before any checkpoint, is [`Epoch::FIRST`].
///
/// A rank can take 2^32 - 3 checkpoints; [`Epoch::next`] says `None` after that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl Epoch {
    /// The epoch that a rank starts in.
    pub const FIRST: Epoch = Epoch(1);
    /// The last epoch.
    pub const MAX: Epoch = Epoch(u32::MAX - 1);

    /// The epoch that the next checkpoint begins, or `None` at the limit.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Option<Epoch> {
        if self.0 >= Self::MAX.0 { None } else { Some(Epoch(self.0 + 1)) }
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}", self.0)
    }
}

/// Causality counter of the send-deterministic protocol (Guermouche 2011, section III.A.3): all messages on an
/// unbroken causal path share one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Phase(pub u32);

/// How often a rank has been replaced; 0 for the process that the job started with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u32);

impl Incarnation {
    /// The incarnation of the replacement.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Incarnation {
        Incarnation(self.0 + 1)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "incarnation {}", self.0)
    }
}

/// What MPI matches a receive against, and the length: a message without its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// Who sends.
    pub source: Rank,
    /// Who receives.
    pub destination: Rank,
    /// The tag. Application tags are not negative; the runtime uses negative ones for itself.
    pub tag: i32,
    /// The communicator's context number: messages of different communicators never match.
    pub comm: u32,
    /// Length of the payload in bytes.
    pub len: u64,
}

/// What a non-deterministic call chose.
///
/// `sequence` counts the non-deterministic calls of one rank from 0 since the start of the program, so that a
/// re-execution asks for the same numbers. `ssn` is [`Ssn::ZERO`] where the outcome was "nothing there".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Determinant {
    /// The number of the call.
    pub sequence: u64,
    /// Whose message was chosen.
    pub source: Rank,
    /// Which of that channel's messages was chosen.
    pub ssn: Ssn,
}
