//! Calls underlying collectives.

use bytes::Bytes;
use counterfoil_protocols::api::CollectiveClass;

use super::{Communicator, Request};
use crate::Error;

/// Message tag for one collective call: the call's number on this communicator, from 0.
///
/// All ranks call collectives in the same order, so one rank's n-th call belongs to every other's n-th call. Messages
/// in one channel and context don't overtake each other, so one tag serves a whole call and numbers may wrap around
/// (after 2^31 calls) without harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InternalTag(u64);

impl InternalTag {
    /// Makes the tag for collective call number `sequence`.
    pub const fn new(sequence: u64) -> InternalTag {
        InternalTag(sequence)
    }

    /// Returns the number of the collective call.
    pub const fn sequence(self) -> u64 {
        self.0
    }

    /// Returns the tag for the envelope: always negative, unlike application tags.
    pub const fn wire(self) -> i32 {
        // The mask leaves 31 bits, so the cast is exact and the result is in i32::MIN..=-1.
        -1 - (self.0 & 0x7fff_ffff) as i32
    }
}

/// Way to run a collective call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectiveRun {
    /// Messages, each logged like any other.
    AsMessages,
    /// Natively: messages sent until [`complete_collective`](CollectiveSubstrate::complete_collective) are not logged,
    /// and sends may end with [`Error::CallAgain`].
    Native,
    /// Not at all: this is its result, as encoded.
    Recorded(Bytes),
    /// Not at all: it has no result.
    Skip,
}

/// A communicator as seen by collectives: messages in a context of their own
/// ([`COLLECTIVE_CONTEXT`](super::COLLECTIVE_CONTEXT)), a call count, and the rule's way to run each call.
pub trait CollectiveSubstrate: Communicator {
    /// Like [`isend`](Communicator::isend), in the context of collectives.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`](super::CallError::NoSuchRank).
    fn isend_internal(&mut self, to: u32, tag: InternalTag, payload: &[u8]) -> Result<Request, Error>;

    /// Like [`irecv`](Communicator::irecv), in the context of collectives and without wildcards.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`](super::CallError::NoSuchRank).
    fn irecv_internal(&mut self, source: u32, tag: InternalTag) -> Result<Request, Error>;

    /// Counts a collective call and returns its tag.
    ///
    /// Each call takes one.
    ///
    /// A checkpoint holds the counter, so a re-execution continues from the checkpoint's value.
    fn begin_collective(&mut self) -> InternalTag;

    /// Asks how to run collective call `tag`, and again after [`Error::CallAgain`].
    ///
    /// By default, all calls are messages.
    ///
    /// `uniform`: as in [`CollectiveCall`](counterfoil_protocols::api::CollectiveCall).
    fn plan_collective(
        &mut self,
        tag: InternalTag,
        class: CollectiveClass,
        uniform: bool,
    ) -> Result<CollectiveRun, Error> {
        let _ = (tag, class, uniform);
        Ok(CollectiveRun::AsMessages)
    }

    /// Ends a planned call, however it ran.
    ///
    /// `result`: encodes a native call's result.
    fn complete_collective(&mut self, tag: InternalTag, result: &dyn Fn() -> Vec<u8>) -> Result<(), Error> {
        let _ = (tag, result);
        Ok(())
    }
}
