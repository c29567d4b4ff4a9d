//! Signals that ask a launcher to end, as something that can be polled.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};

/// Turns SIGINT, SIGTERM and SIGHUP into readability, for as long as it lives, so that a launcher can clean up.
///
/// This is process-wide: it belongs to a program's `main`, not into a library.
#[derive(Debug)]
pub struct Interrupts {
    readable: UnixStream,
    registered: Vec<signal_hook::SigId>,
}

impl Interrupts {
    /// Registers for the three signals.
    ///
    /// # Errors
    /// What the operating system says.
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
