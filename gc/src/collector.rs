//! The decisions for all lanes of a rank.
//!
//! # Why the bound on memory holds
//!
//! Call a chunk's *deficit* the bytes that it holds beyond twice its used bytes, and its *spare* the bytes by which
//! it stays below that. The rule that [`settle`](Collector::settle), [`relocated`](Collector::relocated) and
//! [`set_used`](Collector::set_used) keep up for every chunk is:
//!
//! 1. a chunk larger than [`SMALL_CHUNK_BYTES`] has no deficit: otherwise it is relocated;
//! 2. a small chunk has no more deficit than its successor in the lane has spare, or is the lane's newest chunk:
//!    otherwise it is relocated together with its successor.
//!
//! A chunk has a deficit or a spare, not both, and only its predecessor draws on its spare. So all deficits but the
//! newest chunk's are paid for, and the lane holds at most twice what it uses plus one small chunk.
//!
//! Lanes are freed from the old end: a predecessor is gone before the successor that pays for it, so freeing can't
//! break the rule, and [`advance`](Collector::advance) needs to look at nothing but what it frees. Forgetting the
//! newest chunks makes another chunk the newest, which relaxes the rule.
//!
//! Relocation ends: the smallest power of two that fits more than 2,048 bytes is less than twice of them, so only
//! less than that stays in a small chunk with a deficit. Such a chunk, where its successor has too little spare, joins
//! it, and there is one chunk less. It is cheap: to join two small chunks copies at most 4 KiB, and a larger
//! chunk is copied once for being sparse itself and once for each neighbour that joins it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use counterfoil_log_core::{Epoch, Rank, Ssn};

#[cfg(doc)]
use crate::SMALL_CHUNK_BYTES;
use crate::lane::Lane;
use crate::{ChunkUse, Decision, Holder, PartlyCovered};

/// Chunks whose relocation was decided and not reported, by their first SSN.
type Outstanding = BTreeSet<(Rank, Ssn)>;

/// Decides for one rank's log: a lane for each destination.
///
/// The owner of the memory calls [`settle`](Self::settle) when the last record of a sealed chunk is acknowledged,
/// raises floors when it learns of durable checkpoints, then carries out what [`advance`](Self::advance) says.
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
/// // Rank 1 has a durable checkpoint that covers its first twenty messages from here.
/// collector.raise_floor(lane, Ssn(20));
/// let decisions: Vec<_> = collector.advance().collect();
/// assert_eq!(decisions, [(lane, Decision::Free { chunk: 7 })]);
/// assert_eq!(collector.held_bytes(), 0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Collector {
    lanes: BTreeMap<Rank, Lane>,
    /// Lanes whose oldest chunk is covered.
    ready: BTreeSet<Rank>,
    /// Lanes whose oldest chunk is covered in part, and whose owner hasn't been told.
    partly: BTreeSet<Rank>,
    /// Lanes by the epoch of the oldest run of their index.
    by_epoch: BTreeSet<(Epoch, Rank)>,
    outstanding: Outstanding,
    /// The last of them that was repeated since something changed.
    repeated: Option<(Rank, Ssn)>,
    /// For all lanes.
    epoch_floor: Epoch,
    held_bytes: usize,
    used_bytes: usize,
    visited: u64,
}

impl Collector {
    /// No lanes.
    pub fn new() -> Self {
        Self::default()
    }

    /// All records of a chunk are acknowledged. Chunks of a lane come in SSN order, except that a chunk may be
    /// settled anew after [`forget_after`](Self::forget_after).
    ///
    /// The chunk's newest epoch is noted, so [`note_epoch`](Self::note_epoch) is needed only for more precision.
    /// `Relocate` may be about this chunk alone or about this one and the one before it.
    pub fn settle(&mut self, lane: Rank, entry: ChunkUse) -> Decision {
        self.repeated = None;
        let everywhere = self.epoch_floor;
        self.with_lane(lane, |state, outstanding| {
            if entry.newest_epoch > Epoch(0) {
                state.note_epoch(entry.newest_epoch, entry.last, everywhere);
            }
            if entry.used_bytes == 0 || state.floor.covers(entry.last) {
                return Decision::Free { chunk: entry.chunk };
            }
            let at = state.insert(entry);
            examine(lane, state, at, outstanding)
        })
    }

    /// A [`Decision::Relocate`] was carried out: the `old` chunks are freed, and `fresh` holds what was used of
    /// them. (If nothing was left to copy there is no fresh chunk: call [`set_used`](Self::set_used) with 0 bytes
    /// for each old one instead.)
    ///
    /// The answer may be to relocate the fresh chunk too, together with its successor; carry it out likewise.
    pub fn relocated(&mut self, lane: Rank, old: &[u64], fresh: ChunkUse) -> Decision {
        self.with_lane(lane, |state, outstanding| {
            let mut known = false;
            for &chunk in old {
                if let Some(entry) = state.position(chunk).and_then(|at| state.remove(at)) {
                    outstanding.remove(&(lane, entry.first));
                    known = true;
                }
            }
            if fresh.used_bytes == 0 || state.floor.covers(fresh.last) {
                return Decision::Free { chunk: fresh.chunk };
            }
            if !known {
                // Forgotten meanwhile because the receiver rolled back: it will be settled again.
                return Decision::Keep { chunk: fresh.chunk };
            }
            let at = state.insert(fresh);
            examine(lane, state, at, outstanding)
        })
    }

    /// Only `used_bytes` of a chunk are still retained, because the floor covers some of its records. `None` if the
    /// collector doesn't know the chunk.
    pub fn set_used(&mut self, lane: Rank, chunk: u64, used_bytes: usize) -> Option<Decision> {
        self.with_lane(lane, |state, outstanding| {
            let at = state.position(chunk)?;
            if used_bytes > 0 {
                state.set_used(at, used_bytes);
                return Some(examine(lane, state, at, outstanding));
            }
            if let Some(entry) = state.remove(at) {
                outstanding.remove(&(lane, entry.first));
            }
            Some(Decision::Free { chunk })
        })
    }

    /// The records of a lane after the last ones noted, up to and including `last`, were received in `epoch`.
    pub fn note_epoch(&mut self, lane: Rank, epoch: Epoch, last: Ssn) {
        let everywhere = self.epoch_floor;
        self.with_lane(lane, |state, _| state.note_epoch(epoch, last, everywhere));
    }

    /// What comes after `ssn` isn't settled any more: the receiver rolled back and will acknowledge it anew, or
    /// this rank truncated the lane. Chunks with a record after `ssn` are forgotten, to be settled again (or not).
    pub fn forget_after(&mut self, lane: Rank, ssn: Ssn) {
        self.with_lane(lane, |state, _| state.forget_after(ssn));
    }

    /// Everything up to `floor` is covered by the receiver's oldest durable checkpoint that a recovery can reach.
    /// A floor below the present one changes nothing.
    pub fn raise_floor(&mut self, lane: Rank, floor: Ssn) {
        self.visited += 1;
        self.repeated = None;
        self.with_lane(lane, |state, _| state.raise_floor(floor));
    }

    /// The receiver of this lane can't roll back to before `epoch` begins: what it received in earlier epochs is
    /// covered.
    pub fn raise_epoch_floor(&mut self, lane: Rank, epoch: Epoch) {
        self.visited += 1;
        self.repeated = None;
        self.with_lane(lane, |state, _| state.raise_epoch_floor(epoch));
    }

    /// No rank can roll back to before its own `epoch` begins (Guermouche 2011, section III.A.4: the smallest epoch
    /// in the job). Visits only lanes that have records received in earlier epochs.
    pub fn raise_epoch_floor_everywhere(&mut self, epoch: Epoch) {
        self.epoch_floor = self.epoch_floor.max(epoch);
        while let Some(&(oldest, lane)) = self.by_epoch.first()
            && oldest < self.epoch_floor
        {
            self.raise_epoch_floor(lane, self.epoch_floor);
        }
    }

    /// What can be done now: frees covered chunks from the old end of each lane, then repeats relocations that were
    /// decided and not carried out, for want of memory say.
    ///
    /// Carry out each decision before asking for the next, which may depend on it:
    /// `while let Some((lane, decision)) = collector.advance().next()`. That ends even if nothing can be relocated: each
    /// relocation is repeated once, and then not before a chunk is settled or freed or a floor is raised.
    pub fn advance(&mut self) -> Advance<'_> {
        Advance { collector: self }
    }

    /// The next lane whose oldest chunk is covered in part, since this was last said. The owner answers with the
    /// bytes still used, [`set_used`](Self::set_used), so that a chunk that is held for its last few records
    /// can be relocated.
    pub fn poll_partly_covered(&mut self) -> Option<PartlyCovered> {
        while let Some(lane) = self.partly.pop_first() {
            self.visited += 1;
            if let Some(state) = self.lanes.get(&lane).filter(|state| state.head_is_partly_covered())
                && let Some(head) = state.head()
            {
                return Some(PartlyCovered { lane, chunk: head.chunk, floor: state.floor.ssn() });
            }
        }
        None
    }

    /// The lane holds `bytes` that aren't acknowledged, the oldest of them `since`: for the report only.
    pub fn set_unacknowledged(&mut self, lane: Rank, since: Ssn, bytes: usize) {
        self.lanes.entry(lane).or_default().set_unacknowledged(since, bytes);
    }

    /// Who holds bytes back, most bytes first. Costs O(lanes).
    pub fn report(&self) -> Vec<Holder> {
        let mut holders: Vec<Holder> = self.lanes.iter().flat_map(|(&lane, state)| state.holders(lane)).collect();
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        holders
    }

    /// Bytes that settled chunks hold, in all lanes.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Bytes of them that are retained.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Bytes held and bytes retained in one lane.
    pub fn lane_bytes(&self, lane: Rank) -> (usize, usize) {
        self.lanes.get(&lane).map_or((0, 0), |state| (state.held_bytes(), state.used_bytes()))
    }

    /// The settled chunks of a lane, oldest first.
    pub fn chunks(&self, lane: Rank) -> impl Iterator<Item = &ChunkUse> {
        self.lanes.get(&lane).into_iter().flat_map(Lane::chunks)
    }

    /// The settled chunks of a lane that end above `after`, oldest first.
    pub fn chunks_after(&self, lane: Rank, after: Ssn) -> impl Iterator<Item = &ChunkUse> {
        self.lanes.get(&lane).into_iter().flat_map(move |state| state.chunks_after(after))
    }

    /// Everything up to here isn't needed in this lane.
    pub fn floor(&self, lane: Rank) -> Ssn {
        self.lanes.get(&lane).map_or(Ssn::ZERO, |state| state.floor.ssn())
    }

    /// How many lanes and chunks were looked at to raise floors and to advance, ever: what the cost of collection
    /// is measured by.
    pub fn visited(&self) -> u64 {
        self.visited
    }

    /// Changes a lane. What the collector keeps about all lanes is brought in step with it here and nowhere else.
    fn with_lane<T>(&mut self, lane: Rank, change: impl FnOnce(&mut Lane, &mut Outstanding) -> T) -> T {
        let state = self.lanes.entry(lane).or_default();
        let before = state.summary();
        let result = change(state, &mut self.outstanding);
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
        if before.old_end != after.old_end {
            if state.head_is_covered() {
                self.ready.insert(lane);
            } else if state.head_is_partly_covered() {
                self.partly.insert(lane);
            }
        }
        result
    }
}

/// Judges the chunk at `at`, and its predecessor, which draws on it.
fn examine(lane: Rank, state: &Lane, at: usize, outstanding: &mut Outstanding) -> Decision {
    let mut answer = state.judge(at);
    if matches!(answer, Decision::Relocate { .. }) {
        outstanding.insert((lane, state.first_of(at)));
    }
    if let Some(before) = at.checked_sub(1)
        && let decision @ Decision::Relocate { .. } = state.judge(before)
    {
        outstanding.insert((lane, state.first_of(before)));
        answer = decision;
    }
    answer
}

/// What [`Collector::advance`] returns.
#[derive(Debug)]
pub struct Advance<'a> {
    collector: &'a mut Collector,
}

impl Advance<'_> {
    fn next_free(&mut self) -> Option<(Rank, Decision)> {
        loop {
            let lane = *self.collector.ready.first()?;
            self.collector.visited += 1;
            let freed = self.collector.with_lane(lane, |state, outstanding| {
                let head = state.head_is_covered().then(|| state.remove(0)).flatten()?;
                outstanding.remove(&(lane, head.first));
                Some(head.chunk)
            });
            if let Some(chunk) = freed {
                self.collector.repeated = None;
                return Some((lane, Decision::Free { chunk }));
            }
            self.collector.ready.remove(&lane);
        }
    }

    fn next_repeated(&mut self) -> Option<(Rank, Decision)> {
        let collector = &mut *self.collector;
        loop {
            let after = collector.repeated.map_or(Bound::Unbounded, Bound::Excluded);
            let (lane, first) = *collector.outstanding.range((after, Bound::Unbounded)).next()?;
            collector.repeated = Some((lane, first));
            collector.visited += 1;
            let state = collector.lanes.get(&lane);
            let decision = state.and_then(|state| state.position_of(first).map(|at| state.judge(at)));
            match decision {
                Some(decision @ Decision::Relocate { .. }) => return Some((lane, decision)),
                // Its reason is gone, or the chunk is.
                _ => collector.outstanding.remove(&(lane, first)),
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
