//! Collectives, for the rules that see them whole.

use counterfoil_log_core::Rank;

use super::EntryKey;

/// A collective call, as its participants agree on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CollectiveCall {
    /// Along which direction data flows.
    pub class: CollectiveClass,
    /// The communicator's context number.
    pub comm: u32,
    /// The number of this call among the collectives of `comm`, from 1.
    pub number: u64,
}

/// The four classes of C3, section 4.
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

/// How to carry out a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum CollectivePlan {
    /// As ordinary messages, each logged and numbered like any other.
    AsMessages,
    /// Move this word along the call's data flow first, tell [`super::Protocol::handle_collective_words`] what arrived, then run it.
    Exchange(u64),
    /// Don't run it: its result is this entry of the local log.
    Recorded(EntryKey),
    /// Don't run it: it has no result here, and the others have finished it.
    Skip,
    /// Run it with dummy arguments and drop the result, so that the others can finish theirs (C3, section 5.3).
    RunWithDummies,
    /// Ask again after more has arrived: the result is on its way from a peer (ULML, section 2.2).
    Hold,
}
