//! Plain numbers leaving a rank: its checkpoint tables, and its report on collectives to a peer.
//!
//! Both are one version byte, then postcard.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::api::{CollectiveClass, RestoreError};
use crate::encoding::{decode_tables, decode_versioned, encode_versioned};

/// Table version written, and the only one read.
///
/// Distinct from the core's and other rules'.
const TABLES: u8 = 0x91;
/// Report version written, and the only one read.
const REPORT: u8 = 2;

/// Collectives on a communicator completed by a rank (section 3.1: "every process counts various collective
/// communications").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Number of the first incomplete call. It also counts calls run as messages, up to the last native one.
    pub next: u64,
    /// Barriers.
    pub barriers: u64,
    /// Calls from a root to all.
    pub from_root: u64,
    /// Calls from all to all.
    pub all_to_all: u64,
}

impl Counts {
    /// Counts a complete call.
    pub(super) fn add(&mut self, class: CollectiveClass, number: u64) {
        self.next = number + 1;
        match class {
            CollectiveClass::Barrier => self.barriers += 1,
            CollectiveClass::FromRoot(_) => self.from_root += 1,
            CollectiveClass::AllToAll => self.all_to_all += 1,
            // As messages, always.
            CollectiveClass::ToRoot(_) => {}
        }
    }
}

/// Counts for all communicators, by context number.
pub(super) type AllCounts = BTreeMap<u32, Counts>;

/// First call on each communicator after a durable checkpoint.
pub(super) type Durable = BTreeMap<u32, u64>;

/// State of the rule in a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Tables {
    pub(super) completed: AllCounts,
    pub(super) core: Vec<u8>,
}

impl Tables {
    pub(super) fn encode(&self) -> Vec<u8> {
        encode_versioned(TABLES, self)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Tables, RestoreError> {
        decode_tables(TABLES, bytes)
    }
}

/// Report on the collectives of a rank to a peer: in each Hello, and later the changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) completed: AllCounts,
    pub(super) durable: Durable,
    /// Numbers of unused results in its local log, as ranges (first, last), ascending.
    pub(super) held: Vec<(u64, u64)>,
    /// In a Hello: the sender has handled one from the receiver before.
    pub(super) has_met: bool,
}

impl Report {
    /// Maximum number of ranges written.
    ///
    /// Peers send results beyond them once more.
    const RANGES_MAX: usize = 4096;

    pub(super) fn encode(mut self) -> Vec<u8> {
        self.held.truncate(Self::RANGES_MAX);
        encode_versioned(REPORT, &self)
    }

    /// Decodes a report; `None` if the bytes are not one.
    pub(super) fn decode(bytes: &[u8]) -> Option<Report> {
        decode_versioned(REPORT, bytes)
    }

    /// Returns ascending numbers as ranges.
    pub(super) fn ranges(numbers: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for number in numbers {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => ranges.push((number, number)),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_another_version_or_length_are_refused() {
        let tables =
            Tables { completed: BTreeMap::from([(1, Counts { next: 3, ..Counts::default() })]), core: vec![7] };
        let bytes = tables.encode();
        assert_eq!(Tables::decode(&bytes).unwrap().completed, tables.completed);
        assert!(matches!(Tables::decode(&[1, 0]), Err(RestoreError::Version { found: 1, expected: TABLES })));
        for len in [0, 1, bytes.len() - 1] {
            assert!(matches!(Tables::decode(&bytes[..len]), Err(RestoreError::Malformed { .. })), "{len}");
        }
        assert!(Tables::decode(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn consecutive_numbers_are_one_range() {
        let held = Report::ranges([2, 3, 4, 7, 9, 10].into_iter());
        assert_eq!(held, [(2, 4), (7, 7), (9, 10)]);
        let report = Report { held, ..Report::default() };
        assert_eq!(Report::decode(&report.clone().encode()), Some(report));
        assert_eq!(Report::decode(&[REPORT + 1, 0, 0, 0]), None);
    }
}
