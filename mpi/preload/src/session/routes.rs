//! Streams that messages went to and came from lately, by what the program calls them: for one more message nothing is looked up.
//!
//! What a rank stores behind a send waits in the processor behind what MPI has stored for the other rank, and a processor has room for
//! some 60 such stores. A message of a known route costs half of them, and its own bytes; one that costs more delays the answer
//! (`docs/performance.md`).

use std::ffi::c_int;

use counterfoil_mpi::stream::Place;
use mpi_sys as ffi;

use super::comms::Comms;
use super::{Lane, Session, key};

/// So many are known at a time: a power of two.
const RECENT: usize = 64;

/// What the program calls a stream. In two words: three would be handed over in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// The communicator's [key].
    comm: usize,
    /// The other end's rank in it, and the tag.
    rank_and_tag: u64,
}

impl Name {
    /// Of no stream: no handle has this key.
    const NONE: Name = Name { comm: usize::MAX, rank_and_tag: 0 };

    #[inline]
    pub(crate) fn new(comm: ffi::MPI_Comm, rank: c_int, tag: c_int) -> Name {
        Name { comm: key(comm), rank_and_tag: u64::from(rank as u32) << 32 | u64::from(tag as u32) }
    }

    /// Neighbours that send a few tags have places of their own: eight of them with eight tags, and those above and below in a
    /// grid.
    #[inline(always)]
    fn place(self) -> usize {
        let (rank, tag) = ((self.rank_and_tag >> 32) as usize, self.rank_and_tag as usize);
        // Handles are addresses of what is some hundred bytes long, or numbers.
        let comm = self.comm ^ self.comm >> 9;
        comm.wrapping_add(tag).wrapping_add(rank << 3).wrapping_add(rank >> 3) % RECENT
    }
}

/// Where a stream is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// In the log.
    pub(crate) lane: Lane,
    /// Where its communicator is, for [`Comms::at`](super::comms::Comms::at).
    pub(crate) comm: usize,
    /// Where its messages are counted.
    pub(crate) counted: Place,
}

/// A route and its name, in a cache line of their own.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Known {
    name: Name,
    route: Route,
}

/// The routes of recent messages in one direction.
#[derive(Debug)]
pub(super) struct Routes(Box<[Known; RECENT]>);

impl Routes {
    const NONE: Known = {
        let lane = Lane { peer: u32::MAX, comm: 0, tag: 0 };
        Known { name: Name::NONE, route: Route { lane, comm: usize::MAX, counted: Place::NOWHERE } }
    };

    pub(super) fn new() -> Routes {
        Routes(Box::new([Routes::NONE; RECENT]))
    }

    #[inline(always)]
    fn has(&self, name: Name) -> bool {
        self.0[name.place()].name == name
    }

    /// Of a name that it [has](Self::has). (As an `Option`, it would be put together in memory.)
    #[inline(always)]
    fn at(&self, name: Name) -> Route {
        self.0[name.place()].route
    }

    fn put(&mut self, name: Name, route: Route) {
        self.0[name.place()] = Known { name, route };
    }

    /// A handle may be another communicator's from now on.
    pub(super) fn clear(&mut self) {
        self.0.fill(Routes::NONE);
    }
}

impl Session {
    /// Where a message goes that is sent by this name; `None` if nobody is there, or the communicator isn't logged.
    #[inline(always)]
    pub(crate) fn route_to(&mut self, name: Name) -> Option<Route> {
        (self.comms.to.has(name) || self.find_route_to(name)).then(|| self.comms.to.at(name))
    }

    #[inline(never)]
    fn find_route_to(&mut self, name: Name) -> bool {
        let Some((lane, comm)) = self.comms.lane(name) else { return false };
        let counted = self.sent.place(lane.stream());
        self.comms.to.put(name, Route { lane, comm, counted });
        true
    }

    /// Where a message comes from that was received by this name; `None` as for [`route_to`](Self::route_to).
    #[inline(always)]
    pub(crate) fn route_from(&mut self, name: Name) -> Option<Route> {
        (self.comms.from.has(name) || self.find_route_from(name)).then(|| self.comms.from.at(name))
    }

    #[inline(never)]
    fn find_route_from(&mut self, name: Name) -> bool {
        let Some((lane, comm)) = self.comms.lane(name) else { return false };
        let counted = self.batcher.place(lane.stream());
        self.comms.from.put(name, Route { lane, comm, counted });
        true
    }
}

impl Comms {
    /// What messages of this name are in the log, and where their communicator is.
    fn lane(&mut self, name: Name) -> Option<(Lane, usize)> {
        let (rank, tag) = ((name.rank_and_tag >> 32) as c_int, name.rank_and_tag as c_int);
        let (place, info) = self.by_key(name.comm)?;
        Some((Lane { peer: info.world(rank)?, comm: info.number, tag }, place))
    }
}

#[cfg(test)]
mod tests {
    use counterfoil_mpi::stream::{Stream, Streams};

    use super::*;

    #[test]
    fn a_route_is_known_by_its_whole_name_until_another_takes_its_place() {
        // SAFETY: constants of the shim.
        let (world, itself) = unsafe { (ffi::RSMPI_COMM_WORLD, ffi::RSMPI_COMM_SELF) };
        let (mut routes, mut streams) = (Routes::new(), Streams::default());
        let mut route = |peer, tag| {
            let lane = Lane { peer, comm: 0, tag };
            Route { lane, comm: 0, counted: streams.place(Stream { peer, comm: 0, tag }) }
        };
        let name = Name::new(world, 3, -1);
        assert!(!routes.has(name));
        routes.put(name, route(3, -1));
        assert!(routes.has(name) && routes.at(name).lane.tag == -1);
        for other in [Name::new(itself, 3, -1), Name::new(world, 3, i32::MAX), Name::new(world, -1, 3)] {
            assert!(!routes.has(other), "{other:?}");
        }
        // So many further on the place is the same.
        let next = Name::new(world, 3, -1 - RECENT as c_int);
        assert_eq!(next.place(), name.place());
        routes.put(next, route(3, next.rank_and_tag as c_int));
        assert!(routes.has(next) && !routes.has(name));
        routes.clear();
        assert!(!routes.has(next));
    }

    #[test]
    fn eight_tags_of_eight_neighbours_have_places_of_their_own() {
        // SAFETY: a constant of the shim.
        let world = unsafe { ffi::RSMPI_COMM_WORLD };
        let names = (0..64).map(|at| Name::new(world, 40 + at / 8, at % 8));
        let mut places: Vec<usize> = names.map(Name::place).collect();
        places.sort_unstable();
        assert_eq!(places, (0..RECENT).collect::<Vec<_>>());
        // Nobody has one, too.
        assert!(Name::new(world, -2, c_int::MIN).place() < RECENT);
    }

    #[test]
    fn neighbours_on_both_sides_in_a_grid_have_places_of_their_own() {
        // SAFETY: a constant of the shim.
        let world = unsafe { ffi::RSMPI_COMM_WORLD };
        let place = |rank| Name::new(world, rank, 7).place();
        for rank in 500..600 {
            assert_ne!(place(rank - 1), place(rank + 1));
            for row in [4, 8, 16, 32, 64] {
                assert_ne!(place(rank - row), place(rank + row), "rows of {row}");
            }
        }
    }
}
