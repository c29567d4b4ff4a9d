//! An MPI job's processes as the runtime's ranks, and as spares: endpoint, log and protocol over [`MpiTransport`].
//!
//! The launcher ([`counterfoil_runtime::local::launch`]) starts `mpirun` with a program calling [`run`]. It listens on
//! a socket in the job's directory; the ranks' logs and traces are in the same directory.

use std::path::Path;
use std::rc::Rc;

use counterfoil_mpi_core::error::MpiError;
use counterfoil_mpi_core::exit::exit;
use counterfoil_mpi_core::universe::Universe;
use counterfoil_runtime::Error;
use counterfoil_runtime::local::{
    ControlError, JobError, JobPaths, LauncherConnection, PlannedKills, RankEndpoint, start,
};
use counterfoil_runtime::transport::{Report, Transport, TransportError};
use counterfoil_workloads::{self as workloads, Program, ProgramError};

use crate::membership::{Membership, MembershipError, needs_new_job};
use crate::transport::{MpiTransport, SpareProcess};

/// Failure of a job's process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// An MPI call failed.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// The processes can't become the job's ranks.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// The job's directory can't be used.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The launcher can't be reached.
    #[error("the launcher: {0}")]
    Launcher(#[from] ControlError),
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The log, the transport or the protocol failed.
    #[error(transparent)]
    Runtime(#[from] Error),
    /// The program failed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// Another crate's program failed.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl RankError {
    /// Returns `true` if the whole job has to be started again because a dead rank can't be replaced.
    fn needs_new_job(&self) -> bool {
        let transport = match self {
            RankError::Transport(error) => Some(error),
            RankError::Runtime(Error::Transport(error)) => Some(error),
            RankError::Program(ProgramError::Workload(workloads::Error::Communicator(Error::Transport(error)))) => {
                Some(error)
            }
            _ => None,
        };
        transport.is_some_and(needs_new_job)
    }
}

/// Communicator of a rank in a job with a separate launcher process.
pub type JobEndpoint = RankEndpoint<PlannedKills<MpiTransport>>;

/// Runs this process from start to end, as one of the `ranks` ranks of the job in `directory`, or as a spare.
///
/// Each rank runs the job's [`Program`]. Collective over all of the job's processes.
///
/// # Errors
/// [`RankError`], reported to the launcher if it can be reached. The job can't continue without this rank.
pub fn run(universe: &Rc<Universe>, directory: &Path, ranks: u32) -> Result<(), RankError> {
    run_program(universe, directory, ranks, |program, endpoint| Ok(Program::run(program, endpoint)?))
}

/// Runs this process as [`run`] does, with a program of its own.
///
/// The program gets its description from the job and ends with [`Endpoint::finish`](JobEndpoint::finish). It is called
/// again after a rollback.
///
/// Under a rule with job restarts, the program calls [`Endpoint::save_and_exit`](JobEndpoint::save_and_exit) once a
/// call has failed with [`Error::JobFailed`]. This process exits then, and MPI is not finalised.
///
/// # Errors
/// Same as [`run`].
pub fn run_program(
    universe: &Rc<Universe>,
    directory: &Path,
    ranks: u32,
    mut program: impl FnMut(&[u8], &mut JobEndpoint) -> Result<(), RankError>,
) -> Result<(), RankError> {
    let paths = JobPaths::open(directory)?;
    let launcher = LauncherConnection::open(&paths)?;
    let membership = Membership::new(&universe.world(), ranks)?;
    let joined = match membership.rank() {
        Some(_) => MpiTransport::join(launcher, membership)?,
        None => SpareProcess::new(launcher, membership)?.wait()?,
    };
    let Some((mut transport, mut welcome)) = joined else { return Ok(()) };
    loop {
        let description = welcome.program().to_vec();
        let (rank, held) = (transport.rank(), PlannedKills::new(transport, &welcome));
        let mut endpoint = start(rank, &paths, welcome, held)?;
        match program(&description, &mut endpoint) {
            // The others may be dead, or have exited: MPI could not be finalised.
            Ok(()) if endpoint.is_exiting() => exit(0),
            Ok(()) => return Ok(endpoint.into_transport().into_inner().close()?),
            Err(_) if endpoint.is_rolling_back() => {
                transport = endpoint.into_transport().into_inner();
                let Some(next) = transport.rejoin()? else { return Ok(transport.close()?) };
                welcome = next;
            }
            Err(error) => {
                if error.needs_new_job() {
                    endpoint.transport_mut().report(Report::NoSpare)?;
                } else {
                    endpoint.fail(error.to_string());
                }
                return Err(error);
            }
        }
    }
}
