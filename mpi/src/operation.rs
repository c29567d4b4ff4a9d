//! What reductions do: MPI's own operations on numbers, and a program's on any elements.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::rc::Rc;

use mpi_sys as ffi;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::{MpiError, check, count};
use crate::universe::Universe;

mod sealed {
    use mpi_sys as ffi;

    pub trait Number {
        fn datatype() -> ffi::MPI_Datatype;
    }

    pub trait Operation<T> {
        /// The operation, and the datatype of its elements. Both stay valid as long as `self`, and in calls that were begun before.
        fn raw(&self) -> (ffi::MPI_Op, ffi::MPI_Datatype);
    }
}

/// A number that MPI can reduce: integers of 8 to 64 bits and floating-point numbers.
pub trait Number: sealed::Number + IntoBytes + FromBytes + Immutable + Copy {}

macro_rules! numbers {
    ($($number:ty: $datatype:ident),* $(,)?) => {
        $(
            impl sealed::Number for $number {
                fn datatype() -> ffi::MPI_Datatype {
                    // SAFETY: a constant of the shim that `mpi-sys` links; nobody writes it.
                    unsafe { ffi::$datatype }
                }
            }
            impl Number for $number {}
        )*
    };
}

numbers! {
    i8: RSMPI_INT8_T, i16: RSMPI_INT16_T, i32: RSMPI_INT32_T, i64: RSMPI_INT64_T,
    u8: RSMPI_UINT8_T, u16: RSMPI_UINT16_T, u32: RSMPI_UINT32_T, u64: RSMPI_UINT64_T,
    f32: RSMPI_FLOAT, f64: RSMPI_DOUBLE,
}

#[cfg(target_pointer_width = "64")]
numbers! { isize: RSMPI_INT64_T, usize: RSMPI_UINT64_T }

/// What a reduction does with two elements: a [`SystemOperation`] on numbers, or a [`UserOperation`].
pub trait Operation<T>: sealed::Operation<T> {}

/// An operation that MPI has. The bitwise and the logical ones are for integers only; to the latter, zero is false.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SystemOperation {
    /// The greater one.
    Max,
    /// The smaller one.
    Min,
    /// Both together.
    Sum,
    /// One times the other.
    Product,
    /// Whether both are true.
    LogicalAnd,
    /// Whether one is true.
    LogicalOr,
    /// Whether only one is true.
    LogicalXor,
    /// The bits that both have.
    BitwiseAnd,
    /// The bits that one has.
    BitwiseOr,
    /// The bits that only one has.
    BitwiseXor,
}

impl<T: Number> sealed::Operation<T> for SystemOperation {
    fn raw(&self) -> (ffi::MPI_Op, ffi::MPI_Datatype) {
        // SAFETY: constants of the shim that `mpi-sys` links; nobody writes them.
        let operation = unsafe {
            match self {
                SystemOperation::Max => ffi::RSMPI_MAX,
                SystemOperation::Min => ffi::RSMPI_MIN,
                SystemOperation::Sum => ffi::RSMPI_SUM,
                SystemOperation::Product => ffi::RSMPI_PROD,
                SystemOperation::LogicalAnd => ffi::RSMPI_LAND,
                SystemOperation::LogicalOr => ffi::RSMPI_LOR,
                SystemOperation::LogicalXor => ffi::RSMPI_LXOR,
                SystemOperation::BitwiseAnd => ffi::RSMPI_BAND,
                SystemOperation::BitwiseOr => ffi::RSMPI_BOR,
                SystemOperation::BitwiseXor => ffi::RSMPI_BXOR,
            }
        };
        (operation, T::datatype())
    }
}

impl<T: Number> Operation<T> for SystemOperation {}

/// An operation of the program's own, on elements that are their bytes: see
/// [`LoggedCommunicator::commutative`](crate::logged::LoggedCommunicator::commutative).
#[derive(Debug)]
pub struct UserOperation<T> {
    operation: ffi::MPI_Op,
    datatype: ffi::MPI_Datatype,
    _universe: Rc<Universe>,
    _of: PhantomData<fn(T)>,
}

impl<T: FromBytes + IntoBytes + Immutable> UserOperation<T> {
    /// Of a function that puts its result in the place of its second argument. It has to be associative.
    ///
    /// # Errors
    /// [`MpiError`].
    pub(crate) fn new<F: Fn(&T, &mut T) + Copy + 'static>(
        universe: &Rc<Universe>,
        _: F,
        is_commutative: bool,
    ) -> Result<UserOperation<T>, MpiError> {
        const {
            assert!(
                size_of::<F>() == 0,
                "MPI calls a function that has nothing but its arguments: it can't capture anything"
            )
        };
        const { assert!(size_of::<T>() > 0, "elements without bytes can't be counted") };
        let element = count("MPI_Type_contiguous", size_of::<T>())?;
        // SAFETY: constants of the shim, pointers to local variables, and a function that is of MPI's kind. MPI is there.
        unsafe {
            let mut datatype = ffi::RSMPI_DATATYPE_NULL;
            let byte = ffi::RSMPI_UINT8_T;
            check("MPI_Type_contiguous", ffi::MPI_Type_contiguous(element, byte, &raw mut datatype))?;
            let mut operation = ffi::RSMPI_SUM;
            let code = match ffi::MPI_Type_commit(&raw mut datatype) {
                0 => ffi::MPI_Op_create(Some(apply::<T, F>), is_commutative.into(), &raw mut operation),
                code => code,
            };
            if code != 0 {
                ffi::MPI_Type_free(&raw mut datatype);
            }
            check("MPI_Op_create", code)?;
            Ok(UserOperation { operation, datatype, _universe: Rc::clone(universe), _of: PhantomData })
        }
    }
}

/// What MPI calls. A panic in it ends the process: it can't go through MPI.
///
/// # Safety
/// `from` and `into` have as many elements as `len` says; `F` is without bytes, and the type of a value that there is.
unsafe extern "C" fn apply<T: FromBytes + IntoBytes + Immutable, F: Fn(&T, &mut T) + Copy + 'static>(
    from: *mut c_void,
    into: *mut c_void,
    len: *mut c_int,
    _: *mut ffi::MPI_Datatype,
) {
    // SAFETY: `F` has no bytes, so this is one, as good as the one that `UserOperation::new` was given: it is `Copy`, and lives for ever.
    let function = unsafe { std::mem::zeroed::<F>() };
    let (from, into) = (from.cast::<T>(), into.cast::<T>());
    // SAFETY: MPI says how many elements there are.
    let len = usize::try_from(unsafe { *len }).unwrap_or(0);
    for at in 0..len {
        // SAFETY: elements of MPI's, any bytes of which are a `T`, wherever MPI has put them; they are copied, since it knows nothing of
        // their alignment, and may be dropped twice: what is its bytes has nothing to drop.
        unsafe {
            let one = std::mem::ManuallyDrop::new(from.add(at).read_unaligned());
            let mut other = into.add(at).read_unaligned();
            function(&one, &mut other);
            into.add(at).write_unaligned(other);
        }
    }
}

impl<T> sealed::Operation<T> for &UserOperation<T> {
    fn raw(&self) -> (ffi::MPI_Op, ffi::MPI_Datatype) {
        (self.operation, self.datatype)
    }
}

impl<T> Operation<T> for &UserOperation<T> {}

impl<T> Drop for UserOperation<T> {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and MPI is still there. MPI keeps both until what was begun with them is over.
        unsafe {
            ffi::MPI_Op_free(&raw mut self.operation);
            ffi::MPI_Type_free(&raw mut self.datatype);
        }
    }
}

/// Reduces what is in `receive` and `send`, element by element, into `receive`, without any other rank. Nothing is logged.
///
/// # Errors
/// [`MpiError`]; [`MpiError::Length`] if the two aren't as long as each other.
pub fn reduce_local_into<T, O>(send: &[T], receive: &mut [T], operation: O) -> Result<(), MpiError>
where
    T: FromBytes + IntoBytes + Immutable,
    O: Operation<T>,
{
    let call = "MPI_Reduce_local";
    let (len, needed) = (size_of_val(receive), size_of_val(send));
    if len != needed {
        return Err(MpiError::Length { call, len, needed });
    }
    let elements = count(call, send.len())?;
    let (operation, datatype) = operation.raw();
    // SAFETY: `elements` elements are read, and as many written, before the call returns.
    let code = unsafe {
        ffi::MPI_Reduce_local(send.as_ptr().cast(), receive.as_mut_ptr().cast(), elements, datatype, operation)
    };
    check(call, code)
}
