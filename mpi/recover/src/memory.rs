//! The program's memory: a datatype's elements, as a contiguous message and back.

use std::borrow::Cow;
use std::ffi::{c_int, c_void};

use counterfoil_mpi_core::arguments::of_address;
use mpi_sys as ffi;

use crate::failure::Failure;

unsafe extern "C" {
    fn counterfoil_recover_is_plain(datatype: ffi::MPI_Datatype) -> c_int;
}

/// Elements in the program's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) at: *mut c_void,
    pub(crate) count: i64,
    pub(crate) datatype: ffi::MPI_Datatype,
}

/// A datatype's layout in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes per element in a message.
    pub(crate) size: usize,
    /// Bytes from an element to the next.
    pub(crate) extent: isize,
    /// True for a predefined datatype whose elements are the same bytes in memory and in a message.
    pub(crate) is_plain: bool,
}

impl Layout {
    pub(crate) fn of(datatype: ffi::MPI_Datatype) -> Result<Layout, Failure> {
        // SAFETY: a shim constant.
        if datatype == unsafe { ffi::RSMPI_DATATYPE_NULL } {
            return Err(Failure::class(ffi::MPI_ERR_TYPE));
        }
        let (mut size, mut lb, mut extent) = (0, 0, 0);
        // SAFETY: the program's datatype, and pointers to local variables.
        unsafe {
            Failure::check(ffi::PMPI_Type_size_x(datatype, &raw mut size))?;
            Failure::check(ffi::PMPI_Type_get_extent(datatype, &raw mut lb, &raw mut extent))?;
            let size = usize::try_from(size).map_err(|_| Failure::class(ffi::MPI_ERR_TYPE))?;
            let is_plain = counterfoil_recover_is_plain(datatype) != 0;
            Ok(Layout { size, extent: of_address(extent), is_plain })
        }
    }
}

/// Checks that a datatype may be used for messages, as committed by the program.
fn check_committed(datatype: ffi::MPI_Datatype, comm: ffi::MPI_Comm) -> Result<(), Failure> {
    let (mut byte, mut position) = (0_u8, 0);
    let at = (&raw mut byte).cast::<c_void>();
    // SAFETY: the program's datatype, no elements of it, and pointers to local variables.
    Failure::check(unsafe { ffi::PMPI_Pack(at, 0, datatype, at, 1, &raw mut position, comm) })
        .map_err(|_| Failure::class(ffi::MPI_ERR_TYPE))
}

/// Base address of absolute datatypes for functions that refuse a null pointer.
const BASE: usize = 1 << 12;

/// Elements for MPI's functions.
struct Based {
    at: *mut c_void,
    count: c_int,
    datatype: ffi::MPI_Datatype,
    /// True if the datatype is freed with this.
    is_own: bool,
}

impl Drop for Based {
    fn drop(&mut self) {
        if self.is_own {
            // SAFETY: a datatype made by this process, freed once.
            unsafe { ffi::PMPI_Type_free(&raw mut self.datatype) };
        }
    }
}

/// Returns a number of elements as MPI's functions take it.
fn int(count: usize) -> Result<c_int, Failure> {
    c_int::try_from(count).map_err(|_| Failure::class(ffi::MPI_ERR_COUNT))
}

impl Memory {
    /// Returns no elements.
    pub(crate) fn none() -> Memory {
        // SAFETY: a shim constant.
        Memory { at: std::ptr::null_mut(), count: 0, datatype: unsafe { ffi::RSMPI_UINT8_T } }
    }

    /// Returns `count` elements for MPI's packing functions, which refuse a null pointer in MPICH.
    ///
    /// At `MPI_BOTTOM`, they are elements of a datatype with another base address.
    fn based(&self, count: usize) -> Result<Based, Failure> {
        let count = int(count)?;
        let mut based = Based { at: self.at, count, datatype: self.datatype, is_own: false };
        if self.at.is_null() && count > 0 {
            let displacement = -(BASE as ffi::MPI_Aint);
            // SAFETY: pointers to local variables; the program's datatype.
            unsafe {
                let made = &raw mut based.datatype;
                Failure::check(ffi::PMPI_Type_create_hindexed(1, &count, &displacement, self.datatype, made))?;
                based.is_own = true;
                Failure::check(ffi::PMPI_Type_commit(made))?;
            }
            (based.at, based.count) = (std::ptr::without_provenance_mut(BASE), 1);
        }
        Ok(based)
    }

    fn count(&self) -> Result<usize, Failure> {
        usize::try_from(self.count).map_err(|_| Failure::class(ffi::MPI_ERR_COUNT))
    }

    /// Returns the message length in bytes.
    pub(crate) fn len(&self) -> Result<usize, Failure> {
        Ok(Layout::of(self.datatype)?.size * self.count()?)
    }

    /// Checks that there is memory: only a datatype with absolute addresses needs none.
    pub(crate) fn check(&self, layout: Layout) -> Result<(), Failure> {
        let is_missing = self.count > 0 && layout.is_plain && layout.size > 0 && self.at.is_null();
        if is_missing { Err(Failure::class(ffi::MPI_ERR_BUFFER)) } else { Ok(()) }
    }

    /// Returns the elements as a message.
    ///
    /// # Safety
    /// The program's memory, which it doesn't change meanwhile.
    pub(crate) unsafe fn pack<'m>(&self, comm: ffi::MPI_Comm) -> Result<Cow<'m, [u8]>, Failure> {
        let (layout, count) = (Layout::of(self.datatype)?, self.count()?);
        let len = layout.size * count;
        if len == 0 {
            return Ok(Cow::Borrowed(&[]));
        }
        self.check(layout)?;
        if layout.is_plain {
            // SAFETY: so many bytes of the program's memory.
            return Ok(Cow::Borrowed(unsafe { std::slice::from_raw_parts(self.at.cast::<u8>(), len) }));
        }
        let mut message = vec![0; len];
        let mut position = 0;
        let based = self.based(count)?;
        // SAFETY: the program's memory, and a buffer as long as the message.
        Failure::check(unsafe {
            let into = message.as_mut_ptr().cast::<c_void>();
            ffi::PMPI_Pack(based.at, based.count, based.datatype, into, int(len)?, &raw mut position, comm)
        })?;
        Ok(Cow::Owned(message))
    }

    /// Returns the elements, if their bytes are the same in memory and in a message.
    ///
    /// # Safety
    /// The program's memory, used by nothing else.
    pub(crate) unsafe fn plain_bytes<'m>(&self) -> Result<Option<&'m mut [u8]>, Failure> {
        let (layout, count) = (Layout::of(self.datatype)?, self.count()?);
        self.check(layout)?;
        let len = layout.size * count;
        if !layout.is_plain || len == 0 {
            return Ok(None);
        }
        // SAFETY: so many bytes of the program's memory.
        Ok(Some(unsafe { std::slice::from_raw_parts_mut(self.at.cast::<u8>(), len) }))
    }

    /// Stores a message.
    ///
    /// Returns the number of bytes, which is less than the message's if there is no room for them.
    ///
    /// # Safety
    /// The program's memory, used by nothing else.
    pub(crate) unsafe fn unpack(&self, message: &[u8], comm: ffi::MPI_Comm) -> Result<usize, Failure> {
        let (layout, count) = (Layout::of(self.datatype)?, self.count()?);
        let len = message.len().min(layout.size * count);
        if len == 0 {
            return Ok(0);
        }
        if layout.is_plain {
            // SAFETY: so many bytes of the program's memory, distinct from the message's.
            unsafe { std::ptr::copy_nonoverlapping(message.as_ptr(), self.at.cast::<u8>(), len) };
            return Ok(len);
        }
        let (whole, rest) = (len / layout.size, len % layout.size);
        let from = message.as_ptr().cast::<c_void>();
        let mut position = 0;
        let based = self.based(whole)?;
        // SAFETY: the program's memory has room for so many elements.
        Failure::check(unsafe {
            ffi::PMPI_Unpack(from, int(len)?, &raw mut position, based.at, based.count, based.datatype, comm)
        })?;
        if rest > 0 {
            // Part of an element: its other bytes stay as they are.
            let at = self.at.wrapping_byte_offset(whole as isize * layout.extent);
            let last = Memory { at, count: 1, datatype: self.datatype };
            // SAFETY: the element after those, included in the count.
            unsafe {
                let mut element = last.pack(comm)?.into_owned();
                element[..rest].copy_from_slice(&message[len - rest..len]);
                last.unpack(&element, comm)?;
            }
        }
        Ok(len)
    }

    /// Stores a whole message.
    ///
    /// # Errors
    /// The truncation error if there is no room for all bytes.
    ///
    /// # Safety
    /// Same as [`unpack`](Self::unpack).
    pub(crate) unsafe fn unpack_whole(&self, message: &[u8], comm: ffi::MPI_Comm) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let len = unsafe { self.unpack(message, comm) }?;
        if len < message.len() { Err(Failure::class(ffi::MPI_ERR_TRUNCATE)) } else { Ok(()) }
    }
}

/// Memory used by an operation after the call has returned.
///
/// Keeps the datatype, which the program may free.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) memory: Memory,
    is_owned: bool,
}

/// Lifetime of an operation's memory and handles, which are the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The call, in which the operation ends.
    InCall,
    /// Until the request is complete.
    UntilComplete,
}

impl Keep {
    /// Returns memory kept so long.
    pub(crate) fn memory(self, memory: Memory, comm: ffi::MPI_Comm) -> Result<Kept, Failure> {
        match self {
            Keep::InCall => Kept::borrowed(memory, comm),
            Keep::UntilComplete => Kept::new(memory, comm),
        }
    }
}

impl Kept {
    /// Returns memory for an operation ending in the call.
    pub(crate) fn borrowed(memory: Memory, comm: ffi::MPI_Comm) -> Result<Kept, Failure> {
        if !Layout::of(memory.datatype)?.is_plain {
            check_committed(memory.datatype, comm)?;
        }
        Ok(Kept { memory, is_owned: false })
    }

    /// Returns memory for an operation ending later.
    pub(crate) fn new(memory: Memory, comm: ffi::MPI_Comm) -> Result<Kept, Failure> {
        if Layout::of(memory.datatype)?.is_plain {
            return Ok(Kept { memory, is_owned: false });
        }
        check_committed(memory.datatype, comm)?;
        let mut datatype = memory.datatype;
        // A containing datatype keeps it. A duplicate would call the program's functions for attributes.
        // SAFETY: the program's datatype, and pointers to local variables.
        unsafe {
            Failure::check(ffi::PMPI_Type_contiguous(1, memory.datatype, &raw mut datatype))?;
            Failure::check(ffi::PMPI_Type_commit(&raw mut datatype))?;
        }
        Ok(Kept { memory: Memory { datatype, ..memory }, is_owned: true })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.is_owned {
            // SAFETY: made by `new`, and freed once. An error can't be returned here.
            unsafe { ffi::PMPI_Type_free(&raw mut self.memory.datatype) };
        }
    }
}
