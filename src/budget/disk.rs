//! What leaves memory for the disk, and what is known to be there.

use std::sync::Arc;

use counterfoil_log_core::{Backpressure, ChunkId, CursorError, LaneWriter, Lanes, Rank, Ssn};
use counterfoil_log_io::StoreError;

use super::Budget;
use crate::spill::{Spiller, Write, Written};
use crate::{AppendError, DiskRefused, SpillBehind, Tier};

/// Writes that may be under way at a time. Each has a cursor on its lane: some are to be left for others.
const WRITES_MAX: usize = 4;
/// Blocks of a write: the last one of each isn't full.
const WRITE_BLOCKS: usize = 4;
/// Spilling begins when this part of the memory budget is used, in quarters: so that there is something to let go when
/// all of it is.
const SPILL_FROM_QUARTERS: usize = 3;

impl Budget {
    /// Whether retained records leave memory for the disk.
    pub(super) fn spills(&self) -> bool {
        self.options.tier == Tier::NodeLocal && self.spiller.is_some() && !self.stopped_logging
    }

    /// Sends what is retained to the disk, and lets go what is there already, where the budget asks for it.
    pub(super) fn spill(
        &mut self,
        lanes: &mut Lanes,
        mut reserved: Result<(), AppendError>,
        reserve: impl Fn(&mut Lanes) -> Result<(), AppendError>,
    ) -> Result<(), AppendError> {
        self.take_reports();
        // Also where memory is used up: what is let go now was written before, and the disk mustn't be idle until there is
        // nothing more to let go.
        let used = lanes.pool().used_bytes();
        if used > self.options.memory_bytes_max / 4 * SPILL_FROM_QUARTERS && self.refused.is_none() {
            self.send_writes(lanes, self.write_bytes());
        }
        if reserved.is_ok() {
            return Ok(());
        }
        while matches!(reserved, Err(AppendError::Full(_))) && self.let_go(lanes) {
            lanes.give_spares_back();
            reserved = reserve(lanes);
        }
        if let Err(AppendError::Full(full)) = reserved {
            self.send_writes(lanes, 1);
            self.take_reports();
            reserved = Err(AppendError::Full(full));
            while matches!(reserved, Err(AppendError::Full(_))) && self.let_go(lanes) {
                lanes.give_spares_back();
                reserved = reserve(lanes);
            }
        }
        match reserved {
            Err(AppendError::Full(full)) => Err(self.why_full(full)),
            other => other,
        }
    }

    /// Memory is used up and nothing can be let go at once: because the disk is behind, because it refuses, or because
    /// what is there is not acknowledged and can't be spilled.
    ///
    /// Where it refused the last time that is said, although it is being tried again: otherwise nobody would ever hear of it.
    fn why_full(&self, full: Box<Backpressure>) -> AppendError {
        let (in_flight, is_gone) = self.spiller.as_ref().map_or((0, false), |it| (it.in_flight(), it.is_gone()));
        let refused = if is_gone { Some(Arc::new(StoreError::Gone)) } else { self.refused.clone() };
        match refused {
            Some(source) => AppendError::DiskRefused(Box::new(DiskRefused { full: *full, source })),
            None if in_flight > 0 => AppendError::SpillBehind(Box::new(SpillBehind { in_flight, full: *full })),
            None => AppendError::Full(full),
        }
    }

    /// What became of the writes that were sent.
    pub(crate) fn take_reports(&mut self) {
        while let Some(written) = self.spiller.as_mut().and_then(Spiller::poll) {
            self.take_report(written);
        }
    }

    /// Waits for a write; says whether there was one to wait for.
    pub(crate) fn wait_for_report(&mut self) -> bool {
        let report = self.spiller.as_mut().and_then(Spiller::wait);
        let was_there = report.is_some();
        report.into_iter().for_each(|written| self.take_report(written));
        was_there
    }

    /// Waits until all that was sent to the store is done, and its cursors are closed.
    pub(crate) fn wait_for_writes(&mut self) {
        self.spiller.iter_mut().for_each(Spiller::drain);
        self.take_reports();
    }

    fn take_report(&mut self, Written { lane, upto, result }: Written) {
        let channel = &mut self.channels[lane.index()];
        match result {
            Ok(()) => {
                channel.persisted = channel.persisted.max(upto);
                self.refused = None;
                let behind: Vec<_> = self.gaps.range((lane, Ssn::ZERO)..(lane, upto)).map(|(&gap, _)| gap).collect();
                for gap in behind {
                    self.gaps.remove(&gap);
                }
            }
            Err(error) => {
                // From there on again; what was sent after it is refused by the store's thread, too.
                channel.submitted = channel.persisted;
                self.refused = Some(error);
            }
        }
    }

    /// Frees a chunk of memory whose records are on disk, the one that will be collected first; says whether there was one.
    fn let_go(&mut self, lanes: &mut Lanes) -> bool {
        let on_disk = |lane: &LaneWriter| {
            let head = self.collector.chunks(lane.peer()).next()?;
            (head.last <= self.channels[lane.peer().index()].persisted).then_some((lane.peer(), *head))
        };
        let first = lanes.iter().filter_map(on_disk).min_by_key(|(_, chunk)| chunk.newest_epoch);
        let Some((peer, chunk)) = first else { return false };
        // The collector forgets a chunk of which nothing is used.
        self.collector.set_used(peer, chunk.chunk, 0);
        self.spilled_bytes += chunk.held_bytes as u64;
        lanes.get_mut(peer).is_some_and(|lane| lane.free_kept_elsewhere(ChunkId(chunk.chunk)))
    }

    /// Bytes of a write: a few blocks, but a small part of the memory, so that there is something left to be let go.
    fn write_bytes(&self) -> usize {
        let block_bytes = self.options.store.as_ref().map_or(0, |store| store.block_bytes);
        (WRITE_BLOCKS * block_bytes).min(self.options.memory_bytes_max / 16)
    }

    /// Sends retained chunks to the store in the order in which they will be collected, some at a time: of lanes that have
    /// at least `least` bytes to be written.
    fn send_writes(&mut self, lanes: &Lanes, least: usize) {
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
            // All cursors of that lane are in use: it is tried again when the next chunk is begun.
            let Ok(Some(write)) = self.write_of(lane, upto) else { return };
            self.send(write);
        }
    }

    /// What of a lane is still to be written up to `upto`; `None` if nothing is.
    pub(crate) fn write_of(&self, lane: &LaneWriter, upto: Ssn) -> Result<Option<Write>, CursorError> {
        let after = self.channels[lane.peer().index()].submitted;
        let from = after.next().max(lane.kept_from());
        if from > upto {
            return Ok(None);
        }
        let upto = self.gaps.get(&(lane.peer(), upto)).copied().unwrap_or(upto);
        Ok(Some(Write { lane: lane.peer(), after, cursor: lane.cursor(from)?, upto }))
    }

    /// The messages to `peer` between `last` and `next` are left out.
    pub(crate) fn leave_out(&mut self, peer: Rank, last: Ssn, next: Ssn) {
        self.channels[peer.index()].before = next.prev();
        if next <= last.next() || self.spiller.is_none() {
            return;
        }
        self.gaps.insert((peer, last), next.prev());
        if self.channels[peer.index()].submitted == last {
            // What is on its way says that it ends with the last one.
            self.wait_for_writes();
        }
        let channel = &mut self.channels[peer.index()];
        if channel.persisted == last {
            (channel.submitted, channel.persisted) = (next.prev(), next.prev());
            if let Some(spiller) = &mut self.spiller {
                let superfluous = spiller.disk.index.push(peer, &[], next.prev());
                spiller.free(superfluous);
            }
        }
    }

    fn send(&mut self, write: Write) {
        self.channels[write.lane.index()].submitted = write.upto;
        if let Some(spiller) = &mut self.spiller {
            spiller.write(write);
        }
    }

    /// Whether the lane to `peer` may be cut: no cursor is on its blocks, and none begins before [`cut`](Self::cut).
    pub(crate) fn begin_cut(&mut self, peer: Rank) -> bool {
        self.wait_for_writes();
        self.spiller.as_ref().is_none_or(|spiller| spiller.disk.index.begin_cut(peer))
    }

    /// The lane to `peer` was cut behind `last`; or it wasn't.
    pub(crate) fn cut(&mut self, peer: Rank, last: Option<Ssn>) {
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
            let cut_off = spiller.disk.index.end_cut(peer, last);
            spiller.free(cut_off);
        }
    }

    /// Puts the end of a cut lane where it belongs, for which there was no memory: lanes give up what is on disk.
    pub(crate) fn end_lane_with(&mut self, lanes: &mut Lanes, peer: Rank, last: Ssn) -> bool {
        if let Some(lane) = lanes.get(peer) {
            self.collector.forget_after(peer, lane.next_ssn().prev());
        }
        lanes.give_spares_back();
        loop {
            if lanes.get_mut(peer).is_none_or(|lane| lane.set_next(last.next()).is_ok()) {
                return true;
            }
            if !(self.spills() && self.let_go(lanes)) {
                return false;
            }
            lanes.give_spares_back();
        }
    }
}
