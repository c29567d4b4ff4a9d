//! Messages in one iteration.

use std::collections::BTreeSet;

use super::MeasureError;

/// Message in an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Place in the iteration, from 0: it depends only on messages received by its source in lower steps.
    pub step: u32,
    /// Sender.
    pub source: u32,
    /// Receiver.
    pub destination: u32,
    /// Payload in bytes.
    pub bytes: u64,
}

/// All ranks' messages in one iteration.
///
/// Memory: 24 bytes a message.
#[derive(Clone, Debug)]
pub struct Iteration {
    ranks: u32,
    /// By step; within a step, one source's messages in order.
    hops: Vec<Hop>,
}

impl Iteration {
    /// Takes messages among `ranks` ranks; messages with the same source and step in sending order.
    ///
    /// # Errors
    /// [`MeasureError::Hop`] for a nonexistent rank, or a message to itself.
    pub fn new(ranks: u32, hops: impl IntoIterator<Item = Hop>) -> Result<Iteration, MeasureError> {
        let mut hops: Vec<Hop> = hops.into_iter().collect();
        let is_wrong = |hop: &&Hop| hop.source.max(hop.destination) >= ranks || hop.source == hop.destination;
        if let Some(&Hop { source: from, destination: to, .. }) = hops.iter().find(is_wrong) {
            return Err(MeasureError::Hop { from, to, ranks });
        }
        hops.sort_by_key(|hop| hop.step);
        Ok(Iteration { ranks, hops })
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Returns the number of messages.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.hops.len() as u64
    }

    /// Returns the steps in order; none is empty.
    pub(super) fn steps(&self) -> impl Iterator<Item = &[Hop]> {
        self.hops.chunk_by(|one, next| one.step == next.step)
    }

    /// Returns the pairs of ranks exchanging messages in either direction, the lower rank first.
    pub(super) fn connections(&self) -> BTreeSet<(u32, u32)> {
        let pair = |hop: &Hop| (hop.source.min(hop.destination), hop.source.max(hop.destination));
        self.hops.iter().map(pair).collect()
    }
}
