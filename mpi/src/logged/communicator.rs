//! Communicators.

use std::rc::Rc;

use counterfoil_mpi_core::topology::CommunicatorRelation;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::carrier::{Carrier, Created};
use super::error::LoggedError;
use super::group::Group;
use crate::recovering::Recovering;

/// A communicator with logged messages.
///
/// A clone is another handle to the same communicator; [`duplicate`](Self::duplicate) creates a new one.
#[derive(Clone, Debug)]
pub struct LoggedCommunicator {
    pub(super) carrier: Rc<dyn Carrier>,
}

/// A communicator's rank.
#[derive(Clone, Copy, Debug)]
pub struct Process<'c> {
    pub(super) comm: &'c LoggedCommunicator,
    pub(super) rank: u32,
}

/// Any of a communicator's ranks.
#[derive(Clone, Copy, Debug)]
pub struct AnyProcess<'c> {
    pub(super) comm: &'c LoggedCommunicator,
}

impl LoggedCommunicator {
    pub(super) fn new(carrier: Rc<dyn Carrier>) -> LoggedCommunicator {
        LoggedCommunicator { carrier }
    }

    /// Returns a carrier's new communicator.
    pub(super) fn created(created: Created) -> Result<Option<LoggedCommunicator>, LoggedError> {
        Ok(created?.map(LoggedCommunicator::new))
    }

    /// Returns this process's rank.
    pub fn rank(&self) -> u32 {
        self.carrier.rank()
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.carrier.world().len() as u32
    }

    /// Returns the communicator's number, the same on all its ranks.
    ///
    /// No two existing communicators of a process share a number.
    pub fn number(&self) -> u32 {
        self.carrier.number()
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

    /// Returns the group with the communicator's ranks.
    pub fn group(&self) -> Group {
        let world = self.carrier.world().to_vec();
        Group::of(world, self.rank())
    }

    /// Compares this communicator with another one: `MPI_Comm_compare`.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn compare(&self, other: &LoggedCommunicator) -> Result<CommunicatorRelation, LoggedError> {
        self.carrier.compare(&*other.carrier)
    }

    /// Returns the communicator's name, as shown by debuggers.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn get_name(&self) -> Result<String, LoggedError> {
        self.carrier.name()
    }

    /// Names the communicator.
    ///
    /// MPI keeps the first 63 bytes.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn set_name(&self, name: &str) -> Result<(), LoggedError> {
        self.carrier.set_name(name)
    }

    /// Saves `state` as this rank's checkpoint, and returns when it is durable; takes none while this process repeats
    /// its predecessor's recorded execution.
    ///
    /// If the process is lost later, its replacement continues from there: [`restore`](Self::restore) returns the
    /// state, and [`LoggedUniverse::communicator`](super::LoggedUniverse::communicator) the communicators existing now.
    /// For recovering jobs; each rank may call it at any time, on any communicator. Every request was waited for or
    /// dropped before, and every matched message received.
    ///
    /// # Errors
    /// [`LoggedError::NotRecovering`]; [`LoggedError::Recovery`] while requests are pending, and if the state can't be
    /// encoded.
    pub fn checkpoint(&self, state: &impl Serialize) -> Result<(), LoggedError> {
        Ok(self.recovering()?.checkpoint(state)?)
    }

    /// Returns the state in the checkpoint this process continues from; `None` in a process starting from the
    /// beginning.
    ///
    /// A program calls this before any other communication: its actions before the checkpoint are not repeated.
    ///
    /// # Errors
    /// [`LoggedError::NotRecovering`]; [`LoggedError::Recovery`] for a checkpoint with another type.
    pub fn restore<S: DeserializeOwned>(&self) -> Result<Option<S>, LoggedError> {
        Ok(self.recovering()?.restore()?)
    }

    fn recovering(&self) -> Result<&Recovering, LoggedError> {
        self.carrier.recovering().ok_or(LoggedError::NotRecovering)
    }

    /// Ends all of the job's processes: `MPI_Abort`.
    ///
    /// Their logs are left as by a crash.
    pub fn abort(&self, code: i32) -> ! {
        self.carrier.universe().world().abort(code);
        std::process::abort()
    }

    /// Duplicates the communicator: messages on the two never match each other.
    ///
    /// Collective.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn duplicate(&self) -> Result<LoggedCommunicator, LoggedError> {
        Ok(LoggedCommunicator::new(self.carrier.duplicate()?))
    }

    /// Creates a communicator from the ranks with the same `color`, in their order; `None` for ranks with color `None`.
    ///
    /// Collective.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn split_by_color(&self, color: Option<u32>) -> Result<Option<LoggedCommunicator>, LoggedError> {
        self.split_by_color_with_key(color, 0)
    }

    /// Same as [`split_by_color`](Self::split_by_color), with ranks ordered by `key`.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn split_by_color_with_key(
        &self,
        color: Option<u32>,
        key: i32,
    ) -> Result<Option<LoggedCommunicator>, LoggedError> {
        LoggedCommunicator::created(self.carrier.split(color, key))
    }

    /// Creates a communicator from the ranks sharing memory with this one, ordered by `key`.
    ///
    /// Collective.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]. [`LoggedError::NotRecoverable`] in a recovering job: a rank may continue on another host.
    pub fn split_shared(&self, key: i32) -> Result<Option<LoggedCommunicator>, LoggedError> {
        LoggedCommunicator::created(self.carrier.split_shared(key))
    }

    /// Creates a communicator from a group's ranks, in the group's order; `None` for ranks outside the group.
    ///
    /// Collective: all ranks give the same group, or disjoint ones.
    ///
    /// # Errors
    /// [`LoggedError::NotInCommunicator`]; [`LoggedError::Mpi`].
    pub fn split_by_subgroup_collective(&self, group: &Group) -> Result<Option<LoggedCommunicator>, LoggedError> {
        let ranks = group.ranks_in(self.carrier.world())?;
        LoggedCommunicator::created(self.carrier.create(&ranks))
    }

    /// Same as [`split_by_subgroup_collective`](Self::split_by_subgroup_collective), collective over the group only.
    ///
    /// Other ranks get `None` at once.
    ///
    /// # Errors
    /// Same as [`split_by_subgroup_collective`](Self::split_by_subgroup_collective).
    pub fn split_by_subgroup(&self, group: &Group) -> Result<Option<LoggedCommunicator>, LoggedError> {
        self.split_by_subgroup_with_tag(group, 0)
    }

    /// Same as [`split_by_subgroup`](Self::split_by_subgroup), with a tag to distinguish concurrent calls.
    ///
    /// # Errors
    /// Same as [`split_by_subgroup_collective`](Self::split_by_subgroup_collective).
    pub fn split_by_subgroup_with_tag(
        &self,
        group: &Group,
        tag: i32,
    ) -> Result<Option<LoggedCommunicator>, LoggedError> {
        let ranks = group.ranks_in(self.carrier.world())?;
        if !ranks.contains(&self.rank()) {
            return Ok(None);
        }
        LoggedCommunicator::created(self.carrier.create_group(&ranks, tag))
    }
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
