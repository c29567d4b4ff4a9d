//! Reduction operations: MPI's own on numbers, and the program's on elements of any type.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::rc::Rc;

use mpi_sys as ffi;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::{MpiError, check, count};
use crate::reduction::reduce_local;
use crate::universe::Universe;

mod sealed {
    use std::rc::Rc;

    use mpi_sys as ffi;

    use super::UserHandles;

    pub trait Number {
        fn datatype() -> ffi::MPI_Datatype;
    }

    pub trait Operation<T> {
        /// Returns the operation and its elements' datatype.
        ///
        /// Both are valid as long as `self`, and in calls begun before that.
        fn raw(&self) -> (ffi::MPI_Op, ffi::MPI_Datatype);

        /// Returns an owner keeping the two valid for longer, if they are the program's.
        fn handles(&self) -> Option<Rc<UserHandles>> {
            None
        }
    }
}

/// A number that MPI can reduce: 8 to 64-bit integers and floating-point numbers.
pub trait Number: sealed::Number + IntoBytes + FromBytes + Immutable + Copy {}

macro_rules! numbers {
    ($($number:ty: $datatype:ident),* $(,)?) => {
        $(
            impl sealed::Number for $number {
                fn datatype() -> ffi::MPI_Datatype {
                    // SAFETY: a shim constant linked by `mpi-sys`, never written.
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

/// Operation applied to two elements by a reduction: a [`SystemOperation`] on numbers, or a [`UserOperation`].
pub trait Operation<T>: sealed::Operation<T> {}

/// Operation predefined by MPI.
///
/// The bitwise and the logical ones are for integers only; for the latter, zero is false.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SystemOperation {
    /// Maximum.
    Max,
    /// Minimum.
    Min,
    /// Sum.
    Sum,
    /// Product.
    Product,
    /// Logical and.
    LogicalAnd,
    /// Logical or.
    LogicalOr,
    /// Logical exclusive or.
    LogicalXor,
    /// Bitwise and.
    BitwiseAnd,
    /// Bitwise or.
    BitwiseOr,
    /// Bitwise exclusive or.
    BitwiseXor,
}

impl<T: Number> sealed::Operation<T> for SystemOperation {
    fn raw(&self) -> (ffi::MPI_Op, ffi::MPI_Datatype) {
        // SAFETY: shim constants linked by `mpi-sys`, never written.
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

/// Operation defined by the program, on plain-byte elements.
#[derive(Debug)]
pub struct UserOperation<T> {
    handles: Rc<UserHandles>,
    _of: PhantomData<fn(T)>,
}

/// MPI's handles for a program's operation.
#[derive(Debug)]
pub struct UserHandles {
    operation: ffi::MPI_Op,
    datatype: ffi::MPI_Datatype,
    _universe: Rc<Universe>,
}

impl<T: FromBytes + IntoBytes + Immutable> UserOperation<T> {
    /// Creates an operation from an associative function storing its result in its second argument.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn new<F: Fn(&T, &mut T) + Copy + 'static>(
        universe: &Rc<Universe>,
        _: F,
        is_commutative: bool,
    ) -> Result<UserOperation<T>, MpiError> {
        const { assert!(size_of::<F>() == 0, "MPI passes no context to the function, so it can't capture anything") };
        const { assert!(size_of::<T>() > 0, "elements without bytes can't be counted") };
        let element = count("MPI_Type_contiguous", size_of::<T>())?;
        // SAFETY: shim constants, pointers to local variables, and a function with the signature that MPI calls. MPI is
        // initialised.
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
            let handles = UserHandles { operation, datatype, _universe: Rc::clone(universe) };
            Ok(UserOperation { handles: Rc::new(handles), _of: PhantomData })
        }
    }
}

/// Function called by MPI.
///
/// A panic in it ends the process, because it can't unwind through MPI.
///
/// # Safety
/// `from` and `into` have `len` elements; `F` is zero-sized, and a value of it exists.
unsafe extern "C" fn apply<T: FromBytes + IntoBytes + Immutable, F: Fn(&T, &mut T) + Copy + 'static>(
    from: *mut c_void,
    into: *mut c_void,
    len: *mut c_int,
    _: *mut ffi::MPI_Datatype,
) {
    // SAFETY: `F` is zero-sized, so these zero bytes are a value of it, equal to the one given to `UserOperation::new`:
    // `F` is `Copy` and `'static`.
    let function = unsafe { std::mem::zeroed::<F>() };
    let (from, into) = (from.cast::<T>(), into.cast::<T>());
    // SAFETY: MPI passes a pointer to the number of elements.
    let len = usize::try_from(unsafe { *len }).unwrap_or(0);
    for at in 0..len {
        // SAFETY: `at` is below the number of elements, and any bytes are a `T`. The elements are copied because MPI
        // doesn't know their alignment. No value is dropped twice: `one` is never dropped, and `other` is moved back.
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
        (self.handles.operation, self.handles.datatype)
    }

    fn handles(&self) -> Option<Rc<UserHandles>> {
        Some(Rc::clone(&self.handles))
    }
}

impl<T> Operation<T> for &UserOperation<T> {}

impl Drop for UserHandles {
    fn drop(&mut self) {
        // SAFETY: created by `new`, and MPI is still initialised. MPI keeps both until the operations using them have
        // ended.
        unsafe {
            ffi::MPI_Op_free(&raw mut self.operation);
            ffi::MPI_Type_free(&raw mut self.datatype);
        }
    }
}

/// Reduces `send` and `receive`, element by element, into `receive`, without other ranks.
///
/// Nothing is logged.
///
/// # Errors
/// [`MpiError`]; [`MpiError::Length`] if the two differ in length.
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
    // SAFETY: both slices have that many elements, and the handles belong to `operation`.
    unsafe { reduce_local(send.as_ptr().cast(), receive.as_mut_ptr().cast(), send.len(), operation.raw()) }
}
