//! Checkpoints: the state from which a rank resumes after a power cut.

use std::collections::HashSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use counterfoil_log_core::{CursorError, Entry, Epoch, Rank, Run, Ssn};
use counterfoil_log_io::{LocalImage, StoreError};

use crate::OpenError;
use crate::disk_index::Cuts;
use crate::log::Log;
use crate::open::create_store;
use crate::spill::{CheckpointJob, LaneState, Reply, Spiller, Write};

/// Caller's part of a checkpoint: the program's own bytes, and named tables of the layers between program and log, for
/// example a protocol's windows. The log doesn't interpret them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// The program's own bytes.
    pub application: Vec<u8>,
    /// Name and bytes of each table. Names are unique and have at most [`TABLE_NAME_BYTES_MAX`] bytes; `counterfoil/cuts` is
    /// reserved. A checkpoint with other names is refused.
    pub tables: Vec<(String, Vec<u8>)>,
}

/// Longest name of a table in a checkpoint, in bytes.
pub const TABLE_NAME_BYTES_MAX: usize = 255;

/// A table's name that a checkpoint can't have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The name is the log's own.
    #[error("a table of a checkpoint can't be named {name:?}, which is the log's own: choose another name")]
    Reserved {
        /// The name.
        name: String,
    },
    /// Two tables have this name.
    #[error("a checkpoint has two tables named {name:?}: give each a name of its own")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// The name is too long.
    #[error("a table's name of {bytes} bytes begins with {start:?}: it can have {TABLE_NAME_BYTES_MAX}")]
    TooLong {
        /// The first characters of the name.
        start: String,
        /// Length of the name in bytes.
        bytes: usize,
    },
}

impl Contents {
    /// Checks the names of the tables.
    ///
    /// # Errors
    /// [`TableError`] names the first table that a checkpoint can't have.
    pub fn validate(&self) -> Result<(), TableError> {
        let mut names = HashSet::with_capacity(self.tables.len());
        for (name, _) in &self.tables {
            if name.len() > TABLE_NAME_BYTES_MAX {
                return Err(TableError::TooLong { start: name.chars().take(32).collect(), bytes: name.len() });
            }
            if name == Cuts::TABLE {
                return Err(TableError::Reserved { name: name.clone() });
            }
            if !names.insert(name.as_str()) {
                return Err(TableError::Duplicate { name: name.clone() });
            }
        }
        Ok(())
    }

    /// Returns the bytes of a table.
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

/// A recovered checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Epoch that the checkpoint began.
    pub epoch: Epoch,
    /// Lanes: destination, lowest SSN kept, last SSN sent when the checkpoint was taken.
    pub lanes: Vec<(Rank, Ssn, Ssn)>,
    /// Caller's part.
    pub contents: Contents,
}

/// A checkpoint failed. The previous one is unaffected.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The log has no store.
    #[error("the log has no store for checkpoints: set Options::store")]
    NoStore,
    /// The store can't be created.
    #[error("checkpoint: {0}")]
    Open(#[from] Arc<OpenError>),
    /// The disk failed, or the disk budget is used up.
    #[error("checkpoint: {0}")]
    Store(Arc<StoreError>),
    /// A table has a name that a checkpoint can't have. Nothing was written.
    #[error("checkpoint: {0}")]
    Table(#[from] TableError),
    /// No cursor is available to read the records to be written.
    #[error("checkpoint: {0}; raise cursors_max")]
    Cursor(#[from] CursorError),
}

impl From<Arc<StoreError>> for CheckpointError {
    fn from(error: Arc<StoreError>) -> Self {
        CheckpointError::Store(error)
    }
}

/// A checkpoint being written. It is also a future with the result of [`wait`](Self::wait), for a caller that has more to wait for.
///
/// Dropping this doesn't cancel the checkpoint.
#[derive(Debug)]
#[must_use = "the checkpoint is not durable before `wait` has returned"]
pub struct PendingCheckpoint {
    pub(crate) epoch: Epoch,
    pub(crate) reply: Reply,
}

impl PendingCheckpoint {
    /// Returns the epoch that the checkpoint begins.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns `true` once the checkpoint is durable or has failed: [`wait`](Self::wait) then returns at once.
    pub fn is_done(&self) -> bool {
        self.reply.is_ready()
    }

    /// Waits until everything that a recovery to this epoch needs is on stable storage.
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
    /// Starts writing the checkpoint that begins `epoch`. When [`PendingCheckpoint::wait`] has returned, everything that
    /// a recovery to it needs is on stable storage: the retained and unacknowledged records of every lane, their
    /// acknowledgement state, the local log, and `contents`. Later appends are not part of it.
    ///
    /// Records that are on disk already are not written again.
    ///
    /// # Errors
    /// [`CheckpointError`]: a table's name, no store, or no free cursor on a lane. [`wait`](PendingCheckpoint::wait) reports errors
    /// of the disk.
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
        Ok(PendingCheckpoint { epoch, reply: spiller.checkpoint(job) })
    }

    /// Collects the records of each lane that were not submitted yet, and the state of the lanes.
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
        let newest = self.local.last();
        let result = self.begin_checkpoint(epoch, contents)?.wait();
        self.budget.handle_reports();
        result?;
        self.local_synced = newest;
        Ok(())
    }

    /// Makes the local log durable: when this returns, its entries survive a power cut, independently of checkpoints.
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

    /// Durably discards the checkpoints beyond `epoch`, which lie after a recovery line, so that no recovery uses them. To
    /// resume from the remaining ones, drop the log and [`recover`](Self::recover) it.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn discard_checkpoints_beyond(&mut self, epoch: Epoch) -> Result<(), CheckpointError> {
        self.discard_checkpoints(|spiller| spiller.discard_beyond(epoch))
    }

    /// Durably discards the checkpoints before `epoch`, but never the newest, and frees what only they needed: no recovery
    /// goes back before that.
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
