//! Topologies: each rank's neighbours, and every way to make a communicator with them.
//!
//! # Safety
//! The unsafe functions take the program's own arguments to an MPI call still in progress. Pointers are valid as MPI
//! demands until it returns.

use std::ffi::c_int;
use std::rc::Rc;

use counterfoil_mpi::recovering::Grid;
use counterfoil_runtime::collectives;
use mpi_sys as ffi;

use super::{Comm, check_intra, ints, number_of};
use crate::failure::Failure;
use crate::front::Front;

unsafe extern "C" {
    fn counterfoil_recover_is_no_weights(weights: *const c_int) -> c_int;
}

/// A communicator's topology.
#[derive(Clone, Debug)]
pub(crate) enum Topology {
    None,
    Cart(Grid),
    Graph { index: Vec<c_int>, edges: Vec<c_int> },
    Distributed(Rc<Distributed>),
}

/// A rank's edges in a distributed graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct Distributed {
    pub(crate) sources: Vec<c_int>,
    pub(crate) source_weights: Vec<c_int>,
    pub(crate) destinations: Vec<c_int>,
    pub(crate) weights: Vec<c_int>,
    pub(crate) is_weighted: bool,
}

/// A neighbour: `None` for none at a grid's border.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) peer: Option<u32>,
    /// Number distinguishing messages between the same two ranks.
    pub(crate) slot: usize,
}

impl Comm {
    pub(crate) fn has_topology(&self) -> bool {
        !matches!(self.topology, Topology::None)
    }

    /// Returns the neighbours that messages come from, in their order.
    pub(crate) fn sources(&self) -> Vec<Edge> {
        match &self.topology {
            Topology::None => Vec::new(),
            // Messages sent downwards arrive from above.
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

    /// Returns a rank's neighbours in a graph.
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

/// Returns edge weights, 1 each without any; and whether there are some.
///
/// # Safety
/// See the [module](self).
unsafe fn weights(count: c_int, at: *const c_int) -> Result<(Vec<c_int>, bool), Failure> {
    // SAFETY: constants from the shim and from this library's C file, and the program's array.
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
    // Each rank names edges between any ranks: all get all, as (source, destination, weight).
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
