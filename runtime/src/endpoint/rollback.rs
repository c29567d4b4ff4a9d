//! Rollback to an earlier checkpoint, and the checkpoints kept for it.

use std::time::Instant;

use counterfoil::{Epoch, Rank, Ssn};
use counterfoil_protocols::api::Protocol;

use super::Endpoint;
use crate::Error;
use crate::transport::{Report, Transport};

/// Checkpoints kept by a rank under a rule that may roll it back: the capacity of a store.
pub(super) const CHECKPOINTS_KEPT: usize = 64;

/// Range of checkpoints that a recovery may need.
#[derive(Debug)]
pub(super) struct Rollback {
    /// Earliest epoch to which a recovery may roll back.
    floor: Epoch,
    /// Epoch begun by the newest checkpoint, or the first epoch.
    newest: Epoch,
    /// This process ends; its replacement continues from an earlier checkpoint.
    pub(super) in_progress: bool,
}

impl Rollback {
    /// Creates the range for a rank without checkpoints, in `epoch`.
    pub(super) fn new(epoch: Epoch) -> Rollback {
        Rollback { floor: epoch, newest: epoch, in_progress: false }
    }

    /// Takes up a dead process's checkpoints: the oldest one left, and the newest.
    pub(super) fn resume(&mut self, oldest: Epoch, newest: Epoch) {
        (self.floor, self.newest) = (oldest, newest);
    }

    /// Records a checkpoint that began `epoch`.
    pub(super) fn note_checkpoint(&mut self, epoch: Epoch) {
        self.newest = epoch;
    }

    /// Returns `true` if another checkpoint would evict one still needed for recovery.
    fn is_full(&self) -> bool {
        (self.newest.0 - self.floor.0) as usize + 1 >= CHECKPOINTS_KEPT
    }
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Returns `true` if a checkpoint is due, the rule wants one now, and the store has capacity for it.
    pub(super) fn wants_checkpoint(&mut self) -> bool {
        // Unrepeated outcomes would be lost with the part of the local log before the checkpoint.
        self.polls.are_repeated()
            && !(self.properties.rolls_back_survivors && self.rollback.is_full())
            && self.interval.is_due(Instant::now())
            && match self.interval.is_by_clock() {
                true => self.protocol.wants_due_checkpoint(),
                false => self.protocol.wants_checkpoint(),
            }
    }

    /// Discards checkpoints after `last`, from an undone past, and those before `first`, needed by no recovery.
    pub(super) fn keep_checkpoints(&mut self, first: Epoch, last: Epoch) -> Result<(), Error> {
        if first > self.rollback.floor {
            self.log.discard_checkpoints_before(first)?;
            self.rollback.floor = first;
        }
        if self.rollback.newest > last {
            self.log.discard_checkpoints_beyond(last)?;
            self.rollback.newest = last;
        }
        Ok(())
    }

    /// Rolls this rank back.
    ///
    /// A program's state can't be restored from within: this process ends, and its replacement continues from the
    /// newest remaining checkpoint, the one for `epoch`.
    pub(super) fn roll_back(&mut self, epoch: Epoch) -> Result<(), Error> {
        self.rollback.in_progress = true;
        self.transport.report(Report::RollingBack { epoch: epoch.0, tally: self.tally })?;
        Err(Error::RollsBack { epoch: epoch.0 })
    }

    /// Drops the messages to `peer` after `last`, the last one in the checkpoint.
    ///
    /// For rules that roll ranks back: the re-execution numbers and sends them anew.
    pub(super) fn truncate_lane(&mut self, peer: Rank, last: Ssn) -> Result<(), Error> {
        self.log.truncate(peer, last).map_err(|source| Error::Truncate { peer: peer.0, source })?;
        self.outbound[peer.index()].transmitted = last;
        Ok(())
    }
}
