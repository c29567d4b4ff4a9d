//! Fortran call arguments converted to C, for interposition libraries.
//!
//! A call through `mpif.h`, `use mpi` or `use mpi_f08` passes an address for each argument; a character string's length
//! follows after all others, by value. In `use mpi_f08` a handle is a structure with one `INTEGER`, and the error code
//! may be absent. An interposition library converts a call and makes it in C, as Open MPI's own bindings do, so it
//! reaches the same wrapper.
//!
//! Constants such as `MPI_BOTTOM` are variables identified by address. The dynamic linker binds them to the first
//! definition, possibly the program's own, so they are looked up in the same way, at the first call from Fortran.
//!
//! A status is the same memory in both languages; in Fortran it is aligned to 4 bytes only.
//!
//! # Safety
//! The unsafe functions take addresses from a program's MPI call still in progress. They point to what MPI demands for
//! this argument.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{LazyLock, Mutex, PoisonError};

use mpi_sys as ffi;
use smallvec::SmallVec;

use crate::arguments::bits;
use crate::symbols::find_symbol;

mod generalized;

pub use generalized::{Cancel, Free, Generalized, Query, cancel, free, query};

/// `INTEGER`.
pub type Fint = c_int;

/// Value of a variable not set by a call: neither an index, nor a number, nor a flag.
const UNSET: c_int = c_int::MIN + 1;

unsafe extern "C" {
    fn counterfoil_fortran_in_place() -> *mut c_void;
    fn counterfoil_fortran_unweighted() -> *mut c_int;
    fn counterfoil_fortran_weights_empty() -> *mut c_int;
}

macro_rules! handles {
    ($($handle:ty: $of:ident $number:ident $f2c:ident $f2c_of_mpi:literal $c2f:ident $c2f_of_mpi:literal,)+) => {
        $(
            unsafe extern "C" {
                // Macros in MPICH, made functions by a C file in this crate.
                #[cfg_attr(open_mpi, link_name = $f2c_of_mpi)]
                fn $f2c(number: Fint) -> $handle;
                #[cfg_attr(open_mpi, link_name = $c2f_of_mpi)]
                fn $c2f(handle: $handle) -> Fint;
            }

            /// Returns the handle with a number.
            #[inline]
            pub fn $of(number: Fint) -> $handle {
                // SAFETY: the MPI refuses numbers without a handle.
                unsafe { $f2c(number) }
            }

            /// Returns a handle's number.
            #[inline]
            pub fn $number(handle: $handle) -> Fint {
                // SAFETY: a handle given by the MPI.
                unsafe { $c2f(handle) }
            }
        )+
    };
}

handles! {
    ffi::MPI_Comm: comm comm_number counterfoil_fortran_comm_f2c "PMPI_Comm_f2c"
        counterfoil_fortran_comm_c2f "PMPI_Comm_c2f",
    ffi::MPI_Group: group group_number counterfoil_fortran_group_f2c "PMPI_Group_f2c"
        counterfoil_fortran_group_c2f "PMPI_Group_c2f",
    ffi::MPI_Request: request request_number counterfoil_fortran_request_f2c "PMPI_Request_f2c"
        counterfoil_fortran_request_c2f "PMPI_Request_c2f",
    ffi::MPI_Message: message message_number counterfoil_fortran_message_f2c "PMPI_Message_f2c"
        counterfoil_fortran_message_c2f "PMPI_Message_c2f",
    ffi::MPI_Datatype: datatype datatype_number counterfoil_fortran_datatype_f2c "PMPI_Type_f2c"
        counterfoil_fortran_datatype_c2f "PMPI_Type_c2f",
    ffi::MPI_Op: op op_number counterfoil_fortran_op_f2c "PMPI_Op_f2c"
        counterfoil_fortran_op_c2f "PMPI_Op_c2f",
    ffi::MPI_Info: info info_number counterfoil_fortran_info_f2c "PMPI_Info_f2c"
        counterfoil_fortran_info_c2f "PMPI_Info_c2f",
    ffi::MPI_Errhandler: errhandler errhandler_number counterfoil_fortran_errhandler_f2c "PMPI_Errhandler_f2c"
        counterfoil_fortran_errhandler_c2f "PMPI_Errhandler_c2f",
}

/// Addresses representing constants; null where the MPI's bindings have none.
struct Sentinels {
    bottom: usize,
    in_place: usize,
    status_ignore: usize,
    statuses_ignore: usize,
    unweighted: usize,
    weights_empty: usize,
}

static SENTINELS: LazyLock<Sentinels> = LazyLock::new(|| {
    // Open MPI's for all bindings; MPICH's for `mpi_f08`, whose other calls come in C.
    Sentinels {
        bottom: find(&[c"mpi_fortran_bottom_"]),
        in_place: find(&[c"mpi_fortran_in_place_"]),
        status_ignore: find(&[c"mpi_fortran_status_ignore_", c"MPIR_F08_MPI_STATUS_IGNORE_OBJ"]),
        statuses_ignore: find(&[c"mpi_fortran_statuses_ignore_", c"MPIR_F08_MPI_STATUSES_IGNORE_OBJ"]),
        unweighted: find(&[c"mpi_fortran_unweighted_", c"__mpi_f08_link_constants_MOD_mpi_unweighted"]),
        weights_empty: find(&[c"mpi_fortran_weights_empty_", c"__mpi_f08_link_constants_MOD_mpi_weights_empty"]),
    }
});

/// Returns the address of the first symbol found in the process, or 0.
fn find(names: &[&CStr]) -> usize {
    names.iter().find_map(|name| find_symbol(name)).map_or(0, |symbol| symbol.addr().get())
}

/// Value of `.TRUE.`: compilers differ.
static TRUE: LazyLock<Fint> = LazyLock::new(|| {
    let initialized = find(&[c"pmpi_initialized_"]);
    if initialized == 0 {
        return 1;
    }
    let (mut flag, mut code) = (0, 0);
    // SAFETY: Fortran's `MPI_Initialized`, which sets both. MPI is initialised in every call that asks here.
    unsafe {
        let initialized: unsafe extern "C" fn(*mut Fint, *mut Fint) = std::mem::transmute(initialized as *const c_void);
        initialized(&raw mut flag, &raw mut code);
    }
    if flag == 0 { 1 } else { flag }
});

/// Returns a buffer, with `MPI_BOTTOM` and `MPI_IN_PLACE` converted to C's.
#[inline]
pub fn buffer(at: *const c_void) -> *mut c_void {
    let sentinels = &*SENTINELS;
    if at.addr() == sentinels.bottom {
        return std::ptr::null_mut();
    }
    if at.addr() == sentinels.in_place {
        // SAFETY: a constant from this crate's C file.
        return unsafe { counterfoil_fortran_in_place() };
    }
    at.cast_mut()
}

/// Returns `true` for `MPI_IN_PLACE`.
pub fn is_in_place(at: *const c_void) -> bool {
    at.addr() == SENTINELS.in_place && !at.is_null()
}

/// Returns an array of weights, with `MPI_UNWEIGHTED` and `MPI_WEIGHTS_EMPTY` converted to C's.
pub fn weights(at: *const Fint) -> *mut c_int {
    let sentinels = &*SENTINELS;
    // SAFETY: constants from this crate's C file.
    unsafe {
        match at.addr() {
            address if address == sentinels.unweighted => counterfoil_fortran_unweighted(),
            address if address == sentinels.weights_empty => counterfoil_fortran_weights_empty(),
            _ => at.cast_mut(),
        }
    }
}

/// Returns a string without trailing blanks.
///
/// It ends at a zero, if it has one.
///
/// # Safety
/// See the [module](self).
pub unsafe fn string(at: *const c_char, len: usize) -> CString {
    // SAFETY: as for this function.
    let bytes = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) };
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default().trim_ascii_end();
    // No zero is left in it.
    CString::new(bytes).unwrap_or_default()
}

/// Stores the error code, unless the program omits it.
///
/// # Safety
/// See the [module](self).
#[inline]
pub unsafe fn end(ierror: *mut Fint, code: c_int) {
    if !ierror.is_null() {
        // SAFETY: as for this function.
        unsafe { *ierror = code };
    }
}

/// A handle changed by a call.
pub struct Handle<H> {
    at: *mut Fint,
    handle: H,
    before: H,
    number: fn(H) -> Fint,
}

impl<H: Copy + PartialEq> Handle<H> {
    /// Converts a handle; it may be unset.
    ///
    /// # Safety
    /// See the [module](self).
    #[inline]
    pub unsafe fn new(at: *mut Fint, of: fn(Fint) -> H, number: fn(H) -> Fint) -> Handle<H> {
        // SAFETY: as for this function.
        let handle = of(unsafe { *at });
        Handle { at, handle, before: handle, number }
    }

    /// Takes the variable for a handle made by a call; `handle` is any.
    #[inline]
    pub fn made(at: *mut Fint, handle: H, number: fn(H) -> Fint) -> Handle<H> {
        Handle { at, handle, before: handle, number }
    }

    /// Stores the handle made by a call, unless the call has failed.
    ///
    /// # Safety
    /// See the [module](self).
    #[inline]
    pub unsafe fn store_made(self, code: c_int) {
        if code == 0 {
            // SAFETY: as for this function.
            unsafe { *self.at = (self.number)(self.handle) };
        }
    }

    /// Returns the C variable.
    #[inline]
    pub fn at(&mut self) -> *mut H {
        &raw mut self.handle
    }

    /// Stores the handle, if the call has changed it.
    ///
    /// # Safety
    /// See the [module](self).
    #[inline]
    pub unsafe fn store(self) {
        if self.handle != self.before {
            // SAFETY: as for this function.
            unsafe { *self.at = (self.number)(self.handle) };
        }
    }
}

/// Handles that fit without an allocation.
const INLINE: usize = 16;

/// Requests completed by a call.
pub struct Requests {
    at: *mut Fint,
    handles: SmallVec<[ffi::MPI_Request; INLINE]>,
    before: SmallVec<[ffi::MPI_Request; INLINE]>,
    number: fn(ffi::MPI_Request) -> Fint,
}

impl Requests {
    /// Converts an array.
    ///
    /// # Safety
    /// See the [module](self).
    pub unsafe fn new(
        at: *mut Fint,
        count: Fint,
        of: fn(Fint) -> ffi::MPI_Request,
        number: fn(ffi::MPI_Request) -> Fint,
    ) -> Requests {
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: as for this function.
        let handles: SmallVec<_> = (0..count).map(|index| of(unsafe { *at.add(index) })).collect();
        Requests { at, before: handles.clone(), handles, number }
    }

    /// Returns the C array.
    pub fn at(&mut self) -> *mut ffi::MPI_Request {
        self.handles.as_mut_ptr()
    }

    /// Stores the requests changed by the call.
    ///
    /// # Safety
    /// See the [module](self).
    pub unsafe fn store(self) {
        for (index, (handle, before)) in self.handles.iter().zip(&self.before).enumerate() {
            if handle != before {
                // SAFETY: as for this function.
                unsafe { *self.at.add(index) = (self.number)(*handle) };
            }
        }
    }
}

/// Status or statuses set by a call: the program's own memory if it is aligned.
pub struct Statuses {
    at: *mut ffi::MPI_Status,
    /// Copies of unaligned statuses.
    copies: SmallVec<[ffi::MPI_Status; 1]>,
}

impl Statuses {
    /// Takes a status.
    ///
    /// # Safety
    /// See the [module](self).
    #[inline]
    pub unsafe fn one(at: *mut Fint) -> Statuses {
        // SAFETY: as for this function; a shim constant.
        unsafe { Statuses::new(at, 1, SENTINELS.status_ignore, ffi::RSMPI_STATUS_IGNORE) }
    }

    /// Takes an array.
    ///
    /// # Safety
    /// See the [module](self).
    pub unsafe fn several(at: *mut Fint, count: Fint) -> Statuses {
        // SAFETY: as for this function; a shim constant.
        unsafe { Statuses::new(at, count, SENTINELS.statuses_ignore, ffi::RSMPI_STATUSES_IGNORE) }
    }

    /// # Safety
    /// See the [module](self).
    #[inline]
    unsafe fn new(at: *mut Fint, count: Fint, ignored: usize, ignore: *mut ffi::MPI_Status) -> Statuses {
        if at.addr() == ignored || at.is_null() {
            return Statuses { at: ignore, copies: SmallVec::new() };
        }
        let at = at.cast::<ffi::MPI_Status>();
        if at.is_aligned() {
            return Statuses { at, copies: SmallVec::new() };
        }
        // SAFETY: as for this function.
        let copies = (0..usize::try_from(count).unwrap_or(0)).map(|index| unsafe { at.add(index).read_unaligned() });
        Statuses { at, copies: copies.collect() }
    }

    /// Returns the C variable.
    #[inline]
    pub fn at(&mut self) -> *mut ffi::MPI_Status {
        if self.copies.is_empty() { self.at } else { self.copies.as_mut_ptr() }
    }

    /// Stores the statuses set by the call.
    ///
    /// # Safety
    /// See the [module](self).
    #[inline]
    pub unsafe fn store(self) {
        for (index, copy) in self.copies.iter().enumerate() {
            // SAFETY: as for this function.
            unsafe { self.at.add(index).write_unaligned(*copy) };
        }
    }
}

/// Integer set by a call, with a different meaning in Fortran.
pub struct Number {
    at: *mut Fint,
    value: c_int,
}

impl Number {
    /// Takes a variable.
    #[inline]
    pub fn new(at: *mut Fint) -> Number {
        Number { at, value: UNSET }
    }

    /// Returns the C variable.
    #[inline]
    pub fn at(&mut self) -> *mut c_int {
        &raw mut self.value
    }

    /// Stores a truth value.
    ///
    /// # Safety
    /// See the [module](self).
    #[inline]
    pub unsafe fn store_flag(self) {
        if self.value != UNSET {
            // SAFETY: as for this function.
            unsafe { *self.at = if self.value == 0 { 0 } else { *TRUE } };
        }
    }

    /// Stores an index, which begins at 1.
    ///
    /// # Safety
    /// See the [module](self).
    #[inline]
    pub unsafe fn store_index(self) {
        if self.value != UNSET {
            // SAFETY: as for this function.
            unsafe { *self.at = from_one(self.value) };
        }
    }

    /// Stores the number of indices put at `indices` by the call, and makes them begin at 1.
    ///
    /// # Safety
    /// See the [module](self).
    pub unsafe fn store_count(self, indices: *mut Fint) {
        if self.value == UNSET {
            return;
        }
        // SAFETY: as for this function; a shim constant.
        unsafe {
            let count = if self.value == ffi::RSMPI_UNDEFINED { 0 } else { usize::try_from(self.value).unwrap_or(0) };
            for index in 0..count {
                *indices.add(index) = from_one(*indices.add(index));
            }
            *self.at = self.value;
        }
    }
}

/// Returns an index that begins at 1.
#[inline]
fn from_one(index: c_int) -> Fint {
    // SAFETY: a shim constant.
    if index == unsafe { ffi::RSMPI_UNDEFINED } { index } else { index + 1 }
}

/// Converts truth values stored by a call.
///
/// # Safety
/// See the [module](self).
pub unsafe fn store_flags(at: *mut Fint, count: Fint, code: c_int) {
    if code != 0 || *TRUE == 1 {
        return;
    }
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: as for this function.
        unsafe {
            if *at.add(index) != 0 {
                *at.add(index) = *TRUE;
            }
        }
    }
}

/// Returns the datatypes for `count` parts.
///
/// The list stays in place for an operation that ends later: each list is kept once.
///
/// # Safety
/// See the [module](self).
pub unsafe fn datatypes(at: *const Fint, count: usize) -> *const ffi::MPI_Datatype {
    /// List addresses by the bits of their handles.
    static LISTS: Mutex<BTreeMap<Vec<usize>, usize>> = Mutex::new(BTreeMap::new());
    if at.is_null() {
        return std::ptr::null();
    }
    // SAFETY: as for this function.
    let list: Vec<ffi::MPI_Datatype> = (0..count).map(|index| datatype(unsafe { *at.add(index) })).collect();
    let handles = list.iter().map(|handle| bits(*handle)).collect();
    let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    let address =
        *lists.entry(handles).or_insert_with(|| Box::leak(list.into_boxed_slice()).as_ptr().expose_provenance());
    std::ptr::with_exposed_provenance(address)
}

/// Keeps a C variable for an operation that sets it later.
pub fn keep<T>(value: T) -> *mut T {
    Box::leak(Box::new(value))
}
