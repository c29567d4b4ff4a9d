//! Datatypes: message lengths and copies.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use mpi_sys as ffi;
use rustc_hash::{FxHashMap, FxHashSet};

use super::mpi_call::key;

unsafe extern "C" {
    static counterfoil_combiner_named: c_int;
}

/// Memory layout of a datatype's elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes in an element without its gaps.
    pub(crate) size: usize,
    /// Bytes from one element to the next.
    pub(crate) extent: isize,
    /// True if the elements are contiguous from the address on: a copy of the bytes is the message.
    pub(crate) is_plain: bool,
    /// True for a predefined datatype, which is never freed.
    is_named: bool,
}

impl Layout {
    /// Returns the bytes in `count` elements without gaps; `None` if they exceed `usize`.
    #[inline]
    pub(super) fn bytes(&self, count: i64) -> Option<usize> {
        usize::try_from(count).ok()?.checked_mul(self.size)
    }
}

/// Datatype looked up last, and the bytes in its elements.
static LAST: (AtomicUsize, AtomicI64) = (AtomicUsize::new(usize::MAX), AtomicI64::new(1));

/// Returns the bytes in an element, if its datatype is the one looked up last.
///
/// Wrong while another thread looks one up.
#[inline]
pub(crate) fn last_size(datatype: ffi::MPI_Datatype) -> Option<i64> {
    (LAST.0.load(Ordering::Relaxed) == key(datatype)).then(|| LAST.1.load(Ordering::Relaxed))
}

/// Guesses a message's bytes from the datatype looked up last.
///
/// Wrong for other datatypes, or while another thread looks one up.
#[inline]
pub(crate) fn likely_bytes(count: i64, datatype: ffi::MPI_Datatype) -> i64 {
    count.saturating_mul(last_size(datatype).unwrap_or(1))
}

/// The datatypes used so far.
#[derive(Debug, Default)]
pub(crate) struct Datatypes {
    known: FxHashMap<usize, Layout>,
    /// Datatypes owned by the library, for persistent operations.
    held: FxHashSet<usize>,
    /// Datatype looked up last.
    last: Option<usize>,
    layout: Layout,
}

impl Datatypes {
    /// Returns a datatype's layout; `None` for one unknown to MPI.
    #[inline]
    pub(crate) fn layout(&mut self, datatype: ffi::MPI_Datatype) -> Option<&Layout> {
        let key = key(datatype);
        if self.last != Some(key) {
            self.find(key, datatype)?;
        }
        Some(&self.layout)
    }

    /// Returns the bytes in a message with the datatype looked up last, if they are contiguous and copied in one piece.
    #[inline(always)]
    pub(super) fn short(&self, count: i64, datatype: ffi::MPI_Datatype) -> Option<usize> {
        if self.last != Some(key(datatype)) || !self.layout.is_plain {
            return None;
        }
        self.layout.bytes(count).filter(|bytes| *bytes <= PIECE_BYTES)
    }

    #[cold]
    fn find(&mut self, key: usize, datatype: ffi::MPI_Datatype) -> Option<()> {
        self.layout = match self.known.get(&key) {
            Some(layout) => *layout,
            None => {
                let layout = query(datatype)?;
                self.known.insert(key, layout);
                layout
            }
        };
        self.last = Some(key);
        LAST.0.store(key, Ordering::Relaxed);
        LAST.1.store(self.layout.size as i64, Ordering::Relaxed);
        Some(())
    }

    /// Returns a datatype for a persistent operation, valid even after the program frees its own.
    ///
    /// The program's own where MPI refuses another. To be [released](Self::release).
    pub(crate) fn hold(&mut self, datatype: ffi::MPI_Datatype) -> ffi::MPI_Datatype {
        if self.layout(datatype).is_none_or(|layout| layout.is_named) {
            return datatype;
        }
        let mut held = datatype;
        // MPI_Type_dup would copy attributes, calling functions of the program's.
        // SAFETY: a datatype that MPI has just accepted, and pointers to a local variable.
        let is_made = unsafe {
            ffi::PMPI_Type_contiguous(1, datatype, &raw mut held) == 0 && ffi::PMPI_Type_commit(&raw mut held) == 0
        };
        if !is_made {
            return datatype;
        }
        self.forget(held);
        self.held.insert(key(held));
        held
    }

    /// Releases a [held](Self::hold) datatype.
    pub(crate) fn release(&mut self, mut held: ffi::MPI_Datatype) {
        if self.held.remove(&key(held)) {
            self.forget(held);
            // SAFETY: a datatype owned by the library, no longer in use.
            unsafe { ffi::PMPI_Type_free(&raw mut held) };
        }
    }

    /// Forgets a datatype freed by the program: its handle may be another one's soon.
    pub(crate) fn forget(&mut self, datatype: ffi::MPI_Datatype) {
        self.known.remove(&key(datatype));
        self.last = None;
        LAST.0.store(usize::MAX, Ordering::Relaxed);
    }
}

/// Asks MPI for a datatype's layout.
fn query(datatype: ffi::MPI_Datatype) -> Option<Layout> {
    // SAFETY: a constant of the shim linked by `mpi-sys`.
    if datatype == unsafe { ffi::RSMPI_DATATYPE_NULL } {
        return None;
    }
    let mut size: ffi::MPI_Count = 0;
    let (mut lower, mut extent, mut true_lower, mut true_extent) = (0isize, 0isize, 0isize, 0isize);
    let (mut integers, mut addresses, mut types, mut combiner) = (0, 0, 0, 0);
    // SAFETY: a handle that the program gave to MPI, and pointers to local variables. `MPI_Aint` is as wide as a
    // pointer.
    let is_known = unsafe {
        ffi::PMPI_Type_size_x(datatype, &raw mut size) == 0
            && ffi::PMPI_Type_get_extent(datatype, (&raw mut lower).cast(), (&raw mut extent).cast()) == 0
            && ffi::PMPI_Type_get_true_extent(datatype, (&raw mut true_lower).cast(), (&raw mut true_extent).cast())
                == 0
            && ffi::PMPI_Type_get_envelope(
                datatype,
                &raw mut integers,
                &raw mut addresses,
                &raw mut types,
                &raw mut combiner,
            ) == 0
    };
    if !is_known {
        return None;
    }
    let size = usize::try_from(size).ok()?;
    // A derived datatype may have its parts in any order, so only predefined ones are copied as bytes.
    // SAFETY: a constant of a C file of this library.
    let is_named = combiner == unsafe { counterfoil_combiner_named };
    let has_no_gaps = extent == size as isize && true_extent == extent && lower == 0 && true_lower == 0;
    Some(Layout { size, extent, is_plain: is_named && has_no_gaps, is_named })
}

#[derive(Clone, Copy)]
struct PackingComm(ffi::MPI_Comm);

// SAFETY: a handle, which any thread may give to MPI.
unsafe impl Send for PackingComm {}

/// Communicator used to pack elements; `None` without a session.
static PACKING: Mutex<Option<PackingComm>> = Mutex::new(None);

/// Sets the communicator used to pack elements, whose errors are returned.
///
/// The program's own may have a handler that ends the job.
pub(super) fn set_packing_comm(comm: Option<ffi::MPI_Comm>) {
    *PACKING.lock().unwrap_or_else(PoisonError::into_inner) = comm.map(PackingComm);
}

/// Bytes of a long message copied at a time: a few microseconds' work for a core.
const PIECE_BYTES: usize = 64 << 10;

/// Copies `count` elements at `buf` into `into`, which has as many bytes; packs elements with gaps.
///
/// Calls `meanwhile` between the pieces of a long message.
///
/// # Safety
/// `buf` has `count` elements of `datatype`, whose layout is `layout`, and nothing writes them meanwhile.
#[inline]
pub(crate) unsafe fn copy(
    buf: *const c_void,
    count: i64,
    datatype: ffi::MPI_Datatype,
    layout: &Layout,
    into: &mut [u8],
    meanwhile: &mut dyn FnMut(),
) -> Result<(), c_int> {
    if into.is_empty() {
        return Ok(());
    }
    if layout.is_plain && into.len() <= PIECE_BYTES {
        // SAFETY: as many bytes as the elements have; `into` is ours.
        unsafe { std::ptr::copy_nonoverlapping(buf.cast::<u8>(), into.as_mut_ptr(), into.len()) };
        return Ok(());
    }
    if layout.is_plain {
        // SAFETY: as above.
        unsafe { copy_long(buf.cast(), into, meanwhile) };
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { pack(buf, count, datatype, layout, into) }
}

/// Copies a long message, its second half first.
///
/// A receiver in shared memory reads it from the start at the same time, and two cores reading the same cache lines
/// wait for each other.
///
/// # Safety
/// `from` has as many bytes as `into`, and nothing writes them meanwhile.
unsafe fn copy_long(from: *const u8, into: &mut [u8], meanwhile: &mut dyn FnMut()) {
    let half = into.len().div_ceil(PIECE_BYTES) / 2 * PIECE_BYTES;
    let (first, second) = into.split_at_mut(half);
    for (part, begin) in [(second, half), (first, 0)] {
        for (number, piece) in part.chunks_mut(PIECE_BYTES).enumerate() {
            // SAFETY: the caller's promise: the pieces of this part before it have `PIECE_BYTES` each.
            unsafe {
                let from = from.add(begin + number * PIECE_BYTES);
                std::ptr::copy_nonoverlapping(from, piece.as_mut_ptr(), piece.len());
            }
            meanwhile();
        }
    }
}

/// [`copy`] for elements with gaps.
///
/// # Safety
/// As for [`copy`].
#[cold]
unsafe fn pack(
    buf: *const c_void,
    count: i64,
    datatype: ffi::MPI_Datatype,
    layout: &Layout,
    into: &mut [u8],
) -> Result<(), c_int> {
    // MPI counts elements and packed bytes in an int, so it packs in pieces, and no element may be longer.
    if layout.size > c_int::MAX as usize {
        return Err(ffi::MPI_ERR_COUNT as c_int);
    }
    let Some(PackingComm(comm)) = *PACKING.lock().unwrap_or_else(PoisonError::into_inner) else {
        return Err(ffi::MPI_ERR_COMM as c_int);
    };
    let mut done = 0;
    let piece = (i64::from(c_int::MAX) / (layout.size.max(1) as i64)).max(1);
    while done < count {
        let now = piece.min(count - done);
        let at = done as usize * layout.size;
        let rest = into.len().saturating_sub(at).min(c_int::MAX as usize) as c_int;
        let mut position = 0;
        // SAFETY: elements that the caller has, and the rest of `into`, where MPI writes at most `rest` bytes.
        let code = unsafe {
            let from = buf.byte_offset(done as isize * layout.extent);
            let into = into.as_mut_ptr().add(at.min(into.len())).cast();
            ffi::PMPI_Pack(from, now as c_int, datatype, into, rest, &raw mut position, comm)
        };
        if code != 0 {
            return Err(code);
        }
        done += now;
    }
    Ok(())
}
