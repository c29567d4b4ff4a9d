//! The field's nouns, as types.
//!
//! Every crate above uses these words and no synonyms: a [`Rank`] sends to another over a channel; each message on a
//! channel has an [`Ssn`]; checkpoints divide a rank's run into [`Epoch`]s; an [`Incarnation`] counts its replacements.

use std::fmt;

/// A process in the job, numbered from 0.
///
/// The largest rank is [`Rank::MAX`]: one value of the word is reserved for "any".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

impl Rank {
    /// Largest addressable rank.
    pub const MAX: Rank = Rank(u32::MAX - 1);

    /// Returns the rank as an index into per-rank tables.
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

/// Send sequence number: counts the messages on one channel (ordered pair of ranks), from 1, without gaps.
///
/// [`Ssn::ZERO`] precedes the first message: "nothing received" or "nothing sent". A lane refuses to go past
/// [`Ssn::MAX`] (2^62): at a billion messages a second that is 146 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ssn(pub u64);

impl Ssn {
    /// Number before the first message's.
    pub const ZERO: Ssn = Ssn(0);
    /// Number of a channel's first message.
    pub const FIRST: Ssn = Ssn(1);
    /// Upper limit of a lane's numbers.
    pub const MAX: Ssn = Ssn(1 << 62);

    /// Returns the number after this one.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Ssn {
        Ssn(self.0 + 1)
    }

    /// Returns the number before this one; [`Ssn::ZERO`] for [`Ssn::ZERO`].
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

/// Interval between two checkpoints of one rank.
///
/// The first epoch, before any checkpoint, is [`Epoch::FIRST`].
///
/// A rank can take 2^32 - 3 checkpoints; then [`Epoch::next`] returns `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl Epoch {
    /// Epoch that a rank starts in.
    pub const FIRST: Epoch = Epoch(1);
    /// Epoch begun by the only checkpoint of a run, where a rank takes one at its end.
    pub const AFTER_RUN: Epoch = Epoch(2);
    /// The last epoch.
    pub const MAX: Epoch = Epoch(u32::MAX - 1);

    /// Returns the epoch begun by the next checkpoint, or `None` at the limit.
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

/// Causality counter in the send-deterministic protocol (Guermouche 2011, section III.A.3): all messages on an unbroken
/// causal path share one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Phase(pub u32);

/// Number of a rank's replacements so far; 0 for the process started with the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u32);

impl Incarnation {
    /// Returns the replacement's incarnation.
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

/// A message without its payload: the fields matched by MPI against a receive, and the length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The sending rank.
    pub source: Rank,
    /// The receiving rank.
    pub destination: Rank,
    /// The tag.
    ///
    /// Application tags are not negative; negative ones are the runtime's own.
    pub tag: i32,
    /// The communicator's context number: messages of different communicators never match.
    pub comm: u32,
    /// Payload length in bytes.
    pub len: u64,
}

/// Outcome of a non-deterministic call.
///
/// `sequence` counts one rank's non-deterministic calls from 0 since the start of the program, so that a re-execution
/// uses the same numbers. `ssn` is [`Ssn::ZERO`] if no message was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Determinant {
    /// The call's number.
    pub sequence: u64,
    /// Sender of the chosen message.
    pub source: Rank,
    /// The message's number on its channel.
    pub ssn: Ssn,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_with_what_they_count() {
        let printed = [Rank(3).to_string(), Epoch(4).to_string(), Incarnation(5).to_string()];
        assert_eq!(printed, ["rank 3", "epoch 4", "incarnation 5"]);
    }
}
