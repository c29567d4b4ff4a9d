//! Collective operations on bytes, and reductions of numbers. All ranks of a communicator call each of them, in the same order.

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use mpi_sys as ffi;

use crate::comm::Comm;
use crate::error::{MpiError, check, count};

mod sealed {
    use mpi_sys as ffi;

    pub trait Sealed {
        fn datatype() -> ffi::MPI_Datatype;
    }
}

/// A number that MPI can reduce: integers of 8 to 64 bits and floating-point numbers.
pub trait Number: sealed::Sealed + zerocopy::IntoBytes + zerocopy::FromBytes + zerocopy::Immutable + Copy {}

macro_rules! numbers {
    ($($number:ty: $datatype:ident),* $(,)?) => {
        $(
            impl sealed::Sealed for $number {
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

/// What a reduction does with two numbers. The bitwise ones are for integers only.
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
    /// The bits that both have.
    BitwiseAnd,
    /// The bits that one has.
    BitwiseOr,
    /// The bits that only one has.
    BitwiseXor,
}

impl SystemOperation {
    fn raw(self) -> ffi::MPI_Op {
        // SAFETY: constants of the shim that `mpi-sys` links; nobody writes them.
        unsafe {
            match self {
                SystemOperation::Max => ffi::RSMPI_MAX,
                SystemOperation::Min => ffi::RSMPI_MIN,
                SystemOperation::Sum => ffi::RSMPI_SUM,
                SystemOperation::Product => ffi::RSMPI_PROD,
                SystemOperation::BitwiseAnd => ffi::RSMPI_BAND,
                SystemOperation::BitwiseOr => ffi::RSMPI_BOR,
                SystemOperation::BitwiseXor => ffi::RSMPI_BXOR,
            }
        }
    }
}

/// A reduction over all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    /// Everybody gets it.
    All,
    /// This rank gets it.
    To(u32),
    /// Every rank gets that of the ranks up to itself.
    UpToSelf,
    /// Every rank gets that of the ranks before itself; rank 0 gets nothing.
    BeforeSelf,
}

fn is(call: &'static str, len: usize, needed: usize) -> Result<(), MpiError> {
    if len == needed { Ok(()) } else { Err(MpiError::Length { call, len, needed }) }
}

impl Comm {
    /// The part of this communicator whose ranks give the same `color`; none where it is `None`. Ranks are in the order of `key`.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Comm>, MpiError> {
        // SAFETY: a constant of the shim.
        let color = color.map_or(unsafe { ffi::RSMPI_UNDEFINED }, |color| color as c_int);
        let mut raw = self.raw();
        // SAFETY: a living communicator, a pointer to a local variable, and a constant of the shim.
        unsafe {
            check("MPI_Comm_split", ffi::MPI_Comm_split(self.raw(), color, key, &raw mut raw))?;
            let is_none = raw == ffi::RSMPI_COMM_NULL;
            Ok(if is_none { None } else { Some(Comm::made(raw, Rc::clone(&self.universe))) })
        }
    }

    /// Gives every rank what each rank has in `send`, one behind the other.
    ///
    /// # Errors
    /// [`MpiError`]; [`MpiError::Length`] if `receive` isn't as long as that.
    pub fn all_gather(&self, send: &[u8], receive: &mut [u8]) -> Result<(), MpiError> {
        let call = "MPI_Allgather";
        is(call, receive.len(), send.len() * self.size()? as usize)?;
        let (from, len, to) = (send.as_ptr().cast(), count(call, send.len())?, receive.as_mut_ptr().cast());
        let byte = byte();
        // SAFETY: `len` bytes at `from`, and as many at `to` for each rank, are this call's until it returns.
        check(call, unsafe { ffi::MPI_Allgather(from, len, byte, to, len, byte, self.raw()) })
    }

    /// Gives each rank its part of `send`, and collects from each in `receive`: as many parts of the same length as there are ranks.
    ///
    /// # Errors
    /// [`MpiError`]; [`MpiError::Length`] if the two aren't as long as each other, or can't be cut so.
    pub fn all_to_all(&self, send: &[u8], receive: &mut [u8]) -> Result<(), MpiError> {
        let (call, ranks) = ("MPI_Alltoall", self.size()? as usize);
        is(call, receive.len(), send.len())?;
        is(call, send.len(), send.len() / ranks * ranks)?;
        let (from, len, to) = (send.as_ptr().cast(), count(call, send.len() / ranks)?, receive.as_mut_ptr().cast());
        let byte = byte();
        // SAFETY: `len` bytes for each rank at `from` and at `to` are this call's until it returns.
        check(call, unsafe { ffi::MPI_Alltoall(from, len, byte, to, len, byte, self.raw()) })
    }

    /// Gives rank `root` what each rank has in `send`, one behind the other; `receive` is looked at there only.
    ///
    /// # Errors
    /// [`MpiError`]; [`MpiError::Length`] if `receive` isn't as long as that at the root.
    pub fn gather(&self, root: u32, send: &[u8], receive: &mut [u8]) -> Result<(), MpiError> {
        let call = "MPI_Gather";
        if self.rank()? == root {
            is(call, receive.len(), send.len() * self.size()? as usize)?;
        }
        let (from, len, to) = (send.as_ptr().cast(), count(call, send.len())?, receive.as_mut_ptr().cast());
        let byte = byte();
        // SAFETY: as in `all_gather`; elsewhere than at the root MPI doesn't look at `to`.
        check(call, unsafe { ffi::MPI_Gather(from, len, byte, to, len, byte, root as c_int, self.raw()) })
    }

    /// Gives each rank its part of what rank `root` has in `send`, which is looked at there only.
    ///
    /// # Errors
    /// [`MpiError`]; [`MpiError::Length`] if `send` isn't as many parts of the length of `receive` at the root.
    pub fn scatter(&self, root: u32, send: &[u8], receive: &mut [u8]) -> Result<(), MpiError> {
        let call = "MPI_Scatter";
        if self.rank()? == root {
            is(call, send.len(), receive.len() * self.size()? as usize)?;
        }
        let (from, len, to) = (send.as_ptr().cast(), count(call, receive.len())?, receive.as_mut_ptr().cast());
        let byte = byte();
        // SAFETY: as in `all_to_all`; elsewhere than at the root MPI doesn't look at `from`.
        check(call, unsafe { ffi::MPI_Scatter(from, len, byte, to, len, byte, root as c_int, self.raw()) })
    }

    /// Reduces what the ranks have in `send`, element by element, into `receive`, where the reduction gives this rank something.
    pub(crate) fn reduce<T: Number>(
        &self,
        which: Reduction,
        operation: SystemOperation,
        send: &[T],
        receive: &mut [T],
    ) -> Result<(), MpiError> {
        let call = match which {
            Reduction::All => "MPI_Allreduce",
            Reduction::To(_) => "MPI_Reduce",
            Reduction::UpToSelf => "MPI_Scan",
            Reduction::BeforeSelf => "MPI_Exscan",
        };
        // Elsewhere than at the root MPI doesn't look at it.
        let gets = match which {
            Reduction::To(root) => self.rank()? == root,
            _ => true,
        };
        if gets {
            is(call, size_of_val(receive), size_of_val(send))?;
        }
        let len = count(call, send.len())?;
        let (from, to) = (send.as_ptr().cast::<c_void>(), receive.as_mut_ptr().cast::<c_void>());
        let (datatype, operation, comm) = (T::datatype(), operation.raw(), self.raw());
        // SAFETY: `len` elements at `from` and, where this rank gets something, at `to` are this call's until it returns.
        check(call, unsafe {
            match which {
                Reduction::All => ffi::MPI_Allreduce(from, to, len, datatype, operation, comm),
                Reduction::To(root) => ffi::MPI_Reduce(from, to, len, datatype, operation, root as c_int, comm),
                Reduction::UpToSelf => ffi::MPI_Scan(from, to, len, datatype, operation, comm),
                Reduction::BeforeSelf => ffi::MPI_Exscan(from, to, len, datatype, operation, comm),
            }
        })
    }

    /// Begins to wait for all ranks.
    pub(crate) fn immediate_barrier(&self) -> Result<Barrier, MpiError> {
        // SAFETY: a constant of the shim.
        let mut barrier = Barrier(unsafe { ffi::RSMPI_REQUEST_NULL });
        // SAFETY: a living communicator and a pointer to a local variable.
        check("MPI_Ibarrier", unsafe { ffi::MPI_Ibarrier(self.raw(), &raw mut barrier.0) })?;
        Ok(barrier)
    }
}

/// All ranks are waited for. It is to be ended before its communicator is dropped.
#[derive(Debug)]
pub(crate) struct Barrier(ffi::MPI_Request);

impl Barrier {
    /// Whether all ranks have come.
    pub(crate) fn has_ended(&mut self) -> Result<bool, MpiError> {
        let mut flag = 0;
        // SAFETY: a request of `immediate_barrier`, or the null request that an earlier look left, and a pointer to a local variable.
        let code = unsafe { ffi::MPI_Test(&raw mut self.0, &raw mut flag, ffi::RSMPI_STATUS_IGNORE) };
        check("MPI_Test", code)?;
        Ok(flag != 0)
    }

    /// Waits for them.
    pub(crate) fn wait(mut self) -> Result<(), MpiError> {
        // SAFETY: as in `has_ended`.
        check("MPI_Wait", unsafe { ffi::MPI_Wait(&raw mut self.0, ffi::RSMPI_STATUS_IGNORE) })
    }
}

fn byte() -> ffi::MPI_Datatype {
    // SAFETY: a constant of the shim that `mpi-sys` links; nobody writes it.
    unsafe { ffi::RSMPI_UINT8_T }
}
