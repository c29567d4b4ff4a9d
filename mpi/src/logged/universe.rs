//! Where logging begins and ends.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use counterfoil::Options;
use counterfoil_mpi_logger::{SELF, WORLD};

use super::communicator::{LoggedCommunicator, Shared};
use super::engine::{Account, Engine};
use super::error::LoggedError;
use super::hook;
use crate::universe::Universe;

/// MPI with a log under it.
#[derive(Debug)]
pub struct LoggedUniverse {
    engine: Rc<RefCell<Engine>>,
    world: Rc<Shared>,
    itself: Rc<Shared>,
    universe: Rc<Universe>,
}

impl LoggedUniverse {
    /// Begins to log. All ranks call it. `set` is given the options of this rank's log: of its rank, in a job of as many ranks as there
    /// are, 64 MiB of memory, forgetting what is acknowledged.
    ///
    /// # Errors
    /// [`LoggedError::Open`], [`LoggedError::Others`], [`LoggedError::Mpi`].
    pub fn init(universe: Rc<Universe>, set: impl FnOnce(&mut Options)) -> Result<LoggedUniverse, LoggedError> {
        let world = universe.world();
        let engine = Rc::new(RefCell::new(Engine::begin(&world, set)?));
        let (rank, ranks) = (world.rank()?, world.size()?);
        let world = Shared::of(world, WORLD, (0..ranks).collect(), &engine)?;
        let itself = Shared::of(universe.self_comm(), SELF, vec![rank], &engine)?;
        hook::begin(&engine);
        Ok(LoggedUniverse { engine, world, itself, universe })
    }

    /// MPI_COMM_WORLD.
    pub fn world(&self) -> LoggedCommunicator {
        LoggedCommunicator::new(Rc::clone(&self.world), Rc::clone(&self.engine))
    }

    /// MPI_COMM_SELF: this process alone.
    pub fn self_comm(&self) -> LoggedCommunicator {
        LoggedCommunicator::new(Rc::clone(&self.itself), Rc::clone(&self.engine))
    }

    /// How many bytes are set aside for buffered messages.
    pub fn buffer_size(&self) -> usize {
        self.universe.buffer_size()
    }

    /// Sets so many bytes aside for buffered messages, in place of those that were: waits first until these are empty. Each message that is
    /// under way takes its length and [`BUFFER_OVERHEAD`](crate::BUFFER_OVERHEAD) bytes.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]; nothing is set aside then.
    pub fn set_buffer_size(&self, bytes: usize) -> Result<(), LoggedError> {
        let set = self.universe.set_buffer_size(bytes);
        self.engine.borrow_mut().note_activity();
        Ok(set?)
    }

    /// Waits until all buffered messages have left; they find no room from then on, but for short ones, which may need none.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn detach_buffer(&self) -> Result<(), LoggedError> {
        let detached = self.universe.detach_buffer();
        self.engine.borrow_mut().note_activity();
        Ok(detached?)
    }

    /// Sets how long nothing may happen to any rank before a wait for room in this rank's log is given up
    /// ([`LoggedError::Space`]): 10 s, where nothing is set. It has to be longer than any one message or collective operation
    /// takes. Calls of MPI that aren't logged count for nothing.
    pub fn set_deadlock_after(&self, after: Duration) {
        self.engine.borrow_mut().set_deadlock_after(after);
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
