//! Lanes found by a recovery in a dead process's file.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

use crate::chunk::{BlockRef, CHUNK_HEADER, ChunkHeader, ChunkInfo, LAST_AT, NEXT_AT, OPEN, sealed_last, write_end};
use crate::damage::DamageError;
use crate::nouns::{Rank, Ssn};
use crate::pool::Pool;
use crate::record::{END_WORD, RECORD_ALIGN, SSN_AT, Word, footprint};
use crate::sync::Ordering;

/// Highest chunk position in a lane: 2^62 chunks have more records than a lane has sequence numbers.
const SEQUENCE_MAX: u64 = 1 << 62;

type ActiveChunk = (BlockRef, ChunkHeader);

/// A lane found by a recovery.
#[derive(Debug)]
pub(crate) struct RecoveredLane {
    pub(crate) peer: Rank,
    pub(crate) chunks: VecDeque<ChunkInfo>,
    /// End offset of the last record.
    pub(crate) at: usize,
    /// The SSN after the last record.
    pub(crate) next: Ssn,
    /// Originals of completed relocations.
    pub(crate) superseded: Vec<BlockRef>,
}

/// Returns the lanes from a file's active chunks, each checked word by word.
///
/// Takes n log n steps for n chunks, plus the walk over the records.
pub(crate) fn order_lanes(pool: &Pool, mut active: Vec<ActiveChunk>) -> Result<Vec<RecoveredLane>, DamageError> {
    active.iter().try_for_each(check_header)?;
    sort(&mut active);
    active.chunk_by(|(_, a), (_, b)| a.lane == b.lane).map(|chunks| read_lane(pool, chunks)).collect()
}

/// Sorts chunks by their lanes; in a lane, each comes after all chunks possibly superseding it.
fn sort<C: Borrow<ActiveChunk>>(active: &mut [C]) {
    active.sort_by_key(|chunk| {
        let (block, header) = chunk.borrow();
        (header.lane, Reverse(header.sequence), header.replaces, !header.sparse, block.0)
    });
}

/// Checks SSN and position against a lane's limits.
fn check_header((block, header): &ActiveChunk) -> Result<(), DamageError> {
    let positions = 1..=SEQUENCE_MAX;
    let what = if !(Ssn::FIRST..Ssn::MAX).contains(&header.first) {
        "a chunk's first sequence number is out of its limits"
    } else if !positions.contains(&header.sequence)
        || !(1..=header.sequence).contains(&header.replaces)
        || (!header.sparse && header.replaces != header.sequence)
    {
        "a chunk's position in its lane is out of its limits"
    } else {
        return Ok(());
    };
    Err(DamageError::Damaged { at: block.at(), what })
}

/// Separates a lane's chunks, in [`sort`] order, into used ones, oldest first, and superseded ones.
///
/// One store makes a relocated chunk active, and its originals are freed after it: until then both are active. If a
/// relocated chunk was relocated again, either copy supersedes the originals: the later has at most what the earlier
/// has.
fn split_superseded<C: Borrow<ActiveChunk> + Copy>(chunks: &[C]) -> (Vec<C>, Vec<C>) {
    let (mut live, mut superseded) = (Vec::new(), Vec::new());
    // Lowest position replaced by a relocated chunk, among those with the same or a later position.
    let mut replaced_from = u64::MAX;
    for chunk in chunks {
        let (_, header) = chunk.borrow();
        if replaced_from <= header.replaces {
            superseded.push(*chunk)
        } else {
            live.push(*chunk)
        }
        if header.sparse {
            replaced_from = replaced_from.min(header.replaces);
        }
    }
    live.reverse();
    (live, superseded)
}

/// Reads a lane's chunks and checks every word.
fn read_lane(pool: &Pool, chunks: &[ActiveChunk]) -> Result<RecoveredLane, DamageError> {
    let (live, superseded) = split_superseded(chunks);
    let mut lane = RecoveredLane {
        peer: chunks.first().map_or(Rank(0), |(_, header)| header.lane),
        chunks: VecDeque::with_capacity(live.len()),
        at: 0,
        next: Ssn::FIRST,
        superseded: superseded.iter().map(|(block, _)| *block).collect(),
    };
    let mut links = Links { live: &live, superseded: &superseded, positions: HashMap::new() };
    for (index, &(block, header)) in live.iter().enumerate() {
        let damaged = |at, what| Err(DamageError::Damaged { at, what });
        let before = index.checked_sub(1).map(|before| &live[before].1);
        if before.is_some_and(|before| before.sequence >= header.replaces) {
            return damaged(block.at(), "two chunks have the same position in a lane");
        }
        if header.first < lane.next {
            return damaged(block.at(), "a chunk begins before its predecessor ends");
        }
        // SSNs are missing where a chunk between them was freed, and where records were relocated or imported.
        let follows = |before: &ChunkHeader| !before.sparse && !header.sparse && before.sequence + 1 == header.sequence;
        if header.first != lane.next && before.is_some_and(follows) {
            return damaged(block.at(), "records are missing before a chunk");
        }
        let read = read_chunk(pool, block, &header)?;
        links.check(pool, index, &read)?;
        (lane.at, lane.next) = (read.at, read.next);
        lane.chunks.push_back(ChunkInfo {
            block,
            header,
            last: read.next.prev(),
            record_bytes: read.at - block.at() - CHUNK_HEADER,
            pad_bytes: read.pad_bytes,
        });
    }
    Ok(lane)
}

/// Records of a chunk.
struct ReadChunk {
    /// End offset of the last record, and the commit word there.
    at: usize,
    end: Word,
    /// The SSN after the last record.
    next: Ssn,
    pad_bytes: usize,
}

/// Walks a chunk's records.
fn read_chunk(pool: &Pool, block: BlockRef, header: &ChunkHeader) -> Result<ReadChunk, DamageError> {
    let damaged = |at, what| Err(DamageError::Damaged { at, what });
    let mut next = header.first;
    let (mut at, mut pad_bytes) = (block.at() + CHUNK_HEADER, 0);
    let limit = block.at() + pool.block_bytes(block) - RECORD_ALIGN;
    let end = loop {
        let body = match Word::parse(pool.arena.word(at).load(Ordering::Acquire)) {
            Word::Record { body, .. } | Word::Pad { body } if at + footprint(body) > limit => {
                return damaged(at, "a record ends outside its chunk");
            }
            Word::Record { body, .. } => {
                let ssn = Ssn(pool.arena.word(at + SSN_AT).load(Ordering::Relaxed));
                if ssn < next || (ssn != next && !header.sparse) || ssn >= Ssn::MAX {
                    return damaged(at + SSN_AT, "a record's sequence number doesn't follow");
                }
                next = ssn.next();
                body
            }
            Word::Pad { body } => {
                pad_bytes += footprint(body);
                body
            }
            Word::Damaged => return damaged(at, "a commit word fails its check"),
            end @ (Word::End | Word::Empty) => break end,
        };
        at += footprint(body);
    };
    let sealed = pool.arena.word(block.at() + LAST_AT).load(Ordering::Relaxed);
    if sealed != OPEN {
        let last = sealed_last(sealed);
        // SSNs may have been skipped after a sparse chunk's last record.
        if last < next.prev() || (last != next.prev() && !header.sparse) || last >= Ssn::MAX {
            return damaged(block.at() + LAST_AT, "a chunk's last sequence number isn't the one in its header");
        }
        next = last.next();
    }
    Ok(ReadChunk { at, end, next, pad_bytes })
}

/// Links between a lane's chunks.
///
/// A recovery builds the chain anew, but a link to a missing chunk shows that it is lost.
struct Links<'a, C> {
    live: &'a [C],
    superseded: &'a [C],
    /// Positions of live chunks, with superseded ones at the end position: filled when a link is looked up.
    positions: HashMap<BlockRef, usize>,
}

impl<C: Borrow<ActiveChunk>> Links<'_, C> {
    /// Checks how the chunk at `index` ends, and its link.
    fn check(&mut self, pool: &Pool, index: usize, read: &ReadChunk) -> Result<(), DamageError> {
        let (block, _) = self.live[index].borrow();
        let damaged = |at, what| Err(DamageError::Damaged { at, what });
        let link = BlockRef(pool.arena.word(block.at() + NEXT_AT).load(Ordering::Relaxed));
        let Some((following, _)) = self.live.get(index + 1).map(Borrow::borrow) else {
            if read.end == Word::End && link.is_none() {
                return damaged(read.at, "the last chunk of a lane says that another follows");
            }
            return Ok(());
        };
        if read.end == Word::Empty {
            // The owner died after it began the lane's last chunk and before it sealed this one: the last one is empty.
            let is_begun = index + 2 == self.live.len()
                && pool.arena.word(following.at() + CHUNK_HEADER).load(Ordering::Acquire) == 0;
            if !is_begun {
                return damaged(read.at, "a chunk that another follows has no end");
            }
            if link.is_none() {
                return Ok(());
            }
        }
        // The link skips chunks being freed, or leads to the original of a chunk being relocated.
        if link != *following && self.position(link) <= index {
            return damaged(block.at() + NEXT_AT, "a chunk's link leads to no chunk after it");
        }
        Ok(())
    }

    /// Returns a live chunk's position, the number of live chunks for a superseded one, and 0 for others.
    fn position(&mut self, block: BlockRef) -> usize {
        if self.positions.is_empty() {
            self.positions.extend(self.live.iter().enumerate().map(|(index, live)| (live.borrow().0, index)));
            self.positions.extend(self.superseded.iter().map(|chunk| (chunk.borrow().0, self.live.len())));
        }
        self.positions.get(&block).copied().unwrap_or(0)
    }
}

/// Links a recovered lane's chunks, also where the owner died before it did.
pub(crate) fn relink(pool: &Pool, lane: &RecoveredLane) {
    for (chunk, following) in lane.chunks.iter().zip(lane.chunks.iter().skip(1)) {
        let at = chunk.block.at();
        pool.arena.word(at + NEXT_AT).store(following.block.0, Ordering::Release);
        pool.arena.word(at + CHUNK_HEADER + chunk.record_bytes).store(END_WORD, Ordering::Release);
        write_end(&pool.arena, at, chunk.last, chunk.record_bytes, chunk.pad_bytes);
    }
    if let Some(last) = lane.chunks.back() {
        pool.arena.word(last.block.at() + LAST_AT).store(OPEN, Ordering::Release);
        pool.arena.word(lane.at).store(0, Ordering::Release);
        pool.arena.word(last.block.at() + NEXT_AT).store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;
    #[cfg(not(counterfoil_loom))]
    use crate::{
        chunk::{ChunkState, read_state, sealed_word},
        lane::LaneWriter,
        options::PoolOptions,
        record::{pad_word, record_word},
        sync::Arc,
    };

    #[cfg(not(counterfoil_loom))]
    fn four_chunks() -> (Arc<Pool>, Vec<ActiveChunk>) {
        some_chunks(4)
    }

    /// Returns a lane's pool and its chunks with one record each; the last chunk is not sealed.
    #[cfg(not(counterfoil_loom))]
    fn some_chunks(count: usize) -> (Arc<Pool>, Vec<ActiveChunk>) {
        let options = PoolOptions { memory_bytes_max: 64 << 10, chunk_bytes: 4096, prefault_bytes: 0, cursors_max: 1 };
        let pool = Pool::volatile(options).unwrap();
        let mut lane = LaneWriter::new(pool.clone(), Rank(1));
        for _ in 0..count {
            lane.claim(0, 3000).unwrap().commit();
        }
        // The chunks stay in the lane.
        std::mem::forget(lane);
        let class = pool.geometry.classes[0];
        let blocks = (0..class.blocks).map(|index| BlockRef::new(class.region + index * class.bytes, 0));
        let active = blocks.filter(|block| read_state(&pool.arena, block.at()).0 == ChunkState::Active);
        let chunks = active.map(|block| (block, ChunkHeader::read(&pool.arena, block).unwrap())).collect();
        (pool, chunks)
    }

    #[cfg(not(counterfoil_loom))]
    fn what(result: Result<Vec<RecoveredLane>, DamageError>) -> Result<Ssn, &'static str> {
        match result {
            Ok(lanes) => Ok(lanes[0].next),
            Err(DamageError::Damaged { what, .. }) => Err(what),
            Err(other) => panic!("{other}"),
        }
    }

    #[cfg(not(counterfoil_loom))]
    #[test]
    fn a_chunk_continues_its_predecessor() {
        let (pool, chunks) = four_chunks();
        assert_eq!((chunks.len(), what(order_lanes(&pool, chunks.clone()))), (4, Ok(Ssn(5))));
        let with = |index: usize, first: u64| {
            let mut chunks = chunks.clone();
            let at = chunks.iter().position(|(_, header)| header.sequence == index as u64 + 1).unwrap();
            chunks[at].1.first = Ssn(first);
            what(order_lanes(&pool, chunks))
        };
        for index in 1..4 {
            let first = index as u64 + 1;
            assert_eq!(with(index, first + 1), Err("records are missing before a chunk"));
            assert_eq!(with(index, first - 1), Err("a chunk begins before its predecessor ends"));
        }
    }

    /// The owner dies after it began a chunk, and before it ended the one before.
    #[cfg(not(counterfoil_loom))]
    #[test]
    fn only_the_chunk_before_an_empty_last_one_may_have_no_end() {
        for count in 2..6 {
            for (without_end, last_is_empty) in (0..count - 1).flat_map(|at| [(at, false), (at, true)]) {
                let (pool, mut chunks) = some_chunks(count);
                chunks.sort_by_key(|(_, header)| header.sequence);
                let store = |at: usize, value: u64| pool.arena.word(at).store(value, Ordering::Relaxed);
                let at = chunks[without_end].0.at();
                let end = read_chunk(&pool, chunks[without_end].0, &chunks[without_end].1).unwrap().at;
                [end, at + NEXT_AT].into_iter().for_each(|at| store(at, 0));
                store(at + LAST_AT, OPEN);
                if last_is_empty {
                    store(chunks[count - 1].0.at() + CHUNK_HEADER, 0);
                }
                let expected = if without_end == count - 2 && last_is_empty {
                    Ok(Ssn(count as u64))
                } else {
                    Err("a chunk that another follows has no end")
                };
                assert_eq!(
                    what(order_lanes(&pool, chunks)),
                    expected,
                    "chunk {without_end} of {count}, {last_is_empty}"
                );
            }
        }
    }

    #[cfg(not(counterfoil_loom))]
    fn in_order() -> (Arc<Pool>, Vec<ActiveChunk>) {
        let (pool, mut chunks) = four_chunks();
        chunks.sort_by_key(|(_, header)| header.sequence);
        (pool, chunks)
    }

    #[cfg(not(counterfoil_loom))]
    #[test]
    fn a_record_ends_inside_its_chunk() {
        let (pool, chunks) = in_order();
        let (block, header) = chunks[3];
        let record = block.at() + CHUNK_HEADER;
        let limit = block.at() + pool.block_bytes(block) - RECORD_ALIGN;
        let largest = (1..4096).rev().find(|body| record + footprint(*body) <= limit).unwrap();
        let with = |word: u64| {
            pool.arena.word(record).store(word, Ordering::Relaxed);
            read_chunk(&pool, block, &header).map(|read| read.at)
        };
        for word in [record_word(0, largest), pad_word(largest)] {
            assert_eq!(with(word), Ok(limit));
        }
        for word in [record_word(0, largest + 1), pad_word(largest + 1), record_word(0, 1 << 30)] {
            assert_eq!(with(word), Err(DamageError::Damaged { at: record, what: "a record ends outside its chunk" }));
        }
    }

    #[cfg(not(counterfoil_loom))]
    #[test]
    fn numbers_in_a_chunk_follow_each_other_and_the_last_is_that_of_its_end() {
        let (pool, chunks) = in_order();
        let (block, header) = chunks[1];
        let sparse = ChunkHeader { sparse: true, ..header };
        let ssn_at = block.at() + CHUNK_HEADER + SSN_AT;
        let last_at = block.at() + LAST_AT;
        let with = |at: usize, value: u64, header: &ChunkHeader| {
            let word = pool.arena.word(at);
            let before = word.swap(value, Ordering::Relaxed);
            let read = read_chunk(&pool, block, header).map(|read| read.next.0);
            word.store(before, Ordering::Relaxed);
            read
        };
        let record = Err(DamageError::Damaged { at: ssn_at, what: "a record's sequence number doesn't follow" });
        let what = "a chunk's last sequence number isn't the one in its header";
        let end = Err(DamageError::Damaged { at: last_at, what });
        assert_eq!(header.first, Ssn(2));
        assert_eq!(read_chunk(&pool, block, &header).map(|read| read.next), Ok(Ssn(3)));
        for (ssn, of_dense, of_sparse) in [(1, &record, &record), (3, &record, &end), (Ssn::MAX.0, &record, &record)] {
            assert_eq!(&with(ssn_at, ssn, &header), of_dense, "record {ssn}");
            assert_eq!(&with(ssn_at, ssn, &sparse), of_sparse, "record {ssn} of a sparse chunk");
        }
        for (last, of_sparse) in [(1, end.clone()), (3, Ok(4)), (Ssn::MAX.0, end.clone())] {
            assert_eq!(with(last_at, sealed_word(Ssn(last)), &header), end, "the last is {last}");
            assert_eq!(
                with(last_at, sealed_word(Ssn(last)), &sparse),
                of_sparse,
                "the last of a sparse chunk is {last}"
            );
        }
    }

    #[cfg(not(counterfoil_loom))]
    #[test]
    fn a_link_leads_to_a_chunk_that_comes_later() {
        for (from, to) in (0..3).flat_map(|from| (0..4).map(move |to| (from, to))) {
            let (pool, chunks) = in_order();
            let at = chunks[from].0.at() + NEXT_AT;
            pool.arena.word(at).store(chunks[to].0.0, Ordering::Relaxed);
            let found = order_lanes(&pool, chunks.clone()).map(|lanes| lanes[0].next);
            let what = "a chunk's link leads to no chunk after it";
            let expected = if to > from { Ok(Ssn(5)) } else { Err(DamageError::Damaged { at, what }) };
            assert_eq!(found, expected, "from {from} to {to}");
            // A link to no chunk in the lane.
            pool.arena.word(at).store(BlockRef::new(chunks[3].0.at() + (8 << 12), 0).0, Ordering::Relaxed);
            assert_eq!(order_lanes(&pool, chunks).err(), Some(DamageError::Damaged { at, what }));
        }
    }

    /// The second chunk's link skips the third, the third has no end, and the last is empty.
    #[cfg(not(counterfoil_loom))]
    #[test]
    fn a_recovered_lane_is_linked_anew() {
        let (pool, chunks) = in_order();
        let at: Vec<usize> = chunks.iter().map(|(block, _)| block.at()).collect();
        let ends: Vec<usize> =
            chunks.iter().map(|(block, header)| read_chunk(&pool, *block, header).unwrap().at).collect();
        let store = |at: usize, value: u64| pool.arena.word(at).store(value, Ordering::Relaxed);
        store(at[1] + NEXT_AT, chunks[3].0.0);
        [ends[2], at[2] + NEXT_AT, at[3] + CHUNK_HEADER].into_iter().for_each(|at| store(at, 0));
        store(at[2] + LAST_AT, OPEN);
        let lanes = order_lanes(&pool, chunks.clone()).unwrap();
        // The dead writer may have begun the next record.
        store(at[3] + LAST_AT, sealed_word(Ssn(9)));
        store(at[3] + NEXT_AT, 7);
        relink(&pool, &lanes[0]);
        let word = |at: usize| pool.arena.word(at).load(Ordering::Relaxed);
        for index in 0..3 {
            assert_eq!(word(at[index] + NEXT_AT), chunks[index + 1].0.0, "link of chunk {index}");
            assert_eq!(word(at[index] + LAST_AT), sealed_word(Ssn(index as u64 + 1)), "last of chunk {index}");
            assert_eq!(word(ends[index]), END_WORD, "end of chunk {index}");
        }
        assert_eq!([at[3] + NEXT_AT, at[3] + LAST_AT, at[3] + CHUNK_HEADER].map(word), [0, OPEN, 0]);
    }

    /// A chunk counting look-ups of chunks, and failing beyond a limit.
    #[derive(Clone, Copy)]
    struct CountedChunk<'a> {
        chunk: ActiveChunk,
        looks_left: &'a Cell<u64>,
    }

    impl Borrow<ActiveChunk> for CountedChunk<'_> {
        fn borrow(&self) -> &ActiveChunk {
            self.looks_left
                .set(self.looks_left.get().checked_sub(1).expect("a number of looks that grows with n log n"));
            &self.chunk
        }
    }

    #[test]
    fn each_of_many_chunks_is_looked_at_a_few_times() {
        const CHUNKS: usize = if cfg!(miri) { 1 << 10 } else { 1 << 17 };
        // Twice for each comparison in the sorting, and once each where chunks are separated and where links are looked
        // up.
        let looks_left = Cell::new(CHUNKS as u64 * (2 * u64::from(CHUNKS.ilog2()) + 4));
        let chunk = |index: usize| {
            // Three chunks, four originals, and the chunk these were relocated to.
            let before = 7 * (index / 8) as u64;
            let (replaces, sequence) = match index % 8 {
                7 => (before + 4, before + 7),
                one => (before + one as u64 + 1, before + one as u64 + 1),
            };
            let header = ChunkHeader { lane: Rank(0), sequence, first: Ssn(1), replaces, sparse: index % 8 == 7 };
            CountedChunk { chunk: (BlockRef::new((index + 1) * 4096, 0), header), looks_left: &looks_left }
        };
        // In an order without runs.
        let mut chunks: Vec<_> = (0..CHUNKS).map(|index| chunk(index * 40_503 % CHUNKS)).collect();
        sort(&mut chunks);
        let (live, superseded) = split_superseded(&chunks);
        assert_eq!((live.len(), superseded.len()), (CHUNKS / 2, CHUNKS / 2));
        let mut links = Links { live: &live, superseded: &superseded, positions: HashMap::new() };
        for (index, live) in live.iter().enumerate() {
            assert_eq!(links.position(live.chunk.0), index);
        }
        assert!(superseded.iter().all(|original| links.position(original.chunk.0) == live.len()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 2000 }))]

        #[test]
        fn a_chunk_is_superseded_by_any_relocated_one_that_covers_its_positions(
            drawn in prop::collection::vec((1..8_u64, 0..4_u64, any::<bool>()), 0..12)
        ) {
            let chunk = |(index, &(replaces, more, sparse)): (usize, &(u64, u64, bool))| {
                let sequence = if sparse { replaces + more } else { replaces };
                let header = ChunkHeader { lane: Rank(0), sequence, first: Ssn(1), replaces, sparse };
                (BlockRef::new((index + 1) * 4096, 0), header)
            };
            let mut chunks: Vec<ActiveChunk> = drawn.iter().enumerate().map(chunk).collect();
            let is_superseded = |(block, header): &&ActiveChunk| {
                chunks.iter().any(|(other, by)| {
                    let covers = by.replaces <= header.replaces && by.sequence >= header.sequence;
                    let same = by.replaces == header.replaces && by.sequence == header.sequence && header.sparse;
                    by.sparse && covers && (!same || other.0 < block.0)
                })
            };
            let mut expected: Vec<u64> = chunks.iter().filter(is_superseded).map(|(block, _)| block.0).collect();
            sort(&mut chunks);
            let (live, superseded) = split_superseded(&chunks);
            let mut superseded: Vec<u64> = superseded.iter().map(|(block, _)| block.0).collect();
            expected.sort_unstable();
            superseded.sort_unstable();
            prop_assert_eq!(superseded, expected);
            prop_assert!(live.is_sorted_by_key(|(_, header)| header.sequence));
        }
    }
}
