//! Errors of operations that MPI or an endpoint carries out.

use counterfoil_mpi_core::MpiError;
use counterfoil_mpi_core::request::Completion;
use counterfoil_runtime::communicator::CallError;

/// Outcome of an immediate operation.
pub(crate) type Outcome = Completion<OperationError>;

/// Failure of an operation, which MPI or the endpoint of a rank that recovers carries out.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// A call of MPI failed.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// The log, the transport or the rule failed, or the call was invalid.
    #[error(transparent)]
    Endpoint(#[from] counterfoil_runtime::Error),
    /// A rank that recovers doesn't have the operation.
    #[error("{call} is not available to ranks that recover")]
    NotRecoverable {
        /// Name of the call.
        call: &'static str,
    },
    /// Requests of a rank that recovers are completed together with others.
    #[error("requests of a rank that recovers can't be completed together with others")]
    Mixed,
    /// The rank has ended.
    #[error("the rank has ended")]
    Ended,
}

impl From<CallError> for OperationError {
    fn from(error: CallError) -> OperationError {
        OperationError::Endpoint(error.into())
    }
}
