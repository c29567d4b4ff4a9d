//! A rank's log: lanes, windows of what is retained, and the local log, under one budget.

use counterfoil_ack_piggyback::Ack;
use counterfoil_log_core::{
    AckError, Claim, CursorError, Disposition, Epoch, ImportError, LaneWriter, Lanes, LocalLog, Phase, Rank,
    RepeatError, Ssn, TruncateError,
};

use crate::budget::Budget;
use crate::cursor::{Cursor, Reader, ReplayError};
use crate::open::{lanes_path, local_path};
use crate::{AppendError, Keep, Options, Stats, Usage};

/// A rank's log of what it sent, and of its own past.
///
/// One thread owns it. [`cursor`](Log::cursor)s and [`Reader`]s go to other threads and read beside it.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Log {
    pub(crate) lanes: Lanes,
    pub(crate) budget: Budget,
    pub(crate) local: LocalLog,
    /// Up to here the local log's entries are on stable storage, where there is a store.
    pub(crate) local_synced: Ssn,
}

/// What [`Log::collect`] freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Chunks given back.
    pub chunks: usize,
    /// Chunks whose retained records were moved together.
    pub relocated: usize,
}

impl Log {
    /// The options that the log was opened with.
    pub fn options(&self) -> &Options {
        &self.budget.options
    }

    /// Reserves a record of `prefix` + `payload` bytes for `peer`, to be filled and committed. Dropping the claim leaves
    /// a pad that readers skip.
    ///
    /// # Errors
    /// [`AppendError`]; nothing is changed then. At the budget it is [`AppendError::Full`], at once, unless
    /// [`OnFull::StopLogging`](crate::OnFull::StopLogging) can let retained records go. The log itself never waits: see
    /// [`OnFull`](crate::OnFull).
    #[inline]
    pub fn try_claim(&mut self, peer: Rank, prefix: usize, payload: usize) -> Result<Claim<'_>, Box<AppendError>> {
        self.lanes.claim_or_else(peer, prefix, payload, &mut self.budget, Budget::make_room_at_once)
    }

    /// Reserves a record as [`try_claim`](Self::try_claim) does, and waits where appends outran the disk.
    ///
    /// It doesn't wait for acknowledgements, which come in through this very thread.
    ///
    /// # Errors
    /// [`AppendError`], but never [`AppendError::SpillBehind`].
    #[inline]
    pub fn claim(&mut self, peer: Rank, prefix: usize, payload: usize) -> Result<Claim<'_>, Box<AppendError>> {
        self.lanes.claim_or_else(peer, prefix, payload, &mut self.budget, Budget::wait_for_room)
    }

    /// Reserves a record where the channel's current chunk has room for it, and does nothing else: for who has messages to send that
    /// wait for each other. Where it is `None`, [`claim`](Self::claim) or [`try_claim`](Self::try_claim) makes room, or says why there is none.
    #[inline(always)]
    pub fn claim_if_room(&mut self, peer: Rank, prefix: usize, payload: usize) -> Option<Claim<'_>> {
        self.lanes.claim_if_room(peer, prefix, payload)
    }

    /// The SSN that the next message to `peer` will have.
    #[inline]
    pub fn next_ssn(&self, peer: Rank) -> Ssn {
        self.lanes.get(peer).map_or(Ssn::FIRST, LaneWriter::next_ssn)
    }

    /// The lowest SSN that a [`cursor`](Self::cursor) to `peer` can begin at: that of the oldest message the log still holds,
    /// or the next one where it holds none. Below it messages were released or collected, or never were in this log. Of those
    /// that a checkpoint of `peer` covers, some may be gone before others.
    pub fn kept_from(&self, peer: Rank) -> Ssn {
        let in_memory = self.lanes.get(peer).map_or(Ssn::FIRST, LaneWriter::kept_from);
        self.on_disk(peer).map_or(in_memory, |on_disk| on_disk.min(in_memory))
    }

    /// The highest SSN that `peer` acknowledged.
    #[inline]
    pub fn acked(&self, peer: Rank) -> Ssn {
        self.lanes.get(peer).map_or(Ssn::ZERO, LaneWriter::acked)
    }

    /// Takes a cumulative acknowledgement from `peer`: the records up to it are released or retained, as
    /// [`Options::keep`] says. `phase` is the sender's phase of these messages, for protocols that have phases.
    ///
    /// # Errors
    /// [`AckError`] for what was never sent; nothing is changed then.
    #[inline]
    pub fn acknowledge(&mut self, peer: Rank, ack: Ack, phase: Phase) -> Result<(), AckError> {
        let disposition = match self.budget.options.keep {
            Keep::Acked => Disposition::Release,
            _ if self.budget.stopped_logging => Disposition::Release,
            Keep::Checkpoint | Keep::All => Disposition::Retain { epoch: ack.epoch, phase },
        };
        self.acknowledge_with(peer, ack, disposition)
    }

    /// As [`acknowledge`](Self::acknowledge), for messages that no recovery asks this log for, whoever fails: they are released
    /// even where others are retained until a checkpoint. Only [`Keep::All`] keeps them.
    ///
    /// # Errors
    /// As [`acknowledge`](Self::acknowledge).
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
        if disposition == Disposition::Release && self.budget.channels[peer.index()].is_on_disk() {
            let acked = lane.acked();
            self.budget.raise_floor(&mut self.lanes, peer, acked);
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

    /// A durable checkpoint of `peer`, which began `epoch`, covers the messages up to `upto`: no recovery asks for them
    /// again. They count as acknowledged, too. [`collect`](Self::collect) frees what became superfluous.
    ///
    /// # Errors
    /// [`AckError`] for what was never sent; nothing is changed then.
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

    /// `peer` rolled back to where it had received the messages up to `upto`: what it acknowledged after, it no longer has.
    ///
    /// Those messages count as unacknowledged again. What was released and freed is not there any more.
    pub fn receiver_rolled_back(&mut self, peer: Rank, upto: Ssn) {
        if let Some(lane) = self.lanes.get_mut(peer) {
            lane.unacknowledge(upto);
            self.budget.collector.forget_after(peer, upto);
        }
    }

    /// Frees what no recovery can need any more. The cost grows with the chunks that are freed, not with what is kept.
    pub fn collect(&mut self) -> Collected {
        self.budget.collect(&mut self.lanes)
    }

    /// A cursor on the messages to `peer` from `from` on: for sending them, and for sending them again. It reads what was
    /// spilled from disk, and goes on in memory.
    ///
    /// # Errors
    /// [`ReplayError`]: those messages are gone, or too many cursors are open.
    pub fn cursor(&mut self, peer: Rank, from: Ssn) -> Result<Cursor, ReplayError> {
        let reader = self.reader(peer)?;
        match reader.open(from) {
            Err(ReplayError::Cursor(CursorError::TooMany { .. })) if self.budget.spiller.is_some() => {
                // Writes that are under way have cursors, too.
                self.budget.wait_for_writes();
                reader.open(from)
            }
            opened => opened,
        }
    }

    /// Opens cursors on the lane to `peer` in other threads.
    ///
    /// # Errors
    /// [`CursorError::Gone`] where the job has no such rank.
    pub fn reader(&mut self, peer: Rank) -> Result<Reader, CursorError> {
        let none = CursorError::Gone { peer, asked: Ssn::ZERO, kept_from: Ssn::MAX };
        let lane = self.lanes.open(peer).ok_or(none)?.reader();
        Ok(Reader::new(lane, self.budget.spiller.as_ref().map(|spiller| spiller.disk.clone())))
    }

    /// Forgets every message to `peer` after `last`: this rank rolled back to where it had sent that many.
    ///
    /// # Errors
    /// [`TruncateError`], also while a cursor is open on the lane.
    pub fn truncate(&mut self, peer: Rank, last: Ssn) -> Result<(), TruncateError> {
        if self.lanes.get(peer).is_none() {
            return Ok(());
        }
        if !self.budget.begin_cut(peer) {
            return Err(TruncateError::CursorOpen { peer });
        }
        let truncate = |lanes: &mut Lanes, last| lanes.get_mut(peer).map_or(Ok(last), |lane| lane.truncate(last));
        let cut = match truncate(&mut self.lanes, last) {
            Err(TruncateError::Alloc(error)) => {
                // The lane has nothing there in memory any more. Where others make no room for its end, it ends earlier.
                let is_whole = self.budget.end_lane_with(&mut self.lanes, peer, last);
                let end = self.next_ssn(peer).prev();
                let result = if is_whole { Ok(()) } else { Err(TruncateError::Alloc(error)) };
                truncate(&mut self.lanes, end).map(|settled| (settled, end, result))
            }
            cut => cut.map(|settled| (settled, last, Ok(()))),
        };
        match cut {
            Ok((settled, end, result)) => {
                self.budget.collector.forget_after(peer, settled);
                self.budget.cut(peer, Some(end));
                result
            }
            Err(refused) => {
                self.budget.cut(peer, None);
                Err(refused)
            }
        }
    }

    /// Goes back to where `last` was the last message sent to `peer`, keeping what was committed after: the next messages
    /// are [`repeat`](Self::repeat)ed.
    pub fn rewind(&mut self, peer: Rank, last: Ssn) {
        if let Some(lane) = self.lanes.get_mut(peer) {
            lane.rewind(last);
        }
    }

    /// The SSN of the next message to be repeated to `peer`, while there is one.
    #[inline]
    pub fn rewound_to(&self, peer: Rank) -> Option<Ssn> {
        self.lanes.get(peer).and_then(LaneWriter::rewound_to)
    }

    /// Sends again what had been sent: compares the payload with what was committed under the next SSN.
    ///
    /// # Errors
    /// [`RepeatError::Diverged`](counterfoil_log_core::RepeatError::Diverged) where the bytes differ.
    pub fn repeat(&mut self, peer: Rank, payload: &[u8]) -> Result<Ssn, RepeatError> {
        self.lanes.get_mut(peer).ok_or(RepeatError::NotRewound { peer })?.repeat(payload)
    }

    /// Appends a message as a checkpoint kept it, under its SSN.
    ///
    /// # Errors
    /// [`ImportError`]: no room, or the SSNs don't rise.
    pub fn import(&mut self, peer: Rank, ssn: Ssn, prefix: &[u8], payload: &[u8]) -> Result<(), ImportError> {
        let no_such_rank = ImportError::OutOfOrder { peer, ssn, next: Ssn::MAX };
        let last = self.next_ssn(peer).prev();
        let mut claim = self.lanes.open(peer).ok_or(no_such_rank)?.import(ssn, prefix.len(), payload.len())?;
        let (to_prefix, to_payload) = claim.parts_mut();
        to_prefix.copy_from_slice(prefix);
        to_payload.copy_from_slice(payload);
        claim.commit();
        self.budget.leave_out(peer, last, ssn);
        self.budget.channels[peer.index()].before = ssn;
        Ok(())
    }

    /// Sets the SSN of the next message to `peer`: those in between are not in the log, because a checkpoint covered them.
    ///
    /// # Errors
    /// [`ImportError`] where the lane is beyond it already.
    pub fn set_next_ssn(&mut self, peer: Rank, next: Ssn) -> Result<(), ImportError> {
        let no_such_rank = ImportError::OutOfOrder { peer, ssn: next, next: Ssn::MAX };
        let last = self.next_ssn(peer).prev();
        self.lanes.open(peer).ok_or(no_such_rank)?.set_next(next)?;
        self.budget.leave_out(peer, last, next);
        Ok(())
    }

    /// Lets everything retained go, and retains nothing from here on: the run is not recoverable any more.
    pub fn stop_logging(&mut self) {
        self.budget.stop_logging(&mut self.lanes);
    }

    /// What this rank keeps about its own past.
    pub fn local(&mut self) -> &mut LocalLog {
        &mut self.local
    }

    /// How much the log holds: a few loads, where [`stats`](Self::stats) looks at every lane and names who holds what.
    #[inline]
    pub fn usage(&self) -> Usage {
        Usage {
            used_bytes: self.lanes.pool().used_bytes(),
            resident_bytes: self.lanes.pool().resident_bytes(),
            spilled_bytes: self.budget.spilled_bytes,
            stopped_logging: self.budget.stopped_logging,
        }
    }

    /// What the log did and holds.
    pub fn stats(&self) -> Stats {
        let Usage { used_bytes, resident_bytes, spilled_bytes, stopped_logging } = self.usage();
        Stats {
            messages_logged: self
                .lanes
                .iter()
                .map(|lane| lane.next_ssn().prev().0.saturating_sub(self.budget.channels[lane.peer().index()].before.0))
                .sum(),
            bytes_logged: self.lanes.iter().map(LaneWriter::appended_bytes).sum(),
            used_bytes,
            resident_bytes,
            max_bytes: self.budget.options.memory_bytes_max,
            lanes: self.lanes.iter().count(),
            local_entries: self.local.len(),
            holders: self.budget.collector.report(),
            stopped_logging,
            spilled_bytes,
            disk: self.budget.spiller.as_ref().map(|spiller| spiller.disk.usage()),
            backend: self.budget.spiller.as_ref().map(|spiller| spiller.disk.backend.clone()),
        }
    }

    fn on_disk(&self, peer: Rank) -> Option<Ssn> {
        self.budget.spiller.as_ref()?.disk.index.kept_from(peer)
    }

    /// Ends the log for good and removes its files.
    ///
    /// # Errors
    /// What the system says; a file that is gone already is no error.
    pub fn destroy(self) -> std::io::Result<()> {
        let Some(dir) = &self.budget.options.dir else { return Ok(()) };
        for path in [lanes_path(dir, self.budget.options.rank), local_path(dir, self.budget.options.rank)] {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}
