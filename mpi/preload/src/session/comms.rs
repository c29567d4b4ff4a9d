//! Communicators: their numbers, and who their ranks are in MPI_COMM_WORLD.

use std::ffi::c_int;

use mpi_sys as ffi;
use rustc_hash::{FxHashMap, FxHashSet};

use super::ask::{Refused, ask};
use super::key;
use super::routes::Routes;
use counterfoil_mpi::matching::{Matching, Posted, Taken};

/// The numbers of communicators that are made while messages are under way, which can't be agreed on by asking.
const DERIVED: u32 = 1 << 31;
const WORLD: u32 = 0;
const ITSELF: u32 = 1;
const FIRST_FREE: u32 = 2;

/// A communicator.
#[derive(Debug)]
pub(crate) struct CommInfo {
    /// The number that all its members know it by. No two communicators that share a process have the same.
    pub(crate) number: u32,
    /// For each rank that messages can go to and come from (the remote group's of an intercommunicator): its rank in
    /// MPI_COMM_WORLD.
    world: Box<[u32]>,
    /// This process's rank in it.
    pub(crate) rank: c_int,
    /// Whether it joins two groups.
    pub(crate) is_inter: bool,
    /// How many were made of it while messages were under way.
    derived: u32,
    /// Collective operations begun on it.
    pub(crate) collectives: u64,
    /// Of them, those that have ended here; of one that the program doesn't wait for, that it was begun.
    pub(crate) ended: u64,
    /// Of them, the last that the program waited for in the call that began it.
    pub(crate) waited: u64,
    /// The last of them that something was kept for.
    pub(crate) kept: u64,
    /// How many of them are known to be over everywhere.
    pub(crate) over: u64,
    /// Operations since it was last asked whether every rank has come as far.
    pub(crate) unsettled: u32,
    /// Receives that are under way.
    matching: Matching,
    /// Receives of partitioned messages, which match nothing else.
    matching_partitioned: Matching,
    /// The program has given it up, and receives are under way.
    is_gone: bool,
}

impl CommInfo {
    /// The rank in MPI_COMM_WORLD of a rank of it; `None` for MPI_PROC_NULL and whatever else is no rank.
    #[inline]
    pub(crate) fn world(&self, rank: c_int) -> Option<u32> {
        self.world.get(usize::try_from(rank).ok()?).copied()
    }

    fn matching(&mut self, is_partitioned: bool) -> &mut Matching {
        if is_partitioned { &mut self.matching_partitioned } else { &mut self.matching }
    }

    fn is_idle(&self) -> bool {
        self.matching.is_idle() && self.matching_partitioned.is_idle()
    }

    /// Who else has to have ended an operation before what this process has given to it is needed no more.
    pub(crate) fn others(&self, than: u32) -> impl Iterator<Item = u32> {
        self.world.iter().copied().filter(move |rank| *rank != than)
    }

    /// How many ranks messages can go to.
    pub(crate) fn len(&self) -> usize {
        self.world.len()
    }
}

/// The communicators that are logged. Those that reach processes outside MPI_COMM_WORLD are not.
#[derive(Debug)]
pub(crate) struct Comms {
    known: Vec<Option<CommInfo>>,
    /// Where a handle's communicator is, and where a number's is.
    places: FxHashMap<usize, usize>,
    numbers: FxHashMap<u32, usize>,
    /// Numbers of communicators that were given up, of those that no order tells.
    left: FxHashSet<u32>,
    last: (usize, usize),
    /// How many of them have receives under way, those of partitioned messages counted apart.
    busy: usize,
    /// Where recent messages went to, and where they came from.
    pub(super) to: Routes,
    pub(super) from: Routes,
    /// The lowest number that no communicator of this process has.
    next: u32,
    /// How many names this process has given.
    named: u32,
    world_group: ffi::MPI_Group,
}

/// The ranks in MPI_COMM_WORLD of those whom messages can go to, this process's rank, and whether there are two groups.
type Members = (Box<[u32]>, c_int, bool);

impl Comms {
    /// With MPI_COMM_WORLD and MPI_COMM_SELF.
    pub(crate) fn new() -> Result<Comms, Refused> {
        // SAFETY: a constant of the shim, and pointers to local variables; MPI is up.
        let (world, itself, world_group) = unsafe {
            let mut group = ffi::RSMPI_GROUP_NULL;
            ask!(PMPI_Comm_group(ffi::RSMPI_COMM_WORLD, &raw mut group));
            (ffi::RSMPI_COMM_WORLD, ffi::RSMPI_COMM_SELF, group)
        };
        let mut comms = Comms {
            known: Vec::new(),
            places: FxHashMap::default(),
            numbers: FxHashMap::default(),
            left: FxHashSet::default(),
            last: (0, usize::MAX),
            busy: 0,
            to: Routes::new(),
            from: Routes::new(),
            next: FIRST_FREE,
            named: 0,
            world_group,
        };
        comms.learn(world, WORLD)?;
        comms.learn(itself, ITSELF)?;
        Ok(comms)
    }

    /// What is known of a communicator; `None` for one that isn't logged.
    #[inline]
    pub(crate) fn get(&mut self, comm: ffi::MPI_Comm) -> Option<&mut CommInfo> {
        self.by_key(key(comm)).map(|(_, info)| info)
    }

    /// The same by its handle's key, and where it is.
    #[inline]
    pub(super) fn by_key(&mut self, key: usize) -> Option<(usize, &mut CommInfo)> {
        if self.last.0 != key {
            self.last = (key, *self.places.get(&key)?);
        }
        Some((self.last.1, self.known.get_mut(self.last.1)?.as_mut()?))
    }

    /// Where a communicator is, for [`at`](Self::at).
    pub(crate) fn place(&mut self, comm: ffi::MPI_Comm) -> Option<(usize, u32)> {
        let (place, info) = self.by_key(key(comm))?;
        Some((place, info.number))
    }

    /// The communicator of this number at a place: also one that the program has given up, as long as receives are under way.
    #[inline]
    pub(crate) fn at(&mut self, (place, number): (usize, u32)) -> Option<&mut CommInfo> {
        self.known.get_mut(place)?.as_mut().filter(|info| info.number == number)
    }

    /// Whether no receive is under way on this one, which has just been looked up.
    #[inline(always)]
    pub(crate) fn is_idle(&mut self, at: (usize, u32)) -> bool {
        self.busy == 0 || self.at(at).is_some_and(|info| info.matching.is_idle())
    }

    /// A receive is posted.
    pub(crate) fn post(
        &mut self,
        at: (usize, u32),
        is_partitioned: bool,
        source: Option<i32>,
        tag: Option<i32>,
    ) -> Option<Posted> {
        let matching = self.at(at)?.matching(is_partitioned);
        let was_idle = matching.is_idle();
        let posted = matching.post(source, tag);
        self.busy += usize::from(was_idle);
        Some(posted)
    }

    /// A receive has ended, with this message or with none: [`Matching::end`].
    pub(crate) fn end(
        &mut self,
        at: (usize, u32),
        is_partitioned: bool,
        posted: Posted,
        taken: Option<Taken>,
        numbered: &mut Vec<Taken>,
    ) {
        let Some(matching) = self.at(at).map(|info| info.matching(is_partitioned)) else { return };
        let was_idle = matching.is_idle();
        matching.end(posted, taken, numbered);
        self.busy -= usize::from(!was_idle && matching.is_idle());
    }

    /// A receive has ended there.
    #[inline]
    pub(crate) fn settle(&mut self, place: usize) {
        if let Some(known) = self.known.get_mut(place)
            && known.as_ref().is_some_and(|info| info.is_gone && info.is_idle())
        {
            *known = None;
        }
    }

    /// A communicator was made of another one, and all its members are here: they agree on a number.
    pub(crate) fn made(&mut self, comm: ffi::MPI_Comm) -> Result<(), Refused> {
        // Processes from elsewhere agree on nothing.
        if is_null(comm) || self.members(comm)?.is_none() {
            return Ok(());
        }
        let number = self.agree(comm)?;
        self.learn(comm, number)
    }

    /// What this process puts in for the number of a communicator, for [`Proposal::agree`]; `None` where there are processes from
    /// elsewhere, or no communicator.
    pub(crate) fn propose(&mut self, comm: ffi::MPI_Comm, own: u32) -> Result<Option<Proposal>, Refused> {
        if is_null(comm) {
            return Ok(None);
        }
        let Some((_, rank, is_inter)) = self.members(comm)? else { return Ok(None) };
        self.named += 1;
        let name = if rank == 0 { u64::from(own + 1) << 32 | u64::from(self.named) } else { 0 };
        Ok(Some(Proposal { comm, name, is_inter }))
    }

    /// A communicator will be there: its number follows from that of its parent. `None` where the parent isn't logged.
    pub(crate) fn derive(&mut self, parent: ffi::MPI_Comm) -> Option<u32> {
        let parent = self.get(parent)?;
        parent.derived += 1;
        Some(derived(u64::from(parent.number) << 32 | u64::from(parent.derived)))
    }

    /// The communicator is there.
    pub(crate) fn learn(&mut self, comm: ffi::MPI_Comm, number: u32) -> Result<(), Refused> {
        if is_null(comm) {
            return Ok(());
        }
        let Some((world, rank, is_inter)) = self.members(comm)? else { return Ok(()) };
        if let Some(place) = self.unbind(comm) {
            self.forget(place);
        }
        if number & DERIVED == 0 {
            self.next = self.next.max(number + 1);
        }
        let info = CommInfo {
            number,
            world,
            rank,
            is_inter,
            derived: 0,
            collectives: 0,
            ended: 0,
            waited: 0,
            kept: 0,
            over: 0,
            unsettled: 0,
            matching: Matching::default(),
            matching_partitioned: Matching::default(),
            is_gone: false,
        };
        let free = self.known.iter().position(Option::is_none);
        let place = free.unwrap_or(self.known.len());
        match free {
            Some(place) => self.known[place] = Some(info),
            None => self.known.push(Some(info)),
        }
        self.places.insert(key(comm), place);
        self.numbers.insert(number, place);
        self.last = (key(comm), place);
        Ok(())
    }

    /// Those with operations that something is kept for, and of which it isn't known that they are over.
    pub(crate) fn open(&self) -> impl Iterator<Item = &CommInfo> {
        self.known.iter().flatten().filter(|info| info.kept > info.over && !info.is_gone)
    }

    /// Whether messages on a communicator can go to a rank of MPI_COMM_WORLD.
    pub(super) fn has(&self, comm: u32, rank: u32) -> bool {
        let info = self.numbers.get(&comm).and_then(|place| self.known.get(*place)?.as_ref());
        info.is_some_and(|info| info.world.contains(&rank))
    }

    /// Operations up to this one are over.
    pub(crate) fn are_over(&mut self, comm: u32, number: u64) {
        let place = self.numbers.get(&comm).and_then(|place| self.known.get_mut(*place)?.as_mut());
        if let Some(info) = place {
            info.over = info.over.max(number.min(info.collectives));
        }
    }

    /// How many operations this process has ended on a communicator that it is a member of, by its number: all of one that it has
    /// given up, none of one that it doesn't know yet.
    pub(crate) fn ended(&self, comm: u32) -> u64 {
        if let Some(info) = self.numbers.get(&comm).and_then(|place| self.known.get(*place)?.as_ref()) {
            return info.ended;
        }
        // Numbers that are agreed on grow.
        let is_left = if comm & DERIVED == 0 { comm < self.next } else { self.left.contains(&comm) };
        if is_left { u64::MAX } else { 0 }
    }

    /// The handle is about to be given up, and may be another communicator's soon: says where this one is.
    pub(crate) fn unbind(&mut self, comm: ffi::MPI_Comm) -> Option<usize> {
        self.last = (0, usize::MAX);
        self.to.clear();
        self.from.clear();
        self.places.remove(&key(comm))
    }

    /// It was not given up.
    pub(crate) fn bind(&mut self, comm: ffi::MPI_Comm, place: usize) {
        self.places.insert(key(comm), place);
    }

    /// The communicator at this place is given up. Receives that are under way on it end all the same.
    pub(crate) fn forget(&mut self, place: usize) {
        if let Some(Some(info)) = self.known.get_mut(place) {
            info.is_gone = true;
            self.numbers.remove(&info.number);
            if info.number & DERIVED != 0 {
                self.left.insert(info.number);
            }
        }
        self.settle(place);
    }

    /// Who is in a communicator; `None` if somebody isn't in MPI_COMM_WORLD.
    fn members(&self, comm: ffi::MPI_Comm) -> Result<Option<Members>, Refused> {
        let (mut rank, mut is_inter, mut size) = (0, 0, 0);
        // SAFETY: a living communicator, and pointers to local variables.
        unsafe {
            ask!(PMPI_Comm_rank(comm, &raw mut rank));
            ask!(PMPI_Comm_test_inter(comm, &raw mut is_inter));
            // SAFETY: a constant of the shim.
            let mut group = ffi::RSMPI_GROUP_NULL;
            if is_inter == 0 {
                ask!(PMPI_Comm_group(comm, &raw mut group));
            } else {
                ask!(PMPI_Comm_remote_group(comm, &raw mut group));
            }
            ask!(PMPI_Group_size(group, &raw mut size));
            let ranks: Vec<c_int> = (0..size).collect();
            let mut world = vec![0; ranks.len()];
            ask!(PMPI_Group_translate_ranks(group, size, ranks.as_ptr(), self.world_group, world.as_mut_ptr()));
            ask!(PMPI_Group_free(&raw mut group));
            let world: Option<Box<[u32]>> = world.into_iter().map(|rank| u32::try_from(rank).ok()).collect();
            Ok(world.map(|world| (world, rank, is_inter != 0)))
        }
    }

    /// The lowest number that no member has in use.
    fn agree(&mut self, comm: ffi::MPI_Comm) -> Result<u32, Refused> {
        let mut is_inter = 0;
        let mut number = self.next;
        // SAFETY: a living communicator whose members all do this now, and pointers to local variables.
        unsafe {
            ask!(PMPI_Comm_test_inter(comm, &raw mut is_inter));
            // Between two groups, each gets the other's maximum: the second time round, everybody's.
            for _ in 0..=is_inter {
                let mine = number;
                let (from, to) = ((&raw const mine).cast(), (&raw mut number).cast());
                ask!(PMPI_Allreduce(from, to, 1, ffi::RSMPI_UINT32_T, ffi::RSMPI_MAX, comm));
                number = number.max(mine);
            }
        }
        Ok(number)
    }
}

/// A number that follows from something. That two of them are equal is as likely as that two of so many names are, of which each has
/// 31 bits.
fn derived(from: u64) -> u32 {
    (from.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u32 | DERIVED
}

/// What a process puts in for the number of a communicator, where threads make several at once: nobody can say then which number all
/// have free. The first rank of a group gives a name, which has its own rank and a count.
#[derive(Debug)]
pub(crate) struct Proposal {
    comm: ffi::MPI_Comm,
    /// 0 where another rank gives it.
    name: u64,
    is_inter: bool,
}

// SAFETY: a handle, which any thread may give to MPI.
unsafe impl Send for Proposal {}

impl Proposal {
    /// All members do this, in the call that makes the communicator; nobody holds the session.
    pub(crate) fn agree(self) -> Result<u32, Refused> {
        let first = self.largest(self.name)?;
        // Between two groups, each gets the other's name: the second time round, its own.
        let second = if self.is_inter { self.largest(first)? } else { 0 };
        let (one, other) = (first.min(second), first.max(second));
        Ok(derived(other ^ one.rotate_left(17)))
    }

    fn largest(&self, mine: u64) -> Result<u64, Refused> {
        let mut largest = mine;
        let (from, to) = ((&raw const mine).cast(), (&raw mut largest).cast());
        // SAFETY: a communicator whose members all do this now, and pointers to local variables.
        unsafe { ask!(PMPI_Allreduce(from, to, 1, ffi::RSMPI_UINT64_T, ffi::RSMPI_MAX, self.comm)) };
        Ok(largest)
    }
}

pub(crate) fn is_null(comm: ffi::MPI_Comm) -> bool {
    // SAFETY: a constant of the shim.
    comm == unsafe { ffi::RSMPI_COMM_NULL }
}
