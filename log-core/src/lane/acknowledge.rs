//! What becomes of acknowledged records: released, or retained until a recovery can no longer need them.
//!
//! The writer does what it is told; which chunks are worth keeping as they are, and which are to be relocated, is
//! decided outside (see the `gc` crate) from what [`LaneWriter::poll_settled`] reports.

use crate::chunk::{BlockRef, CHUNK_HEADER, ChunkHeader, ChunkState, LAST_AT, NEXT_AT, sealed_word, write_state};
use crate::lane::chain::ChunkInfo;
use crate::lane::runs::{Disposition, Run};
use crate::lane::writer::LaneWriter;
use crate::nouns::{Epoch, Ssn};
use crate::pool::AllocError;
use crate::record::{END_WORD, RECORD_ALIGN, SSN_AT, Word, footprint};
use crate::sync::Ordering;

/// An acknowledgement of something that was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("acknowledged up to {acked}, but only {sent} was sent: refused")]
pub struct AckError {
    /// What was acknowledged.
    pub acked: Ssn,
    /// The last SSN that was sent.
    pub sent: Ssn,
}

/// A chunk's place in its lane; grows along the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub u64);

/// A full chunk whose records are all acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettledChunk {
    /// Which chunk.
    pub chunk: ChunkId,
    /// SSN of its first record.
    pub first: Ssn,
    /// SSN of its last record.
    pub last: Ssn,
    /// Bytes of memory that it takes.
    pub held_bytes: usize,
    /// Bytes of it that are retained: records with their headers, and its own header. 0 if every record is released.
    pub used_bytes: usize,
    /// The newest receive epoch of its retained records; [`Epoch::default`] where there are none.
    pub newest_epoch: Epoch,
}

/// What [`LaneWriter::relocate`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relocated {
    /// What was retained is in this chunk now, and the old ones are freed.
    Into(SettledChunk),
    /// Nothing was retained, and the old ones are freed.
    Emptied,
    /// Those are not two settled chunks of this lane, the first before the last: nothing was done.
    Unknown,
}

/// A chunk that holds anything holds its own header, too.
fn with_header(record_bytes: usize) -> usize {
    if record_bytes == 0 { 0 } else { record_bytes + CHUNK_HEADER }
}

impl LaneWriter {
    /// Takes a cumulative acknowledgement: everything up to `upto` was received.
    ///
    /// Older acknowledgements than the last one say nothing new and are ignored.
    ///
    /// # Errors
    /// [`AckError`] where `upto` was never sent; nothing is changed then.
    #[inline]
    pub fn acknowledge(&mut self, upto: Ssn, disposition: Disposition) -> Result<(), AckError> {
        if upto <= self.acked {
            return Ok(());
        }
        if upto >= self.next {
            return Err(AckError { acked: upto, sent: self.next.prev() });
        }
        if disposition != Disposition::Release || !self.cold.runs.is_plain() {
            self.note_run(upto, disposition);
        }
        self.acked = upto;
        if upto.0 >= self.boundary && self.cold.runs.is_plain() {
            self.free_released();
        }
        Ok(())
    }

    /// How the acknowledged SSNs that are still in the table were acknowledged, in order.
    ///
    /// In a lane that never retained anything the table is empty: everything up to [`acked`](Self::acked) is released.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.cold.runs.iter()
    }

    /// Edits the table for a receiver that rolled back: what it received after `upto`, it has not.
    ///
    /// Those records are unacknowledged again, as far as they were not released and freed already.
    pub fn unacknowledge(&mut self, upto: Ssn) {
        if upto < self.acked {
            self.acked = upto;
            self.cold.runs.forget_after(upto);
            if let Some(reopened) = self.cold.chunks.iter().take(self.cold.settled).position(|chunk| chunk.last > upto)
            {
                self.cold.settled = reopened;
            }
            self.set_boundary();
        }
    }

    /// The next full chunk whose records are all acknowledged, in a lane that retains records.
    ///
    /// Each is reported once, oldest first; without one the call costs a comparison. What to do with it ([`free`](Self::free) it, keep it, [`relocate`](Self::relocate) it)
    /// is the caller's decision.
    pub fn poll_settled(&mut self) -> Option<SettledChunk> {
        if self.acked.0 < self.boundary || self.cold.runs.is_plain() {
            return None;
        }
        let settled = self.use_of(&self.cold.chunks[self.cold.settled]);
        self.cold.settled += 1;
        self.set_boundary();
        Some(settled)
    }

    /// Bytes that a settled chunk's retained records above `floor` take: what is left of a chunk that is partly covered.
    ///
    /// Walks the records of that one chunk.
    pub fn used_bytes_above(&self, chunk: ChunkId, floor: Ssn) -> Option<usize> {
        let info = &self.cold.chunks[self.position(chunk)?];
        let mut used = 0;
        self.walk(info, |ssn, _, bytes| {
            if ssn > floor && !self.cold.runs.is_released(ssn) {
                used += bytes;
            }
        });
        Some(with_header(used))
    }

    /// Takes a settled chunk out of the lane; its memory is reused as soon as no cursor needs it.
    ///
    /// Says whether there was such a chunk. Chunks that are freed oldest first cost nothing beyond the freeing.
    pub fn free(&mut self, chunk: ChunkId) -> bool {
        let Some(index) = self.position(chunk).filter(|&index| index < self.cold.settled) else { return false };
        if index == 0 {
            self.unlink_front(1);
            self.forget_old_runs();
        } else {
            self.cold.settled -= 1;
            self.unlink_after(index, 1, None);
            self.set_boundary();
        }
        true
    }

    /// Copies what is retained above `floor` from adjacent settled chunks into one of fitting size, and frees them.
    ///
    /// # Errors
    /// [`AllocError`]; the chunks are as before then.
    pub fn relocate(&mut self, first: ChunkId, last: ChunkId, floor: Ssn) -> Result<Relocated, AllocError> {
        let (Some(from), Some(to)) = (self.position(first), self.position(last)) else { return Ok(Relocated::Unknown) };
        if from > to || to >= self.cold.settled {
            return Ok(Relocated::Unknown);
        }
        let mut bytes = 0;
        let mut records = Vec::new();
        let mut ends = (Ssn::MAX, Ssn::ZERO);
        for chunk in self.cold.chunks.range(from..=to) {
            self.walk(chunk, |ssn, at, footprint| {
                if ssn > floor && !self.cold.runs.is_released(ssn) {
                    records.push((at, footprint));
                    bytes += footprint;
                    ends = (ends.0.min(ssn), ends.1.max(ssn));
                }
            });
        }
        let replacement =
            if records.is_empty() { None } else { Some(self.copy_into_new_chunk(&records, bytes, ends, from, to)?) };
        let kept = replacement.is_some();
        let count = to + 1 - from;
        self.cold.settled = self.cold.settled - count + usize::from(kept);
        self.replace(from, count, replacement);
        Ok(if kept { Relocated::Into(self.use_of(&self.cold.chunks[from])) } else { Relocated::Emptied })
    }

    /// A run that goes on, as it does at most acknowledgements, costs a comparison.
    #[inline]
    fn note_run(&mut self, upto: Ssn, disposition: Disposition) {
        if !self.cold.runs.extend(upto, disposition) {
            self.begin_run(upto, disposition);
        }
    }

    #[cold]
    fn begin_run(&mut self, upto: Ssn, disposition: Disposition) {
        if self.cold.runs.is_plain() {
            // What was released before the first retained record: the table starts here.
            let before = self.acked;
            let first = self.cold.chunks.front().map_or(Ssn::FIRST, |chunk| chunk.header.first);
            self.cold.runs.begin((before >= first).then_some((first, before)));
        }
        self.cold.runs.push(Run { first: self.acked.next(), last: upto, disposition });
    }

    /// Frees what could not be freed when it was acknowledged or taken out of the lane, because a cursor was in it.
    pub(super) fn free_left(&mut self) {
        if self.acked.0 >= self.boundary && self.cold.runs.is_plain() {
            self.free_released();
        }
        self.reclaim();
    }

    /// Whether everything that was sent is acknowledged.
    pub fn is_idle(&self) -> bool {
        self.acked.next() == self.next
    }

    /// Gives the current chunk back where everything is released, for one of the smallest kind: somebody else needs the memory, and a
    /// lane may not be used again for long. A cursor at the end of the lane holds it until it is looked at and
    /// [`give_spares_back`](Self::give_spares_back) is called. Nothing is changed where there is no memory for the small one.
    pub fn rest(&mut self) {
        let smallest = self.cold.pool.geometry.classes[0].bytes;
        let Some(current) = self.cold.chunks.back() else { return };
        let is_small = self.cold.pool.block_bytes(current.block) <= smallest;
        if is_small || !self.is_idle() || !self.cold.runs.is_plain() || self.cold.rewound.is_some() {
            return;
        }
        let grown = std::mem::take(&mut self.cold.next_class);
        if self.begin_chunk(smallest, self.next, false).is_err() {
            self.cold.next_class = grown;
        }
        self.free_left();
    }

    /// Frees the leading chunks whose records are all released.
    #[cold]
    fn free_released(&mut self) {
        // Without the fence in here, a cursor that is opened on a lane without chunks could be missed by the writer of the
        // first ones, and would find them gone when it looks again.
        let pinned = self.lowest_pin();
        let sealed = self.cold.chunks.len() - 1;
        let count = self
            .cold
            .chunks
            .iter()
            .take(sealed)
            .take_while(|chunk| chunk.last <= self.acked && chunk.pinned_by().0 < pinned)
            .count();
        if count > 0 {
            self.unlink_front(count);
        }
    }

    fn position(&self, chunk: ChunkId) -> Option<usize> {
        self.cold.chunks.binary_search_by_key(&chunk.0, |info| info.header.sequence).ok()
    }

    /// Calls `f` with (SSN, offset, bytes) of each record of a sealed chunk.
    pub(super) fn walk(&self, chunk: &ChunkInfo, mut f: impl FnMut(Ssn, usize, usize)) {
        let arena = self.arena();
        let mut at = chunk.block.at() + CHUNK_HEADER;
        loop {
            match Word::parse(arena.word(at).load(Ordering::Relaxed)) {
                Word::Record { body, .. } => {
                    f(Ssn(arena.word(at + SSN_AT).load(Ordering::Relaxed)), at, footprint(body));
                    at += footprint(body);
                }
                Word::Pad { body } => at += footprint(body),
                Word::End | Word::Empty | Word::Damaged => return,
            }
        }
    }

    /// What a settled chunk holds, from the run table; records are walked only where runs meet inside the chunk.
    fn use_of(&self, chunk: &ChunkInfo) -> SettledChunk {
        let (first, last) = (chunk.header.first, chunk.last);
        let mut settled = SettledChunk {
            chunk: ChunkId(chunk.header.sequence),
            first,
            last,
            held_bytes: self.cold.pool.block_bytes(chunk.block),
            used_bytes: 0,
            newest_epoch: Epoch::default(),
        };
        let (mut released, mut retained) = (false, false);
        for run in self.cold.runs.starting_at(first).take_while(|run| run.first <= last) {
            match run.disposition {
                Disposition::Release => released = true,
                Disposition::Retain { epoch, .. } => {
                    retained = true;
                    settled.newest_epoch = settled.newest_epoch.max(epoch);
                }
            }
        }
        if !released {
            // Pads are not used: a chunk full of them is to be relocated like one full of released records.
            settled.used_bytes = with_header(chunk.record_bytes - chunk.pad_bytes);
        } else if retained {
            self.walk(chunk, |ssn, _, bytes| {
                if !self.cold.runs.is_released(ssn) {
                    settled.used_bytes += bytes;
                }
            });
            settled.used_bytes = with_header(settled.used_bytes);
        }
        settled
    }

    /// Writes the records at these offsets into a new chunk, which is then whole but not yet in the chain.
    fn copy_into_new_chunk(
        &self,
        records: &[(usize, usize)],
        bytes: usize,
        ends: (Ssn, Ssn),
        from: usize,
        to: usize,
    ) -> Result<ChunkInfo, AllocError> {
        let block = self.cold.pool.take_for(CHUNK_HEADER + bytes + RECORD_ALIGN)?;
        let header = ChunkHeader {
            lane: self.peer(),
            sequence: self.cold.chunks[to].header.sequence,
            first: ends.0,
            replaces: self.cold.chunks[from].header.replaces,
            sparse: true,
        };
        let arena = self.arena();
        header.write(arena, block);
        write_state(arena, block.at(), ChunkState::Staged);
        let mut to_at = block.at() + CHUNK_HEADER;
        for &(at, footprint) in records {
            arena.copy(at, to_at, footprint);
            to_at += footprint;
        }
        arena.word(to_at).store(END_WORD, Ordering::Relaxed);
        arena.word(block.at() + LAST_AT).store(sealed_word(ends.1), Ordering::Relaxed);
        self.count_held(self.cold.pool.block_bytes(block) as isize);
        Ok(ChunkInfo { block, header, last: ends.1, record_bytes: bytes, pad_bytes: 0 })
    }

    /// Puts `replacement` in the place of `count` chunks from `index` on.
    fn replace(&mut self, index: usize, count: usize, replacement: Option<ChunkInfo>) {
        if let Some(new) = &replacement {
            let after = self.cold.chunks[index + count].block;
            let arena = &self.cold.pool.arena;
            arena.word(new.block.at() + NEXT_AT).store(after.0, Ordering::Release);
            // From this store on the originals no longer count in a recovery.
            write_state(arena, new.block.at(), ChunkState::Active);
        }
        let link = replacement.as_ref().map(|new| new.block);
        if index == 0 {
            let removed: Vec<ChunkInfo> = self.cold.chunks.drain(..count).collect();
            if let Some(new) = replacement {
                self.cold.chunks.push_front(new);
            }
            self.publish_front();
            self.forget_old_runs();
            self.retire_all(&removed);
        } else {
            self.unlink_after(index, count, link);
            if let Some(new) = replacement {
                self.cold.chunks.insert(index, new);
            }
        }
        self.set_boundary();
    }

    /// Takes `count` chunks from `index` > 0 on out of the chain, linking their predecessor to `link` or their successor.
    fn unlink_after(&mut self, index: usize, count: usize, link: Option<BlockRef>) {
        let link = link.unwrap_or(self.cold.chunks[index + count].block);
        let before = self.cold.chunks[index - 1].block;
        // Release: a cursor that follows the link sees the chunk behind it.
        self.arena().word(before.at() + NEXT_AT).store(link.0, Ordering::Release);
        let removed: Vec<ChunkInfo> = self.cold.chunks.drain(index..index + count).collect();
        self.retire_all(&removed);
    }

    fn retire_all(&mut self, removed: &[ChunkInfo]) {
        removed.iter().for_each(|chunk| self.retire(chunk));
        self.reclaim();
    }
}
