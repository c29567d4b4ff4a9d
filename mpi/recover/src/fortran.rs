//! Fortran calls: conversions of this library's handles, attributes and the clock.

#[cfg(not(open_mpi))]
use std::ffi::c_int;

use counterfoil_mpi_core::fortran as mpi_fortran;
pub(crate) use counterfoil_mpi_core::fortran::*;
use mpi_sys as ffi;

use crate::clocks::MPI_Wtime;
#[cfg(not(open_mpi))]
use crate::comms::Topology;
use crate::failure::Failure;
use crate::front::{enter, running};
use crate::handle::{number_of, of_number};
use crate::next::Next;
use crate::queries::attributes_of;

/// Exports conversions for this library's handles; the MPI's own handles are converted by the MPI.
macro_rules! conversions {
    ($($handle:ty: $of:ident $number:ident $f2c:ident $c2f:ident,)+) => {
        $(
            pub(crate) fn $of(number: Fint) -> $handle {
                number_of(number).map_or_else(|| mpi_fortran::$of(number), of_number)
            }

            pub(crate) fn $number(handle: $handle) -> Fint {
                number_of(handle).map_or_else(|| mpi_fortran::$number(handle), of_number)
            }

            #[doc = concat!("`", stringify!($f2c), "`")]
            #[unsafe(no_mangle)]
            pub extern "C-unwind" fn $f2c(number: Fint) -> $handle {
                $of(number)
            }

            #[doc = concat!("`", stringify!($c2f), "`")]
            #[unsafe(no_mangle)]
            pub extern "C-unwind" fn $c2f(handle: $handle) -> Fint {
                $number(handle)
            }
        )+
    };
}

conversions! {
    ffi::MPI_Request: request request_number MPI_Request_f2c MPI_Request_c2f,
    ffi::MPI_Group: group group_number MPI_Group_f2c MPI_Group_c2f,
    ffi::MPI_Message: message message_number MPI_Message_f2c MPI_Message_c2f,
}

/// Returns the numbers of parts sent and received by a rank in an all-to-all operation.
pub(crate) fn parts(comm: ffi::MPI_Comm) -> Option<(usize, usize)> {
    let peers = running()?.comm(comm).ok()?.context.peers().len();
    Some((peers, peers))
}

/// Returns the numbers of neighbours that a rank sends to and receives from.
pub(crate) fn neighbours(comm: ffi::MPI_Comm) -> Option<(usize, usize)> {
    let comm = running()?.comm(comm).ok()?;
    Some((comm.destinations().len(), comm.sources().len()))
}

/// Exports attribute functions, whose values differ between the languages: the MPI's own binding converts them.
///
/// Arguments after the communicator and the key are passed on.
macro_rules! attributes {
    ($($name:ident $symbol:literal $call:literal ($($argument:ident: $kind:ty),*))*) => {
        $(
            #[doc = concat!("`", $call, "` of Fortran.")]
            ///
            /// # Safety
            /// MPI's conditions on its arguments hold.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(
                on: *const Fint,
                key: *const Fint,
                $($argument: $kind,)*
                ierror: *mut Fint,
            ) {
                static NEXT: Next<unsafe extern "C" fn(*const Fint, *const Fint, $($kind,)* *mut Fint)> =
                    Next::new($symbol);
                // SAFETY: the caller's arguments are what MPI asks for, and are passed on with another communicator.
                unsafe {
                    let own = comm(*on);
                    let code = enter($call, Some(own), |front| {
                        let (on, mut code) = (comm_number(attributes_of(front, own, *key)?), 0);
                        (NEXT.get())(&raw const on, key, $($argument,)* &raw mut code);
                        Failure::check(code)
                    });
                    end(ierror, code);
                }
            }
        )*
    };
}

attributes! {
    mpi_comm_get_attr_ c"mpi_comm_get_attr_" "MPI_Comm_get_attr" (value: *mut ffi::MPI_Aint, flag: *mut Fint)
    mpi_comm_get_attr_f08_ c"mpi_comm_get_attr_f08_" "MPI_Comm_get_attr" (value: *mut ffi::MPI_Aint, flag: *mut Fint)
    mpi_attr_get_ c"mpi_attr_get_" "MPI_Attr_get" (value: *mut Fint, flag: *mut Fint)
    mpi_comm_set_attr_ c"mpi_comm_set_attr_" "MPI_Comm_set_attr" (value: *const ffi::MPI_Aint)
    mpi_comm_set_attr_f08_ c"mpi_comm_set_attr_f08_" "MPI_Comm_set_attr" (value: *const ffi::MPI_Aint)
    mpi_attr_put_ c"mpi_attr_put_" "MPI_Attr_put" (value: *const Fint)
    mpi_comm_delete_attr_ c"mpi_comm_delete_attr_" "MPI_Comm_delete_attr" ()
    mpi_comm_delete_attr_f08_ c"mpi_comm_delete_attr_f08_" "MPI_Comm_delete_attr" ()
    mpi_attr_delete_ c"mpi_attr_delete_" "MPI_Attr_delete" ()
}

/// Fortran's `MPI_Wtime`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn mpi_wtime_() -> f64 {
    MPI_Wtime()
}

/// `MPI_Wtime` in MPICH's `use mpi_f08`; in Open MPI that is the C function.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn mpi_wtime_f08_() -> f64 {
    MPI_Wtime()
}

/// Exports functions that MPICH's `use mpi_f08` calls by their `PMPI_` names, to learn the lengths of a call's arrays.
///
/// A communicator of the program is one of this process alone to the MPI.
#[cfg(not(open_mpi))]
macro_rules! lengths {
    ($($name:ident $symbol:literal ($($argument:ident),*) = $answer:expr;)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`, as called by MPICH's Fortran bindings.")]
            ///
            /// # Safety
            /// MPI's conditions on its arguments hold.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(comm: ffi::MPI_Comm, $($argument: *mut c_int),*) -> c_int {
                static NEXT: Next<unsafe extern "C" fn(ffi::MPI_Comm, $(lengths!(@kind $argument)),*) -> c_int> =
                    Next::new($symbol);
                // SAFETY: the caller's arguments.
                unsafe {
                    let Some(answer) = $answer(comm) else { return NEXT.get()(comm, $($argument),*) };
                    [$($argument),*].into_iter().zip(answer).for_each(|(argument, answer)| *argument = answer as c_int);
                }
                0
            }
        )*
    };
    (@kind $argument:ident) => { *mut c_int };
}

#[cfg(not(open_mpi))]
lengths! {
    PMPI_Comm_size c"PMPI_Comm_size" (size) = |comm| parts(comm).map(|(peers, _)| [peers]);
    PMPI_Dist_graph_neighbors_count c"PMPI_Dist_graph_neighbors_count" (indegree, outdegree, weighted) =
        |comm| neighbours(comm).map(|(to, from)| [from, to, 0]);
    PMPI_Cartdim_get c"PMPI_Cartdim_get" (ndims) = |comm| dimensions(comm).map(|dimensions| [dimensions]);
}

/// Returns the number of a grid's dimensions.
#[cfg(not(open_mpi))]
fn dimensions(comm: ffi::MPI_Comm) -> Option<usize> {
    match &running()?.comm(comm).ok()?.topology {
        Topology::Cart(grid) => Some(grid.dims.len()),
        _ => None,
    }
}
