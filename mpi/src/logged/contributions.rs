//! What ranks give to collective operations, and when that is let go: `docs/collectives.md`.

use std::rc::Rc;

use counterfoil::Rank;

use super::communicator::Shared;
use super::engine::Engine;
use super::error::LoggedError;
use crate::acks::RecordTag;
use crate::request::Pending;

/// The tag of what is kept of collective operations; no message has one below zero.
const COLLECTIVE: i32 = -2;
/// After so many operations of which nobody knows who has come how far, ranks are asked.
const UNSETTLED_MAX: u32 = 64;

/// Operations: the communicator's number, and how many of its operations.
type Over = Vec<(u32, u64)>;

/// All ranks of a communicator are asked to come to a place between two operations.
#[derive(Debug)]
pub(super) struct Asked {
    pending: Rc<Pending>,
    /// Not given up before.
    _comm: Rc<Shared>,
    /// What is over everywhere when they have come.
    over: Over,
}

impl Engine {
    /// Counts an operation that begins, and keeps what this rank gives to it, in pieces; `None` where it gives nothing.
    pub(super) fn contribute(&mut self, comm: &Rc<Shared>, gives: Option<&[&[u8]]>) -> Result<(), LoggedError> {
        let number = comm.collectives.get() + 1;
        comm.collectives.set(number);
        comm.unsettled.set(comm.unsettled.get() + 1);
        if comm.unsettled.get() >= UNSETTLED_MAX {
            comm.unsettled.set(0);
            let pending = comm.comm.immediate_barrier()?.pending;
            let over = self.over_with(comm, number - 1);
            self.asked.push(Asked { pending, _comm: Rc::clone(comm), over });
        }
        let Some(pieces) = gives else { return Ok(()) };
        let (rank, len) = (self.rank, pieces.iter().map(|piece| piece.len()).sum());
        self.make_room(rank, len)?;
        let mut claim = self.log()?.claim(Rank(rank), RecordTag::LEN, len)?;
        let (prefix, mut payload) = claim.parts_mut();
        prefix.copy_from_slice(&RecordTag { comm: comm.number, tag: COLLECTIVE, number }.encode());
        for piece in pieces {
            let (into, rest) = payload.split_at_mut(piece.len());
            into.copy_from_slice(piece);
            payload = rest;
        }
        claim.commit();
        self.contributed.insert(comm.number, number);
        self.account.contributions += 1;
        self.look_now_and_then()
    }

    /// Everybody has begun the operation that this rank has just ended: those before it are over everywhere.
    pub(super) fn settled(&mut self, comm: &Shared) -> Result<(), LoggedError> {
        comm.unsettled.set(0);
        let over = self.over_with(comm, comm.collectives.get() - 1);
        self.are_over(&over)
    }

    /// What is over when everybody has ended so many operations on this communicator. If all ranks are in it, that is also what this rank
    /// has begun on others: had somebody still to begin one of those, the two ranks would wait for each other wherever operations
    /// synchronise, and a program must be right there, too.
    fn over_with(&mut self, comm: &Shared, number: u64) -> Over {
        let mut over = vec![(comm.number, number)];
        if comm.len() == self.ranks() {
            over.extend(self.contributed.extract_if(|other, _| *other != comm.number));
        }
        over
    }

    fn are_over(&mut self, over: &[(u32, u64)]) -> Result<(), LoggedError> {
        let entry = |&(comm, number)| RecordTag { comm, tag: COLLECTIVE, number }.encode();
        let batch: Vec<u8> = over.iter().flat_map(entry).collect();
        self.take_batch(self.rank, &batch)
    }

    /// Looks whether those have come who were asked.
    pub(super) fn look_at_asked(&mut self) -> Result<(), LoggedError> {
        let mut at = 0;
        while let Some(asked) = self.asked.get(at) {
            match asked.pending.test() {
                None => at += 1,
                Some(ended) => {
                    let asked = self.asked.swap_remove(at);
                    ended.result?;
                    self.are_over(&asked.over)?;
                }
            }
        }
        Ok(())
    }

    /// Waits until those have come who were asked: all do this together.
    pub(super) fn wait_for_asked(&mut self) -> Result<(), LoggedError> {
        for asked in std::mem::take(&mut self.asked) {
            asked.pending.wait().result?;
            self.are_over(&asked.over)?;
        }
        Ok(())
    }

    /// All ranks have ended all that they have begun.
    pub(super) fn all_is_over(&mut self) -> Result<(), LoggedError> {
        let over: Over = self.contributed.drain().collect();
        self.are_over(&over)
    }
}
