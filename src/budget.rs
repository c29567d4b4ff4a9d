//! What decides what becomes of records: the limits, and what is known of the receivers and of the disk.

mod disk;

use std::collections::BTreeMap;
use std::sync::Arc;

use counterfoil_gc::{ChunkUse, Collector, Decision, PartlyCovered};
use counterfoil_log_core::{ChunkId, Epoch, LaneWriter, Lanes, Rank, Relocated, SettledChunk, Ssn};
use counterfoil_log_io::StoreError;

use crate::log::Collected;
use crate::spill::Spiller;
use crate::{AppendError, Keep, OnFull, Options};

/// What the log knows of a lane beside its records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Channel {
    /// The last SSN that this process didn't send itself: imported or recovered.
    pub(crate) before: Ssn,
    /// Up to here nothing is needed: a durable checkpoint of the receiver covers it.
    pub(crate) covered: Ssn,
    /// Up to here records were sent to the store.
    pub(crate) submitted: Ssn,
    /// Up to here the store has what is kept.
    pub(crate) persisted: Ssn,
}

impl Channel {
    /// Whether the store may have something that is needed.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.submitted > self.covered
    }
}

/// The limits, and what is known of the receivers and of the disk.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) options: Options,
    pub(crate) channels: Vec<Channel>,
    pub(crate) collector: Collector,
    pub(crate) stopped_logging: bool,
    /// The way to the store, where there is one.
    pub(crate) spiller: Option<Spiller>,
    /// Why the last write to the store failed, until one succeeds.
    pub(crate) refused: Option<Arc<StoreError>>,
    /// Memory that was given back because its records are on disk.
    pub(crate) spilled_bytes: u64,
    /// SSNs that were left out, where they begin behind what was sent to the store: lane and last SSN before, last one that
    /// was left out. Who writes up to the former has written up to the latter.
    gaps: BTreeMap<(Rank, Ssn), Ssn>,
    /// Lanes with blocks that nobody needs, and that a cursor still read when that was found.
    held_back: Vec<Rank>,
}

impl Budget {
    pub(crate) fn new(options: Options, spiller: Option<Spiller>) -> Budget {
        Budget {
            channels: vec![Channel::default(); options.ranks as usize],
            options,
            collector: Collector::new(),
            stopped_logging: false,
            spiller,
            refused: None,
            spilled_bytes: 0,
            gaps: BTreeMap::new(),
            held_back: Vec::new(),
        }
    }

    /// The slow path of a claim that doesn't wait: the lane's first, one that begins a chunk, or one that is refused.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room_at_once(
        &mut self,
        lanes: &mut Lanes,
        peer: Rank,
        prefix: usize,
        payload: usize,
    ) -> Result<(), Box<AppendError>> {
        self.make_room(lanes, peer, prefix, payload).map_err(Box::new)
    }

    /// The slow path of a claim that waits where appends outran the disk.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait_for_room(
        &mut self,
        lanes: &mut Lanes,
        peer: Rank,
        prefix: usize,
        payload: usize,
    ) -> Result<(), Box<AppendError>> {
        let mut again = 0..2;
        loop {
            match self.make_room(lanes, peer, prefix, payload) {
                Err(AppendError::SpillBehind(_)) if self.wait_for_report() => {}
                // It refused before. What an earlier claim sent again is waited for, then what this one sends: there may be
                // room by now.
                Err(AppendError::DiskRefused(_)) if again.next().is_some() => while self.wait_for_report() {},
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
            // Freed chunks that lanes keep for themselves go to who holds less than an equal share. A peer that never
            // acknowledges holds more, and must not starve those who get along with what they free themselves.
            let share = self.options.memory_bytes_max / lanes.iter().count().max(1);
            let may_take = lanes.get(peer).is_none_or(|lane| lane.held_bytes() < share || lane.is_idle());
            if may_take {
                lanes.give_spares_back();
            } else if let Some(lane) = lanes.get_mut(peer) {
                lane.give_spares_back();
            }
            reserved = reserve(lanes);
            if may_take && matches!(reserved, Err(AppendError::Full(_))) {
                lanes.rest();
                lanes.give_spares_back();
                reserved = reserve(lanes);
            }
        }
        if self.spills() {
            reserved = self.spill(lanes, reserved, reserve);
        }
        let may_stop = self.options.on_full == OnFull::StopLogging && !self.stopped_logging;
        if may_stop && matches!(reserved, Err(AppendError::Full(_) | AppendError::DiskRefused(_))) {
            self.stop_logging(lanes);
            lanes.give_spares_back();
            reserved = reserve(lanes);
        }
        reserved
    }

    /// What was released when it was acknowledged needs no place in a checkpoint, although it was unacknowledged in an
    /// earlier one.
    pub(crate) fn cover_released(&mut self, lanes: &mut Lanes) {
        if self.options.keep == Keep::Acked || self.stopped_logging {
            let acked: Vec<(Rank, Ssn)> = lanes.iter().map(|lane| (lane.peer(), lane.acked())).collect();
            acked.into_iter().for_each(|(peer, acked)| self.raise_floor(lanes, peer, acked));
        }
    }

    pub(crate) fn stop_logging(&mut self, lanes: &mut Lanes) {
        self.stopped_logging = true;
        // What is on its way to the disk is held by cursors.
        self.spiller.iter_mut().for_each(Spiller::drain);
        self.cover_released(lanes);
        self.collect(lanes);
    }

    pub(crate) fn raise_floor(&mut self, lanes: &mut Lanes, peer: Rank, floor: Ssn) {
        let covered = &mut self.channels[peer.index()].covered;
        *covered = floor.max(*covered);
        self.free_covered(lanes, peer);
    }

    /// Frees the blocks that are covered as a whole, and lets chunks that are be collected; but nothing that a cursor on its
    /// way through the blocks comes to.
    fn free_covered(&mut self, lanes: &mut Lanes, peer: Rank) {
        let mut floor = self.channels[peer.index()].covered;
        if let Some(spiller) = &mut self.spiller {
            let index = &spiller.disk.index;
            let reached = index.lowest_pin(peer).prev();
            let is_held_back = reached < floor;
            if is_held_back && !self.stopped_logging && self.options.keep == Keep::Checkpoint {
                floor = reached;
            }
            let superfluous = index.cover(peer, floor);
            spiller.free(superfluous);
            if let Some(lane) = lanes.get_mut(peer) {
                lane.forget_runs_upto(floor);
            }
            if is_held_back && !self.held_back.contains(&peer) {
                self.held_back.push(peer);
            }
        }
        self.collector.raise_floor(peer, floor);
    }

    pub(crate) fn collect(&mut self, lanes: &mut Lanes) -> Collected {
        for peer in std::mem::take(&mut self.held_back) {
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

    /// Tells the collector of chunks that are full and acknowledged, and does what it decides.
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
