//! Start and end of logging.

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

/// An initialized MPI whose messages are logged.
#[derive(Debug)]
pub struct LoggedUniverse {
    engine: Rc<RefCell<Engine>>,
    world: Rc<Shared>,
    itself: Rc<Shared>,
    universe: Rc<Universe>,
}

impl LoggedUniverse {
    /// Opens this rank's log. Collective over MPI_COMM_WORLD. `set` changes the log's options; the defaults are 64 MiB of memory and
    /// [`Keep::Acked`](counterfoil::Keep::Acked).
    ///
    /// # Errors
    /// [`LoggedError::Open`], [`LoggedError::PeersOpen`], [`LoggedError::Mpi`].
    pub fn init(universe: Rc<Universe>, set: impl FnOnce(&mut Options)) -> Result<LoggedUniverse, LoggedError> {
        let world = universe.world();
        let engine = Rc::new(RefCell::new(Engine::begin(&world, set)?));
        let (rank, ranks) = (world.rank()?, world.size()?);
        let world = Shared::new(world, WORLD, (0..ranks).collect(), &engine)?;
        let itself = Shared::new(universe.self_comm(), SELF, vec![rank], &engine)?;
        hook::begin(&engine);
        Ok(LoggedUniverse { engine, world, itself, universe })
    }

    /// Returns MPI_COMM_WORLD.
    pub fn world(&self) -> LoggedCommunicator {
        LoggedCommunicator::new(Rc::clone(&self.world), Rc::clone(&self.engine))
    }

    /// Returns MPI_COMM_SELF, which has only this process.
    pub fn self_comm(&self) -> LoggedCommunicator {
        LoggedCommunicator::new(Rc::clone(&self.itself), Rc::clone(&self.engine))
    }

    /// Returns the size of the buffer for buffered sends, in bytes.
    pub fn buffer_size(&self) -> usize {
        self.universe.buffer_size()
    }

    /// Attaches a buffer of `bytes` for buffered sends, after the previous buffer's messages have left. A message takes its length and
    /// [`BUFFER_OVERHEAD`](crate::BUFFER_OVERHEAD) bytes.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]; no buffer is attached then.
    pub fn set_buffer_size(&self, bytes: usize) -> Result<(), LoggedError> {
        let set = self.universe.set_buffer_size(bytes);
        self.engine.borrow_mut().note_activity();
        Ok(set?)
    }

    /// Waits until all buffered messages have left, and detaches the buffer. Later buffered sends fail, except short ones that need no buffer.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn detach_buffer(&self) -> Result<(), LoggedError> {
        let detached = self.universe.detach_buffer();
        self.engine.borrow_mut().note_activity();
        Ok(detached?)
    }

    /// Sets how long no rank may make progress before a wait for room in this rank's log fails with [`LoggedError::Space`]. The default is
    /// 10 s. It has to be longer than any one message or collective operation takes. MPI calls that aren't logged are no progress.
    pub fn set_deadlock_after(&self, after: Duration) {
        self.engine.borrow_mut().set_deadlock_after(after);
    }

    /// Returns this rank's counts.
    pub fn account(&self) -> Account {
        self.engine.borrow().account()
    }

    /// Polls for acknowledgements, and returns the number of this rank's unacknowledged records.
    ///
    /// # Errors
    /// [`LoggedError`].
    pub fn unacknowledged(&self) -> Result<u64, LoggedError> {
        self.engine.borrow_mut().unacknowledged()
    }

    /// Ends logging, once no message is in transit: exchanges the last acknowledgements, and writes a log with a store completely to disk.
    /// Collective over MPI_COMM_WORLD, once. Communicators can't be used afterwards.
    ///
    /// # Errors
    /// [`LoggedError`].
    pub fn finish(&self) -> Result<Account, LoggedError> {
        self.engine.borrow_mut().finish()
    }
}
