//! Collective operations: their numbers, and the contributions to them until their release.
//!
//! See `docs/book/src/explanation/collectives.md`.

use counterfoil::Keep;
use counterfoil_profile::{COLLECTIVE, RecordTag};

use super::Logger;
use crate::acks::ReleaseError;
use crate::comms::CommId;
use crate::control::ControlKind;
use crate::stream::Stream;

/// Limit of freed communicators with open operations; from it on, their members are queried.
const FREED_MAX: usize = 64;
/// Record bytes excluding the payload, as counted towards an early query.
const RECORD_BYTES: u64 = 48;

impl Logger {
    /// Handles the start of a collective operation.
    ///
    /// Returns its number on the communicator, from 1; `None` for an unknown communicator.
    pub fn handle_collective_begun(&mut self, comm: CommId) -> Option<u64> {
        self.activity += 1;
        let state = self.comms.get(comm)?;
        state.begun += 1;
        Some(state.begun)
    }

    /// Returns the stream of this rank's contributions to a communicator's operations: a stream from the rank to
    /// itself.
    pub fn contributions(&self, comm: CommId) -> Stream {
        Stream::new(self.rank, comm.number(), COLLECTIVE)
    }

    /// Handles a newly logged contribution of `bytes` bytes to an operation.
    pub fn handle_contribution(&mut self, comm: CommId, number: u64, bytes: usize) {
        self.contributed_bytes += bytes as u64 + RECORD_BYTES;
        self.comms.keep(comm, number);
    }

    /// Handles the start of a nonblocking operation.
    ///
    /// It counts as ended: the MPI can complete it from here on.
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn handle_collective_started(&mut self, comm: CommId, number: u64) -> Result<(), ReleaseError> {
        if let Some(state) = self.comms.get(comm) {
            state.ended = state.ended.max(number);
        }
        self.answer_queries()
    }

    /// Handles the end of a nonblocking operation, waited for by the program.
    pub fn handle_collective_waited(&mut self, comm: CommId, number: u64) {
        self.activity += 1;
        if let Some(state) = self.comms.get(comm) {
            state.waited = state.waited.max(number);
        }
    }

    /// Handles an operation refused by MPI here.
    ///
    /// It has not begun: the next one on the communicator takes its number.
    pub fn handle_collective_refused(&mut self, comm: CommId, number: u64) {
        if let Some(state) = self.comms.get(comm)
            && state.begun == number
        {
            state.begun -= 1;
            state.ended = state.ended.min(state.begun);
        }
    }

    /// Handles the end of the last operation begun on a communicator, a blocking one.
    ///
    /// If the operation `synchronises`, every member has begun it, so the operations before it are complete on all of
    /// them.
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn handle_collective_ended(&mut self, comm: CommId, synchronises: bool) -> Result<(), ReleaseError> {
        self.activity += 1;
        let own = self.rank;
        let Some(state) = self.comms.get(comm) else { return Ok(()) };
        (state.ended, state.waited) = (state.begun, state.begun);
        let begun = state.begun;
        if state.others(own).next().is_none() {
            self.complete(&[(comm.number(), begun)])?;
        } else if synchronises {
            let mut complete = self.complete_with(comm);
            complete.push((comm.number(), begun.saturating_sub(1)));
            self.complete(&complete)?;
        }
        self.answer_queries()
    }

    /// Returns the operations on other communicators completed when all ranks have begun one on `comm`, if all ranks
    /// are its members: those waited for by this rank.
    ///
    /// If another rank had still to begin one of them, the two would wait for each other wherever operations
    /// synchronise, and a program has to be correct there, too (MPI 4.0, section 6.14). Threads may call in any order.
    fn complete_with(&mut self, comm: CommId) -> Vec<(u32, u64)> {
        let is_of_all =
            self.comms.get(comm).is_some_and(|state| !state.is_inter() && state.peers() == self.ranks as usize);
        if !is_of_all || self.is_multithreaded {
            return Vec::new();
        }
        let known = self.comms.open().filter(|state| state.number() != comm.number() && state.waited > 0);
        known.map(|state| (state.number(), state.waited)).chain(self.queries.freed()).collect()
    }

    /// Notes operations ended on all ranks: (communicator, last operation).
    ///
    /// Releases the contributions.
    pub(super) fn complete(&mut self, operations: &[(u32, u64)]) -> Result<(), ReleaseError> {
        for &(comm, number) in operations {
            self.comms.complete_upto(comm, number);
            self.queries.complete_upto(comm, number);
            let entry = RecordTag { comm, tag: COLLECTIVE, number };
            self.sender.note_acks(self.rank, &entry.encode())?;
        }
        Ok(())
    }

    /// Marks all operations ended on all ranks, at the end of the job.
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn complete_all_collectives(&mut self) -> Result<(), ReleaseError> {
        let open = self.comms.open().map(|state| (state.number(), state.begun));
        let open: Vec<_> = open.chain(self.queries.freed()).collect();
        self.complete(&open)
    }

    /// Handles a communicator about to be freed.
    ///
    /// Contributions to its operations stay until these are complete.
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn handle_comm_freed(&mut self, comm: CommId) -> Result<(), ReleaseError> {
        self.update_open_comms()?;
        if self.queries.free(comm.number()) > FREED_MAX { self.query_for_space() } else { Ok(()) }
    }

    /// Tells the queries the communicators with logged contributions.
    ///
    /// An operation without other living members is complete when it has ended here.
    pub(super) fn update_open_comms(&mut self) -> Result<(), ReleaseError> {
        let mut complete = Vec::new();
        for state in self.comms.open() {
            if !self.queries.keep(state.number(), state.kept(), state.others(self.rank)) {
                complete.push((state.number(), state.ended));
            }
        }
        self.complete(&complete)
    }

    /// Queries the ranks able to free log space and not queried already: for acknowledgements, and about operations.
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn query_for_space(&mut self) -> Result<(), ReleaseError> {
        self.update_open_comms()?;
        let due = self.queries.due(self.sender.log.as_ref(), self.contributed_bytes);
        self.send_all(ControlKind::Query, due);
        Ok(())
    }

    /// Queries other ranks about operations, if many contribution bytes were logged since the last query.
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn query_early(&mut self) -> Result<(), ReleaseError> {
        if self.keep != Keep::Acked || !self.queries.is_early(self.contributed_bytes, self.budget) {
            return Ok(());
        }
        self.update_open_comms()?;
        let due = self.queries.due(None, self.contributed_bytes);
        self.send_all(ControlKind::Query, due);
        Ok(())
    }
}
