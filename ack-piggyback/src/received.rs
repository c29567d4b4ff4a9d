//! A channel's set of received SSNs.

use std::fmt;

use counterfoil_log_core::Ssn;
use thiserror::Error;

use crate::{ReceivedSetState, StateError};

/// The highest SSN received (HSR) with its exceptions: {1, 2, 4} is "up to 2, and 4".
///
/// Messages with different tags on one channel can be received out of order. An SSN below the HSR was therefore not
/// necessarily received (as Liu 2014, section 3.2, assumes): a duplicate is an SSN *in the set*.
///
/// Exceptions are stored as sorted ranges: a channel with one gap needs 16 bytes, no matter how many SSNs follow it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ReceivedSet {
    upto: Ssn,
    /// Ranges beyond `upto`: sorted, not empty, adjacent neither to `upto` nor to each other.
    exceptions: Vec<(Ssn, Ssn)>,
}

/// A message would exceed the maximum of exception ranges.
///
/// The set is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{ssn} would be one exception too many: everything up to {upto} and {max} ranges beyond it were received")]
pub struct TooManyExceptions {
    /// Refused SSN.
    pub ssn: Ssn,
    /// The last SSN before the first gap.
    pub upto: Ssn,
    /// Maximum range count.
    pub max: usize,
}

impl ReceivedSet {
    /// Creates an empty set.
    pub const fn new() -> Self {
        ReceivedSet { upto: Ssn::ZERO, exceptions: Vec::new() }
    }

    /// Returns the last SSN before the first gap; [`Ssn::ZERO`] if the first SSN is missing.
    #[inline]
    pub fn upto(&self) -> Ssn {
        self.upto
    }

    /// Returns the largest SSN received: at least [`upto`](Self::upto).
    #[inline]
    pub fn highest(&self) -> Ssn {
        self.exceptions.last().map_or(self.upto, |&(_, last)| last)
    }

    /// Iterates over the ranges (first, last) received beyond the first gap, in order.
    pub fn exceptions(&self) -> impl ExactSizeIterator<Item = (Ssn, Ssn)> + '_ {
        self.exceptions.iter().copied()
    }

    /// Returns `true` if `ssn` was received.
    #[inline]
    pub fn contains(&self, ssn: Ssn) -> bool {
        if ssn <= self.upto {
            return true;
        }
        let after = self.exceptions.partition_point(|&(first, _)| first <= ssn);
        after > 0 && ssn <= self.exceptions[after - 1].1
    }

    /// Inserts `ssn`; returns `true` if it is new.
    ///
    /// At most `exceptions_max` ranges may exist beyond the first gap.
    ///
    /// O(1) in order; otherwise a binary search and a move of later ranges.
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
            // This may close the gap.
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

    /// Returns the set as plain numbers, for a checkpoint or for a peer.
    pub fn snapshot(&self) -> ReceivedSetState {
        ReceivedSetState {
            upto: self.upto.0,
            exceptions: self.exceptions.iter().map(|&(first, last)| (first.0, last.0)).collect(),
        }
    }

    /// Restores a set from its state.
    ///
    /// # Errors
    /// [`StateError`] if the ranges aren't sorted and apart, or go beyond [`Ssn::MAX`].
    pub fn restore(state: &ReceivedSetState) -> Result<Self, StateError> {
        let mut end = state.upto;
        for &(first, last) in &state.exceptions {
            // `end` itself was received, so a range from the next SSN on would be adjacent.
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
