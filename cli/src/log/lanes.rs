//! What a checkpoint says about a record that is in one of its blocks.

use counterfoil::store::{Block, LaneImage};
use counterfoil::{Disposition, Epoch, Phase, Ssn};

/// What a recovery from a checkpoint would do with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// Would be sent again: nobody said that it arrived.
    Unacknowledged,
    /// Arrived in this epoch of the receiver, and is kept in case that the receiver goes back before it.
    Retained { epoch: Epoch, phase: Phase },
    /// Arrived, and needn't be kept. It goes with its block.
    Released,
    /// A durable checkpoint of the receiver covers it, or it was given up. It goes with its block.
    Covered,
    /// Another record with this SSN was written later, or the lane was cut before it. It goes with its block.
    Superseded,
    /// No block that this checkpoint refers to.
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

    /// Whether a recovery may still need it.
    pub(super) fn is_needed(self) -> bool {
        matches!(self, State::Unacknowledged | State::Retained { .. })
    }

    /// The receiver's epoch in which it arrived, and the sender's phase, where the checkpoint knows them.
    pub(super) fn epoch_and_phase(self) -> Option<(Epoch, Phase)> {
        match self {
            State::Retained { epoch, phase } => Some((epoch, phase)),
            _ => None,
        }
    }
}

/// A lane of a checkpoint, to be asked about its records.
#[derive(Debug)]
pub(super) struct Lane<'a> {
    pub(super) image: &'a LaneImage,
    /// The SSN from which on a later block counts, or where the lane ends, for each block.
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

    /// The blocks, with their places in the lane's list.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (usize, &'a Block)> + use<'a> {
        self.image.blocks.iter().enumerate()
    }

    /// What becomes of the record with this SSN in the block at `index`.
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
                // What was acknowledged before the first run was released.
                Some(Disposition::Release) | None => State::Released,
            }
        }
    }
}
