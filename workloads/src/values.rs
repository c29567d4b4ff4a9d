//! Distributed arrays of numbers: each rank's part, and its form in messages and saved states, little-endian as in
//! memory.

use std::ops::Range;

use counterfoil_runtime::communicator::Communicator;
use xxhash_rust::xxh3::xxh3_64;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{MessageError, StateError};

/// Returns one rank's part of `0..len`; the first ones are one longer if `len` isn't divisible.
pub(crate) fn part(len: usize, rank: u32, ranks: u32) -> Range<usize> {
    let (rank, ranks) = (rank as usize, ranks as usize);
    let (each, longer) = (len / ranks, len % ranks);
    let start = rank * each + rank.min(longer);
    start..start + each + usize::from(rank < longer)
}

/// Copies a message's values; the error names the message.
pub(crate) fn from_message<T: FromBytes + IntoBytes + Immutable + Copy + Default>(
    comm: &dyn Communicator,
    (source_rank, tag): (u32, i32),
    bytes: &[u8],
    len: usize,
    expected: &'static str,
) -> Result<Vec<T>, MessageError> {
    let mut values = vec![T::default(); len];
    fill_from_message(comm, (source_rank, tag), bytes, &mut values, expected)?;
    Ok(values)
}

/// Copies a message's values, as many as there are in `values`; the error names the message.
pub(crate) fn fill_from_message<T: FromBytes + IntoBytes + Immutable>(
    comm: &dyn Communicator,
    (source_rank, tag): (u32, i32),
    bytes: &[u8],
    values: &mut [T],
    expected: &'static str,
) -> Result<(), MessageError> {
    let error = || MessageError { rank: comm.rank(), source_rank, tag, len: bytes.len(), expected };
    fill(values, bytes).ok_or_else(error)
}

fn copy<T: FromBytes + IntoBytes + Immutable + Copy + Default>(bytes: &[u8], len: usize) -> Option<Vec<T>> {
    let mut values = vec![T::default(); len];
    fill(&mut values, bytes)?;
    Some(values)
}

/// Returns `None`, and changes nothing, if there are more or fewer bytes than values.
fn fill<T: FromBytes + IntoBytes + Immutable>(values: &mut [T], bytes: &[u8]) -> Option<()> {
    let into = values.as_mut_bytes();
    (into.len() == bytes.len()).then(|| into.copy_from_slice(bytes))
}

/// Returns the eight-byte words; a remainder is dropped.
pub(crate) fn long_words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// Copies `len` numbers from a state's body.
///
/// # Errors
/// [`StateError`] for another length, or a number that isn't finite.
pub(crate) fn numbers(body: &[u8], len: usize) -> Result<Vec<f64>, StateError> {
    let expected = (len * size_of::<f64>()) as u64;
    let numbers: Vec<f64> = copy(body, len).ok_or(StateError::Length { expected, found: body.len() as u64 })?;
    match numbers.iter().find(|number| !number.is_finite()) {
        Some(found) => Err(StateError::Invalid { what: "the bits of a number", found: found.to_bits() }),
        None => Ok(numbers),
    }
}

/// Copies `len` words from a state's body.
///
/// # Errors
/// [`StateError::Length`].
pub(crate) fn words(body: &[u8], len: usize) -> Result<Vec<u32>, StateError> {
    let expected = (len * size_of::<u32>()) as u64;
    copy(body, len).ok_or(StateError::Length { expected, found: body.len() as u64 })
}

/// Returns the digest of a rank's values.
pub(crate) fn digest<T: IntoBytes + Immutable>(values: &[T]) -> u64 {
    xxh3_64(values.as_bytes())
}

/// Returns a sum over values at places `first` and up that differs if any two are exchanged.
///
/// Sums over the parts add up to the whole's, modulo 2^64.
pub(crate) fn place_sum<T: IntoBytes + Immutable>(first: usize, values: &[T]) -> u64 {
    let of = |(place, value): (usize, &T)| xxh3_64(&[value.as_bytes(), &(place as u64).to_le_bytes()].concat());
    (first..).zip(values).map(of).fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_whole_and_differ_by_one_at_most() {
        for (len, ranks) in [(10, 1), (10, 3), (7, 7), (3, 5), (64, 16)] {
            let parts: Vec<Range<usize>> = (0..ranks).map(|rank| part(len, rank, ranks)).collect();
            assert_eq!(parts.iter().cloned().flatten().collect::<Vec<_>>(), (0..len).collect::<Vec<_>>());
            let lengths = parts.iter().map(Range::len);
            assert!(lengths.clone().max().unwrap() - lengths.min().unwrap() <= 1);
        }
    }

    #[test]
    fn sums_of_parts_are_that_of_the_whole_and_depend_on_places() {
        let values = [1.0, 2.0, 2.5, -0.0];
        let parts = place_sum(5, &values[..1]).wrapping_add(place_sum(6, &values[1..]));
        assert_eq!(place_sum(5, &values), parts);
        assert_ne!(place_sum(5, &values), place_sum(5, &[2.0, 1.0, 2.5, -0.0]));
        assert_ne!(place_sum(0, &[0.0]), place_sum(0, &[-0.0]));
    }

    #[test]
    fn numbers_that_are_not_finite_or_too_few_are_refused() {
        assert_eq!(numbers([1.0, 2.0].as_bytes(), 2), Ok(vec![1.0, 2.0]));
        assert_eq!(numbers([1.0].as_bytes(), 2), Err(StateError::Length { expected: 16, found: 8 }));
        assert!(matches!(numbers([f64::NAN].as_bytes(), 1), Err(StateError::Invalid { .. })));
        assert_eq!(words(&[1, 0, 0, 0], 1), Ok(vec![1]));
        assert!(words(&[1, 0, 0], 1).is_err());
    }
}
