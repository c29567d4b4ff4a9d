//! Fortran calls: conversions of this library's handles, attributes and the clock.

use counterfoil_mpi_core::fortran as mpi_fortran;
pub(crate) use counterfoil_mpi_core::fortran::*;
use mpi_sys as ffi;

use crate::clocks::MPI_Wtime;
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
