//! Combination of elements, by the program's operations and by MPI's.

use std::ffi::{c_int, c_void};

use counterfoil_mpi_core::arguments::of_address;
use mpi_sys as ffi;
use zerocopy::IntoBytes;

use crate::failure::Failure;
use crate::memory::{Kept, Layout, Memory};

/// A reduction's operation and datatype.
pub(crate) struct Reducer {
    op: ffi::MPI_Op,
    /// The program's handle: MPI's operations are defined for its own datatypes.
    datatype: ffi::MPI_Datatype,
    /// Keeps the datatype.
    _element: Kept,
    pub(crate) layout: Layout,
    is_commutative: bool,
}

/// Memory aligned for any element.
struct Aligned(Vec<u128>);

impl Aligned {
    fn new(len: usize) -> Aligned {
        Aligned(vec![0; len.div_ceil(size_of::<u128>()).max(1)])
    }

    fn copy_of(bytes: &[u8]) -> Aligned {
        let mut copy = Aligned::new(bytes.len());
        copy.0.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        copy
    }

    fn at(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

impl Reducer {
    pub(crate) fn new(op: ffi::MPI_Op, datatype: ffi::MPI_Datatype, comm: ffi::MPI_Comm) -> Result<Reducer, Failure> {
        let layout = Layout::of(datatype)?;
        let element = Kept::new(Memory { at: std::ptr::null_mut(), count: 1, datatype }, comm)?;
        let mut is_commutative = 0;
        // SAFETY: the program's operation, and a pointer to a local variable.
        Failure::check(unsafe { ffi::PMPI_Op_commutative(op, &raw mut is_commutative) })?;
        Ok(Reducer { op, datatype, _element: element, layout, is_commutative: is_commutative != 0 })
    }

    /// Returns `true` if elements may begin at this address.
    fn is_aligned(&self, bytes: &[u8]) -> bool {
        let needed = 1 << self.layout.size.trailing_zeros().min(align_of::<u128>().trailing_zeros());
        bytes.as_ptr().addr().is_multiple_of(needed)
    }

    /// Combines the elements of `lower` and `higher`, messages from lower and from higher ranks, in `lower`.
    ///
    /// # Errors
    /// The error of the operation.
    pub(crate) fn combine(&self, lower: &mut [u8], higher: &[u8], comm: ffi::MPI_Comm) -> Result<(), Failure> {
        let elements = lower.len().min(higher.len()) / self.layout.size.max(1);
        if elements == 0 {
            return Ok(());
        }
        let count = c_int::try_from(elements).map_err(|_| Failure::class(ffi::MPI_ERR_COUNT))?;
        let datatype = self.datatype;
        if self.layout.is_plain {
            let len = elements * self.layout.size;
            let (lower, higher) = (&mut lower[..len], &higher[..len]);
            // The operands' order is the same at every alignment: it may decide which of two zeros remains.
            // SAFETY: all have `elements` elements, are aligned, and are distinct.
            unsafe {
                if self.is_commutative && self.is_aligned(lower) && self.is_aligned(higher) {
                    return self.apply(higher.as_ptr().cast(), lower.as_mut_ptr().cast(), count);
                }
                let (mut low, mut high) = (Aligned::copy_of(lower), Aligned::copy_of(higher));
                let (from, into) = if self.is_commutative { (&mut high, &mut low) } else { (&mut low, &mut high) };
                self.apply(from.at().cast(), into.at().cast(), count)?;
                lower.copy_from_slice(&into.0.as_bytes()[..len]);
            }
            return Ok(());
        }
        let (mut lb, mut span) = (0, 0);
        // SAFETY: a kept datatype, and pointers to local variables.
        Failure::check(unsafe { ffi::PMPI_Type_get_true_extent(datatype, &raw mut lb, &raw mut span) })?;
        let len = span as usize + (elements - 1) * self.layout.extent.unsigned_abs();
        let (mut from, mut into) = (Aligned::new(len), Aligned::new(len));
        // With a negative extent, the first element is the last in memory.
        let first = if self.layout.extent < 0 { (elements - 1) as isize * -self.layout.extent } else { 0 };
        let origin = |memory: &mut Aligned| memory.at().wrapping_offset(first - of_address(lb)).cast::<c_void>();
        let elements_at = |at: *mut c_void| Memory { at, count: i64::from(count), datatype };
        let (from, into) = (elements_at(origin(&mut from)), elements_at(origin(&mut into)));
        // SAFETY: the memory has room for the elements, from their lower bound on.
        unsafe {
            from.unpack(lower, comm)?;
            into.unpack(higher, comm)?;
            self.apply(from.at, into.at, count)?;
            let combined = into.pack(comm)?;
            lower[..combined.len()].copy_from_slice(&combined);
        }
        Ok(())
    }

    /// # Safety
    /// Both have that many elements.
    unsafe fn apply(&self, from: *const c_void, into: *mut c_void, count: c_int) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        Failure::check(unsafe { ffi::PMPI_Reduce_local(from, into, count, self.datatype, self.op) })
    }
}
