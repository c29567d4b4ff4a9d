//! Floors for logging and for recovery: libraries that only copy, or only copy and send, and the disk's own rate.
//!
//! The disk benchmarks' floor is `counterfoil-naked-ring`, but this program depends on no other workspace crate.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use rustix::fs::{FallocateFlags, OFlags, fallocate};

use crate::mpi::Toolkit;
use crate::workspace::{TaskError, Workspace, run_checked};

/// Memory for a floor's log in each rank: 4 GiB, the budget of the measured logs.
pub(super) const FLOOR_BYTES: &str = "4294967296";
/// Bytes per writer: more than its caches take.
const BYTES_WRITTEN: usize = 128 << 20;
/// Bytes per write, as in a spilling log.
const BLOCK_BYTES: usize = 1 << 20;
/// Block alignment: a page, accepted by every block device.
const ALIGN: usize = 4096;

/// A library that does the least that a kind of library has to do; its source is in `mpi/benches`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Floor {
    /// Copies each message into a log
    Log,
    /// Copies each message into a log, and sends it from there as a frame
    Frames,
}

/// Compiles a floor's library into `folder`.
///
/// Returns the library.
pub(super) fn build(
    workspace: &Workspace,
    toolkit: &Toolkit,
    folder: &Path,
    floor: Floor,
) -> Result<PathBuf, TaskError> {
    let name = match floor {
        Floor::Log => "floor",
        Floor::Frames => "frames",
    };
    let source = workspace.root().join(format!("mpi/benches/{name}.c"));
    let library = folder.join(format!("lib{name}.so"));
    let mut compile = Command::new(&toolkit.mpi.mpicc);
    run_checked(compile.args(["-O3", "-Wall", "-shared", "-fPIC", "-o"]).arg(&library).arg(source))?;
    Ok(library)
}

/// Returns the write rate of `folder`'s disk in bytes per second.
///
/// Two writers each write a preallocated file past the page cache, like two spilling ranks. The files are removed.
pub(super) fn disk_bytes_per_s(folder: &Path) -> Result<f64, TaskError> {
    let paths = [0, 1].map(|writer| folder.join(format!("rate-{writer}")));
    let files = paths.iter().map(|path| create(path)).collect::<Result<Vec<File>, TaskError>>()?;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let writers: Vec<_> =
            files.iter().zip(&paths).map(|(file, path)| scope.spawn(move || write(file, path))).collect();
        writers
            .into_iter()
            .try_for_each(|writer| writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let elapsed_s = start.elapsed().as_secs_f64();
    for path in &paths {
        std::fs::remove_file(path).map_err(TaskError::file(path))?;
    }
    Ok((files.len() * BYTES_WRITTEN) as f64 / elapsed_s)
}

fn create(path: &Path) -> Result<File, TaskError> {
    let direct = OFlags::DIRECT.bits().cast_signed();
    let opened = OpenOptions::new().write(true).create_new(true).custom_flags(direct).open(path);
    let file = opened.map_err(TaskError::file(path))?;
    fallocate(&file, FallocateFlags::empty(), 0, BYTES_WRITTEN as u64)
        .map_err(|error| TaskError::file(path)(error.into()))?;
    Ok(file)
}

fn write(file: &File, path: &Path) -> Result<(), TaskError> {
    let mut memory = vec![0; BLOCK_BYTES + ALIGN];
    let start = memory.as_ptr().align_offset(ALIGN);
    let block = &mut memory[start..start + BLOCK_BYTES];
    for (at, byte) in block.iter_mut().enumerate() {
        *byte = (at ^ at >> 8) as u8;
    }
    for at in (0..BYTES_WRITTEN).step_by(BLOCK_BYTES) {
        file.write_all_at(block, at as u64).map_err(TaskError::file(path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::scratch::Scratch;

    #[test]
    fn the_rate_of_a_disk_is_measured_and_leaves_nothing() {
        let folder = Scratch::on_disk(&std::env::temp_dir(), "rate").unwrap();
        assert!(disk_bytes_per_s(folder.path()).unwrap() > 0.0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(disk_bytes_per_s(&folder.path().join("none")).is_err());
    }
}
