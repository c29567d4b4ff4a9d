//! Event logs and counted envelopes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::chandy_lamport::Key;

/// Log size in rows beyond which it is put in order.
const ROWS_MAX: usize = 1024;

/// Envelopes of one interval and channel, in event order; consecutive equal ones share a row (section 3.4.2).
///
/// A long log is put in envelope order, one row each, which matching doesn't notice (Logging Independency Principle,
/// section 3.3.3): so its size follows the number of different envelopes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventLog {
    rows: Vec<(Key, u64)>,
    /// Rows left by the last ordering.
    #[serde(skip)]
    ordered: usize,
}

impl EventLog {
    #[cfg(test)]
    pub(super) fn rows(&self) -> &[(Key, u64)] {
        &self.rows
    }

    pub(super) fn push(&mut self, key: Key) {
        match self.rows.last_mut() {
            Some((last, count)) if *last == key => *count += 1,
            _ => self.rows.push((key, 1)),
        }
        if self.rows.len() > ROWS_MAX.max(2 * self.ordered) {
            self.rows = self.counts().0.into_iter().collect();
            self.ordered = self.rows.len();
        }
    }

    /// Returns the number of events for each envelope.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.rows.iter().for_each(|&(key, count)| counts.add(key, count));
        counts
    }
}

/// Number of messages for each envelope; none is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts(BTreeMap<Key, u64>);

impl Counts {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn total(&self) -> u64 {
        self.0.values().sum()
    }

    pub(super) fn add(&mut self, key: Key, count: u64) {
        if count > 0 {
            *self.0.entry(key).or_default() += count;
        }
    }

    pub(super) fn add_all(&mut self, other: Counts) {
        other.0.into_iter().for_each(|(key, count)| self.add(key, count));
    }

    /// Removes one message; returns `false` if there is none.
    pub(super) fn take(&mut self, key: Key) -> bool {
        self.remove(key, 1) == 1
    }

    /// Matches messages with equal envelopes, and removes them from both.
    pub(super) fn cancel(&mut self, other: &mut Counts) {
        let keys: Vec<Key> = self.0.keys().chain(other.0.keys()).copied().collect();
        for key in keys {
            let of = |counts: &Counts| counts.0.get(&key).copied().unwrap_or(0);
            let removed = of(self).min(of(other));
            self.remove(key, removed);
            other.remove(key, removed);
        }
    }

    /// Removes up to `most` messages; returns the number removed.
    fn remove(&mut self, key: Key, most: u64) -> u64 {
        let Some(count) = self.0.get_mut(&key) else { return 0 };
        let removed = most.min(*count);
        *count -= removed;
        if *count == 0 {
            self.0.remove(&key);
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_equal_envelopes_share_a_row() {
        let mut log = EventLog::default();
        [1, 1, 1, 2, 1].into_iter().for_each(|tag| log.push(Key::tagged(tag)));
        assert_eq!(log.rows(), [(Key::tagged(1), 3), (Key::tagged(2), 1), (Key::tagged(1), 1)]);
    }

    #[test]
    fn the_rows_of_a_long_log_are_bounded_by_its_envelopes() {
        let mut log = EventLog::default();
        for number in 0..100_000 {
            log.push(Key::tagged(number % 10));
        }
        assert!(log.rows().len() <= ROWS_MAX, "{}", log.rows().len());
        let counts = log.counts();
        assert_eq!((counts.total(), counts.0.len()), (100_000, 10));
        assert!(counts.0.values().all(|&count| count == 10_000));
    }
}
