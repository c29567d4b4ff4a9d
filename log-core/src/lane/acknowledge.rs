//! Acknowledged records: released, or retained until no recovery can need them.
//!
//! The writer only carries out decisions. Its caller (see the `gc` crate) decides from [`LaneWriter::poll_settled`]
//! which chunks to keep, to relocate or to free.

use crate::chunk::{
    BlockRef, CHUNK_HEADER, ChunkHeader, ChunkInfo, ChunkState, LAST_AT, NEXT_AT, sealed_word, write_state,
};
use crate::lane::runs::{Disposition, Run};
use crate::lane::writer::LaneWriter;
use crate::nouns::{Epoch, Ssn};
use crate::pool::AllocError;
use crate::record::{END_WORD, RECORD_ALIGN, SSN_AT, Word, footprint};
use crate::sync::Ordering;

/// Acknowledgement of a record never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("acknowledged up to {acked}, but only {sent} was sent: refused")]
pub struct AckError {
    /// The acknowledged SSN.
    pub acked: Ssn,
    /// The last sent SSN.
    pub sent: Ssn,
}

/// A chunk's position in its lane; ids grow along the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub u64);

/// A full chunk, acknowledged as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettledChunk {
    /// The chunk.
    pub chunk: ChunkId,
    /// Its first record's SSN.
    pub first: Ssn,
    /// Its last record's SSN.
    pub last: Ssn,
    /// Memory taken by the chunk, in bytes.
    pub held_bytes: usize,
    /// Bytes of its retained records and all headers; 0 if every record is released.
    pub used_bytes: usize,
    /// Newest receive epoch among its retained records; [`Epoch::default`] if there are none.
    pub newest_epoch: Epoch,
}

/// Outcome of [`LaneWriter::relocate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relocated {
    /// The retained records are in this chunk now, and the old chunks are freed.
    Into(SettledChunk),
    /// No record was retained, and the chunks are freed.
    Emptied,
    /// The ids don't name settled chunks in this lane, in order: nothing was done.
    Unknown,
}

/// Adds the chunk's header to its record bytes, unless there are none.
fn with_header(record_bytes: usize) -> usize {
    if record_bytes == 0 { 0 } else { record_bytes + CHUNK_HEADER }
}

impl LaneWriter {
    /// Handles a cumulative acknowledgement: every record up to `upto` was received.
    ///
    /// Ignores an acknowledgement not newer than the last one.
    ///
    /// # Errors
    /// [`AckError`] if `upto` was never sent; nothing is changed then.
    #[inline]
    pub fn acknowledge(&mut self, upto: Ssn, disposition: Disposition) -> Result<(), AckError> {
        if upto <= self.acked {
            return Ok(());
        }
        if upto >= self.next {
            return Err(AckError { acked: upto, sent: self.next.prev() });
        }
        if disposition != Disposition::Release || !self.cold.runs.is_release_only() {
            self.extend_run(upto, disposition);
        }
        self.acked = upto;
        if upto.0 >= self.boundary && self.cold.runs.is_release_only() {
            self.free_released();
        }
        Ok(())
    }

    /// Iterates over the run table: dispositions of acknowledged SSNs, in order.
    ///
    /// Empty in a lane that never retained a record: every record up to [`acked`](Self::acked) is released.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.cold.runs.iter()
    }

    /// Makes the records after `upto` unacknowledged again, because their receiver rolled back.
    ///
    /// Records already released and freed stay lost.
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

    /// Returns the next full and fully acknowledged chunk, in a lane that retains records.
    ///
    /// Reports each once, oldest first; without one the call costs a comparison. The caller decides whether to
    /// [`free`](Self::free), to keep or to [`relocate`](Self::relocate) it.
    pub fn poll_settled(&mut self) -> Option<SettledChunk> {
        if self.acked.0 < self.boundary || self.cold.runs.is_release_only() {
            return None;
        }
        let settled = self.usage_of(&self.cold.chunks[self.cold.settled]);
        self.cold.settled += 1;
        self.set_boundary();
        Some(settled)
    }

    /// Returns the bytes of a chunk's retained records above `floor`, for a chunk partly covered by a checkpoint.
    ///
    /// Walks the chunk's records.
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
    /// Returns `false` if there is no such chunk. Freeing the oldest chunk first is cheapest.
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

    /// Copies the retained records above `floor` in adjacent settled chunks into one of fitting size, and frees the
    /// chunks.
    ///
    /// # Errors
    /// [`AllocError`]; nothing is changed then.
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
        Ok(if kept { Relocated::Into(self.usage_of(&self.cold.chunks[from])) } else { Relocated::Emptied })
    }

    /// Extends the last run (a comparison at most acknowledgements), or begins another.
    #[inline]
    fn extend_run(&mut self, upto: Ssn, disposition: Disposition) {
        if !self.cold.runs.extend(upto, disposition) {
            self.begin_run(upto, disposition);
        }
    }

    #[cold]
    fn begin_run(&mut self, upto: Ssn, disposition: Disposition) {
        if self.cold.runs.is_release_only() {
            // The table starts with the records released before the first retained one.
            let before = self.acked;
            let front = self.cold.chunks.front().filter(|_| !self.cold.keeps_runs);
            let first = front.map_or(Ssn::FIRST, |chunk| chunk.header.first);
            self.cold.runs.begin((before >= first).then_some((first, before)));
        }
        self.cold.runs.push(Run { first: self.acked.next(), last: upto, disposition });
    }

    /// Frees chunks left by cursors since they were acknowledged or taken out of the lane.
    pub(super) fn free_unpinned(&mut self) {
        if self.acked.0 >= self.boundary && self.cold.runs.is_release_only() {
            self.free_released();
        }
        self.reclaim();
    }

    /// Returns `true` if every sent record is acknowledged.
    pub fn is_idle(&self) -> bool {
        self.acked.next() == self.next
    }

    /// Replaces the current chunk by a smallest-class one if every record is released: another lane needs the memory,
    /// and this one may stay unused for long.
    ///
    /// A cursor at the end of the lane holds the old chunk until it reads on and [`return_spares`](Self::return_spares)
    /// is called. Nothing is changed if there is no memory for the small chunk, which may be beyond the budget, if no
    /// other is.
    pub fn shrink_if_idle(&mut self) {
        if self.is_idle() && self.cold.runs.is_release_only() {
            self.leave_current(0);
            self.return_spares();
            self.cold.pool.discard_excess();
        }
    }

    /// Frees the leading, fully released chunks.
    #[cold]
    fn free_released(&mut self) {
        // Without the fence in `lowest_pin`, the writer of a lane's first chunks could miss the pin of a cursor opened
        // before them, and the cursor would find them gone.
        let pinned = self.lowest_pin();
        let sealed = self.cold.chunks.len() - 1;
        let count = self
            .cold
            .chunks
            .iter()
            .take(sealed)
            .take_while(|chunk| chunk.last <= self.acked && chunk.pinned_upto().0 < pinned)
            .count();
        if count > 0 {
            self.unlink_front(count);
        }
    }

    fn position(&self, chunk: ChunkId) -> Option<usize> {
        self.cold.chunks.binary_search_by_key(&chunk.0, |info| info.header.sequence).ok()
    }

    /// Calls `f` with SSN, offset and bytes of each record in a sealed chunk.
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

    /// Describes a settled chunk by the run table; walks its records only if released and retained runs meet in it.
    fn usage_of(&self, chunk: &ChunkInfo) -> SettledChunk {
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
            // Pads don't count as used: a chunk full of pads is worth relocating, like one full of released records.
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

    /// Writes the records at these offsets into a new chunk, complete then but not yet in the chain.
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

    /// Replaces `count` chunks from `index` on by `replacement`.
    fn replace(&mut self, index: usize, count: usize, replacement: Option<ChunkInfo>) {
        if let Some(new) = &replacement {
            let after = self.cold.chunks[index + count].block;
            let arena = &self.cold.pool.arena;
            arena.word(new.block.at() + NEXT_AT).store(after.0, Ordering::Release);
            // From this store on a recovery ignores the originals.
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

    /// Unlinks `count` chunks from `index` > 0 on, and links their predecessor to `link` or to their successor.
    fn unlink_after(&mut self, index: usize, count: usize, link: Option<BlockRef>) {
        let link = link.unwrap_or(self.cold.chunks[index + count].block);
        let before = self.cold.chunks[index - 1].block;
        // Release: a cursor following the link sees the next chunk.
        self.arena().word(before.at() + NEXT_AT).store(link.0, Ordering::Release);
        let removed: Vec<ChunkInfo> = self.cold.chunks.drain(index..index + count).collect();
        self.retire_all(&removed);
    }

    fn retire_all(&mut self, removed: &[ChunkInfo]) {
        removed.iter().for_each(|chunk| self.retire(chunk));
        self.reclaim();
    }
}
