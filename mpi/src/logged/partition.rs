//! Buffers in parts of different lengths, one for each rank.

use counterfoil_mpi_core::collective::{Incoming, Outgoing, Parts};
use counterfoil_mpi_core::error::MpiError;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::error::LoggedError;

/// Lengths and displacements, in elements.
#[derive(Clone, Debug)]
struct Layout {
    counts: Vec<usize>,
    displacements: Vec<usize>,
}

impl Layout {
    fn new(len: usize, counts: &[usize], displacements: &[usize]) -> Result<Layout, LoggedError> {
        let is_within = |(count, at): (&usize, &usize)| at.checked_add(*count).is_some_and(|end| end <= len);
        if counts.len() != displacements.len() || !counts.iter().zip(displacements).all(is_within) {
            return Err(LoggedError::Partition { counts: counts.len(), places: displacements.len(), len });
        }
        Ok(Layout { counts: counts.to_vec(), displacements: displacements.to_vec() })
    }

    fn in_order(len: usize, counts: &[usize]) -> Result<Layout, LoggedError> {
        let before = |end: &mut usize, count: &usize| Some(std::mem::replace(end, end.saturating_add(*count)));
        let displacements: Vec<usize> = counts.iter().scan(0, before).collect();
        Layout::new(len, counts, &displacements)
    }

    fn parts<T>(&self) -> Result<Parts, MpiError> {
        Parts::new(size_of::<T>(), &self.counts, &self.displacements)
    }
}

/// Send buffer in parts: one for each rank of the communicator, in their order.
///
/// ```
/// use counterfoil_mpi::logged::{LoggedError, Partition};
///
/// let letters = *b"abcdefgh";
/// // Three parts, the second one empty; `d` to `f` are in none of them.
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
    /// Creates parts with `counts` elements each, beginning at `displacements`.
    ///
    /// # Errors
    /// [`LoggedError::Partition`].
    pub fn new(buf: &'b [T], counts: &[usize], displacements: &[usize]) -> Result<Partition<'b, T>, LoggedError> {
        Ok(Partition { buf, layout: Layout::new(buf.len(), counts, displacements)? })
    }

    /// Creates contiguous parts with `counts` elements each, in rank order.
    ///
    /// # Errors
    /// [`LoggedError::Partition`].
    pub fn in_order(buf: &'b [T], counts: &[usize]) -> Result<Partition<'b, T>, LoggedError> {
        Ok(Partition { buf, layout: Layout::in_order(buf.len(), counts)? })
    }

    pub(super) fn outgoing(&self) -> Result<Outgoing<'b>, MpiError> {
        Ok(Outgoing::in_parts(self.buf, self.layout.parts::<T>()?))
    }
}

/// Receive buffer in parts: one from each rank of the communicator, in their order.
///
/// The parts must not overlap.
#[derive(Debug)]
pub struct PartitionMut<'b, T> {
    buf: &'b mut [T],
    layout: Layout,
}

impl<'b, T: FromBytes + IntoBytes> PartitionMut<'b, T> {
    /// Creates parts with `counts` elements each, beginning at `displacements`.
    ///
    /// Elements between them are left unchanged.
    ///
    /// # Errors
    /// [`LoggedError::Partition`].
    pub fn new(
        buf: &'b mut [T],
        counts: &[usize],
        displacements: &[usize],
    ) -> Result<PartitionMut<'b, T>, LoggedError> {
        let layout = Layout::new(buf.len(), counts, displacements)?;
        Ok(PartitionMut { buf, layout })
    }

    /// Creates contiguous parts with `counts` elements each, in rank order.
    ///
    /// # Errors
    /// [`LoggedError::Partition`].
    pub fn in_order(buf: &'b mut [T], counts: &[usize]) -> Result<PartitionMut<'b, T>, LoggedError> {
        let layout = Layout::in_order(buf.len(), counts)?;
        Ok(PartitionMut { buf, layout })
    }

    pub(super) fn incoming(self) -> Result<Incoming<'b, [T]>, MpiError> {
        let parts = self.layout.parts::<T>()?;
        Ok(Incoming::in_parts(self.buf, parts))
    }

    /// Borrows the parts for a shorter lifetime.
    pub(super) fn reborrow(&mut self) -> PartitionMut<'_, T> {
        PartitionMut { buf: self.buf, layout: self.layout.clone() }
    }
}
