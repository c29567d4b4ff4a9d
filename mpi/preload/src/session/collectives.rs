//! Collective operations: the contributions of this rank, as `docs/collectives.md` says.

use std::ffi::{c_int, c_void};

use mpi_sys as ffi;

use super::{FullError, Piece, Session};
use crate::message::{Collective, Counts, Displs, Side, Types};
use crate::{Class, Operation};

unsafe extern "C" {
    static counterfoil_in_place: *mut c_void;
    static counterfoil_root: c_int;
}

fn is_in_place(side: &Side) -> bool {
    // SAFETY: a constant of a C file of this library.
    std::ptr::eq(side.buf, unsafe { counterfoil_in_place })
}

impl Side {
    /// Returns the number of elements of rank `index`.
    ///
    /// # Safety
    /// The program has given MPI as many counts as ranks, or one for all; `index` is a rank's.
    pub(crate) unsafe fn count(&self, index: usize) -> i64 {
        // SAFETY: the program gives MPI a count for each rank.
        unsafe {
            match self.counts {
                Counts::One(count) => count,
                Counts::Many(counts) => (*counts.add(index)).into(),
                #[cfg(wraps = "large_counts")]
                Counts::ManyLarge(counts) => *counts.add(index),
            }
        }
    }

    /// Returns the datatype of rank `index`.
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
    /// Returns the part of rank `index`.
    ///
    /// # Safety
    /// `side` is the program's, and `index` a rank's for which it gives MPI a part.
    unsafe fn part(&mut self, side: &Side, index: usize) -> Option<Piece> {
        // SAFETY: the program gives MPI counts and displacements for each rank.
        unsafe {
            let (count, datatype) = (side.count(index), side.datatype(index));
            let extent = self.datatypes.layout(datatype)?.extent;
            let bytes = match side.displs {
                Displs::Elements(displs) => *displs.add(index) as isize * extent,
                #[cfg(wraps = "large_counts")]
                Displs::ElementsLarge(displs) => *displs.add(index) * extent,
                Displs::Bytes(displs) => *displs.add(index) as isize,
                Displs::BytesLarge(displs) => *displs.add(index),
                Displs::Contiguous => match side.counts {
                    Counts::One(count) => index as isize * count as isize * extent,
                    // Contiguous parts of different lengths.
                    _ => (0..index).map(|before| side.count(before) as isize).sum::<isize>() * extent,
                },
            };
            self.piece(side.buf.wrapping_byte_offset(bytes), count, datatype)
        }
    }

    /// Returns this rank's contribution, in pieces; `None` if it makes none.
    ///
    /// # Safety
    /// `collective` is what the program has given MPI for an operation that has not ended.
    unsafe fn contribution(&mut self, collective: &Collective) -> Option<Vec<Piece>> {
        let Collective { operation, class, root, .. } = *collective;
        let (send, receive) = (collective.send?, collective.receive?);
        let comm = self.comm(collective.comm)?;
        let (rank, is_inter, mut parts) = (comm.rank(), comm.is_inter(), comm.peers());
        // SAFETY: a constant of a C file of this library.
        let is_root = if is_inter { root == Some(unsafe { counterfoil_root }) } else { root == Some(rank) };
        let contributes = match class {
            Class::OneToAll => is_root,
            // Of an intercommunicator, the root's own group contributes nothing.
            Class::AllToOne => !(is_root || is_inter && root.is_some_and(|root| root < 0)),
            _ => true,
        };
        if !contributes {
            return None;
        }
        let is_in_place = class != Class::Neighbours && is_in_place(&send);
        let side = if is_in_place { receive } else { send };
        let has_parts = matches!(
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
        // SAFETY: the program's arguments to MPI.
        unsafe {
            if has_parts {
                if class == Class::Neighbours {
                    parts = out_neighbours(collective.comm)?;
                }
                return (0..parts).map(|index| self.part(&side, index)).collect();
            }
            let own = usize::try_from(rank).ok()?;
            if is_in_place && matches!(operation, Operation::Allgather | Operation::Allgatherv) {
                return Some(vec![self.part(&side, own)?]);
            }
            Some(vec![self.piece(side.buf, side.count(0), side.datatype(0))?])
        }
    }

    /// Counts an operation that begins and logs this rank's contribution. `waits` tells whether the program waits for it in the same call.
    /// `number` is its number once it has one: this function sets it when called first.
    ///
    /// # Safety
    /// The program's arguments to MPI.
    pub(crate) unsafe fn begin_collective(
        &mut self,
        collective: &Collective,
        number: &mut Option<u64>,
        waits: bool,
    ) -> Result<(), FullError> {
        let Some(comm) = self.comm_id(collective.comm) else { return Ok(()) };
        *number = number.or_else(|| self.logger.handle_collective_begun(comm));
        let Some(number) = *number else { return Ok(()) };
        let mut bytes = None;
        // SAFETY: the program's arguments to MPI, whose memory it doesn't write before the operation has ended.
        let pieces = if self.is_on() { unsafe { self.contribution(collective) } } else { None };
        if let Some(pieces) = pieces {
            let stream = self.logger.contributions(comm);
            // SAFETY: as above.
            bytes = unsafe { self.log_pieces(stream, number, &pieces) }?;
        }
        self.ledger.collective(collective.operation, bytes);
        if let Some(bytes) = bytes {
            self.logger.handle_contribution(comm, number, bytes);
        }
        if !waits {
            let started = self.logger.handle_collective_started(comm, number);
            self.check(started);
            self.flush();
        }
        Ok(())
    }

    /// Handles an operation that MPI has refused, so that it has not begun.
    pub(crate) fn collective_refused(&mut self, collective: &Collective, number: u64) {
        if let Some(comm) = self.comm_id(collective.comm) {
            self.logger.handle_collective_refused(comm, number);
        }
    }

    /// Handles an operation that has ended in the call that began it.
    pub(crate) fn collective_ended(&mut self, comm: ffi::MPI_Comm, synchronises: bool) {
        if let Some(comm) = self.comm_id(comm) {
            let ended = self.logger.handle_collective_ended(comm, synchronises);
            self.check(ended);
            self.release_without_blocking();
            self.flush();
        }
    }
}

/// Returns the number of neighbours that a rank sends to.
///
/// # Safety
/// `comm` is a valid communicator.
unsafe fn out_neighbours(comm: ffi::MPI_Comm) -> Option<usize> {
    let (mut topology, mut rank, mut count) = (0, 0, 0);
    // SAFETY: a valid communicator, constants of the shim, and pointers to local variables.
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
