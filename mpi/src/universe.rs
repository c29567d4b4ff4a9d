//! MPI in this process, from MPI_Init_thread to MPI_Finalize.

use std::ffi::{c_char, c_int};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use mpi_sys as ffi;

use crate::comm::Comm;
use crate::error::{MpiError, check};

/// What threads may do with MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Threads {
    /// There is one thread.
    Single,
    /// Only the thread that initialised MPI calls it.
    Funneled,
    /// Any thread may, one at a time.
    Serialized,
    /// Any thread may, at any time.
    Multiple,
}

impl Threads {
    const ALL: [Threads; 4] = [Threads::Single, Threads::Funneled, Threads::Serialized, Threads::Multiple];

    fn raw(self) -> c_int {
        // SAFETY: constants of the shim that `mpi-sys` links; nobody writes them.
        unsafe {
            match self {
                Threads::Single => ffi::RSMPI_THREAD_SINGLE,
                Threads::Funneled => ffi::RSMPI_THREAD_FUNNELED,
                Threads::Serialized => ffi::RSMPI_THREAD_SERIALIZED,
                Threads::Multiple => ffi::RSMPI_THREAD_MULTIPLE,
            }
        }
    }
}

/// MPI's life in a process: it ends when this and every [`Comm`] are gone. Neither can leave the thread.
#[derive(Debug)]
pub struct Universe {
    threads: Threads,
    // A raw pointer makes the type stay in its thread, as all levels below Multiple ask for.
    _here: std::marker::PhantomData<*const ()>,
}

/// Whether somebody has called [`Universe::init`].
static USED: AtomicBool = AtomicBool::new(false);

impl Universe {
    /// Initialises MPI. From then on errors of MPI are returned; none aborts the job.
    ///
    /// # Errors
    /// [`MpiError::Used`], [`MpiError::Threads`], [`MpiError::Call`].
    pub fn init(threads: Threads) -> Result<Rc<Universe>, MpiError> {
        if USED.swap(true, Ordering::AcqRel) {
            return Err(MpiError::Used);
        }
        let (mut before, mut given) = (0, 0);
        // SAFETY: allowed at any time; the pointer is to a local variable.
        check("MPI_Initialized", unsafe { ffi::MPI_Initialized(&raw mut before) })?;
        if before != 0 {
            return Err(MpiError::Used);
        }
        let none = std::ptr::null_mut::<c_int>();
        // SAFETY: MPI allows null for both arguments of main; it is not initialised, and `USED` lets nobody else do it.
        let code = unsafe { ffi::MPI_Init_thread(none, std::ptr::null_mut(), threads.raw(), &raw mut given) };
        check("MPI_Init_thread", code)?;
        let level = Threads::ALL.into_iter().find(|level| level.raw() == given);
        let universe = Rc::new(Universe { threads: level.unwrap_or(threads), _here: std::marker::PhantomData });
        // SAFETY: MPI is initialised, and both communicators live as long as it.
        unsafe {
            for comm in [ffi::RSMPI_COMM_WORLD, ffi::RSMPI_COMM_SELF] {
                check("MPI_Comm_set_errhandler", ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN))?;
            }
        }
        if level.is_none_or(|level| level < threads) {
            return Err(MpiError::Threads { asked: threads, given: level });
        }
        Ok(universe)
    }

    /// What threads may do.
    pub fn threads(&self) -> Threads {
        self.threads
    }

    /// MPI_COMM_WORLD.
    pub fn world(self: &Rc<Universe>) -> Comm {
        // SAFETY: a constant of the shim that `mpi-sys` links; nobody writes it.
        Comm::predefined(unsafe { ffi::RSMPI_COMM_WORLD }, Rc::clone(self))
    }

    /// What the library says of itself, as in `Open MPI v5.0.11, package: ...`.
    ///
    /// # Errors
    /// [`MpiError::Call`].
    pub fn library_version() -> Result<String, MpiError> {
        let mut text = vec![0_u8; ffi::MPI_MAX_LIBRARY_VERSION_STRING as usize + 1];
        let mut len = 0;
        // SAFETY: the buffer has the bytes that the standard asks for; the call is allowed at any time.
        let code = unsafe { ffi::MPI_Get_library_version(text.as_mut_ptr().cast::<c_char>(), &raw mut len) };
        check("MPI_Get_library_version", code)?;
        text.truncate(usize::try_from(len).unwrap_or(0));
        Ok(String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned())
    }

    /// The library's name and version alone: `Open MPI v5.0.11`.
    ///
    /// # Errors
    /// [`MpiError::Call`].
    pub fn library_name() -> Result<String, MpiError> {
        let version = Universe::library_version()?;
        Ok(version.split([',', '\0']).next().unwrap_or_default().to_owned())
    }
}

impl Drop for Universe {
    fn drop(&mut self) {
        // SAFETY: MPI was initialised by `init`, this is the last that knows of it, and it is the same thread. A failure has
        // nobody left to be told.
        unsafe {
            ffi::MPI_Finalize();
        }
    }
}
