//! Combination of elements received from other ranks.

use std::ffi::c_void;

use mpi_sys as ffi;
use zerocopy::IntoBytes;

use crate::error::{MpiError, check, count};

/// An operation on elements of a datatype.
#[derive(Clone, Copy, Debug)]
pub struct Reducer {
    operation: ffi::MPI_Op,
    datatype: ffi::MPI_Datatype,
    is_commutative: bool,
}

impl Reducer {
    /// Returns the reducer for an operation and a datatype for which it is defined.
    ///
    /// # Errors
    /// [`MpiError::Call`].
    ///
    /// # Safety
    /// Both handles are valid as long as the reducer is used.
    pub unsafe fn new(operation: ffi::MPI_Op, datatype: ffi::MPI_Datatype) -> Result<Reducer, MpiError> {
        let mut is_commutative = 0;
        // SAFETY: a valid operation, and a pointer to a local variable.
        check("MPI_Op_commutative", unsafe { ffi::PMPI_Op_commutative(operation, &raw mut is_commutative) })?;
        Ok(Reducer { operation, datatype, is_commutative: is_commutative != 0 })
    }

    /// Combines `elements` elements from lower ranks, at `from`, with as many from higher ranks, at `into`, in the
    /// latter.
    ///
    /// # Errors
    /// [`MpiError`] from the operation.
    ///
    /// # Safety
    /// So many elements of the datatype can be read at both and written at `into`.
    pub unsafe fn apply(&self, from: *const c_void, into: *mut c_void, elements: usize) -> Result<(), MpiError> {
        // SAFETY: the caller's promise, and that of `new`.
        unsafe { reduce_local(from, into, elements, (self.operation, self.datatype)) }
    }

    /// Combines as many elements of `size` bytes of `lower` and `higher`, from lower and from higher ranks, in `lower`.
    ///
    /// # Errors
    /// As [`apply`](Reducer::apply).
    ///
    /// # Safety
    /// The datatype's elements are `size` bytes one after another, without gaps.
    pub unsafe fn combine_dense(&self, size: usize, lower: &mut [u8], higher: &[u8]) -> Result<(), MpiError> {
        let elements = lower.len().min(higher.len()) / size.max(1);
        if elements == 0 {
            return Ok(());
        }
        let (lower, higher) = (&mut lower[..elements * size], &higher[..elements * size]);
        // The operands' order is the same at every alignment: it may decide which of two zeros remains.
        if self.is_commutative && is_aligned(lower, size) && is_aligned(higher, size) {
            // SAFETY: both have `elements` elements, aligned and distinct.
            return unsafe { self.apply(higher.as_ptr().cast(), lower.as_mut_ptr().cast(), elements) };
        }
        let (mut low, mut high) = (Aligned::copy_of(lower), Aligned::copy_of(higher));
        let (from, into) = if self.is_commutative { (&mut high, &mut low) } else { (&mut low, &mut high) };
        // SAFETY: the same of the copies.
        unsafe { self.apply(from.at().cast(), into.at().cast(), elements)? };
        lower.copy_from_slice(&into.0.as_bytes()[..elements * size]);
        Ok(())
    }
}

/// Reduces `elements` elements at `from` and `into` into the latter.
///
/// # Safety
/// So many elements of the datatype can be read at both and written at `into`; operation and datatype are valid.
pub(crate) unsafe fn reduce_local(
    from: *const c_void,
    into: *mut c_void,
    elements: usize,
    (operation, datatype): (ffi::MPI_Op, ffi::MPI_Datatype),
) -> Result<(), MpiError> {
    let call = "MPI_Reduce_local";
    let elements = count(call, elements)?;
    // SAFETY: the caller's promise; the call has finished with the memory when it returns.
    check(call, unsafe { ffi::PMPI_Reduce_local(from, into, elements, datatype, operation) })
}

/// Returns `true` if elements of `size` bytes may begin at this address.
fn is_aligned(bytes: &[u8], size: usize) -> bool {
    let needed = 1 << size.trailing_zeros().min(align_of::<u128>().trailing_zeros());
    bytes.as_ptr().addr().is_multiple_of(needed)
}

/// Memory aligned for any element.
#[derive(Debug)]
pub struct Aligned(Vec<u128>);

impl Aligned {
    /// Returns `len` zero bytes, at least one.
    pub fn new(len: usize) -> Aligned {
        Aligned(vec![0; len.div_ceil(size_of::<u128>()).max(1)])
    }

    fn copy_of(bytes: &[u8]) -> Aligned {
        let mut copy = Aligned::new(bytes.len());
        copy.0.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        copy
    }

    /// Returns the memory's address.
    pub fn at(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}
