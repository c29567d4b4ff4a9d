//! Collective operations: what a rank gives is kept, as `docs/collectives.md` says.

use std::ffi::{c_int, c_void};

use counterfoil_profile::COLLECTIVE;
use mpi_sys as ffi;

use super::send::{refuse, remember};
use crate::message::{Collective, Counts, Displs, Side, Types};
use crate::session::requests::Repeated;
use crate::session::{FullError, Lane, Piece, Session, enter, enter_for_room};
use crate::{Class, Operation};

unsafe extern "C" {
    static counterfoil_in_place: *mut c_void;
    static counterfoil_root: c_int;
}

fn in_place(side: &Side) -> bool {
    // SAFETY: a constant of a C file of this library.
    std::ptr::eq(side.buf, unsafe { counterfoil_in_place })
}

impl Side {
    /// Elements of rank `index`.
    ///
    /// # Safety
    /// The program has given MPI as many counts as ranks, or the one for all; `index` is a rank's.
    unsafe fn count(&self, index: usize) -> i64 {
        // SAFETY: the program gives MPI a number for each rank.
        unsafe {
            match self.counts {
                Counts::One(count) => count,
                Counts::Many(counts) => (*counts.add(index)).into(),
                Counts::ManyLarge(counts) => *counts.add(index),
            }
        }
    }

    /// The datatype of rank `index`.
    ///
    /// # Safety
    /// As for [`Side::count`], of datatypes.
    unsafe fn datatype(&self, index: usize) -> ffi::MPI_Datatype {
        match self.types {
            Types::One(datatype) => datatype,
            // SAFETY: the program gives MPI a datatype for each rank.
            Types::Many(types) => unsafe { *types.add(index) },
        }
    }
}

impl Session {
    /// What rank `index` of `of` gives or gets.
    ///
    /// # Safety
    /// `side` is the program's, and `index` is a rank's for which it gives MPI a part.
    unsafe fn piece_of(&mut self, side: &Side, index: usize) -> Option<Piece> {
        // SAFETY: the program gives MPI numbers for each rank.
        unsafe {
            let (count, datatype) = (side.count(index), side.datatype(index));
            let extent = self.datatypes.layout(datatype)?.extent;
            let bytes = match side.displs {
                Displs::Elements(displs) => *displs.add(index) as isize * extent,
                Displs::ElementsLarge(displs) => *displs.add(index) * extent,
                Displs::Bytes(displs) => *displs.add(index) as isize,
                Displs::BytesLarge(displs) => *displs.add(index),
                Displs::None => match side.counts {
                    Counts::One(count) => index as isize * count as isize * extent,
                    // One behind the other, each of its own length.
                    _ => (0..index).map(|before| side.count(before) as isize).sum::<isize>() * extent,
                },
            };
            self.piece(side.buf.wrapping_byte_offset(bytes), count, datatype)
        }
    }

    /// What this rank gives, in pieces; `None` if it gives nothing.
    ///
    /// # Safety
    /// `collective` is what the program has given MPI for an operation that has not ended.
    unsafe fn contribution(&mut self, collective: &Collective) -> Option<Vec<Piece>> {
        let Collective { operation, class, root, .. } = *collective;
        let (send, receive) = (collective.send?, collective.receive?);
        let comm = self.comms.get(collective.comm)?;
        let (rank, is_inter, mut parts) = (comm.rank, comm.is_inter, comm.len());
        // SAFETY: a constant of a C file of this library.
        let is_root = if is_inter { root == Some(unsafe { counterfoil_root }) } else { root == Some(rank) };
        let gives = match class {
            Class::OneToAll => is_root,
            // Between two groups, the root's own group gives nothing.
            Class::AllToOne => !(is_root || is_inter && root.is_some_and(|root| root < 0)),
            _ => true,
        };
        if !gives {
            return None;
        }
        let is_in_place = class != Class::Neighbours && in_place(&send);
        let side = if is_in_place { receive } else { send };
        let for_each = matches!(
            operation,
            Operation::Scatter
                | Operation::Scatterv
                | Operation::Alltoall
                | Operation::Alltoallv
                | Operation::Alltoallw
                | Operation::ReduceScatter
                | Operation::ReduceScatterBlock
                | Operation::NeighborAlltoall
                | Operation::NeighborAlltoallv
                | Operation::NeighborAlltoallw
        );
        // SAFETY: what the program gives MPI.
        unsafe {
            if for_each {
                if class == Class::Neighbours {
                    parts = out_neighbours(collective.comm)?;
                }
                return (0..parts).map(|index| self.piece_of(&side, index)).collect();
            }
            let own = usize::try_from(rank).ok()?;
            if is_in_place && matches!(operation, Operation::Allgather | Operation::Allgatherv) {
                return Some(vec![self.piece_of(&side, own)?]);
            }
            Some(vec![self.piece(side.buf, side.count(0), side.datatype(0))?])
        }
    }

    /// Keeps what this rank gives to an operation that begins; whether the program `waits` for it in the same call. `number` is its
    /// number once it has one: it gets it when this is called first.
    ///
    /// # Safety
    /// What the program gives MPI.
    pub(super) unsafe fn contribute(
        &mut self,
        collective: &Collective,
        number: &mut Option<u64>,
        waits: bool,
    ) -> Result<(), FullError> {
        *number = number.or_else(|| self.number(collective.comm));
        let Some(number) = *number else { return Ok(()) };
        // SAFETY: the caller's promise.
        let bytes = unsafe { self.keep_contribution(collective, number) }?;
        self.ledger.collective(collective.operation, bytes);
        if let Some(info) = self.comms.get(collective.comm) {
            if bytes.is_some() {
                info.kept = number;
            }
            if !waits {
                info.ended = number;
            }
        }
        Ok(())
    }

    /// Says how many bytes were kept, if any were.
    ///
    /// # Safety
    /// As for [`Session::contribution`].
    unsafe fn keep_contribution(&mut self, collective: &Collective, number: u64) -> Result<Option<usize>, FullError> {
        if !self.is_on() {
            return Ok(None);
        }
        // SAFETY: what the program gives MPI, and doesn't write before the operation has ended.
        let Some(pieces) = (unsafe { self.contribution(collective) }) else { return Ok(None) };
        let Some(comm) = self.comms.get(collective.comm) else { return Ok(None) };
        let lane = Lane { peer: self.rank, comm: comm.number, tag: COLLECTIVE };
        // SAFETY: as above.
        unsafe { self.log_pieces(lane, number, &pieces) }
    }
}

/// How many neighbours a rank sends to.
///
/// # Safety
/// `comm` is a communicator that lives.
unsafe fn out_neighbours(comm: ffi::MPI_Comm) -> Option<usize> {
    let (mut topology, mut rank, mut count) = (0, 0, 0);
    // SAFETY: a living communicator, constants of the shim, and pointers to local variables.
    unsafe {
        if ffi::PMPI_Topo_test(comm, &raw mut topology) != 0 {
            return None;
        }
        let code = if topology == ffi::RSMPI_CART {
            let code = ffi::PMPI_Cartdim_get(comm, &raw mut count);
            count *= 2;
            code
        } else if topology == ffi::RSMPI_GRAPH {
            ffi::PMPI_Comm_rank(comm, &raw mut rank);
            ffi::PMPI_Graph_neighbors_count(comm, rank, &raw mut count)
        } else if topology == ffi::RSMPI_DIST_GRAPH {
            let (mut into, mut weighted) = (0, 0);
            ffi::PMPI_Dist_graph_neighbors_count(comm, &raw mut into, &raw mut count, &raw mut weighted)
        } else {
            return None;
        };
        usize::try_from(count).ok().filter(|_| code == 0)
    }
}

/// Whether nobody ends this operation before everybody has begun it.
///
/// # Safety
/// `collective` is what the program has given MPI.
unsafe fn synchronises(collective: &Collective) -> bool {
    use Operation::{Allgather, Allreduce, Alltoall, Barrier, ReduceScatterBlock};
    match collective.operation {
        Barrier => true,
        Allreduce | Allgather | Alltoall | ReduceScatterBlock => {
            // SAFETY: no array is looked at: these have one count.
            collective.receive.is_some_and(|side| unsafe { side.count(0) } > 0)
        }
        _ => false,
    }
}

/// Keeps the contribution, then calls.
///
/// # Safety
/// The program's arguments: see the [module](super).
unsafe fn kept(collective: &Collective, waits: bool, call: impl FnOnce() -> c_int) -> c_int {
    let mut number = None;
    // SAFETY: what the program gives MPI.
    match enter_for_room(|session| unsafe { session.contribute(collective, &mut number, waits) }) {
        Some(Err(full)) => refuse(collective.comm, &full),
        _ => call(),
    }
}

/// An operation that has ended when it returns.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn collective(collective: &Collective, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: what the program gives MPI.
    unsafe {
        let code = kept(collective, true, call);
        if code == 0 {
            let synchronises = synchronises(collective);
            enter(|session| session.ended_here(collective.comm, synchronises));
        }
        code
    }
}

/// An operation that ends with its request.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn collective_immediate(
    collective: &Collective,
    _: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: what the program gives MPI, and writes no more before the request has ended.
    unsafe { kept(collective, false, call) }
}

/// An operation that begins when its request is started.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn collective_persistent(
    collective: &Collective,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the call puts a request there. The arrays that `collective` points to are the program's until the request is freed.
    unsafe { remember(request, Repeated::Collective(*collective), call()) }
}
