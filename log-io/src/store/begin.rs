//! Opening what is there, or making a new one.

use super::Store;
use crate::manifest::{FoundManifest, MANIFEST};
use crate::strays;
use crate::{Access, CheckpointImage, StorageBackend, StoreError, StoreOptions};

impl Store {
    /// [Opens](Self::open) the directory's store to write or, where no process got as far as to make one, [makes](Self::create)
    /// it.
    ///
    /// # Errors
    /// Those of the two.
    pub fn open_or_create(
        mut backend: Box<dyn StorageBackend>,
        options: StoreOptions,
    ) -> Result<(Store, Option<CheckpointImage>), StoreError> {
        let names = strays::names_for(&mut *backend, Access::ReadWrite)?;
        let mut begun = names.iter().any(|name| name == MANIFEST);
        if begun {
            let reader = backend.reader(MANIFEST).map_err(StoreError::io("open", MANIFEST))?;
            begun = !FoundManifest::read(&*reader)?.is_unfinished(&names);
        }
        if begun {
            Store::open(backend, options, Access::ReadWrite)
        } else {
            Ok((Store::create(backend, options)?, None))
        }
    }
}
