//! Collectives, for rules that handle them as one event.

use counterfoil_log_core::Rank;

use super::EntryKey;

/// Collective call, identified alike by all its participants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CollectiveCall {
    /// Direction of the data flow.
    pub class: CollectiveClass,
    /// Context number of the communicator.
    pub comm: u32,
    /// Number of this call among the collectives of `comm`, from 1.
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

/// Execution plan of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum CollectivePlan {
    /// Run it as ordinary messages, each logged and numbered like any other.
    AsMessages,
    /// Move this word along the call's data flow first, pass the words that arrive to
    /// [`super::Protocol::handle_collective_words`], then run it.
    Exchange(u64),
    /// Don't run it: its result is this entry of the local log.
    Recorded(EntryKey),
    /// Don't run it: it has no result here, and the other ranks have finished it.
    Skip,
    /// Run it with dummy arguments and drop the result, so that the other ranks can finish theirs (C3, section 5.3).
    RunWithDummies,
    /// Ask again after more messages have arrived: the result is on its way from a peer (ULML, section 2.2).
    Hold,
}
