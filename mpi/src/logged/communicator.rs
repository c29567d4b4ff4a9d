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
    /// Rank in MPI_COMM_WORLD of each of its ranks.
    world: Vec<u32>,
    /// Where its drop is noted.
    dropped: Dropped,
}

impl Shared {
    /// Adds a communicator with these members, ranks of MPI_COMM_WORLD.
    pub(super) fn of(
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

    /// Adds a new communicator. All its ranks call this.
    fn made(comm: Comm, own: u32, engine: &RefCell<Engine>) -> Result<Rc<Shared>, LoggedError> {
        let number = engine.borrow_mut().agree_on_number(&comm)?;
        let mut bytes = vec![0; 4 * comm.size()? as usize];
        comm.all_gather(&own.to_le_bytes(), &mut bytes)?;
        let world = bytes.chunks_exact(4).filter_map(|rank| rank.try_into().ok().map(u32::from_le_bytes)).collect();
        Shared::of(comm, number, world, engine)
    }

    /// Returns the rank in MPI_COMM_WORLD of a rank of it.
    pub(super) fn world(&self, rank: u32) -> Result<u32, LoggedError> {
        let size = self.world.len() as u32;
        self.world.get(rank as usize).copied().ok_or(LoggedError::NoSuchRank { rank, size })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The engine may be in use here: it frees the communicator when it polls next.
        self.dropped.borrow_mut().push(self.id);
    }
}

/// A communicator whose messages are logged. A clone is another handle of the same communicator; [`duplicate`](Self::duplicate) makes
/// another one.
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

    /// This process's rank.
    pub fn rank(&self) -> u32 {
        self.shared.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.shared.world.len() as u32
    }

    /// A rank of it.
    ///
    /// # Errors
    /// [`LoggedError::NoSuchRank`].
    pub fn process_at_rank(&self, rank: u32) -> Result<Process<'_>, LoggedError> {
        self.shared.world(rank)?;
        Ok(Process { comm: self, rank })
    }

    /// This process.
    pub fn this_process(&self) -> Process<'_> {
        Process { comm: self, rank: self.rank() }
    }

    /// Whoever sends.
    pub fn any_process(&self) -> AnyProcess<'_> {
        AnyProcess { comm: self }
    }

    fn made(&self, comm: Comm) -> Result<LoggedCommunicator, LoggedError> {
        let own = self.shared.world(self.rank())?;
        let shared = Shared::made(comm, own, &self.engine)?;
        Ok(LoggedCommunicator::new(shared, Rc::clone(&self.engine)))
    }

    /// A communicator that was made of this one, where it was.
    pub(super) fn made_by(
        &self,
        made: Result<Option<Comm>, MpiError>,
    ) -> Result<Option<LoggedCommunicator>, LoggedError> {
        made?.map(|comm| self.made(comm)).transpose()
    }

    /// Its ranks.
    pub fn group(&self) -> Group {
        Group::of(self.shared.world.clone(), &self.engine)
    }

    /// Whether this communicator and another one are the same, or have the same ranks.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn compare(&self, other: &LoggedCommunicator) -> Result<CommunicatorRelation, LoggedError> {
        Ok(self.shared.comm.compare(&other.shared.comm)?)
    }

    /// Its name, for debuggers.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn get_name(&self) -> Result<String, LoggedError> {
        Ok(self.shared.comm.name()?)
    }

    /// Gives it a name, of which MPI keeps the first 63 bytes.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn set_name(&self, name: &str) -> Result<(), LoggedError> {
        Ok(self.shared.comm.set_name(name)?)
    }

    /// Ends all processes of the job. What is in their logs is what a crash leaves of these.
    pub fn abort(&self, code: i32) -> ! {
        self.shared.comm.abort(code);
        std::process::abort()
    }

    /// Another communicator of the same ranks, whose messages don't meet those of this one. All ranks call it.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn duplicate(&self) -> Result<LoggedCommunicator, LoggedError> {
        self.made(self.shared.comm.dup()?)
    }

    /// The part of it whose ranks give the same `color`; `None` for those that give `None`. Ranks keep their order. All ranks call it.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn split_by_color(&self, color: Option<u32>) -> Result<Option<LoggedCommunicator>, LoggedError> {
        self.split_by_color_with_key(color, 0)
    }

    /// As [`split_by_color`](Self::split_by_color), with ranks in the order of `key`.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn split_by_color_with_key(
        &self,
        color: Option<u32>,
        key: i32,
    ) -> Result<Option<LoggedCommunicator>, LoggedError> {
        self.made_by(self.shared.comm.split(color, key))
    }

    /// The part of it whose ranks share memory, in the order of `key`. All ranks call it.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn split_shared(&self, key: i32) -> Result<Option<LoggedCommunicator>, LoggedError> {
        self.made_by(self.shared.comm.split_shared(key))
    }

    /// The communicator of a group's ranks, in the group's order; `None` for those that aren't in it. All ranks call it, with the same
    /// group, or with groups that have nobody in common.
    ///
    /// # Errors
    /// [`LoggedError::NoMember`]; [`LoggedError::Mpi`].
    pub fn split_by_subgroup_collective(&self, group: &Group) -> Result<Option<LoggedCommunicator>, LoggedError> {
        self.made_by(self.shared.comm.create(&group.ranks_in(&self.shared.world)?))
    }

    /// As [`split_by_subgroup_collective`](Self::split_by_subgroup_collective), called by the group's ranks alone; who isn't in it gets
    /// `None` at once.
    ///
    /// # Errors
    /// As of [`split_by_subgroup_collective`](Self::split_by_subgroup_collective).
    pub fn split_by_subgroup(&self, group: &Group) -> Result<Option<LoggedCommunicator>, LoggedError> {
        self.split_by_subgroup_with_tag(group, 0)
    }

    /// As [`split_by_subgroup`](Self::split_by_subgroup), with a tag that tells it from other such calls at the same time.
    ///
    /// # Errors
    /// As of [`split_by_subgroup_collective`](Self::split_by_subgroup_collective).
    pub fn split_by_subgroup_with_tag(
        &self,
        group: &Group,
        tag: i32,
    ) -> Result<Option<LoggedCommunicator>, LoggedError> {
        let ranks = group.ranks_in(&self.shared.world)?;
        if !ranks.contains(&self.rank()) {
            return Ok(None);
        }
        self.made_by(self.shared.comm.create_group(&ranks, tag))
    }

    /// The same ranks on a grid, of as many dimensions as `dims` has numbers; `None` for ranks that it has no place for. `periods` says in
    /// which dimensions the last rank is a neighbour of the first; MPI may give ranks other numbers if it `may_reorder`. All ranks call it.
    ///
    /// # Errors
    /// [`LoggedError::Dimensions`] if `periods` isn't as long as `dims`; [`LoggedError::Mpi`] if there are not as many ranks.
    pub fn create_cartesian_communicator(
        &self,
        dims: &[u32],
        periods: &[bool],
        may_reorder: bool,
    ) -> Result<Option<CartesianCommunicator>, LoggedError> {
        same(periods.len(), dims.len())?;
        let made = self.made_by(self.shared.comm.cart_create(dims, periods, may_reorder))?;
        made.map(CartesianCommunicator::new).transpose()
    }

    /// The rank that this process would have on such a grid, if MPI were free to choose; `None` if it had none.
    ///
    /// # Errors
    /// As of [`create_cartesian_communicator`](Self::create_cartesian_communicator).
    pub fn cartesian_map(&self, dims: &[u32], periods: &[bool]) -> Result<Option<u32>, LoggedError> {
        same(periods.len(), dims.len())?;
        Ok(self.shared.comm.cart_map(dims, periods)?)
    }
}

/// Whether there is one number for each dimension.
pub(super) fn same(given: usize, dims: usize) -> Result<(), LoggedError> {
    if given == dims { Ok(()) } else { Err(LoggedError::Dimensions { given, dims }) }
}

impl Process<'_> {
    /// Its rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Whether it is this process.
    pub fn is_self(&self) -> bool {
        self.rank == self.comm.rank()
    }
}
