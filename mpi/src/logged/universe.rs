//! Where logging begins and ends.

use std::cell::RefCell;
use std::rc::Rc;

use counterfoil::Options;

use super::communicator::{LoggedCommunicator, Shared};
use super::engine::{Account, Engine};
use super::error::LoggedError;
use crate::universe::Universe;

/// MPI with a log under it.
#[derive(Debug)]
pub struct LoggedUniverse {
    engine: Rc<RefCell<Engine>>,
    world: Rc<Shared>,
}

impl LoggedUniverse {
    /// Begins to log. All ranks call it. `set` is given the options of this rank's log: of its rank, in a job of as many ranks as there
    /// are, 64 MiB of memory, forgetting what is acknowledged.
    ///
    /// # Errors
    /// [`LoggedError::Open`], [`LoggedError::Others`], [`LoggedError::Mpi`].
    pub fn init(universe: Rc<Universe>, set: impl FnOnce(&mut Options)) -> Result<LoggedUniverse, LoggedError> {
        let world = universe.world();
        let engine = Engine::begin(&world, set)?;
        // MPI_COMM_WORLD is number 0: communicators that are made get higher ones.
        let world = Rc::new(Shared::new(world, 0)?);
        Ok(LoggedUniverse { engine: Rc::new(RefCell::new(engine)), world })
    }

    /// MPI_COMM_WORLD.
    pub fn world(&self) -> LoggedCommunicator {
        LoggedCommunicator::new(Rc::clone(&self.world), Rc::clone(&self.engine))
    }

    /// What this rank has done so far.
    pub fn account(&self) -> Account {
        self.engine.borrow().account()
    }

    /// Records of this rank that nobody has acknowledged, after a look at what has come.
    ///
    /// # Errors
    /// [`LoggedError`].
    pub fn unacknowledged(&self) -> Result<u64, LoggedError> {
        self.engine.borrow_mut().unacknowledged()
    }

    /// Ends logging, when no message is under way any more: the last acknowledgements are exchanged, and a log with a store
    /// is complete on disk when this returns. All ranks call it, once. Communicators can't be used afterwards.
    ///
    /// # Errors
    /// [`LoggedError`].
    pub fn finish(&self) -> Result<Account, LoggedError> {
        self.engine.borrow_mut().finish()
    }
}
