//! What ranks and the recovery process tell each other.

use serde::{Deserialize, Serialize};

use super::line::RankTable;
use super::phases::PhaseOrder;

/// What stands in the tag of a control header between a rank and the recovery process.
pub(super) const RECOVERY: i32 = 2;
/// What stands in the tag of a control header that carries a [`Covered`].
pub(super) const COVERED: i32 = 1;

/// From a rank to the recovery process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Report {
    /// This rank is a replacement: a new round, please (Figure 3, line 51).
    Rollback { incarnation: u32 },
    /// This rank was asked to take part in a round that isn't new; the newest that it knows.
    StaleRound { round: u64 },
    /// What the recovery line needs (Figure 3, lines 52 and 56); the phase that this rank is in, and the order of phases as it knows it.
    Table { round: u64, table: RankTable, phase: u32, phases: PhaseOrder },
    /// The same, for a collection.
    Collection { number: u64, table: RankTable },
    /// The line is obeyed; the phases in which this rank has orphans (Figure 3, line 68).
    Orphans { round: u64, phases: Vec<u32> },
    /// All orphans of a phase were received again (Figure 3, line 32); `resent`: the highest number of a phase in which an orphan was
    /// sent again to this rank in the round so far.
    NoOrphanPhase { round: u64, phase: u32, resent: u32 },
}

/// From the recovery process to a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// A round begins: stand still and send your table (Figure 3, line 54).
    Block { round: u64 },
    /// The recovery line (Figure 3, line 58), as far as it concerns this rank.
    Line(Line),
    /// No orphan is left in phases before `open` (Figure 3, line 70). Who runs gives out numbers from `raised` on.
    Ready { round: u64, open: u32, raised: u32 },
    /// No orphan is left: the recovery is over, and this is the order of phases now.
    Over { round: u64, raised: u32, phases: PhaseOrder },
    /// Send your table for a collection.
    Collect { number: u64, round: u64 },
    /// No recovery will take you back before `epoch`. `ceiling`: the smallest epoch of the next cluster; `u32::MAX` without.
    Floor { round: u64, epoch: u32, ceiling: u32 },
}

/// The recovery line, for one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) round: u64,
    /// The incarnation of this rank that the line was drawn for. A successor waits for the next round.
    pub(super) addressee: u32,
    /// Epoch to go back to, and the incarnation to be in then; `None`: stay.
    pub(super) restore: Option<(u32, u32)>,
    /// Those who have sent to this rank.
    pub(super) senders: Vec<Sender>,
    /// The order of all phases that were given out before this round.
    pub(super) phases: PhaseOrder,
}

/// What a rank has to know of one that has sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sender {
    pub(super) rank: u32,
    /// In this recovery. What earlier ones have sent doesn't count any more.
    pub(super) incarnation: u32,
    /// The last message that it doesn't send by executing: it was sent before the checkpoint that it goes back to, or
    /// before it stood still.
    pub(super) base: u64,
}

/// Up to `last`, and beyond the fact before, all was received in `epoch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fact {
    pub(super) last: u64,
    pub(super) epoch: u32,
    /// It raised the receiver's phase above the message's.
    pub(super) logged: bool,
}

/// The rank that says it won't go back before `epoch`: no recovery asks the other for its messages up to `upto`, and none takes this
/// one to where it would send those up to `settled` again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Covered {
    pub(super) epoch: u32,
    pub(super) upto: u64,
    pub(super) settled: u64,
}

/// Encodes a notice.
pub(super) fn encode<T: Serialize>(notice: &T) -> Vec<u8> {
    postcard::to_stdvec(notice).expect("numbers and vectors of known length always encode into a growing vector")
}

/// Decodes a notice; `None` if the bytes aren't one, or something follows it.
pub(super) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((notice, [])) => Some(notice),
        _ => None,
    }
}
