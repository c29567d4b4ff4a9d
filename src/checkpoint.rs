//! Checkpoints: the state from which a rank resumes after a power cut.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use counterfoil_log_core::{CursorError, Entry, Epoch, Run, Ssn};
use counterfoil_log_io::{LocalImage, StoreError};

use crate::contents::Contents;
use crate::error::CheckpointError;
use crate::log::Log;
use crate::open::RecoveredLane;
use crate::spill::{CheckpointJob, LaneState, Reply, Spiller, Write};
use crate::store::create_store;

/// A recovered checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// Epoch begun by the checkpoint.
    pub epoch: Epoch,
    /// Lanes when the checkpoint was taken, with the records kept now.
    pub lanes: Vec<RecoveredLane>,
    /// Caller's part.
    pub contents: Contents,
}

/// A checkpoint being written.
///
/// Also a future with the result of [`wait`](Self::wait), for a caller with more to wait for.
///
/// Dropping this doesn't cancel the checkpoint.
#[derive(Debug)]
#[must_use = "the checkpoint is not durable before `wait` has returned"]
pub struct PendingCheckpoint {
    pub(crate) epoch: Epoch,
    /// Last local log entry in it.
    pub(crate) local: Ssn,
    pub(crate) reply: Reply,
}

impl PendingCheckpoint {
    /// Returns the epoch begun by the checkpoint.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns `true` once the checkpoint is durable or has failed: [`wait`](Self::wait) then returns at once.
    pub fn is_done(&self) -> bool {
        self.reply.is_ready()
    }

    /// Waits until everything needed by a recovery to this epoch is on stable storage.
    ///
    /// # Errors
    /// [`CheckpointError::Store`]: the checkpoint failed; the previous one is unaffected.
    pub fn wait(self) -> Result<Epoch, CheckpointError> {
        self.reply.wait()?;
        Ok(self.epoch)
    }
}

impl Future for PendingCheckpoint {
    type Output = Result<Epoch, CheckpointError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let epoch = self.epoch;
        self.reply.poll(context.waker()).map(|outcome| Ok(outcome.map(|()| epoch)?))
    }
}

impl Log {
    /// Starts writing the checkpoint beginning `epoch`.
    ///
    /// When [`PendingCheckpoint::wait`] has returned, everything needed by a recovery to it is on stable storage: every
    /// lane's retained and unacknowledged records and acknowledgement state, the local log, and `contents`. Later
    /// appends are not included.
    ///
    /// Records already on disk are not written again.
    ///
    /// # Errors
    /// [`CheckpointError`]: a table's name, no store, or no free cursor on a lane. [`wait`](PendingCheckpoint::wait)
    /// reports disk errors.
    pub fn begin_checkpoint(&mut self, epoch: Epoch, contents: Contents) -> Result<PendingCheckpoint, CheckpointError> {
        contents.validate()?;
        self.budget.handle_reports();
        self.open_store()?;
        self.budget.cover_released(&mut self.lanes);
        let mut collected = self.snapshot_lanes();
        if let Err(CursorError::TooMany { .. }) = collected {
            // Writes in flight use cursors, too.
            self.budget.wait_for_writes();
            collected = self.snapshot_lanes();
        }
        let (writes, lanes) = collected?;
        for write in &writes {
            self.budget.channels[write.lane.index()].submitted = write.upto;
        }
        let Contents { application, tables } = contents;
        let job =
            CheckpointJob { epoch, writes, lanes, local: self.local_entries_after(Ssn::ZERO), tables, application };
        let spiller = self.budget.spiller.as_mut().ok_or(CheckpointError::NoStore)?;
        Ok(PendingCheckpoint { epoch, local: self.local.last(), reply: spiller.checkpoint(job) })
    }

    /// Collects each lane's unsubmitted records, and the lane states.
    fn snapshot_lanes(&self) -> Result<(Vec<Write>, Vec<LaneState>), CursorError> {
        let (mut writes, mut lanes) = (Vec::new(), Vec::new());
        for lane in self.lanes.iter() {
            writes.extend(self.budget.unsubmitted(lane, lane.next_ssn().prev())?);
            // A re-executing rank resumes from its current position, not from the end of its lane.
            let next = lane.rewound_to().unwrap_or(lane.next_ssn());
            let acked = lane.acked().min(next.prev());
            let upto = |run: Run| Run { last: run.last.min(acked), ..run };
            let runs: Vec<Run> = lane.runs().filter(|run| run.first <= acked).map(upto).collect();
            lanes.push(LaneState { peer: lane.peer(), next, acked, runs });
        }
        Ok((writes, lanes))
    }

    /// Writes a checkpoint like [`begin_checkpoint`](Self::begin_checkpoint) and waits for it: when this returns, it
    /// survives a power cut.
    ///
    /// # Errors
    /// [`CheckpointError`]: the checkpoint failed; the previous one is unaffected.
    pub fn checkpoint(&mut self, epoch: Epoch, contents: Contents) -> Result<(), CheckpointError> {
        let begun = self.begin_checkpoint(epoch, contents)?;
        self.finish_checkpoint(begun)
    }

    /// Waits like [`PendingCheckpoint::wait`]; the local log then needn't be [synced](Self::sync_local) up to the
    /// checkpoint's beginning.
    ///
    /// # Errors
    /// [`CheckpointError::Store`].
    pub fn finish_checkpoint(&mut self, begun: PendingCheckpoint) -> Result<(), CheckpointError> {
        let local = begun.local;
        let result = begun.wait();
        self.budget.handle_reports();
        result?;
        self.local_synced = self.local_synced.max(local);
        Ok(())
    }

    /// Makes the local log durable: when this returns, its entries survive a power cut, independently of checkpoints.
    ///
    /// Without a store it does nothing.
    ///
    /// # Errors
    /// [`CheckpointError::Store`].
    pub fn sync_local(&mut self) -> Result<(), CheckpointError> {
        let newest = self.local.last();
        if newest == self.local_synced {
            return Ok(());
        }
        if self.budget.options.store.is_none() {
            return Ok(());
        }
        self.open_store()?;
        let entries = self.local_entries_after(self.local_synced);
        let spiller = self.budget.spiller.as_mut().ok_or(CheckpointError::NoStore)?;
        spiller.local(entries).wait()?;
        self.local_synced = newest;
        Ok(())
    }

    /// Durably discards the checkpoints beyond `epoch`, after a recovery line, so that no recovery uses them.
    ///
    /// To resume from the remaining ones, drop the log and [`recover`](Self::recover) it.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn discard_checkpoints_beyond(&mut self, epoch: Epoch) -> Result<(), CheckpointError> {
        self.discard_checkpoints(|spiller| spiller.discard_beyond(epoch))
    }

    /// Durably discards the checkpoints before `epoch`, but never the newest, and frees what only they needed: no
    /// recovery goes back before `epoch`.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn discard_checkpoints_before(&mut self, epoch: Epoch) -> Result<(), CheckpointError> {
        self.discard_checkpoints(|spiller| spiller.discard_before(epoch))
    }

    fn discard_checkpoints(&mut self, submit: impl FnOnce(&mut Spiller) -> Reply) -> Result<(), CheckpointError> {
        match &mut self.budget.spiller {
            Some(spiller) => Ok(submit(spiller).wait()?),
            None if self.budget.options.store.is_none() => Err(CheckpointError::NoStore),
            // No checkpoint was taken yet.
            None => Ok(()),
        }
    }

    /// Returns the error of the last attempt to spill, if it failed.
    pub fn disk_error(&self) -> Option<&StoreError> {
        self.budget.refused.as_deref()
    }

    /// Creates the store if there is none yet.
    fn open_store(&mut self) -> Result<(), CheckpointError> {
        if self.budget.spiller.is_some() {
            return Ok(());
        }
        if self.budget.options.store.is_none() {
            return Err(CheckpointError::NoStore);
        }
        self.budget.spiller = Some(create_store(&self.budget.options).map_err(Arc::new)?);
        Ok(())
    }

    fn local_entries_after(&self, after: Ssn) -> Vec<LocalImage> {
        let image =
            |(ssn, entry): (Ssn, Entry)| LocalImage { ssn, kind: entry.kind, key: entry.key, bytes: entry.bytes };
        self.local.entries_after(after).into_iter().map(image).collect()
    }
}
