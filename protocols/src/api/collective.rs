//! Collectives, for rules handling a call as a whole and not as its messages.
//!
//! A driver calls [`Protocol::handle_collective`](super::Protocol::handle_collective) when the program does, and
//! follows the [`CollectivePlan`]. A call that runs *natively* leaves the rule out: its data is neither numbered nor
//! logged, and moves between the participants as the driver moves it. It ends with
//! [`handle_collective_completed`](super::Protocol::handle_collective_completed); or, when a participant is lost first,
//! with [`handle_collective_failed`](super::Protocol::handle_collective_failed), and then the driver asks for a plan
//! again. A participant takes no further part in a completed call.
//!
//! All ranks of the job take part: a driver runs calls on smaller communicators as messages, without asking.

use counterfoil_log_core::Rank;

use super::{EntryKey, EntryKind};

/// Bits for the call number in the entry number of a result; the communicator is above.
pub const CALL_BITS: u32 = 40;

/// Collective call, identified alike by all its participants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CollectiveCall {
    /// Data flow direction.
    pub class: CollectiveClass,
    /// The communicator's context number, below 2^24.
    pub comm: u32,
    /// Number of this call among the collectives on `comm` since program start, from 0, below 2^40.
    pub number: u64,
    /// All participants get the same result, or none at all: `true` for barrier, bcast, allreduce and allgather,
    /// `false` for scatter, gather, reduce, alltoall, reduce_scatter and scan. One rank's result then serves another.
    pub uniform: bool,
}

impl CollectiveCall {
    /// Returns the local-log key of the result, unique to the call.
    pub fn entry(&self) -> EntryKey {
        EntryKey { kind: EntryKind::Collective, number: u64::from(self.comm) << CALL_BITS | self.number }
    }
}

/// The four classes from C3, section 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CollectiveClass {
    /// From one to all: bcast, scatter.
    FromRoot(Rank),
    /// From all to one: gather, reduce.
    ToRoot(Rank),
    /// From all to all: allreduce, allgather, alltoall.
    AllToAll,
    /// No data, but all wait for all.
    Barrier,
}

impl CollectiveClass {
    /// Returns `true` if data flows from one participant to another, or, in a barrier, if one waits for the other.
    pub fn flows(self, from: Rank, to: Rank) -> bool {
        match self {
            CollectiveClass::FromRoot(root) => from == root,
            CollectiveClass::ToRoot(root) => to == root,
            CollectiveClass::AllToAll | CollectiveClass::Barrier => true,
        }
    }
}

/// Execution plan for a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum CollectivePlan {
    /// Run it as ordinary messages, each logged and numbered like any other.
    AsMessages,
    /// Run it natively, and keep the result under this local-log entry before the program has it.
    Native {
        /// Entry of the result.
        keep: Option<EntryKey>,
    },
    /// Like `Native`, but first exchange words, and pass the received ones to
    /// [`handle_collective_words`](super::Protocol::handle_collective_words), which names the entry for the result.
    Exchange {
        /// Word from this rank.
        word: u64,
        /// Its recipients.
        scope: Scope,
    },
    /// Like `Native`, but this word travels with the data of the call, wherever it goes. The words received with it are
    /// passed to [`handle_collective_words`](super::Protocol::handle_collective_words) when all data is here; only then
    /// the result is kept. All participants running the call choose this plan, or none.
    Piggyback {
        /// Word from this rank.
        word: u64,
    },
    /// Don't run it: its result is this local-log entry.
    Recorded(EntryKey),
    /// Don't run it: it has no result here, and the other ranks have finished it.
    Skip,
    /// Ask again after [`Effect::Resume`](super::Effect::Resume): the result is on its way from a peer (ULML, section
    /// 2.2).
    Hold,
}

/// Recipients of the word from a participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Recipients of its data (C3, section 5).
    AlongData,
    /// All participants (libELC, section 4.5.1).
    All,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_a_key_that_no_other_call_has() {
        let number = |comm, number| {
            CollectiveCall { class: CollectiveClass::Barrier, comm, number, uniform: true }.entry().number
        };
        assert_eq!(number(5, 6), 5 << 40 | 6);
        let last = (1 << 40) - 1;
        let keys = [number(0, 0), number(0, last), number(1, 0), number(1, last), number((1 << 24) - 1, last)];
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
        let call = CollectiveCall { class: CollectiveClass::AllToAll, comm: 0, number: 0, uniform: true };
        assert_eq!(call.entry().kind, EntryKind::Collective);
    }

    #[test]
    fn data_flows_from_the_root_or_to_it_or_between_all() {
        let (root, a, b) = (Rank(1), Rank(0), Rank(2));
        let flows = |class: CollectiveClass| [(root, a), (a, root), (a, b)].map(|(from, to)| class.flows(from, to));
        assert_eq!(flows(CollectiveClass::FromRoot(root)), [true, false, false]);
        assert_eq!(flows(CollectiveClass::ToRoot(root)), [false, true, false]);
        assert_eq!(flows(CollectiveClass::AllToAll), [true; 3]);
        assert_eq!(flows(CollectiveClass::Barrier), [true; 3]);
    }
}
