//! Opening of a log on a given storage backend.

use counterfoil_log_io::StorageBackend;

use crate::log::Log;
use crate::open::Recovered;
use crate::store::{create_store_on, recover_store};
use crate::{OpenError, Options};

/// Opens a log whose store is on another backend than a directory: a simulated disk, or a disk of the caller's.
///
/// The caller's thread writes the store, so nothing depends on the timing of threads. [`Log::create`] and
/// [`Log::recover`] open a log in a directory.
#[derive(Debug)]
pub struct Builder {
    options: Options,
    backend: Box<dyn StorageBackend>,
    seed: Option<u64>,
}

impl Builder {
    /// Begins with the log's options, and the backend for its store.
    pub fn new(options: Options, backend: Box<dyn StorageBackend>) -> Builder {
        Builder { options, backend, seed: None }
    }

    /// Sets the seed for the random ids of stores and segments: the same calls then write the same bytes.
    pub fn seed(mut self, seed: u64) -> Builder {
        self.seed = Some(seed);
        self
    }

    /// Creates an empty log, as [`Log::create`] does.
    ///
    /// # Errors
    /// See [`Log::create`].
    pub fn create(self) -> Result<Log, OpenError> {
        let spiller = create_store_on(self.backend, &self.options, self.seed, None)?;
        Log::create_with(self.options, Some(spiller))
    }

    /// Recovers a dead process's log, as [`Log::recover`] does.
    ///
    /// # Errors
    /// See [`Log::recover`].
    pub fn recover(self) -> Result<(Log, Recovered), OpenError> {
        self.options.validate()?;
        let found = recover_store(self.backend, &self.options, self.seed, None)?;
        Log::recover_with(self.options, Some(found))
    }
}
