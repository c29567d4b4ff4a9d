//! Local log entries.

use counterfoil_log_io::{Access, LocalImage, ManifestReport, Store, StoreOptions};

use super::super::stores::OpenedStore;

/// Returns the entries found by a recovery from a checkpoint, and the error if some can't be read.
///
/// For the newest checkpoint these are its own (`own`) and those synced after it.
pub(super) fn entries(
    store: &OpenedStore,
    manifest: &ManifestReport,
    own: Vec<LocalImage>,
    is_newest: bool,
) -> (Vec<LocalImage>, Option<String>) {
    if !is_newest {
        return (own, None);
    }
    let opened = store.reopen().map_err(|failure| failure.to_string()).and_then(|backend| {
        let options = StoreOptions::new(manifest.rank, manifest.ranks);
        Store::open(backend, options, Access::ReadOnly).map_err(|error| error.to_string())
    });
    match opened {
        Ok((_, image)) => (image.map_or(own, |image| image.local), None),
        Err(error) => (own, Some(format!("entries of the local log after the checkpoint can't be read: {error}"))),
    }
}
