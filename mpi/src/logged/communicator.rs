//! Communicators.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;

use counterfoil_mpi_logger::{CommId, Determinant, Members, Stream};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cartesian::CartesianCommunicator;
use super::engine::{Dropped, Engine};
use super::error::LoggedError;
use super::group::Group;
use crate::comm::Comm;
use crate::error::{MpiError, OperationError};
use crate::recovering::{Context, Grid, Recovering};
use crate::topology::CommunicatorRelation;
use crate::universe::Universe;

/// Carrier of a communicator's messages.
#[derive(Debug)]
pub(super) enum Port {
    /// MPI. What is sent is recorded.
    Mpi(Recorded),
    /// The endpoint of a rank that recovers.
    Recovering(Rc<Context>),
}

/// A communicator of MPI, registered with the logger.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) comm: Comm,
    pub(super) id: CommId,
    pub(super) engine: Rc<RefCell<Engine>>,
    rank: u32,
    /// Ranks in MPI_COMM_WORLD, by rank in this communicator.
    world: Vec<u32>,
    /// List of dropped communicators, which the engine frees.
    dropped: Dropped,
}

/// A communicator, shared by its handles and requests.
#[derive(Debug)]
pub struct Shared {
    pub(super) port: Port,
}

impl Recorded {
    /// Registers a communicator with these members, given by their ranks in MPI_COMM_WORLD.
    pub(super) fn new(
        comm: Comm,
        number: u32,
        world: Vec<u32>,
        engine: &Rc<RefCell<Engine>>,
    ) -> Result<Recorded, LoggedError> {
        let rank = comm.rank()?;
        let members = Members { world: world.as_slice().into(), rank: rank as i32, is_inter: false };
        let (id, dropped) = engine.borrow_mut().add_comm(number, members)?;
        Ok(Recorded { comm, id, engine: Rc::clone(engine), rank, world, dropped })
    }

    /// Agrees on the number of a new communicator and registers it. Collective over the new communicator.
    fn register(&self, comm: Comm) -> Result<Recorded, LoggedError> {
        let own = self.world_rank(self.rank)?;
        let number = self.engine.borrow_mut().agree_on_number(&comm)?;
        let mut bytes = vec![0; 4 * comm.size()? as usize];
        comm.all_gather(&own.to_le_bytes(), &mut bytes)?;
        let world = bytes.chunks_exact(4).filter_map(|rank| rank.try_into().ok().map(u32::from_le_bytes)).collect();
        Recorded::new(comm, number, world, &self.engine)
    }

    /// Returns the rank in MPI_COMM_WORLD of a rank of this communicator.
    pub(super) fn world_rank(&self, rank: u32) -> Result<u32, LoggedError> {
        let size = self.world.len() as u32;
        self.world.get(rank as usize).copied().ok_or(LoggedError::NoSuchRank { rank, size })
    }

    pub(super) fn stream(&self, to: u32, tag: i32) -> Result<Stream, LoggedError> {
        Ok(Stream::new(self.world_rank(to)?, self.id.number(), tag))
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        // The engine may be borrowed here; it frees the communicator at its next poll.
        self.dropped.borrow_mut().push(self.id);
    }
}

impl From<Recorded> for Shared {
    fn from(recorded: Recorded) -> Shared {
        Shared { port: Port::Mpi(recorded) }
    }
}

impl From<Rc<Context>> for Shared {
    fn from(context: Rc<Context>) -> Shared {
        Shared { port: Port::Recovering(context) }
    }
}

impl Shared {
    fn rank(&self) -> u32 {
        match &self.port {
            Port::Mpi(recorded) => recorded.rank,
            Port::Recovering(context) => context.rank(),
        }
    }

    /// Returns the ranks in MPI_COMM_WORLD, by rank in this communicator.
    fn world(&self) -> &[u32] {
        match &self.port {
            Port::Mpi(recorded) => &recorded.world,
            Port::Recovering(context) => context.members(),
        }
    }

    /// Returns the engine that records, if there is one.
    pub(super) fn engine(&self) -> Option<RefMut<'_, Engine>> {
        match &self.port {
            Port::Mpi(recorded) => Some(recorded.engine.borrow_mut()),
            Port::Recovering(_) => None,
        }
    }

    /// Counts a test or probe that found nothing.
    pub(super) fn count_failed_poll(&self) {
        if let Some(mut engine) = self.engine() {
            engine.count_failed_poll();
        }
    }

    /// Records a determinant, unless the endpoint does.
    pub(super) fn record(&self, determinant: Determinant) {
        if let Some(mut engine) = self.engine() {
            engine.record(determinant);
        }
    }

    pub(super) fn universe(&self) -> &Rc<Universe> {
        match &self.port {
            Port::Mpi(recorded) => &recorded.comm.universe,
            Port::Recovering(context) => context.process.universe(),
        }
    }
}

/// A communicator whose messages are logged. A clone is another handle of the same communicator; [`duplicate`](Self::duplicate) creates a
/// new one.
#[derive(Clone, Debug)]
pub struct LoggedCommunicator {
    pub(super) shared: Rc<Shared>,
}

/// A rank of a communicator.
#[derive(Clone, Copy, Debug)]
pub struct Process<'c> {
    pub(super) comm: &'c LoggedCommunicator,
    pub(super) rank: u32,
}

/// Any rank of a communicator.
#[derive(Clone, Copy, Debug)]
pub struct AnyProcess<'c> {
    pub(super) comm: &'c LoggedCommunicator,
}

impl LoggedCommunicator {
    pub(super) fn new(shared: Rc<Shared>) -> LoggedCommunicator {
        LoggedCommunicator { shared }
    }

    pub(super) fn port(&self) -> &Port {
        &self.shared.port
    }

    /// Returns this process's rank.
    pub fn rank(&self) -> u32 {
        self.shared.rank()
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.shared.world().len() as u32
    }

    /// Returns the number of the communicator, which is the same on all its ranks. No two communicators of a process that exist at the same
    /// time have the same one.
    pub fn number(&self) -> u32 {
        match self.port() {
            Port::Mpi(recorded) => recorded.id.number(),
            Port::Recovering(context) => context.number(),
        }
    }

    /// Returns a rank as destination, source or root.
    ///
    /// # Errors
    /// [`LoggedError::NoSuchRank`].
    pub fn process_at_rank(&self, rank: u32) -> Result<Process<'_>, LoggedError> {
        self.check_rank(rank)?;
        Ok(Process { comm: self, rank })
    }

    pub(super) fn check_rank(&self, rank: u32) -> Result<(), LoggedError> {
        let size = self.size();
        if rank < size { Ok(()) } else { Err(LoggedError::NoSuchRank { rank, size }) }
    }

    /// Returns this process as destination, source or root.
    pub fn this_process(&self) -> Process<'_> {
        Process { comm: self, rank: self.rank() }
    }

    /// Returns the wildcard `MPI_ANY_SOURCE`.
    pub fn any_process(&self) -> AnyProcess<'_> {
        AnyProcess { comm: self }
    }

    /// Creates a communicator from this one; `None` if this rank isn't in it.
    pub(super) fn create_by(
        &self,
        of_mpi: impl FnOnce(&Comm) -> Result<Option<Comm>, MpiError>,
        of_context: impl FnOnce(&Context) -> Result<Option<Rc<Context>>, OperationError>,
    ) -> Result<Option<LoggedCommunicator>, LoggedError> {
        let created = match self.port() {
            Port::Mpi(recorded) => {
                of_mpi(&recorded.comm)?.map(|comm| recorded.register(comm)).transpose()?.map(Shared::from)
            }
            Port::Recovering(context) => of_context(context)?.map(Shared::from),
        };
        Ok(created.map(|shared| LoggedCommunicator::new(Rc::new(shared))))
    }

    /// Returns the group of the communicator's ranks.
    pub fn group(&self) -> Group {
        let world = self.shared.world().to_vec();
        Group::of(world, self.rank())
    }

    /// Compares this communicator with another one: `MPI_Comm_compare`.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn compare(&self, other: &LoggedCommunicator) -> Result<CommunicatorRelation, LoggedError> {
        match (self.port(), other.port()) {
            (Port::Mpi(one), Port::Mpi(other)) => Ok(one.comm.compare(&other.comm)?),
            (Port::Recovering(one), Port::Recovering(other)) => Ok(one.compare(other)),
            _ => Err(OperationError::Mixed.into()),
        }
    }

    /// Returns the communicator's name, which debuggers show.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn get_name(&self) -> Result<String, LoggedError> {
        match self.port() {
            Port::Mpi(recorded) => Ok(recorded.comm.name()?),
            Port::Recovering(context) => Ok(context.name()),
        }
    }

    /// Names the communicator. MPI keeps the first 63 bytes.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn set_name(&self, name: &str) -> Result<(), LoggedError> {
        match self.port() {
            Port::Mpi(recorded) => Ok(recorded.comm.set_name(name)?),
            Port::Recovering(context) => {
                context.set_name(name);
                Ok(())
            }
        }
    }

    /// Saves `state` as this rank's checkpoint, and returns when it is durable; without one, while this process repeats what its predecessor has
    /// recorded. If the process is lost later, its replacement continues from there: [`restore`](Self::restore) returns the state, and
    /// [`LoggedUniverse::communicator`](super::LoggedUniverse::communicator) the communicators that exist now. For jobs that recover; each rank
    /// may call it at any time, on any communicator. Every request was waited for or dropped before, and every matched message received.
    ///
    /// # Errors
    /// [`LoggedError::NotRecovering`]; [`LoggedError::Recovery`] while requests are pending, and for a state that can't be encoded.
    pub fn checkpoint(&self, state: &impl Serialize) -> Result<(), LoggedError> {
        Ok(self.recovering()?.checkpoint(state)?)
    }

    /// Returns the state of the checkpoint from which this process continues; `None` in a process that begins from the beginning.
    ///
    /// A program calls this before anything else that communicates: what it did before the checkpoint is not repeated.
    ///
    /// # Errors
    /// [`LoggedError::NotRecovering`]; [`LoggedError::Recovery`] for a checkpoint of another type.
    pub fn restore<S: DeserializeOwned>(&self) -> Result<Option<S>, LoggedError> {
        Ok(self.recovering()?.restore()?)
    }

    fn recovering(&self) -> Result<&Recovering, LoggedError> {
        match self.port() {
            Port::Mpi(_) => Err(LoggedError::NotRecovering),
            Port::Recovering(context) => Ok(&context.process),
        }
    }

    /// Ends all processes of the job: `MPI_Abort`. Their logs are left as by a crash.
    pub fn abort(&self, code: i32) -> ! {
        self.shared.universe().world().abort(code);
        std::process::abort()
    }

    /// Duplicates the communicator: messages of the two are never matched with each other. Collective.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn duplicate(&self) -> Result<LoggedCommunicator, LoggedError> {
        let created = match self.port() {
            Port::Mpi(recorded) => recorded.register(recorded.comm.dup()?)?.into(),
            Port::Recovering(context) => context.duplicate()?.into(),
        };
        Ok(LoggedCommunicator::new(Rc::new(created)))
    }

    /// Creates a communicator of the ranks that give the same `color`, in their order; `None` for ranks that give `None`. Collective.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn split_by_color(&self, color: Option<u32>) -> Result<Option<LoggedCommunicator>, LoggedError> {
        self.split_by_color_with_key(color, 0)
    }

    /// Same as [`split_by_color`](Self::split_by_color), with ranks in the order of `key`.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn split_by_color_with_key(
        &self,
        color: Option<u32>,
        key: i32,
    ) -> Result<Option<LoggedCommunicator>, LoggedError> {
        self.create_by(|comm| comm.split(color, key), |context| context.split(color, key, None))
    }

    /// Creates a communicator of the ranks that share memory with this one, in the order of `key`. Collective.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]. [`LoggedError::NotRecoverable`] in a job that recovers: a rank may continue on another host.
    pub fn split_shared(&self, key: i32) -> Result<Option<LoggedCommunicator>, LoggedError> {
        // A replacement of a rank may run on another host.
        let refused = OperationError::NotRecoverable { call: "MPI_Comm_split_type" };
        self.create_by(|comm| comm.split_shared(key), |_| Err(refused))
    }

    /// Creates a communicator of a group's ranks, in the group's order; `None` for ranks that aren't in the group. Collective: all ranks give
    /// the same group, or disjoint ones.
    ///
    /// # Errors
    /// [`LoggedError::NotInCommunicator`]; [`LoggedError::Mpi`].
    pub fn split_by_subgroup_collective(&self, group: &Group) -> Result<Option<LoggedCommunicator>, LoggedError> {
        let ranks = group.ranks_in(self.shared.world())?;
        self.create_by(|comm| comm.create(&ranks), |context| context.create_of(&ranks))
    }

    /// Same as [`split_by_subgroup_collective`](Self::split_by_subgroup_collective), collective over the group only. Other ranks get `None`
    /// at once.
    ///
    /// # Errors
    /// Same as [`split_by_subgroup_collective`](Self::split_by_subgroup_collective).
    pub fn split_by_subgroup(&self, group: &Group) -> Result<Option<LoggedCommunicator>, LoggedError> {
        self.split_by_subgroup_with_tag(group, 0)
    }

    /// Same as [`split_by_subgroup`](Self::split_by_subgroup), with a tag that distinguishes concurrent calls.
    ///
    /// # Errors
    /// Same as [`split_by_subgroup_collective`](Self::split_by_subgroup_collective).
    pub fn split_by_subgroup_with_tag(
        &self,
        group: &Group,
        tag: i32,
    ) -> Result<Option<LoggedCommunicator>, LoggedError> {
        let ranks = group.ranks_in(self.shared.world())?;
        if !ranks.contains(&self.rank()) {
            return Ok(None);
        }
        self.create_by(|comm| comm.create_group(&ranks, tag), |context| context.create_group(&ranks, tag))
    }

    /// Creates a communicator with a Cartesian topology: `dims` ranks in each dimension, periodic where `periods` is true. `None` for ranks
    /// outside the grid. MPI may renumber the ranks if it `may_reorder`. Collective.
    ///
    /// # Errors
    /// [`LoggedError::Dimensions`] if `periods` isn't as long as `dims`; [`LoggedError::Mpi`] if the grid has more places than there are ranks.
    pub fn create_cartesian_communicator(
        &self,
        dims: &[u32],
        periods: &[bool],
        may_reorder: bool,
    ) -> Result<Option<CartesianCommunicator>, LoggedError> {
        check_dimensions(periods.len(), dims.len())?;
        let grid = || Grid { dims: dims.to_vec(), periods: periods.to_vec() };
        let grid =
            self.create_by(|comm| comm.cart_create(dims, periods, may_reorder), |context| context.create_grid(grid()))?;
        grid.map(CartesianCommunicator::new).transpose()
    }

    /// Returns the communicator as one with a Cartesian topology, which it has from a grid's communicator that it duplicates or restores.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`] if it has none.
    pub fn into_cartesian(self) -> Result<CartesianCommunicator, LoggedError> {
        CartesianCommunicator::new(self)
    }

    /// Returns the rank that MPI would give this process on such a grid, or `None` for a process outside it: `MPI_Cart_map`.
    ///
    /// # Errors
    /// Same as [`create_cartesian_communicator`](Self::create_cartesian_communicator).
    pub fn cartesian_map(&self, dims: &[u32], periods: &[bool]) -> Result<Option<u32>, LoggedError> {
        check_dimensions(periods.len(), dims.len())?;
        match self.port() {
            Port::Mpi(recorded) => Ok(recorded.comm.cart_map(dims, periods)?),
            Port::Recovering(context) => Ok(context.place_in(dims)),
        }
    }
}

/// Checks that there is one number for each dimension.
pub(super) fn check_dimensions(given: usize, dims: usize) -> Result<(), LoggedError> {
    if given == dims { Ok(()) } else { Err(LoggedError::Dimensions { given, dims }) }
}

impl Process<'_> {
    /// Returns the process's rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns `true` for the calling process.
    pub fn is_self(&self) -> bool {
        self.rank == self.comm.rank()
    }
}
