//! A rank's log: lanes, windows of what is retained, and the local log, under one budget.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use counterfoil_ack_piggyback::Ack;
use counterfoil_gc::{ChunkUse, Collector, Decision, PartlyCovered};
use counterfoil_log_core::{
    AckError, ChunkId, Claim, Cursor, CursorError, DeadLog, Disposition, Epoch, ImportError, LaneReader, LaneWriter,
    Lanes, LocalLog, Owner, Phase, Pool, Rank, Relocated, RepeatError, SettledChunk, Ssn, TruncateError,
    check_private_dir,
};

use crate::{AppendError, Keep, OnFull, OpenError, Options, Stats, Tier};

/// A rank's log of what it sent, and of its own past.
///
/// One thread owns it. [`cursor`](Log::cursor)s and [`LaneReader`]s go to other threads and read beside it.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Log {
    lanes: Lanes,
    budget: Budget,
    local: LocalLog,
}

/// What the log knows of a lane beside its records.
#[derive(Clone, Copy, Debug, Default)]
struct Channel {
    /// The last SSN that this process didn't send itself: imported or recovered.
    before: Ssn,
    /// Up to here nothing is needed: a durable checkpoint of the receiver covers it.
    covered: Ssn,
}

/// What [`Log::recover`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The lanes that hold records: destination, lowest SSN kept, last SSN sent.
    pub lanes: Vec<(Rank, Ssn, Ssn)>,
    /// Entries of the local log.
    pub local_entries: usize,
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
    /// An empty log.
    ///
    /// # Errors
    /// [`OpenError`]: an option out of its limits, no memory, a directory that isn't private, a file that exists.
    pub fn create(options: Options) -> Result<Log, OpenError> {
        options.validate()?;
        if let Some(dir) = &options.dir {
            check_private_dir(dir)?;
        }
        let pool = create_pool(&options)?;
        let local = match &options.dir {
            Some(dir) => Pool::create(&local_path(dir, options.rank), owner(&options, LOCAL), options.local_pool())?,
            None => Pool::volatile(options.local_pool())?,
        };
        Ok(Log::over(options, pool, LocalLog::new(local)))
    }

    /// The log of a dead process of this rank: what it had committed, as far as its tier survives a process.
    ///
    /// In the volatile tier the lanes are empty and only the local log is recovered. Files that the dead process had not
    /// yet made are made now.
    ///
    /// # Errors
    /// [`OpenError`]: a living owner, other options, another version, another user's or a damaged file, a lane to a rank
    /// that the job doesn't have. The files are as they were then. Only with [`OpenError::Local`], a damaged entry, the
    /// local log's file may have given back memory that no entry used.
    pub fn recover(options: Options) -> Result<(Log, Recovered), OpenError> {
        options.validate()?;
        let Some(dir) = options.dir.clone() else { return Ok((Log::create(options)?, Recovered::default())) };
        check_private_dir(&dir)?;
        let examine = |path: &Path, label, pool| match path.symlink_metadata() {
            Ok(_) => Pool::examine(path, owner(&options, label), pool).map(Some),
            Err(_) => Ok(None),
        };
        // Nothing is changed or made before both files were found sound.
        let (lanes_path, local_path) = (lanes_path(&dir, options.rank), local_path(&dir, options.rank));
        let dead_lanes = match options.tier {
            Tier::ProcessCrashSafe => examine(&lanes_path, LANES, options.pool())?,
            Tier::Volatile => None,
        };
        let ranks = options.ranks;
        let no_such_rank = |peer| OpenError::Lane { path: lanes_path.clone(), peer, ranks };
        if let Some(peer) = dead_lanes.iter().flat_map(DeadLog::peers).find(|peer| peer.0 >= ranks) {
            return Err(no_such_rank(peer));
        }
        let local = match examine(&local_path, LOCAL, options.local_pool())? {
            Some(dead) => {
                let (pool, lanes) = dead.take()?;
                LocalLog::recovered(pool, lanes)?
            }
            None => LocalLog::new(Pool::create(&local_path, owner(&options, LOCAL), options.local_pool())?),
        };
        let (pool, writers) = match dead_lanes {
            Some(dead) => dead.take()?,
            None => (create_pool(&options)?, Vec::new()),
        };
        let mut recovered = Recovered { lanes: Vec::new(), local_entries: local.len() };
        let mut log = Log::over(options, pool, local);
        for writer in writers {
            let (peer, kept_from, last) = (writer.peer(), writer.kept_from(), writer.next_ssn().prev());
            log.lanes.adopt(writer).map_err(|_| no_such_rank(peer))?;
            log.budget.channels[peer.index()].before = last;
            if last > Ssn::ZERO {
                recovered.lanes.push((peer, kept_from, last));
            }
        }
        Ok((log, recovered))
    }

    fn over(options: Options, pool: Arc<Pool>, local: LocalLog) -> Log {
        let lanes = Lanes::new(pool, options.ranks);
        let channels = vec![Channel::default(); options.ranks as usize];
        let budget = Budget { options, channels, collector: Collector::new(), stopped_logging: false };
        Log { lanes, budget, local }
    }

    /// The options that the log was opened with.
    pub fn options(&self) -> &Options {
        &self.budget.options
    }

    /// Reserves a record of `prefix` + `payload` bytes for `peer`, to be filled and committed. Dropping the claim leaves
    /// a pad that readers skip.
    ///
    /// # Errors
    /// [`AppendError`]; nothing is changed then. At the budget it is [`AppendError::Full`], at once, unless
    /// [`OnFull::StopLogging`] can let retained records go. The log itself never waits: see [`OnFull`].
    #[inline]
    pub fn try_claim(&mut self, peer: Rank, prefix: usize, payload: usize) -> Result<Claim<'_>, AppendError> {
        self.lanes.claim_or_else(peer, prefix, payload, &mut self.budget, Budget::make_room)
    }

    /// The SSN that the next message to `peer` will have.
    #[inline]
    pub fn next_ssn(&self, peer: Rank) -> Ssn {
        self.lanes.get(peer).map_or(Ssn::FIRST, LaneWriter::next_ssn)
    }

    /// The lowest SSN that a [`cursor`](Self::cursor) to `peer` can begin at: that of the oldest message the log still holds,
    /// or the next one where it holds none. Below it messages were released or collected, or never were in this log.
    #[inline]
    pub fn kept_from(&self, peer: Rank) -> Ssn {
        self.lanes.get(peer).map_or(Ssn::FIRST, LaneWriter::kept_from)
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
        let Some(lane) = self.lanes.get_mut(peer) else { return Err(AckError { acked: ack.ssn, sent: Ssn::ZERO }) };
        lane.acknowledge(ack.ssn, disposition)?;
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
            self.budget.raise_floor(peer, upto);
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

    /// A cursor on the messages to `peer` from `from` on: for sending them, and for sending them again.
    ///
    /// # Errors
    /// [`CursorError`]: those messages are gone, or too many cursors are open.
    pub fn cursor(&mut self, peer: Rank, from: Ssn) -> Result<Cursor, CursorError> {
        self.reader(peer)?.open(from)
    }

    /// Opens cursors on the lane to `peer` in other threads.
    ///
    /// # Errors
    /// [`CursorError::Gone`] where the job has no such rank.
    pub fn reader(&mut self, peer: Rank) -> Result<LaneReader, CursorError> {
        let none = CursorError::Gone { peer, asked: Ssn::ZERO, kept_from: Ssn::MAX };
        Ok(self.lanes.open(peer).ok_or(none)?.reader())
    }

    /// Forgets every message to `peer` after `last`: this rank rolled back to where it had sent that many.
    ///
    /// # Errors
    /// [`TruncateError`], also while a cursor is open on the lane.
    pub fn truncate(&mut self, peer: Rank, last: Ssn) -> Result<(), TruncateError> {
        let Some(lane) = self.lanes.get_mut(peer) else { return Ok(()) };
        let settled = lane.truncate(last)?;
        self.budget.collector.forget_after(peer, settled);
        Ok(())
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
        let mut claim = self.lanes.open(peer).ok_or(no_such_rank)?.import(ssn, prefix.len(), payload.len())?;
        let (to_prefix, to_payload) = claim.parts_mut();
        to_prefix.copy_from_slice(prefix);
        to_payload.copy_from_slice(payload);
        claim.commit();
        self.budget.channels[peer.index()].before = ssn;
        Ok(())
    }

    /// Sets the SSN of the next message to `peer`: those in between are not in the log, because a checkpoint covered them.
    ///
    /// # Errors
    /// [`ImportError`] where the lane is beyond it already.
    pub fn set_next_ssn(&mut self, peer: Rank, next: Ssn) -> Result<(), ImportError> {
        let no_such_rank = ImportError::OutOfOrder { peer, ssn: next, next: Ssn::MAX };
        self.lanes.open(peer).ok_or(no_such_rank)?.set_next(next)?;
        self.budget.channels[peer.index()].before = next.prev();
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

    /// What the log did and holds.
    pub fn stats(&self) -> Stats {
        Stats {
            messages_logged: self
                .lanes
                .iter()
                .map(|lane| lane.next_ssn().prev().0.saturating_sub(self.budget.channels[lane.peer().index()].before.0))
                .sum(),
            bytes_logged: self.lanes.iter().map(LaneWriter::appended_bytes).sum(),
            used_bytes: self.lanes.pool().used_bytes(),
            resident_bytes: self.lanes.pool().resident_bytes(),
            max_bytes: self.budget.options.memory_bytes_max,
            lanes: self.lanes.iter().count(),
            local_entries: self.local.len(),
            holders: self.budget.collector.report(),
            stopped_logging: self.budget.stopped_logging,
        }
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

/// What decides what becomes of records: the limits, and what is known of the receivers.
#[derive(Debug)]
struct Budget {
    options: Options,
    channels: Vec<Channel>,
    collector: Collector,
    stopped_logging: bool,
}

impl Budget {
    /// The slow path of a claim: the lane's first, one that begins a chunk, or one that is refused.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, lanes: &mut Lanes, peer: Rank, prefix: usize, payload: usize) -> Result<(), AppendError> {
        let (ranks, max) = (self.options.ranks, self.options.record_bytes_max);
        let bytes = prefix.saturating_add(payload);
        if bytes > max {
            return Err(AppendError::TooLong { bytes, max });
        }
        let reserve = |lanes: &mut Lanes| -> Result<(), AppendError> {
            Ok(lanes.open(peer).ok_or(AppendError::NoSuchRank { peer, ranks })?.reserve(prefix, payload)?)
        };
        let mut reserved = reserve(lanes);
        if matches!(reserved, Err(AppendError::Full(_))) {
            // Freed chunks that lanes keep for themselves go to who holds less than an equal share. A peer that never
            // acknowledges holds more, and must not starve those who get along with what they free themselves.
            let share = self.options.memory_bytes_max / lanes.iter().count().max(1);
            let held = lanes.get(peer).map_or(0, LaneWriter::held_bytes);
            if held < share {
                lanes.give_spares_back();
            } else if let Some(lane) = lanes.get_mut(peer) {
                lane.give_spares_back();
            }
            reserved = reserve(lanes);
        }
        let may_stop = self.options.on_full == OnFull::StopLogging && !self.stopped_logging;
        if may_stop && matches!(reserved, Err(AppendError::Full(_))) {
            self.stop_logging(lanes);
            lanes.give_spares_back();
            reserved = reserve(lanes);
        }
        reserved
    }

    fn stop_logging(&mut self, lanes: &mut Lanes) {
        self.stopped_logging = true;
        for lane in lanes.iter() {
            self.raise_floor(lane.peer(), lane.acked());
        }
        self.collect(lanes);
    }

    fn raise_floor(&mut self, peer: Rank, floor: Ssn) {
        let covered = &mut self.channels[peer.index()].covered;
        *covered = floor.max(*covered);
        self.collector.raise_floor(peer, floor);
    }

    fn collect(&mut self, lanes: &mut Lanes) -> Collected {
        let mut collected = Collected::default();
        while let Some((peer, decision)) = self.collector.advance().next() {
            self.carry_out(lanes, peer, decision, &mut collected);
        }
        while let Some(PartlyCovered { lane: peer, chunk, floor }) = self.collector.poll_partly_covered() {
            let used = lanes.get(peer).and_then(|lane| lane.used_bytes_above(ChunkId(chunk), floor));
            if let Some(decision) = used.and_then(|used| self.collector.set_used(peer, chunk, used)) {
                self.carry_out(lanes, peer, decision, &mut collected);
            }
        }
        collected
    }

    /// Tells the collector of chunks that are full and acknowledged, and does what it decides.
    #[cold]
    fn settle(&mut self, lanes: &mut Lanes, peer: Rank, settled: SettledChunk) {
        let mut next = Some(settled);
        while let Some(settled) = next {
            let decision = self.collector.settle(peer, chunk_use(settled));
            self.carry_out(lanes, peer, decision, &mut Collected::default());
            next = lanes.get_mut(peer).and_then(LaneWriter::poll_settled);
        }
    }

    fn carry_out(&mut self, lanes: &mut Lanes, peer: Rank, decision: Decision, collected: &mut Collected) {
        let Some(lane) = lanes.get_mut(peer) else { return };
        let covered = self.channels[peer.index()].covered;
        let mut next = Some(decision);
        while let Some(decision) = next.take() {
            match decision {
                Decision::Keep { .. } => {}
                Decision::Free { chunk } => {
                    lane.free(ChunkId(chunk));
                    collected.chunks += 1;
                }
                Decision::Relocate { chunk, next: also } => {
                    let last = also.unwrap_or(chunk);
                    // Without memory for the copy the chunks stay as they are: sparse, but nothing is lost.
                    let fresh = match lane.relocate(ChunkId(chunk), ChunkId(last), covered) {
                        Ok(Relocated::Into(fresh)) => chunk_use(fresh),
                        Ok(Relocated::Emptied) => ChunkUse { chunk: last, ..NOTHING },
                        Ok(Relocated::Unknown) | Err(_) => return,
                    };
                    let old = [chunk, last];
                    let old = if also.is_some() { &old[..] } else { &old[..1] };
                    next = Some(self.collector.relocated(peer, old, fresh)).filter(|_| fresh.used_bytes > 0);
                    collected.relocated += 1;
                }
            }
        }
    }
}

/// What is left of chunks of which nothing was worth moving.
const NOTHING: ChunkUse =
    ChunkUse { chunk: 0, first: Ssn::ZERO, last: Ssn::ZERO, held_bytes: 0, used_bytes: 0, newest_epoch: Epoch(0) };

const LANES: u64 = u64::from_le_bytes(*b"lanes\0\0\0");
const LOCAL: u64 = u64::from_le_bytes(*b"local\0\0\0");

fn owner(options: &Options, label: u64) -> Owner {
    Owner { rank: options.rank, label }
}

fn lanes_path(dir: &Path, rank: Rank) -> PathBuf {
    dir.join(format!("log.{}", rank.0))
}

fn local_path(dir: &Path, rank: Rank) -> PathBuf {
    dir.join(format!("local.{}", rank.0))
}

fn create_pool(options: &Options) -> Result<Arc<Pool>, OpenError> {
    Ok(match (options.tier, &options.dir) {
        (Tier::ProcessCrashSafe, Some(dir)) => {
            Pool::create(&lanes_path(dir, options.rank), owner(options, LANES), options.pool())?
        }
        _ => Pool::volatile(options.pool())?,
    })
}

fn chunk_use(settled: SettledChunk) -> ChunkUse {
    ChunkUse {
        chunk: settled.chunk.0,
        first: settled.first,
        last: settled.last,
        held_bytes: settled.held_bytes,
        used_bytes: settled.used_bytes,
        newest_epoch: settled.newest_epoch,
    }
}
