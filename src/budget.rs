//! Memory budget of a log: decides which records are kept, spilled or freed.

mod disk;

use std::collections::BTreeMap;
use std::sync::Arc;

use counterfoil_gc::{ChunkUse, Collector, Decision, PartlyCovered};
use counterfoil_log_core::{ChunkId, Epoch, LaneWriter, Lanes, Rank, Relocated, SettledChunk, Ssn};
use counterfoil_log_io::StoreError;

use crate::prefault::Prefaulter;
use crate::spill::Spiller;
use crate::{AppendError, Keep, Options};

/// State of a channel, without its records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Channel {
    /// Last SSN not sent by this process itself: imported or recovered.
    pub(crate) inherited: Ssn,
    /// Last SSN covered by a durable checkpoint of the receiver: nothing up to it is needed.
    pub(crate) covered: Ssn,
    /// Last SSN submitted to the store.
    pub(crate) submitted: Ssn,
    /// Last SSN up to which the store has all kept records.
    pub(crate) persisted: Ssn,
}

impl Channel {
    /// Returns `true` if the store may have needed records.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.submitted > self.covered
    }
}

/// Result of [`Log::collect`](crate::Log::collect).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collected {
    /// Number of freed chunks.
    pub chunks: usize,
    /// Number of relocations, each merging the retained records of sparse chunks.
    pub relocated: usize,
}

/// Limits of a log, with channel and disk state.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) options: Options,
    pub(crate) channels: Vec<Channel>,
    pub(crate) collector: Collector,
    pub(crate) stopped_logging: bool,
    /// Connection to the store, if there is one.
    pub(crate) spiller: Option<Spiller>,
    /// Thread that commits memory ahead, if the options ask for one.
    prefaulter: Option<Prefaulter>,
    /// Error of the last store write, until one succeeds.
    pub(crate) refused: Option<Arc<StoreError>>,
    /// Memory freed in bytes because their records are on disk.
    pub(crate) spilled_bytes: u64,
    /// Gaps in the SSNs not yet persisted: lane and last SSN before the gap, mapped to the last skipped SSN.
    ///
    /// Persisting everything up to the former persists everything up to the latter.
    gaps: BTreeMap<(Rank, Ssn), Ssn>,
    /// Lanes with covered blocks still read by a cursor when due to be freed.
    deferred_frees: Vec<Rank>,
}

impl Budget {
    pub(crate) fn new(options: Options, spiller: Option<Spiller>, prefaulter: Option<Prefaulter>) -> Budget {
        Budget {
            channels: vec![Channel::default(); options.ranks as usize],
            options,
            collector: Collector::new(),
            stopped_logging: false,
            spiller,
            prefaulter,
            refused: None,
            spilled_bytes: 0,
            gaps: BTreeMap::new(),
            deferred_frees: Vec::new(),
        }
    }

    /// Slow path of a non-waiting claim: the lane's first, one beginning a chunk, or a refused one.
    #[cold]
    #[inline(never)]
    pub(crate) fn try_make_room(
        &mut self,
        lanes: &mut Lanes,
        peer: Rank,
        prefix: usize,
        payload: usize,
    ) -> Result<(), Box<AppendError>> {
        self.make_room(lanes, peer, prefix, payload).map_err(Box::new)
    }

    /// Slow path of a claim, waiting when appends outrun the disk.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait_for_room(
        &mut self,
        lanes: &mut Lanes,
        peer: Rank,
        prefix: usize,
        payload: usize,
    ) -> Result<(), Box<AppendError>> {
        let mut retries = 0..2;
        loop {
            match self.make_room(lanes, peer, prefix, payload) {
                Err(AppendError::SpillBehind(_)) if self.wait_for_report() => {}
                // The disk refused an earlier write. Wait for the writes retried by an earlier claim, then for this
                // one's retries: the disk may have space by now.
                Err(AppendError::DiskRefused(_)) if retries.next().is_some() => while self.wait_for_report() {},
                done => return done.map_err(Box::new),
            }
        }
    }

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
            // A lane holding less than an equal share may take other lanes' spare chunks. The lane to a peer that never
            // acknowledges holds more, and must not starve lanes reusing their own chunks.
            let share = self.options.memory_bytes_max / lanes.iter().count().max(1);
            let may_take = lanes.get(peer).is_none_or(|lane| lane.held_bytes() < share || lane.is_idle());
            if may_take {
                lanes.return_spares();
            } else if let Some(lane) = lanes.get_mut(peer) {
                lane.return_spares();
            }
            reserved = reserve(lanes);
            if may_take && matches!(reserved, Err(AppendError::Full(_))) {
                lanes.shrink_idle();
                lanes.return_spares();
                reserved = reserve(lanes);
            }
        }
        if self.spills() {
            reserved = self.spill(lanes, reserved, reserve);
        }
        let may_stop = self.options.stops_logging && !self.stopped_logging;
        if may_stop && matches!(reserved, Err(AppendError::Full(_) | AppendError::DiskRefused(_))) {
            self.stop_logging(lanes);
            lanes.return_spares();
            reserved = reserve(lanes);
        }
        self.prefaulter.iter().for_each(Prefaulter::wake_if_low);
        reserved
    }

    /// Marks released records as covered, if acknowledged records aren't retained: they needn't go into a checkpoint,
    /// even if an earlier one has them as unacknowledged.
    pub(crate) fn cover_released(&mut self, lanes: &mut Lanes) {
        if self.options.keep == Keep::Acked || self.stopped_logging {
            let acked: Vec<(Rank, Ssn)> = lanes.iter().map(|lane| (lane.peer(), lane.acked())).collect();
            acked.into_iter().for_each(|(peer, acked)| self.raise_floor(lanes, peer, acked));
        }
    }

    pub(crate) fn stop_logging(&mut self, lanes: &mut Lanes) {
        self.stopped_logging = true;
        // Writes in flight hold records by cursors.
        self.spiller.iter_mut().for_each(Spiller::drain);
        self.cover_released(lanes);
        self.collect(lanes);
    }

    pub(crate) fn raise_floor(&mut self, lanes: &mut Lanes, peer: Rank, floor: Ssn) {
        let covered = &mut self.channels[peer.index()].covered;
        *covered = floor.max(*covered);
        self.free_covered(lanes, peer);
    }

    /// Frees fully covered blocks and lets the collector free such chunks, except those that a cursor on disk has yet
    /// to read.
    fn free_covered(&mut self, lanes: &mut Lanes, peer: Rank) {
        let mut floor = self.channels[peer.index()].covered;
        if let Some(spiller) = &mut self.spiller {
            let index = &spiller.disk.index;
            let reached = index.lowest_pin(peer).prev();
            let is_pinned = reached < floor;
            if is_pinned && !self.stopped_logging && self.options.keep == Keep::Checkpoint {
                floor = reached;
            }
            let freed = index.cover(peer, floor);
            spiller.free(freed);
            if let Some(lane) = lanes.get_mut(peer) {
                lane.forget_runs_upto(floor);
            }
            if is_pinned && !self.deferred_frees.contains(&peer) {
                self.deferred_frees.push(peer);
            }
        }
        self.collector.raise_floor(peer, floor);
    }

    pub(crate) fn collect(&mut self, lanes: &mut Lanes) -> Collected {
        for peer in std::mem::take(&mut self.deferred_frees) {
            self.free_covered(lanes, peer);
        }
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

    /// Reports full, acknowledged chunks to the collector, and carries out its decisions.
    #[cold]
    pub(crate) fn settle(&mut self, lanes: &mut Lanes, peer: Rank, settled: SettledChunk) {
        let mut next = Some(settled);
        while let Some(settled) = next {
            let decision = self.collector.settle(peer, chunk_use(settled));
            self.carry_out(lanes, peer, decision, &mut Collected::default());
            next = lanes.get_mut(peer).and_then(LaneWriter::poll_settled);
        }
    }

    fn carry_out(&mut self, lanes: &mut Lanes, peer: Rank, decision: Decision, collected: &mut Collected) {
        let Some(lane) = lanes.get_mut(peer) else { return };
        let covered = self.collector.floor(peer);
        let mut next = Some(decision);
        while let Some(decision) = next.take() {
            match decision {
                Decision::Keep { .. } => {}
                Decision::Free { chunk } => {
                    lane.free(ChunkId(chunk));
                    collected.chunks += 1;
                }
                Decision::Relocate { chunk, next: second } => {
                    let last = second.unwrap_or(chunk);
                    // Without memory for the copy the chunks stay sparse, but nothing is lost.
                    let fresh = match lane.relocate(ChunkId(chunk), ChunkId(last), covered) {
                        Ok(Relocated::Into(fresh)) => chunk_use(fresh),
                        Ok(Relocated::Emptied) => ChunkUse { chunk: last, ..UNUSED },
                        Ok(Relocated::Unknown) | Err(_) => return,
                    };
                    let old = [chunk, last];
                    let old = if second.is_some() { &old[..] } else { &old[..1] };
                    next = Some(self.collector.relocated(peer, old, fresh)).filter(|_| fresh.used_bytes > 0);
                    collected.relocated += 1;
                }
            }
        }
    }
}

/// Use of chunks without retained records.
const UNUSED: ChunkUse =
    ChunkUse { chunk: 0, first: Ssn::ZERO, last: Ssn::ZERO, held_bytes: 0, used_bytes: 0, newest_epoch: Epoch(0) };

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
