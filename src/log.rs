//! A rank's log: lanes and the local log, under one memory budget.

use std::task::{Context, Poll};

use counterfoil_ack_piggyback::{Ack, AckPolicy, SendWindow};
use counterfoil_log_core::{
    AckError, Claim, CursorError, Disposition, Epoch, ImportError, LaneWriter, Lanes, LocalLog, Phase, Rank,
    RepeatError, Ssn, TruncateError,
};
use counterfoil_log_io::Directory;

use crate::budget::{Budget, Collected};
use crate::cursor::{Cursor, Reader, ReplayError};
use crate::paths::{lanes_path, local_path};
use crate::spill::Spiller;
use crate::waiting::Readers;
use crate::{AppendError, DestroyError, Keep, Options, Stats, Usage};

/// A rank's log: its sent messages, and the local log of its own past.
///
/// One thread owns it. [`cursor`](Log::cursor)s and [`Reader`]s can be sent to other threads and read concurrently.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Log {
    pub(crate) lanes: Lanes,
    pub(crate) budget: Budget,
    pub(crate) local: LocalLog,
    /// Last local log entry on stable storage, if there is a store.
    pub(crate) local_synced: Ssn,
    /// Tasks waiting at the end of a lane.
    pub(crate) waiting: Readers,
}

// From a claim to the disk. The first line is every message's path, the others follow when there is no room:
//
//   claim -> Lanes::claim_or_else -> Claim::new, commit                 room in the lane's chunk
//     Budget::wait_for_room -> Budget::make_room -> LaneWriter::reserve   a new chunk, spares of other lanes
//       Budget::spill -> submit_settled, evict                            which records leave memory
//         Spiller::enqueue_write                                          a cursor on them, to the store's thread
//           Worker::write_lane -> Store::append                           blocks, in a segment
//             StorageBackend::write, write_chunks                         io_uring or pwrite
impl Log {
    /// Returns the options passed at opening.
    pub fn options(&self) -> &Options {
        &self.budget.options
    }

    /// Reserves a record of `prefix` + `payload` bytes for `peer`, to be filled and committed.
    ///
    /// Dropping the claim leaves a pad that readers skip.
    ///
    /// # Errors
    /// [`AppendError`]; the log is then unchanged. If the budget is used up, it is [`AppendError::Full`], at once,
    /// unless the log [stops logging](Options::stops_logging) and so frees retained records. The log itself never
    /// waits: only its owner can, who handles the acknowledgements and checkpoints that free memory.
    #[inline]
    pub fn try_claim(&mut self, peer: Rank, prefix: usize, payload: usize) -> Result<Claim<'_>, Box<AppendError>> {
        self.lanes.claim_or_else(peer, prefix, payload, &mut self.budget, Budget::try_make_room)
    }

    /// Reserves a record like [`try_claim`](Self::try_claim), but waits if appends outran the disk.
    ///
    /// It doesn't wait for acknowledgements, because this same thread handles them.
    ///
    /// # Errors
    /// [`AppendError`], but never [`AppendError::SpillBehind`].
    #[inline]
    pub fn claim(&mut self, peer: Rank, prefix: usize, payload: usize) -> Result<Claim<'_>, Box<AppendError>> {
        self.lanes.claim_or_else(peer, prefix, payload, &mut self.budget, Budget::wait_for_room)
    }

    /// Makes room for a record of `prefix` + `payload` bytes for `peer` like [`try_claim`](Self::try_claim), without
    /// claiming it: [`claim_if_room`](Self::claim_if_room) succeeds until another change to the log.
    ///
    /// Unlike a refused claim's, the error borrows nothing, so the caller can act on it and try again:
    ///
    /// ```
    /// # use counterfoil::{AppendError, Log, Options, Rank};
    /// # fn send(log: &mut Log, peer: Rank, message: &[u8]) -> Result<(), Box<AppendError>> {
    /// while let Err(refused) = log.reserve(peer, 0, message.len()) {
    ///     if log.collect().chunks == 0 {
    ///         return Err(refused);
    ///     }
    /// }
    /// let mut claim = log.claim_if_room(peer, 0, message.len()).expect("it was reserved");
    /// claim.payload_mut().copy_from_slice(message);
    /// claim.commit();
    /// # Ok(())
    /// # }
    /// # let mut log = Log::create(Options::new(Rank(0), 2)).expect("a log");
    /// # send(&mut log, Rank(1), b"a message").expect("room");
    /// # assert_eq!(log.next_ssn(Rank(1)).0, 2);
    /// ```
    ///
    /// # Errors
    /// See [`try_claim`](Self::try_claim).
    pub fn reserve(&mut self, peer: Rank, prefix: usize, payload: usize) -> Result<(), Box<AppendError>> {
        if self.lanes.has_room(peer, prefix, payload) {
            return Ok(());
        }
        self.budget.try_make_room(&mut self.lanes, peer, prefix, payload)
    }

    /// Makes room for a record like [`reserve`](Self::reserve).
    ///
    /// Pending while appends outrun the disk, where [`claim`](Self::claim) would wait; the task is woken after the next
    /// disk write. For a caller with more to wait for.
    ///
    /// One task waits at a time: a later call replaces an earlier one.
    ///
    /// # Errors
    /// See [`try_claim`](Self::try_claim), but never [`AppendError::SpillBehind`]. A log full of unacknowledged records
    /// refuses at once: acknowledgements come through this log.
    pub fn poll_reserve(
        &mut self,
        context: &mut Context<'_>,
        peer: Rank,
        prefix: usize,
        payload: usize,
    ) -> Poll<Result<(), Box<AppendError>>> {
        // A result before the task's registration is handled by the second attempt; a later one wakes the task.
        for is_registered in [false, true] {
            match self.reserve(peer, prefix, payload) {
                Err(refused) if matches!(*refused, AppendError::SpillBehind(_)) => {}
                made => return Poll::Ready(made),
            }
            if !is_registered {
                self.budget.wake_after_write(context.waker());
            }
        }
        Poll::Pending
    }

    /// Reserves a record if the channel's current chunk has room for it, and does nothing else: for latency-bound
    /// senders.
    ///
    /// If this returns `None`, [`claim`](Self::claim) or [`try_claim`](Self::try_claim) makes room or returns an error.
    #[inline(always)]
    pub fn claim_if_room(&mut self, peer: Rank, prefix: usize, payload: usize) -> Option<Claim<'_>> {
        self.lanes.claim_if_room(peer, prefix, payload)
    }

    /// Returns the SSN of the next message to `peer`.
    #[inline]
    pub fn next_ssn(&self, peer: Rank) -> Ssn {
        self.lanes.get(peer).map_or(Ssn::FIRST, LaneWriter::next_ssn)
    }

    /// Returns the lowest SSN at which a [`cursor`](Self::cursor) to `peer` can begin: the oldest message's in the log,
    /// or the next one if it holds none.
    ///
    /// Earlier messages were released or collected, or never were in this log. Messages covered by a checkpoint of
    /// `peer` may be freed out of order.
    pub fn kept_from(&self, peer: Rank) -> Ssn {
        let in_memory = self.lanes.get(peer).map_or(Ssn::FIRST, LaneWriter::kept_from);
        self.on_disk(peer).map_or(in_memory, |on_disk| on_disk.min(in_memory))
    }

    /// Returns the highest SSN acknowledged by `peer`.
    ///
    /// After a [recovery](Self::recover), a lane restored from a checkpoint has the checkpoint's; for a lane from
    /// shared memory, which has no acknowledgements, it is the SSN before the oldest record.
    #[inline]
    pub fn acked(&self, peer: Rank) -> Ssn {
        self.lanes.get(peer).map_or(Ssn::ZERO, LaneWriter::acked)
    }

    /// Rebuilds the send window to `peer` for a layer that lost its own, after a recovery: from the messages
    /// [sent](Self::next_ssn) and [acknowledged](Self::acked) in this log.
    ///
    /// Reads the unacknowledged records, to count their bytes.
    ///
    /// ```
    /// # use counterfoil::{Ack, AckPolicy, Epoch, Log, Options, Phase, Rank, Ssn};
    /// # let mut log = Log::create(Options::new(Rank(0), 2)).expect("a log");
    /// # for _ in 0..10 { log.claim(Rank(1), 0, 100).expect("room").commit(); }
    /// # log.acknowledge(Rank(1), Ack { ssn: Ssn(4), epoch: Epoch::FIRST }, Phase::default()).expect("it was sent");
    /// let window = log.send_window(Rank(1), AckPolicy::default(), Epoch::FIRST).expect("readable records");
    /// assert_eq!((window.next_ssn(), window.acked(), window.unacked_bytes()), (Ssn(11), Ssn(4), 600));
    /// ```
    ///
    /// # Errors
    /// [`ReplayError`]: a record can't be read, or too many cursors are open.
    pub fn send_window(&mut self, peer: Rank, policy: AckPolicy, epoch: Epoch) -> Result<SendWindow, ReplayError> {
        let (sent, acked) = (self.next_ssn(peer).prev(), self.acked(peer));
        let mut unacked_bytes = 0;
        if acked < sent {
            let mut cursor = self.cursor(peer, acked.next().max(self.kept_from(peer)))?;
            while let Some(record) = cursor.read()? {
                unacked_bytes += record.payload().len() as u64;
            }
        }
        Ok(SendWindow::resume(policy, epoch, (sent, acked), unacked_bytes))
    }

    /// Handles a cumulative acknowledgement from `peer`: releases or retains the records up to it, depending on
    /// [`Options::keep`].
    ///
    /// `phase` is the sender's phase for these messages, for protocols with phases.
    ///
    /// # Errors
    /// [`AckError`] for an SSN never sent; the log is then unchanged.
    #[inline]
    pub fn acknowledge(&mut self, peer: Rank, ack: Ack, phase: Phase) -> Result<(), AckError> {
        let disposition = match self.budget.options.keep {
            Keep::Acked => Disposition::Release,
            _ if self.budget.stopped_logging => Disposition::Release,
            Keep::Checkpoint | Keep::All => Disposition::Retain { epoch: ack.epoch, phase },
        };
        self.acknowledge_with(peer, ack, disposition)
    }

    /// Handles an acknowledgement like [`acknowledge`](Self::acknowledge), for messages not needed from this log by any
    /// recovery, whichever rank fails: releases them even if others are retained until a checkpoint.
    ///
    /// Only [`Keep::All`] retains them.
    ///
    /// # Errors
    /// See [`acknowledge`](Self::acknowledge).
    pub fn acknowledge_and_release(&mut self, peer: Rank, ack: Ack, phase: Phase) -> Result<(), AckError> {
        match self.budget.options.keep {
            Keep::All => self.acknowledge(peer, ack, phase),
            Keep::Acked | Keep::Checkpoint => self.acknowledge_with(peer, ack, Disposition::Release),
        }
    }

    #[inline]
    fn acknowledge_with(&mut self, peer: Rank, ack: Ack, disposition: Disposition) -> Result<(), AckError> {
        let Some(lane) = self.lanes.get_mut(peer) else { return Err(AckError { acked: ack.ssn, sent: Ssn::ZERO }) };
        lane.acknowledge(ack.ssn, disposition)?;
        let channel = &self.budget.channels[peer.index()];
        if disposition == Disposition::Release && channel.is_on_disk() {
            // What was retained before stays, in memory and on disk.
            let covered = channel.covered;
            let retained = lane.runs().find(|run| run.last > covered && run.disposition != Disposition::Release);
            let floor = retained.map_or(lane.acked(), |run| run.first.prev());
            self.budget.raise_floor(&mut self.lanes, peer, floor);
            if let Some(settled) = self.lanes.get_mut(peer).and_then(LaneWriter::poll_settled) {
                self.budget.settle(&mut self.lanes, peer, settled);
            }
            return Ok(());
        }
        if let Some(settled) = lane.poll_settled() {
            self.budget.settle(&mut self.lanes, peer, settled);
        }
        Ok(())
    }

    /// Handles a durable checkpoint of `peer`, beginning `epoch` and covering the messages up to `upto`: no recovery
    /// needs them again.
    ///
    /// They count as acknowledged, too. [`collect`](Self::collect) frees their memory.
    ///
    /// # Errors
    /// [`AckError`] for an SSN never sent; the log is then unchanged.
    pub fn receiver_covered(&mut self, peer: Rank, epoch: Epoch, upto: Ssn) -> Result<(), AckError> {
        if upto == Ssn::ZERO {
            return Ok(());
        }
        self.acknowledge(peer, Ack { ssn: upto, epoch }, Phase::default())?;
        if self.budget.options.keep == Keep::Checkpoint {
            self.budget.raise_floor(&mut self.lanes, peer, upto);
        }
        Ok(())
    }

    /// Handles a rollback of `peer` to its state after receiving the messages up to `upto`.
    ///
    /// Later messages count as unacknowledged again. Released and freed ones are lost.
    pub fn receiver_rolled_back(&mut self, peer: Rank, upto: Ssn) {
        if let Some(lane) = self.lanes.get_mut(peer) {
            lane.unacknowledge(upto);
            self.budget.collector.forget_after(peer, upto);
        }
    }

    /// Frees the records no longer needed by any recovery.
    ///
    /// The cost depends on the number of freed chunks, not on the log's size.
    pub fn collect(&mut self) -> Collected {
        self.budget.collect(&mut self.lanes)
    }

    /// Opens a cursor on the messages to `peer` from `from` on, for transmission and replay.
    ///
    /// It reads spilled records from disk and continues in memory.
    ///
    /// After a [rewind](Self::rewind) it still reads the records to be repeated, although this rank hasn't sent them
    /// again yet: a transmitting caller stops before [`rewound_to`](Self::rewound_to).
    ///
    /// # Errors
    /// [`ReplayError`]: those messages are no longer kept, or too many cursors are open.
    pub fn cursor(&mut self, peer: Rank, from: Ssn) -> Result<Cursor, ReplayError> {
        let reader = self.reader(peer)?;
        match reader.open(from) {
            Err(ReplayError::Cursor(CursorError::TooMany { .. })) if self.budget.spiller.is_some() => {
                // Writes in flight use cursors, too.
                self.budget.wait_for_writes();
                reader.open(from)
            }
            opened => opened,
        }
    }

    /// Returns a reader, for opening cursors on the lane to `peer` in other threads.
    ///
    /// # Errors
    /// [`CursorError::Gone`] if the job has no such rank.
    pub fn reader(&mut self, peer: Rank) -> Result<Reader, CursorError> {
        let none = CursorError::Gone { peer, asked: Ssn::ZERO, kept_from: Ssn::MAX };
        let lane = self.lanes.open(peer).ok_or(none)?.reader();
        let disk = self.budget.spiller.as_ref().map(|spiller| spiller.disk.clone());
        Ok(Reader::new(lane, disk, self.waiting.0.clone()))
    }

    /// Wakes the tasks waiting by [`Cursor::poll_ready`] for a record committed by now.
    ///
    /// If there is none, this costs an uncontended lock: call it after a batch of commits, or before this thread waits.
    pub fn wake_readers(&self) {
        self.waiting.0.wake(|peer| self.next_ssn(peer));
    }

    /// Removes all messages to `peer` after `last`: this rank rolled back to its state after sending `last`.
    ///
    /// # Errors
    /// [`TruncateError`], also while a cursor is open on the lane.
    pub fn truncate(&mut self, peer: Rank, last: Ssn) -> Result<(), TruncateError> {
        if self.lanes.get(peer).is_none() {
            return Ok(());
        }
        if !self.budget.begin_truncate(peer) {
            return Err(TruncateError::CursorOpen { peer });
        }
        let truncate = |lanes: &mut Lanes, last| lanes.get_mut(peer).map_or(Ok(last), |lane| lane.truncate(last));
        let truncated = match truncate(&mut self.lanes, last) {
            Err(TruncateError::Alloc(error)) => {
                // The lane is empty in memory by now, and there is no memory for its end. If evicting other lanes'
                // chunks doesn't help, it ends earlier.
                let is_whole = self.budget.set_lane_end(&mut self.lanes, peer, last);
                let end = self.next_ssn(peer).prev();
                let result = if is_whole { Ok(()) } else { Err(TruncateError::Alloc(error)) };
                truncate(&mut self.lanes, end).map(|settled| (settled, end, result))
            }
            result => result.map(|settled| (settled, last, Ok(()))),
        };
        match truncated {
            Ok((settled, end, result)) => {
                self.budget.collector.forget_after(peer, settled);
                self.budget.end_truncate(peer, Some(end));
                result
            }
            Err(refused) => {
                self.budget.end_truncate(peer, None);
                Err(refused)
            }
        }
    }

    /// Rewinds the lane to `peer` to the state after sending `last`, but keeps the later records: the next messages are
    /// to be [`repeat`](Self::repeat)ed.
    ///
    /// [`next_ssn`](Self::next_ssn) stays, cursors read the later records, too, and their acknowledgements are
    /// accepted: the receiver may have them from before. A layer that rewound its own window transmits only below
    /// [`rewound_to`](Self::rewound_to); otherwise it gets acknowledgements for messages never sent according to its
    /// window.
    pub fn rewind(&mut self, peer: Rank, last: Ssn) {
        if let Some(lane) = self.lanes.get_mut(peer) {
            lane.rewind(last);
        }
    }

    /// Returns the SSN of the next message to be repeated to `peer`, if there is one.
    #[inline]
    pub fn rewound_to(&self, peer: Rank) -> Option<Ssn> {
        self.lanes.get(peer).and_then(LaneWriter::rewound_to)
    }

    /// Repeats a message after a rewind: compares the payload with the record committed under the next SSN.
    ///
    /// # Errors
    /// [`RepeatError::Diverged`] if the bytes differ.
    pub fn repeat(&mut self, peer: Rank, payload: &[u8]) -> Result<Ssn, RepeatError> {
        self.lanes.get_mut(peer).ok_or(RepeatError::NotRewound { peer })?.repeat(payload)
    }

    /// Repeats a message found different by [`repeat`](Self::repeat): its record stays as it is.
    ///
    /// # Errors
    /// [`RepeatError::NotRewound`].
    pub fn repeat_as_recorded(&mut self, peer: Rank) -> Result<Ssn, RepeatError> {
        self.lanes.get_mut(peer).ok_or(RepeatError::NotRewound { peer })?.repeat_as_recorded()
    }

    /// Appends a message from a checkpoint, under its SSN.
    ///
    /// # Errors
    /// [`ImportError`]: no room, or the SSNs don't increase.
    pub fn import(&mut self, peer: Rank, ssn: Ssn, prefix: &[u8], payload: &[u8]) -> Result<(), ImportError> {
        let no_such_rank = ImportError::OutOfOrder { peer, ssn, next: Ssn::MAX };
        let last = self.next_ssn(peer).prev();
        let mut claim = self.lanes.open(peer).ok_or(no_such_rank)?.import(ssn, prefix.len(), payload.len())?;
        let (to_prefix, to_payload) = claim.parts_mut();
        to_prefix.copy_from_slice(prefix);
        to_payload.copy_from_slice(payload);
        claim.commit();
        self.budget.skip_ssns(peer, last, ssn);
        self.budget.channels[peer.index()].inherited = ssn;
        Ok(())
    }

    /// Sets the SSN of the next message to `peer`.
    ///
    /// The skipped SSNs are not in the log, because a checkpoint covered them.
    ///
    /// # Errors
    /// [`ImportError`] if the lane is already beyond it.
    pub fn set_next_ssn(&mut self, peer: Rank, next: Ssn) -> Result<(), ImportError> {
        let no_such_rank = ImportError::OutOfOrder { peer, ssn: next, next: Ssn::MAX };
        let last = self.next_ssn(peer).prev();
        self.lanes.open(peer).ok_or(no_such_rank)?.set_next(next)?;
        self.budget.skip_ssns(peer, last, next);
        Ok(())
    }

    /// Frees all retained records and retains nothing from here on: the run is no longer recoverable.
    pub fn stop_logging(&mut self) {
        self.budget.stop_logging(&mut self.lanes);
    }

    /// Returns the local log, for this rank's own past: determinants, late messages, collective results.
    pub fn local(&mut self) -> &mut LocalLog {
        &mut self.local
    }

    /// Returns the memory usage: a few loads, whereas [`stats`](Self::stats) visits every lane.
    #[inline]
    pub fn usage(&self) -> Usage {
        Usage {
            used_bytes: self.lanes.pool().used_bytes(),
            resident_bytes: self.lanes.pool().resident_bytes(),
            late_commit_bytes: self.lanes.pool().late_commit_bytes(),
            spilled_bytes: self.budget.spilled_bytes,
            spill_cpu: self.budget.spiller.as_ref().map(|spiller| spiller.disk.cpu()).unwrap_or_default(),
            stopped_logging: self.budget.stopped_logging,
        }
    }

    /// Returns counters and usage, with the holders of retained memory.
    pub fn stats(&self) -> Stats {
        let Usage { used_bytes, resident_bytes, late_commit_bytes, spilled_bytes, spill_cpu, stopped_logging } =
            self.usage();
        Stats {
            messages_logged: self
                .lanes
                .iter()
                .map(|lane| {
                    lane.next_ssn().prev().0.saturating_sub(self.budget.channels[lane.peer().index()].inherited.0)
                })
                .sum(),
            bytes_logged: self.lanes.iter().map(LaneWriter::appended_bytes).sum(),
            used_bytes,
            resident_bytes,
            max_bytes: self.budget.options.memory_bytes_max,
            late_commit_bytes,
            lanes: self.lanes.iter().count(),
            local_entries: self.local.len(),
            holders: self.budget.collector.report(),
            stopped_logging,
            spilled_bytes,
            spill_cpu,
            disk: self.budget.spiller.as_ref().map(|spiller| spiller.disk.usage()),
            backend: self.budget.spiller.as_ref().map(|spiller| spiller.disk.backend.clone()),
        }
    }

    fn on_disk(&self, peer: Rank) -> Option<Ssn> {
        self.budget.spiller.as_ref()?.disk.index.kept_from(peer)
    }

    /// Closes the log and removes its files: those in shared memory, and its open store, with every checkpoint.
    ///
    /// A store opened by a [`Builder`](crate::Builder) is the caller's and is left, as are foreign files in the store's
    /// directory. Cursors stay valid.
    ///
    /// The removal isn't synced: a power cut soon after may bring files back. A failed removal can be repeated after a
    /// recovery.
    ///
    /// # Errors
    /// [`DestroyError`]; a missing file is no error.
    pub fn destroy(self) -> Result<(), DestroyError> {
        let Options { dir, store, rank, .. } = self.budget.options.clone();
        let has_directory = self.budget.spiller.as_ref().is_some_and(Spiller::has_directory);
        // Ends the store's thread and releases the locks.
        drop(self);
        for path in dir.iter().flat_map(|dir| [lanes_path(dir, rank), local_path(dir, rank)]) {
            match std::fs::remove_file(&path) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(DestroyError::Memory { path, source });
                }
                _ => {}
            }
        }
        if let Some(store) = store.filter(|_| has_directory) {
            Directory::remove_store(&store.rank_dir(rank))?;
        }
        Ok(())
    }
}
