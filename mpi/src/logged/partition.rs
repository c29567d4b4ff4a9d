//! Memory in parts of different lengths, one for each rank.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::error::LoggedError;
use crate::collective::{Outgoing, Parts};
use crate::error::MpiError;

/// Lengths and places, in elements.
#[derive(Clone, Debug)]
struct Layout {
    counts: Vec<usize>,
    places: Vec<usize>,
}

impl Layout {
    fn new(len: usize, counts: &[usize], places: &[usize]) -> Result<Layout, LoggedError> {
        let is_there = |(count, place): (&usize, &usize)| place.checked_add(*count).is_some_and(|end| end <= len);
        if counts.len() != places.len() || !counts.iter().zip(places).all(is_there) {
            return Err(LoggedError::Partition { counts: counts.len(), places: places.len(), len });
        }
        Ok(Layout { counts: counts.to_vec(), places: places.to_vec() })
    }

    fn in_order(len: usize, counts: &[usize]) -> Result<Layout, LoggedError> {
        let before = |end: &mut usize, count: &usize| Some(std::mem::replace(end, end.saturating_add(*count)));
        let places: Vec<usize> = counts.iter().scan(0, before).collect();
        Layout::new(len, counts, &places)
    }

    fn parts<T>(&self) -> Result<Parts, MpiError> {
        Parts::new(size_of::<T>(), &self.counts, &self.places)
    }
}

/// What a rank gives, in parts: one for each rank of the communicator, in their order.
///
/// ```
/// use counterfoil_mpi::logged::{LoggedError, Partition};
///
/// let letters = *b"abcdefgh";
/// // Three parts, the second of which is empty; d to f are in none.
/// assert!(Partition::new(&letters, &[3, 0, 2], &[0, 4, 6]).is_ok());
/// assert!(Partition::in_order(&letters, &[4, 4]).is_ok());
/// assert!(matches!(Partition::in_order(&letters, &[4, 5]), Err(LoggedError::Partition { len: 8, .. })));
/// ```
#[derive(Clone, Debug)]
pub struct Partition<'b, T> {
    buf: &'b [T],
    layout: Layout,
}

impl<'b, T: IntoBytes + Immutable> Partition<'b, T> {
    /// Parts of `counts` elements each, which begin at `places`.
    ///
    /// # Errors
    /// [`LoggedError::Partition`].
    pub fn new(buf: &'b [T], counts: &[usize], places: &[usize]) -> Result<Partition<'b, T>, LoggedError> {
        Ok(Partition { buf, layout: Layout::new(buf.len(), counts, places)? })
    }

    /// Parts of `counts` elements each, one behind the other.
    ///
    /// # Errors
    /// [`LoggedError::Partition`].
    pub fn in_order(buf: &'b [T], counts: &[usize]) -> Result<Partition<'b, T>, LoggedError> {
        Ok(Partition { buf, layout: Layout::in_order(buf.len(), counts)? })
    }

    pub(super) fn outgoing(&self) -> Result<Outgoing<'b>, MpiError> {
        Ok(Outgoing { bytes: self.buf.as_bytes(), parts: Some(self.layout.parts::<T>()?) })
    }
}

/// What a rank gets, in parts: one from each rank of the communicator, in their order. They must not overlap.
#[derive(Debug)]
pub struct PartitionMut<'b, T> {
    buf: &'b mut [T],
    layout: Layout,
}

impl<'b, T: FromBytes + IntoBytes> PartitionMut<'b, T> {
    /// Parts of `counts` elements each, which begin at `places`. What is between them stays as it was.
    ///
    /// # Errors
    /// [`LoggedError::Partition`].
    pub fn new(buf: &'b mut [T], counts: &[usize], places: &[usize]) -> Result<PartitionMut<'b, T>, LoggedError> {
        let layout = Layout::new(buf.len(), counts, places)?;
        Ok(PartitionMut { buf, layout })
    }

    /// Parts of `counts` elements each, one behind the other.
    ///
    /// # Errors
    /// [`LoggedError::Partition`].
    pub fn in_order(buf: &'b mut [T], counts: &[usize]) -> Result<PartitionMut<'b, T>, LoggedError> {
        let layout = Layout::in_order(buf.len(), counts)?;
        Ok(PartitionMut { buf, layout })
    }

    /// The memory, and its parts.
    pub(super) fn incoming(self) -> Result<(&'b mut [T], Parts), MpiError> {
        let parts = self.layout.parts::<T>()?;
        Ok((self.buf, parts))
    }

    /// The same, borrowed for less.
    pub(super) fn borrowed(&mut self) -> PartitionMut<'_, T> {
        PartitionMut { buf: self.buf, layout: self.layout.clone() }
    }
}
