//! Communicator handles: their communicators in the logger, and agreement on a number among the members.

use std::ffi::c_int;

use counterfoil_mpi_logger::{CommId, CommState, CommTable, Members, SELF, WORLD};
use mpi_sys as ffi;
use rustc_hash::{FxHashMap, FxHashSet};

use super::mpi_call::{CallError, is_null_comm, key, mpi_try};
use super::{BeginError, Session};
use crate::say::say;
use counterfoil_mpi_core::control::failures::is_failure;

/// The program's communicators, by handle.
///
/// Those with processes outside MPI_COMM_WORLD are not logged, and absent.
#[derive(Debug)]
pub(crate) struct CommHandles {
    ids: FxHashMap<usize, CommId>,
    /// Handle looked up last.
    last: Option<(usize, CommId)>,
    /// Names given by this process: see [`Proposal`].
    names: u32,
    world_group: ffi::MPI_Group,
}

impl CommHandles {
    /// Adds MPI_COMM_WORLD and MPI_COMM_SELF.
    pub(super) fn new(comms: &mut CommTable) -> Result<CommHandles, BeginError> {
        // SAFETY: constants of the shim, and a pointer to a local variable; MPI is initialised.
        let (world, itself, world_group) = unsafe {
            let mut group = ffi::RSMPI_GROUP_NULL;
            mpi_try!(PMPI_Comm_group(ffi::RSMPI_COMM_WORLD, &raw mut group));
            (ffi::RSMPI_COMM_WORLD, ffi::RSMPI_COMM_SELF, group)
        };
        let mut handles = CommHandles { ids: FxHashMap::default(), last: None, names: 0, world_group };
        for (handle, number) in [(world, WORLD), (itself, SELF)] {
            if let Some(members) = handles.members(handle)? {
                handles.ids.insert(key(handle), comms.add(number, members)?);
            }
        }
        Ok(handles)
    }

    /// Returns the communicator of a handle; `None` for one that isn't logged.
    #[inline]
    pub(super) fn get(&mut self, handle: usize) -> Option<CommId> {
        match self.last {
            Some((last, id)) if last == handle => Some(id),
            _ => {
                let id = *self.ids.get(&handle)?;
                self.last = Some((handle, id));
                Some(id)
            }
        }
    }

    /// Returns a communicator's members; `None` if one of them, in either group, isn't in MPI_COMM_WORLD.
    fn members(&self, comm: ffi::MPI_Comm) -> Result<Option<Members>, CallError> {
        let mut rank = 0;
        // SAFETY: a valid communicator, and a pointer to a local variable.
        unsafe { mpi_try!(PMPI_Comm_rank(comm, &raw mut rank)) };
        Ok(self.groups(comm)?.map(|Groups { own, remote }| {
            let is_inter = remote.is_some();
            Members { world: remote.unwrap_or(own), rank, is_inter }
        }))
    }

    /// Returns a communicator's groups; `None` if a process in either isn't in MPI_COMM_WORLD.
    fn groups(&self, comm: ffi::MPI_Comm) -> Result<Option<Groups>, CallError> {
        let mut is_inter = 0;
        // SAFETY: a valid communicator, a constant of the shim, and pointers to local variables.
        let (own, remote) = unsafe {
            let (mut own, mut remote) = (ffi::RSMPI_GROUP_NULL, ffi::RSMPI_GROUP_NULL);
            mpi_try!(PMPI_Comm_test_inter(comm, &raw mut is_inter));
            mpi_try!(PMPI_Comm_group(comm, &raw mut own));
            if is_inter != 0 {
                mpi_try!(PMPI_Comm_remote_group(comm, &raw mut remote));
            }
            (own, remote)
        };
        let own = self.world_ranks(own)?;
        if is_inter == 0 {
            return Ok(own.map(|own| Groups { own, remote: None }));
        }
        let remote = self.world_ranks(remote)?;
        Ok(own.zip(remote).map(|(own, remote)| Groups { own, remote: Some(remote) }))
    }

    /// Returns a group's ranks in MPI_COMM_WORLD, and frees the group; `None` if one of its processes isn't there.
    fn world_ranks(&self, mut group: ffi::MPI_Group) -> Result<Option<Box<[u32]>>, CallError> {
        let mut size = 0;
        // SAFETY: a valid group, pointers to local variables, and arrays with an element for each member.
        let world = unsafe {
            mpi_try!(PMPI_Group_size(group, &raw mut size));
            let ranks: Vec<c_int> = (0..size).collect();
            let mut world = vec![0; ranks.len()];
            mpi_try!(PMPI_Group_translate_ranks(group, size, ranks.as_ptr(), self.world_group, world.as_mut_ptr()));
            mpi_try!(PMPI_Group_free(&raw mut group));
            world
        };
        Ok(world.into_iter().map(|rank| u32::try_from(rank).ok()).collect())
    }
}

/// A communicator's groups, as ranks in MPI_COMM_WORLD.
struct Groups {
    own: Box<[u32]>,
    /// `Some` for an intercommunicator.
    remote: Option<Box<[u32]>>,
}

impl Groups {
    /// Returns the members of both groups.
    fn all(&self) -> impl Iterator<Item = u32> {
        self.own.iter().chain(self.remote.iter().flatten()).copied()
    }
}

/// Makes MPI return a new communicator's errors while its members agree.
///
/// It has its parent's error handler, which may end the program, and another member may have revoked it by now.
struct ErrorsReturned {
    comm: ffi::MPI_Comm,
    inherited: ffi::MPI_Errhandler,
}

impl ErrorsReturned {
    fn on(comm: ffi::MPI_Comm) -> Result<ErrorsReturned, CallError> {
        // SAFETY: a valid communicator, constants, and a pointer to a local variable.
        unsafe {
            let mut inherited = ffi::RSMPI_ERRORS_RETURN;
            mpi_try!(PMPI_Comm_get_errhandler(comm, &raw mut inherited));
            mpi_try!(PMPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN));
            Ok(ErrorsReturned { comm, inherited })
        }
    }
}

impl Drop for ErrorsReturned {
    fn drop(&mut self) {
        // SAFETY: the communicator given to `on`, and the handler that it got from MPI; one reference is released.
        unsafe {
            ffi::PMPI_Comm_set_errhandler(self.comm, self.inherited);
            ffi::PMPI_Errhandler_free(&raw mut self.inherited);
        }
    }
}

/// Stand-in for a proposal by a member with several threads, which has no lowest number; above all numbers.
const NO_LOWEST: u64 = 1 << 32;

/// Agrees on a new communicator's number, the lowest that all its members have free; all of them call this.
///
/// `None` if one of them has several threads, and proposes [`NO_LOWEST`].
fn agree_on_lowest(comm: ffi::MPI_Comm, proposal: u64, is_inter: bool) -> Result<Option<u32>, CallError> {
    let mut number = largest(comm, proposal)?;
    // Between two groups, each gets the other's maximum: in the second round, everybody's.
    if is_inter {
        let mine = number.max(proposal);
        number = largest(comm, mine)?.max(mine);
    }
    Ok(u32::try_from(number).ok())
}

/// Returns the largest of all members' numbers, or between two groups, of the other group's.
///
/// All of them call this.
fn largest(comm: ffi::MPI_Comm, mine: u64) -> Result<u64, CallError> {
    let _returned = ErrorsReturned::on(comm)?;
    let mut largest = mine;
    let (from, to) = ((&raw const mine).cast(), (&raw mut largest).cast());
    // SAFETY: a communicator whose members all call this, and pointers to local variables.
    unsafe { mpi_try!(PMPI_Allreduce(from, to, 1, ffi::RSMPI_UINT64_T, ffi::RSMPI_MAX, comm)) };
    Ok(largest)
}

/// A process's contribution to a new communicator's number, where threads make several at once.
///
/// No member can tell then which number all have free. The first rank of each group gives a name, made from its own
/// rank and a count.
#[derive(Debug)]
pub(crate) struct Proposal {
    comm: ffi::MPI_Comm,
    /// 0 on other ranks.
    name: u64,
    members: Members,
    /// The other members may try to agree on the lowest number: not all have several threads.
    objects: bool,
}

// SAFETY: a handle, which any thread may give to MPI.
unsafe impl Send for Proposal {}

impl Proposal {
    /// Exchanges the names: (own group's, other group's or 0).
    ///
    /// All members call this, in the call that makes the communicator; no thread holds the session.
    pub(crate) fn exchange_names(&self) -> Result<(u64, u64), CallError> {
        if self.objects {
            agree_on_lowest(self.comm, NO_LOWEST, self.members.is_inter)?;
        }
        let first = largest(self.comm, self.name)?;
        // Between two groups, each gets the other's name: in the second round, its own.
        let second = if self.members.is_inter { largest(self.comm, first)? } else { 0 };
        Ok((first, second))
    }

    /// Returns `true` if the number derived by all members is free on each of them.
    ///
    /// All members call this.
    pub(crate) fn is_free_everywhere(&self, is_free: bool) -> Result<bool, CallError> {
        let taken = largest(self.comm, u64::from(!is_free))?;
        let taken =
            if self.members.is_inter { taken | largest(self.comm, taken | u64::from(!is_free))? } else { taken };
        Ok(taken == 0)
    }
}

impl Session {
    /// Returns the communicator of a handle; `None` for one that isn't logged.
    #[inline]
    pub(crate) fn comm_id(&mut self, comm: ffi::MPI_Comm) -> Option<CommId> {
        self.comms.get(key(comm))
    }

    /// Returns the state of a handle's communicator.
    pub(crate) fn comm(&mut self, comm: ffi::MPI_Comm) -> Option<&mut CommState> {
        let id = self.comm_id(comm)?;
        self.logger.comms.get(id)
    }

    /// Adds a new communicator, whose members are all in the call that makes it.
    ///
    /// Returns this process's part in a further agreement, without the session, where a member has several threads.
    /// `is_shared`: this process has.
    pub(crate) fn add_comm(&mut self, comm: ffi::MPI_Comm, is_shared: bool) -> Option<Proposal> {
        // Members from outside MPI_COMM_WORLD agree on nothing.
        let members = self.logged_members(comm)?;
        if self.is_multithreaded || is_shared {
            return Some(self.propose(comm, members, !self.is_multithreaded));
        }
        match agree_on_lowest(comm, self.logger.comms.propose().into(), members.is_inter) {
            Ok(Some(number)) => self.bind_new(comm, number, members),
            Ok(None) => return Some(self.propose(comm, members, false)),
            Err(error) => self.check_made(error),
        }
        None
    }

    /// Returns `true` if a new communicator has members missing from `parent`, and reports it.
    ///
    /// It is a program error that MPI lets pass, and these members may not be in the call.
    pub(crate) fn has_strangers(&mut self, parent: ffi::MPI_Comm, new: ffi::MPI_Comm) -> bool {
        if is_null_comm(new) {
            return false;
        }
        let (Ok(Some(parent)), Ok(Some(new))) = (self.comms.groups(parent), self.comms.groups(new)) else {
            return false;
        };
        let known: FxHashSet<u32> = parent.all().collect();
        let Some(stranger) = new.all().find(|member| !known.contains(member)) else { return false };
        say(format_args!(
            "a communicator was made of a group with rank {stranger}, which isn't in the communicator that it was made from: what is sent \
             on the new one is not logged"
        ));
        true
    }

    /// Handles a communicator revoked by the program, where that has an effect.
    #[cfg(wraps = "comm_revoke")]
    pub(crate) fn revoke_comm(&mut self, comm: ffi::MPI_Comm) {
        if !self.control.failures.are_survivable() {
            return;
        }
        let Some(id) = self.comm_id(comm) else { return };
        let groups = self.comms.groups(comm);
        if let Some(Some(groups)) = self.check(groups) {
            let revoked = self.logger.handle_comm_revoked(id, groups.all());
            self.check(revoked);
            self.flush();
        }
    }

    /// Adds a communicator under a derived or reserved number.
    pub(crate) fn add_numbered(&mut self, comm: ffi::MPI_Comm, number: u32) {
        if let Some(members) = self.logged_members(comm) {
            self.bind_new(comm, number, members);
        }
    }

    fn logged_members(&mut self, comm: ffi::MPI_Comm) -> Option<Members> {
        if is_null_comm(comm) {
            return None;
        }
        match self.comms.members(comm) {
            Ok(members) => members,
            Err(error) => {
                self.check_made(error);
                None
            }
        }
    }

    fn bind_new(&mut self, comm: ffi::MPI_Comm, number: u32, members: Members) {
        if let Some(id) = self.unbind(comm) {
            self.logger.comms.free(id);
        }
        match self.logger.comms.add(number, members) {
            Ok(id) => self.bind(comm, id),
            Err(error) => self.give_up(&error),
        }
    }

    fn propose(&mut self, comm: ffi::MPI_Comm, members: Members, objects: bool) -> Proposal {
        self.comms.names += 1;
        let own = u64::from(self.rank() + 1) << 32 | u64::from(self.comms.names);
        Proposal { comm, name: if members.rank == 0 { own } else { 0 }, members, objects }
    }

    /// Adds a communicator under the number agreed by its members.
    pub(crate) fn add_proposed(&mut self, proposal: Proposal, number: u32) {
        self.bind_new(proposal.comm, number, proposal.members);
    }

    /// Handles a refused call while a communicator is made.
    ///
    /// If a member has failed meanwhile, the program can only free it.
    pub(crate) fn check_made(&mut self, error: CallError) {
        if is_failure(error.code) {
            say(format_args!(
                "a process failed while a communicator was made, or it was revoked: what is sent on it is not logged"
            ));
        } else {
            self.give_up(&error);
        }
    }

    /// Unbinds a handle that the program is about to free, and returns the communicator.
    ///
    /// The handle may be another communicator's soon.
    pub(crate) fn unbind(&mut self, comm: ffi::MPI_Comm) -> Option<CommId> {
        self.comms.last = None;
        self.streams.clear();
        self.comms.ids.remove(&key(comm))
    }

    /// Binds a handle to a communicator.
    pub(crate) fn bind(&mut self, comm: ffi::MPI_Comm, id: CommId) {
        self.comms.last = None;
        self.comms.ids.insert(key(comm), id);
    }

    /// Handles a communicator that the program is about to free.
    pub(crate) fn free_comm(&mut self, comm: ffi::MPI_Comm) -> Option<CommId> {
        let id = self.comm_id(comm)?;
        let freed = self.logger.handle_comm_freed(id);
        self.check(freed);
        self.flush();
        self.unbind(comm)
    }
}
