//! Entries of a store's directory that have the name of one of its files and are none: links, directories, pipes. They are
//! told from files by what the directory says, and never opened.

use crate::manifest::MANIFEST;
use crate::segment::file_number;
use crate::{Access, StorageBackend, StoreError};

/// The names of the store's files, and the entries of such a name that are none: the name, and what it is.
pub(crate) type Names = (Vec<String>, Vec<(String, &'static str)>);

/// Lists the directory.
///
/// # Errors
/// [`StoreError::Io`]; [`StoreError::NotAFile`] where the manifest is none.
pub(crate) fn names(backend: &mut dyn StorageBackend) -> Result<Names, StoreError> {
    let failed = || StoreError::io("list the directory", ".");
    let mut names = backend.list().map_err(failed())?;
    let mut strays = backend.not_files().map_err(failed())?;
    names.retain(|name| !strays.iter().any(|(stray, _)| stray == name));
    strays.retain(|(name, _)| is_of_a_store(name));
    match strays.iter().find(|(name, _)| name == MANIFEST) {
        Some((name, what)) => Err(StoreError::NotAFile { file: name.clone(), what }),
        None => Ok((names, strays)),
    }
}

/// As [`names`], for an opening with this access. To write, an entry that is no file is in the way: its number may come up.
pub(crate) fn names_for(backend: &mut dyn StorageBackend, access: Access) -> Result<Vec<String>, StoreError> {
    let (names, strays) = names(backend)?;
    match strays.into_iter().next() {
        Some((file, what)) if access == Access::ReadWrite => Err(StoreError::NotAFile { file, what }),
        _ => Ok(names),
    }
}

fn is_of_a_store(name: &str) -> bool {
    name == MANIFEST
        || name == crate::store::RESERVE
        || file_number(name, "segment").or(file_number(name, "checkpoint")).is_some()
}
