//! Recently used streams, by the program's handles and ranks, so that another message needs no look-up.
//!
//! A rank's stores after a send wait in the processor after MPI's stores for the other rank, and a processor has room
//! for some 60 such stores. A message on a cached stream costs half of them, and its own bytes; more would delay the
//! answer (`docs/lab/mpi-cost.md`).

use std::ffi::c_int;

use counterfoil_mpi_core::arguments::Outgoing;
use counterfoil_mpi_logger::{CommId, Stream, StreamId};
use mpi_sys as ffi;

use super::{Session, key};

/// Cached streams in one direction, a power of two.
const RECENT: usize = 64;

/// A stream in the program's terms.
///
/// Two words: three would be passed in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamKey {
    /// [`key`] of the communicator's handle.
    comm: usize,
    /// The other end's rank in the communicator, and tag.
    rank_and_tag: u64,
}

impl StreamKey {
    /// Key for no stream: no handle has this number.
    const NONE: StreamKey = StreamKey { comm: usize::MAX, rank_and_tag: 0 };

    /// Returns the key of a message's stream.
    #[inline(always)]
    pub(crate) fn of(out: &Outgoing) -> StreamKey {
        StreamKey::new(out.comm, out.dest, out.tag)
    }

    #[inline]
    pub(crate) fn new(comm: ffi::MPI_Comm, rank: c_int, tag: c_int) -> StreamKey {
        StreamKey { comm: key(comm), rank_and_tag: u64::from(rank as u32) << 32 | u64::from(tag as u32) }
    }

    /// Returns the stream's cache line.
    ///
    /// Neighbours that send a few tags have separate lines: eight neighbours with eight tags, and those above and below
    /// in a grid.
    #[inline(always)]
    fn line(self) -> usize {
        let (rank, tag) = ((self.rank_and_tag >> 32) as usize, self.rank_and_tag as usize);
        // Handles are addresses of objects with some hundred bytes, or integers.
        let comm = self.comm ^ self.comm >> 9;
        comm.wrapping_add(tag).wrapping_add(rank << 3).wrapping_add(rank >> 3) % RECENT
    }
}

/// A stream and its counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamEntry {
    pub(crate) stream: Stream,
    pub(crate) comm: CommId,
    pub(crate) id: StreamId,
}

/// A cached stream, in its own processor cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct CacheLine {
    key: StreamKey,
    entry: StreamEntry,
}

/// Recently used streams in one direction.
#[derive(Debug)]
struct StreamCache(Box<[CacheLine; RECENT]>);

impl StreamCache {
    const EMPTY: CacheLine = {
        let stream = Stream::new(u32::MAX, 0, 0);
        CacheLine { key: StreamKey::NONE, entry: StreamEntry { stream, comm: CommId::NONE, id: StreamId::NONE } }
    };

    fn new() -> StreamCache {
        StreamCache(Box::new([StreamCache::EMPTY; RECENT]))
    }

    #[inline(always)]
    fn has(&self, key: StreamKey) -> bool {
        self.0[key.line()].key == key
    }

    /// Returns the entry for a key that the cache [has](Self::has).
    ///
    /// (An `Option` would be built in memory.)
    #[inline(always)]
    fn at(&self, key: StreamKey) -> StreamEntry {
        self.0[key.line()].entry
    }

    fn put(&mut self, key: StreamKey, entry: StreamEntry) {
        self.0[key.line()] = CacheLine { key, entry };
    }

    fn clear(&mut self) {
        self.0.fill(StreamCache::EMPTY);
    }
}

/// Recently used streams in both directions.
#[derive(Debug)]
pub(super) struct StreamCaches {
    sent: StreamCache,
    received: StreamCache,
}

impl Default for StreamCaches {
    fn default() -> StreamCaches {
        StreamCaches { sent: StreamCache::new(), received: StreamCache::new() }
    }
}

impl StreamCaches {
    /// Drops all entries: a handle may be another communicator's from now on.
    pub(super) fn clear(&mut self) {
        self.sent.clear();
        self.received.clear();
    }
}

impl Session {
    /// Returns the stream for messages sent under this key; `None` if no rank has it, or the communicator isn't logged.
    #[inline(always)]
    pub(crate) fn sent_stream(&mut self, key: StreamKey) -> Option<StreamEntry> {
        (self.streams.sent.has(key) || self.find_sent(key)).then(|| self.streams.sent.at(key))
    }

    #[inline(never)]
    fn find_sent(&mut self, key: StreamKey) -> bool {
        let Some((stream, comm)) = self.find_stream(key) else { return false };
        let id = self.logger.sent().id(stream);
        self.streams.sent.put(key, StreamEntry { stream, comm, id });
        true
    }

    /// Returns the stream for messages received under this key; `None` as for [`sent_stream`](Self::sent_stream).
    #[inline(always)]
    pub(super) fn received_stream(&mut self, key: StreamKey) -> Option<StreamEntry> {
        (self.streams.received.has(key) || self.find_received(key)).then(|| self.streams.received.at(key))
    }

    #[inline(never)]
    fn find_received(&mut self, key: StreamKey) -> bool {
        let Some((stream, comm)) = self.find_stream(key) else { return false };
        let id = self.logger.received_id(stream);
        self.streams.received.put(key, StreamEntry { stream, comm, id });
        true
    }

    /// Returns a key's stream and communicator.
    fn find_stream(&mut self, key: StreamKey) -> Option<(Stream, CommId)> {
        let (rank, tag) = ((key.rank_and_tag >> 32) as c_int, key.rank_and_tag as c_int);
        let id = self.comms.get(key.comm)?;
        let peer = self.logger.comms.get(id)?.world_rank(rank)?;
        Some((Stream::new(peer, id.number(), tag), id))
    }
}

#[cfg(test)]
mod tests {
    use counterfoil_mpi_logger::StreamCounts;

    use super::*;

    #[test]
    fn an_entry_is_found_by_its_whole_key_until_another_takes_its_line() {
        // SAFETY: constants of the shim.
        let (world, itself) = unsafe { (ffi::RSMPI_COMM_WORLD, ffi::RSMPI_COMM_SELF) };
        let (mut cache, mut streams) = (StreamCache::new(), StreamCounts::default());
        let mut entry = |peer, tag| {
            let stream = Stream::new(peer, 0, tag);
            StreamEntry { stream, comm: CommId::NONE, id: streams.id(stream) }
        };
        let key = StreamKey::new(world, 3, -1);
        assert!(!cache.has(key));
        cache.put(key, entry(3, -1));
        assert!(cache.has(key) && cache.at(key).stream.tag == -1);
        for other in [StreamKey::new(itself, 3, -1), StreamKey::new(world, 3, i32::MAX), StreamKey::new(world, -1, 3)] {
            assert!(!cache.has(other), "{other:?}");
        }
        // A tag lower by RECENT has the same line.
        let next = StreamKey::new(world, 3, -1 - RECENT as c_int);
        assert_eq!(next.line(), key.line());
        cache.put(next, entry(3, next.rank_and_tag as c_int));
        assert!(cache.has(next) && !cache.has(key));
        cache.clear();
        assert!(!cache.has(next));
    }

    #[test]
    fn eight_tags_of_eight_neighbours_have_lines_of_their_own() {
        // SAFETY: a constant of the shim.
        let world = unsafe { ffi::RSMPI_COMM_WORLD };
        let keys = (0..64).map(|at| StreamKey::new(world, 40 + at / 8, at % 8));
        let mut lines: Vec<usize> = keys.map(StreamKey::line).collect();
        lines.sort_unstable();
        assert_eq!(lines, (0..RECENT).collect::<Vec<_>>());
        // MPI_PROC_NULL has one, too.
        assert!(StreamKey::new(world, -2, c_int::MIN).line() < RECENT);
    }

    #[test]
    fn neighbours_on_both_sides_in_a_grid_have_lines_of_their_own() {
        // SAFETY: a constant of the shim.
        let world = unsafe { ffi::RSMPI_COMM_WORLD };
        let line = |rank| StreamKey::new(world, rank, 7).line();
        for rank in 500..600 {
            assert_ne!(line(rank - 1), line(rank + 1));
            for row in [4, 8, 16, 32, 64] {
                assert_ne!(line(rank - row), line(rank + row), "rows of {row}");
            }
        }
    }
}
