//! Which SSNs of a channel were received.

use std::fmt;

use counterfoil_log_core::Ssn;
use thiserror::Error;

use crate::{ReceivedSetState, StateError};

/// The highest SSN received (HSR) with its exceptions: {1, 2, 4} is "up to 2, and 4".
///
/// Messages of one channel can be taken out of order where they have different tags, so "smaller than the HSR"
/// doesn't mean "received" (as Liu 2014, section 3.2, assumes): what is *in the set* is a duplicate.
///
/// Exceptions are kept as sorted ranges, so a channel with one gap needs 16 bytes however much comes after it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ReceivedSet {
    upto: Ssn,
    /// Ranges beyond `upto`: sorted, not empty, and neither touching `upto` nor each other.
    exceptions: Vec<(Ssn, Ssn)>,
}

/// A message would begin one range of exceptions too many. The set is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{ssn} would be one exception too many: everything up to {upto} and {max} ranges beyond it were received")]
pub struct TooManyExceptions {
    /// The message that was refused.
    pub ssn: Ssn,
    /// Everything up to here was received.
    pub upto: Ssn,
    /// How many ranges there may be.
    pub max: usize,
}

impl ReceivedSet {
    /// Nothing received.
    pub const fn new() -> Self {
        ReceivedSet { upto: Ssn::ZERO, exceptions: Vec::new() }
    }

    /// Everything up to and including this SSN was received; [`Ssn::ZERO`] if not even the first was.
    #[inline]
    pub fn upto(&self) -> Ssn {
        self.upto
    }

    /// The largest SSN received: at least [`upto`](Self::upto).
    #[inline]
    pub fn highest(&self) -> Ssn {
        self.exceptions.last().map_or(self.upto, |&(_, last)| last)
    }

    /// The ranges (first, last) received beyond the first gap, in order.
    pub fn exceptions(&self) -> impl ExactSizeIterator<Item = (Ssn, Ssn)> + '_ {
        self.exceptions.iter().copied()
    }

    /// Whether `ssn` was received.
    #[inline]
    pub fn contains(&self, ssn: Ssn) -> bool {
        if ssn <= self.upto {
            return true;
        }
        let after = self.exceptions.partition_point(|&(first, _)| first <= ssn);
        after > 0 && ssn <= self.exceptions[after - 1].1
    }

    /// Adds `ssn`; returns whether it is new. At most `exceptions_max` ranges may be kept beyond the first gap.
    ///
    /// O(1) in order; otherwise a binary search, and a move of the ranges behind it.
    ///
    /// # Errors
    /// [`TooManyExceptions`] if `ssn` would begin one range too many.
    #[inline]
    pub fn insert(&mut self, ssn: Ssn, exceptions_max: usize) -> Result<bool, TooManyExceptions> {
        if ssn == self.upto.next() && self.exceptions.is_empty() {
            self.upto = ssn;
            return Ok(true);
        }
        if self.contains(ssn) {
            return Ok(false);
        }
        self.insert_beyond(ssn, exceptions_max).map(|()| true)
    }

    fn insert_beyond(&mut self, ssn: Ssn, exceptions_max: usize) -> Result<(), TooManyExceptions> {
        if ssn == self.upto.next() {
            self.upto = ssn;
            // The gap may be closed now.
            if self.exceptions.first().is_some_and(|&(first, _)| first == ssn.next()) {
                self.upto = self.exceptions.remove(0).1;
            }
            return Ok(());
        }
        let after = self.exceptions.partition_point(|&(first, _)| first <= ssn);
        let extends = after > 0 && self.exceptions[after - 1].1.next() == ssn;
        let precedes = after < self.exceptions.len() && self.exceptions[after].0 == ssn.next();
        match (extends, precedes) {
            (true, true) => self.exceptions[after - 1].1 = self.exceptions.remove(after).1,
            (true, false) => self.exceptions[after - 1].1 = ssn,
            (false, true) => self.exceptions[after].0 = ssn,
            (false, false) if self.exceptions.len() >= exceptions_max => {
                return Err(TooManyExceptions { ssn, upto: self.upto, max: exceptions_max });
            }
            (false, false) => self.exceptions.insert(after, (ssn, ssn)),
        }
        Ok(())
    }

    /// As a plain value, for a checkpoint or for telling a peer what was received.
    pub fn snapshot(&self) -> ReceivedSetState {
        ReceivedSetState {
            upto: self.upto.0,
            exceptions: self.exceptions.iter().map(|&(first, last)| (first.0, last.0)).collect(),
        }
    }

    /// The set that `state` describes.
    ///
    /// # Errors
    /// [`StateError`] if the ranges aren't sorted and apart, or go beyond [`Ssn::MAX`].
    pub fn restore(state: &ReceivedSetState) -> Result<Self, StateError> {
        let mut end = state.upto;
        for &(first, last) in &state.exceptions {
            // `end` itself was received, so a range that begins right behind it would touch it.
            if first <= end.saturating_add(1) || last < first {
                return Err(StateError::Exceptions { first, last });
            }
            end = last;
        }
        if end > Ssn::MAX.0 {
            return Err(StateError::SsnBeyondLimit { ssn: end });
        }
        let exceptions = state.exceptions.iter().map(|&(first, last)| (Ssn(first), Ssn(last))).collect();
        Ok(ReceivedSet { upto: Ssn(state.upto), exceptions })
    }
}

impl fmt::Debug for ReceivedSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{..={}", self.upto.0)?;
        for &(first, last) in &self.exceptions {
            write!(f, ", {}..={}", first.0, last.0)?;
        }
        f.write_str("}")
    }
}
