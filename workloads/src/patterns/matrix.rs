//! Sparse traffic matrix for one iteration.

use std::collections::BTreeMap;

use super::Message;

/// One iteration's messages and bytes for each communicating ordered pair of ranks.
///
/// Memory: 24 bytes for each such pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Pairs, ascending by source, then destination.
    pairs: Vec<Pair>,
}

/// Traffic of an ordered pair of ranks with at least one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Source rank.
    pub source: u32,
    /// Destination rank.
    pub destination: u32,
    /// Number of messages in one iteration.
    pub messages: u64,
    /// Sum of their payloads in bytes.
    pub bytes: u64,
}

impl Matrix {
    /// Sums up the messages of rank 0, 1, ...
    pub(super) fn new(sends: impl Iterator<Item = Vec<Message>>) -> Matrix {
        let mut pairs = Vec::new();
        for messages in sends {
            let mut row: BTreeMap<u32, Pair> = BTreeMap::new();
            for Message { source, destination, bytes, .. } in messages {
                let pair = row.entry(destination).or_insert(Pair { source, destination, messages: 0, bytes: 0 });
                pair.messages += 1;
                pair.bytes += bytes;
            }
            pairs.extend(row.into_values());
        }
        Matrix { pairs }
    }

    /// Returns all communicating pairs, ascending by source, then destination.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// Returns the traffic from `source` to `destination`, if there is any.
    pub fn pair(&self, source: u32, destination: u32) -> Option<Pair> {
        let key = |pair: &Pair| (pair.source, pair.destination);
        let index = self.pairs.binary_search_by_key(&(source, destination), key).ok()?;
        self.pairs.get(index).copied()
    }

    /// Returns the number of messages in one iteration, over all ranks.
    pub fn messages(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.messages).sum()
    }

    /// Returns the bytes in one iteration, over all ranks.
    pub fn bytes(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.bytes).sum()
    }
}
