//! Directory listing for a store: its files, and entries with a file's name that aren't regular files, such as links,
//! directories and pipes.
//!
//! Such entries are never opened.

use crate::format::names::{MANIFEST, is_of_a_store};
use crate::{Access, StorageBackend, StoreError};

/// The store's file names; and the name and type of each entry with such a name that isn't a regular file.
pub(crate) type Listing = (Vec<String>, Vec<(String, &'static str)>);

/// Lists the directory.
///
/// # Errors
/// [`StoreError::Io`]; [`StoreError::NotAFile`] if the manifest isn't a regular file.
pub(crate) fn list(backend: &mut dyn StorageBackend) -> Result<Listing, StoreError> {
    let failed = || StoreError::io("list the directory", ".");
    let mut names = backend.list().map_err(failed())?;
    let mut not_files = backend.not_files().map_err(failed())?;
    names.retain(|name| !not_files.iter().any(|(other, _)| other == name));
    not_files.retain(|(name, _)| is_of_a_store(name));
    match not_files.iter().find(|(name, _)| name == MANIFEST) {
        Some((name, what)) => Err(StoreError::NotAFile { file: name.clone(), what }),
        None => Ok((names, not_files)),
    }
}

/// Lists the files for opening with this access.
///
/// Refuses writing if an entry isn't a regular file, because a new file may need its name.
pub(crate) fn files_for(backend: &mut dyn StorageBackend, access: Access) -> Result<Vec<String>, StoreError> {
    let (names, not_files) = list(backend)?;
    match not_files.into_iter().next() {
        Some((file, what)) if access == Access::ReadWrite => Err(StoreError::NotAFile { file, what }),
        _ => Ok(names),
    }
}
