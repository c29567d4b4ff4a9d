//! What each rank sends to each other in one iteration, without the zeros.

use std::collections::BTreeMap;

use super::Message;

/// Messages and bytes of one iteration for each ordered pair of ranks that has any.
///
/// Memory grows with the pairs that communicate: 24 bytes for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Ascending by source, then destination.
    pairs: Vec<Pair>,
}

/// One ordered pair of ranks with at least one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The sender.
    pub source: u32,
    /// The receiver.
    pub destination: u32,
    /// Messages of one iteration.
    pub messages: u64,
    /// Their payloads together, in bytes.
    pub bytes: u64,
}

impl Matrix {
    /// Sums up the sends of rank 0, 1, ...
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

    /// All pairs that communicate, ascending by source, then destination.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// What `source` sends to `destination`, if it sends anything.
    pub fn pair(&self, source: u32, destination: u32) -> Option<Pair> {
        let key = |pair: &Pair| (pair.source, pair.destination);
        let index = self.pairs.binary_search_by_key(&(source, destination), key).ok()?;
        self.pairs.get(index).copied()
    }

    /// Messages of one iteration, of all ranks.
    pub fn messages(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.messages).sum()
    }

    /// Bytes of one iteration, of all ranks.
    pub fn bytes(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.bytes).sum()
    }
}
