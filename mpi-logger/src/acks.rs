//! Message acknowledgements without piggybacked data: batches of (communicator, tag, count) on a control communicator.
//!
//! The receiver counts within streams, and after some messages or bytes tells the sender the count of each changed
//! stream ([`AckBatcher`]). A sender's record begins with its stream and its number there ([`RecordTag`]), so the log
//! itself knows which record is which: [`Releaser`] walks the lane from the first unacknowledged record as far as the
//! counts cover it. A record costs one step of the walk, and nothing is kept apart from the log.

use counterfoil::{Ack, AckError, Cursor, Epoch, Log, Phase, Rank, ReplayError, Ssn};
use counterfoil_profile::RecordTag;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::stream::{PackedStream, Stream, StreamId, StreamTable};

/// Returns the number of unacknowledged records in a log.
pub fn unacknowledged(log: &Log) -> u64 {
    let of = |peer| log.next_ssn(peer).0.saturating_sub(1).saturating_sub(log.acked(peer).0);
    (0..log.options().ranks).map(Rank).map(of).sum()
}

/// Messages and bytes after which a batch is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Messages from one rank.
    pub messages_max: u32,
    /// Payload bytes from one rank.
    pub bytes_max: u64,
}

impl Default for BatchLimits {
    /// 256 messages or 256 KiB.
    fn default() -> BatchLimits {
        BatchLimits { messages_max: 256, bytes_max: 256 << 10 }
    }
}

/// Messages from one rank since the last batch to it.
#[derive(Debug, Default)]
struct Unreported {
    messages: u32,
    bytes: u64,
    /// Changed streams, each once.
    moved: Vec<StreamId>,
}

/// A received stream.
#[derive(Clone, Copy, Debug)]
struct Received {
    stream: PackedStream,
    messages: u64,
    /// True if it changed since the last batch.
    has_moved: bool,
}

/// The receiver's side: counts messages until a batch is due.
#[derive(Debug)]
pub struct AckBatcher {
    limits: BatchLimits,
    received: StreamTable<Received>,
    /// By rank.
    unreported: Vec<Unreported>,
}

impl AckBatcher {
    /// Returns a batcher for a job of `ranks` ranks.
    pub fn new(ranks: u32, limits: BatchLimits) -> AckBatcher {
        let unreported = (0..ranks).map(|_| Unreported::default()).collect();
        AckBatcher { limits, received: StreamTable::default(), unreported }
    }

    /// Counts a received message and returns `true` if a batch to its sender is due.
    ///
    /// Messages from ranks outside the job are ignored.
    #[inline]
    pub fn count(&mut self, stream: Stream, bytes: usize) -> bool {
        let id = self.id(stream);
        self.count_at(id, bytes)
    }

    /// Returns the index of a stream's count.
    #[inline]
    pub fn id(&mut self, stream: Stream) -> StreamId {
        let stream = PackedStream::from(stream);
        self.received.id(stream, || Received { stream, messages: 0, has_moved: false })
    }

    /// Same as [`count`](Self::count), by stream index.
    ///
    /// # Panics
    /// If the index is another table's.
    #[inline(always)]
    pub fn count_at(&mut self, id: StreamId, bytes: usize) -> bool {
        let received = self.received.at(id);
        let Some(unreported) = self.unreported.get_mut(received.stream.peer() as usize) else { return false };
        received.messages += 1;
        if !received.has_moved {
            received.has_moved = true;
            unreported.moved.push(id);
        }
        unreported.messages += 1;
        unreported.bytes += bytes as u64;
        unreported.messages >= self.limits.messages_max || unreported.bytes >= self.limits.bytes_max
    }

    /// Returns `true` if a message from `peer` is in no batch yet.
    pub fn has_unreported(&self, peer: u32) -> bool {
        self.unreported.get(peer as usize).is_some_and(|unreported| unreported.messages > 0)
    }

    /// Returns the total message count.
    ///
    /// Takes time linear in the number of streams.
    pub fn total(&self) -> u64 {
        self.received.values().map(|received| received.messages).sum()
    }

    /// Takes the batch for `peer`: a [`RecordTag`] with the message count for each changed stream.
    ///
    /// Empty if none changed.
    pub fn take(&mut self, peer: u32) -> Vec<u8> {
        let Some(unreported) = self.unreported.get_mut(peer as usize) else { return Vec::new() };
        (unreported.messages, unreported.bytes) = (0, 0);
        let mut batch = Vec::with_capacity(unreported.moved.len() * RecordTag::LEN);
        for id in unreported.moved.drain(..) {
            let received = self.received.at(id);
            received.has_moved = false;
            let Received { stream, messages, .. } = *received;
            batch.extend_from_slice(&Stream::from(stream).record_tag(messages).encode());
        }
        batch
    }
}

/// A refused acknowledgement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The bytes aren't a batch.
    #[error("rank {peer} sent an acknowledgement of {len} bytes, which is no multiple of {}", RecordTag::LEN)]
    Malformed {
        /// The acknowledgement's sender.
        peer: u32,
        /// Its length in bytes.
        len: usize,
    },
    /// A receiver has counted more messages on a stream than this rank knows to have sent.
    #[error(
        "rank {peer} has received {received} messages with tag {tag} on communicator {comm}, and only {sent} of them were seen when they \
         were sent: the program sends by calls that can't be logged (PMPI_ functions called directly)"
    )]
    Overcounted {
        /// The messages' receiver.
        peer: u32,
        /// Number of the communicator.
        comm: u32,
        /// MPI tag.
        tag: i32,
        /// Messages counted by the receiver.
        received: u64,
        /// Messages counted by this rank.
        sent: u64,
    },
    /// The lane can't be read.
    #[error("the log of what was sent to rank {peer} can't be read: {source}")]
    Read {
        /// The lane's receiver.
        peer: u32,
        /// Error of the cursor.
        source: ReplayError,
    },
    /// A record doesn't begin with its stream.
    #[error("message {ssn} to rank {peer} doesn't say which stream it belongs to")]
    Untagged {
        /// The message's receiver.
        peer: u32,
        /// The record's SSN.
        ssn: u64,
    },
    /// The log refused.
    #[error("rank {peer} acknowledged something that was not sent: {source}")]
    Refused {
        /// The acknowledgement's sender.
        peer: u32,
        /// Error of the log.
        source: AckError,
    },
}

/// The sender's side, for one receiver: releases the records covered by its batches.
#[derive(Debug)]
pub struct Releaser {
    peer: Rank,
    /// Acknowledged count of each stream.
    ///
    /// A count is dropped when its last record is released. So there are at most as many counts as records held back by
    /// earlier ones, plus streams without a record for their last number.
    acked: FxHashMap<PackedStream, u64>,
    /// Revoked communicators, whose records count as acknowledged.
    revoked: FxHashSet<u32>,
    /// Cursor at the first unacknowledged record.
    cursor: Option<Cursor>,
}

impl Releaser {
    /// Returns a releaser of the lane to `peer`.
    pub fn new(peer: u32) -> Releaser {
        Releaser { peer: Rank(peer), acked: FxHashMap::default(), revoked: FxHashSet::default(), cursor: None }
    }

    /// Closes the cursor, which keeps a chunk in memory.
    ///
    /// The next release opens another one.
    pub(crate) fn close_cursor(&mut self) {
        self.cursor = None;
    }

    /// Notes a batch without [releasing](Self::release) the covered records.
    ///
    /// # Errors
    /// [`ReleaseError::Malformed`].
    pub fn note(&mut self, batch: &[u8]) -> Result<(), ReleaseError> {
        let peer = self.peer.0;
        if !batch.len().is_multiple_of(RecordTag::LEN) {
            return Err(ReleaseError::Malformed { peer, len: batch.len() });
        }
        for entry in batch.chunks_exact(RecordTag::LEN).filter_map(RecordTag::decode) {
            let (stream, number) = Stream::of_record(peer, entry);
            let acked = self.acked.entry(stream.into()).or_default();
            *acked = number.max(*acked);
        }
        Ok(())
    }

    /// Notes a revoked communicator without [releasing](Self::release) its records.
    pub(crate) fn note_revoked(&mut self, comm: u32) {
        self.revoked.insert(comm);
    }

    /// Releases at most `records_max` records covered by batches without a gap.
    ///
    /// Returns `true` at the limit, with possibly more to release: a rank awaited by others releases a few at a time.
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn release(&mut self, log: &mut Log, records_max: usize) -> Result<bool, ReleaseError> {
        let peer = self.peer.0;
        let failed = |source| ReleaseError::Read { peer, source };
        let cursor = match &mut self.cursor {
            Some(cursor) => cursor,
            none => none.insert(log.cursor(self.peer, log.acked(self.peer).next()).map_err(failed)?),
        };
        let (mut covered, mut left) = (Ssn::ZERO, records_max);
        while left > 0
            && let Some(record) = cursor.peek().map_err(failed)?
        {
            let ssn = record.ssn();
            let tag = RecordTag::decode(record.prefix()).ok_or(ReleaseError::Untagged { peer, ssn: ssn.0 })?;
            let (stream, number) = Stream::of_record(peer, tag);
            let (comm, stream) = (stream.comm, PackedStream::from(stream));
            let acked = self.acked.get(&stream).copied().unwrap_or(0);
            if number > acked && !self.revoked.contains(&comm) {
                break;
            }
            // Later records of the stream have higher numbers: none is covered until the stream is acknowledged
            // further.
            if number == acked {
                self.acked.remove(&stream);
            }
            (covered, left) = (ssn, left - 1);
            cursor.advance();
        }
        if covered != Ssn::ZERO {
            let ack = Ack { ssn: covered, epoch: Epoch::FIRST };
            let released = log.acknowledge(self.peer, ack, Phase::default());
            released.map_err(|source| ReleaseError::Refused { peer, source })?;
        }
        Ok(left == 0)
    }
}

#[cfg(test)]
mod tests {
    use counterfoil::{Keep, Options};

    use super::*;
    use crate::stream::StreamCounts;

    fn log() -> Log {
        let mut options = Options::new(Rank(0), 2);
        options.keep = Keep::Acked;
        Log::create(options).unwrap()
    }

    fn append(log: &mut Log, sent: &mut StreamCounts, tag: i32) {
        let number = sent.next(Stream::new(1, 0, tag));
        let mut claim = log.try_claim(Rank(1), RecordTag::LEN, 100).unwrap();
        claim.prefix_mut().copy_from_slice(&RecordTag { comm: 0, tag, number }.encode());
        claim.payload_mut().fill(tag as u8);
        claim.commit();
    }

    /// Notes a batch and releases all covered records.
    fn take(releaser: &mut Releaser, log: &mut Log, batch: &[u8]) -> Result<(), ReleaseError> {
        releaser.note(batch)?;
        releaser.release(log, usize::MAX).map(|_| ())
    }

    #[test]
    fn a_batch_is_due_after_a_number_of_messages_or_bytes() {
        let mut batcher = AckBatcher::new(2, BatchLimits { messages_max: 3, bytes_max: 1000 });
        let stream = Stream::new(1, 4, 9);
        assert_eq!([1, 1, 1].map(|bytes| batcher.count(stream, bytes)), [false, false, true]);
        assert_eq!(RecordTag::decode(&batcher.take(1)), Some(RecordTag { comm: 4, tag: 9, number: 3 }));
        assert!(batcher.take(1).is_empty() && !batcher.has_unreported(1));
        assert!(batcher.count(stream, 1000) && batcher.has_unreported(1) && !batcher.has_unreported(0));
        assert!(batcher.count(stream, 1000) && !batcher.count(Stream { peer: 7, ..stream }, 1000));
        assert_eq!(RecordTag::decode(&batcher.take(1)).unwrap().number, 5);
        assert_eq!(batcher.total(), 5);
    }

    #[test]
    fn a_batch_names_any_communicator_and_tag() {
        let mut batcher = AckBatcher::new(2, BatchLimits::default());
        let streams = [(0, i32::MIN), (u32::MAX, -1), (1 << 31, 0), (7, i32::MAX)];
        for (comm, tag) in streams {
            batcher.count(Stream::new(1, comm, tag), 1);
        }
        let batch = batcher.take(1);
        let mut named: Vec<_> = batch.chunks_exact(RecordTag::LEN).filter_map(RecordTag::decode).collect();
        named.sort_by_key(|entry| streams.iter().position(|stream| *stream == (entry.comm, entry.tag)));
        assert_eq!(named, streams.map(|(comm, tag)| RecordTag { comm, tag, number: 1 }));
    }

    #[test]
    fn a_lane_is_released_up_to_the_first_message_that_is_not_received() {
        let (mut log, mut sent) = (log(), StreamCounts::default());
        for tag in [1, 2, 1, 2, 1] {
            append(&mut log, &mut sent, tag);
        }
        let mut releaser = Releaser::new(1);
        let entry = |tag, number| RecordTag { comm: 0, tag, number }.encode();
        // Both messages of tag 2 were received before any of tag 1: the first of the lane is missing.
        take(&mut releaser, &mut log, &entry(2, 2)).unwrap();
        assert_eq!(log.acked(Rank(1)), Ssn::ZERO);
        take(&mut releaser, &mut log, &entry(1, 2)).unwrap();
        assert_eq!(log.acked(Rank(1)), Ssn(4));
        // An older batch adds nothing.
        take(&mut releaser, &mut log, &entry(1, 1)).unwrap();
        assert_eq!(log.acked(Rank(1)), Ssn(4));
        take(&mut releaser, &mut log, &entry(1, 3)).unwrap();
        assert_eq!(log.acked(Rank(1)), Ssn(5));
        assert!(matches!(releaser.note(&[0; 17]), Err(ReleaseError::Malformed { len: 17, .. })));
    }

    #[test]
    fn the_records_of_a_batch_are_released_a_few_at_a_time() {
        let (mut log, mut sent, mut releaser) = (log(), StreamCounts::default(), Releaser::new(1));
        for tag in [1, 2, 1, 1, 2] {
            append(&mut log, &mut sent, tag);
        }
        releaser.note(&RecordTag { comm: 0, tag: 1, number: 3 }.encode()).unwrap();
        releaser.note(&RecordTag { comm: 0, tag: 2, number: 1 }.encode()).unwrap();
        assert_eq!(log.acked(Rank(1)), Ssn::ZERO);
        let mut release = |records| (releaser.release(&mut log, records).unwrap(), log.acked(Rank(1)));
        assert_eq!(release(0), (true, Ssn::ZERO));
        assert_eq!([release(3), release(2)], [(true, Ssn(3)), (false, Ssn(4))]);
        assert_eq!(release(usize::MAX), (false, Ssn(4)));
    }

    #[test]
    fn streams_with_released_records_are_forgotten() {
        let (mut log, mut sent, mut releaser) = (log(), StreamCounts::default(), Releaser::new(1));
        let entry = |tag| RecordTag { comm: 0, tag, number: 1 }.encode();
        append(&mut log, &mut sent, -7);
        for tag in 0..1000 {
            append(&mut log, &mut sent, tag);
            take(&mut releaser, &mut log, &entry(tag)).unwrap();
            // The first record holds the others back: they are known to be received.
            assert_eq!((releaser.acked.len(), log.acked(Rank(1))), (tag as usize + 1, Ssn::ZERO));
        }
        take(&mut releaser, &mut log, &entry(-7)).unwrap();
        assert_eq!((releaser.acked.len(), log.acked(Rank(1))), (0, Ssn(1001)));
    }

    #[test]
    fn a_batch_of_every_stream_that_moved_releases_everything() {
        let (mut log, mut sent, mut releaser) = (log(), StreamCounts::default(), Releaser::new(1));
        let mut batcher = AckBatcher::new(2, BatchLimits { messages_max: 64, bytes_max: u64::MAX });
        for i in 0..64 * 50 {
            let tag = i % 16;
            append(&mut log, &mut sent, tag);
            // The other side, with rank 0 as its peer.
            if batcher.count(Stream::new(0, 0, tag), 100) {
                let batch = batcher.take(0);
                assert_eq!(batch.len(), 16 * RecordTag::LEN);
                take(&mut releaser, &mut log, &batch).unwrap();
            }
        }
        assert_eq!(log.acked(Rank(1)), Ssn(64 * 50));
    }
}
