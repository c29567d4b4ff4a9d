//! Lanes that a recovery finds in a dead process's file.

use std::collections::VecDeque;

use crate::chunk::{BlockRef, CHUNK_HEADER, ChunkHeader, LAST_AT, NEXT_AT, OPEN, sealed_last, write_end};
use crate::lane::ChunkInfo;
use crate::nouns::{Rank, Ssn};
use crate::pool::Pool;
use crate::record::{END_WORD, RECORD_ALIGN, SSN_AT, Word, footprint};
use crate::shared_log::DamageError;
use crate::sync::Ordering;

/// A lane that a recovery found.
#[derive(Debug)]
pub(crate) struct RecoveredLane {
    pub(crate) peer: Rank,
    pub(crate) chunks: VecDeque<ChunkInfo>,
    /// Offset of the end of the last record.
    pub(crate) at: usize,
    /// The SSN after the last record.
    pub(crate) next: Ssn,
    /// Originals of relocations that were complete.
    pub(crate) superseded: Vec<BlockRef>,
}

/// Returns the lanes of a file's active chunks, each checked word by word.
pub(crate) fn order_lanes(
    pool: &Pool,
    mut active: Vec<(BlockRef, ChunkHeader)>,
) -> Result<Vec<RecoveredLane>, DamageError> {
    active.sort_by_key(|(_, header)| (header.lane, header.sequence, header.replaces));
    let mut lanes = Vec::new();
    for chunks in active.chunk_by(|(_, a), (_, b)| a.lane == b.lane) {
        // One store makes a relocated chunk active, and its originals are freed after it: until then both are active. If a
        // relocated chunk was relocated again, either copy supersedes the originals: the later has at most what the earlier has.
        let is_superseded = |(block, header): &(BlockRef, ChunkHeader)| {
            chunks.iter().any(|(other, by)| {
                let covers = by.replaces <= header.replaces && by.sequence >= header.sequence;
                let same = by.replaces == header.replaces && by.sequence == header.sequence && header.sparse;
                by.sparse && covers && (!same || other.0 < block.0)
            })
        };
        let (superseded, live): (Vec<_>, Vec<_>) = chunks.iter().partition(|chunk| is_superseded(chunk));
        lanes.push(read_lane(pool, &live, superseded.iter().map(|(block, _)| *block).collect())?);
    }
    Ok(lanes)
}

/// Reads the chunks of a lane and checks every word.
fn read_lane(
    pool: &Pool,
    chunks: &[&(BlockRef, ChunkHeader)],
    superseded: Vec<BlockRef>,
) -> Result<RecoveredLane, DamageError> {
    let mut lane = RecoveredLane {
        peer: chunks.first().map_or(Rank(0), |(_, header)| header.lane),
        chunks: VecDeque::new(),
        at: 0,
        next: Ssn::FIRST,
        superseded,
    };
    for (index, &&(block, header)) in chunks.iter().enumerate() {
        let is_last = index + 1 == chunks.len();
        let damaged = |at, what| Err(DamageError::Damaged { at, what });
        if header.first < lane.next {
            return damaged(block.at(), "a chunk begins before its predecessor ends");
        }
        if index > 0 && chunks[index - 1].1.sequence == header.sequence {
            return damaged(block.at(), "two chunks have the same position in a lane");
        }
        let mut next = header.first;
        let (mut at, mut pad_bytes) = (block.at() + CHUNK_HEADER, 0);
        let end = block.at() + pool.block_bytes(block) - RECORD_ALIGN;
        loop {
            let body = match Word::parse(pool.arena.word(at).load(Ordering::Acquire)) {
                Word::Record { body, .. } | Word::Pad { body } if at + footprint(body) > end => {
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
                Word::End if is_last && pool.arena.word(block.at() + NEXT_AT).load(Ordering::Relaxed) == 0 => {
                    return damaged(at, "the last chunk of a lane says that another follows");
                }
                // Empty in a chunk that is not the last: the owner died after it began a chunk and before it sealed this one.
                Word::End | Word::Empty => break,
                Word::Damaged => return damaged(at, "a commit word fails its check"),
            };
            at += footprint(body);
        }
        let sealed = pool.arena.word(block.at() + LAST_AT).load(Ordering::Relaxed);
        if sealed != OPEN && sealed_last(sealed) != next.prev() {
            return damaged(block.at() + LAST_AT, "a chunk's last sequence number isn't the one in its header");
        }
        lane.chunks.push_back(ChunkInfo {
            block,
            header,
            last: next.prev(),
            record_bytes: at - block.at() - CHUNK_HEADER,
            pad_bytes,
        });
        (lane.at, lane.next) = (at, next);
    }
    Ok(lane)
}

/// Links a recovered lane's chunks, also where the owner died before it did.
pub(crate) fn relink(pool: &Pool, lane: &RecoveredLane) {
    let blocks: Vec<&ChunkInfo> = lane.chunks.iter().collect();
    for pair in blocks.windows(2) {
        let at = pair[0].block.at();
        pool.arena.word(at + NEXT_AT).store(pair[1].block.0, Ordering::Release);
        pool.arena.word(at + CHUNK_HEADER + pair[0].record_bytes).store(END_WORD, Ordering::Release);
        write_end(&pool.arena, at, pair[0].last, pair[0].record_bytes, pair[0].pad_bytes);
    }
    if let Some(last) = lane.chunks.back() {
        pool.arena.word(last.block.at() + NEXT_AT).store(0, Ordering::Release);
        pool.arena.word(last.block.at() + LAST_AT).store(OPEN, Ordering::Release);
        pool.arena.word(lane.at).store(0, Ordering::Release);
    }
}
