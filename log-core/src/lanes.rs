//! The sender log: a lane for each destination.

use crate::lane::{Claim, LaneWriter};
use crate::nouns::Rank;
use crate::pool::Pool;
use crate::sync::Arc;

/// A rank's lanes, one for each rank in the job, each made at its first use.
///
/// An unused lane takes 64 bytes.
#[derive(Debug)]
pub struct Lanes {
    pool: Arc<Pool>,
    lanes: Box<[Option<LaneWriter>]>,
}

impl Lanes {
    /// Makes an empty table of `ranks` lanes.
    pub fn new(pool: Arc<Pool>, ranks: u32) -> Lanes {
        Lanes { pool, lanes: (0..ranks).map(|_| None).collect() }
    }

    /// Returns the pool shared by all lanes.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Reserves a record like [`LaneWriter::claim`].
    ///
    /// If the lane's chunk has no room, calls `make_room` with `context` and the request, which must
    /// [`reserve`](LaneWriter::reserve) it or fail. (A closure capturing the context would be built for every claim,
    /// although hardly ever called.)
    ///
    /// # Errors
    /// Errors of `make_room`.
    ///
    /// # Panics
    /// If `make_room` succeeds without having made room.
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
        // SAFETY: `has_room` returned true, above or after `make_room`: there is such a lane, and it has room; nothing
        // changed since. The borrow checker rejects a borrow returned on one path only, and a second checked look-up
        // costs a third of a small append.
        let lane = unsafe { slot.unwrap_unchecked() };
        // SAFETY: as above, the lane has room for these two parts.
        Ok(unsafe { Claim::new(lane, prefix, prefix + payload) })
    }

    /// Reserves a record if the lane's current chunk has room for it.
    #[inline(always)]
    pub fn claim_if_room(&mut self, peer: Rank, prefix: usize, payload: usize) -> Option<Claim<'_>> {
        let lane = self.lanes.get_mut(peer.index())?.as_mut()?;
        // SAFETY: the lane has room for these two parts.
        lane.has_room(prefix, payload).then(|| unsafe { Claim::new(lane, prefix, prefix + payload) })
    }

    /// Returns `true` if the lane's current chunk has room for a claim of this size.
    #[inline]
    pub fn has_room(&self, peer: Rank, prefix: usize, payload: usize) -> bool {
        match self.lanes.get(peer.index()) {
            Some(Some(lane)) => lane.has_room(prefix, payload),
            _ => false,
        }
    }

    /// Returns the lane to `peer`, if it was used.
    #[inline]
    pub fn get(&self, peer: Rank) -> Option<&LaneWriter> {
        self.lanes.get(peer.index())?.as_ref()
    }

    /// Returns the lane to `peer`, if it was used.
    #[inline]
    pub fn get_mut(&mut self, peer: Rank) -> Option<&mut LaneWriter> {
        self.lanes.get_mut(peer.index())?.as_mut()
    }

    /// Returns the lane to `peer`, made at its first use; `None` if the job has no such rank.
    pub fn open(&mut self, peer: Rank) -> Option<&mut LaneWriter> {
        let pool = &self.pool;
        let slot = self.lanes.get_mut(peer.index())?;
        Some(slot.get_or_insert_with(|| LaneWriter::new(pool.clone(), peer)))
    }

    /// Installs a lane found by a recovery.
    ///
    /// # Errors
    /// Returns the lane if the job has no such rank.
    pub fn adopt(&mut self, lane: LaneWriter) -> Result<(), LaneWriter> {
        match self.lanes.get_mut(lane.peer().index()) {
            Some(slot) => {
                *slot = Some(lane);
                Ok(())
            }
            None => Err(lane),
        }
    }

    /// Iterates over the used lanes.
    pub fn iter(&self) -> impl Iterator<Item = &LaneWriter> {
        self.lanes.iter().flatten()
    }

    /// Iterates over the used lanes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut LaneWriter> {
        self.lanes.iter_mut().flatten()
    }

    /// Calls [`LaneWriter::return_spares`] on every lane: another lane needs the memory.
    pub fn return_spares(&mut self) {
        self.iter_mut().for_each(LaneWriter::return_spares);
        self.pool.discard_excess();
    }

    /// Calls [`LaneWriter::shrink_if_idle`] on every lane.
    pub fn shrink_idle(&mut self) {
        self.iter_mut().for_each(LaneWriter::shrink_if_idle);
    }
}
