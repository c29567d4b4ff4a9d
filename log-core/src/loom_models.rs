//! Models of all words shared by two threads, run by loom under every interleaving (up to a number of preemptions) and
//! with every value allowed by the memory orders.
//!
//! They run the shipped code over a memory with loom's atomics for shared words and its cells for body words: a body
//! read during its write, or without a happens-before edge from its last write, fails the model. Blocks have 256 bytes,
//! so that chunks are full after one or two records and are reused at once; from the start they hold plausible records.
//! Shuttle's model uses the same parts. CONTRIBUTING.md explains how to run the models, and lists the mistakes each was
//! seen to catch.

#[cfg(not(counterfoil_shuttle))]
mod appending;
#[cfg(not(counterfoil_shuttle))]
mod collecting;
#[cfg(not(counterfoil_shuttle))]
mod dropping;
#[cfg(not(counterfoil_shuttle))]
mod images;
#[cfg(not(counterfoil_shuttle))]
mod releasing;
#[cfg(not(counterfoil_shuttle))]
mod reusing;
#[cfg(not(counterfoil_shuttle))]
mod spilled;
#[cfg(not(counterfoil_shuttle))]
mod truncating;

use crate::arena::Arena;
use crate::geometry::Geometry;
use crate::lane::{Cursor, LaneWriter};
use crate::nouns::{Epoch, Phase, Rank, Ssn};
use crate::options::{BLOCK_BYTES_MIN, HEADER_BYTES, PoolOptions};
use crate::pool::Pool;
use crate::record::{RECORD_ALIGN, SSN_AT, record_word};
use crate::sync::Arc;
use crate::{ChunkId, Disposition};

const PEER: Rank = Rank(1);

/// Body bytes, four of which fill a chunk.
pub(crate) const QUARTER: usize = 16;
/// Body bytes, two of which fill a chunk.
pub(crate) const HALF: usize = 48;
/// Body bytes to fill a chunk.
pub(crate) const WHOLE: usize = 112;

pub(crate) const RETAIN: Disposition = Disposition::Retain { epoch: Epoch(1), phase: Phase(0) };

#[cfg(not(counterfoil_shuttle))]
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.max_branches = 100_000;
    builder.check(model);
}

/// Makes a pool of `blocks` ordinary chunks and no others, in memory full of plausible records.
pub(crate) fn pool(blocks: usize, cursors_max: usize) -> Arc<Pool> {
    pool_of(BLOCK_BYTES_MIN, blocks, cursors_max)
}

/// Makes a pool like [`pool`], with chunks of `chunk_bytes`.
fn pool_of(chunk_bytes: usize, blocks: usize, cursors_max: usize) -> Arc<Pool> {
    let memory_bytes_max = blocks * chunk_bytes;
    let options = PoolOptions { memory_bytes_max, chunk_bytes, prefault_bytes: 0, cursors_max };
    let mut geometry = Geometry::new(&options);
    let mut chunk = geometry.classes[geometry.chunk_class];
    chunk.region = HEADER_BYTES;
    (geometry.classes, geometry.chunk_class) = (vec![chunk], 0);
    let stale = |at| if at % RECORD_ALIGN == SSN_AT { 1 } else { record_word(0, QUARTER) };
    Pool::over(Arena::modelled(HEADER_BYTES + memory_bytes_max, stale), geometry, options)
}

/// Makes an empty lane in a pool of `blocks` chunks, with room for one cursor.
fn lane(blocks: usize) -> LaneWriter {
    LaneWriter::new(pool(blocks, 1), PEER)
}

/// Makes a lane with the records up to `last`, each in its own chunk.
fn lane_with(blocks: usize, last: u64) -> LaneWriter {
    let mut lane = lane(blocks);
    (1..=last).for_each(|_| append(&mut lane, WHOLE));
    lane
}

/// Returns word `index` in the body of record `ssn` in this `version`: a re-execution sends other bytes.
fn word(version: u64, ssn: u64, index: usize) -> u64 {
    version << 32 | ssn << 8 | index as u64
}

pub(crate) fn append(lane: &mut LaneWriter, body: usize) {
    append_version(lane, body, 0);
}

fn append_version(lane: &mut LaneWriter, body: usize, version: u64) {
    let mut claim = lane.claim(0, body).expect("the pool has a block left");
    let ssn = claim.ssn().0;
    (0..body / 8).for_each(|index| claim.write_word(index, word(version, ssn, index)));
    claim.commit();
}

fn release(lane: &mut LaneWriter, upto: u64) {
    lane.acknowledge(Ssn(upto), Disposition::Release).expect("it was sent");
}

fn retain(lane: &mut LaneWriter, upto: u64) {
    lane.acknowledge(Ssn(upto), RETAIN).expect("it was sent");
}

/// Returns the chunks settled now.
fn settle(lane: &mut LaneWriter) -> Vec<ChunkId> {
    std::iter::from_fn(|| lane.poll_settled()).map(|settled| settled.chunk).collect()
}

/// Returns SSN and version of the record at the cursor, after checking its body.
pub(crate) fn peek(cursor: &mut Cursor) -> Option<(u64, u64)> {
    let (ssn, body) = cursor.peek_words()?;
    Some((ssn.0, version_of(ssn, &body)))
}

/// Returns a record's version, after checking its body.
fn version_of(ssn: Ssn, body: &[u64]) -> u64 {
    let version = body[0] >> 32;
    for (index, found) in body.iter().enumerate() {
        assert_eq!(*found, word(version, ssn.0, index), "word {index} of {ssn}");
    }
    version
}

/// Reads all committed records from the cursor on; returns their SSNs.
fn read(cursor: &mut Cursor) -> Vec<u64> {
    let mut ssns = Vec::new();
    while let Some((ssn, _)) = peek(cursor) {
        ssns.push(ssn);
        cursor.advance();
    }
    ssns
}

/// Asserts that these SSNs begin with `first` and have no gap.
fn assert_contiguous(ssns: &[u64], first: u64) {
    assert!(ssns.iter().copied().eq((first..).take(ssns.len())), "{ssns:?} from {first} on");
}
