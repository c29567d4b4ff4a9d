//! Opening of a log's store and its writing thread.

use counterfoil_log_core::Epoch;
use counterfoil_log_io::{CheckpointImage, Directory, DirectoryError, Probe, StorageBackend, Store};

use crate::disk_index::DiskIndex;
use crate::spill::Spiller;
use crate::{OpenError, Options};

/// Checks for the directory of the store to be created by the first checkpoint.
pub(crate) fn check_stores_dir(options: &Options) -> Result<(), OpenError> {
    let Some(store) = &options.store else { return Ok(()) };
    let failed =
        |source| DirectoryError::Io { action: "open the directory of stores", path: store.dir.clone(), source };
    match std::fs::metadata(&store.dir).map_err(failed)?.is_dir() {
        true => Ok(()),
        false => Err(failed(std::io::ErrorKind::NotADirectory.into()).into()),
    }
}

/// Creates the store in the directory given by the options.
pub(crate) fn create_store(options: &Options) -> Result<Spiller, OpenError> {
    let store = options.store.as_ref().ok_or(OpenError::NoStore)?;
    let (backend, probe) = Directory::create(&store.rank_dir(options.rank), store.for_backend())?;
    create_store_on(backend, options, None, Some(probe))
}

/// Creates the store on a backend; `seed` is that of its random ids.
pub(crate) fn create_store_on(
    backend: Box<dyn StorageBackend>,
    options: &Options,
    seed: Option<u64>,
    probe: Option<Probe>,
) -> Result<Spiller, OpenError> {
    let store = options.store.as_ref().ok_or(OpenError::NoStore)?;
    let store = Store::create(backend, store.for_rank(options, seed))?;
    start_spiller(store, options, probe)
}

/// Starts a spiller: with its own thread for a probed directory; in the caller's thread for a given backend.
pub(crate) fn start_spiller(store: Store, options: &Options, probe: Option<Probe>) -> Result<Spiller, OpenError> {
    let backend = probe.as_ref().map_or_else(|| "given".to_owned(), Probe::to_string);
    let cpu_percent = options.store.as_ref().filter(|_| probe.is_some()).map(|store| store.cpu_percent_max);
    Spiller::new(store, DiskIndex::new(options.ranks), backend, cpu_percent).map_err(OpenError::Thread)
}

/// A dead process's store, or a new one.
pub(crate) struct FoundStore {
    pub(crate) spiller: Spiller,
    /// Contents of the newest checkpoint.
    pub(crate) image: Option<CheckpointImage>,
    /// Epoch of the oldest checkpoint.
    pub(crate) oldest: Option<Epoch>,
}

/// Opens a dead process's store, or creates one if it had none.
pub(crate) fn recover_store(
    backend: Box<dyn StorageBackend>,
    options: &Options,
    seed: Option<u64>,
    probe: Option<Probe>,
) -> Result<FoundStore, OpenError> {
    let store = options.store.as_ref().ok_or(OpenError::NoStore)?;
    let (store, image) = Store::open_or_create(backend, store.for_rank(options, seed))?;
    let oldest = store.checkpoints().first().copied();
    Ok(FoundStore { spiller: start_spiller(store, options, probe)?, image, oldest })
}
