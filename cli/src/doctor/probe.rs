//! Machine probes; [`super::assess`] assesses their results.

use std::io;
use std::path::{Path, PathBuf};

use counterfoil_log_io::{BackendChoice, BackendKind, Directory};
use counterfoil_mpi_discovery::{Implementation, MPICH, WHEEL};
use counterfoil_runtime::local::{JobDirectory, default_shm_root};
use rustix::process::{Resource, getrlimit};

use super::disk::{self, Rate};
use crate::run::mpi::{Mpi, MpiError};
use crate::run::{find_library, find_recovery_library};

/// Features found on a machine.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) mpis: Mpis,
    /// I/O backend for a store, or the error from opening one.
    pub(super) backend: Result<Backend, String>,
    /// Locked memory limit in bytes; `None` if unlimited.
    pub(super) memlock: Option<u64>,
    pub(super) shared: SharedMemory,
    /// Directory on the probed disk.
    pub(super) dir: PathBuf,
    pub(super) disk: io::Result<Rate>,
}

/// The machine's MPIs.
#[derive(Debug)]
pub(super) struct Mpis {
    /// Each MPI once, and the errors of unusable ones.
    pub(super) found: Vec<Result<FoundMpi, MpiError>>,
    /// Error of the search without `--mpi`; `None` if it finds an MPI.
    pub(super) default_error: Option<MpiError>,
}

/// An MPI and what is available for it.
#[derive(Debug)]
pub(super) struct FoundMpi {
    pub(super) mpi: Mpi,
    /// Logging library, or recovery library where messages can't only be logged, or why there is none.
    pub(super) library: Result<PathBuf, String>,
    /// True if ULFM is supported; `None` if unknown.
    pub(super) ulfm: Option<bool>,
    /// Fortran bindings, by what programs include or use.
    pub(super) bindings: Vec<&'static str>,
}

/// I/O backend for a store.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) is_io_uring: bool,
    /// Number of buffers registered with the kernel.
    pub(super) registered: usize,
    /// Description, with the reason if it isn't io_uring.
    pub(super) description: String,
}

/// Directory for shared-memory files.
#[derive(Debug)]
pub(super) struct SharedMemory {
    pub(super) root: PathBuf,
    /// Total and free bytes; `None` if unknown.
    pub(super) bytes: Option<(u64, u64)>,
}

impl Machine {
    /// Probes all features; creates files in `dir` and removes them.
    pub(super) fn probe(dir: &Path) -> Machine {
        Machine {
            mpis: Mpis::probe(),
            backend: backend(dir),
            memlock: getrlimit(Resource::Memlock).current,
            shared: SharedMemory::probe(default_shm_root()),
            dir: dir.to_owned(),
            disk: disk::rate(dir),
        }
    }
}

impl Mpis {
    fn probe() -> Mpis {
        let mut found: Vec<Result<FoundMpi, MpiError>> = Vec::new();
        let variable = std::env::var("COUNTERFOIL_MPI").ok().filter(|value| !value.is_empty());
        let named = variable.as_deref().map(|requested| Some((requested, "COUNTERFOIL_MPI")));
        let by_name = ["debian", WHEEL, MPICH].map(|requested| Some((requested, "--mpi")));
        for requested in named.into_iter().chain([None]).chain(by_name) {
            match Mpi::find(requested) {
                Ok(mpi) if found.iter().flatten().any(|known| known.mpi.name == mpi.name) => {}
                Ok(mpi) => found.push(Ok(FoundMpi::probe(mpi))),
                // Not installed.
                Err(MpiError::None { .. } | MpiError::NoDebian { .. } | MpiError::NotFromPypi { .. }) => {}
                Err(error) => found.push(Err(error)),
            }
        }
        let has_default = found.iter().any(Result::is_ok) && (named.is_some() || Mpi::in_path().is_some());
        Mpis { found, default_error: (!has_default).then(MpiError::none) }
    }
}

impl FoundMpi {
    fn probe(mpi: Mpi) -> FoundMpi {
        let named = std::env::var_os("COUNTERFOIL_MPI_LIBRARY").filter(|value| !value.is_empty());
        let find = match mpi.implementation {
            Implementation::OpenMpi => find_library,
            Implementation::Mpich => find_recovery_library,
        };
        let library = find(named.as_deref().map(Path::new), &mpi).map_err(|error| error.to_string());
        FoundMpi { library, ulfm: mpi.has_ulfm(), bindings: bindings(&mpi), mpi }
    }
}

/// Returns an MPI's Fortran bindings.
///
/// Their libraries are in its prefix or, for a system MPI, in the system's directories.
fn bindings(mpi: &Mpi) -> Vec<&'static str> {
    let prefix = mpi.mpirun.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let mut folders: Vec<PathBuf> = ["lib", "lib64"].map(|name| prefix.join(name)).into();
    if prefix == Path::new("/usr") {
        folders.push(prefix.join("lib").join(format!("{}-linux-gnu", std::env::consts::ARCH)));
    }
    let has = |names: &[&str]| folders.iter().any(|folder| names.iter().any(|name| folder.join(name).exists()));
    let known: [(&str, &[&str]); 3] = match mpi.implementation {
        Implementation::OpenMpi => [
            ("mpif.h", &["libmpi_mpifh.so.40"]),
            ("use mpi", &["libmpi_usempi_ignore_tkr.so.40", "libmpi_usempi.so.40"]),
            ("use mpi_f08", &["libmpi_usempif08.so.40"]),
        ],
        Implementation::Mpich => {
            ["mpif.h", "use mpi", "use mpi_f08"].map(|name| (name, &["libmpifort.so.12", "libmpichfort.so.12"][..]))
        }
    };
    known.into_iter().filter(|(_, names)| has(names)).map(|(name, _)| name).collect()
}

/// Opens a store in a temporary job directory.
fn backend(dir: &Path) -> Result<Backend, String> {
    let job = JobDirectory::create(&default_shm_root(), dir).map_err(|error| error.to_string())?;
    let store = Directory::create(&job.checkpoints().join("probe"), BackendChoice::Auto);
    let (_, probe) = store.map_err(|error| error.to_string())?;
    let is_io_uring = probe.kind == BackendKind::IoUring;
    Ok(Backend { is_io_uring, registered: probe.registered, description: probe.to_string() })
}

impl SharedMemory {
    fn probe(root: PathBuf) -> SharedMemory {
        let status = rustix::fs::statvfs(&root).ok();
        let bytes = status.map(|status| (status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize));
        SharedMemory { root, bytes }
    }
}
