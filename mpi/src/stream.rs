//! Counting within a stream, in place of carrying a number.
//!
//! A stream is (source, destination, communicator, tag): MPI lets no message of one overtake another. So the n-th that is sent
//! is the n-th that is received, and both sides know n by counting. `docs/piggyback.md` says what to count when.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

/// A stream as one of its ends sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream {
    /// The rank at the other end, in MPI_COMM_WORLD.
    pub peer: u32,
    /// The communicator: a number that all its members know it by, never that of another.
    pub comm: u32,
    /// The tag.
    pub tag: i32,
}

/// How many messages each stream has had.
///
/// ```
/// use counterfoil_mpi::stream::{Stream, Streams};
///
/// let mut sent = Streams::default();
/// let (one, other) = (Stream { peer: 1, comm: 0, tag: 7 }, Stream { peer: 1, comm: 0, tag: 8 });
/// assert_eq!((sent.next(one), sent.next(other), sent.next(one)), (1, 1, 2));
/// assert_eq!(sent.count(other), 1);
/// ```
#[derive(Debug, Default)]
pub struct Streams(HashMap<Key, u64, FxBuildHasher>);

/// A stream in two words: three, put down one by one and looked at in pairs, would make each look-up wait for the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    comm_and_tag: u64,
    peer: u32,
}

impl Key {
    #[inline]
    pub(crate) fn comm(self) -> u32 {
        (self.comm_and_tag >> 32) as u32
    }

    #[inline]
    pub(crate) fn tag(self) -> i32 {
        self.comm_and_tag as u32 as i32
    }
}

impl From<Stream> for Key {
    #[inline]
    fn from(stream: Stream) -> Key {
        Key { comm_and_tag: u64::from(stream.comm) << 32 | u64::from(stream.tag as u32), peer: stream.peer }
    }
}

impl Streams {
    /// Counts a message, and gives its number, from 1.
    #[inline]
    pub fn next(&mut self, stream: Stream) -> u64 {
        let stream = Key::from(stream);
        let Some(count) = self.0.get_mut(&stream) else { return self.first(stream) };
        *count += 1;
        *count
    }

    #[cold]
    fn first(&mut self, stream: Key) -> u64 {
        self.0.insert(stream, 1);
        1
    }

    /// How many messages the stream has had.
    #[inline]
    pub fn count(&self, stream: Stream) -> u64 {
        self.0.get(&stream.into()).copied().unwrap_or(0)
    }

    /// Forgets a stream: its count is 0 from here on.
    pub fn forget(&mut self, stream: Stream) {
        self.0.remove(&stream.into());
    }

    /// How many streams are counted.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the count to `count` if it is lower: what a cumulative acknowledgement does.
    pub fn raise(&mut self, stream: Stream, count: u64) {
        let known = self.0.entry(stream.into()).or_insert(0);
        *known = count.max(*known);
    }
}
