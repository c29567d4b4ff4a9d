//! Combination of elements, by the program's operations and by MPI's.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::rc::Rc;

use counterfoil_mpi::error::OperationError;
use counterfoil_mpi_core::arguments::of_address;
use counterfoil_mpi_core::reduction::{Aligned, Reducer};
use mpi_sys as ffi;
use rustc_hash::FxHashMap;

use crate::failure::Failure;
use crate::front::{Front, check, enter, running};
use crate::handle::bits;
use crate::memory::{Keep, Kept, Layout, Memory};

/// Operations used by requests, by handle.
///
/// Their results are combined when the requests end, and the program may free an operation as soon as they have begun.
/// MPI has no other way to keep an operation than not to free it.
#[derive(Debug, Default)]
pub(crate) struct UsedOperations(RefCell<FxHashMap<usize, Uses>>);

#[derive(Debug, Default)]
struct Uses {
    requests: usize,
    /// True after the program has freed the operation.
    is_freed: bool,
}

/// An operation used by a request.
#[derive(Debug)]
struct UsedOperation {
    operation: ffi::MPI_Op,
    all: Rc<UsedOperations>,
}

impl UsedOperation {
    fn new(operation: ffi::MPI_Op, all: &Rc<UsedOperations>) -> UsedOperation {
        all.0.borrow_mut().entry(bits(operation)).or_default().requests += 1;
        UsedOperation { operation, all: Rc::clone(all) }
    }
}

impl Drop for UsedOperation {
    fn drop(&mut self) {
        let mut all = self.all.0.borrow_mut();
        let Some(uses) = all.get_mut(&bits(self.operation)) else { return };
        uses.requests -= 1;
        if uses.requests == 0 {
            let is_freed = uses.is_freed;
            all.remove(&bits(self.operation));
            if is_freed {
                // SAFETY: the program has freed it, and no other request uses it. An error can't be returned here.
                unsafe { ffi::PMPI_Op_free(&raw mut self.operation) };
            }
        }
    }
}

/// `MPI_Op_free`
///
/// # Safety
/// As MPI says of its arguments.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub(crate) unsafe extern "C-unwind" fn MPI_Op_free(op: *mut ffi::MPI_Op) -> c_int {
    if running().is_none() {
        // SAFETY: the caller's promise.
        return unsafe { ffi::PMPI_Op_free(op) };
    }
    enter("MPI_Op_free", None, |front| {
        check(op, 1)?;
        // SAFETY: the program's variable.
        let op = unsafe { &mut *op };
        match front.used_operations.0.borrow_mut().get_mut(&bits(*op)) {
            Some(uses) => uses.is_freed = true,
            // SAFETY: the program's operation.
            None => return Failure::check(unsafe { ffi::PMPI_Op_free(op) }),
        }
        // SAFETY: a constant from this library's C file.
        *op = unsafe { counterfoil_recover_op_null };
        Ok(())
    })
}

const _: unsafe extern "C" fn(*mut ffi::MPI_Op) -> c_int = ffi::MPI_Op_free;

unsafe extern "C" {
    pub(crate) static counterfoil_recover_op_null: ffi::MPI_Op;
}

/// A reduction's operation and datatype.
pub(crate) struct Combination {
    reducer: Reducer,
    /// The program's handle: MPI's operations are defined for its own datatypes.
    datatype: ffi::MPI_Datatype,
    pub(crate) layout: Layout,
    /// Keeps the datatype.
    _element: Kept,
    /// Keeps the operation.
    _operation: Option<UsedOperation>,
}

impl Combination {
    pub(crate) fn new(
        front: &Front,
        operation: ffi::MPI_Op,
        datatype: ffi::MPI_Datatype,
        keep: Keep,
    ) -> Result<Combination, Failure> {
        let layout = Layout::of(datatype)?;
        let element = keep.memory(Memory { at: std::ptr::null_mut(), count: 1, datatype }, front.private)?;
        // SAFETY: the program's handles, kept by the fields below.
        let reducer = unsafe { Reducer::new(operation, datatype) }.map_err(OperationError::Mpi)?;
        let used = (keep == Keep::UntilComplete).then(|| UsedOperation::new(operation, &front.used_operations));
        Ok(Combination { reducer, datatype, layout, _element: element, _operation: used })
    }

    /// Combines the elements of `lower` and `higher`, messages from lower and from higher ranks, in `lower`.
    ///
    /// # Errors
    /// The error of the operation.
    pub(crate) fn combine(&self, lower: &mut [u8], higher: &[u8], comm: ffi::MPI_Comm) -> Result<(), Failure> {
        if self.layout.is_plain {
            // SAFETY: such elements have no gaps.
            let combined = unsafe { self.reducer.combine_dense(self.layout.size, lower, higher) };
            return Ok(combined.map_err(OperationError::Mpi)?);
        }
        let elements = lower.len().min(higher.len()) / self.layout.size.max(1);
        if elements == 0 {
            return Ok(());
        }
        let datatype = self.datatype;
        let (mut lb, mut span) = (0, 0);
        // SAFETY: a kept datatype, and pointers to local variables.
        Failure::check(unsafe { ffi::PMPI_Type_get_true_extent(datatype, &raw mut lb, &raw mut span) })?;
        let len = span as usize + (elements - 1) * self.layout.extent.unsigned_abs();
        let (mut from, mut into) = (Aligned::new(len), Aligned::new(len));
        // With a negative extent, the first element is the last in memory.
        let first = if self.layout.extent < 0 { (elements - 1) as isize * -self.layout.extent } else { 0 };
        let origin = |memory: &mut Aligned| memory.at().wrapping_offset(first - of_address(lb)).cast::<c_void>();
        let elements_at = |at: *mut c_void| Memory { at, count: elements as i64, datatype };
        let (from, into) = (elements_at(origin(&mut from)), elements_at(origin(&mut into)));
        // SAFETY: the memory has room for the elements, from their lower bound on.
        unsafe {
            from.unpack(lower, comm)?;
            into.unpack(higher, comm)?;
            self.reducer.apply(from.at, into.at, elements).map_err(OperationError::Mpi)?;
            let combined = into.pack(comm)?;
            lower[..combined.len()].copy_from_slice(&combined);
        }
        Ok(())
    }
}
