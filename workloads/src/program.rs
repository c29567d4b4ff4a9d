//! Program run by a job's ranks.

use counterfoil_protocols::api::Protocol;
use counterfoil_runtime::endpoint::Endpoint;
use counterfoil_runtime::transport::Transport;
use serde::{Deserialize, Serialize};

use crate::{Error, LookupError, Workload, by_name};

/// Program of a job's ranks.
///
/// The launcher passes it, encoded, to each of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Workload name.
    pub workload: String,
    /// Workload problem class: S, W or A.
    pub class: String,
    /// Number of iterations between two checkpoints; `None` for no checkpoints.
    pub checkpoint_every: Option<u64>,
}

/// Program failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// A program or outcome can't be encoded or decoded.
    #[error("a program or an outcome cannot be encoded or decoded: {0}")]
    Encoding(#[from] postcard::Error),
    /// There is no such workload.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The workload failed.
    #[error(transparent)]
    Workload(#[from] Error),
}

impl Program {
    /// Returns the program for `workload`.
    pub fn new(workload: &dyn Workload, checkpoint_every: Option<u64>) -> Program {
        Program { workload: workload.full_name(), class: workload.class().to_string(), checkpoint_every }
    }

    /// Encodes the program.
    ///
    /// # Errors
    /// [`ProgramError::Encoding`].
    pub fn encode(&self) -> Result<Vec<u8>, ProgramError> {
        Ok(postcard::to_stdvec(self)?)
    }

    /// Decodes a program and runs it as one rank to the end of the job: the launcher gets the encoded
    /// [`Outcome`](crate::Outcome).
    ///
    /// Also returns if the job is started again, after the state of a [`Resilient`](crate::Resilient) program is saved:
    /// the process ends then, see [`Endpoint::is_exiting`].
    ///
    /// # Errors
    /// [`ProgramError`].
    pub fn run<T: Transport, P: Protocol>(encoded: &[u8], endpoint: &mut Endpoint<T, P>) -> Result<(), ProgramError> {
        let program: Program = postcard::from_bytes(encoded)?;
        let workload = by_name(&program.workload, program.class.parse()?)?;
        let mut resilient = workload.resilient().filter(|_| endpoint.restarts_job());
        let ran = match &mut resilient {
            Some(resilient) => resilient.run(endpoint),
            None => workload.run(endpoint, program.checkpoint_every),
        };
        let ended = ran.map_err(ProgramError::from).and_then(|outcome| {
            let outcome = postcard::to_stdvec(&outcome)?;
            Ok(endpoint.finish(outcome).map_err(Error::from)?)
        });
        if endpoint.is_exiting() {
            // The others may still need it although this rank was done.
            let regions = resilient.as_mut().map(|resilient| resilient.regions()).unwrap_or_default();
            return Ok(endpoint.save_and_exit(&regions).map_err(Error::from)?);
        }
        ended
    }
}
