//! Collection decisions for all lanes at a rank.
//!
//! # Why the bound on memory holds
//!
//! A chunk's *deficit* is the number of bytes held beyond twice its used bytes; its *spare* is the number missing to
//! that limit. [`settle`](Collector::settle), [`relocated`](Collector::relocated) and [`set_used`](Collector::set_used)
//! enforce this rule for every chunk:
//!
//! 1. a chunk larger than [`SMALL_CHUNK_BYTES`] has no deficit: otherwise it is relocated;
//! 2. a small chunk has no more deficit than its successor in the lane has spare, or is the lane's newest chunk:
//!    otherwise it is relocated together with its successor.
//!
//! A chunk has a deficit or a spare, not both, and only its predecessor draws on its spare. So all deficits but the
//! newest chunk's are offset, and the lane holds at most twice its used bytes plus one small chunk.
//!
//! Lanes are freed from the old end: a predecessor is freed before the successor offsetting its deficit, so freeing
//! can't break the rule, and [`advance`](Collector::advance) only visits the chunks it frees. Forgetting the newest
//! chunks makes another chunk the newest, which relaxes the rule.
//!
//! Relocation terminates: the smallest power of two for more than 2,048 used bytes is less than twice as large, so only
//! a small chunk with fewer used bytes can have a deficit. If its successor has too little spare, the two are merged,
//! which leaves one chunk less. The cost is low: merging two small chunks copies at most 4 KiB, and a larger chunk is
//! copied once because it is sparse itself and once for each neighbour merged into it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use counterfoil_log_core::{Epoch, Rank, Ssn};

#[cfg(doc)]
use crate::SMALL_CHUNK_BYTES;
use crate::lane::Lane;
use crate::{ChunkUse, Decision, Holder, PartlyCovered};

/// Chunks with a decided but unreported relocation, by first SSN.
type PendingRelocations = BTreeSet<(Rank, Ssn)>;

/// Garbage collector for one rank's log, with a lane for each destination.
///
/// The owner of the memory calls [`settle`](Self::settle) when the last record of a sealed chunk is acknowledged,
/// raises floors when it learns of durable checkpoints, then carries out the decisions from [`advance`](Self::advance).
///
/// ```
/// use counterfoil_gc::{ChunkUse, Collector, Decision};
/// use counterfoil_log_core::{Epoch, Rank, Ssn};
///
/// let mut collector = Collector::new();
/// let lane = Rank(1);
/// let chunk = ChunkUse {
///     chunk: 7, first: Ssn(1), last: Ssn(20), held_bytes: 65536, used_bytes: 60000, newest_epoch: Epoch(1),
/// };
/// assert_eq!(collector.settle(lane, chunk), Decision::Keep { chunk: 7 });
///
/// // Rank 1 has a durable checkpoint that covers its first twenty messages from this rank.
/// collector.raise_floor(lane, Ssn(20));
/// let decisions: Vec<_> = collector.advance().collect();
/// assert_eq!(decisions, [(lane, Decision::Free { chunk: 7 })]);
/// assert_eq!(collector.held_bytes(), 0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Collector {
    lanes: BTreeMap<Rank, Lane>,
    /// Lanes with a covered oldest chunk.
    ready: BTreeSet<Rank>,
    /// Lanes with a partly covered oldest chunk, not yet polled.
    partly_covered: BTreeSet<Rank>,
    /// Lanes by the oldest epoch in their index.
    by_epoch: BTreeSet<(Epoch, Rank)>,
    pending: PendingRelocations,
    /// The last pending relocation repeated since the last change.
    last_repeated: Option<(Rank, Ssn)>,
    /// Epoch floor for all lanes.
    epoch_floor: Epoch,
    held_bytes: usize,
    used_bytes: usize,
    visited: u64,
}

impl Collector {
    /// Creates a collector without lanes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a chunk of acknowledged records.
    ///
    /// A lane's chunks must be settled in SSN order, except that a chunk may be settled again after
    /// [`forget_after`](Self::forget_after).
    ///
    /// The chunk's newest epoch is noted, so [`note_epoch`](Self::note_epoch) is only needed for more precision.
    /// `Relocate` may concern this chunk alone, or this one and its predecessor.
    pub fn settle(&mut self, lane: Rank, entry: ChunkUse) -> Decision {
        self.last_repeated = None;
        let epoch_floor = self.epoch_floor;
        self.with_lane(lane, |state, pending| {
            if entry.newest_epoch > Epoch(0) {
                state.note_epoch(entry.newest_epoch, entry.last, epoch_floor);
            }
            if entry.used_bytes == 0 || state.floor.covers(entry.last) {
                return Decision::Free { chunk: entry.chunk };
            }
            let at = state.insert(entry);
            evaluate(lane, state, at, pending)
        })
    }

    /// Reports a completed [`Decision::Relocate`]: the `old` chunks are freed, and `fresh` holds their used records.
    ///
    /// (If nothing was left to copy, no fresh chunk exists: call [`set_used`](Self::set_used) with 0 bytes for each old
    /// one instead.)
    ///
    /// The returned decision may be to relocate the fresh chunk too, together with its successor.
    pub fn relocated(&mut self, lane: Rank, old: &[u64], fresh: ChunkUse) -> Decision {
        self.with_lane(lane, |state, pending| {
            let mut known = false;
            for &chunk in old {
                if let Some(entry) = state.position(chunk).and_then(|at| state.remove(at)) {
                    pending.remove(&(lane, entry.first));
                    known = true;
                }
            }
            if fresh.used_bytes == 0 || state.floor.covers(fresh.last) {
                return Decision::Free { chunk: fresh.chunk };
            }
            if !known {
                // Forgotten meanwhile, because the receiver rolled back: it will be settled again.
                return Decision::Keep { chunk: fresh.chunk };
            }
            let at = state.insert(fresh);
            evaluate(lane, state, at, pending)
        })
    }

    /// Lowers a chunk's retained bytes, because the floor covers some records.
    ///
    /// Returns `None` for an unknown chunk.
    pub fn set_used(&mut self, lane: Rank, chunk: u64, used_bytes: usize) -> Option<Decision> {
        self.with_lane(lane, |state, pending| {
            let at = state.position(chunk)?;
            if used_bytes > 0 {
                state.set_used(at, used_bytes);
                return Some(evaluate(lane, state, at, pending));
            }
            if let Some(entry) = state.remove(at) {
                pending.remove(&(lane, entry.first));
            }
            Some(Decision::Free { chunk })
        })
    }

    /// Records that a lane's SSNs after the last noted one, up to and including `last`, were received in `epoch`.
    pub fn note_epoch(&mut self, lane: Rank, epoch: Epoch, last: Ssn) {
        let epoch_floor = self.epoch_floor;
        self.with_lane(lane, |state, _| state.note_epoch(epoch, last, epoch_floor));
    }

    /// Forgets the chunks with a record after `ssn`: the receiver rolled back and will acknowledge those records anew,
    /// or this rank truncated the lane.
    ///
    /// They may be settled again.
    pub fn forget_after(&mut self, lane: Rank, ssn: Ssn) {
        self.with_lane(lane, |state, _| state.forget_after(ssn));
    }

    /// Raises a lane's floor: the receiver's oldest durable checkpoint reachable by a recovery covers everything up to
    /// `floor`.
    ///
    /// A lower floor than the current one has no effect.
    pub fn raise_floor(&mut self, lane: Rank, floor: Ssn) {
        self.visited += 1;
        self.last_repeated = None;
        self.with_lane(lane, |state, _| state.raise_floor(floor));
    }

    /// Raises a lane's epoch floor: its receiver can't roll back to a point before `epoch`, so records received in
    /// earlier epochs are covered.
    pub fn raise_epoch_floor(&mut self, lane: Rank, epoch: Epoch) {
        self.visited += 1;
        self.last_repeated = None;
        self.with_lane(lane, |state, _| state.raise_epoch_floor(epoch));
    }

    /// Raises the epoch floor for all lanes: no rank can roll back to a point before its own `epoch` (Guermouche 2011,
    /// section III.A.4: the smallest epoch in the job).
    ///
    /// Visits only lanes with records received in earlier epochs.
    pub fn raise_all_epoch_floors(&mut self, epoch: Epoch) {
        self.epoch_floor = self.epoch_floor.max(epoch);
        while let Some(&(oldest, lane)) = self.by_epoch.first()
            && oldest < self.epoch_floor
        {
            self.raise_epoch_floor(lane, self.epoch_floor);
        }
    }

    /// Returns the decisions possible now: frees of covered chunks from each lane's old end, then relocations decided
    /// earlier but not carried out, for example for lack of memory.
    ///
    /// Carry out each decision before taking the next, which may depend on it: `while let Some((lane, decision)) =
    /// collector.advance().next()`. This terminates even if nothing can be relocated: each relocation is repeated once,
    /// and then not until a chunk is settled or freed or a floor is raised.
    pub fn advance(&mut self) -> Advance<'_> {
        Advance { collector: self }
    }

    /// Returns the next lane with a newly, partly covered oldest chunk.
    ///
    /// The owner then reports the bytes still in use to [`set_used`](Self::set_used), so a chunk held for its last few
    /// records can be relocated.
    pub fn poll_partly_covered(&mut self) -> Option<PartlyCovered> {
        while let Some(lane) = self.partly_covered.pop_first() {
            self.visited += 1;
            if let Some(state) = self.lanes.get(&lane).filter(|state| state.head_is_partly_covered())
                && let Some(head) = state.head()
            {
                return Some(PartlyCovered { lane, chunk: head.chunk, floor: state.floor.ssn() });
            }
        }
        None
    }

    /// Sets the unacknowledged bytes and the oldest unacknowledged SSN of a lane.
    ///
    /// For the report only.
    pub fn set_unacknowledged(&mut self, lane: Rank, since: Ssn, bytes: usize) {
        self.lanes.entry(lane).or_default().set_unacknowledged(since, bytes);
    }

    /// Lists the lanes holding memory, most bytes first.
    ///
    /// Costs O(lanes).
    pub fn report(&self) -> Vec<Holder> {
        let mut holders: Vec<Holder> = self.lanes.iter().flat_map(|(&lane, state)| state.holders(lane)).collect();
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        holders
    }

    /// Returns the bytes held by settled chunks in all lanes.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Returns the retained part of [`held_bytes`](Self::held_bytes).
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Returns the bytes held and the bytes retained in one lane.
    pub fn lane_bytes(&self, lane: Rank) -> (usize, usize) {
        self.lanes.get(&lane).map_or((0, 0), |state| (state.held_bytes(), state.used_bytes()))
    }

    /// Iterates over a lane's settled chunks, oldest first.
    pub fn chunks(&self, lane: Rank) -> impl Iterator<Item = &ChunkUse> {
        self.lanes.get(&lane).into_iter().flat_map(Lane::chunks)
    }

    /// Iterates over a lane's settled chunks ending after `after`, oldest first.
    pub fn chunks_after(&self, lane: Rank, after: Ssn) -> impl Iterator<Item = &ChunkUse> {
        self.lanes.get(&lane).into_iter().flat_map(move |state| state.chunks_after(after))
    }

    /// Returns a lane's floor: the last covered SSN.
    pub fn floor(&self, lane: Rank) -> Ssn {
        self.lanes.get(&lane).map_or(Ssn::ZERO, |state| state.floor.ssn())
    }

    /// Returns the number of lanes and chunks visited so far to raise floors and to advance: a measure of collection
    /// cost.
    pub fn visited(&self) -> u64 {
        self.visited
    }

    /// Changes a lane and updates the collector's totals and indexes over all lanes accordingly.
    fn with_lane<T>(&mut self, lane: Rank, change: impl FnOnce(&mut Lane, &mut PendingRelocations) -> T) -> T {
        let state = self.lanes.entry(lane).or_default();
        let before = state.summary();
        let result = change(state, &mut self.pending);
        let after = state.summary();

        self.held_bytes = self.held_bytes - before.held_bytes + after.held_bytes;
        self.used_bytes = self.used_bytes - before.used_bytes + after.used_bytes;
        if before.oldest_epoch != after.oldest_epoch {
            if let Some(epoch) = before.oldest_epoch {
                self.by_epoch.remove(&(epoch, lane));
            }
            if let Some(epoch) = after.oldest_epoch {
                self.by_epoch.insert((epoch, lane));
            }
        }
        if before.head != after.head {
            if state.head_is_covered() {
                self.ready.insert(lane);
            } else if state.head_is_partly_covered() {
                self.partly_covered.insert(lane);
            }
        }
        result
    }
}

/// Evaluates the chunk at `at`, and its predecessor, which draws on its spare.
fn evaluate(lane: Rank, state: &Lane, at: usize, pending: &mut PendingRelocations) -> Decision {
    let mut result = state.evaluate(at);
    if matches!(result, Decision::Relocate { .. }) {
        pending.insert((lane, state.first_of(at)));
    }
    if let Some(before) = at.checked_sub(1)
        && let decision @ Decision::Relocate { .. } = state.evaluate(before)
    {
        pending.insert((lane, state.first_of(before)));
        result = decision;
    }
    result
}

/// Iterator of [`Collector::advance`].
#[derive(Debug)]
pub struct Advance<'a> {
    collector: &'a mut Collector,
}

impl Advance<'_> {
    fn next_free(&mut self) -> Option<(Rank, Decision)> {
        loop {
            let lane = *self.collector.ready.first()?;
            self.collector.visited += 1;
            let freed = self.collector.with_lane(lane, |state, pending| {
                let head = state.head_is_covered().then(|| state.remove(0)).flatten()?;
                pending.remove(&(lane, head.first));
                Some(head.chunk)
            });
            if let Some(chunk) = freed {
                self.collector.last_repeated = None;
                return Some((lane, Decision::Free { chunk }));
            }
            self.collector.ready.remove(&lane);
        }
    }

    fn next_repeated(&mut self) -> Option<(Rank, Decision)> {
        let collector = &mut *self.collector;
        loop {
            let after = collector.last_repeated.map_or(Bound::Unbounded, Bound::Excluded);
            let (lane, first) = *collector.pending.range((after, Bound::Unbounded)).next()?;
            collector.last_repeated = Some((lane, first));
            collector.visited += 1;
            let state = collector.lanes.get(&lane);
            let decision = state.and_then(|state| state.position_of(first).map(|at| state.evaluate(at)));
            match decision {
                Some(decision @ Decision::Relocate { .. }) => return Some((lane, decision)),
                // The relocation is no longer needed, or the chunk is gone.
                _ => collector.pending.remove(&(lane, first)),
            };
        }
    }
}

impl Iterator for Advance<'_> {
    type Item = (Rank, Decision);

    fn next(&mut self) -> Option<Self::Item> {
        self.next_free().or_else(|| self.next_repeated())
    }
}
