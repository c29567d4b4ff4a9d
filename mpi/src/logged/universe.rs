//! Start and end of logging.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use counterfoil::Options;
use counterfoil_mpi_core::universe::Universe;
use counterfoil_mpi_logger::{SELF, WORLD};

use super::carrier::Carrier;
use super::communicator::LoggedCommunicator;
use super::endpoint_carrier::EndpointCarrier;
use super::engine::{Account, Engine};
use super::error::LoggedError;
use super::hook;
use super::mpi_carrier::MpiCarrier;
use crate::error::OperationError;
use crate::recovering::Recovering;

/// An initialised MPI with logged messages.
#[derive(Debug)]
pub struct LoggedUniverse {
    job: Job,
    universe: Rc<Universe>,
}

/// Kind of this process's job.
#[derive(Debug)]
enum Job {
    /// A job with logs for others to use.
    Recorded { engine: Rc<RefCell<Engine>>, world: Rc<dyn Carrier>, itself: Rc<dyn Carrier> },
    /// A recovering job.
    Recovering { rank: Rc<Recovering>, world: Rc<dyn Carrier>, itself: Rc<dyn Carrier> },
}

impl LoggedUniverse {
    /// Opens this rank's log.
    ///
    /// Collective over MPI_COMM_WORLD. `set` changes the log's options; the defaults are 64 MiB of memory and
    /// [`Keep::Acked`](counterfoil::Keep::Acked).
    ///
    /// # Errors
    /// [`LoggedError::Open`], [`LoggedError::PeersOpen`], [`LoggedError::Mpi`].
    pub fn init(universe: Rc<Universe>, set: impl FnOnce(&mut Options)) -> Result<LoggedUniverse, LoggedError> {
        let world = universe.world();
        let engine = Rc::new(RefCell::new(Engine::begin(&world, set)?));
        let (rank, ranks) = (world.rank()?, world.size()?);
        let world = MpiCarrier::registered(world, WORLD, (0..ranks).collect(), &engine)?;
        let itself = MpiCarrier::registered(universe.self_comm(), SELF, vec![rank], &engine)?;
        hook::begin(&engine);
        Ok(LoggedUniverse { job: Job::Recorded { engine, world, itself }, universe })
    }

    /// Makes a recovering rank's communicators.
    pub(crate) fn recovering(rank: &Rc<Recovering>) -> Result<LoggedUniverse, OperationError> {
        let (world, itself) = (EndpointCarrier::of(rank.world()?), EndpointCarrier::of(rank.itself()));
        let job = Job::Recovering { rank: Rc::clone(rank), world, itself };
        Ok(LoggedUniverse { job, universe: Rc::clone(rank.universe()) })
    }

    /// Returns MPI_COMM_WORLD; in a recovering job, the communicator with its ranks, without the spares.
    pub fn world(&self) -> LoggedCommunicator {
        let (Job::Recorded { world, .. } | Job::Recovering { world, .. }) = &self.job;
        LoggedCommunicator::new(Rc::clone(world))
    }

    /// Returns MPI_COMM_SELF, with this process only.
    pub fn self_comm(&self) -> LoggedCommunicator {
        let (Job::Recorded { itself, .. } | Job::Recovering { itself, .. }) = &self.job;
        LoggedCommunicator::new(Rc::clone(itself))
    }

    /// Returns `true` in a recovering job, run by [`run_logged`](crate::recovery::run_logged).
    pub fn recovers(&self) -> bool {
        matches!(self.job, Job::Recovering { .. })
    }

    /// Returns a recovering job's communicator by its [`number`](LoggedCommunicator::number).
    ///
    /// It exists, or existed at the [checkpoint](LoggedCommunicator::checkpoint) this process continues from. Not
    /// collective.
    ///
    /// # Errors
    /// [`LoggedError::NoSuchCommunicator`], [`LoggedError::NotRecovering`].
    pub fn communicator(&self, number: u32) -> Result<LoggedCommunicator, LoggedError> {
        let Job::Recovering { rank, .. } = &self.job else { return Err(LoggedError::NotRecovering) };
        let context = rank.communicator(number).ok_or(LoggedError::NoSuchCommunicator { number })?;
        Ok(LoggedCommunicator::new(EndpointCarrier::of(context)))
    }

    /// Returns the size of the buffer for buffered sends, in bytes.
    pub fn buffer_size(&self) -> usize {
        self.universe.buffer_size()
    }

    /// Attaches a buffer of `bytes` for buffered sends, after the previous buffer's messages have left.
    ///
    /// A message takes its length and [`BUFFER_OVERHEAD`](crate::BUFFER_OVERHEAD) bytes.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]; no buffer is attached then.
    pub fn set_buffer_size(&self, bytes: usize) -> Result<(), LoggedError> {
        let set = self.universe.set_buffer_size(bytes);
        self.note_activity();
        Ok(set?)
    }

    /// Waits until all buffered messages have left, and detaches the buffer.
    ///
    /// Later buffered sends fail, except short ones without need for a buffer.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn detach_buffer(&self) -> Result<(), LoggedError> {
        let detached = self.universe.detach_buffer();
        self.note_activity();
        Ok(detached?)
    }

    fn note_activity(&self) {
        if let Job::Recorded { engine, .. } = &self.job {
            engine.borrow_mut().note_activity();
        }
    }

    /// Sets the time without progress on any rank after which a wait for room in this rank's log fails with
    /// [`LoggedError::Space`]; with zero a send without room fails at once.
    ///
    /// The default is 10 s. It has to be longer than any one message or collective operation takes. Unlogged MPI calls
    /// are no progress. In a recovering job it is the longest wait for room.
    pub fn set_deadlock_after(&self, after: Duration) {
        match &self.job {
            Job::Recorded { engine, .. } => engine.borrow_mut().set_deadlock_after(after),
            Job::Recovering { rank, .. } => rank.set_full_wait_max(after),
        }
    }

    /// Returns this rank's counts.
    ///
    /// In a recovering job, collective operations are made of messages, and counted as such.
    pub fn account(&self) -> Account {
        match &self.job {
            Job::Recorded { engine, .. } => engine.borrow().account(),
            Job::Recovering { rank, .. } => {
                let (tally, contributions) = rank.counts();
                Account {
                    messages_logged: tally.messages_logged,
                    bytes_logged: tally.bytes_logged,
                    messages_received: tally.messages_delivered,
                    contributions,
                    determinants: tally.choices_logged,
                }
            }
        }
    }

    /// Polls for acknowledgements, and returns the number of this rank's unacknowledged records.
    ///
    /// # Errors
    /// [`LoggedError`]; [`LoggedError::NotRecoverable`] in a recovering job, since it keeps records for longer.
    pub fn unacknowledged(&self) -> Result<u64, LoggedError> {
        match &self.job {
            Job::Recorded { engine, .. } => engine.borrow_mut().unacknowledged(),
            Job::Recovering { .. } => Err(LoggedError::NotRecoverable { call: "unacknowledged" }),
        }
    }

    /// Ends logging, once no message is in transit: exchanges the last acknowledgements, and writes a log with a store
    /// completely to disk.
    ///
    /// Collective over MPI_COMM_WORLD, once. Communicators can't be used afterwards. In a recovering job, only returns
    /// the counts: the rank ends when its closure returns.
    ///
    /// # Errors
    /// [`LoggedError`].
    pub fn finish(&self) -> Result<Account, LoggedError> {
        match &self.job {
            Job::Recorded { engine, .. } => engine.borrow_mut().finish(),
            Job::Recovering { .. } => Ok(self.account()),
        }
    }
}
