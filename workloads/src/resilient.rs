//! Programs that rebuild lost ranks' state.

use std::fmt;

use counterfoil_runtime::communicator::Communicator;

use crate::{Error, Outcome};

/// One rank's program, able to go on after ranks were lost, under a rule starting the job again.
///
/// It begins with [`Communicator::restart`], rebuilds everything lost, and calls [`Communicator::rebuilt`].
pub trait Resilient: fmt::Debug {
    /// Runs this rank's part to its end.
    ///
    /// After a communicator error by which the job is started again, the state is as in the failed call.
    ///
    /// # Errors
    /// See [`Workload::run`](crate::Workload::run).
    fn run(&mut self, comm: &mut dyn Communicator) -> Result<Outcome, Error>;

    /// Returns the state's parts, in the order in which [`run`](Self::run) reads them again; none before it has one.
    fn regions(&mut self) -> Vec<&[u8]>;
}
