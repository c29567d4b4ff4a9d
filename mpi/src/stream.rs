//! Counting within a stream, in place of carrying a number.
//!
//! A stream is (source, destination, communicator, tag): MPI lets no message of one overtake another. So the n-th that is sent
//! is the n-th that is received, and both sides know n by counting. `docs/piggyback.md` says what to count when.

use rustc_hash::FxHashMap;

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

/// A stream in two words: three, put down one by one and looked at in pairs, would make each look-up wait for the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    comm_and_tag: u64,
    peer: u32,
}

impl Key {
    #[inline]
    pub(crate) fn peer(self) -> u32 {
        self.peer
    }

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

/// Where something is kept for a stream, for good: who meets the same stream again looks there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(usize);

impl Place {
    /// Of no stream.
    pub const NOWHERE: Place = Place(usize::MAX);
}

/// Something for each stream that was met.
#[derive(Debug)]
pub(crate) struct Table<T> {
    places: FxHashMap<Key, Place>,
    values: Vec<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table { places: FxHashMap::default(), values: Vec::new() }
    }
}

impl<T> Table<T> {
    /// Where a stream is, with `new` if it wasn't met before.
    #[inline]
    pub(crate) fn place(&mut self, stream: Key, new: impl FnOnce() -> T) -> Place {
        match self.places.get(&stream) {
            Some(place) => *place,
            None => self.add(stream, new()),
        }
    }

    #[cold]
    fn add(&mut self, stream: Key, new: T) -> Place {
        let place = Place(self.values.len());
        self.values.push(new);
        self.places.insert(stream, place);
        place
    }

    /// What is kept at a place of this table.
    #[inline]
    pub(crate) fn at(&mut self, place: Place) -> &mut T {
        &mut self.values[place.0]
    }

    fn get(&self, stream: Key) -> Option<&T> {
        self.values.get(self.places.get(&stream)?.0)
    }
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
///
/// let place = sent.place(one);
/// assert_eq!(sent.next_at(place), 3);
/// ```
#[derive(Debug, Default)]
pub struct Streams(Table<u64>);

impl Streams {
    /// Counts a message, and gives its number, from 1.
    #[inline]
    pub fn next(&mut self, stream: Stream) -> u64 {
        let place = self.place(stream);
        self.next_at(place)
    }

    /// Where a stream is counted.
    #[inline]
    pub fn place(&mut self, stream: Stream) -> Place {
        self.0.place(stream.into(), || 0)
    }

    /// Counts a message of the stream at this place, and gives its number.
    ///
    /// # Panics
    /// Where the place is another counter's.
    #[inline]
    pub fn next_at(&mut self, place: Place) -> u64 {
        let count = self.0.at(place);
        *count += 1;
        *count
    }

    /// How many messages the stream at this place has had.
    ///
    /// # Panics
    /// Where the place is another counter's.
    #[inline]
    pub fn count_at(&self, place: Place) -> u64 {
        self.0.values[place.0]
    }

    /// How many messages the stream has had.
    #[inline]
    pub fn count(&self, stream: Stream) -> u64 {
        self.0.get(stream.into()).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_its_stream_whatever_else_is_met() {
        let mut streams = Streams::default();
        let stream = |tag| Stream { peer: 1, comm: 2, tag };
        let place = streams.place(stream(-5));
        for tag in 0..1000 {
            assert_eq!((streams.next(stream(tag)), streams.next_at(place)), (1, tag as u64 + 1));
        }
        assert_eq!(
            (streams.place(stream(-5)), streams.count_at(place), streams.count(stream(-5))),
            (place, 1000, 1000)
        );
        assert_eq!((streams.count(stream(7)), streams.count(stream(1000))), (1, 0));
        assert_ne!(streams.place(stream(7)), streams.place(Stream { comm: 3, ..stream(7) }));
    }
}
