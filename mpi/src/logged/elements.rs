//! Messages as elements.

use counterfoil_mpi_core::envelope::Envelope;
use zerocopy::{FromBytes, IntoBytes};

use super::error::LoggedError;

/// Checks for a message with whole elements, and `count` of them if given.
pub(super) fn check_elements<T>(envelope: Envelope, count: Option<usize>) -> Result<(), LoggedError> {
    let (len, element) = (envelope.len, size_of::<T>());
    let is_whole = match count {
        Some(count) => len == count * element,
        None => element > 0 && len.is_multiple_of(element),
    };
    if is_whole { Ok(()) } else { Err(LoggedError::Elements { source_rank: envelope.source, len, element }) }
}

/// Converts a message to elements.
pub(super) fn elements<T>(envelope: Envelope, bytes: &[u8]) -> Result<Vec<T>, LoggedError>
where
    T: FromBytes + IntoBytes + Clone,
{
    check_elements::<T>(envelope, None)?;
    let mut elements = vec![T::new_zeroed(); bytes.len() / size_of::<T>()];
    elements.as_mut_slice().as_mut_bytes().copy_from_slice(bytes);
    Ok(elements)
}
