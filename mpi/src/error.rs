//! Errors of operations carried out by MPI or an endpoint.

use counterfoil_mpi_core::MpiError;
use counterfoil_mpi_core::request::Completion;
use counterfoil_runtime::communicator::CallError;

/// An immediate operation's outcome.
pub(crate) type Outcome = Completion<OperationError>;

/// Failure of an operation carried out by MPI or by a recovering rank's endpoint.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// An MPI call failed.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// The log, the transport or the rule failed, or the call was invalid.
    #[error(transparent)]
    Endpoint(#[from] counterfoil_runtime::Error),
    /// A recovering rank doesn't have the operation.
    #[error("{call} is not available to ranks that recover")]
    NotRecoverable {
        /// Call name.
        call: &'static str,
    },
    /// A recovering rank's requests are completed together with others.
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
