//! Communicators: what they are made of, and every way to make them.
//!
//! A handle is a communicator of the MPI's with this process alone. Attributes with their functions, names, info
//! objects, error handlers and numbers for Fortran stay the MPI's; ranks, groups, topologies and messages are ours.
//!
//! # Safety
//! The unsafe functions take the program's own arguments, given in an MPI call that has not returned. They point to
//! what MPI demands, until the call, or the request that it makes, has ended.

use std::ffi::{c_char, c_int};
use std::rc::Rc;

use bytes::Bytes;
use counterfoil_mpi::recovering::{Context, Grid};
use counterfoil_runtime::collectives;
use counterfoil_runtime::communicator::Communicator;
use mpi_sys as ffi;

use crate::failure::Failure;
use crate::front::Front;
use crate::handle::bits;
use crate::requests::{Finish, Pending, State};

unsafe extern "C" {
    fn counterfoil_recover_is_no_weights(weights: *const c_int) -> c_int;
}

/// Tag of messages about a new intercommunicator between its leaders, in the context of collective operations.
const LEADERS: c_int = 1 << 29;

/// Tag of messages about new communicators of groups, there.
#[cfg(has = "Comm_create_from_group")]
const GROUPS: c_int = 1 << 27;

/// A communicator.
pub(crate) struct Comm {
    pub(crate) handle: ffi::MPI_Comm,
    pub(crate) context: Rc<Context>,
    /// The local group of an intercommunicator, as a communicator.
    pub(crate) local: Option<Rc<Context>>,
    pub(crate) topology: Topology,
}

/// Topology of a communicator.
#[derive(Clone, Debug)]
pub(crate) enum Topology {
    None,
    Cart(Grid),
    Graph { index: Vec<c_int>, edges: Vec<c_int> },
    Distributed(Rc<Distributed>),
}

/// Edges of a rank in a distributed graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct Distributed {
    pub(crate) sources: Vec<c_int>,
    pub(crate) source_weights: Vec<c_int>,
    pub(crate) destinations: Vec<c_int>,
    pub(crate) weights: Vec<c_int>,
    pub(crate) is_weighted: bool,
}

/// A neighbour: `None` for none at the border of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) peer: Option<u32>,
    /// Number that tells messages between the same two ranks apart.
    pub(crate) slot: usize,
}

impl Comm {
    /// Returns a rank that a message may come from or go to.
    pub(crate) fn peer(&self, rank: c_int) -> Result<u32, Failure> {
        let peer = u32::try_from(rank).ok().filter(|peer| (*peer as usize) < self.context.peers().len());
        peer.ok_or_else(|| Failure::class(ffi::MPI_ERR_RANK))
    }

    pub(crate) fn has_topology(&self) -> bool {
        !matches!(self.topology, Topology::None)
    }

    /// Returns the neighbours that messages come from, in their order.
    pub(crate) fn sources(&self) -> Vec<Edge> {
        match &self.topology {
            Topology::None => Vec::new(),
            // What leaves a rank downwards arrives from above.
            Topology::Cart(grid) => self.grid_edges(grid, |slot| slot ^ 1),
            Topology::Graph { .. } => edges(&self.neighbours_of(self.context.rank())),
            Topology::Distributed(graph) => edges(&graph.sources),
        }
    }

    /// Returns the neighbours that messages go to, in their order.
    pub(crate) fn destinations(&self) -> Vec<Edge> {
        match &self.topology {
            Topology::None => Vec::new(),
            Topology::Cart(grid) => self.grid_edges(grid, |slot| slot),
            Topology::Graph { .. } => edges(&self.neighbours_of(self.context.rank())),
            Topology::Distributed(graph) => edges(&graph.destinations),
        }
    }

    /// Returns the number of slots, the same on all ranks.
    pub(crate) fn slots(&self) -> usize {
        match &self.topology {
            Topology::Cart(grid) => 2 * grid.dims.len(),
            _ => 1,
        }
    }

    fn grid_edges(&self, grid: &Grid, slot: impl Fn(usize) -> usize) -> Vec<Edge> {
        let of_dimension = |dimension| {
            let (below, above) = grid.shift(self.context.rank(), dimension, 1);
            let at = 2 * dimension;
            [Edge { peer: below, slot: slot(at) }, Edge { peer: above, slot: slot(at + 1) }]
        };
        (0..grid.dims.len()).flat_map(of_dimension).collect()
    }

    /// Returns the neighbours of a rank in a graph.
    pub(crate) fn neighbours_of(&self, rank: u32) -> Vec<c_int> {
        let Topology::Graph { index, edges } = &self.topology else { return Vec::new() };
        let rank = rank as usize;
        let begin = if rank == 0 { 0 } else { index[rank - 1] as usize };
        edges[begin..index[rank] as usize].to_vec()
    }
}

fn edges(ranks: &[c_int]) -> Vec<Edge> {
    ranks.iter().map(|rank| Edge { peer: u32::try_from(*rank).ok(), slot: 0 }).collect()
}

/// Returns numbers of the program's.
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
    /// Makes the handle of a new communicator, with the error handler of another one. With `copies`, its attributes are
    /// copied, too.
    pub(crate) fn make_handle(&self, parent: ffi::MPI_Comm, copies: bool) -> Result<ffi::MPI_Comm, Failure> {
        let from = match copies {
            true if parent == self.world.handle => self.world_attributes,
            true => parent,
            false => self.private,
        };
        // SAFETY: valid communicators of this process alone, and pointers to local variables.
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

    /// Adds a new communicator; returns its handle. `None` for a rank that isn't in it: the null handle.
    fn made(
        &self,
        parent: &Comm,
        context: Option<Rc<Context>>,
        topology: Topology,
        copies: bool,
    ) -> Result<ffi::MPI_Comm, Failure> {
        // SAFETY: a constant of the shim.
        let Some(context) = context else { return Ok(unsafe { ffi::RSMPI_COMM_NULL }) };
        let handle = self.make_handle(parent.handle, copies)?;
        self.add_comm(Comm { handle, context, local: None, topology });
        Ok(handle)
    }
}

/// Returns the ranks in a communicator of those that a group stands for.
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
        inter(&comm.context, number, members, remote)
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

/// Gives a communicator the program's hints.
///
/// # Safety
/// See the [module](self).
unsafe fn set_info(comm: ffi::MPI_Comm, info: ffi::MPI_Info) -> Result<(), Failure> {
    // SAFETY: constants of the shim, a valid communicator and an object of the program's.
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
    // The first rank alone decides on the number, so that none waits for the others here.
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

/// Returns the color of a rank; `None` for one that gets no communicator.
fn color_of(color: c_int) -> Result<Option<u32>, Failure> {
    // SAFETY: a constant of the shim.
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
    // SAFETY: constants of the shim.
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

/// `MPI_Cart_create`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn cart_create(
    front: &Front,
    comm: ffi::MPI_Comm,
    ndims: c_int,
    dims: *const c_int,
    periods: *const c_int,
    _: c_int,
    newcomm: *mut ffi::MPI_Comm,
) -> Result<(), Failure> {
    let comm = front.comm(comm)?;
    check_intra(&comm, "MPI_Cart_create")?;
    // SAFETY: the program's arrays.
    let (dims, periods) = unsafe { (ints(ndims, dims)?, ints(ndims, periods)?) };
    let dims = dims.iter().map(|ranks| u32::try_from(*ranks).map_err(|_| Failure::class(ffi::MPI_ERR_DIMS)));
    let grid = Grid { dims: dims.collect::<Result<_, _>>()?, periods: periods.iter().map(|flag| *flag != 0).collect() };
    let made = comm.context.create_grid(grid.clone())?;
    // SAFETY: the program's variable.
    unsafe { *newcomm = front.made(&comm, made, Topology::Cart(grid), false)? };
    Ok(())
}

/// `MPI_Cart_sub`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn cart_sub(
    front: &Front,
    comm: ffi::MPI_Comm,
    remain_dims: *const c_int,
    newcomm: *mut ffi::MPI_Comm,
) -> Result<(), Failure> {
    let comm = front.comm(comm)?;
    let Topology::Cart(grid) = &comm.topology else { return Err(Failure::class(ffi::MPI_ERR_TOPOLOGY)) };
    // SAFETY: the program's array.
    let retain = unsafe { ints(grid.dims.len() as c_int, remain_dims)? };
    let retain: Vec<bool> = retain.iter().map(|flag| *flag != 0).collect();
    let (grid, number) = grid.sub(comm.context.rank(), &retain);
    let made = comm.context.split(Some(number), 0, None)?;
    // SAFETY: the program's variable.
    unsafe { *newcomm = front.made(&comm, made, Topology::Cart(grid), false)? };
    Ok(())
}

/// `MPI_Graph_create`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn graph_create(
    front: &Front,
    comm: ffi::MPI_Comm,
    nnodes: c_int,
    index: *const c_int,
    edges: *const c_int,
    _: c_int,
    newcomm: *mut ffi::MPI_Comm,
) -> Result<(), Failure> {
    let comm = front.comm(comm)?;
    check_intra(&comm, "MPI_Graph_create")?;
    // SAFETY: the program's arrays.
    let (index, edges) = unsafe {
        let index = ints(nnodes, index)?;
        (index, ints(index.last().copied().unwrap_or(0), edges)?)
    };
    if index.len() > comm.context.size() as usize {
        return Err(Failure::class(ffi::MPI_ERR_ARG));
    }
    let is_in = (comm.context.rank() as usize) < index.len();
    let made = comm.context.split(is_in.then_some(0), 0, None)?;
    let topology = Topology::Graph { index: index.to_vec(), edges: edges.to_vec() };
    // SAFETY: the program's variable.
    unsafe { *newcomm = front.made(&comm, made, topology, false)? };
    Ok(())
}

/// Returns the weights of edges, 1 each without any; and whether there are some.
///
/// # Safety
/// See the [module](self).
unsafe fn weights(count: c_int, at: *const c_int) -> Result<(Vec<c_int>, bool), Failure> {
    // SAFETY: constants of the shim and of a C file of this library, and the program's array.
    unsafe {
        if at.cast_mut() == ffi::RSMPI_UNWEIGHTED() {
            return Ok((vec![1; usize::try_from(count).unwrap_or(0)], false));
        }
        if counterfoil_recover_is_no_weights(at) != 0 {
            return Ok((Vec::new(), true));
        }
        Ok((ints(count, at)?.to_vec(), true))
    }
}

/// `MPI_Dist_graph_create_adjacent`.
///
/// # Safety
/// See the [module](self).
#[expect(clippy::too_many_arguments, reason = "MPI's")]
pub(crate) unsafe fn dist_graph_create_adjacent(
    front: &Front,
    comm: ffi::MPI_Comm,
    indegree: c_int,
    sources: *const c_int,
    sourceweights: *const c_int,
    outdegree: c_int,
    destinations: *const c_int,
    destweights: *const c_int,
    _: ffi::MPI_Info,
    _: c_int,
    newcomm: *mut ffi::MPI_Comm,
) -> Result<(), Failure> {
    let comm = front.comm(comm)?;
    check_intra(&comm, "MPI_Dist_graph_create_adjacent")?;
    // SAFETY: the program's arrays.
    let graph = unsafe {
        let (source_weights, is_weighted) = weights(indegree, sourceweights)?;
        Distributed {
            sources: ints(indegree, sources)?.to_vec(),
            source_weights,
            destinations: ints(outdegree, destinations)?.to_vec(),
            weights: weights(outdegree, destweights)?.0,
            is_weighted,
        }
    };
    let made = comm.context.duplicate()?;
    // SAFETY: the program's variable.
    unsafe { *newcomm = front.made(&comm, Some(made), Topology::Distributed(Rc::new(graph)), false)? };
    Ok(())
}

/// `MPI_Dist_graph_create`.
///
/// # Safety
/// See the [module](self).
#[expect(clippy::too_many_arguments, reason = "MPI's")]
pub(crate) unsafe fn dist_graph_create(
    front: &Front,
    comm: ffi::MPI_Comm,
    n: c_int,
    sources: *const c_int,
    degrees: *const c_int,
    destinations: *const c_int,
    edge_weights: *const c_int,
    _: ffi::MPI_Info,
    _: c_int,
    newcomm: *mut ffi::MPI_Comm,
) -> Result<(), Failure> {
    let comm = front.comm(comm)?;
    check_intra(&comm, "MPI_Dist_graph_create")?;
    // Each rank names edges of any ranks: all get all, as (source, destination, weight).
    let mut own: Vec<c_int> = Vec::new();
    // SAFETY: the program's arrays.
    let is_weighted = unsafe {
        let (sources, degrees) = (ints(n, sources)?, ints(n, degrees)?);
        let edges = degrees.iter().sum();
        let (destinations, (weights, is_weighted)) = (ints(edges, destinations)?, weights(edges, edge_weights)?);
        let mut at = 0;
        for (source, degree) in sources.iter().zip(degrees) {
            for _ in 0..*degree {
                own.extend([*source, destinations[at], weights[at]]);
                at += 1;
            }
        }
        is_weighted
    };
    let bytes: Vec<u8> = own.iter().flat_map(|number| number.to_le_bytes()).collect();
    let all = comm.context.with_view(|view| collectives::allgather(view, &bytes))?;
    let mut graph = Distributed { is_weighted, ..Distributed::default() };
    let rank = comm.context.rank() as c_int;
    for bytes in &all {
        let numbers: Vec<c_int> = bytes.chunks_exact(4).map(|four| number_of(four) as c_int).collect();
        for edge in numbers.chunks_exact(3) {
            if edge[1] == rank {
                graph.sources.push(edge[0]);
                graph.source_weights.push(edge[2]);
            }
            if edge[0] == rank {
                graph.destinations.push(edge[1]);
                graph.weights.push(edge[2]);
            }
        }
    }
    let made = comm.context.duplicate()?;
    // SAFETY: the program's variable.
    unsafe { *newcomm = front.made(&comm, Some(made), Topology::Distributed(Rc::new(graph)), false)? };
    Ok(())
}

fn number_of(bytes: &[u8]) -> u32 {
    bytes.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Takes the highest number that any rank of a group has free, and one more for the group alone.
fn take_numbers(context: &Context, free: u32) -> u32 {
    let number = context.take_number([free].into_iter());
    context.take_number([number + 1].into_iter());
    number
}

/// Returns the highest number that is free on a rank of a communicator. Collective.
fn highest_free(context: &Context) -> Result<u32, Failure> {
    let own = context.free_number().to_le_bytes();
    let all = context.with_view(|view| collectives::allgather(view, &own))?;
    Ok(all.iter().map(|bytes| number_of(bytes)).max().unwrap_or_default())
}

/// Makes the contexts of an intercommunicator: its own, and that of its local group.
fn inter(of: &Context, number: u32, members: Vec<u32>, remote: Vec<u32>) -> (Rc<Context>, Option<Rc<Context>>) {
    let number = take_numbers(of, number);
    let local = of.create_of_job(number + 1, members.clone(), None);
    (of.create_of_job(number, members, Some(remote)), Some(local))
}

/// Exchanges a message between the leaders of two groups, and tells this group what the other leader said. `peer`:
/// on the leader, the communicator with the other one, its rank there, and the tag.
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

/// Returns the highest number that is free on a rank of either group of an intercommunicator. Collective.
fn agree_between(comm: &Comm) -> Result<u32, Failure> {
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
    let (context, own_group) = inter(&local.context, number, members, numbers.collect());
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

/// Returns a tag of messages about a new communicator of a group, from the program's string.
///
/// # Safety
/// A string of the program's.
#[cfg(has = "Comm_create_from_group")]
unsafe fn tag_of(stringtag: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let text = unsafe { std::ffi::CStr::from_ptr(stringtag) };
    let mut hasher = rustc_hash::FxHasher::default();
    std::hash::Hasher::write(&mut hasher, text.to_bytes());
    GROUPS | (std::hash::Hasher::finish(&hasher) & (GROUPS as u64 - 1)) as c_int
}

/// Makes a communicator of a group, with the error handler that the program gives for it.
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
    let (context, own_group) = inter(&group, own.max(number_of(&told)), members, others);
    let handle = front.make_handle(front.world.handle, false)?;
    front.add_comm(Comm { handle, context, local: own_group, topology: Topology::None });
    // SAFETY: the program's variable.
    unsafe {
        *newcomm = handle;
        Failure::check(ffi::PMPI_Comm_set_errhandler(handle, errhandler))
    }
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
        // Operations under way keep what they need.
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
