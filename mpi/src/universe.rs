//! MPI in this process, from `MPI_Init_thread` to `MPI_Finalize`.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use mpi_sys as ffi;

use crate::comm::Comm;
use crate::error::{MpiError, check, count};
use crate::launcher::Launcher;

/// Bytes that a buffered message takes in addition to its length.
pub const BUFFER_OVERHEAD: usize = ffi::MPI_BSEND_OVERHEAD as usize;

/// Thread level: the threads that may call MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Threads {
    /// The process has one thread.
    Single,
    /// Only the thread that initialised MPI may call it.
    Funneled,
    /// Any thread may call MPI, one at a time.
    Serialized,
    /// Any thread may call MPI at any time.
    Multiple,
}

impl Threads {
    const ALL: [Threads; 4] = [Threads::Single, Threads::Funneled, Threads::Serialized, Threads::Multiple];

    fn raw(self) -> c_int {
        // SAFETY: constants of the shim that `mpi-sys` links; they are never written.
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

/// Lifetime of MPI in this process: MPI is finalised when this and every [`Comm`] are dropped. Neither can leave its thread.
#[derive(Debug)]
pub struct Universe {
    threads: Threads,
    /// Buffer for buffered messages; owned by MPI until it is detached.
    buffer: Cell<Option<*mut [u8]>>,
    launcher: Launcher,
    /// True once all processes of the job have met at its end.
    have_met: Cell<bool>,
    // The raw pointer makes the type `!Send`, as all levels below `Multiple` require.
    _not_send: std::marker::PhantomData<*const ()>,
}

/// True after the first call of [`Universe::init`].
static USED: AtomicBool = AtomicBool::new(false);

impl Universe {
    /// Initialises MPI, and makes it return errors instead of aborting the job.
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
        let launcher = Launcher::of_this_process();
        let none = std::ptr::null_mut::<c_int>();
        // SAFETY: MPI allows null for both arguments of main; it is not initialised, and `USED` keeps other threads from doing it.
        let code = unsafe { ffi::MPI_Init_thread(none, std::ptr::null_mut(), threads.raw(), &raw mut given) };
        check("MPI_Init_thread", code)?;
        let level = Threads::ALL.into_iter().find(|level| level.raw() == given);
        let universe = Rc::new(Universe {
            threads: level.unwrap_or(threads),
            buffer: Cell::new(None),
            launcher,
            have_met: Cell::new(false),
            _not_send: std::marker::PhantomData,
        });
        // SAFETY: MPI is initialised, and both communicators are valid until it is finalised.
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

    /// Returns the thread level.
    pub fn threads(&self) -> Threads {
        self.threads
    }

    /// Returns `true` if the launcher that started this process is dead.
    #[cfg(feature = "job")]
    pub(crate) fn is_orphaned(&self) -> bool {
        self.launcher.is_dead()
    }

    /// Records that all processes of the job have met at its end.
    #[cfg(feature = "job")]
    pub(crate) fn note_met(&self) {
        self.have_met.set(true);
    }

    /// Returns `MPI_COMM_WORLD`.
    pub fn world(self: &Rc<Universe>) -> Comm {
        // SAFETY: a constant of the shim that `mpi-sys` links; it is never written.
        Comm::predefined(unsafe { ffi::RSMPI_COMM_WORLD }, Rc::clone(self))
    }

    /// Returns `MPI_COMM_SELF`.
    pub fn self_comm(self: &Rc<Universe>) -> Comm {
        // SAFETY: a constant of the shim that `mpi-sys` links; it is never written.
        Comm::predefined(unsafe { ffi::RSMPI_COMM_SELF }, Rc::clone(self))
    }

    /// Returns the size in bytes of the buffer for buffered messages.
    pub fn buffer_size(&self) -> usize {
        self.buffer.get().map_or(0, <*mut [u8]>::len)
    }

    /// Replaces the buffer for buffered messages by one of `bytes` bytes, after the old one has drained. Each message in flight takes its
    /// length and [`BUFFER_OVERHEAD`] bytes.
    ///
    /// # Errors
    /// [`MpiError`]; no buffer is attached then.
    pub fn set_buffer_size(&self, bytes: usize) -> Result<(), MpiError> {
        let len = count("MPI_Buffer_attach", bytes)?;
        self.detach_buffer()?;
        if bytes == 0 {
            return Ok(());
        }
        let buffer = Box::into_raw(vec![0; bytes].into_boxed_slice());
        // SAFETY: MPI has no buffer, and only MPI uses this one until it is detached.
        let attached = check("MPI_Buffer_attach", unsafe { ffi::MPI_Buffer_attach(buffer.cast::<c_void>(), len) });
        if attached.is_ok() {
            self.buffer.set(Some(buffer));
        } else {
            // SAFETY: it came from `into_raw`, and MPI has rejected it.
            drop(unsafe { Box::from_raw(buffer) });
        }
        attached
    }

    /// Detaches and frees the buffer, after all buffered messages have been sent. Without a buffer, buffered sends fail, except short ones
    /// for which the MPI needs no buffer.
    ///
    /// # Errors
    /// [`MpiError`]; the memory is leaked, because MPI may still use it.
    pub fn detach_buffer(&self) -> Result<(), MpiError> {
        let Some(buffer) = self.buffer.take() else { return Ok(()) };
        let (mut at, mut len) = (std::ptr::null_mut::<c_void>(), 0);
        // SAFETY: MPI has a buffer, and puts a pointer to it and its length into local variables.
        check("MPI_Buffer_detach", unsafe { ffi::MPI_Buffer_detach((&raw mut at).cast::<c_void>(), &raw mut len) })?;
        // SAFETY: it came from `into_raw` in `set_buffer_size`, is freed once, here, and MPI has detached it.
        drop(unsafe { Box::from_raw(buffer) });
        Ok(())
    }

    /// Returns the library's version string, as in `Open MPI v5.0.11, package: ...`.
    ///
    /// # Errors
    /// [`MpiError::Call`].
    pub fn library_version() -> Result<String, MpiError> {
        let mut text = vec![0_u8; ffi::MPI_MAX_LIBRARY_VERSION_STRING as usize + 1];
        let mut len = 0;
        // SAFETY: the buffer is as long as the standard requires; the call is allowed at any time.
        let code = unsafe { ffi::MPI_Get_library_version(text.as_mut_ptr().cast::<c_char>(), &raw mut len) };
        check("MPI_Get_library_version", code)?;
        text.truncate(usize::try_from(len).unwrap_or(0));
        Ok(String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned())
    }

    /// Returns the library's name and version alone: `Open MPI v5.0.11`.
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
        // An error can't be returned here; the memory is leaked then.
        let _ = self.detach_buffer();
        let limit = self.launcher.limit_finalize(self.have_met.get());
        // SAFETY: `init` initialised MPI, this is the last reference to it, and it is the same thread. An error can't be returned
        // here.
        unsafe {
            ffi::MPI_Finalize();
        }
        drop(limit);
    }
}
