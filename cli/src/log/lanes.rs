//! Record states according to a checkpoint.

use counterfoil::{Epoch, Phase, Ssn};
use counterfoil_log_core::Disposition;
use counterfoil_log_io::{Block, LaneImage};

/// A record's role in a recovery from a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// Not acknowledged; a recovery sends it again.
    Unacknowledged,
    /// Acknowledged in this receiver epoch; kept in case the receiver rolls back to an earlier one.
    Retained { epoch: Epoch, phase: Phase },
    /// Acknowledged and not needed; freed with its block.
    Released,
    /// Covered by a durable checkpoint of the receiver, or given up; freed with its block.
    Covered,
    /// Replaced by a later record with the same SSN, or cut off by a lane truncation; freed with its block.
    Superseded,
    /// In a block not referenced by the checkpoint.
    Unreferenced,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            State::Unacknowledged => "unacknowledged",
            State::Retained { .. } => "retained",
            State::Released => "released",
            State::Covered => "covered",
            State::Superseded => "superseded",
            State::Unreferenced => "unreferenced",
        }
    }

    /// Returns `true` if a recovery may need the record.
    pub(super) fn is_needed(self) -> bool {
        matches!(self, State::Unacknowledged | State::Retained { .. })
    }

    /// Returns the receiver's epoch of arrival and the sender's phase, if in the checkpoint.
    pub(super) fn epoch_and_phase(self) -> Option<(Epoch, Phase)> {
        match self {
            State::Retained { epoch, phase } => Some((epoch, phase)),
            _ => None,
        }
    }
}

/// A checkpoint's lane.
#[derive(Debug)]
pub(super) struct Lane<'a> {
    pub(super) image: &'a LaneImage,
    /// Per block, the first SSN superseded by a later block, or the lane's end.
    ends: Vec<Ssn>,
}

impl<'a> Lane<'a> {
    pub(super) fn new(image: &'a LaneImage) -> Lane<'a> {
        let mut ends = vec![image.next; image.blocks.len()];
        for index in (1..ends.len()).rev() {
            ends[index - 1] = ends[index].min(image.blocks[index].first);
        }
        Lane { image, ends }
    }

    /// Returns the blocks with their indices.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (usize, &'a Block)> + use<'a> {
        self.image.blocks.iter().enumerate()
    }

    /// Returns the state of the record with this SSN in the block at `index`.
    pub(super) fn state(&self, index: usize, ssn: Ssn) -> State {
        let image = self.image;
        if self.ends.get(index).is_none_or(|end| ssn >= *end) {
            State::Superseded
        } else if ssn <= image.covered {
            State::Covered
        } else if ssn > image.acked {
            State::Unacknowledged
        } else {
            let at = image.runs.partition_point(|run| run.last < ssn);
            match image.runs.get(at).filter(|run| run.first <= ssn).map(|run| run.disposition) {
                Some(Disposition::Retain { epoch, phase }) => State::Retained { epoch, phase },
                // Records acknowledged before the first run were released.
                Some(Disposition::Release) | None => State::Released,
            }
        }
    }
}
