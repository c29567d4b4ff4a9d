//! A rank's logger: joins the log with its driver's observations of the program and other ranks.

mod collectives;
mod space;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use counterfoil::{Keep, LocalLogError, Log};
use counterfoil_profile::RecordTag;

pub use space::{SpaceError, SpacePoll, SpaceRefusal};

use crate::acks::{AckBatcher, BatchLimits, ReleaseError, unacknowledged};
use crate::backpressure::{Entries, ProgressQueries, SpaceWait};
use crate::comms::{CommId, CommTable};
use crate::control::{ControlKind, ControlMessage};
use crate::deadlock::{DEADLOCK_AFTER, DeadlockDetector, ProgressReply, ProgressRequest};
use crate::determinant::{Determinant, DeterminantLog};
use crate::matching::{Arrival, PostedReceive};
use crate::sender::SenderLog;
use crate::stream::{Stream, StreamCounts, StreamId};

/// Settings of a new logger.
#[derive(Clone, Copy, Debug)]
pub struct LoggerOptions {
    /// Time without any activity in the job after which a wait for space is given up.
    pub deadlock_after: Duration,
    /// True if threads call MPI at any time (MPI_THREAD_MULTIPLE).
    pub is_multithreaded: bool,
    /// Failed polls before logging began: [`Logger::set_failed_polls`].
    pub failed_polls: u64,
}

impl Default for LoggerOptions {
    /// One thread, whose sends wait for space.
    fn default() -> LoggerOptions {
        LoggerOptions { deadlock_after: DEADLOCK_AFTER, is_multithreaded: false, failed_polls: 0 }
    }
}

fn open_channel(channels: &mut StreamCounts, stream: Stream) -> Stream {
    Stream { channel: channels.next(stream) as u32, ..stream }
}

/// Logging state on one rank.
///
/// A driver calls `handle_*` methods as the program sends and receives, carries the messages from
/// [`poll_control`](Self::poll_control) to other ranks and hands theirs to [`handle_control`](Self::handle_control). No
/// method blocks, does I/O, or asks for the time.
#[derive(Debug)]
pub struct Logger {
    rank: u32,
    ranks: u32,
    sender: SenderLog,
    acks: AckBatcher,
    /// Channels of received partitioned messages, by stream.
    receive_channels: StreamCounts,
    /// Logged communicators.
    pub comms: CommTable,
    queries: ProgressQueries,
    detector: DeadlockDetector,
    determinants: DeterminantLog,
    /// The current wait for log space, if any.
    wait: Option<SpaceWait>,
    is_multithreaded: bool,
    keep: Keep,
    /// The log's memory limit in bytes.
    budget: usize,
    /// Activity not covered by another counter; feeds deadlock detection.
    activity: u64,
    /// Total contribution bytes logged, with their records' overhead.
    contributed_bytes: u64,
    /// Messages just numbered; empty between two calls.
    numbered: Vec<Arrival>,
    /// By rank: true once it has failed.
    has_failed: Vec<bool>,
    outbox: VecDeque<ControlMessage>,
}

impl Logger {
    /// Returns the logger of a rank with a new log.
    pub fn new(log: Log, options: &LoggerOptions) -> Logger {
        let (rank, ranks) = (log.options().rank.0, log.options().ranks);
        let (keep, budget) = (log.options().keep, log.options().memory_bytes_max);
        Logger {
            rank,
            ranks,
            sender: SenderLog::new(log),
            acks: AckBatcher::new(ranks, BatchLimits::default()),
            receive_channels: StreamCounts::default(),
            comms: CommTable::default(),
            queries: ProgressQueries::new(rank, ranks),
            detector: DeadlockDetector::new(rank, ranks, options.deadlock_after),
            determinants: DeterminantLog::starting_at(options.failed_polls),
            wait: None,
            is_multithreaded: options.is_multithreaded,
            keep,
            budget,
            activity: 0,
            contributed_bytes: 0,
            numbered: Vec::new(),
            has_failed: vec![false; ranks as usize],
            outbox: VecDeque::new(),
        }
    }

    /// Enables MPI_THREAD_MULTIPLE from now on.
    ///
    /// Other ranks don't know: they may release contributions to collective operations this rank has yet to begin.
    pub fn set_multithreaded(&mut self) {
        self.is_multithreaded = true;
    }

    /// Returns this rank.
    #[inline]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks in the job.
    #[inline]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Returns the log; `None` once logging was disabled.
    #[inline(always)]
    pub fn log(&self) -> Option<&Log> {
        self.sender.log.as_ref()
    }

    /// Returns the log, to claim records in it.
    #[inline(always)]
    pub fn log_mut(&mut self) -> Option<&mut Log> {
        self.sender.log.as_mut()
    }

    /// Returns the sent message counts.
    #[inline(always)]
    pub fn sent(&mut self) -> &mut StreamCounts {
        &mut self.sender.sent
    }

    /// Returns the log and the sent message counts, to claim and count a record in one step.
    #[inline(always)]
    pub fn log_and_sent(&mut self) -> (Option<&mut Log>, &mut StreamCounts) {
        (self.sender.log.as_mut(), &mut self.sender.sent)
    }

    /// Disables logging for good and returns the log.
    ///
    /// Receives are still counted and acknowledged.
    pub fn disable(&mut self) -> Option<Log> {
        self.sender.take_log()
    }

    /// Returns the number of acknowledged records.
    pub fn acknowledged(&self) -> u64 {
        self.sender.acknowledged
    }

    /// Returns the number of unacknowledged records.
    pub fn unacknowledged(&self) -> u64 {
        self.log().map_or(0, unacknowledged)
    }

    /// Returns the number of determinants recorded.
    pub fn determinants(&self) -> u64 {
        self.determinants.recorded
    }

    /// Notes program activity not covered by another call, such as an ended wait: without it, deadlock detection takes
    /// the program for stuck.
    #[inline]
    pub fn note_activity(&mut self) {
        self.activity += 1;
    }

    /// Sets the number of failed polls (tests, probes).
    ///
    /// It never falls.
    #[inline]
    pub fn set_failed_polls(&mut self, failed_polls: u64) {
        self.determinants.failed_polls = failed_polls;
    }

    /// Counts a failed poll.
    #[inline]
    pub fn count_failed_poll(&mut self) {
        self.determinants.failed_polls += 1;
    }

    fn state(&self) -> ProgressReply {
        let activity = self.activity + self.determinants.failed_polls + self.sender.sent.total() + self.acks.total();
        ProgressReply { activity, waits: self.wait.is_some(), is_multithreaded: self.is_multithreaded }
    }

    // Sends.

    /// Counts a message sent without a record, for example with a datatype that can't be packed: the receiver counts
    /// it, too.
    #[cold]
    pub fn count_unlogged(&mut self, stream: Stream) {
        self.sender.sent.next(stream);
    }

    /// Handles an MPI_Psend_init.
    ///
    /// Returns its messages' stream.
    pub fn open_send_channel(&mut self, stream: Stream) -> Stream {
        open_channel(&mut self.sender.channels, stream)
    }

    // Receives.

    /// Handles an MPI_Precv_init.
    ///
    /// Returns its messages' stream; they are counted as they end, by [`handle_received`](Self::handle_received).
    pub fn open_receive_channel(&mut self, stream: Stream) -> Stream {
        open_channel(&mut self.receive_channels, stream)
    }

    /// Returns the index of a received stream's count.
    #[inline]
    pub fn received_id(&mut self, stream: Stream) -> StreamId {
        self.acks.id(stream)
    }

    /// Counts a message received while its communicator was [idle](CommTable::is_idle).
    ///
    /// Returns `true` if an acknowledgement is due to its source; the driver then calls
    /// [`acknowledge`](Self::acknowledge).
    #[inline(always)]
    pub fn handle_received(&mut self, id: StreamId, bytes: usize) -> bool {
        self.acks.count_at(id, bytes)
    }

    /// Handles a posted receive's end: with a message, or with none if it was cancelled or failed.
    ///
    /// Counts the messages numbered by it.
    ///
    /// # Errors
    /// [`ReleaseError`], for a message from this rank to itself.
    pub fn handle_receive_ended(
        &mut self,
        comm: CommId,
        posted: PostedReceive,
        arrival: Option<Arrival>,
    ) -> Result<(), ReleaseError> {
        self.activity += 1;
        let mut numbered = std::mem::take(&mut self.numbered);
        self.comms.end(comm, posted, arrival, &mut numbered);
        for Arrival { source, tag, bytes } in numbered.drain(..) {
            let Some(state) = self.comms.get(comm) else { break };
            let Some(peer) = state.world_rank(source) else { continue };
            if self.acks.count(Stream::new(peer, state.number(), tag), bytes) {
                self.acknowledge(peer)?;
            }
        }
        self.numbered = numbered;
        self.comms.drop_if_idle(comm);
        Ok(())
    }

    /// Sends `peer` its unreported message counts.
    ///
    /// # Errors
    /// [`ReleaseError`], for messages from this rank to itself.
    pub fn acknowledge(&mut self, peer: u32) -> Result<(), ReleaseError> {
        let batch = self.acks.take(peer);
        if batch.is_empty() {
            Ok(())
        } else if peer == self.rank {
            self.sender.note_acks(peer, &batch)
        } else {
            self.send(peer, ControlKind::Acks, batch);
            Ok(())
        }
    }

    /// Sends every rank its unreported message counts.
    ///
    /// # Errors
    /// Same as [`acknowledge`](Self::acknowledge).
    pub fn acknowledge_all(&mut self) -> Result<(), ReleaseError> {
        (0..self.ranks).try_for_each(|peer| self.acknowledge(peer))
    }

    /// Records a determinant, where this rank's records can be replayed.
    ///
    /// Returns `true` if recorded.
    ///
    /// # Errors
    /// The local log's refusal, once: after it no determinant is recorded.
    pub fn handle_determinant(&mut self, determinant: Determinant) -> Result<bool, LocalLogError> {
        self.activity += 1;
        self.determinants.record(self.sender.log.as_mut(), determinant)
    }

    /// Skips a determinant that the driver doesn't log: the failed polls before it don't count for the next one.
    pub fn skip_determinant(&mut self) {
        self.determinants.skip();
    }

    // Releases.

    /// Returns `true` if there may be acknowledged records to release.
    #[inline(always)]
    pub fn is_releasing(&self) -> bool {
        self.sender.is_releasing()
    }

    /// Releases at most `records_max` acknowledged records in one lane, and calls `released` with its receiver.
    ///
    /// Others may wait for this rank: a few records with each message delay them less than all at once.
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn release_some(&mut self, records_max: usize, released: impl FnMut(u32, &Log)) -> Result<(), ReleaseError> {
        self.sender.release_some(records_max, released)
    }

    /// Releases all acknowledged records, and calls `released` with each receiver that has acknowledged any so far.
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn release_all(&mut self, released: impl FnMut(u32, &Log)) -> Result<(), ReleaseError> {
        self.sender.release_all(released)
    }

    /// Checks acknowledged counts against the messages sent.
    ///
    /// Call it where every departed message is counted.
    ///
    /// # Errors
    /// [`ReleaseError::Overcounted`].
    pub fn check_counts(&mut self) -> Result<(), ReleaseError> {
        self.sender.check_counts()
    }

    // Control messages.

    fn send(&mut self, to: u32, kind: ControlKind, bytes: Vec<u8>) {
        if !self.has_failed[to as usize] {
            self.outbox.push_back(ControlMessage { to, kind, bytes });
        }
    }

    fn send_all(&mut self, kind: ControlKind, entries: Entries) {
        for (to, bytes) in entries {
            self.send(to, kind, bytes);
        }
    }

    fn send_to_others(&mut self, kind: ControlKind, bytes: &[u8]) {
        let own = self.rank;
        for to in (0..self.ranks).filter(|rank| *rank != own) {
            self.send(to, kind, bytes.to_vec());
        }
    }

    /// Takes the next control message to send.
    pub fn poll_control(&mut self) -> Option<ControlMessage> {
        self.outbox.pop_front()
    }

    /// Handles a control message from another rank.
    ///
    /// After the last arrived one, the driver calls [`answer_queries`](Self::answer_queries).
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn handle_control(
        &mut self,
        from: u32,
        kind: ControlKind,
        bytes: &[u8],
        now: Instant,
    ) -> Result<(), ReleaseError> {
        match kind {
            ControlKind::Acks => {
                self.activity += 1;
                self.sender.note_acks(from, bytes)?;
            }
            ControlKind::Query => self.queries.handle_query(from, bytes),
            ControlKind::Answer => {
                self.activity += 1;
                let complete = self.queries.handle_answer(from, bytes);
                self.complete(&complete)?;
            }
            ControlKind::ProgressRequest => {
                if let Some(request) = ProgressRequest::decode(bytes) {
                    let reply = request.reply(self.state());
                    self.send(from, ControlKind::ProgressReply, reply.to_vec());
                }
            }
            ControlKind::ProgressReply => self.detector.handle_reply(from, bytes, now),
            ControlKind::Leave => self.detector.handle_left(from, now),
            ControlKind::Revoked => {
                self.activity += 1;
                for entry in bytes.chunks_exact(RecordTag::LEN).filter_map(RecordTag::decode) {
                    self.release_revoked(entry.comm)?;
                }
            }
        }
        Ok(())
    }

    /// Returns `true` if another rank awaits news from this one.
    #[inline]
    pub fn has_pending_queries(&self) -> bool {
        self.queries.has_pending()
    }

    /// Answers the queries with news.
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn answer_queries(&mut self) -> Result<(), ReleaseError> {
        if !self.queries.has_pending() {
            return Ok(());
        }
        let (acks, comms) = (&self.acks, &self.comms);
        let answers = self.queries.answers(|by| acks.has_unreported(by), |comm| comms.ended(comm));
        for (to, bytes) in answers {
            // The answer announces no further counts, so they come first.
            self.acknowledge(to)?;
            self.send(to, ControlKind::Answer, bytes);
        }
        Ok(())
    }

    /// Tells all other ranks of this one's departure without waiting for their end.
    pub fn leave(&mut self) {
        self.send_to_others(ControlKind::Leave, &[0; RecordTag::LEN]);
    }

    /// Returns the departed or failed ranks.
    pub fn left(&self) -> impl Iterator<Item = u32> {
        self.detector.left()
    }

    /// Handles another rank's failure: it is waited for no more.
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn handle_peer_failed(&mut self, failed: u32, now: Instant) -> Result<(), ReleaseError> {
        if let Some(has_failed) = self.has_failed.get_mut(failed as usize) {
            *has_failed = true;
        }
        self.detector.handle_left(failed, now);
        let complete = self.queries.handle_failure(failed);
        self.complete(&complete)
    }

    /// Handles a communicator revoked by the program on this rank, and tells its `members`: its unreceived messages
    /// stay unreceived, so its records are released like acknowledged ones.
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn handle_comm_revoked(
        &mut self,
        comm: CommId,
        members: impl Iterator<Item = u32>,
    ) -> Result<(), ReleaseError> {
        let entry = RecordTag { comm: comm.number(), tag: 0, number: 0 }.encode();
        let own = self.rank;
        for to in members.filter(|member| *member != own) {
            self.send(to, ControlKind::Revoked, entry.to_vec());
        }
        self.release_revoked(comm.number())
    }

    fn release_revoked(&mut self, comm: u32) -> Result<(), ReleaseError> {
        // A member may reuse the number if it could not make the communicator.
        if !self.comms.is_known(comm) {
            return Ok(());
        }
        self.sender.note_revoked(comm);
        self.complete(&[(comm, u64::MAX)])
    }

    /// Releases records to failed ranks, under `Keep::Acked`: they acknowledge nothing more, and a rank waits for
    /// space.
    ///
    /// Returns the number of records.
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn discard_for_failed(&mut self) -> Result<u64, ReleaseError> {
        let mut discarded = 0;
        for rank in (0..self.ranks).filter(|rank| self.has_failed[*rank as usize]) {
            discarded += self.sender.discard(rank)?;
        }
        Ok(discarded)
    }
}
