//! The probe for io_uring.

use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::backend::choice::ProbeError;
use crate::backend::directory::Directory;
use crate::backend::files::Files;
use crate::backend::uring::Uring;
use crate::format::names::PROBE_FILE;
use crate::{PAGE_BYTES, StorageBackend};

/// Kernel setting for rings: 0 permits all processes, 1 a group and the administrator, 2 none.
const SYSCTL: &str = "/proc/sys/kernel/io_uring_disabled";

/// Opens a directory's files for writing through a ring, after a trial.
///
/// Returns the number of registered buffers, too; or the directory, if rings can't be used.
pub(crate) fn ring(
    directory: Directory,
    (buffers, buffer_bytes): (usize, usize),
) -> Result<(Files<Uring>, usize), (Directory, ProbeError)> {
    let ring = match Uring::new(buffers, buffer_bytes) {
        Ok(ring) => ring,
        Err(error) => return Err((directory, setup_error(error))),
    };
    let registered = ring.registered();
    let mut files = Files::new(directory, ring);
    match trial(&mut files) {
        Ok(()) => Ok((files, registered)),
        Err(error) => Err((files.into_directory(), error)),
    }
}

/// Writes a page through the ring, syncs it, and reads it back.
fn trial(files: &mut Files<Uring>) -> Result<(), ProbeError> {
    let failed = |step| move |source| ProbeError::Trial { step, source };
    let full = |error: &io::Error| matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let file = files.create(PROBE_FILE, PAGE_BYTES as u64).map_err(|error| match full(&error) {
        true => ProbeError::DiskFull(error),
        false => failed("creating a trial file")(error),
    })?;
    let mut written = || {
        let mut buffer = files.buffer().map_err(failed("a buffer"))?;
        buffer.bytes_mut()[..PAGE_BYTES].fill(0xc5);
        buffer.set_len(PAGE_BYTES);
        files.write(file, 0, buffer).map_err(failed("beginning a write"))?;
        files.flush().map_err(failed("a write"))?;
        files.sync(file).map_err(failed("a sync"))?;
        let mut back = vec![0; PAGE_BYTES];
        let reader = files.reader(PROBE_FILE).map_err(failed("opening what was written"))?;
        reader.read_at(0, &mut back).map_err(failed("reading what was written"))?;
        if back.iter().any(|byte| *byte != 0xc5) {
            return Err(failed("a write")(io::Error::other("other bytes are read than were written")));
        }
        Ok(())
    };
    let written = written();
    files.close(file);
    let removed = files.remove(PROBE_FILE).map_err(failed("removing the trial file"));
    written.and(removed)
}

/// Converts a ring setup error.
fn setup_error(error: io::Error) -> ProbeError {
    match Errno::from_io_error(&error) {
        Some(Errno::NOSYS) => ProbeError::Missing,
        Some(Errno::PERM) => ProbeError::Refused { errno: "EPERM", by: refused_by() },
        Some(Errno::ACCESS) => ProbeError::Refused { errno: "EACCES", by: refused_by() },
        Some(Errno::NOMEM) => ProbeError::Memory { limit: getrlimit(Resource::Memlock).current },
        _ => ProbeError::Setup(error),
    }
}

fn refused_by() -> String {
    let disabled = std::fs::read_to_string(SYSCTL).ok().and_then(|text| text.trim().parse::<u32>().ok());
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let seccomp = status.lines().find_map(|line| line.strip_prefix("Seccomp:")).is_some_and(|mode| mode.trim() == "2");
    match (disabled, seccomp) {
        (Some(value @ 1..), _) => format!("{SYSCTL} is {value}; 0 would permit it"),
        (_, true) => "by a seccomp filter, as container runtimes install one".to_owned(),
        _ => format!("neither by {SYSCTL} nor by a seccomp filter; perhaps by a security module"),
    }
}
