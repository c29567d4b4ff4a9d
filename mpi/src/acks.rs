//! Acknowledgements of messages that carry nothing: batches of (communicator, tag, count), sent on a communicator of their own.
//!
//! The receiver counts within streams and, every so many messages or bytes, says for each stream that moved how far it has
//! come ([`Batcher`]). The sender's records begin with the stream and the number within it ([`RecordTag`]), so the log itself
//! knows which record is which: [`Releaser`] walks the lane from the first record that is not acknowledged, as far as the
//! counts cover it. A record costs the walk once, and nothing is kept beside the log.

use counterfoil::ack::Ack;
use counterfoil::{AckError, Cursor, Epoch, Log, Phase, Rank, ReplayError, Ssn};
use counterfoil_profile::RecordTag;
use rustc_hash::FxHashMap;

use crate::stream::{Key, Place, Stream, Table};

/// Records of a log that nobody has said to have received.
pub fn unacknowledged(log: &Log) -> u64 {
    let of = |peer| log.next_ssn(peer).0.saturating_sub(1).saturating_sub(log.acked(peer).0);
    (0..log.options().ranks).map(Rank).map(of).sum()
}

/// When a batch is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// After so many messages from one rank.
    pub messages_max: u32,
    /// After so many bytes of payload from one rank.
    pub bytes_max: u64,
}

impl Default for BatchLimits {
    /// 256 messages or 256 KiB.
    fn default() -> BatchLimits {
        BatchLimits { messages_max: 256, bytes_max: 256 << 10 }
    }
}

/// What one rank sent since the last batch that went to it.
#[derive(Debug, Default)]
struct Since {
    messages: u32,
    bytes: u64,
    /// Where the streams are that moved, each once.
    moved: Vec<Place>,
}

/// A stream that is received.
#[derive(Clone, Copy, Debug)]
struct Received {
    stream: Key,
    messages: u64,
    /// Whether it moved since the last batch.
    has_moved: bool,
}

/// The receiver's side: counts, and says when a batch is due.
#[derive(Debug)]
pub struct Batcher {
    limits: BatchLimits,
    received: Table<Received>,
    /// For each rank.
    since: Vec<Since>,
}

impl Batcher {
    /// For a job of `ranks` ranks.
    pub fn new(ranks: u32, limits: BatchLimits) -> Batcher {
        Batcher { limits, received: Table::default(), since: (0..ranks).map(|_| Since::default()).collect() }
    }

    /// Counts a message that was received; true if a batch to its sender is due now. A rank that the job doesn't have is
    /// nobody's to acknowledge.
    #[inline]
    pub fn note(&mut self, stream: Stream, bytes: usize) -> bool {
        let place = self.place(stream);
        self.note_at(place, bytes)
    }

    /// Where a stream is counted.
    #[inline]
    pub fn place(&mut self, stream: Stream) -> Place {
        let stream = Key::from(stream);
        self.received.place(stream, || Received { stream, messages: 0, has_moved: false })
    }

    /// [`note`](Self::note), of the stream that is counted at this place.
    ///
    /// # Panics
    /// Where the place is another counter's.
    #[inline(always)]
    pub fn note_at(&mut self, place: Place, bytes: usize) -> bool {
        let received = self.received.at(place);
        let Some(since) = self.since.get_mut(received.stream.peer() as usize) else { return false };
        received.messages += 1;
        if !received.has_moved {
            received.has_moved = true;
            since.moved.push(place);
        }
        since.messages += 1;
        since.bytes += bytes as u64;
        since.messages >= self.limits.messages_max || since.bytes >= self.limits.bytes_max
    }

    /// Whether something came from `peer` that no batch has named yet.
    pub fn has(&self, peer: u32) -> bool {
        self.since.get(peer as usize).is_some_and(|since| since.messages > 0)
    }

    /// The batch for `peer`, which begins anew; empty if nothing came from it.
    pub fn take(&mut self, peer: u32) -> Vec<u8> {
        let Some(since) = self.since.get_mut(peer as usize) else { return Vec::new() };
        (since.messages, since.bytes) = (0, 0);
        let mut batch = Vec::with_capacity(since.moved.len() * RecordTag::LEN);
        for place in since.moved.drain(..) {
            let received = self.received.at(place);
            received.has_moved = false;
            let Received { stream, messages, .. } = *received;
            let entry = RecordTag { comm: stream.comm(), tag: stream.tag(), number: messages };
            batch.extend_from_slice(&entry.encode());
        }
        batch
    }
}

/// Why an acknowledgement can't be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// Bytes that are no batch.
    #[error("rank {peer} sent an acknowledgement of {len} bytes, which is no multiple of {}", RecordTag::LEN)]
    Malformed {
        /// Who.
        peer: u32,
        /// How many bytes.
        len: usize,
    },
    /// The lane can't be read.
    #[error("the log of what was sent to rank {peer} can't be read: {source}")]
    Read {
        /// Whose lane.
        peer: u32,
        /// Why.
        source: ReplayError,
    },
    /// A record that doesn't begin with its stream.
    #[error("message {ssn} to rank {peer} doesn't say which stream it belongs to")]
    Untagged {
        /// Whose lane.
        peer: u32,
        /// Which.
        ssn: u64,
    },
    /// The log refused.
    #[error("rank {peer} acknowledged something that was not sent: {source}")]
    Refused {
        /// Who.
        peer: u32,
        /// Why.
        source: AckError,
    },
}

/// The sender's side, for one rank.
#[derive(Debug)]
pub struct Releaser {
    peer: Rank,
    /// How far streams are acknowledged. A count is forgotten when the record that it ends with is released, so that there are not
    /// more of them than records which others hold back, and streams whose last number has no record.
    acked: FxHashMap<Key, u64>,
    /// At the first record that is not acknowledged.
    cursor: Option<Cursor>,
}

impl Releaser {
    /// For what is sent to `peer`.
    pub fn new(peer: u32) -> Releaser {
        Releaser { peer: Rank(peer), acked: FxHashMap::default(), cursor: None }
    }

    /// Takes a batch, and releases what it covers without a gap.
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn take(&mut self, log: &mut Log, batch: &[u8]) -> Result<(), ReleaseError> {
        self.hear(batch)?;
        self.release(log, usize::MAX).map(|_| ())
    }

    /// Takes a batch. What it covers is still to be [released](Self::release).
    ///
    /// # Errors
    /// [`ReleaseError::Malformed`].
    pub fn hear(&mut self, batch: &[u8]) -> Result<(), ReleaseError> {
        let peer = self.peer.0;
        if !batch.len().is_multiple_of(RecordTag::LEN) {
            return Err(ReleaseError::Malformed { peer, len: batch.len() });
        }
        for RecordTag { comm, tag, number } in batch.chunks_exact(RecordTag::LEN).filter_map(RecordTag::decode) {
            let acked = self.acked.entry(Stream { peer, comm, tag }.into()).or_default();
            *acked = number.max(*acked);
        }
        Ok(())
    }

    /// Releases the first `records_max` of the records that batches have covered without a gap, and says whether there were so many. A
    /// rank that somebody waits for does so bit by bit.
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
            let stream = Key::from(Stream { peer, comm: tag.comm, tag: tag.tag });
            let acked = self.acked.get(&stream).copied().unwrap_or(0);
            if tag.number > acked {
                break;
            }
            // Later records of the stream have higher numbers: until it is acknowledged further, nothing has to be known of it.
            if tag.number == acked {
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
    use crate::stream::Streams;

    fn log() -> Log {
        let mut options = Options::new(Rank(0), 2);
        options.keep = Keep::Acked;
        Log::create(options).unwrap()
    }

    fn append(log: &mut Log, sent: &mut Streams, tag: i32) {
        let number = sent.next(Stream { peer: 1, comm: 0, tag });
        let mut claim = log.try_claim(Rank(1), RecordTag::LEN, 100).unwrap();
        claim.prefix_mut().copy_from_slice(&RecordTag { comm: 0, tag, number }.encode());
        claim.payload_mut().fill(tag as u8);
        claim.commit();
    }

    #[test]
    fn a_batch_is_due_after_so_many_messages_or_bytes() {
        let mut batcher = Batcher::new(2, BatchLimits { messages_max: 3, bytes_max: 1000 });
        let stream = Stream { peer: 1, comm: 4, tag: 9 };
        assert_eq!([1, 1, 1].map(|bytes| batcher.note(stream, bytes)), [false, false, true]);
        assert_eq!(RecordTag::decode(&batcher.take(1)), Some(RecordTag { comm: 4, tag: 9, number: 3 }));
        assert!(batcher.take(1).is_empty() && !batcher.has(1));
        assert!(batcher.note(stream, 1000) && batcher.has(1) && !batcher.has(0));
        assert!(batcher.note(stream, 1000) && !batcher.note(Stream { peer: 7, ..stream }, 1000));
        assert_eq!(RecordTag::decode(&batcher.take(1)).unwrap().number, 5);
    }

    #[test]
    fn a_batch_names_any_communicator_and_tag() {
        let mut batcher = Batcher::new(2, BatchLimits::default());
        let streams = [(0, i32::MIN), (u32::MAX, -1), (1 << 31, 0), (7, i32::MAX)];
        for (comm, tag) in streams {
            batcher.note(Stream { peer: 1, comm, tag }, 1);
        }
        let batch = batcher.take(1);
        let mut named: Vec<_> = batch.chunks_exact(RecordTag::LEN).filter_map(RecordTag::decode).collect();
        named.sort_by_key(|entry| streams.iter().position(|stream| *stream == (entry.comm, entry.tag)));
        assert_eq!(named, streams.map(|(comm, tag)| RecordTag { comm, tag, number: 1 }));
    }

    #[test]
    fn a_lane_is_released_up_to_the_first_message_that_is_not_received() {
        let (mut log, mut sent) = (log(), Streams::default());
        for tag in [1, 2, 1, 2, 1] {
            append(&mut log, &mut sent, tag);
        }
        let mut releaser = Releaser::new(1);
        let entry = |tag, number| RecordTag { comm: 0, tag, number }.encode();
        // Both messages of tag 2 were received before any of tag 1: the first of the lane is missing.
        releaser.take(&mut log, &entry(2, 2)).unwrap();
        assert_eq!(log.acked(Rank(1)), Ssn::ZERO);
        releaser.take(&mut log, &entry(1, 2)).unwrap();
        assert_eq!(log.acked(Rank(1)), Ssn(4));
        // An older batch says nothing new.
        releaser.take(&mut log, &entry(1, 1)).unwrap();
        assert_eq!(log.acked(Rank(1)), Ssn(4));
        releaser.take(&mut log, &entry(1, 3)).unwrap();
        assert_eq!(log.acked(Rank(1)), Ssn(5));
        assert!(matches!(releaser.take(&mut log, &[0; 17]), Err(ReleaseError::Malformed { len: 17, .. })));
    }

    #[test]
    fn what_a_batch_covers_is_released_bit_by_bit() {
        let (mut log, mut sent, mut releaser) = (log(), Streams::default(), Releaser::new(1));
        for tag in [1, 2, 1, 1, 2] {
            append(&mut log, &mut sent, tag);
        }
        releaser.hear(&RecordTag { comm: 0, tag: 1, number: 3 }.encode()).unwrap();
        releaser.hear(&RecordTag { comm: 0, tag: 2, number: 1 }.encode()).unwrap();
        assert_eq!(log.acked(Rank(1)), Ssn::ZERO);
        let mut release = |records| (releaser.release(&mut log, records).unwrap(), log.acked(Rank(1)));
        assert_eq!(release(0), (true, Ssn::ZERO));
        assert_eq!([release(3), release(2)], [(true, Ssn(3)), (false, Ssn(4))]);
        assert_eq!(release(usize::MAX), (false, Ssn(4)));
    }

    #[test]
    fn streams_whose_records_are_released_are_forgotten() {
        let (mut log, mut sent, mut releaser) = (log(), Streams::default(), Releaser::new(1));
        let entry = |tag| RecordTag { comm: 0, tag, number: 1 }.encode();
        append(&mut log, &mut sent, -7);
        for tag in 0..1000 {
            append(&mut log, &mut sent, tag);
            releaser.take(&mut log, &entry(tag)).unwrap();
            // The first record holds the others back: they are known to have been received.
            assert_eq!((releaser.acked.len(), log.acked(Rank(1))), (tag as usize + 1, Ssn::ZERO));
        }
        releaser.take(&mut log, &entry(-7)).unwrap();
        assert_eq!((releaser.acked.len(), log.acked(Rank(1))), (0, Ssn(1001)));
    }

    #[test]
    fn a_batch_of_every_stream_that_moved_releases_everything() {
        let (mut log, mut sent, mut releaser) = (log(), Streams::default(), Releaser::new(1));
        let mut batcher = Batcher::new(2, BatchLimits { messages_max: 64, bytes_max: u64::MAX });
        for i in 0..64 * 50 {
            let tag = i % 16;
            append(&mut log, &mut sent, tag);
            // What the other side would do; it sees rank 0 as its peer.
            if batcher.note(Stream { peer: 0, comm: 0, tag }, 100) {
                let batch = batcher.take(0);
                assert_eq!(batch.len(), 16 * RecordTag::LEN);
                releaser.take(&mut log, &batch).unwrap();
            }
        }
        assert_eq!(log.acked(Rank(1)), Ssn(64 * 50));
    }
}
