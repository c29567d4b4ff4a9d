//! When collective operations are over everywhere, so that what was kept for them is let go: `docs/collectives.md`.

use counterfoil_mpi::room::is_failure;
use counterfoil_profile::COLLECTIVE;
use mpi_sys as ffi;

use super::ask::has_ended;
use super::{Lane, Session, is_together};

/// After so many operations of which nobody knows who has come how far, ranks are asked.
const UNSETTLED_MAX: u32 = 64;
/// When so many communicators were given up with operations of which it isn't known that they are over, ranks are asked.
const LEFT_MAX: usize = 64;

/// A synchronisation of the library's own.
#[derive(Debug)]
pub(crate) struct Barrier {
    request: ffi::MPI_Request,
    /// The communicator's number.
    comm: u32,
    /// Operations that are over when it has ended: communicators and how far.
    over: Vec<(u32, u64)>,
}

impl Session {
    /// An operation begins: its number on its communicator.
    pub(crate) fn number(&mut self, comm: ffi::MPI_Comm) -> Option<u64> {
        let info = self.comms.get(comm)?;
        info.collectives += 1;
        info.unsettled += 1;
        let (number, unsettled) = (info.collectives, info.unsettled);
        if unsettled >= UNSETTLED_MAX {
            self.synchronise(comm);
        }
        Some(number)
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
        } else if !is_failure(code) {
            self.give_up(&format_args!("MPI_Ibarrier failed with code {code}"));
        }
    }

    /// An operation that the program waited for has ended here. If it `synchronises`, everybody has begun it: those before it are over
    /// everywhere.
    pub(crate) fn ended_here(&mut self, comm: ffi::MPI_Comm, synchronises: bool) {
        self.moves += 1;
        let Some(info) = self.comms.get(comm) else { return };
        info.ended = info.collectives;
        info.waited = info.collectives;
        if synchronises {
            info.unsettled = 0;
            info.over = info.collectives.saturating_sub(1);
            let (own, number) = (info.number, info.over);
            let over = self.over_with(comm);
            self.are_over(&over);
            self.are_let_go(own, number);
        }
        if self.asking.has_questions() {
            self.answer();
        }
    }

    /// Operations on other communicators that are over when everybody has come to one on this communicator: all that this rank
    /// has waited for, if all ranks are in it. Had somebody still to begin one of those, the two ranks would wait for each other
    /// wherever operations synchronise, and a program must be right there, too. Threads may call in any order.
    fn over_with(&mut self, comm: ffi::MPI_Comm) -> Vec<(u32, u64)> {
        let ranks = self.ranks as usize;
        match self.comms.get(comm) {
            Some(info) if !info.is_inter && info.len() == ranks && !is_together() => {
                let number = info.number;
                let known = self.comms.open().filter(|info| info.number != number && info.waited > 0);
                known.map(|info| (info.number, info.waited)).chain(self.asking.left()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Operations that something is kept for, and of which it isn't known that they are over: communicators and how far.
    pub(crate) fn open_operations(&self) -> Vec<(u32, u64)> {
        self.comms.open().map(|info| (info.number, info.collectives)).chain(self.asking.left()).collect()
    }

    /// Operations are over everywhere.
    pub(crate) fn are_over(&mut self, operations: &[(u32, u64)]) {
        for &(comm, number) in operations {
            self.comms.are_over(comm, number);
            self.are_let_go(comm, number);
        }
    }

    fn are_let_go(&mut self, comm: u32, number: u64) {
        self.asking.close(comm, number);
        self.release(Lane { peer: self.rank, comm, tag: COLLECTIVE }, number);
    }

    /// A communicator is about to be given up. Keeps in mind which of its operations may not be over, once everybody has come where
    /// ranks were asked on it: nothing may be under way then. False as long as somebody has not.
    pub(crate) fn leave(&mut self, comm: ffi::MPI_Comm) -> bool {
        let Some(info) = self.comms.get(comm) else { return true };
        let number = info.number;
        self.sweep_barriers();
        if self.barriers.iter().any(|barrier| barrier.comm == number) {
            // Whoever has not come may be waiting for an answer.
            self.look();
            return false;
        }
        if self.leave_open(number) > LEFT_MAX {
            self.ask();
        }
        true
    }

    /// A rank has failed: nobody waits for it where ranks were asked.
    pub(super) fn leave_barriers_of(&mut self, gone: u32) {
        let comms = &self.comms;
        // MPI doesn't let a request of a collective operation be freed.
        self.barriers.retain(|barrier| !comms.has(barrier.comm, gone));
    }

    /// Looks whether everybody has come where ranks were asked.
    pub(crate) fn sweep_barriers(&mut self) {
        let mut at = 0;
        while let Some(barrier) = self.barriers.get_mut(at) {
            // SAFETY: a request of `synchronise`.
            let ended = unsafe { has_ended(&mut barrier.request) };
            if ended == Ok(false) {
                at += 1;
                continue;
            }
            let barrier = self.barriers.swap_remove(at);
            if ended.is_ok() {
                self.are_over(&barrier.over);
            }
        }
    }
}
