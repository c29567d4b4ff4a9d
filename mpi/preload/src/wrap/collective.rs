//! Collective operations: what a rank gives is kept, as `docs/collectives.md` says.

use std::ffi::{c_int, c_void};

use mpi_sys as ffi;

use super::send::{refuse, remember};
use crate::message::{Collective, Counts, Displs, Side, Types};
use crate::session::requests::Repeated;
use crate::session::{Barrier, FullError, Lane, Session, enter, is_together};
use crate::{Class, Operation};

/// The tag of what is kept of collective operations; no message has one below zero.
const COLLECTIVE: c_int = -2;
/// After so many operations of which nobody knows who has come how far, ranks are asked.
const UNSETTLED_MAX: u32 = 64;

unsafe extern "C" {
    static counterfoil_in_place: *mut c_void;
    static counterfoil_root: c_int;
}

/// Some elements.
type Piece = (*const c_void, i64, ffi::MPI_Datatype);

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
    unsafe fn piece(&mut self, side: &Side, index: usize) -> Option<Piece> {
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
            Some((side.buf.wrapping_byte_offset(bytes), count, datatype))
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
                return (0..parts).map(|index| self.piece(&side, index)).collect();
            }
            let own = usize::try_from(rank).ok()?;
            if is_in_place && matches!(operation, Operation::Allgather | Operation::Allgatherv) {
                return Some(vec![self.piece(&side, own)?]);
            }
            Some(vec![(side.buf, side.count(0), side.datatype(0))])
        }
    }

    /// Keeps what this rank gives to an operation that begins.
    ///
    /// # Safety
    /// As for [`Session::contribution`].
    pub(super) unsafe fn contribute(&mut self, collective: &Collective) -> Result<(), FullError> {
        let Some(comm) = self.comms.get(collective.comm) else { return Ok(()) };
        comm.collectives += 1;
        comm.unsettled += 1;
        let (number, comm, unsettled) = (comm.collectives, comm.number, comm.unsettled);
        if unsettled >= UNSETTLED_MAX {
            self.synchronise(collective.comm);
        }
        if !self.is_on() {
            self.ledger.collective(collective.operation, None);
            return Ok(());
        }
        // SAFETY: what the program gives MPI, and doesn't write before the operation has ended.
        let Some(pieces) = (unsafe { self.contribution(collective) }) else {
            self.ledger.collective(collective.operation, None);
            return Ok(());
        };
        let lane = Lane { peer: self.rank, comm, tag: COLLECTIVE };
        // SAFETY: as above.
        let bytes = unsafe { self.log_pieces(lane, number, &pieces) }?;
        self.ledger.collective(collective.operation, bytes);
        Ok(())
    }

    /// Begins to ask whether everybody has come here, without waiting for it.
    fn synchronise(&mut self, comm: ffi::MPI_Comm) {
        let Some(info) = self.comms.get(comm) else { return };
        info.unsettled = 0;
        let (number, so_far) = (info.number, info.collectives - 1);
        // SAFETY: the communicator of the program's operation, whose ranks all do this between the same two operations; a request
        // of ours.
        let (code, request) = unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            (ffi::PMPI_Ibarrier(comm, &raw mut request), request)
        };
        if code == 0 {
            let mut over = self.over_with(comm);
            over.push((number, so_far));
            self.barriers.push(Barrier { request, comm: number, over });
        } else {
            self.give_up(&format_args!("MPI_Ibarrier failed with code {code}"));
        }
    }

    /// Everybody has begun the operation that this rank has just ended: those before it are over everywhere.
    fn settled(&mut self, comm: ffi::MPI_Comm) {
        let over = self.over_with(comm);
        self.are_over(&over);
        let Some(info) = self.comms.get(comm) else { return };
        info.unsettled = 0;
        let own = (info.number, info.collectives.saturating_sub(1));
        self.are_over(&[own]);
    }

    /// Operations on other communicators that are over when everybody has come to one on this communicator: all that this rank
    /// has begun, if all ranks are in it. Had somebody still to begin one of those, the two ranks would wait for each other
    /// wherever operations synchronise, and a program must be right there, too. Threads may call in any order.
    fn over_with(&mut self, comm: ffi::MPI_Comm) -> Vec<(u32, u64)> {
        let ranks = self.ranks as usize;
        match self.comms.get(comm) {
            Some(info) if !info.is_inter && info.len() == ranks && !is_together() => {
                let number = info.number;
                self.take_unsettled(Some(number))
            }
            _ => Vec::new(),
        }
    }

    /// Operations of which it isn't known that they are over, but for those of one communicator: communicators and how far.
    pub(crate) fn take_unsettled(&mut self, but: Option<u32>) -> Vec<(u32, u64)> {
        let mut found = self.comms.take_unsettled(but);
        found.append(&mut self.left_open);
        found
    }

    /// Operations are over everywhere.
    pub(crate) fn are_over(&mut self, operations: &[(u32, u64)]) {
        for &(comm, number) in operations {
            self.release(Lane { peer: self.rank, comm, tag: COLLECTIVE }, number);
        }
    }

    /// A communicator is about to be given up: waits for everybody where ranks were asked on it (nothing may be under way), and keeps
    /// in mind which of its operations may not be over.
    pub(crate) fn leave(&mut self, comm: ffi::MPI_Comm) {
        let Some(info) = self.comms.get(comm) else { return };
        let (number, collectives, is_open) = (info.number, info.collectives, info.collectives > info.over);
        self.finish_barriers(Some(number));
        if is_open {
            self.left_open.push((number, collectives));
        }
    }

    /// Waits for everybody where ranks were asked on the communicator of this number, or on any: nothing may be under way on one
    /// that is given up, and all ranks give it up.
    pub(crate) fn finish_barriers(&mut self, comm: Option<u32>) {
        let (now, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.barriers)
            .into_iter()
            .partition(|barrier| comm.is_none_or(|comm| comm == barrier.comm));
        self.barriers = later;
        for mut barrier in now {
            // SAFETY: a request of `synchronise`.
            if unsafe { ffi::PMPI_Wait(&raw mut barrier.request, ffi::RSMPI_STATUS_IGNORE) } == 0 {
                self.are_over(&barrier.over);
            }
        }
    }

    /// Looks whether everybody has come where ranks were asked.
    pub(crate) fn sweep_barriers(&mut self) {
        let mut at = 0;
        while let Some(barrier) = self.barriers.get_mut(at) {
            let mut flag = 0;
            // SAFETY: a request of `synchronise`, and a pointer to a local variable.
            let code = unsafe { ffi::PMPI_Test(&raw mut barrier.request, &raw mut flag, ffi::RSMPI_STATUS_IGNORE) };
            if code == 0 && flag == 0 {
                at += 1;
                continue;
            }
            let barrier = self.barriers.swap_remove(at);
            if code == 0 {
                self.are_over(&barrier.over);
            }
        }
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
unsafe fn kept(collective: &Collective, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: what the program gives MPI.
    match enter(|session| unsafe { session.contribute(collective) }) {
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
        let code = kept(collective, call);
        if code == 0 && synchronises(collective) {
            enter(|session| session.settled(collective.comm));
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
    unsafe { kept(collective, call) }
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
