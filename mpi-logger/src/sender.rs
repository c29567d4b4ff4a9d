//! The sender's side: the log, the sent counts, and the receivers' acknowledgements.

use counterfoil::{Ack, Epoch, Keep, Log, Phase, Rank, Ssn};
use counterfoil_profile::RecordTag;

use crate::acks::{ReleaseError, Releaser};
use crate::stream::{Stream, StreamCounts};

/// A rank's log with the counts that release it.
#[derive(Debug)]
pub(crate) struct SenderLog {
    /// `None` once logging was disabled.
    pub(crate) log: Option<Log>,
    /// Messages sent, logged or not.
    pub(crate) sent: StreamCounts,
    /// Channels of partitioned messages, by stream.
    pub(crate) channels: StreamCounts,
    /// By receiver.
    releasers: Vec<Option<Releaser>>,
    /// Receivers with acknowledged records that may not be released yet.
    releasing: Vec<u32>,
    /// Acknowledged counts above the sent counts, with their receivers.
    suspicious: Vec<(u32, RecordTag)>,
    /// Records released.
    pub(crate) acknowledged: u64,
}

impl SenderLog {
    pub(crate) fn new(log: Log) -> SenderLog {
        let releasers = (0..log.options().ranks).map(|_| None).collect();
        SenderLog {
            log: Some(log),
            sent: StreamCounts::default(),
            channels: StreamCounts::default(),
            releasers,
            releasing: Vec::new(),
            suspicious: Vec::new(),
            acknowledged: 0,
        }
    }

    /// Takes the log, after dropping its cursors: they hold chunks.
    pub(crate) fn take_log(&mut self) -> Option<Log> {
        self.releasers.iter_mut().for_each(|releaser| *releaser = None);
        self.releasing.clear();
        self.suspicious.clear();
        self.log.take()
    }

    /// Returns `true` if there may be acknowledged records to release.
    #[inline(always)]
    pub(crate) fn is_releasing(&self) -> bool {
        !self.releasing.is_empty()
    }

    /// Closes the cursors on the first unacknowledged records: the log can't spill a chunk with a cursor.
    pub(crate) fn close_cursors(&mut self) {
        self.releasers.iter_mut().flatten().for_each(Releaser::close_cursor);
    }

    /// Notes a batch of acknowledgements from `peer`.
    pub(crate) fn note_acks(&mut self, peer: u32, batch: &[u8]) -> Result<(), ReleaseError> {
        if self.log.is_none() {
            return Ok(());
        }
        let Some(releaser) = self.releasers.get_mut(peer as usize) else { return Ok(()) };
        releaser.get_or_insert_with(|| Releaser::new(peer)).note(batch)?;
        for entry in batch.chunks_exact(RecordTag::LEN).filter_map(RecordTag::decode) {
            if self.is_overcounted(peer, entry) {
                self.suspicious.push((peer, entry));
            }
        }
        if !self.releasing.contains(&peer) {
            self.releasing.push(peer);
        }
        Ok(())
    }

    /// Notes a revoked communicator: no rank receives its messages.
    ///
    /// Its records are still to be released.
    pub(crate) fn note_revoked(&mut self, comm: u32) {
        let Some(log) = &self.log else { return };
        for (peer, releaser) in (0..).zip(&mut self.releasers) {
            let is_acknowledged = log.acked(Rank(peer)).next() == log.next_ssn(Rank(peer));
            if releaser.is_none() && is_acknowledged {
                continue;
            }
            releaser.get_or_insert_with(|| Releaser::new(peer)).note_revoked(comm);
            if !is_acknowledged && !self.releasing.contains(&peer) {
                self.releasing.push(peer);
            }
        }
    }

    fn is_overcounted(&self, peer: u32, entry: RecordTag) -> bool {
        let (stream, number) = Stream::of_record(peer, entry);
        // A partitioned message is counted when all its parts are there, possibly after it was received.
        let is_counted = stream.tag >= 0 && stream.channel == 0;
        is_counted && number > self.sent.count(stream)
    }

    /// Checks acknowledged counts against the messages sent.
    ///
    /// Call it where every departed message is counted.
    pub(crate) fn check_counts(&mut self) -> Result<(), ReleaseError> {
        if self.suspicious.is_empty() {
            return Ok(());
        }
        let suspicious = std::mem::take(&mut self.suspicious);
        match suspicious.into_iter().find(|(peer, entry)| self.is_overcounted(*peer, *entry)) {
            None => Ok(()),
            Some((peer, RecordTag { comm, tag, number })) => {
                let sent = self.sent.count(Stream::new(peer, comm, tag));
                Err(ReleaseError::Overcounted { peer, comm, tag, received: number, sent })
            }
        }
    }

    /// Releases at most `records_max` acknowledged records to one receiver.
    ///
    /// Calls `released` with it.
    pub(crate) fn release_some(
        &mut self,
        records_max: usize,
        released: impl FnMut(u32, &Log),
    ) -> Result<(), ReleaseError> {
        if let Some(&peer) = self.releasing.last()
            && !self.release_of(peer, records_max, released)?
        {
            self.releasing.pop();
        }
        Ok(())
    }

    /// Releases all acknowledged records, including those appended after their acknowledgement arrived: a short message
    /// leaves before it is logged.
    pub(crate) fn release_all(&mut self, mut released: impl FnMut(u32, &Log)) -> Result<(), ReleaseError> {
        for peer in 0..self.releasers.len() as u32 {
            self.release_of(peer, usize::MAX, &mut released)?;
        }
        self.releasing.clear();
        Ok(())
    }

    /// Returns `true` if there may be more to release.
    fn release_of(
        &mut self,
        peer: u32,
        records_max: usize,
        mut released: impl FnMut(u32, &Log),
    ) -> Result<bool, ReleaseError> {
        let Some(log) = &mut self.log else { return Ok(false) };
        let Some(Some(releaser)) = self.releasers.get_mut(peer as usize) else { return Ok(false) };
        let before = log.acked(Rank(peer));
        let is_more = releaser.release(log, records_max)?;
        self.acknowledged += log.acked(Rank(peer)).0 - before.0;
        released(peer, log);
        Ok(is_more)
    }

    /// Releases a failed rank's messages, never to be acknowledged, under `Keep::Acked`.
    ///
    /// Returns their number.
    pub(crate) fn discard(&mut self, failed: u32) -> Result<u64, ReleaseError> {
        let rank = Rank(failed);
        let Some(log) = self.log.as_mut().filter(|log| log.options().keep == Keep::Acked) else { return Ok(0) };
        let last = Ssn(log.next_ssn(rank).0.saturating_sub(1));
        let unacknowledged = last.0.saturating_sub(log.acked(rank).0);
        if unacknowledged > 0 {
            // Its cursor is below.
            self.releasers[failed as usize] = None;
            let released = log.acknowledge(rank, Ack { ssn: last, epoch: Epoch::FIRST }, Phase::default());
            released.map_err(|source| ReleaseError::Refused { peer: failed, source })?;
        }
        Ok(unacknowledged)
    }
}

#[cfg(test)]
mod tests {
    use counterfoil::{Options, StoreOptions, Tier, create_private_dir};

    use super::*;
    use crate::{Logger, LoggerOptions, SpacePoll};

    /// A log of rank 0, sending on communicators 2 and 3 in turn to rank 1; rank 1 acknowledges nothing.
    fn sender_on_two_communicators() -> SenderLog {
        let mut options = Options::new(Rank(0), 2);
        options.keep = Keep::Acked;
        let mut sender = SenderLog::new(Log::create(options).unwrap());
        [2, 3, 2, 3].into_iter().for_each(|comm| append(&mut sender, comm));
        sender
    }

    fn append(sender: &mut SenderLog, comm: u32) {
        let stream = Stream::new(1, comm, 0);
        let tag = stream.record_tag(sender.sent.next(stream));
        let mut claim = sender.log.as_mut().unwrap().try_claim(Rank(1), RecordTag::LEN, 10).unwrap();
        claim.prefix_mut().copy_from_slice(&tag.encode());
        claim.commit();
    }

    #[test]
    fn a_revocation_releases_what_was_sent_on_the_communicator() {
        let mut sender = sender_on_two_communicators();
        sender.note_revoked(2);
        assert!(sender.is_releasing());
        sender.release_all(|_, _| ()).unwrap();
        // The second record is on another communicator.
        assert_eq!(sender.acknowledged, 1);
        sender.note_acks(1, &Stream::new(1, 3, 0).record_tag(2).encode()).unwrap();
        sender.release_all(|_, _| ()).unwrap();
        assert_eq!(sender.acknowledged, 4);
        // A message leaving before MPI reports the revocation to this rank.
        append(&mut sender, 2);
        sender.release_all(|_, _| ()).unwrap();
        assert_eq!(sender.acknowledged, 5);
    }

    #[test]
    fn records_on_disk_leave_memory_although_an_earlier_one_is_not_acknowledged() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("logs");
        create_private_dir(&dir).unwrap();
        let mut options =
            Options { tier: Tier::NodeLocal, store: Some(StoreOptions::new(dir)), ..Options::new(Rank(0), 1) };
        options.retain(Keep::All, 1 << 20);
        let settings = LoggerOptions { is_multithreaded: true, ..LoggerOptions::default() };
        let mut logger = Logger::new(Log::create(options).unwrap(), &settings);
        // The second message, on a stream of its own, is received only at the end.
        let payload = vec![7; 100_000];
        let mut acknowledged = 0;
        for number in 0..200 {
            let stream = Stream::new(0, 0, i32::from(number == 1));
            let tag = stream.record_tag(logger.sent().next(stream));
            let now = std::time::Instant::now();
            logger.begin_wait(now);
            while !matches!(logger.poll_space(0, payload.len(), now).unwrap(), SpacePoll::Ready) {
                assert!(now.elapsed().as_secs() < 60, "message {number} finds no space");
                logger.release_all(|_, _| ()).unwrap();
            }
            logger.end_wait(now);
            let Some(log) = logger.log_mut() else { panic!("the logger has a log") };
            let mut claim = log.claim(Rank(0), RecordTag::LEN, payload.len()).unwrap();
            claim.prefix_mut().copy_from_slice(&tag.encode());
            claim.payload_mut().copy_from_slice(&payload);
            claim.commit();
            if number != 1 {
                let id = logger.received_id(stream);
                logger.handle_received(id, payload.len());
                logger.acknowledge(0).unwrap();
                logger.release_all(|_, _| ()).unwrap();
            }
            acknowledged = logger.acknowledged();
        }
        assert_eq!(acknowledged, 1);
        let id = logger.received_id(Stream::new(0, 0, 1));
        logger.handle_received(id, payload.len());
        logger.acknowledge(0).unwrap();
        logger.release_all(|_, _| ()).unwrap();
        assert_eq!(logger.acknowledged(), 200);
    }
}
