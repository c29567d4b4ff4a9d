//! What ranks give to collective operations, and when that is let go: `docs/collectives.md`.

use std::rc::{Rc, Weak};

use counterfoil::Rank;
use counterfoil_profile::{COLLECTIVE, RecordTag};

use super::communicator::Shared;
use super::engine::Engine;
use super::error::LoggedError;
use crate::request::Pending;

/// After so many operations of which nobody knows who has come how far, ranks are asked.
const UNSETTLED_MAX: u32 = 64;

/// Operations: the communicator's number, and how many of its operations.
type Over = Vec<(u32, u64)>;

/// A synchronisation of our own: all ranks of a communicator are asked to come to a place between two operations.
#[derive(Debug)]
pub(super) struct Barrier {
    pending: Rc<Pending>,
    /// Not given up before.
    _comm: Rc<Shared>,
    /// What is over everywhere when they have come.
    over: Over,
}

impl Engine {
    /// Counts an operation that begins, and keeps what this rank gives to it, in pieces; `None` where it gives nothing.
    pub(super) fn contribute(&mut self, comm: &Rc<Shared>, gives: Option<&[&[u8]]>) -> Result<(), LoggedError> {
        let (rank, len) = (self.rank, gives.map(|pieces| pieces.iter().map(|piece| piece.len()).sum()));
        // Where there is none, the operation has not begun.
        len.map_or(Ok(()), |len| self.make_room(rank, len))?;
        self.moves += 1;
        let number = comm.collectives.get() + 1;
        comm.collectives.set(number);
        comm.unsettled.set(comm.unsettled.get() + 1);
        if comm.unsettled.get() >= UNSETTLED_MAX {
            comm.unsettled.set(0);
            let pending = comm.comm.immediate_barrier()?.pending;
            let over = self.over_with(comm, number - 1);
            self.barriers.push(Barrier { pending, _comm: Rc::clone(comm), over });
        }
        let (Some(pieces), Some(len)) = (gives, len) else { return Ok(()) };
        let mut claim = self.log()?.claim(Rank(rank), RecordTag::LEN, len)?;
        let (prefix, mut payload) = claim.parts_mut();
        prefix.copy_from_slice(&RecordTag { comm: comm.number, tag: COLLECTIVE, number }.encode());
        for piece in pieces {
            let (into, rest) = payload.split_at_mut(piece.len());
            into.copy_from_slice(piece);
            payload = rest;
        }
        claim.commit();
        self.asking.keep(comm.number, number, comm.others(rank));
        self.contributed_bytes += len as u64;
        self.account.contributions += 1;
        self.look_now_and_then()
    }

    /// The last operation that was begun is waited for later. It counts as ended.
    pub(super) fn begun_here(&mut self, comm: &Shared) -> Result<(), LoggedError> {
        self.counts_as_ended(comm, false)
    }

    /// The last operation that was begun has ended here. If it `synchronises`, everybody has begun it: those before it are over everywhere.
    pub(super) fn ended_here(&mut self, comm: &Shared, synchronises: bool) -> Result<(), LoggedError> {
        comm.waited.set(comm.collectives.get());
        self.counts_as_ended(comm, synchronises)
    }

    fn counts_as_ended(&mut self, comm: &Shared, synchronises: bool) -> Result<(), LoggedError> {
        self.moves += 1;
        let number = comm.collectives.get();
        comm.ended.set(number);
        // Of which nobody else is a part, it is over when it has ended here.
        if comm.len() == 1 || synchronises {
            comm.unsettled.set(0);
            let over = if comm.len() == 1 { vec![(comm.number, number)] } else { self.over_with(comm, number - 1) };
            self.are_over(&over)?;
        }
        if self.asking.has_questions() { self.answer() } else { Ok(()) }
    }

    /// What is over when everybody has ended so many operations on this communicator. If all ranks are in it, that is also what this rank
    /// has waited for on others: had somebody still to begin one of those, the two ranks would wait for each other wherever operations
    /// synchronise, and a program must be right there, too. To give a communicator up may synchronise as well.
    fn over_with(&mut self, comm: &Shared, number: u64) -> Over {
        let mut over = vec![(comm.number, number)];
        if comm.len() == self.ranks() {
            let others = self.asking.open().filter(|(other, _)| *other != comm.number);
            let over_there = others.map(|(other, kept)| (other, kept.min(self.waited(other))));
            over.extend(over_there.filter(|(_, number)| *number > 0));
        }
        over
    }

    /// How many operations the program has waited for on a communicator: all of one that it has given up.
    fn waited(&self, comm: u32) -> u64 {
        self.comms.get(&comm).and_then(Weak::upgrade).map_or(u64::MAX, |known| known.waited.get())
    }

    pub(super) fn are_over(&mut self, over: &[(u32, u64)]) -> Result<(), LoggedError> {
        if over.is_empty() {
            return Ok(());
        }
        for (comm, number) in over {
            self.asking.close(*comm, *number);
        }
        let entry = |&(comm, number)| RecordTag { comm, tag: COLLECTIVE, number }.encode();
        let batch: Vec<u8> = over.iter().flat_map(entry).collect();
        self.take_batch(self.rank, &batch)
    }

    /// Looks whether everybody has come where ranks were asked to.
    pub(super) fn look_at_barriers(&mut self) -> Result<(), LoggedError> {
        let mut at = 0;
        while let Some(barrier) = self.barriers.get(at) {
            match barrier.pending.test() {
                None => at += 1,
                Some(ended) => {
                    let barrier = self.barriers.swap_remove(at);
                    ended.result?;
                    self.are_over(&barrier.over)?;
                }
            }
        }
        Ok(())
    }

    /// All ranks have ended all that they have begun.
    pub(super) fn all_is_over(&mut self) -> Result<(), LoggedError> {
        let over: Over = self.asking.open().collect();
        self.are_over(&over)
    }
}
