//! Ranks of an MPI job as ranks of the runtime: endpoint, log and protocol over [`MpiTransport`].
//!
//! The program that starts `mpirun` creates the job's directory and writes a [`JobSpec`] into it; the ranks write their traces there,
//! and rank 0 a [`JobResult`]. All ranks are on one machine, or share these directories.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use counterfoil_protocols::api::{Protocol, ProtocolError};
use counterfoil_runtime::endpoint::{Endpoint, EndpointOptions};
use counterfoil_runtime::local::{JobError, JobPaths, protocol};
use counterfoil_runtime::{Error, RankSettings};
use counterfoil_workloads::{Error as WorkloadError, LookupError, by_name};
use serde::{Deserialize, Serialize};

use crate::comm::Comm;
use crate::coordinator::JobResult;
use crate::error::MpiError;
use crate::transport::MpiTransport;

/// Job description: a JSON file in the job's directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Limits and choices that all ranks share.
    pub settings: RankSettings,
    /// Name of the workload.
    pub workload: String,
    /// Problem class of the workload: S, W or A.
    pub class: String,
    /// Number of iterations between two checkpoints; `None` for no checkpoints.
    pub checkpoint_every: Option<u64>,
    /// Private directory on disk, for checkpoints and spilled records.
    pub store: PathBuf,
}

/// Name of the file with the [`JobSpec`].
pub const SPEC_FILE: &str = "mpi-job.json";
/// Name of the file with the [`JobResult`].
pub const RESULT_FILE: &str = "mpi-result.json";

/// Endpoint of an MPI rank, under the rule that the settings name.
pub type MpiEndpoint = Endpoint<MpiTransport, Box<dyn Protocol>>;

/// Failure of a rank.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// A call of MPI failed.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// The job's directory can't be used.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A file of the job's directory can't be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file of the job's directory is malformed.
    #[error("{}: {source}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// `mpirun` has started a different number of ranks than the job has.
    #[error("the job has {asked} ranks, and mpirun has started {started}: give it -n {asked}")]
    Ranks {
        /// Number of ranks of the job.
        asked: u32,
        /// Number of ranks of `MPI_COMM_WORLD`.
        started: u32,
    },
    /// The rule rejected the settings.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The log, the transport or the protocol failed.
    #[error(transparent)]
    Runtime(#[from] Error),
    /// There is no such workload.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The workload failed.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The workload's outcome can't be encoded.
    #[error("cannot encode the outcome: {0}")]
    Outcome(#[from] postcard::Error),
}

impl RankError {
    fn file(path: &Path) -> impl FnOnce(io::Error) -> RankError + use<> {
        let path = path.to_owned();
        move |source| RankError::File { path, source }
    }

    fn malformed(path: &Path) -> impl FnOnce(serde_json::Error) -> RankError + use<> {
        let path = path.to_owned();
        move |source| RankError::Malformed { path, source }
    }
}

/// Makes this process a rank of the job in the directory `paths`. Collective over `world`.
///
/// # Errors
/// [`RankError`]. The job can't continue without this rank: see [`Comm::abort`].
pub fn join(world: &Comm, paths: &JobPaths, spec: &JobSpec) -> Result<MpiEndpoint, RankError> {
    let settings = spec.settings.clone();
    let (rank, started) = (world.rank()?, world.size()?);
    if started != settings.ranks {
        return Err(RankError::Ranks { asked: settings.ranks, started });
    }
    let protocol = protocol(rank, 0, &settings)?;
    let transport = MpiTransport::new(world, &settings)?;
    let options = EndpointOptions {
        rank,
        incarnation: 0,
        settings,
        log_directory: paths.logs(),
        trace_directory: paths.traces(),
        store_directory: spec.store.clone(),
        fatal_iterations: Vec::new(),
        hold_recovery: false,
    };
    let mut endpoint = Endpoint::start(options, protocol, transport)?;
    for peer in (0..started).filter(|peer| *peer != rank) {
        let hello = endpoint.hello(peer)?;
        endpoint.transport_mut().send_hello(peer, &hello).map_err(Error::from)?;
    }
    Ok(endpoint)
}

/// Runs a rank from start to end: reads the [`JobSpec`], runs the workload, and on rank 0 writes the [`JobResult`].
///
/// # Errors
/// [`RankError`], as for [`join`].
pub fn run(world: &Comm, directory: &Path) -> Result<(), RankError> {
    let paths = JobPaths::open(directory)?;
    let path = directory.join(SPEC_FILE);
    let text = fs::read(&path).map_err(RankError::file(&path))?;
    let spec: JobSpec = serde_json::from_slice(&text).map_err(RankError::malformed(&path))?;
    let workload = by_name(&spec.workload, spec.class.parse()?)?;
    let mut endpoint = join(world, &paths, &spec)?;
    let outcome = workload.run(&mut endpoint, spec.checkpoint_every)?;
    endpoint.finish(postcard::to_stdvec(&outcome)?)?;
    match endpoint.transport_mut().close().map_err(Error::from)? {
        Some(result) => write_result(directory, &result),
        None => Ok(()),
    }
}

/// Writes the result under a temporary name and renames it, so that a reader never sees a partial file.
fn write_result(directory: &Path, result: &JobResult) -> Result<(), RankError> {
    let (path, part) = (directory.join(RESULT_FILE), directory.join("mpi-result.part"));
    let text = serde_json::to_vec(result).map_err(RankError::malformed(&path))?;
    fs::write(&part, text).map_err(RankError::file(&part))?;
    fs::rename(&part, &path).map_err(RankError::file(&path))
}
