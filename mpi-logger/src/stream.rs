//! Message counts per stream, instead of piggybacked sequence numbers.
//!
//! A stream is (source, destination, communicator, tag). Messages in a stream can't overtake each other, so the n-th
//! sent is the n-th received, and both ends know n by counting. See `docs/book/src/explanation/counting.md` for the
//! counted events.

use counterfoil_profile::RecordTag;
use rustc_hash::FxHashMap;

/// A stream seen from one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream {
    /// The other end's rank in MPI_COMM_WORLD.
    pub peer: u32,
    /// Communicator number, the same on all members and unique in a process.
    pub comm: u32,
    /// MPI tag, or [`COLLECTIVE`](counterfoil_profile::COLLECTIVE) for contributions to collective operations.
    pub tag: i32,
    /// Channel number; 0, except for partitioned messages.
    ///
    /// MPI pairs a stream's n-th MPI_Psend_init with the n-th MPI_Precv_init, in whatever order the pairs are started;
    /// their messages are a stream of their own with channel n.
    pub channel: u32,
}

/// Set in the communicator number in records of partitioned messages.
///
/// No communicator's number has it.
const PARTITIONED: u32 = 1 << 30;
/// Bit position of the channel in a partitioned message's number.
///
/// A channel has fewer than 2³² messages.
const CHANNEL_SHIFT: u32 = 32;

impl Stream {
    /// Returns a stream without partitioned messages.
    #[inline(always)]
    pub const fn new(peer: u32, comm: u32, tag: i32) -> Stream {
        Stream { peer, comm, tag, channel: 0 }
    }

    /// Returns the record header of a message, by its number in the stream.
    #[inline(always)]
    pub fn record_tag(self, number: u64) -> RecordTag {
        let Stream { comm, tag, channel, .. } = self;
        if channel == 0 {
            return RecordTag { comm, tag, number };
        }
        RecordTag { comm: comm | PARTITIONED, tag, number: u64::from(channel) << CHANNEL_SHIFT | number }
    }

    /// Returns a message's stream and number, from its record's header.
    #[inline]
    pub fn of_record(peer: u32, RecordTag { comm, tag, number }: RecordTag) -> (Stream, u64) {
        if comm & PARTITIONED == 0 {
            return (Stream::new(peer, comm, tag), number);
        }
        let channel = (number >> CHANNEL_SHIFT) as u32;
        (Stream { peer, comm: comm & !PARTITIONED, tag, channel }, number & u64::from(u32::MAX))
    }
}

/// A stream packed into two words.
///
/// Four separate words, stored one by one and loaded in pairs, would stall each look-up until the stores reach the
/// cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PackedStream {
    comm_and_tag: u64,
    peer_and_channel: u64,
}

impl PackedStream {
    #[inline]
    pub(crate) fn peer(self) -> u32 {
        (self.peer_and_channel >> 32) as u32
    }
}

impl From<PackedStream> for Stream {
    #[inline]
    fn from(stream: PackedStream) -> Stream {
        let (comm, tag) = ((stream.comm_and_tag >> 32) as u32, stream.comm_and_tag as u32 as i32);
        Stream { peer: stream.peer(), comm, tag, channel: stream.peer_and_channel as u32 }
    }
}

impl From<Stream> for PackedStream {
    #[inline]
    fn from(stream: Stream) -> PackedStream {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        PackedStream {
            comm_and_tag: pair(stream.comm, stream.tag as u32),
            peer_and_channel: pair(stream.peer, stream.channel),
        }
    }
}

/// Index of a stream's counter, valid as long as its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamId(usize);

impl StreamId {
    /// Index without a stream.
    pub const NONE: StreamId = StreamId(usize::MAX);
}

/// A value for each stream, reached by stream or by [`StreamId`].
#[derive(Debug)]
pub(crate) struct StreamTable<T> {
    ids: FxHashMap<PackedStream, StreamId>,
    values: Vec<T>,
}

impl<T> Default for StreamTable<T> {
    fn default() -> StreamTable<T> {
        StreamTable { ids: FxHashMap::default(), values: Vec::new() }
    }
}

impl<T> StreamTable<T> {
    /// Returns a stream's index; inserts `new` for a stream without one.
    #[inline]
    pub(crate) fn id(&mut self, stream: PackedStream, new: impl FnOnce() -> T) -> StreamId {
        match self.ids.get(&stream) {
            Some(id) => *id,
            None => self.add(stream, new()),
        }
    }

    #[cold]
    fn add(&mut self, stream: PackedStream, new: T) -> StreamId {
        let id = StreamId(self.values.len());
        self.values.push(new);
        self.ids.insert(stream, id);
        id
    }

    /// # Panics
    /// If the index is another table's.
    #[inline]
    pub(crate) fn at(&mut self, id: StreamId) -> &mut T {
        &mut self.values[id.0]
    }

    fn get(&self, stream: PackedStream) -> Option<&T> {
        self.values.get(self.ids.get(&stream)?.0)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.values.iter()
    }
}

/// Message count of each stream.
///
/// ```
/// use counterfoil_mpi_logger::{Stream, StreamCounts};
///
/// let mut sent = StreamCounts::default();
/// let (one, other) = (Stream::new(1, 0, 7), Stream::new(1, 0, 8));
/// assert_eq!((sent.next(one), sent.next(other), sent.next(one)), (1, 1, 2));
/// assert_eq!(sent.count(other), 1);
///
/// let id = sent.id(one);
/// assert_eq!(sent.next_at(id), 3);
/// ```
#[derive(Debug, Default)]
pub struct StreamCounts(StreamTable<u64>);

impl StreamCounts {
    /// Counts a message and returns its number, from 1.
    #[inline]
    pub fn next(&mut self, stream: Stream) -> u64 {
        let id = self.id(stream);
        self.next_at(id)
    }

    /// Returns the index of a stream's count.
    #[inline]
    pub fn id(&mut self, stream: Stream) -> StreamId {
        self.0.id(stream.into(), || 0)
    }

    /// Counts a message on the stream with this index and returns its number.
    ///
    /// # Panics
    /// If the index is another table's.
    #[inline]
    pub fn next_at(&mut self, id: StreamId) -> u64 {
        let count = self.0.at(id);
        *count += 1;
        *count
    }

    /// Returns the message count of the stream with this index.
    ///
    /// # Panics
    /// If the index is another table's.
    #[inline]
    pub fn count_at(&self, id: StreamId) -> u64 {
        self.0.values[id.0]
    }

    /// Returns a stream's message count.
    #[inline]
    pub fn count(&self, stream: Stream) -> u64 {
        self.0.get(stream.into()).copied().unwrap_or(0)
    }

    /// Returns the total message count.
    ///
    /// Takes time linear in the number of streams.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_counts_its_stream_whatever_streams_are_added() {
        let mut streams = StreamCounts::default();
        let stream = |tag| Stream::new(1, 2, tag);
        let id = streams.id(stream(-5));
        for tag in 0..1000 {
            assert_eq!((streams.next(stream(tag)), streams.next_at(id)), (1, tag as u64 + 1));
        }
        assert_eq!((streams.id(stream(-5)), streams.count_at(id), streams.count(stream(-5))), (id, 1000, 1000));
        assert_eq!((streams.count(stream(7)), streams.count(stream(1000)), streams.total()), (1, 0, 2000));
        for other in [Stream { comm: 3, ..stream(7) }, Stream { channel: 1, ..stream(7) }] {
            assert_ne!(streams.id(stream(7)), streams.id(other));
        }
    }

    #[test]
    fn a_stream_is_read_back_from_the_header_of_its_record() {
        let plain = Stream::new(3, 1 << 31 | 7, -2);
        let partitioned = Stream { channel: u32::MAX, ..plain };
        for (stream, number) in
            [(plain, u64::MAX), (partitioned, 1), (Stream { channel: 1, ..plain }, u64::from(u32::MAX))]
        {
            assert_eq!(Stream::of_record(3, stream.record_tag(number)), (stream, number));
            assert_eq!(Stream::from(PackedStream::from(stream)), stream);
        }
        assert_ne!(plain.record_tag(1).comm, partitioned.record_tag(1).comm);
    }
}
