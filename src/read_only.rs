//! Read-only access to a log's store.

use counterfoil_log_core::{LocalLog, Rank, Ssn};
use counterfoil_log_io::{Access, Directory, DirectoryAccess, Store};

use crate::cursor::{Cursor, ReplayError};
use crate::log::Log;
use crate::open::Recovered;
use crate::{OpenError, Options, Tier};

/// A log's store, opened for reading only, as a recovery would find it: the newest checkpoint with its messages, and
/// the local log entries synced since.
///
/// Messages and entries only in shared memory are not included.
///
/// The files stay as they are, which works on a full disk and on a read-only file system. No process can write the
/// store meanwhile.
#[derive(Debug)]
pub struct ReadOnlyLog {
    /// Has the store's index, and nothing in memory but the local log.
    log: Log,
}

impl ReadOnlyLog {
    /// Opens the store of `options`, which must exist.
    ///
    /// # Errors
    /// [`OpenError`]: no store, a store open in another process, a damaged file, other options.
    pub fn open(options: Options) -> Result<(ReadOnlyLog, Recovered), OpenError> {
        options.validate()?;
        let of = options.store.clone().ok_or(OpenError::NoStore)?;
        let (backend, _) = Directory::open(&of.rank_dir(options.rank), of.for_backend(), DirectoryAccess::ReadOnly)?;
        let found = Store::open(backend, of.for_rank(&options, None), Access::ReadOnly)?;
        let options =
            Options { tier: Tier::NodeLocal, dir: None, prefault_bytes: 0, prefault_ahead_bytes: 0, ..options };
        let (log, recovered) = Log::recover_opened(options, found)?;
        Ok((ReadOnlyLog { log }, recovered))
    }

    /// Returns the lowest SSN to `peer` in the store; the next one if it has none.
    pub fn kept_from(&self, peer: Rank) -> Ssn {
        self.log.kept_from(peer)
    }

    /// Returns the SSN of the next message to `peer` when the checkpoint was taken.
    pub fn next_ssn(&self, peer: Rank) -> Ssn {
        self.log.next_ssn(peer)
    }

    /// Returns the highest SSN acknowledged by `peer` when the checkpoint was taken.
    pub fn acked(&self, peer: Rank) -> Ssn {
        self.log.acked(peer)
    }

    /// Opens a cursor on the messages to `peer` from `from` on.
    ///
    /// # Errors
    /// [`ReplayError`]: those messages are not in the store, or too many cursors are open.
    pub fn cursor(&mut self, peer: Rank, from: Ssn) -> Result<Cursor, ReplayError> {
        self.log.cursor(peer, from)
    }

    /// Returns the local log.
    pub fn local(&self) -> &LocalLog {
        &self.log.local
    }
}
