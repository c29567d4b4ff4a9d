//! MPI in this process, from `MPI_Init_thread` to `MPI_Finalize`.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use mpi_sys as ffi;

use crate::error::{MpiError, check, count};
use crate::fast_boxes::prefer_fast_boxes;
use crate::parent::Parent;
use crate::threads::Threads;

/// Space taken by a buffered message in addition to its length, in bytes.
pub const BUFFER_OVERHEAD: usize = ffi::MPI_BSEND_OVERHEAD as usize;

/// An MPI function under the name by which this [`Universe`] calls it.
macro_rules! by_name {
    ($universe:expr, $seen:ident, $unseen:ident) => {
        if $universe.is_unseen() { ffi::$unseen } else { ffi::$seen }
    };
}
pub(crate) use by_name;

/// `MPI_Init_thread`, by either of its names.
type InitThread = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int;

/// MPI's lifetime in this process: MPI is finalised when this and every [`Comm`](crate::Comm) are dropped.
///
/// Neither can leave its thread.
#[derive(Debug)]
pub struct Universe {
    threads: Threads,
    /// Buffer for buffered messages; owned by MPI until it is detached.
    buffer: Cell<Option<*mut [u8]>>,
    parent: Parent,
    /// True once all processes of the job have met at its end.
    have_met: Cell<bool>,
    /// True if MPI is called by its profiling names.
    is_unseen: bool,
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
        Universe::init_by(threads, ffi::MPI_Init_thread, false)
    }

    /// Initialises MPI as [`init`](Self::init) does, for a library between the program and its MPI.
    ///
    /// [`Comm`](crate::Comm) calls for byte messages use MPI's profiling names, which such libraries don't see.
    ///
    /// # Errors
    /// Same as [`init`](Self::init).
    pub fn init_unseen(threads: Threads) -> Result<Rc<Universe>, MpiError> {
        Universe::init_by(threads, ffi::PMPI_Init_thread, true)
    }

    fn init_by(threads: Threads, init: InitThread, is_unseen: bool) -> Result<Rc<Universe>, MpiError> {
        if USED.swap(true, Ordering::AcqRel) {
            return Err(MpiError::Used);
        }
        let (mut before, mut given) = (0, 0);
        // SAFETY: allowed at any time; the pointer is to a local variable.
        check("MPI_Initialized", unsafe { ffi::PMPI_Initialized(&raw mut before) })?;
        if before != 0 {
            return Err(MpiError::Used);
        }
        // SAFETY: MPI is not initialised, as checked above. `MPI_Init` writes to the environment, too, so a program
        // with other threads reading it is wrong already.
        unsafe { prefer_fast_boxes() };
        let parent = Parent::of_this_process();
        let none = std::ptr::null_mut::<c_int>();
        // SAFETY: MPI allows null for both arguments of main; it is not initialised, and `USED` keeps other threads
        // from doing it.
        let code = unsafe { init(none, std::ptr::null_mut(), threads.raw(), &raw mut given) };
        check("MPI_Init_thread", code)?;
        let level = Threads::ALL.into_iter().find(|level| level.raw() == given);
        let universe = Rc::new(Universe {
            threads: level.unwrap_or(threads),
            buffer: Cell::new(None),
            parent,
            have_met: Cell::new(false),
            is_unseen,
            _not_send: std::marker::PhantomData,
        });
        // SAFETY: MPI is initialised, and both communicators are valid until it is finalised.
        unsafe {
            for comm in [ffi::RSMPI_COMM_WORLD, ffi::RSMPI_COMM_SELF] {
                check("MPI_Comm_set_errhandler", ffi::PMPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN))?;
            }
        }
        if level.is_none_or(|level| level < threads) {
            return Err(MpiError::Threads { asked: threads, given: level });
        }
        Ok(universe)
    }

    /// Returns `true` if MPI is called by its profiling names.
    #[inline]
    pub(crate) fn is_unseen(&self) -> bool {
        self.is_unseen
    }

    /// Returns the thread level.
    pub fn threads(&self) -> Threads {
        self.threads
    }

    /// Returns `true` if this process's launcher is dead.
    pub fn is_orphaned(&self) -> bool {
        self.parent.is_dead()
    }

    /// Records that all processes of the job have met at its end.
    pub fn note_met(&self) {
        self.have_met.set(true);
    }

    /// Returns the size of the buffer for buffered messages, in bytes.
    pub fn buffer_size(&self) -> usize {
        self.buffer.get().map_or(0, <*mut [u8]>::len)
    }

    /// Replaces the buffer for buffered messages by one of `bytes` bytes, after the old one has drained.
    ///
    /// Each message in flight takes its length and [`BUFFER_OVERHEAD`] bytes.
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
        let attached = check("MPI_Buffer_attach", unsafe { ffi::PMPI_Buffer_attach(buffer.cast::<c_void>(), len) });
        if attached.is_ok() {
            self.buffer.set(Some(buffer));
        } else {
            // SAFETY: it came from `into_raw`, and MPI has rejected it.
            drop(unsafe { Box::from_raw(buffer) });
        }
        attached
    }

    /// Detaches and frees the buffer, after all buffered messages have been sent.
    ///
    /// Without a buffer, buffered sends fail, except short ones for which the MPI needs no buffer.
    ///
    /// # Errors
    /// [`MpiError`]; the memory is leaked, because MPI may still use it.
    pub fn detach_buffer(&self) -> Result<(), MpiError> {
        let Some(buffer) = self.buffer.take() else { return Ok(()) };
        let (mut at, mut len) = (std::ptr::null_mut::<c_void>(), 0);
        // SAFETY: MPI has a buffer, and puts a pointer to it and its length into local variables.
        check("MPI_Buffer_detach", unsafe { ffi::PMPI_Buffer_detach((&raw mut at).cast::<c_void>(), &raw mut len) })?;
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
        let code = unsafe { ffi::PMPI_Get_library_version(text.as_mut_ptr().cast::<c_char>(), &raw mut len) };
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
        let limit = self.parent.limit_finalize(self.have_met.get());
        // SAFETY: `init` initialised MPI, this is the last reference to it, and it is the same thread. An error can't
        // be returned here.
        unsafe {
            by_name!(self, MPI_Finalize, PMPI_Finalize)();
        }
        drop(limit);
    }
}
