//! Communicators.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::engine::Engine;
use super::error::LoggedError;
use crate::comm::Comm;
use crate::matching::Matching;

/// What all handles and requests of a communicator share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) comm: Comm,
    /// The number that all its ranks know it by.
    pub(super) number: u32,
    pub(super) rank: u32,
    /// The rank in MPI_COMM_WORLD of each of its ranks.
    world: Vec<u32>,
    pub(super) matching: RefCell<Matching>,
    /// Collective operations begun on it.
    pub(super) collectives: Cell<u64>,
    /// Of them, those of which it isn't known that every rank has come as far.
    pub(super) unsettled: Cell<u32>,
}

impl Shared {
    /// MPI_COMM_WORLD.
    pub(super) fn new(comm: Comm, number: u32) -> Result<Shared, LoggedError> {
        let world = (0..comm.size()?).collect();
        Shared::of(comm, number, world)
    }

    fn of(comm: Comm, number: u32, world: Vec<u32>) -> Result<Shared, LoggedError> {
        let rank = comm.rank()?;
        let matching = RefCell::default();
        Ok(Shared { comm, number, rank, world, matching, collectives: Cell::new(0), unsettled: Cell::new(0) })
    }

    /// One that was made just now; all its ranks do this.
    fn made(comm: Comm, own: u32, engine: &RefCell<Engine>) -> Result<Shared, LoggedError> {
        let number = engine.borrow_mut().number(&comm)?;
        let mut bytes = vec![0; 4 * comm.size()? as usize];
        comm.all_gather(&own.to_le_bytes(), &mut bytes)?;
        let world = bytes.chunks_exact(4).filter_map(|rank| rank.try_into().ok().map(u32::from_le_bytes)).collect();
        Shared::of(comm, number, world)
    }

    /// The rank in MPI_COMM_WORLD of a rank of it.
    pub(super) fn world(&self, rank: u32) -> Result<u32, LoggedError> {
        let size = self.world.len() as u32;
        self.world.get(rank as usize).copied().ok_or(LoggedError::NoSuchRank { rank, size })
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
        Ok(LoggedCommunicator::new(Rc::new(shared), Rc::clone(&self.engine)))
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
        let part = self.shared.comm.split(color, key)?;
        part.map(|part| self.made(part)).transpose()
    }
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
