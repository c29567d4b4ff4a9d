//! Communicators: their numbers, their members in MPI_COMM_WORLD, and their counts.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::matching::{Arrival, Matching, PostedReceive};

/// Number of MPI_COMM_WORLD.
pub const WORLD: u32 = 0;
/// Number of MPI_COMM_SELF.
pub const SELF: u32 = 1;
const FIRST_FREE: u32 = 2;
/// Set in hashed numbers: of communicators made where members can't agree on the lowest free number.
///
/// The bit below it stays clear, for record headers.
const HASHED: u32 = 1 << 31;
/// Set in hashed numbers made from group names, clear in those derived from a parent: no number is both.
const NAMED: u32 = 1 << 29;
/// Number of hash bits in a hashed number.
const HASH_BITS: u32 = 29;

/// A communicator of a [`CommTable`].
///
/// It stays valid after the communicator is freed, until the last pending receive on it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommId {
    index: u32,
    number: u32,
}

impl CommId {
    /// Id without a communicator.
    pub const NONE: CommId = CommId { index: u32::MAX, number: u32::MAX };

    /// Returns the communicator's number.
    #[inline]
    pub fn number(self) -> u32 {
        self.number
    }
}

/// Members of a new communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// Rank in MPI_COMM_WORLD of each peer; in an intercommunicator, of each member of the remote group.
    pub world: Box<[u32]>,
    /// This process's rank in its (local) group.
    pub rank: i32,
    /// True for an intercommunicator.
    pub is_inter: bool,
}

/// State of a communicator.
#[derive(Debug)]
pub struct CommState {
    number: u32,
    members: Members,
    /// Number of communicators derived from this one without agreement.
    derived: u32,
    /// Collective operations begun.
    pub(crate) begun: u64,
    /// Last operation ended here.
    ///
    /// An operation not waited for by the program counts as ended when it has begun.
    pub(crate) ended: u64,
    /// Last operation the program waited for in the call beginning it.
    pub(crate) waited: u64,
    /// Last operation with a contribution in the log.
    kept: u64,
    /// Operations known to be complete on all ranks.
    complete: u64,
    matching: Matching,
    /// True once the program has freed it, while receives are pending.
    is_freed: bool,
}

impl CommState {
    /// Returns its number.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns this process's rank in it.
    pub fn rank(&self) -> i32 {
        self.members.rank
    }

    /// Returns `true` for an intercommunicator.
    pub fn is_inter(&self) -> bool {
        self.members.is_inter
    }

    /// Returns the number of possible receivers.
    pub fn peers(&self) -> usize {
        self.members.world.len()
    }

    /// Translates a rank to its rank in MPI_COMM_WORLD; `None` for MPI_PROC_NULL and any other value that isn't a rank.
    #[inline]
    pub fn world_rank(&self, rank: i32) -> Option<u32> {
        self.members.world.get(usize::try_from(rank).ok()?).copied()
    }

    /// Returns the last operation with a contribution in the log.
    pub(crate) fn kept(&self) -> u64 {
        self.kept
    }

    /// Returns `true` if the log has contributions to operations not known to be complete.
    fn is_open(&self) -> bool {
        self.kept > self.complete && !self.is_freed
    }

    /// Returns its members other than `rank`, as ranks in MPI_COMM_WORLD.
    pub(crate) fn others(&self, rank: u32) -> impl Iterator<Item = u32> {
        self.members.world.iter().copied().filter(move |member| *member != rank)
    }
}

/// Two communicators in a process have the same hashed number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two communicators have the number {number}, so their messages can't be told apart")]
pub struct NumberTaken {
    /// The number.
    pub number: u32,
}

/// A process's logged communicators.
#[derive(Debug)]
pub struct CommTable {
    states: Vec<Option<CommState>>,
    /// Indices without a state.
    vacant: Vec<usize>,
    /// Indices of [open](CommState::is_open) communicators: a program may have many others.
    open: FxHashSet<usize>,
    numbers: FxHashMap<u32, usize>,
    /// Hashed numbers in use now or earlier.
    ///
    /// Other numbers ascend.
    used: FxHashSet<u32>,
    /// Hashed numbers of communicators under construction.
    reserved: FxHashSet<u32>,
    /// Communicators with pending receives.
    busy: usize,
    /// Lowest number unused by this process's communicators.
    next: u32,
}

impl Default for CommTable {
    fn default() -> CommTable {
        CommTable {
            states: Vec::new(),
            vacant: Vec::new(),
            open: FxHashSet::default(),
            numbers: FxHashMap::default(),
            used: FxHashSet::default(),
            reserved: FxHashSet::default(),
            busy: 0,
            next: FIRST_FREE,
        }
    }
}

impl CommTable {
    /// Returns this process's proposal for a new communicator's number: its lowest free number.
    ///
    /// The members take the highest proposal.
    pub fn propose(&self) -> u32 {
        self.next
    }

    /// Adds a communicator under the number agreed on by its members.
    ///
    /// # Errors
    /// [`NumberTaken`] if another communicator of this process has or had the number.
    pub fn add(&mut self, number: u32, members: Members) -> Result<CommId, NumberTaken> {
        let is_taken = if number & HASHED == 0 {
            self.next = self.next.max(number + 1);
            self.numbers.contains_key(&number)
        } else {
            self.reserved.remove(&number);
            !self.used.insert(number)
        };
        if is_taken {
            return Err(NumberTaken { number });
        }
        let state = CommState {
            number,
            members,
            derived: 0,
            begun: 0,
            ended: 0,
            waited: 0,
            kept: 0,
            complete: 0,
            matching: Matching::default(),
            is_freed: false,
        };
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.states.push(None);
            self.states.len() - 1
        });
        self.states[index] = Some(state);
        self.numbers.insert(number, index);
        Ok(CommId { index: index as u32, number })
    }

    /// Returns a communicator's state, also after it was freed while receives are pending on it.
    #[inline]
    pub fn get(&mut self, id: CommId) -> Option<&mut CommState> {
        self.states.get_mut(id.index as usize)?.as_mut().filter(|state| state.number == id.number)
    }

    fn by_number(&self, number: u32) -> Option<&CommState> {
        self.states.get(*self.numbers.get(&number)?)?.as_ref()
    }

    /// Frees a communicator.
    ///
    /// Receives pending on it end all the same.
    pub fn free(&mut self, id: CommId) {
        if let Some(state) = self.get(id) {
            state.is_freed = true;
            self.numbers.remove(&id.number);
            self.open.remove(&(id.index as usize));
        }
        self.drop_if_idle(id);
    }

    /// Drops a freed communicator's state if no receive is pending on it.
    #[inline]
    pub(crate) fn drop_if_idle(&mut self, id: CommId) {
        if self.get(id).is_some_and(|state| state.is_freed && state.matching.is_idle()) {
            self.states[id.index as usize] = None;
            self.vacant.push(id.index as usize);
        }
    }

    /// Returns `true` if no receive is pending on a communicator.
    #[inline(always)]
    pub fn is_idle(&mut self, id: CommId) -> bool {
        self.busy == 0 || self.get(id).is_some_and(|state| state.matching.is_idle())
    }

    /// Posts a receive; `None` for an unknown communicator.
    pub fn post(&mut self, id: CommId, source: Option<i32>, tag: Option<i32>) -> Option<PostedReceive> {
        let matching = &mut self.get(id)?.matching;
        let was_idle = matching.is_idle();
        let posted = matching.post(source, tag);
        self.busy += usize::from(was_idle);
        Some(posted)
    }

    /// Ends a receive: [`Matching::end`].
    pub(crate) fn end(
        &mut self,
        id: CommId,
        posted: PostedReceive,
        arrival: Option<Arrival>,
        numbered: &mut Vec<Arrival>,
    ) {
        let Some(matching) = self.get(id).map(|state| &mut state.matching) else { return };
        let was_idle = matching.is_idle();
        matching.end(posted, arrival, numbered);
        self.busy -= usize::from(!was_idle && matching.is_idle());
    }

    /// Notes a logged contribution to an operation.
    pub(crate) fn keep(&mut self, id: CommId, operation: u64) {
        let Some(state) = self.get(id) else { return };
        let was_open = state.is_open();
        state.kept = operation;
        if !was_open && state.is_open() {
            self.open.insert(id.index as usize);
        }
    }

    /// Returns the communicators with logged contributions to operations not known to be complete.
    pub(crate) fn open(&self) -> impl Iterator<Item = &CommState> {
        self.open.iter().filter_map(|index| self.states[*index].as_ref())
    }

    /// Marks the operations up to `operation` ended on all ranks.
    pub(crate) fn complete_upto(&mut self, number: u32, operation: u64) {
        let Some(&index) = self.numbers.get(&number) else { return };
        let Some(state) = &mut self.states[index] else { return };
        let was_open = state.is_open();
        state.complete = state.complete.max(operation.min(state.begun));
        if was_open && !state.is_open() {
            self.open.remove(&index);
        }
    }

    /// Returns the number of operations ended by this process on a communicator: `u64::MAX` for a freed communicator, 0
    /// for an unknown one.
    pub(crate) fn ended(&self, number: u32) -> u64 {
        if let Some(state) = self.by_number(number) {
            return state.ended;
        }
        if self.is_freed(number) { u64::MAX } else { 0 }
    }

    /// Returns `true` if this process has or had a communicator with this number, as told by a member.
    pub(crate) fn is_known(&self, number: u32) -> bool {
        self.numbers.contains_key(&number) || self.is_freed(number)
    }

    /// Returns `true` for the number of a freed communicator.
    fn is_freed(&self, number: u32) -> bool {
        // Agreed numbers ascend.
        if number & HASHED == 0 { number < self.next } else { self.used.contains(&number) }
    }

    /// Derives a communicator's number from `parent` without communication; all members derive in the same order.
    ///
    /// Returns `None` for an unknown parent.
    pub fn derive(&mut self, parent: CommId) -> Option<u32> {
        let parent = self.get(parent)?;
        parent.derived += 1;
        Some(hashed(u64::from(parent.number) << 32 | u64::from(parent.derived)) | HASHED)
    }

    /// Reserves the number computed from a new communicator's group names: `(first, second)`, with second 0 for an
    /// intracommunicator, and `attempt` from 0.
    ///
    /// Returns the number, and `true` if it is free here. If it isn't free on every member, all members [give it
    /// back](Self::give_back_number) and make another attempt.
    pub fn reserve_number(&mut self, names: (u64, u64), attempt: u32) -> (u32, bool) {
        let (low, high) = (names.0.min(names.1), names.0.max(names.1));
        let number = hashed((high ^ low.rotate_left(17)).wrapping_add(u64::from(attempt) << 48)) | HASHED | NAMED;
        (number, !self.used.contains(&number) && self.reserved.insert(number))
    }

    /// Gives back a number reserved here and taken on another member.
    pub fn give_back_number(&mut self, number: u32) {
        self.reserved.remove(&number);
    }
}

/// Hashes `from` to the [`HASH_BITS`] of a number.
///
/// Among n numbers, two collide with probability n² / 2³⁰.
fn hashed(from: u64) -> u32 {
    (from.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - HASH_BITS)) as u32
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn members(world: &[u32]) -> Members {
        Members { world: world.into(), rank: 0, is_inter: false }
    }

    #[test]
    fn a_freed_communicator_lives_until_its_last_receive_has_ended() {
        let mut comms = CommTable::default();
        let id = comms.add(WORLD, members(&[0, 1])).unwrap();
        let posted = comms.post(id, Some(1), Some(4)).unwrap();
        comms.free(id);
        assert!(!comms.is_idle(id) && comms.ended(WORLD) == u64::MAX);
        let mut numbered = Vec::new();
        comms.end(id, posted, Some(Arrival { source: 1, tag: 4, bytes: 9 }), &mut numbered);
        comms.drop_if_idle(id);
        assert!(numbered.len() == 1 && comms.get(id).is_none());
        // Its index is another one's: the old id still names the old communicator.
        let other = comms.add(5, members(&[0])).unwrap();
        assert_eq!((other.index, comms.propose()), (id.index, 6));
        assert!(comms.get(id).is_none() && comms.get(other).is_some());
        assert_eq!((comms.ended(3), comms.ended(6)), (u64::MAX, 0));
    }

    /// Less than a second; minutes if each one is searched for.
    #[test]
    fn no_communicator_is_searched_for_among_many() {
        const COUNT: u32 = 100_000;
        let begun = Instant::now();
        let mut comms = CommTable::default();
        let ids: Vec<CommId> = (0..COUNT).map(|number| comms.add(number, members(&[0, 1])).unwrap()).collect();
        for id in ids {
            assert!(begun.elapsed().as_secs() < 30, "{} of {COUNT} are left", COUNT - id.number());
            assert_eq!(comms.open().count(), 0);
            comms.free(id);
        }
        assert_eq!(comms.vacant.len(), COUNT as usize);
    }

    #[test]
    fn a_hashed_number_is_given_once() {
        let mut comms = CommTable::default();
        let names = (7 << 32 | 1, 0);
        let (first, is_free) = comms.reserve_number(names, 0);
        assert!(is_free && !comms.reserve_number(names, 0).1 && !comms.reserve_number((0, names.0), 0).1);
        let (second, is_free) = comms.reserve_number(names, 1);
        assert!(is_free && first != second);
        comms.give_back_number(first);
        assert!(comms.reserve_number(names, 0).1);
        assert!(first & HASHED != 0 && first & 1 << 30 == 0);
        let id = comms.add(first, members(&[0])).unwrap();
        assert_eq!(comms.add(first, members(&[0])), Err(NumberTaken { number: first }));
        comms.free(id);
        assert!(!comms.reserve_number(names, 0).1 && comms.ended(first) == u64::MAX);
    }

    #[test]
    fn a_derived_number_is_no_named_one() {
        let mut comms = CommTable::default();
        for parent in [SELF, 2, 3] {
            let parent = comms.add(parent, members(&[0])).unwrap();
            for count in 1..100 {
                let derived = comms.derive(parent).unwrap();
                // The group's first rank has given as many names, and its number makes the names alike.
                let name = u64::from(parent.number()) << 32 | count;
                assert_ne!(comms.reserve_number((name, 0), 0).0, derived, "{parent:?} {count}");
            }
        }
    }

    #[test]
    fn derived_numbers_follow_from_parent_and_count() {
        let [mut one, mut other] = [0; 2].map(|_| CommTable::default());
        let [id, same] = [&mut one, &mut other].map(|comms| comms.add(9, members(&[0, 1])).unwrap());
        let first = one.derive(id);
        assert_eq!(first, other.derive(same));
        assert_ne!(first, one.derive(id));
    }
}
