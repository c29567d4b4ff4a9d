//! The entries of the local log.

use counterfoil::store::{Access, LocalImage, ManifestReport, Store, StoreOptions};

use super::super::stores::Opened;

/// The entries that a recovery would find, and why there may be more. For the newest checkpoint these are its own, and
/// those that were synced since.
pub(super) fn entries(
    store: &Opened,
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
        Err(error) => (own, Some(format!("entries of the local log since the checkpoint can't be told: {error}"))),
    }
}
