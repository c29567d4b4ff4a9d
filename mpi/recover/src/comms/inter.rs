//! Intercommunicators, and communicators made from groups without a communicator.
//!
//! # Safety
//! The unsafe functions take the program's own arguments to an MPI call still in progress. Pointers are valid as MPI
//! demands until it returns.

#[cfg(has = "Comm_create_from_group")]
use std::ffi::c_char;
use std::ffi::c_int;
use std::rc::Rc;

use bytes::Bytes;
use counterfoil_mpi::recovering::Context;
use counterfoil_runtime::collectives;
use counterfoil_runtime::communicator::Communicator;
use mpi_sys as ffi;

use super::{Comm, Topology, check_intra, number_of};
use crate::failure::Failure;
use crate::front::Front;

/// Tag for messages about a new intercommunicator between its leaders, in the collective context.
const LEADERS: c_int = 1 << 29;

/// Tag for messages about new communicators of groups, there.
#[cfg(has = "Comm_create_from_group")]
const GROUPS: c_int = 1 << 27;

/// Takes the highest number free on any rank of a group, and one more for the group alone.
fn take_numbers(context: &Context, free: u32) -> u32 {
    let number = context.take_number([free].into_iter());
    context.take_number([number + 1].into_iter());
    number
}

/// Returns the highest number free on a communicator's ranks.
///
/// Collective.
fn highest_free(context: &Context) -> Result<u32, Failure> {
    let own = context.free_number().to_le_bytes();
    let all = context.with_view(|view| collectives::allgather(view, &own))?;
    Ok(all.iter().map(|bytes| number_of(bytes)).max().unwrap_or_default())
}

/// Makes an intercommunicator's contexts: its own, and its local group's.
pub(super) fn make_inter(
    of: &Context,
    number: u32,
    members: Vec<u32>,
    remote: Vec<u32>,
) -> (Rc<Context>, Option<Rc<Context>>) {
    let number = take_numbers(of, number);
    let local = of.create_of_job(number + 1, members.clone(), None);
    (of.create_of_job(number, members, Some(remote)), Some(local))
}

/// Exchanges a message between two groups' leaders, and sends this group the other leader's message.
///
/// `peer`: on the leader, the communicator with the other one, its rank there, and the tag.
fn exchange_of_leaders(
    local: &Context,
    leader: u32,
    peer: Option<(&Context, u32, c_int)>,
    message: &[u8],
) -> Result<Bytes, Failure> {
    let mut told = Bytes::new();
    if let Some((between, remote, tag)) = peer {
        between.send_aside(remote, tag, message)?;
        let request = between.post_aside(remote, tag)?;
        told = between.with_view(|view| view.wait(request))?.1;
    }
    Ok(local.with_view(|view| collectives::bcast(view, leader, &told))?)
}

/// Returns the highest number free on any rank in an intercommunicator's two groups.
///
/// Collective.
pub(super) fn agree_between(comm: &Comm) -> Result<u32, Failure> {
    let Some(local) = &comm.local else { return Err(Failure::class(ffi::MPI_ERR_COMM)) };
    let own = highest_free(local)?;
    let leads = (local.rank() == 0).then_some((&*comm.context, 0, LEADERS));
    let other = exchange_of_leaders(local, 0, leads, &own.to_le_bytes())?;
    Ok(own.max(number_of(&other)))
}

/// `MPI_Intercomm_create`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn intercomm_create(
    front: &Front,
    local: ffi::MPI_Comm,
    local_leader: c_int,
    peer: ffi::MPI_Comm,
    remote_leader: c_int,
    tag: c_int,
    newcomm: *mut ffi::MPI_Comm,
) -> Result<(), Failure> {
    let local = front.comm(local)?;
    check_intra(&local, "MPI_Intercomm_create")?;
    let leader = local.peer(local_leader)?;
    let own = highest_free(&local.context)?;
    let members = local.context.members().to_vec();
    let message: Vec<u8> = [own].iter().chain(&members).flat_map(|number| number.to_le_bytes()).collect();
    // Only the leader's peer communicator counts.
    let between = if local.context.rank() == leader { Some(front.comm(peer)?) } else { None };
    let leads = match &between {
        Some(peer) => Some((&*peer.context, peer.peer(remote_leader)?, LEADERS | tag)),
        None => None,
    };
    let other = exchange_of_leaders(&local.context, leader, leads, &message)?;
    let mut numbers = other.chunks_exact(4).map(number_of);
    let number = own.max(numbers.next().unwrap_or_default());
    let (context, own_group) = make_inter(&local.context, number, members, numbers.collect());
    let handle = front.make_handle(local.handle, false)?;
    front.add_comm(Comm { handle, context, local: own_group, topology: Topology::None });
    // SAFETY: the program's variable.
    unsafe { *newcomm = handle };
    Ok(())
}

/// `MPI_Intercomm_merge`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn intercomm_merge(
    front: &Front,
    comm: ffi::MPI_Comm,
    high: c_int,
    newcomm: *mut ffi::MPI_Comm,
) -> Result<(), Failure> {
    let comm = front.comm(comm)?;
    let Some(local) = &comm.local else { return Err(Failure::class(ffi::MPI_ERR_COMM)) };
    let number = agree_between(&comm)?;
    let leads = (local.rank() == 0).then_some((&*comm.context, 0, LEADERS));
    let other = exchange_of_leaders(local, 0, leads, &u32::from(high != 0).to_le_bytes())?;
    let (own, remote) = (comm.context.members(), comm.context.peers());
    let is_first = match (high != 0, number_of(&other) != 0) {
        (false, true) => true,
        (true, false) => false,
        _ => own.first() < remote.first(),
    };
    let members = if is_first { [own, remote].concat() } else { [remote, own].concat() };
    let number = comm.context.take_number([number].into_iter());
    let made = comm.context.create_of_job(number, members, None);
    // SAFETY: the program's variable.
    unsafe { *newcomm = front.made(&comm, Some(made), Topology::None, false)? };
    Ok(())
}

/// Returns a tag for messages about a group's new communicator, from the program's string.
///
/// # Safety
/// One of the program's strings.
#[cfg(has = "Comm_create_from_group")]
unsafe fn tag_of(stringtag: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let text = unsafe { std::ffi::CStr::from_ptr(stringtag) };
    let mut hasher = rustc_hash::FxHasher::default();
    std::hash::Hasher::write(&mut hasher, text.to_bytes());
    GROUPS | (std::hash::Hasher::finish(&hasher) & (GROUPS as u64 - 1)) as c_int
}

/// Makes a group's communicator, with the error handler given by the program.
///
/// # Safety
/// See the [module](self).
#[cfg(has = "Comm_create_from_group")]
pub(crate) unsafe fn comm_create_from_group(
    front: &Front,
    group: ffi::MPI_Group,
    stringtag: *const c_char,
    _: ffi::MPI_Info,
    errhandler: ffi::MPI_Errhandler,
    newcomm: *mut ffi::MPI_Comm,
) -> Result<(), Failure> {
    let ranks = front.ranks_of(group)?;
    // SAFETY: the program's string and variable.
    unsafe {
        let made = front.world.context.create_group(&ranks, tag_of(stringtag))?;
        *newcomm = front.made(&front.world, made, Topology::None, false)?;
        Failure::check(ffi::PMPI_Comm_set_errhandler(*newcomm, errhandler))
    }
}

/// `MPI_Intercomm_create_from_groups`.
///
/// # Safety
/// See the [module](self).
#[cfg(has = "Intercomm_create_from_groups")]
#[expect(clippy::too_many_arguments, reason = "MPI's")]
pub(crate) unsafe fn intercomm_create_from_groups(
    front: &Front,
    local: ffi::MPI_Group,
    local_leader: c_int,
    remote: ffi::MPI_Group,
    remote_leader: c_int,
    stringtag: *const c_char,
    _: ffi::MPI_Info,
    errhandler: ffi::MPI_Errhandler,
    newcomm: *mut ffi::MPI_Comm,
) -> Result<(), Failure> {
    let (members, others) = (front.ranks_of(local)?, front.ranks_of(remote)?);
    let wrong = || Failure::class(ffi::MPI_ERR_RANK);
    let leader =
        u32::try_from(local_leader).ok().filter(|leader| (*leader as usize) < members.len()).ok_or_else(wrong)?;
    let other = usize::try_from(remote_leader).ok().and_then(|leader| others.get(leader)).ok_or_else(wrong)?;
    // SAFETY: the program's string.
    let tag = unsafe { tag_of(stringtag) };
    let world = &front.world.context;
    let Some(group) = world.create_group(&members, tag)? else { return Err(Failure::class(ffi::MPI_ERR_GROUP)) };
    let own = highest_free(&group)?;
    let leads = (group.rank() == leader).then_some((&**world, *other, LEADERS | tag));
    let told = exchange_of_leaders(&group, leader, leads, &own.to_le_bytes())?;
    let (context, own_group) = make_inter(&group, own.max(number_of(&told)), members, others);
    let handle = front.make_handle(front.world.handle, false)?;
    front.add_comm(Comm { handle, context, local: own_group, topology: Topology::None });
    // SAFETY: the program's variable.
    unsafe {
        *newcomm = handle;
        Failure::check(ffi::PMPI_Comm_set_errhandler(handle, errhandler))
    }
}
