//! The sender log: a lane for each destination.

use crate::lane::{Claim, LaneWriter};
use crate::nouns::Rank;
use crate::pool::Pool;
use crate::sync::Arc;

/// The lanes of a rank, one for each rank of the job, made when first used. A lane that is not used takes 64 bytes.
#[derive(Debug)]
pub struct Lanes {
    pool: Arc<Pool>,
    lanes: Box<[Option<LaneWriter>]>,
}

impl Lanes {
    /// No lanes yet, of the `ranks` that there can be.
    pub fn new(pool: Arc<Pool>, ranks: u32) -> Lanes {
        Lanes { pool, lanes: (0..ranks).map(|_| None).collect() }
    }

    /// The pool of all lanes.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Reserves a record as [`LaneWriter::claim`] does.
    ///
    /// Where the lane's chunk has no room, `make_room` is called with `context` and the request, to
    /// [`reserve`](LaneWriter::reserve) it first; it says why if it can't. (A closure would be put together for every claim,
    /// although it is hardly ever called.)
    ///
    /// # Errors
    /// Those of `make_room`.
    ///
    /// # Panics
    /// Where `make_room` says that it made room and did not.
    #[inline]
    pub fn claim_or_else<C, E>(
        &mut self,
        peer: Rank,
        prefix: usize,
        payload: usize,
        context: &mut C,
        make_room: impl FnOnce(&mut C, &mut Lanes, Rank, usize, usize) -> Result<(), E>,
    ) -> Result<Claim<'_>, E> {
        if !self.has_room(peer, prefix, payload) {
            make_room(context, self, peer, prefix, payload)?;
            assert!(self.has_room(peer, prefix, payload), "make_room reserves what it is asked for");
        }
        let slot = self.lanes.get_mut(peer.index()).and_then(Option::as_mut);
        // SAFETY: `has_room` said that there is such a lane, here or after `make_room`, and that it has room; nothing
        // happened since. Borrowing the lane once and returning it on one path only is what the borrow checker does not
        // see through, and looking twice costs a third of a small append.
        let lane = unsafe { slot.unwrap_unchecked() };
        Ok(Claim::new(lane, prefix, prefix + payload))
    }

    /// Reserves a record where the lane's current chunk has room for it.
    #[inline(always)]
    pub fn claim_if_room(&mut self, peer: Rank, prefix: usize, payload: usize) -> Option<Claim<'_>> {
        let lane = self.lanes.get_mut(peer.index())?.as_mut()?;
        lane.has_room(prefix, payload).then(|| Claim::new(lane, prefix, prefix + payload))
    }

    /// Whether a claim of this size would be answered from the lane's current chunk.
    #[inline]
    fn has_room(&self, peer: Rank, prefix: usize, payload: usize) -> bool {
        match self.lanes.get(peer.index()) {
            Some(Some(lane)) => lane.has_room(prefix, payload),
            _ => false,
        }
    }

    /// The lane to `peer`, if it was used.
    #[inline]
    pub fn get(&self, peer: Rank) -> Option<&LaneWriter> {
        self.lanes.get(peer.index())?.as_ref()
    }

    /// The lane to `peer`, if it was used.
    #[inline]
    pub fn get_mut(&mut self, peer: Rank) -> Option<&mut LaneWriter> {
        self.lanes.get_mut(peer.index())?.as_mut()
    }

    /// The lane to `peer`, made if need be; `None` where the job has no such rank.
    pub fn open(&mut self, peer: Rank) -> Option<&mut LaneWriter> {
        let pool = &self.pool;
        let slot = self.lanes.get_mut(peer.index())?;
        Some(slot.get_or_insert_with(|| LaneWriter::new(pool.clone(), peer)))
    }

    /// Puts a lane that a recovery found in its place; gives it back where the job has no such rank.
    ///
    /// # Errors
    /// The lane.
    pub fn adopt(&mut self, lane: LaneWriter) -> Result<(), LaneWriter> {
        match self.lanes.get_mut(lane.peer().index()) {
            Some(slot) => {
                *slot = Some(lane);
                Ok(())
            }
            None => Err(lane),
        }
    }

    /// The lanes that were used.
    pub fn iter(&self) -> impl Iterator<Item = &LaneWriter> {
        self.lanes.iter().flatten()
    }

    /// The lanes that were used.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut LaneWriter> {
        self.lanes.iter_mut().flatten()
    }

    /// Gives back to the pool what the lanes don't need, as [`LaneWriter::give_spares_back`] does: another lane needs it.
    pub fn give_spares_back(&mut self) {
        self.iter_mut().for_each(LaneWriter::give_spares_back);
    }

    /// Lets lanes in which everything is released give back the chunks that they write to, as [`LaneWriter::rest`] does.
    pub fn rest(&mut self) {
        self.iter_mut().for_each(LaneWriter::rest);
    }
}
