//! Immediate operations of any carrier.

use std::any::Any;
use std::fmt;

use counterfoil_mpi_core::request::{Completion, MpiOperation};

use crate::error::{OperationError, Outcome};

/// An immediate operation, until it is dropped.
pub(crate) trait ImmediateOperation: fmt::Debug {
    /// Returns the carrier's own type.
    fn as_any(&self) -> &dyn Any;

    /// Returns `true` if the operation is complete and no longer uses its memory.
    fn is_complete(&self) -> bool;

    /// Waits until the operation completes.
    fn wait(&self) -> Outcome;

    /// Returns the outcome if the operation is complete.
    fn test(&self) -> Option<Outcome>;

    /// Returns `true` if [`wait`](Self::wait) would return at once.
    fn is_ready(&self) -> Result<bool, OperationError>;

    /// Cancels a receive, and waits until it completes, with or without a message.
    ///
    /// Other operations are waited for.
    fn cancel(&self) -> Outcome;

    /// Completes the operation, because its scope ends and its memory is about to be reused.
    fn end_with_scope(&self) -> Outcome;

    /// Takes the bytes owned by the operation; none while it is pending.
    fn take_bytes(&self) -> Vec<u8>;
}

/// Returns the operations as one carrier's.
///
/// # Errors
/// [`OperationError::Mixed`].
pub(crate) fn of_one_carrier<'o, T: 'static>(
    operations: &[&'o dyn ImmediateOperation],
) -> Result<Vec<&'o T>, OperationError> {
    let own = operations.iter().map(|operation| operation.as_any().downcast_ref().ok_or(OperationError::Mixed));
    own.collect()
}

impl ImmediateOperation for MpiOperation {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_complete(&self) -> bool {
        MpiOperation::is_complete(self)
    }

    fn wait(&self) -> Outcome {
        MpiOperation::wait(self).convert()
    }

    fn test(&self) -> Option<Outcome> {
        MpiOperation::test(self).map(Completion::convert)
    }

    fn is_ready(&self) -> Result<bool, OperationError> {
        Ok(MpiOperation::is_ready(self)?)
    }

    fn cancel(&self) -> Outcome {
        MpiOperation::cancel(self).convert()
    }

    fn end_with_scope(&self) -> Outcome {
        MpiOperation::end_with_scope(self).convert()
    }

    fn take_bytes(&self) -> Vec<u8> {
        MpiOperation::take_bytes(self)
    }
}
