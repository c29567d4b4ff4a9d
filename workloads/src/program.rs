//! What the ranks of a job run.

use counterfoil_runtime::communicator::Communicator;
use serde::{Deserialize, Serialize};

use crate::{Error, LookupError, Workload, by_name};

/// Program of the ranks of a job. The launcher passes it, encoded, to each of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Name of the workload.
    pub workload: String,
    /// Problem class of the workload: S, W or A.
    pub class: String,
    /// Number of iterations between two checkpoints; `None` for no checkpoints.
    pub checkpoint_every: Option<u64>,
}

/// Failure of a program.
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
    /// Returns the program that runs `workload`.
    pub fn new(workload: &dyn Workload, checkpoint_every: Option<u64>) -> Program {
        Program { workload: workload.name().to_owned(), class: workload.class().to_string(), checkpoint_every }
    }

    /// Encodes the program.
    ///
    /// # Errors
    /// [`ProgramError::Encoding`].
    pub fn encode(&self) -> Result<Vec<u8>, ProgramError> {
        Ok(postcard::to_stdvec(self)?)
    }

    /// Decodes a program and runs it as one rank; returns the encoded [`Outcome`](crate::Outcome).
    ///
    /// # Errors
    /// [`ProgramError`].
    pub fn run(encoded: &[u8], comm: &mut dyn Communicator) -> Result<Vec<u8>, ProgramError> {
        let program: Program = postcard::from_bytes(encoded)?;
        let workload = by_name(&program.workload, program.class.parse()?)?;
        Ok(postcard::to_stdvec(&workload.run(comm, program.checkpoint_every)?)?)
    }
}
