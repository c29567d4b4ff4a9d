//! Collective operations: this rank's contributions, as `docs/book/src/explanation/collectives.md` says.

use std::ffi::{c_int, c_void};

use mpi_sys as ffi;

#[cfg(wraps = "collective_persistent")]
use super::requests::PersistentCollective;
use super::{FullError, Piece, Session};
use crate::message::Collective;
use crate::{Class, Operation};
use counterfoil_mpi_core::arguments::{Side, group_size, neighbours};

unsafe extern "C" {
    static counterfoil_in_place: *mut c_void;
    static counterfoil_root: c_int;
}

/// Returns `true` for `MPI_IN_PLACE`.
pub(super) fn is_in_place(buf: *const c_void) -> bool {
    // SAFETY: a constant of a C file of this library.
    std::ptr::eq(buf, unsafe { counterfoil_in_place })
}

/// A collective operation already begun.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BegunCollective {
    /// Its number, once it has one.
    pub(crate) number: Option<u64>,
    /// MPI's code if it can't pack this rank's contribution.
    ///
    /// It refuses the operation then.
    pub(crate) unpacked: Option<c_int>,
}

impl Session {
    /// Returns rank `index`'s part.
    ///
    /// # Safety
    /// `side` is the program's, and `index` a rank's for which it gives MPI a part.
    unsafe fn part(&mut self, side: &Side, index: usize) -> Option<Piece> {
        // SAFETY: the program gives MPI counts and displacements for each rank.
        unsafe {
            let (count, datatype) = (side.count(index)?, side.datatype(index)?);
            let extent = self.datatypes.layout(datatype)?.extent;
            let bytes = side.offset(index, extent)?;
            self.piece(side.buf.wrapping_byte_offset(bytes), count, datatype)
        }
    }

    /// Returns this rank's contribution, in pieces; `None` if it makes none.
    ///
    /// # Safety
    /// `collective` is the program's argument to MPI, for an operation that has not ended.
    pub(crate) unsafe fn contribution(&mut self, collective: &Collective) -> Option<Vec<Piece>> {
        let Collective { operation, class, root, .. } = *collective;
        let (send, receive) = (collective.send?, collective.receive?);
        let comm = self.comm(collective.comm)?;
        let (rank, is_inter, mut parts) = (comm.rank(), comm.is_inter(), comm.peers());
        // SAFETY: a constant of a C file of this library.
        let is_root = if is_inter { root == Some(unsafe { counterfoil_root }) } else { root == Some(rank) };
        let contributes = match class {
            Class::OneToAll => is_root,
            // On an intercommunicator, the root's own group contributes nothing.
            Class::AllToOne => !(is_root || is_inter && root.is_some_and(|root| root < 0)),
            _ => true,
        };
        if !contributes {
            return None;
        }
        // Elsewhere it is an error found by MPI: the root's own contribution to a gather or a reduction isn't logged.
        let may_be_in_place = !is_inter && !matches!(class, Class::OneToAll | Class::AllToOne | Class::Neighbours);
        let is_in_place = may_be_in_place && is_in_place(send.buf);
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
                    (parts, _) = neighbours(collective.comm)?;
                } else if is_inter && matches!(operation, Operation::ReduceScatter | Operation::ReduceScatterBlock) {
                    // The counts are the own group's; the other group's have the same sum.
                    parts = group_size(collective.comm)?;
                }
                return (0..parts).map(|index| self.part(&side, index)).collect();
            }
            let own = usize::try_from(rank).ok()?;
            if is_in_place && matches!(operation, Operation::Allgather | Operation::Allgatherv) {
                return Some(vec![self.part(&side, own)?]);
            }
            Some(vec![self.piece(side.buf, side.count(0)?, side.datatype(0)?)?])
        }
    }

    /// Counts a new operation and logs this rank's contribution.
    ///
    /// `waits` tells whether the program waits for it in the same call. `begun` keeps its state for repeated calls of
    /// this function.
    ///
    /// # Safety
    /// The program's arguments to MPI.
    pub(crate) unsafe fn begin_collective(
        &mut self,
        collective: &Collective,
        begun: &mut BegunCollective,
        waits: bool,
    ) -> Result<(), FullError> {
        // SAFETY: the program's arguments to MPI, whose memory it doesn't write before the operation has ended.
        unsafe {
            let pieces = if self.is_on() { self.contribution(collective) } else { None };
            self.begin_with(collective.operation, collective.comm, pieces.as_deref(), begun, waits)
        }
    }

    /// Same as [`begin_collective`](Self::begin_collective), with the pieces of this rank's contribution.
    ///
    /// # Safety
    /// See [`log`](Self::log), for each piece.
    pub(crate) unsafe fn begin_with(
        &mut self,
        operation: Operation,
        comm: ffi::MPI_Comm,
        pieces: Option<&[Piece]>,
        begun: &mut BegunCollective,
        waits: bool,
    ) -> Result<(), FullError> {
        let Some(comm) = self.comm_id(comm) else { return Ok(()) };
        begun.number = begun.number.or_else(|| self.logger.handle_collective_begun(comm));
        let Some(number) = begun.number else { return Ok(()) };
        let mut bytes = None;
        if let Some(pieces) = pieces.filter(|_| self.is_on()) {
            let stream = self.logger.contributions(comm);
            // SAFETY: the caller's promise.
            let logged = unsafe { self.log_pieces(stream, number, pieces) }?;
            bytes = logged.unwrap_or_else(|code| {
                begun.unpacked = Some(code);
                None
            });
        }
        self.ledger.collective(operation, bytes);
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

    /// Returns a persistent operation with this rank's contribution.
    ///
    /// The program may free the arrays passed to its call, and datatypes.
    ///
    /// # Safety
    /// `collective` is the program's argument to MPI, which has accepted it.
    #[cfg(wraps = "collective_persistent")]
    pub(crate) unsafe fn hold_collective(&mut self, collective: &Collective) -> PersistentCollective {
        // SAFETY: the caller's promise.
        let mut pieces = unsafe { self.contribution(collective) };
        for piece in pieces.iter_mut().flatten() {
            piece.hold(&mut self.datatypes);
        }
        PersistentCollective { operation: collective.operation, comm: collective.comm, pieces }
    }

    /// Handles MPI's answer to an operation: it may have refused it, so that it has not begun.
    pub(crate) fn collective_answered(&mut self, comm: ffi::MPI_Comm, begun: BegunCollective, code: c_int) {
        if let (0, Some(unpacked)) = (code, begun.unpacked) {
            self.give_up_packing(unpacked);
        } else if code != 0
            && let Some(comm) = self.comm_id(comm)
            && let Some(number) = begun.number
        {
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
