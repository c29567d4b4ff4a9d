//! Programs that rebuild what lost ranks had.

use std::fmt;

use counterfoil_runtime::communicator::Communicator;

use crate::{Error, Outcome};

/// Program of one rank that goes on after ranks were lost, under a rule that starts the job again. It begins with
/// [`Communicator::restart`], rebuilds what is lost, and calls [`Communicator::rebuilt`].
pub trait Resilient: fmt::Debug {
    /// Runs this rank's part to its end. After an error of the communicator by which the job is started again, the
    /// state is that of the call that failed.
    ///
    /// # Errors
    /// As of [`Workload::run`](crate::Workload::run).
    fn run(&mut self, comm: &mut dyn Communicator) -> Result<Outcome, Error>;

    /// Returns the state's parts, in the order in which [`run`](Self::run) reads them again; none before it has one.
    fn regions(&mut self) -> Vec<&[u8]>;
}
