//! What there is: only looked at, and judged elsewhere.

use std::io;
use std::path::{Path, PathBuf};

use counterfoil::store::{BackendChoice, BackendKind, Directory};
use counterfoil_runtime::local::{JobDirectory, default_shm_root};
use rustix::process::{Resource, getrlimit};

use super::disk::{self, Rate};
use crate::run::find_library;
use crate::run::mpi::{Mpi, MpiError};

/// What was seen of a machine.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) mpis: Mpis,
    /// What a store's files would be written with, or why that can't be tried out.
    pub(super) writer: Result<Writer, String>,
    /// Bytes that may be locked; `None` where there is no limit.
    pub(super) memlock: Option<u64>,
    pub(super) shared: SharedMemory,
    /// Where files were made and removed.
    pub(super) dir: PathBuf,
    pub(super) disk: io::Result<Rate>,
}

/// The MPIs of a machine.
#[derive(Debug)]
pub(super) struct Mpis {
    /// Each once, and those that can't be used.
    pub(super) seen: Vec<Result<SeenMpi, MpiError>>,
    /// Why there is none that would be taken where nothing is asked for; `None` where there is one.
    pub(super) none_by_itself: Option<MpiError>,
}

/// An MPI.
#[derive(Debug)]
pub(super) struct SeenMpi {
    pub(super) mpi: Mpi,
    /// The library that logs, or why there is none for it.
    pub(super) library: Result<PathBuf, String>,
    /// Whether it has fault tolerance; `None` if it doesn't say.
    pub(super) ulfm: Option<bool>,
}

/// What a store's files are written with.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) is_io_uring: bool,
    /// Buffers that the kernel knows.
    pub(super) registered: usize,
    /// In words, with the reason where it isn't io_uring.
    pub(super) says: String,
}

/// Where files in shared memory go.
#[derive(Debug)]
pub(super) struct SharedMemory {
    pub(super) root: PathBuf,
    /// Bytes that there are, and that are free; `None` where it can't be looked at.
    pub(super) bytes: Option<(u64, u64)>,
}

impl Machine {
    /// Looks at everything, with a directory in which files are made and removed.
    pub(super) fn look(dir: &Path) -> Machine {
        Machine {
            mpis: Mpis::look(),
            writer: writer(dir),
            memlock: getrlimit(Resource::Memlock).current,
            shared: SharedMemory::look(default_shm_root()),
            dir: dir.to_owned(),
            disk: disk::rate(dir),
        }
    }
}

impl Mpis {
    fn look() -> Mpis {
        let mut seen: Vec<Result<SeenMpi, MpiError>> = Vec::new();
        let variable = std::env::var("COUNTERFOIL_MPI").ok().filter(|value| !value.is_empty());
        let named = variable.as_deref().map(|asked| Some((asked, "COUNTERFOIL_MPI")));
        let by_name = ["debian", "wheel"].map(|asked| Some((asked, "--mpi")));
        for asked in named.into_iter().chain([None]).chain(by_name) {
            match Mpi::find(asked) {
                Ok(mpi) if seen.iter().flatten().any(|known| known.mpi.name == mpi.name) => {}
                Ok(mpi) => seen.push(Ok(SeenMpi::look(mpi))),
                // Not every machine has every one.
                Err(MpiError::None { .. } | MpiError::NoDebian { .. } | MpiError::NoWheel { .. }) => {}
                Err(error) => seen.push(Err(error)),
            }
        }
        let has_one = seen.iter().any(Result::is_ok) && (named.is_some() || Mpi::in_path().is_some());
        Mpis { seen, none_by_itself: (!has_one).then(MpiError::none) }
    }
}

impl SeenMpi {
    fn look(mpi: Mpi) -> SeenMpi {
        let named = std::env::var_os("COUNTERFOIL_MPI_LIBRARY").filter(|value| !value.is_empty());
        let library = find_library(named.as_deref().map(Path::new), &mpi).map_err(|error| error.to_string());
        SeenMpi { library, ulfm: mpi.has_ulfm(), mpi }
    }
}

/// In a store's directory of our own, which is removed.
fn writer(dir: &Path) -> Result<Writer, String> {
    let job = JobDirectory::create(&default_shm_root(), dir).map_err(|error| error.to_string())?;
    let store = Directory::create(&job.checkpoints().join("probe"), BackendChoice::Auto);
    let (_, probe) = store.map_err(|error| error.to_string())?;
    let is_io_uring = probe.kind == BackendKind::IoUring;
    Ok(Writer { is_io_uring, registered: probe.registered, says: probe.to_string() })
}

impl SharedMemory {
    fn look(root: PathBuf) -> SharedMemory {
        let status = rustix::fs::statvfs(&root).ok();
        let bytes = status.map(|status| (status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize));
        SharedMemory { root, bytes }
    }
}
