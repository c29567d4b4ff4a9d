//! Spilling: moves retained records from memory to disk.

use std::sync::Arc;
use std::task::Waker;

use counterfoil_log_core::{Backpressure, ChunkId, CursorError, LaneWriter, Lanes, Rank, Ssn};
use counterfoil_log_io::StoreError;

use super::Budget;
use crate::spill::{Spiller, Write, Written};
use crate::{AppendError, DiskRefused, SpillBehind, Tier};

/// Maximum number of writes in flight.
///
/// Each has a cursor on its lane; some cursors must remain for other uses.
const WRITES_MAX: usize = 4;
/// Blocks of a write; its last block is only partly full.
const WRITE_BLOCKS: usize = 4;
/// Quarters of the memory budget in use at which spilling begins, so that chunks can be evicted when all of it is used.
const SPILL_FROM_QUARTERS: usize = 3;

impl Budget {
    /// Returns `true` if retained records may be spilled.
    pub(super) fn spills(&self) -> bool {
        self.options.tier == Tier::NodeLocal && self.spiller.is_some() && !self.stopped_logging
    }

    /// Writes retained records to disk and evicts persisted chunks, as far as the budget requires.
    pub(super) fn spill(
        &mut self,
        lanes: &mut Lanes,
        mut reserved: Result<(), AppendError>,
        reserve: impl Fn(&mut Lanes) -> Result<(), AppendError>,
    ) -> Result<(), AppendError> {
        self.handle_reports();
        // Also when memory is used up: the chunks evicted now were written before, and the disk must not be idle until
        // none are left to evict.
        let used = lanes.pool().used_bytes();
        if used > self.options.memory_bytes_max / 4 * SPILL_FROM_QUARTERS && self.refused.is_none() {
            self.submit_settled(lanes, self.write_bytes());
        }
        if reserved.is_ok() {
            return Ok(());
        }
        while matches!(reserved, Err(AppendError::Full(_))) && self.evict(lanes) {
            lanes.return_spares();
            reserved = reserve(lanes);
        }
        if matches!(reserved, Err(AppendError::Full(_))) {
            self.settle_idle(lanes);
            self.submit_settled(lanes, 1);
            self.handle_reports();
            while matches!(reserved, Err(AppendError::Full(_))) && self.evict(lanes) {
                lanes.return_spares();
                reserved = reserve(lanes);
            }
        }
        // Unacknowledged records are read from disk like any other. They leave memory last, since they may be released
        // soon.
        while matches!(reserved, Err(AppendError::Full(_))) && self.spill_unacknowledged(lanes) {
            lanes.return_spares();
            reserved = reserve(lanes);
        }
        match reserved {
            Err(AppendError::Full(full)) => {
                self.spiller.iter_mut().for_each(Spiller::hurry);
                Err(self.explain_full(full))
            }
            other => other,
        }
    }

    /// Settles the current chunks of fully acknowledged lanes, so that they can be written and evicted.
    fn settle_idle(&mut self, lanes: &mut Lanes) {
        let least = self.large_bytes();
        let idle = lanes.iter().filter(|lane| lane.is_idle()).map(LaneWriter::peer);
        for peer in idle.collect::<Vec<Rank>>() {
            let settled = lanes.get_mut(peer).and_then(|lane| {
                lane.leave_current(least);
                lane.poll_settled()
            });
            if let Some(settled) = settled {
                self.settle(lanes, peer, settled);
            }
        }
    }

    /// Evicts a chunk with unacknowledged records, or submits such chunks to the store: current ones, too, if there are
    /// no others.
    ///
    /// Returns `false` if no memory was freed.
    fn spill_unacknowledged(&mut self, lanes: &mut Lanes) -> bool {
        if self.refused.is_some() {
            return false;
        }
        self.submit_unacknowledged(lanes);
        self.handle_reports();
        // Other chunks may have been written meanwhile.
        if self.evict(lanes) {
            return true;
        }
        let mut held: Vec<(usize, Rank)> = lanes.iter().map(|lane| (lane.held_bytes(), lane.peer())).collect();
        held.sort_unstable_by(|one, other| other.cmp(one));
        for (_, peer) in &held {
            let persisted = self.channels[peer.index()].persisted;
            if let Some(bytes) = lanes.get_mut(*peer).and_then(|lane| lane.evict_unsettled(persisted)) {
                self.spilled_bytes += bytes as u64;
                return true;
            }
        }
        let least = self.large_bytes();
        let is_idle = self.spiller.as_ref().is_some_and(|spiller| spiller.in_flight() == 0);
        is_idle && held.iter().any(|(_, peer)| lanes.get_mut(*peer).is_some_and(|lane| lane.leave_current(least)))
    }

    /// Returns the size from which a lane's current chunk is worth replacing by a small one.
    fn large_bytes(&self) -> usize {
        self.options.memory_bytes_max / 64
    }

    /// Submits full chunks with unacknowledged records, from the lanes holding most of them.
    fn submit_unacknowledged(&mut self, lanes: &Lanes) {
        let most = self.write_bytes();
        while self.spiller.as_ref().is_some_and(|spiller| spiller.in_flight() < WRITES_MAX) {
            let unsent = |lane: &LaneWriter| {
                let after = self.channels[lane.peer().index()].submitted;
                // Settled chunks are written first.
                if self.collector.chunks_after(lane.peer(), after).next().is_some() {
                    return None;
                }
                let (mut bytes, mut upto) = (0, None);
                for (last, of_chunk) in lane.unsettled().filter(|(last, _)| *last > after) {
                    if bytes < most {
                        upto = Some(last);
                    }
                    bytes += of_chunk;
                }
                Some((bytes, lane.peer(), upto?))
            };
            let fullest = lanes.iter().filter_map(unsent).max_by_key(|(bytes, ..)| *bytes);
            let Some((lane, upto)) = fullest.and_then(|(_, peer, upto)| Some((lanes.get(peer)?, upto))) else { return };
            // All cursors of the lane are in use.
            let Ok(Some(write)) = self.unsubmitted(lane, upto) else { return };
            self.submit(write);
        }
    }

    /// Explains why memory is used up and nothing can be evicted: appends outran the disk, the disk refuses writes, or
    /// cursors keep the records in memory.
    ///
    /// A refusal is reported even while the write is being retried; otherwise the caller would never learn of it.
    fn explain_full(&self, full: Box<Backpressure>) -> AppendError {
        let (in_flight, is_gone) = self.spiller.as_ref().map_or((0, false), |it| (it.in_flight(), it.is_gone()));
        let refused = if is_gone { Some(Arc::new(StoreError::WriterEnded)) } else { self.refused.clone() };
        match refused {
            Some(source) => AppendError::DiskRefused(Box::new(DiskRefused { full: *full, source })),
            None if in_flight > 0 => AppendError::SpillBehind(Box::new(SpillBehind { in_flight, full: *full })),
            None => AppendError::Full(full),
        }
    }

    /// Handles the results of completed writes.
    pub(crate) fn handle_reports(&mut self) {
        while let Some(written) = self.spiller.as_mut().and_then(Spiller::poll) {
            self.handle_report(written);
        }
    }

    /// Has a task woken after the next write.
    pub(crate) fn wake_after_write(&self, waker: &Waker) {
        self.spiller.iter().for_each(|spiller| spiller.wake_after_write(waker));
    }

    /// Waits for a write to complete; returns `false` if none is in flight.
    pub(crate) fn wait_for_report(&mut self) -> bool {
        let report = self.spiller.as_mut().and_then(Spiller::wait);
        let was_in_flight = report.is_some();
        report.into_iter().for_each(|written| self.handle_report(written));
        was_in_flight
    }

    /// Waits until all writes are done and their cursors are closed.
    pub(crate) fn wait_for_writes(&mut self) {
        self.spiller.iter_mut().for_each(Spiller::drain);
        self.handle_reports();
    }

    fn handle_report(&mut self, Written { lane, upto, result }: Written) {
        let channel = &mut self.channels[lane.index()];
        match result {
            Ok(()) => {
                channel.persisted = channel.persisted.max(upto);
                self.refused = None;
                let persisted: Vec<_> = self.gaps.range((lane, Ssn::ZERO)..(lane, upto)).map(|(&gap, _)| gap).collect();
                for gap in persisted {
                    self.gaps.remove(&gap);
                }
            }
            Err(error) => {
                // Write again from there; the store's thread refuses the writes submitted after this one, too.
                channel.submitted = channel.persisted;
                self.refused = Some(error);
            }
        }
    }

    /// Frees the chunk to be collected first among those on disk; returns `false` if there is none.
    fn evict(&mut self, lanes: &mut Lanes) -> bool {
        let on_disk = |lane: &LaneWriter| {
            let head = self.collector.chunks(lane.peer()).next()?;
            (head.last <= self.channels[lane.peer().index()].persisted).then_some((lane.peer(), *head))
        };
        let first = lanes.iter().filter_map(on_disk).min_by_key(|(_, chunk)| chunk.newest_epoch);
        let Some((peer, chunk)) = first else { return false };
        // The collector forgets a chunk without used bytes.
        self.collector.set_used(peer, chunk.chunk, 0);
        self.spilled_bytes += chunk.held_bytes as u64;
        lanes.get_mut(peer).is_some_and(|lane| lane.evict(ChunkId(chunk.chunk)))
    }

    /// Returns the size of a write: a few blocks, but only a small part of the memory, so that chunks remain to be
    /// evicted.
    fn write_bytes(&self) -> usize {
        let block_bytes = self.options.store.as_ref().map_or(0, |store| store.block_bytes);
        (WRITE_BLOCKS * block_bytes).min(self.options.memory_bytes_max / 16)
    }

    /// Submits retained chunks to the store in collection order, from lanes with at least `least` bytes to write.
    fn submit_settled(&mut self, lanes: &Lanes, least: usize) {
        let most = self.write_bytes();
        while self.spiller.as_ref().is_some_and(|spiller| spiller.in_flight() < WRITES_MAX) {
            let unsent = |lane: &LaneWriter| {
                let after = self.channels[lane.peer().index()].submitted;
                let mut chunks = self.collector.chunks_after(lane.peer(), after);
                let mut last = *chunks.next()?;
                let (newest_epoch, mut bytes) = (last.newest_epoch, last.used_bytes);
                while bytes < most
                    && let Some(chunk) = chunks.next()
                {
                    bytes += chunk.used_bytes;
                    last = *chunk;
                }
                (bytes >= least).then_some((newest_epoch, lane.peer(), last.last))
            };
            let first = lanes.iter().filter_map(unsent).min_by_key(|(newest_epoch, ..)| *newest_epoch);
            let Some((lane, upto)) = first.and_then(|(_, peer, upto)| Some((lanes.get(peer)?, upto))) else { return };
            // All cursors of the lane are in use: retried when the next chunk is begun.
            let Ok(Some(write)) = self.unsubmitted(lane, upto) else { return };
            self.submit(write);
        }
    }

    /// Builds a write of a lane's unsubmitted records up to `upto`; `None` if there are none.
    pub(crate) fn unsubmitted(&self, lane: &LaneWriter, upto: Ssn) -> Result<Option<Write>, CursorError> {
        let after = self.channels[lane.peer().index()].submitted;
        let from = after.next().max(lane.kept_from());
        if from > upto {
            return Ok(None);
        }
        let upto = self.gaps.get(&(lane.peer(), upto)).copied().unwrap_or(upto);
        Ok(Some(Write { lane: lane.peer(), after, cursor: lane.cursor(from)?, upto }))
    }

    /// Notes the SSNs to `peer` between `last` and `next` as skipped.
    pub(crate) fn skip_ssns(&mut self, peer: Rank, last: Ssn, next: Ssn) {
        self.channels[peer.index()].inherited = next.prev();
        if next <= last.next() || self.spiller.is_none() {
            return;
        }
        self.gaps.insert((peer, last), next.prev());
        if self.channels[peer.index()].submitted == last {
            // Writes in flight would report `last` as their end, before the gap.
            self.wait_for_writes();
        }
        let channel = &mut self.channels[peer.index()];
        if channel.persisted == last {
            (channel.submitted, channel.persisted) = (next.prev(), next.prev());
            if let Some(spiller) = &mut self.spiller {
                let freed = spiller.disk.index.push(peer, &[], next.prev());
                spiller.free(freed);
            }
        }
    }

    /// Hands records to the store, and notes them as in flight.
    fn submit(&mut self, write: Write) {
        self.channels[write.lane.index()].submitted = write.upto;
        if let Some(spiller) = &mut self.spiller {
            spiller.enqueue_write(write);
        }
    }

    /// Begins a truncation of the lane to `peer`, during which no cursor may be opened on its blocks; it ends with
    /// [`end_truncate`](Self::end_truncate).
    ///
    /// Returns `false` if a cursor is open there.
    pub(crate) fn begin_truncate(&mut self, peer: Rank) -> bool {
        self.wait_for_writes();
        self.spiller.as_ref().is_none_or(|spiller| spiller.disk.index.begin_truncate(peer))
    }

    /// Ends a truncation of the lane to `peer` after `last`, or cancels it if `last` is `None`.
    pub(crate) fn end_truncate(&mut self, peer: Rank, last: Option<Ssn>) {
        if let Some(last) = last {
            self.gaps.retain(|(lane, before), _| *lane != peer || *before < last);
            if let Some((_, end)) = self.gaps.range_mut((peer, Ssn::ZERO)..(peer, last)).next_back() {
                *end = last.min(*end);
            }
        }
        let channel = &mut self.channels[peer.index()];
        channel.submitted = channel.submitted.min(last.unwrap_or(Ssn::MAX));
        channel.persisted = channel.persisted.min(last.unwrap_or(Ssn::MAX));
        if let Some(spiller) = &mut self.spiller {
            let freed = spiller.disk.index.end_truncate(peer, last);
            spiller.free(freed);
        }
    }

    /// Sets the end of a truncated lane to `last`, after a failure for lack of memory: evicts chunks until it succeeds.
    ///
    /// Returns `false` if no chunk is left to evict.
    pub(crate) fn set_lane_end(&mut self, lanes: &mut Lanes, peer: Rank, last: Ssn) -> bool {
        if let Some(lane) = lanes.get(peer) {
            self.collector.forget_after(peer, lane.next_ssn().prev());
        }
        lanes.return_spares();
        loop {
            if lanes.get_mut(peer).is_none_or(|lane| lane.set_next(last.next()).is_ok()) {
                return true;
            }
            if !(self.spills() && self.evict(lanes)) {
                return false;
            }
            lanes.return_spares();
        }
    }
}
