//! Communicators: their parts, and every way to make them.
//!
//! A handle is an MPI communicator with this process alone. Attributes with their functions, names, info objects, error
//! handlers and Fortran numbers stay the MPI's; ranks, groups, topologies and messages are ours.
//!
//! # Safety
//! The unsafe functions take the program's own arguments to an MPI call still in progress. Pointers are valid as MPI
//! demands, until the call, or the request made by it, has ended.

mod inter;
mod topologies;

use std::ffi::{c_char, c_int};
use std::rc::Rc;

use bytes::Bytes;
use counterfoil_mpi::recovering::Context;
use counterfoil_runtime::collectives;
use mpi_sys as ffi;

use crate::failure::Failure;
use crate::front::Front;
use crate::handle::bits;
use crate::requests::{Finish, Pending, State};

#[cfg(has = "Comm_create_from_group")]
pub(crate) use inter::comm_create_from_group;
#[cfg(has = "Intercomm_create_from_groups")]
pub(crate) use inter::intercomm_create_from_groups;
use inter::{agree_between, make_inter};
pub(crate) use inter::{intercomm_create, intercomm_merge};
pub(crate) use topologies::{
    Distributed, Edge, Topology, cart_create, cart_sub, dist_graph_create, dist_graph_create_adjacent, graph_create,
};

/// A communicator.
pub(crate) struct Comm {
    pub(crate) handle: ffi::MPI_Comm,
    pub(crate) context: Rc<Context>,
    /// An intercommunicator's local group, as a communicator.
    pub(crate) local: Option<Rc<Context>>,
    pub(crate) topology: Topology,
}

impl Comm {
    /// Returns a rank for a message's source or destination.
    pub(crate) fn peer(&self, rank: c_int) -> Result<u32, Failure> {
        let peer = u32::try_from(rank).ok().filter(|peer| (*peer as usize) < self.context.peers().len());
        peer.ok_or_else(|| Failure::class(ffi::MPI_ERR_RANK))
    }
}

/// Returns the program's numbers.
///
/// # Safety
/// See the [module](self).
unsafe fn ints<'a>(count: c_int, at: *const c_int) -> Result<&'a [c_int], Failure> {
    match usize::try_from(count) {
        Err(_) => Err(Failure::class(ffi::MPI_ERR_ARG)),
        Ok(0) => Ok(&[]),
        // SAFETY: the program's array has that many.
        Ok(count) => Ok(unsafe { std::slice::from_raw_parts(at, count) }),
    }
}

impl Front {
    /// Makes a new communicator's handle, with another one's error handler.
    ///
    /// With `copies`, its attributes are copied, too.
    pub(crate) fn make_handle(&self, parent: ffi::MPI_Comm, copies: bool) -> Result<ffi::MPI_Comm, Failure> {
        let from = match copies {
            true if parent == self.world.handle => self.world_attributes,
            true => parent,
            false => self.private,
        };
        // SAFETY: valid communicators with this process alone, and pointers to local variables.
        unsafe {
            let (mut handle, mut handler) = (ffi::RSMPI_COMM_NULL, ffi::RSMPI_ERRORS_RETURN);
            Failure::check(ffi::PMPI_Comm_dup(from, &raw mut handle))?;
            Failure::check(ffi::PMPI_Comm_get_errhandler(parent, &raw mut handler))?;
            Failure::check(ffi::PMPI_Comm_set_errhandler(handle, handler))?;
            Failure::check(ffi::PMPI_Errhandler_free(&raw mut handler))?;
            Ok(handle)
        }
    }

    fn add_comm(&self, comm: Comm) {
        self.comms.borrow_mut().insert(bits(comm.handle), Rc::new(comm));
    }

    /// Adds a new communicator; returns its handle.
    ///
    /// `None` for a rank outside it: the null handle.
    fn made(
        &self,
        parent: &Comm,
        context: Option<Rc<Context>>,
        topology: Topology,
        copies: bool,
    ) -> Result<ffi::MPI_Comm, Failure> {
        // SAFETY: a shim constant.
        let Some(context) = context else { return Ok(unsafe { ffi::RSMPI_COMM_NULL }) };
        let handle = self.make_handle(parent.handle, copies)?;
        self.add_comm(Comm { handle, context, local: None, topology });
        Ok(handle)
    }
}

/// Returns the ranks in a communicator for those in a group.
fn ranks_in(comm: &Comm, ranks: &[u32]) -> Result<Vec<u32>, Failure> {
    let place = |rank: &u32| comm.context.members().iter().position(|member| member == rank);
    let ranks = ranks.iter().map(|rank| place(rank).map(|place| place as u32));
    ranks.map(|rank| rank.ok_or_else(|| Failure::class(ffi::MPI_ERR_GROUP))).collect()
}

fn check_intra(comm: &Comm, call: &str) -> Result<(), Failure> {
    if comm.context.is_inter() {
        return Err(Failure::refused(&format!("{call} of an intercommunicator")));
    }
    Ok(())
}

/// `MPI_Comm_dup`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn comm_dup(front: &Front, comm: ffi::MPI_Comm, newcomm: *mut ffi::MPI_Comm) -> Result<(), Failure> {
    let comm = front.comm(comm)?;
    // The program's functions for attributes may refuse: before others are in the call.
    let handle = front.make_handle(comm.handle, true)?;
    let (context, local) = if comm.context.is_inter() {
        let number = agree_between(&comm)?;
        let (members, remote) = (comm.context.members().to_vec(), comm.context.peers().to_vec());
        make_inter(&comm.context, number, members, remote)
    } else {
        (comm.context.duplicate()?, None)
    };
    front.add_comm(Comm { handle, context, local, topology: comm.topology.clone() });
    // SAFETY: the program's variable.
    unsafe { *newcomm = handle };
    Ok(())
}

/// `MPI_Comm_dup_with_info`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn comm_dup_with_info(
    front: &Front,
    comm: ffi::MPI_Comm,
    info: ffi::MPI_Info,
    newcomm: *mut ffi::MPI_Comm,
) -> Result<(), Failure> {
    // SAFETY: the program's variable and object.
    unsafe {
        comm_dup(front, comm, newcomm)?;
        set_info(*newcomm, info)
    }
}

/// Sets the program's hints on a communicator.
///
/// # Safety
/// See the [module](self).
unsafe fn set_info(comm: ffi::MPI_Comm, info: ffi::MPI_Info) -> Result<(), Failure> {
    // SAFETY: shim constants, a valid communicator and the program's object.
    unsafe {
        if info == ffi::RSMPI_INFO_NULL {
            return Ok(());
        }
        Failure::check(ffi::PMPI_Comm_set_info(comm, info))
    }
}

/// `MPI_Comm_idup`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn comm_idup(
    front: &Front,
    comm: ffi::MPI_Comm,
    newcomm: *mut ffi::MPI_Comm,
    request: *mut ffi::MPI_Request,
) -> Result<(), Failure> {
    let parent = front.comm(comm)?;
    check_intra(&parent, "MPI_Comm_idup")?;
    let handle = front.make_handle(comm, true)?;
    let (context, tag) = (&parent.context, parent.context.begin_collective());
    // The first rank alone chooses the number, so none waits for the others here.
    let (number, requests) = if context.rank() == 0 {
        let number = front.process.lead_number();
        let number = number.ok_or_else(|| Failure::Fatal("MPI_Comm_idup was called too often".to_owned()))?;
        for to in 1..context.size() {
            context.with_view(|view| collectives::send_internal(view, to, tag, &number.to_le_bytes()))?;
        }
        (Some(number), Vec::new())
    } else {
        (None, vec![context.post_internal(0, tag)?])
    };
    let store = move |front: &Front, messages: &[Bytes]| {
        let number = number.or_else(|| messages.first().map(|message| number_of(message))).unwrap_or_default();
        let context = parent.context.create_of_job(number, parent.context.members().to_vec(), None);
        front.add_comm(Comm { handle, context, local: None, topology: parent.topology.clone() });
        Ok(())
    };
    let pending = Pending { requests, finish: Finish::Collective(Box::new(store)) };
    // SAFETY: the program's variables.
    unsafe {
        *newcomm = handle;
        *request = front.add_request(comm, State::Pending(pending));
    }
    Ok(())
}

/// `MPI_Comm_idup_with_info`.
///
/// # Safety
/// See the [module](self).
#[cfg(has = "Comm_idup_with_info")]
pub(crate) unsafe fn comm_idup_with_info(
    front: &Front,
    comm: ffi::MPI_Comm,
    info: ffi::MPI_Info,
    newcomm: *mut ffi::MPI_Comm,
    request: *mut ffi::MPI_Request,
) -> Result<(), Failure> {
    // SAFETY: the program's variables and object.
    unsafe {
        comm_idup(front, comm, newcomm, request)?;
        set_info(*newcomm, info)
    }
}

/// `MPI_Comm_create`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn comm_create(
    front: &Front,
    comm: ffi::MPI_Comm,
    group: ffi::MPI_Group,
    newcomm: *mut ffi::MPI_Comm,
) -> Result<(), Failure> {
    let comm = front.comm(comm)?;
    check_intra(&comm, "MPI_Comm_create")?;
    let ranks = ranks_in(&comm, &front.ranks_of(group)?)?;
    let made = comm.context.create_of(&ranks)?;
    // SAFETY: the program's variable.
    unsafe { *newcomm = front.made(&comm, made, Topology::None, false)? };
    Ok(())
}

/// `MPI_Comm_create_group`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn comm_create_group(
    front: &Front,
    comm: ffi::MPI_Comm,
    group: ffi::MPI_Group,
    tag: c_int,
    newcomm: *mut ffi::MPI_Comm,
) -> Result<(), Failure> {
    let comm = front.comm(comm)?;
    check_intra(&comm, "MPI_Comm_create_group")?;
    let ranks = ranks_in(&comm, &front.ranks_of(group)?)?;
    let made = if ranks.contains(&comm.context.rank()) { comm.context.create_group(&ranks, tag)? } else { None };
    // SAFETY: the program's variable.
    unsafe { *newcomm = front.made(&comm, made, Topology::None, false)? };
    Ok(())
}

/// Returns a rank's color; `None` for a rank without a communicator.
fn color_of(color: c_int) -> Result<Option<u32>, Failure> {
    // SAFETY: a shim constant.
    if color == unsafe { ffi::RSMPI_UNDEFINED } {
        return Ok(None);
    }
    u32::try_from(color).map(Some).map_err(|_| Failure::class(ffi::MPI_ERR_ARG))
}

/// `MPI_Comm_split`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn comm_split(
    front: &Front,
    comm: ffi::MPI_Comm,
    color: c_int,
    key: c_int,
    newcomm: *mut ffi::MPI_Comm,
) -> Result<(), Failure> {
    let comm = front.comm(comm)?;
    check_intra(&comm, "MPI_Comm_split")?;
    let made = comm.context.split(color_of(color)?, key, None)?;
    // SAFETY: the program's variable.
    unsafe { *newcomm = front.made(&comm, made, Topology::None, false)? };
    Ok(())
}

/// `MPI_Comm_split_type`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn comm_split_type(
    front: &Front,
    comm: ffi::MPI_Comm,
    split_type: c_int,
    key: c_int,
    _: ffi::MPI_Info,
    newcomm: *mut ffi::MPI_Comm,
) -> Result<(), Failure> {
    let comm = front.comm(comm)?;
    check_intra(&comm, "MPI_Comm_split_type")?;
    // SAFETY: shim constants.
    let (shared, none) = unsafe { (ffi::RSMPI_COMM_TYPE_SHARED, ffi::RSMPI_UNDEFINED) };
    if split_type != shared && split_type != none {
        return Err(Failure::refused("MPI_Comm_split_type of another type than MPI_COMM_TYPE_SHARED"));
    }
    // All ranks are on one host.
    let made = comm.context.split((split_type == shared).then_some(0), key, None)?;
    // SAFETY: the program's variable.
    unsafe { *newcomm = front.made(&comm, made, Topology::None, false)? };
    Ok(())
}

fn number_of(bytes: &[u8]) -> u32 {
    bytes.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// `MPI_Comm_set_name`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn comm_set_name(_: &Front, comm: ffi::MPI_Comm, name: *const c_char) -> Result<(), Failure> {
    // SAFETY: the program's arguments; the call is local.
    Failure::check(unsafe { ffi::PMPI_Comm_set_name(comm, name) })
}

/// `MPI_Comm_free`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn comm_free(front: &Front, comm: *mut ffi::MPI_Comm) -> Result<(), Failure> {
    // SAFETY: the program's variable.
    unsafe {
        front.comm(*comm)?;
        if *comm == front.world.handle || *comm == ffi::RSMPI_COMM_SELF {
            return Err(Failure::class(ffi::MPI_ERR_COMM));
        }
        // Pending operations keep the state that they need.
        front.comms.borrow_mut().remove(&bits(*comm));
        Failure::check(ffi::PMPI_Comm_free(&mut *comm))
    }
}

/// `MPI_Comm_disconnect`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn comm_disconnect(front: &Front, comm: *mut ffi::MPI_Comm) -> Result<(), Failure> {
    // SAFETY: the program's variable.
    unsafe { comm_free(front, comm) }
}
