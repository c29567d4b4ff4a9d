//! Communicators.

use std::cell::RefCell;
use std::rc::Rc;

use counterfoil_mpi_logger::{CommId, Members};

use super::cartesian::CartesianCommunicator;
use super::engine::{Dropped, Engine};
use super::error::LoggedError;
use super::group::Group;
use crate::comm::Comm;
use crate::error::MpiError;
use crate::topology::CommunicatorRelation;

/// A communicator, shared by its handles and requests.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) comm: Comm,
    pub(super) id: CommId,
    pub(super) rank: u32,
    /// Ranks in MPI_COMM_WORLD, by rank in this communicator.
    world: Vec<u32>,
    /// List of dropped communicators, which the engine frees.
    dropped: Dropped,
}

impl Shared {
    /// Registers a communicator with these members, given by their ranks in MPI_COMM_WORLD.
    pub(super) fn new(
        comm: Comm,
        number: u32,
        world: Vec<u32>,
        engine: &RefCell<Engine>,
    ) -> Result<Rc<Shared>, LoggedError> {
        let rank = comm.rank()?;
        let members = Members { world: world.as_slice().into(), rank: rank as i32, is_inter: false };
        let (id, dropped) = engine.borrow_mut().add_comm(number, members)?;
        Ok(Rc::new(Shared { comm, id, rank, world, dropped }))
    }

    /// Agrees on the number of a new communicator and registers it. Collective over the new communicator.
    fn register(comm: Comm, own: u32, engine: &RefCell<Engine>) -> Result<Rc<Shared>, LoggedError> {
        let number = engine.borrow_mut().agree_on_number(&comm)?;
        let mut bytes = vec![0; 4 * comm.size()? as usize];
        comm.all_gather(&own.to_le_bytes(), &mut bytes)?;
        let world = bytes.chunks_exact(4).filter_map(|rank| rank.try_into().ok().map(u32::from_le_bytes)).collect();
        Shared::new(comm, number, world, engine)
    }

    /// Returns the rank in MPI_COMM_WORLD of a rank of this communicator.
    pub(super) fn world_rank(&self, rank: u32) -> Result<u32, LoggedError> {
        let size = self.world.len() as u32;
        self.world.get(rank as usize).copied().ok_or(LoggedError::NoSuchRank { rank, size })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The engine may be borrowed here; it frees the communicator at its next poll.
        self.dropped.borrow_mut().push(self.id);
    }
}

/// A communicator whose messages are logged. A clone is another handle of the same communicator; [`duplicate`](Self::duplicate) creates a
/// new one.
#[derive(Clone, Debug)]
pub struct LoggedCommunicator {
    pub(super) shared: Rc<Shared>,
    pub(super) engine: Rc<RefCell<Engine>>,
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
    pub(super) fn new(shared: Rc<Shared>, engine: Rc<RefCell<Engine>>) -> LoggedCommunicator {
        LoggedCommunicator { shared, engine }
    }

    /// Returns this process's rank.
    pub fn rank(&self) -> u32 {
        self.shared.rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.shared.world.len() as u32
    }

    /// Returns a rank as destination, source or root.
    ///
    /// # Errors
    /// [`LoggedError::NoSuchRank`].
    pub fn process_at_rank(&self, rank: u32) -> Result<Process<'_>, LoggedError> {
        self.shared.world_rank(rank)?;
        Ok(Process { comm: self, rank })
    }

    /// Returns this process as destination, source or root.
    pub fn this_process(&self) -> Process<'_> {
        Process { comm: self, rank: self.rank() }
    }

    /// Returns the wildcard `MPI_ANY_SOURCE`.
    pub fn any_process(&self) -> AnyProcess<'_> {
        AnyProcess { comm: self }
    }

    /// Registers a communicator that was created from this one.
    fn register(&self, comm: Comm) -> Result<LoggedCommunicator, LoggedError> {
        let own = self.shared.world_rank(self.rank())?;
        let shared = Shared::register(comm, own, &self.engine)?;
        Ok(LoggedCommunicator::new(shared, Rc::clone(&self.engine)))
    }

    /// Registers a communicator that was created from this one, if this rank is in it.
    pub(super) fn register_if_member(
        &self,
        created: Result<Option<Comm>, MpiError>,
    ) -> Result<Option<LoggedCommunicator>, LoggedError> {
        created?.map(|comm| self.register(comm)).transpose()
    }

    /// Returns the group of the communicator's ranks.
    pub fn group(&self) -> Group {
        Group::of(self.shared.world.clone(), &self.engine)
    }

    /// Compares this communicator with another one: `MPI_Comm_compare`.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn compare(&self, other: &LoggedCommunicator) -> Result<CommunicatorRelation, LoggedError> {
        Ok(self.shared.comm.compare(&other.shared.comm)?)
    }

    /// Returns the communicator's name, which debuggers show.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn get_name(&self) -> Result<String, LoggedError> {
        Ok(self.shared.comm.name()?)
    }

    /// Names the communicator. MPI keeps the first 63 bytes.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn set_name(&self, name: &str) -> Result<(), LoggedError> {
        Ok(self.shared.comm.set_name(name)?)
    }

    /// Ends all processes of the job: `MPI_Abort`. Their logs are left as by a crash.
    pub fn abort(&self, code: i32) -> ! {
        self.shared.comm.abort(code);
        std::process::abort()
    }

    /// Duplicates the communicator: messages of the two are never matched with each other. Collective.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn duplicate(&self) -> Result<LoggedCommunicator, LoggedError> {
        self.register(self.shared.comm.dup()?)
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
        self.register_if_member(self.shared.comm.split(color, key))
    }

    /// Creates a communicator of the ranks that share memory with this one, in the order of `key`. Collective.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn split_shared(&self, key: i32) -> Result<Option<LoggedCommunicator>, LoggedError> {
        self.register_if_member(self.shared.comm.split_shared(key))
    }

    /// Creates a communicator of a group's ranks, in the group's order; `None` for ranks that aren't in the group. Collective: all ranks give
    /// the same group, or disjoint ones.
    ///
    /// # Errors
    /// [`LoggedError::NotInCommunicator`]; [`LoggedError::Mpi`].
    pub fn split_by_subgroup_collective(&self, group: &Group) -> Result<Option<LoggedCommunicator>, LoggedError> {
        self.register_if_member(self.shared.comm.create(&group.ranks_in(&self.shared.world)?))
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
        let ranks = group.ranks_in(&self.shared.world)?;
        if !ranks.contains(&self.rank()) {
            return Ok(None);
        }
        self.register_if_member(self.shared.comm.create_group(&ranks, tag))
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
        let grid = self.register_if_member(self.shared.comm.cart_create(dims, periods, may_reorder))?;
        grid.map(CartesianCommunicator::new).transpose()
    }

    /// Returns the rank that MPI would give this process on such a grid, or `None` for a process outside it: `MPI_Cart_map`.
    ///
    /// # Errors
    /// Same as [`create_cartesian_communicator`](Self::create_cartesian_communicator).
    pub fn cartesian_map(&self, dims: &[u32], periods: &[bool]) -> Result<Option<u32>, LoggedError> {
        check_dimensions(periods.len(), dims.len())?;
        Ok(self.shared.comm.cart_map(dims, periods)?)
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
