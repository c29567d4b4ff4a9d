//! Arguments of a program's calls, for libraries between a program and its MPI.
//!
//! They are as given by the program, unchecked: pointers are its own, and valid as MPI demands.

use std::ffi::{c_int, c_void};

use mpi_sys as ffi;

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// First element.
    pub buf: *const c_void,
    /// Number of elements.
    pub count: i64,
    /// Element datatype.
    pub datatype: ffi::MPI_Datatype,
    /// Receiver's rank.
    pub dest: c_int,
    /// Message tag.
    pub tag: c_int,
    /// Communicator.
    pub comm: ffi::MPI_Comm,
}

/// A receive or a probe.
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    /// First element; null for a probe.
    pub buf: *mut c_void,
    /// Number of elements.
    pub count: i64,
    /// Element datatype.
    pub datatype: ffi::MPI_Datatype,
    /// Sender's rank, or a wildcard.
    pub source: c_int,
    /// Message tag, or a wildcard.
    pub tag: c_int,
    /// Communicator.
    pub comm: ffi::MPI_Comm,
}

impl Incoming {
    /// Returns a receive without a buffer.
    pub fn envelope(source: c_int, tag: c_int, comm: ffi::MPI_Comm) -> Incoming {
        // SAFETY: a shim constant.
        let datatype = unsafe { ffi::RSMPI_UINT8_T };
        Incoming { buf: std::ptr::null_mut(), count: 0, datatype, source, tag, comm }
    }

    /// Returns `true` if its source or tag is a wildcard.
    #[inline]
    pub fn is_wildcard(&self) -> bool {
        is_wildcard(self.source, self.tag)
    }
}

/// Returns `true` if a source or tag is a wildcard.
#[inline]
pub fn is_wildcard(source: c_int, tag: c_int) -> bool {
    // SAFETY: shim constants.
    unsafe { source == ffi::RSMPI_ANY_SOURCE || tag == ffi::RSMPI_ANY_TAG }
}

/// Returns `true` for MPI_PROC_NULL: sends to it and receives from it transfer nothing.
#[inline]
pub fn is_proc_null(rank: c_int) -> bool {
    // SAFETY: a shim constant.
    rank == unsafe { ffi::RSMPI_PROC_NULL }
}

/// A call's send mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `MPI_Send`.
    Standard,
    /// `MPI_Bsend`.
    Buffered,
    /// `MPI_Ssend`.
    Synchronous,
    /// `MPI_Rsend`.
    Ready,
}

/// Element counts.
#[derive(Clone, Copy, Debug)]
pub enum Counts {
    /// One number, for each part if there are several.
    One(i64),
    /// A number for each part.
    Many(*const c_int),
    /// A number for each part.
    ManyLarge(*const ffi::MPI_Count),
}

/// Part displacements.
#[derive(Clone, Copy, Debug)]
pub enum Displs {
    /// None: each part follows the one before.
    Contiguous,
    /// In datatype extents.
    Elements(*const c_int),
    /// In datatype extents.
    ElementsLarge(*const ffi::MPI_Aint),
    /// In bytes.
    Bytes(*const c_int),
    /// In bytes.
    BytesLarge(*const ffi::MPI_Aint),
}

/// Datatypes.
#[derive(Clone, Copy, Debug)]
pub enum Types {
    /// One for all.
    One(ffi::MPI_Datatype),
    /// One for each part.
    Many(*const ffi::MPI_Datatype),
}

/// One side's memory in a collective operation: one part, or one for each rank.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// Base address for displacements.
    pub buf: *const c_void,
    /// Element counts.
    pub counts: Counts,
    /// Displacements.
    pub displs: Displs,
    /// Datatypes.
    pub types: Types,
}

impl Side {
    /// Returns a part's element count; `None` if the program erroneously gave no array of counts.
    ///
    /// # Safety
    /// The program has given MPI a count for the part.
    #[inline]
    pub unsafe fn count(&self, part: usize) -> Option<i64> {
        // SAFETY: the caller's promise.
        unsafe {
            match self.counts {
                Counts::One(count) => Some(count),
                Counts::Many(counts) => at(counts, part).map(i64::from),
                Counts::ManyLarge(counts) => at(counts, part),
            }
        }
    }

    /// Returns a part's datatype; `None` without an array of datatypes.
    ///
    /// # Safety
    /// Same as for [`count`](Self::count), but for datatypes.
    #[inline]
    pub unsafe fn datatype(&self, part: usize) -> Option<ffi::MPI_Datatype> {
        match self.types {
            Types::One(datatype) => Some(datatype),
            // SAFETY: the caller's promise.
            Types::Many(types) => unsafe { at(types, part) },
        }
    }

    /// Returns a part's offset in bytes, given its datatype's extent; `None` without an array of displacements.
    ///
    /// # Safety
    /// Same as for [`count`](Self::count), but for the displacement; without displacements, for all counts before it.
    pub unsafe fn offset(&self, part: usize, extent: isize) -> Option<isize> {
        // SAFETY: the caller's promise.
        unsafe {
            Some(match self.displs {
                Displs::Elements(displs) => at(displs, part)? as isize * extent,
                Displs::ElementsLarge(displs) => of_address(at(displs, part)?) * extent,
                Displs::Bytes(displs) => at(displs, part)? as isize,
                Displs::BytesLarge(displs) => of_address(at(displs, part)?),
                Displs::Contiguous => match self.counts {
                    Counts::One(count) => part as isize * count as isize * extent,
                    // Contiguous parts with different lengths.
                    _ => (0..part).map(|before| self.count(before).unwrap_or(0) as isize).sum::<isize>() * extent,
                },
            })
        }
    }
}

/// Returns an address or a displacement in Rust's type: MPIs use different types of the same size.
#[inline]
pub fn of_address(address: ffi::MPI_Aint) -> isize {
    #[expect(clippy::unnecessary_cast, reason = "another type in another MPI")]
    {
        address as isize
    }
}

/// Returns an array element; `None` if the program has given no array.
///
/// # Safety
/// `array` is null, or has an element at `index`.
#[inline]
unsafe fn at<T: Copy>(array: *const T, index: usize) -> Option<T> {
    // SAFETY: the caller's promise.
    (!array.is_null()).then(|| unsafe { *array.add(index) })
}

/// Returns the number of ranks in a process's own group; `None` if the communicator is invalid.
pub fn group_size(comm: ffi::MPI_Comm) -> Option<usize> {
    let mut size = 0;
    // SAFETY: the MPI refuses an invalid communicator; a pointer to a local variable.
    let code = unsafe { ffi::PMPI_Comm_size(comm, &raw mut size) };
    usize::try_from(size).ok().filter(|_| code == 0)
}

/// Returns the numbers of parts sent and received by a rank in an all-to-all operation.
pub fn parts(comm: ffi::MPI_Comm) -> Option<(usize, usize)> {
    let (mut is_inter, mut size) = (0, 0);
    // SAFETY: as in `group_size`.
    unsafe {
        if ffi::PMPI_Comm_test_inter(comm, &raw mut is_inter) != 0 {
            return None;
        }
        if is_inter == 0 {
            return group_size(comm).map(|size| (size, size));
        }
        let code = ffi::PMPI_Comm_remote_size(comm, &raw mut size);
        usize::try_from(size).ok().filter(|_| code == 0).map(|size| (size, size))
    }
}

/// Returns the numbers of neighbours that a rank sends to and receives from; `None` without a topology.
pub fn neighbours(comm: ffi::MPI_Comm) -> Option<(usize, usize)> {
    let (mut topology, mut rank, mut sends, mut receives) = (0, 0, 0, 0);
    // SAFETY: as in `group_size`; shim constants.
    let code = unsafe {
        if ffi::PMPI_Topo_test(comm, &raw mut topology) != 0 {
            return None;
        }
        if topology == ffi::RSMPI_CART {
            let code = ffi::PMPI_Cartdim_get(comm, &raw mut sends);
            sends *= 2;
            receives = sends;
            code
        } else if topology == ffi::RSMPI_GRAPH {
            ffi::PMPI_Comm_rank(comm, &raw mut rank);
            let code = ffi::PMPI_Graph_neighbors_count(comm, rank, &raw mut sends);
            receives = sends;
            code
        } else if topology == ffi::RSMPI_DIST_GRAPH {
            let mut weighted = 0;
            ffi::PMPI_Dist_graph_neighbors_count(comm, &raw mut receives, &raw mut sends, &raw mut weighted)
        } else {
            return None;
        }
    };
    Some((usize::try_from(sends).ok()?, usize::try_from(receives).ok()?)).filter(|_| code == 0)
}

/// Returns a handle's bits.
pub fn bits<H: Copy>(handle: H) -> usize {
    let mut word = 0_usize;
    assert!(size_of::<H>() <= size_of::<usize>(), "a handle is a pointer or an int");
    // SAFETY: both have at least so many bytes.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const handle).cast::<u8>(), (&raw mut word).cast::<u8>(), size_of::<H>());
    }
    word
}
