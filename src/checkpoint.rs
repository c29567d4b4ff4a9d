//! Checkpoints: what a rank goes on from after a power cut.

use std::fmt;
use std::sync::Arc;

use counterfoil_log_core::{CursorError, Entry, Epoch, Rank, Run, Ssn};
use counterfoil_log_io::{LocalImage, StoreError};

use crate::OpenError;
use crate::log::Log;
use crate::open::make_store;
use crate::spill::{CheckpointJob, LaneState, Reply, Write};

/// What goes into a checkpoint beside the log: the program's own bytes, and named tables of the layers between (a
/// protocol's windows, say). The log doesn't look into them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// The program's own bytes.
    pub application: Vec<u8>,
    /// Name and bytes of each table. Names are unique and have at most 255 bytes; `counterfoil/cuts` is the log's own.
    pub tables: Vec<(String, Vec<u8>)>,
}

impl Contents {
    /// The bytes of a table.
    pub fn table(&self, name: &str) -> Option<&[u8]> {
        self.tables.iter().find(|(of, _)| of == name).map(|(_, bytes)| bytes.as_slice())
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = self.tables.iter().map(|(name, bytes)| (name, bytes.len()));
        f.debug_struct("Contents")
            .field("application_bytes", &self.application.len())
            .field("tables", &tables.collect::<Vec<_>>())
            .finish()
    }
}

/// A checkpoint that a recovery found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The epoch that it began.
    pub epoch: Epoch,
    /// The lanes: destination, lowest SSN kept, last SSN sent when the checkpoint was taken.
    pub lanes: Vec<(Rank, Ssn, Ssn)>,
    /// What was put into it.
    pub contents: Contents,
}

/// Why there is no new checkpoint. The one before is still there.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The log has no store.
    #[error("the log has no store for checkpoints: set Options::store")]
    NoStore,
    /// The store can't be made.
    #[error("checkpoint: {0}")]
    Open(#[from] Arc<OpenError>),
    /// The disk, or the disk budget.
    #[error("checkpoint: {0}")]
    Store(Arc<StoreError>),
    /// What is to be written can't be read beside the writer.
    #[error("checkpoint: {0}; raise cursors_max")]
    Cursor(#[from] CursorError),
}

impl From<Arc<StoreError>> for CheckpointError {
    fn from(error: Arc<StoreError>) -> Self {
        CheckpointError::Store(error)
    }
}

/// A checkpoint that is being written.
///
/// Dropping it doesn't stop it; it just isn't known when it is durable.
#[derive(Debug)]
#[must_use = "the checkpoint is not durable before `wait` has returned"]
pub struct PendingCheckpoint {
    pub(crate) epoch: Epoch,
    pub(crate) reply: Reply,
}

impl PendingCheckpoint {
    /// The epoch that it begins.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether it is known to be durable, or to have failed: [`wait`](Self::wait) returns at once then.
    pub fn is_done(&self) -> bool {
        self.reply.is_there()
    }

    /// Waits until everything that a recovery to this epoch needs is on stable storage.
    ///
    /// # Errors
    /// [`CheckpointError::Store`]: there is no such checkpoint then; the one before still is.
    pub fn wait(self) -> Result<Epoch, CheckpointError> {
        self.reply.wait()?;
        Ok(self.epoch)
    }
}

impl Log {
    /// Begins a checkpoint that begins `epoch`: what a recovery to it needs is on stable storage when
    /// [`PendingCheckpoint::wait`] has returned. That is what is retained and unacknowledged in every lane, how it was
    /// acknowledged, the local log, and `contents`. What is appended meanwhile is not part of it.
    ///
    /// Records that are on disk already are not written again.
    ///
    /// # Errors
    /// [`CheckpointError`]: no store, or more cursors open on a lane than leave one for it. Errors of the disk are
    /// [`wait`](PendingCheckpoint::wait)'s.
    pub fn begin_checkpoint(&mut self, epoch: Epoch, contents: Contents) -> Result<PendingCheckpoint, CheckpointError> {
        self.budget.take_reports();
        self.open_store()?;
        self.budget.cover_released(&mut self.lanes);
        let mut collected = self.unwritten();
        if let Err(CursorError::TooMany { .. }) = collected {
            // Writes that are under way have cursors, too.
            self.budget.wait_for_writes();
            collected = self.unwritten();
        }
        let (writes, lanes) = collected?;
        for write in &writes {
            self.budget.channels[write.lane.index()].submitted = write.upto;
        }
        let Contents { application, tables } = contents;
        let job =
            CheckpointJob { epoch, writes, lanes, local: self.local_entries_after(Ssn::ZERO), tables, application };
        let spiller = self.budget.spiller.as_mut().ok_or(CheckpointError::NoStore)?;
        Ok(PendingCheckpoint { epoch, reply: spiller.checkpoint(job) })
    }

    /// What of each lane is not on its way to the disk, and the lanes as they are now.
    fn unwritten(&self) -> Result<(Vec<Write>, Vec<LaneState>), CursorError> {
        let (mut writes, mut lanes) = (Vec::new(), Vec::new());
        for lane in self.lanes.iter() {
            writes.extend(self.budget.write_of(lane, lane.next_ssn().prev())?);
            // A rank that repeats what it had sent goes on from where it is, not from where it had been.
            let next = lane.rewound_to().unwrap_or(lane.next_ssn());
            let acked = lane.acked().min(next.prev());
            let upto = |run: Run| Run { last: run.last.min(acked), ..run };
            let runs: Vec<Run> = lane.runs().filter(|run| run.first <= acked).map(upto).collect();
            lanes.push(LaneState { peer: lane.peer(), next, acked, runs });
        }
        Ok((writes, lanes))
    }

    /// A checkpoint, as [`begin_checkpoint`](Self::begin_checkpoint) begins it: when this returns, it survives a power cut.
    ///
    /// # Errors
    /// [`CheckpointError`]: there is no such checkpoint then, but the one before still is.
    pub fn checkpoint(&mut self, epoch: Epoch, contents: Contents) -> Result<(), CheckpointError> {
        let newest = self.local.last();
        let result = self.begin_checkpoint(epoch, contents)?.wait();
        self.budget.take_reports();
        result?;
        self.local_synced = newest;
        Ok(())
    }

    /// Makes what the local log has noted so far durable: it survives a power cut when this returns, whatever the last
    /// checkpoint was. Without a store there is nothing that it could survive in, and nothing is done.
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

    /// Durably forgets the checkpoints beyond `epoch`: a recovery line lies before them, and no recovery may take them up.
    /// To go on from what is left, drop the log and [`recover`](Self::recover) it.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn discard_checkpoints_beyond(&mut self, epoch: Epoch) -> Result<(), CheckpointError> {
        match &mut self.budget.spiller {
            Some(spiller) => Ok(spiller.discard_beyond(epoch).wait()?),
            None if self.budget.options.store.is_none() => Err(CheckpointError::NoStore),
            // No checkpoint was taken yet.
            None => Ok(()),
        }
    }

    /// Why the last record that was to be spilled was not, if it was not.
    pub fn disk_error(&self) -> Option<&StoreError> {
        self.budget.refused.as_deref()
    }

    /// Makes the store, where there is none yet.
    fn open_store(&mut self) -> Result<(), CheckpointError> {
        if self.budget.spiller.is_some() {
            return Ok(());
        }
        if self.budget.options.store.is_none() {
            return Err(CheckpointError::NoStore);
        }
        self.budget.spiller = Some(make_store(&self.budget.options).map_err(Arc::new)?);
        Ok(())
    }

    fn local_entries_after(&self, after: Ssn) -> Vec<LocalImage> {
        let image =
            |(ssn, entry): (Ssn, Entry)| LocalImage { ssn, kind: entry.kind, key: entry.key, bytes: entry.bytes };
        self.local.entries_after(after).into_iter().map(image).collect()
    }
}
