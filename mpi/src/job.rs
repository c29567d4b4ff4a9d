//! A rank of an MPI job as a rank of the runtime: endpoint, log and protocol over [`MpiTransport`].
//!
//! Whoever starts `mpirun` has made the job's directory and put a [`JobSpec`] into it; the ranks leave their traces there, and
//! rank 0 a [`JobResult`]. All ranks are on one machine, or share these directories.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use counterfoil_protocols::frame::{Protocol, ProtocolError};
use counterfoil_runtime::endpoint::{Endpoint, EndpointOptions};
use counterfoil_runtime::local::{JobError, JobPaths, protocol};
use counterfoil_runtime::{Error, RankSettings};
use counterfoil_workloads::{Error as WorkloadError, LookupError, by_name};
use serde::{Deserialize, Serialize};

use crate::comm::Comm;
use crate::desk::JobResult;
use crate::error::MpiError;
use crate::transport::MpiTransport;

/// What the ranks of a job are to run: a JSON file in the job's directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// The limits and choices that all ranks share.
    pub settings: RankSettings,
    /// The name of the workload.
    pub workload: String,
    /// Its size: S, W or A.
    pub class: String,
    /// A checkpoint at the end of every so many iterations; none if `None`.
    pub checkpoint_every: Option<u64>,
    /// A private directory on disk, for checkpoints and what is spilled.
    pub store: PathBuf,
}

/// The file with the [`JobSpec`].
pub const SPEC_FILE: &str = "mpi-job.json";
/// The file with the [`JobResult`].
pub const RESULT_FILE: &str = "mpi-result.json";

/// A rank of an MPI job, under the rule that the settings name.
pub type MpiEndpoint = Endpoint<MpiTransport, Box<dyn Protocol>>;

/// Why a rank can't be one, or can't go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// MPI refused.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// The job's directory.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A file in it.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file in it that isn't what it should be.
    #[error("{}: {source}", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// `mpirun` has started another number of ranks than the job has.
    #[error("the job has {asked} ranks, and mpirun has started {started}: give it -n {asked}")]
    Ranks {
        /// What the job has.
        asked: u32,
        /// What there are.
        started: u32,
    },
    /// The rule refused the settings.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The log, the transport or the protocol.
    #[error(transparent)]
    Runtime(#[from] Error),
    /// There is no such workload.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The workload failed.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// What the workload found can't be written down.
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

/// Makes this process a rank of the job in the directory `paths`. All ranks of `world` call it.
///
/// # Errors
/// [`RankError`]. The job can't go on without this rank then: see [`Comm::abort`].
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
        endpoint.transport_mut().call(peer, &hello).map_err(Error::from)?;
    }
    Ok(endpoint)
}

/// A rank's whole life: reads what is to be run, runs it, and on rank 0 writes what all ranks came to.
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

/// Under another name first: whoever sees the file sees all of it.
fn write_result(directory: &Path, result: &JobResult) -> Result<(), RankError> {
    let (path, part) = (directory.join(RESULT_FILE), directory.join("mpi-result.part"));
    let text = serde_json::to_vec(result).map_err(RankError::malformed(&path))?;
    fs::write(&part, text).map_err(RankError::file(&part))?;
    fs::rename(&part, &path).map_err(RankError::file(&path))
}
