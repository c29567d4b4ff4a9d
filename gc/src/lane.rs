//! Settled chunks of one lane.

use std::collections::VecDeque;

use counterfoil_log_core::{Epoch, Rank, Ssn};

use crate::chunk_use::{ChunkUse, Decision, deficit};
use crate::{Blocker, EpochIndex, Floor, Holder};

#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    /// Chunks in SSN order.
    chunks: VecDeque<ChunkUse>,
    pub(crate) floor: Floor,
    epochs: EpochIndex,
    held_bytes: usize,
    used_bytes: usize,
    /// Oldest unacknowledged SSN, and the unacknowledged bytes.
    unacknowledged: Option<(Ssn, usize)>,
}

/// Lane state aggregated by the collector over all lanes.
pub(crate) struct Summary {
    pub(crate) held_bytes: usize,
    pub(crate) used_bytes: usize,
    pub(crate) oldest_epoch: Option<Epoch>,
    /// Oldest chunk, and the floor.
    pub(crate) head: (Option<u64>, Ssn),
}

impl Lane {
    pub(crate) fn summary(&self) -> Summary {
        Summary {
            held_bytes: self.held_bytes,
            used_bytes: self.used_bytes,
            oldest_epoch: self.epochs.oldest(),
            head: (self.head().map(|head| head.chunk), self.floor.ssn()),
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    pub(crate) fn chunks(&self) -> impl ExactSizeIterator<Item = &ChunkUse> {
        self.chunks.iter()
    }

    pub(crate) fn chunks_after(&self, after: Ssn) -> impl Iterator<Item = &ChunkUse> {
        let start = self.chunks.partition_point(|entry| entry.last <= after);
        self.chunks.range(start..)
    }

    pub(crate) fn head(&self) -> Option<&ChunkUse> {
        self.chunks.front()
    }

    pub(crate) fn head_is_covered(&self) -> bool {
        self.head().is_some_and(|head| self.floor.covers(head.last))
    }

    pub(crate) fn head_is_partly_covered(&self) -> bool {
        self.head().is_some_and(|head| head.first <= self.floor.ssn() && !self.floor.covers(head.last))
    }

    /// Returns the index of `chunk`, usually at one end.
    pub(crate) fn position(&self, chunk: u64) -> Option<usize> {
        let last = self.chunks.len().checked_sub(1)?;
        if self.chunks[last].chunk == chunk {
            return Some(last);
        }
        self.chunks.iter().position(|entry| entry.chunk == chunk)
    }

    /// Returns the index of the chunk beginning with `first`.
    pub(crate) fn position_of(&self, first: Ssn) -> Option<usize> {
        self.chunks.binary_search_by_key(&first, |entry| entry.first).ok()
    }

    pub(crate) fn first_of(&self, at: usize) -> Ssn {
        self.chunks[at].first
    }

    /// Inserts a chunk in SSN order and returns its index.
    ///
    /// Replaces an older entry for the same chunk.
    pub(crate) fn insert(&mut self, entry: ChunkUse) -> usize {
        let mut at = self.chunks.len();
        if self.chunks.back().is_some_and(|tail| tail.first >= entry.first) {
            at = self.chunks.partition_point(|other| other.first < entry.first);
            if self.chunks[at].chunk == entry.chunk {
                self.remove(at);
            }
        }
        self.held_bytes += entry.held_bytes;
        self.used_bytes += entry.used_bytes;
        self.chunks.insert(at, entry);
        at
    }

    pub(crate) fn remove(&mut self, at: usize) -> Option<ChunkUse> {
        let entry = self.chunks.remove(at)?;
        self.held_bytes -= entry.held_bytes;
        self.used_bytes -= entry.used_bytes;
        Some(entry)
    }

    pub(crate) fn set_used(&mut self, at: usize, used_bytes: usize) {
        let entry = &mut self.chunks[at];
        self.used_bytes = self.used_bytes - entry.used_bytes + used_bytes;
        entry.used_bytes = used_bytes;
    }

    pub(crate) fn note_epoch(&mut self, epoch: Epoch, last: Ssn, epoch_floor: Epoch) {
        self.epochs.note(epoch, last);
        self.raise_epoch_floor(epoch_floor);
    }

    pub(crate) fn raise_floor(&mut self, floor: Ssn) {
        self.floor.raise(floor);
        self.epochs.take_upto(floor);
    }

    /// Raises the lane's epoch floor to `epoch` and applies it to the noted epochs.
    pub(crate) fn raise_epoch_floor(&mut self, epoch: Epoch) {
        self.floor.raise_epoch(epoch);
        if let Some(ssn) = self.epochs.take_before(self.floor.epoch()) {
            self.floor.raise(ssn);
        }
    }

    /// Drops the chunks with a record after `ssn`.
    pub(crate) fn forget_after(&mut self, ssn: Ssn) {
        while self.chunks.back().is_some_and(|tail| tail.last > ssn) {
            self.remove(self.chunks.len() - 1);
        }
        self.epochs.forget_after(ssn);
        // The rest of the oldest run may be covered as a whole now: a run noted later must not be merged into it.
        self.epochs.take_upto(self.floor.ssn());
    }

    pub(crate) fn set_unacknowledged(&mut self, since: Ssn, bytes: usize) {
        self.unacknowledged = (bytes > 0).then_some((since, bytes));
    }

    /// Applies the rule in [`collector`](crate::collector): a chunk above the smallest size is at least half used; a
    /// smallest one may be emptier if it is the lane's newest chunk, or if its successor's spare offsets its deficit.
    pub(crate) fn evaluate(&self, at: usize) -> Decision {
        let entry = &self.chunks[at];
        let chunk = entry.chunk;
        let settled_bytes = entry.settled_bytes();
        if let Some(next) = self.chunks.get(at + 1) {
            let deficit = deficit(settled_bytes, entry.used_bytes);
            let spare = next.used_bytes.saturating_mul(2).saturating_sub(next.settled_bytes());
            if deficit > spare {
                return Decision::Relocate { chunk, next: Some(next.chunk) };
            }
        }
        if settled_bytes == entry.held_bytes {
            Decision::Keep { chunk }
        } else {
            Decision::Relocate { chunk, next: None }
        }
    }

    pub(crate) fn holders(&self, lane: Rank) -> impl Iterator<Item = Holder> + use<> {
        let retained = self.head().map(|head| Holder {
            lane,
            bytes: self.held_bytes,
            since: head.first.max(self.floor.ssn().next()),
            blocked_by: Blocker::Checkpoint { after: (head.newest_epoch > Epoch(0)).then_some(head.newest_epoch) },
        });
        let unacknowledged = self.unacknowledged.map(|(since, bytes)| Holder {
            lane,
            bytes,
            since,
            blocked_by: Blocker::Unacknowledged,
        });
        retained.into_iter().chain(unacknowledged)
    }
}
