//! Calls passed on by the logging library, but answered here.
//!
//! # Safety
//! MPI's conditions on the arguments hold: they are the program's own, passed to a call still in progress.

use std::ffi::{c_int, c_void};

use mpi_sys as ffi;

use crate::comms::{Comm, Distributed, Topology};
use crate::failure::Failure;
use crate::front::{Front, enter};
use crate::requests;

unsafe extern "C" {
    fn counterfoil_recover_is_predefined(key: c_int) -> c_int;
}

/// Exports functions returning an error code.
///
/// Errors go to the handler of the communicator.
macro_rules! exports {
    ($($name:ident($($argument:ident: $kind:ty),* $(,)?) on $comm:expr, |$front:ident| $body:block)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`")]
            ///
            /// # Safety
            /// MPI's conditions on its arguments hold.
            #[unsafe(no_mangle)]
            #[allow(clippy::too_many_arguments, unused_unsafe)]
            pub unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> c_int {
                // SAFETY: the caller's arguments are what MPI asks for.
                unsafe { enter(stringify!($name), $comm, |$front| $body) }
            }

            const _: unsafe extern "C" fn($($kind),*) -> c_int = ffi::$name;
        )*
    };
}

pub(crate) use exports;

/// Stores numbers in the program's array with room for `max`.
///
/// # Safety
/// See the [module](self).
unsafe fn store(numbers: &[c_int], into: *mut c_int, max: c_int) {
    for (index, number) in numbers.iter().enumerate().take(usize::try_from(max).unwrap_or(0)) {
        // SAFETY: the program's array.
        unsafe { *into.add(index) = *number };
    }
}

fn topology_error() -> Failure {
    Failure::class(ffi::MPI_ERR_TOPOLOGY)
}

/// Returns a rank as MPI does: `None` is `MPI_PROC_NULL`.
fn or_nobody(rank: Option<u32>) -> c_int {
    // SAFETY: a shim constant.
    rank.map_or(unsafe { ffi::RSMPI_PROC_NULL }, |rank| rank as c_int)
}

fn distributed(comm: &Comm) -> Result<&Distributed, Failure> {
    match &comm.topology {
        Topology::Distributed(graph) => Ok(graph),
        _ => Err(topology_error()),
    }
}

/// Compares two lists of ranks: `MPI_CONGRUENT` if they are equal.
pub(crate) fn relation(one: &[u32], other: &[u32]) -> c_int {
    // SAFETY: shim constants.
    unsafe {
        if one == other {
            ffi::RSMPI_CONGRUENT
        } else if one.len() == other.len() && one.iter().all(|rank| other.contains(rank)) {
            ffi::RSMPI_SIMILAR
        } else {
            ffi::RSMPI_UNEQUAL
        }
    }
}

/// Returns the MPI's communicator with the attribute.
pub(crate) fn attributes_of(front: &Front, comm: ffi::MPI_Comm, key: c_int) -> Result<ffi::MPI_Comm, Failure> {
    let comm = front.comm(comm)?.handle;
    // SAFETY: a function from this library's C file, comparing numbers.
    let is_own = comm == front.world.handle && unsafe { counterfoil_recover_is_predefined(key) } == 0;
    Ok(if is_own { front.world_attributes } else { comm })
}

exports! {
    MPI_Comm_rank(comm: ffi::MPI_Comm, rank: *mut c_int) on Some(comm), |front| {
        *rank = front.comm(comm)?.context.rank() as c_int;
        Ok(())
    }

    MPI_Comm_size(comm: ffi::MPI_Comm, size: *mut c_int) on Some(comm), |front| {
        *size = front.comm(comm)?.context.size() as c_int;
        Ok(())
    }

    MPI_Comm_test_inter(comm: ffi::MPI_Comm, flag: *mut c_int) on Some(comm), |front| {
        *flag = c_int::from(front.comm(comm)?.context.is_inter());
        Ok(())
    }

    MPI_Comm_remote_size(comm: ffi::MPI_Comm, size: *mut c_int) on Some(comm), |front| {
        let comm = front.comm(comm)?;
        if !comm.context.is_inter() {
            return Err(Failure::class(ffi::MPI_ERR_COMM));
        }
        *size = comm.context.peers().len() as c_int;
        Ok(())
    }

    MPI_Comm_group(comm: ffi::MPI_Comm, group: *mut ffi::MPI_Group) on Some(comm), |front| {
        *group = front.group_of(front.comm(comm)?.context.members().to_vec());
        Ok(())
    }

    MPI_Comm_remote_group(comm: ffi::MPI_Comm, group: *mut ffi::MPI_Group) on Some(comm), |front| {
        let comm = front.comm(comm)?;
        if !comm.context.is_inter() {
            return Err(Failure::class(ffi::MPI_ERR_COMM));
        }
        *group = front.group_of(comm.context.peers().to_vec());
        Ok(())
    }

    MPI_Comm_compare(one: ffi::MPI_Comm, other: ffi::MPI_Comm, result: *mut c_int) on Some(one), |front| {
        let (a, b) = (front.comm(one)?, front.comm(other)?);
        *result = if one == other {
            ffi::RSMPI_IDENT
        } else if a.context.is_inter() != b.context.is_inter() {
            ffi::RSMPI_UNEQUAL
        } else if a.context.is_inter() {
            let local = relation(a.context.members(), b.context.members());
            let remote = relation(a.context.peers(), b.context.peers());
            if local == remote {
                local
            } else if local == ffi::RSMPI_UNEQUAL || remote == ffi::RSMPI_UNEQUAL {
                ffi::RSMPI_UNEQUAL
            } else {
                ffi::RSMPI_SIMILAR
            }
        } else {
            relation(a.context.members(), b.context.members())
        };
        Ok(())
    }

    MPI_Comm_get_attr(
        comm: ffi::MPI_Comm,
        key: c_int,
        value: *mut c_void,
        flag: *mut c_int,
    ) on Some(comm), |front| {
        Failure::check(ffi::PMPI_Comm_get_attr(attributes_of(front, comm, key)?, key, value, flag))
    }

    MPI_Comm_set_attr(comm: ffi::MPI_Comm, key: c_int, value: *mut c_void) on Some(comm), |front| {
        Failure::check(ffi::PMPI_Comm_set_attr(attributes_of(front, comm, key)?, key, value))
    }

    MPI_Comm_delete_attr(comm: ffi::MPI_Comm, key: c_int) on Some(comm), |front| {
        Failure::check(ffi::PMPI_Comm_delete_attr(attributes_of(front, comm, key)?, key))
    }

    MPI_Topo_test(comm: ffi::MPI_Comm, status: *mut c_int) on Some(comm), |front| {
        *status = match front.comm(comm)?.topology {
            Topology::None => ffi::RSMPI_UNDEFINED,
            Topology::Cart(_) => ffi::RSMPI_CART,
            Topology::Graph { .. } => ffi::RSMPI_GRAPH,
            Topology::Distributed(_) => ffi::RSMPI_DIST_GRAPH,
        };
        Ok(())
    }

    MPI_Cartdim_get(comm: ffi::MPI_Comm, ndims: *mut c_int) on Some(comm), |front| {
        let comm = front.comm(comm)?;
        let Topology::Cart(grid) = &comm.topology else { return Err(topology_error()) };
        *ndims = grid.dims.len() as c_int;
        Ok(())
    }

    MPI_Cart_get(
        comm: ffi::MPI_Comm,
        maxdims: c_int,
        dims: *mut c_int,
        periods: *mut c_int,
        coords: *mut c_int,
    ) on Some(comm), |front| {
        let comm = front.comm(comm)?;
        let Topology::Cart(grid) = &comm.topology else { return Err(topology_error()) };
        let ints = |numbers: &[u32]| numbers.iter().map(|number| *number as c_int).collect::<Vec<_>>();
        store(&ints(&grid.dims), dims, maxdims);
        store(&grid.periods.iter().map(|flag| c_int::from(*flag)).collect::<Vec<_>>(), periods, maxdims);
        store(&ints(&grid.coords_of(comm.context.rank())), coords, maxdims);
        Ok(())
    }

    MPI_Cart_rank(comm: ffi::MPI_Comm, coords: *const c_int, rank: *mut c_int) on Some(comm), |front| {
        let comm = front.comm(comm)?;
        let Topology::Cart(grid) = &comm.topology else { return Err(topology_error()) };
        let coords: Vec<i64> = (0..grid.dims.len()).map(|index| i64::from(*coords.add(index))).collect();
        let found = grid.rank_at(&coords).ok_or_else(|| Failure::class(ffi::MPI_ERR_ARG))?;
        *rank = found as c_int;
        Ok(())
    }

    MPI_Cart_coords(comm: ffi::MPI_Comm, rank: c_int, maxdims: c_int, coords: *mut c_int) on Some(comm), |front| {
        let comm = front.comm(comm)?;
        let Topology::Cart(grid) = &comm.topology else { return Err(topology_error()) };
        let found = grid.coords_of(comm.peer(rank)?);
        store(&found.iter().map(|number| *number as c_int).collect::<Vec<_>>(), coords, maxdims);
        Ok(())
    }

    MPI_Cart_shift(
        comm: ffi::MPI_Comm,
        direction: c_int,
        displacement: c_int,
        source: *mut c_int,
        destination: *mut c_int,
    ) on Some(comm), |front| {
        let comm = front.comm(comm)?;
        let Topology::Cart(grid) = &comm.topology else { return Err(topology_error()) };
        let dimension = usize::try_from(direction).ok().filter(|dimension| *dimension < grid.dims.len());
        let dimension = dimension.ok_or_else(|| Failure::class(ffi::MPI_ERR_DIMS))?;
        let (below, above) = grid.shift(comm.context.rank(), dimension, displacement);
        (*source, *destination) = (or_nobody(below), or_nobody(above));
        Ok(())
    }

    MPI_Cart_map(
        comm: ffi::MPI_Comm,
        ndims: c_int,
        dims: *const c_int,
        periods: *const c_int,
        rank: *mut c_int,
    ) on Some(comm), |front| {
        let _ = periods;
        let dims: Vec<u32> = (0..ndims.unsigned_abs() as usize).map(|index| (*dims.add(index)).unsigned_abs()).collect();
        let place = front.comm(comm)?.context.place_in(&dims);
        *rank = place.map_or(ffi::RSMPI_UNDEFINED, |place| place as c_int);
        Ok(())
    }

    MPI_Graph_map(
        comm: ffi::MPI_Comm,
        nnodes: c_int,
        index: *const c_int,
        edges: *const c_int,
        rank: *mut c_int,
    ) on Some(comm), |front| {
        let _ = (index, edges);
        let own = front.comm(comm)?.context.rank() as c_int;
        *rank = if own < nnodes { own } else { ffi::RSMPI_UNDEFINED };
        Ok(())
    }

    MPI_Graphdims_get(comm: ffi::MPI_Comm, nnodes: *mut c_int, nedges: *mut c_int) on Some(comm), |front| {
        let comm = front.comm(comm)?;
        let Topology::Graph { index, edges } = &comm.topology else { return Err(topology_error()) };
        (*nnodes, *nedges) = (index.len() as c_int, edges.len() as c_int);
        Ok(())
    }

    MPI_Graph_get(
        comm: ffi::MPI_Comm,
        maxindex: c_int,
        maxedges: c_int,
        into_index: *mut c_int,
        into_edges: *mut c_int,
    ) on Some(comm), |front| {
        let comm = front.comm(comm)?;
        let Topology::Graph { index, edges } = &comm.topology else { return Err(topology_error()) };
        store(index, into_index, maxindex);
        store(edges, into_edges, maxedges);
        Ok(())
    }

    MPI_Graph_neighbors_count(comm: ffi::MPI_Comm, rank: c_int, count: *mut c_int) on Some(comm), |front| {
        let comm = front.comm(comm)?;
        let Topology::Graph { .. } = &comm.topology else { return Err(topology_error()) };
        *count = comm.neighbours_of(comm.peer(rank)?).len() as c_int;
        Ok(())
    }

    MPI_Graph_neighbors(comm: ffi::MPI_Comm, rank: c_int, max: c_int, neighbors: *mut c_int) on Some(comm), |front| {
        let comm = front.comm(comm)?;
        let Topology::Graph { .. } = &comm.topology else { return Err(topology_error()) };
        store(&comm.neighbours_of(comm.peer(rank)?), neighbors, max);
        Ok(())
    }

    MPI_Dist_graph_neighbors_count(
        comm: ffi::MPI_Comm,
        indegree: *mut c_int,
        outdegree: *mut c_int,
        weighted: *mut c_int,
    ) on Some(comm), |front| {
        let comm = front.comm(comm)?;
        let graph = distributed(&comm)?;
        (*indegree, *outdegree) = (graph.sources.len() as c_int, graph.destinations.len() as c_int);
        *weighted = c_int::from(graph.is_weighted);
        Ok(())
    }

    MPI_Dist_graph_neighbors(
        comm: ffi::MPI_Comm,
        maxindegree: c_int,
        sources: *mut c_int,
        source_weights: *mut c_int,
        maxoutdegree: c_int,
        destinations: *mut c_int,
        weights: *mut c_int,
    ) on Some(comm), |front| {
        let comm = front.comm(comm)?;
        let graph = distributed(&comm)?;
        store(&graph.sources, sources, maxindegree);
        store(&graph.destinations, destinations, maxoutdegree);
        if graph.is_weighted {
            for (own, into, max) in
                [(&graph.source_weights, source_weights, maxindegree), (&graph.weights, weights, maxoutdegree)]
            {
                if into != ffi::RSMPI_UNWEIGHTED() {
                    store(own, into, max);
                }
            }
        }
        Ok(())
    }

    MPI_Grequest_complete(request: ffi::MPI_Request) on None, |front| {
        requests::complete_generalized(front, request)
    }
}

#[cfg(has = "Psend_init")]
exports! {
    MPI_Pready(partition: c_int, request: ffi::MPI_Request) on None, |front| {
        requests::ready(front, partition, request)
    }

    MPI_Pready_range(low: c_int, high: c_int, request: ffi::MPI_Request) on None, |front| {
        (low..=high).try_for_each(|partition| requests::ready(front, partition, request))
    }

    MPI_Parrived(request: ffi::MPI_Request, partition: c_int, flag: *mut c_int) on None, |front| {
        let _ = partition;
        requests::arrived(front, request, flag)
    }
}

/// `MPI_Pready_list`, whose array is const in the standard and not in Open MPI.
///
/// # Safety
/// MPI's conditions on its arguments hold.
#[cfg(has = "Psend_init")]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Pready_list(
    length: c_int,
    partitions: *const c_int,
    request: ffi::MPI_Request,
) -> c_int {
    enter("MPI_Pready_list", None, |front| {
        let mut numbers = 0..length.unsigned_abs() as usize;
        // SAFETY: the program's array has that many.
        numbers.try_for_each(|index| requests::ready(front, unsafe { *partitions.add(index) }, request))
    })
}
