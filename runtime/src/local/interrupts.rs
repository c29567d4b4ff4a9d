//! Pollable termination signals.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};

/// Handles SIGINT, SIGTERM and SIGHUP until dropped: a signal makes it readable, so a launcher can clean up.
///
/// The handlers are process-wide: install them in a program's `main`, not in a library.
#[derive(Debug)]
pub struct Interrupts {
    readable: UnixStream,
    registered: Vec<signal_hook::SigId>,
}

impl Interrupts {
    /// Installs handlers for the three signals.
    ///
    /// # Errors
    /// [`io::Error`] from the failed system call.
    pub fn install() -> io::Result<Interrupts> {
        let (readable, written) = UnixStream::pair()?;
        let mut interrupts = Interrupts { readable, registered: Vec::new() };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            interrupts.registered.push(pipe::register(signal, written.try_clone()?)?);
        }
        Ok(interrupts)
    }
}

impl AsFd for Interrupts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        for &id in &self.registered {
            unregister(id);
        }
    }
}
